/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Making the trees that rdmakit/redis.h hands out.  A reply owns its text and
 * its elements.  Any thread, one at a time per tree.
 */
#ifndef RK_REDIS_CLIENT_REPLY_H
#define RK_REDIS_CLIENT_REPLY_H

#include "base/compiler.h"
#include "rdmakit/redis.h"

/* NULL: out of memory. */
RK_MUST_CHECK struct rk_reply *rk_reply_new(enum rk_reply_type type);

/* Copy bytes into a reply that has no text yet. */
RK_MUST_CHECK int rk_reply_set_text(struct rk_reply *reply, const char *text,
				    size_t bytes);

#endif
