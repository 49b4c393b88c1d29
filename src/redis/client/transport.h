/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What carries the bytes.  A transport is a table of functions found by the
 * scheme of a URI; a link context is what one thread uses of it, with many
 * links (connections) and one wait for all of them.
 *
 * Threads: a context and its links belong to one thread.  Nothing here calls
 * back.  Errors are 0 or negative errno.
 */
#ifndef RK_REDIS_CLIENT_TRANSPORT_H
#define RK_REDIS_CLIENT_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/compiler.h"
#include "redis/client/uri.h"

enum rk_link_event {
	RK_LINK_OPEN = 1,     /* once: connected */
	RK_LINK_READABLE = 2, /* bytes or the end wait; in each wait until
			       * they are read */
	RK_LINK_WRITABLE = 4, /* room again, after a write was cut short */
	RK_LINK_CLOSED = 8,   /* it ended, or never opened: ->error has words.
			       * In each wait until it is disconnected; what
			       * came before the end can still be read */
};

/* Base of every transport's link, its first member. */
struct rk_link {
	void *user;
	char error[160]; /* why it closed */
};

/* Base of every transport's context, its first member. */
struct rk_link_context {
	const struct rk_transport *transport;
};

struct rk_link_ready {
	struct rk_link *link;
	unsigned events; /* enum rk_link_event */
};

struct rk_link_options {
	const char *device; /* NULL: "auto"; for transports that have one */
	int spin_us; /* poll so long before sleeping; -1: what suits it */
	uint32_t window_bytes; /* receive memory of a link; 0: the default */
	/* Where links will go to: "auto" is the device that reaches it.  NULL:
	 * not known.  Only open() reads it, which may block: for the name, and
	 * for a host that does not answer 2 s. */
	const struct rk_uri *uri;
};

/* All members are required. */
struct rk_transport {
	const char *scheme;

	/* On failure error has the words.  *out is NULL then. */
	int (*open)(struct rk_link_context **out,
		    const struct rk_link_options *options, char *error,
		    size_t error_bytes);

	/* Every link must have been disconnected. */
	void (*close)(struct rk_link_context *context);

	/*
	 * Start connecting; wait() gives OPEN or CLOSED.  The user gives up by
	 * disconnect() at a time of its own, which timeout_ms announces.
	 * Names are looked up here, which blocks.  On failure error has the
	 * words and *out is NULL.
	 */
	int (*connect)(struct rk_link_context *context,
		       const struct rk_uri *uri, int timeout_ms, void *user,
		       struct rk_link **out, char *error, size_t error_bytes);

	/* What was written leaves as far as the transport promises that; the
	 * link is freed.  It may still stand in an array that wait() filled
	 * before: it is not to be looked up there. */
	void (*disconnect)(struct rk_link *link);

	/* Bytes; 0: the peer closed; -EAGAIN: nothing now; else why the link
	 * is broken, with words in ->error. */
	ssize_t (*read)(struct rk_link *link, void *data, size_t bytes);

	/* Bytes taken; fewer than given: WRITABLE follows.  -EAGAIN: none;
	 * else why the link is broken, with words in ->error. */
	ssize_t (*writev)(struct rk_link *link, const struct iovec *iov,
			  int count);

	/*
	 * Wait until a link has something, at most timeout_us (0: only look;
	 * negative: for ever).  Returns how many of ready were filled, 0 when
	 * the time is over.  -EINTR: a signal handler ran.
	 */
	int (*wait)(struct rk_link_context *context,
		    struct rk_link_ready *ready, unsigned max,
		    int64_t timeout_us);

	/* The device that carries it, or NULL. */
	const char *(*device)(const struct rk_link_context *context);

	/* Messages with bytes that went out and came in, over all links there
	 * were: the device's, or else system calls. */
	void (*messages)(const struct rk_link_context *context,
			 uint64_t *sent, uint64_t *received);
};

/* NULL: no such transport; error names those there are. */
const struct rk_transport *rk_transport_find(const char *scheme, char *error,
					     size_t error_bytes);

/* Add one; before other threads look.  -EEXIST, -ENOSPC. */
RK_MUST_CHECK int rk_transport_register(const struct rk_transport *transport);

extern const struct rk_transport rk_transport_rdma, rk_transport_tcp,
	rk_transport_unix;

#endif
