/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The few functions of the server's public module interface that are used.
 * The server hands out their addresses by name, through a function that is
 * the first word of every context.  Redis and Valkey know the same names.
 *
 * Threads: the server's main thread, except log().
 */
#ifndef RK_MODULE_API_H
#define RK_MODULE_API_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct rk_server_context; /* opaque: the server's */
struct rk_server_string;
struct rk_server_reply;
struct rk_server_info;
struct rk_server_report;

/* How an event names itself; passed by value. */
struct rk_server_event {
	uint64_t id;
	uint64_t version;
};

typedef void rk_server_event_callback(struct rk_server_context *ctx,
				      struct rk_server_event event,
				      uint64_t subevent, void *data);
typedef void rk_server_report_callback(struct rk_server_report *report,
				       int for_crash_report);

enum {
	RK_SERVER_OK = 0,
	RK_SERVER_ERR = 1,
	RK_SERVER_API_VERSION = 1,
	RK_SERVER_EVENT_SHUTDOWN = 5,
};

struct rk_server_api {
	void (*set_attributes)(struct rk_server_context *ctx, const char *name,
			       int version, int api_version);
	int (*name_busy)(const char *name);
	void (*log)(struct rk_server_context *ctx, const char *level,
		    const char *format, ...) RK_PRINTF(3, 4);
	struct rk_server_context *(*detached_context)(
		struct rk_server_context *ctx);
	void (*context_free)(struct rk_server_context *detached);

	const char *(*string_text)(const struct rk_server_string *string,
				   size_t *bytes);

	struct rk_server_reply *(*call)(struct rk_server_context *ctx,
					const char *command,
					const char *format, ...);
	struct rk_server_reply *(*reply_element)(struct rk_server_reply *reply,
						 size_t index);
	const char *(*reply_text)(struct rk_server_reply *reply,
				  size_t *bytes);
	void (*reply_free)(struct rk_server_reply *reply);

	struct rk_server_info *(*info_get)(struct rk_server_context *ctx,
					   const char *section);
	const char *(*info_text)(struct rk_server_info *info,
				 const char *field);
	unsigned long long (*info_number)(struct rk_server_info *info,
					  const char *field, int *error);
	void (*info_free)(struct rk_server_context *ctx,
			  struct rk_server_info *info);

	int (*report_register)(struct rk_server_context *ctx,
			       rk_server_report_callback *callback);
	int (*report_section)(struct rk_server_report *report,
			      const char *name);
	int (*report_text)(struct rk_server_report *report, const char *field,
			   const char *text);
	int (*report_number)(struct rk_server_report *report,
			     const char *field, unsigned long long number);

	int (*subscribe)(struct rk_server_context *ctx,
			 struct rk_server_event event,
			 rk_server_event_callback *callback);
};

extern struct rk_server_api rk_api;

/* Fill rk_api.  0, or -ENOSYS: the server lacks one of them, and *missing is
 * its name. */
RK_MUST_CHECK int rk_api_bind(struct rk_server_context *ctx,
			      const char **missing);

/*
 * Copy the value of one setting (CONFIG GET) to text.  0, or -ENOENT: no such
 * setting, -E2BIG: longer than the room there is.
 */
RK_MUST_CHECK int rk_api_config(struct rk_server_context *ctx,
				const char *setting, char *text, size_t bytes);

#endif
