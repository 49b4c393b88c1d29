/* SPDX-License-Identifier: BSD-3-Clause */
/* See buffer.h. */
#include "redis/client/buffer.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"

enum {
	START_BYTES = 1024,
	KEEP_BYTES = 1 << 20, /* an empty buffer larger than this is given back */
};

int rk_buffer_reserve(struct rk_buffer *buffer, size_t bytes)
{
	size_t used = rk_buffer_bytes(buffer);
	size_t capacity = buffer->capacity;
	char *data;

	if (rk_buffer_room(buffer) >= bytes)
		return 0;
	if (bytes > SIZE_MAX / 4 - used)
		return -ENOMEM;
	/* Moving is paid for by the consumed bytes, which are no fewer. */
	if (buffer->head >= used && capacity - used >= bytes) {
		memmove(buffer->data, rk_buffer_head(buffer), used);
		buffer->head = 0;
		buffer->tail = used;
		return 0;
	}
	if (!capacity)
		capacity = START_BYTES;
	while (capacity - buffer->tail < bytes || capacity < buffer->tail)
		capacity *= 2;
	data = rk_realloc(buffer->data, capacity);
	if (!data)
		return -ENOMEM;
	buffer->data = data;
	buffer->capacity = capacity;
	return 0;
}

int rk_buffer_append(struct rk_buffer *buffer, const void *data, size_t bytes)
{
	int ret = rk_buffer_reserve(buffer, bytes);

	if (ret)
		return ret;
	if (bytes)
		memcpy(rk_buffer_tail(buffer), data, bytes);
	buffer->tail += bytes;
	return 0;
}

void rk_buffer_consume(struct rk_buffer *buffer, size_t bytes)
{
	buffer->head += bytes;
	if (buffer->head < buffer->tail)
		return;
	if (buffer->capacity > KEEP_BYTES)
		rk_buffer_free(buffer);
	buffer->head = buffer->tail = 0;
}

void rk_buffer_free(struct rk_buffer *buffer)
{
	rk_free(buffer->data);
	*buffer = (struct rk_buffer){ 0 };
}
