/* SPDX-License-Identifier: BSD-3-Clause */
/* See reply.h. */
#include "redis/client/reply.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"

struct rk_reply *rk_reply_new(enum rk_reply_type type)
{
	struct rk_reply *reply = rk_zalloc(sizeof(*reply));

	if (reply)
		reply->type = type;
	return reply;
}

int rk_reply_set_text(struct rk_reply *reply, const char *text, size_t bytes)
{
	reply->text = rk_realloc(NULL, bytes + 1);
	if (!reply->text)
		return -ENOMEM;
	memcpy(reply->text, text, bytes);
	reply->text[bytes] = '\0';
	reply->bytes = bytes;
	return 0;
}

/* The reader bounds the depth, and with it this recursion. */
void rk_reply_free(struct rk_reply *reply)
{
	if (!reply)
		return;
	for (size_t i = 0; i < reply->element_count; i++)
		rk_reply_free(reply->elements[i]);
	rk_free(reply->elements);
	rk_free(reply->text);
	rk_free(reply);
}
