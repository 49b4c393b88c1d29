/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One piece of memory with the bytes somewhere inside.  Always: start + bytes
 * <= room <= RK_BUFFER_MAX_BYTES, and start is 0 when there are no bytes.
 * Any thread that holds the lock of the connection.
 */
#include "buffer.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"

int rk_buffer_reserve(struct rk_buffer *buffer, size_t bytes)
{
	size_t room = rk_max(buffer->room, (size_t)RK_BUFFER_KEEP_BYTES);
	char *data;

	if (bytes > RK_BUFFER_MAX_BYTES - buffer->bytes)
		return -ENOBUFS;
	if (buffer->start + buffer->bytes + bytes <= buffer->room)
		return 0;
	if (buffer->bytes + bytes <= buffer->room) {
		memmove(buffer->data, buffer->data + buffer->start,
			buffer->bytes);
		buffer->start = 0;
		return 0;
	}
	while (room < buffer->bytes + bytes)
		room *= 2;
	data = rk_zalloc(room);
	if (!data)
		return -ENOMEM;
	if (buffer->bytes)
		memcpy(data, buffer->data + buffer->start, buffer->bytes);
	rk_free(buffer->data);
	buffer->data = data;
	buffer->start = 0;
	buffer->room = room;
	return 0;
}

ssize_t rk_buffer_put(struct rk_buffer *buffer, const void *data, size_t bytes)
{
	int ret;

	bytes = rk_min(bytes, (size_t)RK_BUFFER_MAX_BYTES - buffer->bytes);
	if (!bytes)
		return 0;
	ret = rk_buffer_reserve(buffer, bytes);
	if (ret)
		return ret;
	memcpy(buffer->data + buffer->start + buffer->bytes, data, bytes);
	buffer->bytes += bytes;
	return (ssize_t)bytes;
}

void rk_buffer_drop(struct rk_buffer *buffer, size_t bytes)
{
	buffer->start += bytes;
	buffer->bytes -= bytes;
	if (buffer->bytes)
		return;
	buffer->start = 0;
	if (buffer->room > RK_BUFFER_KEEP_BYTES)
		rk_buffer_free(buffer);
}

size_t rk_buffer_take(struct rk_buffer *buffer, void *data, size_t bytes)
{
	bytes = rk_min(bytes, buffer->bytes);
	if (bytes) {
		memcpy(data, buffer->data + buffer->start, bytes);
		rk_buffer_drop(buffer, bytes);
	}
	return bytes;
}

void rk_buffer_free(struct rk_buffer *buffer)
{
	rk_free(buffer->data);
	memset(buffer, 0, sizeof(*buffer));
}
