/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pushes that came while a command waited for its answer, in order, until
 * somebody reads.  Bounded.  One thread.
 */
#ifndef RK_REDIS_CLIENT_PUSH_QUEUE_H
#define RK_REDIS_CLIENT_PUSH_QUEUE_H

#include "base/compiler.h"
#include "rdmakit/redis.h"

enum { RK_PUSHES_MAX = 65536 };

/* A ring that doubles; all zero is empty. */
struct rk_push_queue {
	struct rk_reply **ring;
	size_t head, count, capacity;
};

/* -ENOBUFS: full; -ENOMEM.  The push is still the caller's then. */
RK_MUST_CHECK int rk_push_queue_put(struct rk_push_queue *queue,
				    struct rk_reply *push);

/* NULL: empty. */
struct rk_reply *rk_push_queue_take(struct rk_push_queue *queue);

void rk_push_queue_free(struct rk_push_queue *queue);

#endif
