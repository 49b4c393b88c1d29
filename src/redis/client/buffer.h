/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A growing byte queue: bytes go in at the tail and out at the head.  Growing
 * doubles and consuming moves nothing, so that a byte is moved a constant
 * number of times however it arrives.  One thread.
 */
#ifndef RK_REDIS_CLIENT_BUFFER_H
#define RK_REDIS_CLIENT_BUFFER_H

#include <stddef.h>

#include "base/compiler.h"

struct rk_buffer {
	char *data;
	size_t head, tail, capacity; /* head <= tail <= capacity */
};

static inline size_t rk_buffer_bytes(const struct rk_buffer *buffer)
{
	return buffer->tail - buffer->head;
}

static inline char *rk_buffer_head(const struct rk_buffer *buffer)
{
	return buffer->data + buffer->head;
}

/* Where the next bytes go; at least what was reserved. */
static inline char *rk_buffer_tail(const struct rk_buffer *buffer)
{
	return buffer->data + buffer->tail;
}

static inline size_t rk_buffer_room(const struct rk_buffer *buffer)
{
	return buffer->capacity - buffer->tail;
}

static inline void rk_buffer_commit(struct rk_buffer *buffer, size_t bytes)
{
	buffer->tail += bytes;
}

/* Make room for bytes at the tail; -ENOMEM leaves the buffer as it was. */
RK_MUST_CHECK int rk_buffer_reserve(struct rk_buffer *buffer, size_t bytes);

RK_MUST_CHECK int rk_buffer_append(struct rk_buffer *buffer, const void *data,
				   size_t bytes);

void rk_buffer_consume(struct rk_buffer *buffer, size_t bytes);
void rk_buffer_free(struct rk_buffer *buffer);

#endif
