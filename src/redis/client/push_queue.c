/* SPDX-License-Identifier: BSD-3-Clause */
/* See push_queue.h. */
#include "redis/client/push_queue.h"

#include <errno.h>

#include "base/alloc.h"

enum { START_COUNT = 16 };

static int grow(struct rk_push_queue *queue)
{
	size_t capacity = queue->capacity ? queue->capacity * 2 : START_COUNT;
	struct rk_reply **ring;

	if (capacity > RK_PUSHES_MAX)
		return -ENOBUFS;
	ring = rk_calloc(capacity, sizeof(struct rk_reply *));
	if (!ring)
		return -ENOMEM;
	for (size_t i = 0; i < queue->count; i++)
		ring[i] = queue->ring[(queue->head + i) % queue->capacity];
	rk_free(queue->ring);
	queue->ring = ring;
	queue->head = 0;
	queue->capacity = capacity;
	return 0;
}

int rk_push_queue_put(struct rk_push_queue *queue, struct rk_reply *push)
{
	int ret = queue->count == queue->capacity ? grow(queue) : 0;

	if (ret)
		return ret;
	queue->ring[(queue->head + queue->count++) % queue->capacity] = push;
	return 0;
}

struct rk_reply *rk_push_queue_take(struct rk_push_queue *queue)
{
	struct rk_reply *push;

	if (!queue->count)
		return NULL;
	push = queue->ring[queue->head];
	queue->head = (queue->head + 1) % queue->capacity;
	queue->count--;
	return push;
}

void rk_push_queue_free(struct rk_push_queue *queue)
{
	struct rk_reply *push;

	while ((push = rk_push_queue_take(queue)))
		rk_reply_free(push);
	rk_free(queue->ring);
	*queue = (struct rk_push_queue){ 0 };
}
