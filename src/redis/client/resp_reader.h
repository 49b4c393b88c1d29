/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RESP2 and RESP3, bytes to replies, incrementally: feed what arrived in any
 * pieces, take replies out.  What is fed is copied, so that nobody can change
 * it after it was checked.
 *
 * What a server sends is input.  Nesting, line length and string length are
 * bounded; memory is taken as elements and bytes really arrive, not as a
 * header promises.  Attributes (RESP3 '|') are read and dropped.  Streamed
 * strings and aggregates ('$?', '*?'), which no server sends, are refused.
 * After an error the reader stays in error.  One thread.
 */
#ifndef RK_REDIS_CLIENT_RESP_READER_H
#define RK_REDIS_CLIENT_RESP_READER_H

#include "base/compiler.h"
#include "rdmakit/redis.h"
#include "redis/client/buffer.h"

enum {
	RK_RESP_DEPTH_MAX = 32,
	RK_RESP_LINE_MAX = 1 << 20,
	RK_RESP_BULK_MAX = 512 << 20,
};

/* An aggregate whose elements are still arriving. */
struct rk_resp_frame {
	struct rk_reply *reply;
	uint64_t left;	 /* elements to come */
	size_t capacity; /* of reply->elements */
	bool attribute;	 /* dropped when complete */
};

struct rk_resp_reader {
	struct rk_buffer in;
	size_t scanned; /* bytes of the waiting line known to hold no '\r' */

	struct rk_resp_frame stack[RK_RESP_DEPTH_MAX];
	unsigned depth;

	struct rk_reply *bulk; /* string whose bytes are arriving, or NULL */
	size_t bulk_bytes;     /* its length as announced */
	size_t bulk_capacity;

	int failed;
	char error[128];
};

/* An all-zero reader is ready for use. */
void rk_resp_reader_free(struct rk_resp_reader *reader);

/* -ENOMEM: nothing was taken. */
RK_MUST_CHECK int rk_resp_reader_feed(struct rk_resp_reader *reader,
				      const void *data, size_t bytes);

/*
 * 1: *out is the next reply, yours; 0: more bytes are needed; else
 *   -EPROTO  not RESP, or over a bound; ->error has the words
 *   -ENOMEM
 */
RK_MUST_CHECK int rk_resp_reader_next(struct rk_resp_reader *reader,
				      struct rk_reply **out);

/* True between replies: nothing has been taken of the next one. */
bool rk_resp_reader_idle(const struct rk_resp_reader *reader);

#endif
