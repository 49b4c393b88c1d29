/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A reliable byte stream on one RDMA queue pair, wire compatible with
 * Valkey-over-RDMA version 1 (Valkey 8.0 to 9.1, libvalkey): control messages
 * of 32 bytes by SEND, bytes by WRITE and WRITE WITH IMMEDIATE into a window
 * the peer announced.  doc/protocol-redis.md has the byte tables.
 *
 * Threads: as rdmakit/device.h, with one exception.  One other thread at a time
 * may read: rk_stream_pending(), _peek(), _read_offthread(),
 * _consume_offthread(), _due() touch only this stream's memory and may run
 * while the owner is in rk_context_process().  The owner must not read
 * meanwhile, nor close the stream.  When that thread is done and
 * rk_stream_due() says so, the owner calls rk_stream_service().
 *
 * Memory: registered bytes per stream are its receive window (a second one of
 * the same size once bytes come faster than they are read), and for what
 * cannot be sent inline a source buffer of at most 256 KiB.  The rest of a
 * stream is less than 1 KiB, besides what the connection below it needs.
 */
#ifndef RDMAKIT_STREAM_H
#define RDMAKIT_STREAM_H

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "rdmakit/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rk_stream;
struct rk_stream_listener;

enum {
	RK_STREAM_WINDOW_MIN = 65536,
	RK_STREAM_WINDOW_MAX = 16777216,
	RK_STREAM_WINDOW_DEFAULT = 1048576,
};

struct rk_stream_params {
	uint32_t window_bytes; /* ours, RK_STREAM_WINDOW_MIN.._MAX; 0: default */
	unsigned receive_depth; /* 64..8192; 0 means 1024, what Valkey peers
				 * rely on; our own sends assume that the peer
				 * has this many or 1024, whichever is less */
	unsigned linger_ms; /* last words after close; 0 means 1000 */
};

enum rk_stream_event {
	RK_STREAM_OPEN = 1,	/* connected; reported once, with WRITABLE when
				 * the peer's window is known */
	RK_STREAM_READABLE = 2, /* bytes, or the end, wait to be read */
	RK_STREAM_WRITABLE = 4, /* a write would take at least one byte */
	RK_STREAM_CLOSED = 8,	/* the peer is gone; reads still give what
				 * arrived before it, then 0 or the error */
};

/*
 * Told when there is something new: READABLE for each arrival of bytes and for
 * the end; WRITABLE when the peer's window is first known, and when room has
 * come back after a write took less than it was given or used up the last of
 * it; OPEN and CLOSED once.
 * Runs inside rk_context_process(), never inside another call.  Any stream
 * call is allowed inside, rk_stream_close() and rk_stream_abort() too.
 * Whoever has not read everything is not told again about the rest: ask
 * rk_stream_ready().
 */
typedef void rk_stream_callback(struct rk_stream *stream, void *user,
				unsigned events);

/* The levels as they are now: a mask of enum rk_stream_event. */
RK_API unsigned rk_stream_ready(const struct rk_stream *stream);

/*
 * Start connecting; OPEN or CLOSED follows.  source NULL: any.  timeout_ms 0:
 * 5000.  params NULL: defaults.  *out is NULL on failure.
 *   -EINVAL  a parameter is outside the range given above
 *   -ENOMEM  out of memory, or of registered memory (logged)
 */
RK_API int rk_stream_connect(struct rk_context *context,
			     const struct sockaddr *addr,
			     const struct sockaddr *source, int timeout_ms,
			     const struct rk_stream_params *params,
			     rk_stream_callback *callback, void *user,
			     struct rk_stream **out);

/*
 * Listen.  accepted() gets each stream when it is established; it is the
 * user's from then, and accepted() calls rk_stream_set_callback() or
 * rk_stream_close().  OPEN is not reported for it.  Port 0 takes a free one.
 * Closing a listener refuses those that were not yet established; streams it
 * gave live on.
 */
typedef void rk_stream_accepted(struct rk_stream *stream, void *user);
RK_API int rk_stream_listen(struct rk_context *context,
			    const struct sockaddr *addr, int backlog,
			    const struct rk_stream_params *params,
			    rk_stream_accepted *accepted, void *user,
			    struct rk_stream_listener **out);
RK_API uint16_t
rk_stream_listener_port(const struct rk_stream_listener *listener);
RK_API void rk_stream_listener_close(struct rk_stream_listener *listener);

RK_API void rk_stream_set_callback(struct rk_stream *stream,
				   rk_stream_callback *callback, void *user);
RK_API void *rk_stream_user(const struct rk_stream *stream);

/*
 * Bytes taken (they are copied or sent: the memory is yours again at return),
 * possibly fewer than given.
 *   -EAGAIN      no room now, or not open yet; WRITABLE follows
 *   -EPIPE       closed; rk_stream_error() says why
 *   -ENOMEM      no registered memory to send from; may work later
 *   other        the device refused the work; CLOSED follows
 * RK_STREAM_MORE: more follows in this loop turn, the peer need not be told
 * yet; rk_stream_flush() or a write without it does that.  It is told anyway
 * after every 64 KiB and at the end of its window.
 */
enum { RK_STREAM_MORE = 1 };
RK_API ssize_t rk_stream_writev(struct rk_stream *stream,
				const struct iovec *iov, int iov_count,
				unsigned flags);
RK_API ssize_t rk_stream_write(struct rk_stream *stream, const void *data,
			       size_t bytes, unsigned flags);
RK_API void rk_stream_flush(struct rk_stream *stream);

/*
 * Bytes read; 0: the peer closed in order and everything was read; -EAGAIN:
 * nothing now; else the error that ended the connection.  Posts a new window
 * to the peer when this read has made one due.  bytes must not be 0.
 */
RK_API ssize_t rk_stream_read(struct rk_stream *stream, void *data,
			      size_t bytes);

/*
 * Look without a copy: the bytes that wait, in at most two pieces of the
 * windows.  Returns the number of pieces, 0 if nothing waits.  The peer can
 * write this memory at any time: copy before you check.
 */
RK_API int rk_stream_peek(struct rk_stream *stream, struct iovec pieces[2]);
RK_API size_t rk_stream_pending(const struct rk_stream *stream);

/* Done with the first bytes of them (no more than wait); posts a new window
 * as rk_stream_read() does. */
RK_API void rk_stream_consume(struct rk_stream *stream, size_t bytes);

/*
 * The same two for a thread that is not the owner: memory only, nothing is
 * posted.  rk_stream_due(): the peer waits for a window that these reads have
 * made free, so the owner must call rk_stream_service(); cheap, any time.
 */
RK_API ssize_t rk_stream_read_offthread(struct rk_stream *stream, void *data,
					size_t bytes);
RK_API void rk_stream_consume_offthread(struct rk_stream *stream,
					size_t bytes);
RK_API bool rk_stream_due(const struct rk_stream *stream);

/* Owner: post what reading elsewhere made due; cheap when nothing is. */
RK_API void rk_stream_service(struct rk_stream *stream);

/*
 * Close: what was written is still delivered, for linger_ms at most, by the
 * context in the background.  No callback runs afterwards; the pointer is
 * gone.  NULL is fine.
 */
RK_API void rk_stream_close(struct rk_stream *stream);

/* Cut it now, nothing more is delivered. */
RK_API void rk_stream_abort(struct rk_stream *stream);

/* 0 while open or after an orderly end, else negative errno; and words. */
RK_API int rk_stream_error(const struct rk_stream *stream);
RK_API const char *rk_stream_error_text(const struct rk_stream *stream);

RK_API int rk_stream_address(const struct rk_stream *stream, bool remote,
			     struct sockaddr_storage *out);

struct rk_stream_stats {
	uint64_t bytes_read, bytes_written;
	uint64_t immediates_sent, immediates_received;
	uint64_t windows_announced; /* refills of our windows */
	uint64_t window_stalls;	    /* writes that met a full peer window */
	uint64_t stall_ns;	    /* time spent so */
	uint64_t credit_stalls;	    /* immediates held back for lack of credit */
};
RK_API void rk_stream_stats_get(const struct rk_stream *stream,
				struct rk_stream_stats *out);
/* Sum over all streams a context ever had. */
RK_API void rk_context_stream_stats(const struct rk_context *context,
				    struct rk_stream_stats *out);

#ifdef __cplusplus
}
#endif
#endif
