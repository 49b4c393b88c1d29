/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bounded queue of bytes between an I/O thread of the server and the owner
 * of the device.  It takes no lock: its user holds the connection's.  Memory
 * comes with the first byte and large ones go back when it runs empty.
 */
#ifndef RK_MODULE_BUFFER_H
#define RK_MODULE_BUFFER_H

#include <stddef.h>
#include <sys/types.h>

enum {
	RK_BUFFER_MAX_BYTES = 262144,
	RK_BUFFER_KEEP_BYTES = 32768, /* kept although empty */
};

struct rk_buffer {
	char *data;
	size_t start, bytes, room;
};

/* Append at most bytes of data; how many were taken (0: full), or -ENOMEM. */
ssize_t rk_buffer_put(struct rk_buffer *buffer, const void *data,
		      size_t bytes);

/* Drop bytes from the front. */
void rk_buffer_drop(struct rk_buffer *buffer, size_t bytes);

/* Move at most bytes from the front to data; how many. */
size_t rk_buffer_take(struct rk_buffer *buffer, void *data, size_t bytes);

/* Make room for at least bytes at the end, or -ENOMEM, -ENOBUFS; the place is
 * buffer->data + start + bytes, to be counted by rk_buffer_grew(). */
int rk_buffer_reserve(struct rk_buffer *buffer, size_t bytes);

void rk_buffer_free(struct rk_buffer *buffer);

#endif
