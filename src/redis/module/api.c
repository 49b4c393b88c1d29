/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finding the server's module functions.  After rk_api_bind() said 0, every
 * member of rk_api is set and stays as it is.  Main thread.
 */
#include "api.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct rk_server_api rk_api;

typedef int get_function(const char *name, void *out);

static const struct {
	const char *name;
	size_t offset;
} names[] = {
#define NAME(member, text) { text, offsetof(struct rk_server_api, member) }
	NAME(set_attributes, "RedisModule_SetModuleAttribs"),
	NAME(name_busy, "RedisModule_IsModuleNameBusy"),
	NAME(log, "RedisModule_Log"),
	NAME(detached_context, "RedisModule_GetDetachedThreadSafeContext"),
	NAME(context_free, "RedisModule_FreeThreadSafeContext"),
	NAME(string_text, "RedisModule_StringPtrLen"),
	NAME(call, "RedisModule_Call"),
	NAME(reply_element, "RedisModule_CallReplyArrayElement"),
	NAME(reply_text, "RedisModule_CallReplyStringPtr"),
	NAME(reply_free, "RedisModule_FreeCallReply"),
	NAME(info_get, "RedisModule_GetServerInfo"),
	NAME(info_text, "RedisModule_ServerInfoGetFieldC"),
	NAME(info_number, "RedisModule_ServerInfoGetFieldUnsigned"),
	NAME(info_free, "RedisModule_FreeServerInfo"),
	NAME(report_register, "RedisModule_RegisterInfoFunc"),
	NAME(report_section, "RedisModule_InfoAddSection"),
	NAME(report_text, "RedisModule_InfoAddFieldCString"),
	NAME(report_number, "RedisModule_InfoAddFieldULongLong"),
	NAME(subscribe, "RedisModule_SubscribeToServerEvent"),
#undef NAME
};

int rk_api_bind(struct rk_server_context *ctx, const char **missing)
{
	get_function *get;
	size_t i;

	memcpy(&get, ctx, sizeof(get)); /* the context's first word */
	for (i = 0; i < RK_ARRAY_SIZE(names); i++) {
		if (get(names[i].name, (char *)&rk_api + names[i].offset)) {
			*missing = names[i].name;
			return -ENOSYS;
		}
	}
	return 0;
}

int rk_api_config(struct rk_server_context *ctx, const char *setting,
		  char *text, size_t bytes)
{
	struct rk_server_reply *reply, *value;
	const char *found = NULL;
	size_t length = 0;
	int ret = -ENOENT;

	reply = rk_api.call(ctx, "CONFIG", "cc", "GET", setting);
	if (!reply)
		return -ENOENT;
	value = rk_api.reply_element(reply, 1); /* name, then value */
	if (value)
		found = rk_api.reply_text(value, &length);
	if (found && length >= bytes) {
		ret = -E2BIG;
	} else if (found) {
		memcpy(text, found, length);
		text[length] = 0;
		ret = 0;
	}
	rk_api.reply_free(reply);
	return ret;
}
