/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client of Redis and Valkey over rdma://, tcp:// or unix://.  Synchronous:
 * each call sends and waits for its answer, or for its time to run out.
 *
 * Threads: a connection may be used by one thread at a time; different
 * connections are independent.  Errors are negative errno, with words from
 * rk_redis_error().
 *
 * URIs:
 *   rdma://HOST[:PORT][/DB][?device=NAME]   port 6379
 *   tcp://HOST[:PORT][/DB]                  redis:// means the same
 *   unix:///PATH[?db=DB]
 *   any of them with USER:PASSWORD@ or :PASSWORD@ before the host
 */
#ifndef RDMAKIT_REDIS_H
#define RDMAKIT_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rdmakit/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rk_redis;

/* One answer, RESP2 or RESP3.  A tree; owned by whoever got it. */
enum rk_reply_type {
	RK_REPLY_STRING,   /* bulk string: text, bytes */
	RK_REPLY_STATUS,   /* simple string */
	RK_REPLY_ERROR,	   /* simple or bulk error: text begins with a code */
	RK_REPLY_INTEGER,
	RK_REPLY_NIL,
	RK_REPLY_ARRAY,
	RK_REPLY_MAP,	   /* elements: key, value, key, value ... */
	RK_REPLY_SET,
	RK_REPLY_PUSH,	   /* out of band */
	RK_REPLY_DOUBLE,   /* number, and text as the server wrote it */
	RK_REPLY_BOOLEAN,  /* integer is 0 or 1 */
	RK_REPLY_BIGNUMBER, /* text */
	RK_REPLY_VERBATIM, /* text; format has its three letters */
};

struct rk_reply {
	enum rk_reply_type type;
	int64_t integer;
	double number;
	char *text; /* NUL after it; may hold any byte */
	size_t bytes;
	char format[4];
	struct rk_reply **elements;
	size_t element_count;
};

RK_API void rk_reply_free(struct rk_reply *reply); /* NULL is fine */

struct rk_redis_params {
	int connect_timeout_ms; /* 0 means 5000 */
	int command_timeout_ms; /* 0 means for ever */
	/* For rdma://; NULL means "auto": the device that reaches the server.
	 * Finding it takes up to 2 s if the server's host does not answer. */
	const char *device;
	/* Poll this long before sleeping; 0: 50 for rdma:// on more than one
	 * processor, else not at all. */
	unsigned spin_us;
};

/*
 * Connect, and AUTH and SELECT if the URI says so.  params may be NULL.  On
 * failure *out is still set (unless -ENOMEM) so that rk_redis_error() can be
 * asked; close it.
 */
RK_API int rk_redis_open(struct rk_redis **out, const char *uri,
			 const struct rk_redis_params *params);
RK_API void rk_redis_close(struct rk_redis *redis); /* NULL is fine */

/*
 * Send one command and wait for its answer.  lengths may be NULL: strings.
 * Pushes that come before the answer are kept, in order, for the read calls
 * (65536 of them, then -ENOBUFS); but the push that answers a SUBSCRIBE in
 * RESP3 is its answer.
 *   -EINVAL     no argument; nothing was sent
 *   -ETIMEDOUT  no answer within command_timeout_ms
 *   -ECONNRESET and others of the connection; -EPROTO: the answer is no RESP
 * After any but -EINVAL it is not known which answer belongs to which command:
 * every later call fails.  An error reply is an answer, not an error.
 */
RK_API int rk_redis_command(struct rk_redis *redis, int argc,
			    const char *const *argv, const size_t *lengths,
			    struct rk_reply **reply);

/* Pipelining: append any number, then read as many answers.  What is appended
 * leaves with the first read, or when 64 KiB have gathered. */
RK_API int rk_redis_append(struct rk_redis *redis, int argc,
			   const char *const *argv, const size_t *lengths);
/* Bytes as they are on the wire. */
RK_API int rk_redis_append_raw(struct rk_redis *redis, const void *data,
			       size_t bytes);
RK_API int rk_redis_read(struct rk_redis *redis, struct rk_reply **reply);

/* As rk_redis_read(), but waits at most timeout_ms instead of
 * command_timeout_ms, and after -ETIMEDOUT the connection stays usable: for
 * pushes and messages. */
RK_API int rk_redis_read_timeout(struct rk_redis *redis, int timeout_ms,
				 struct rk_reply **reply);

RK_API const char *rk_redis_error(const struct rk_redis *redis);
RK_API const char *rk_redis_transport(const struct rk_redis *redis);
/* The device, for rdma://; else NULL. */
RK_API const char *rk_redis_device(const struct rk_redis *redis);

#ifdef __cplusplus
}
#endif
#endif
