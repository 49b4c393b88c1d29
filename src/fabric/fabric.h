/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All that the protocols know of RDMA: connections that send, write, write
 * with an immediate; memory; events.  rdmakit/device.h has the context itself
 * (open, fd, process, arm, deadline); here is what a protocol does with it.
 *
 * There are two implementations behind struct rk_fabric_ops: fabric/verbs, for
 * devices, and fabric/sim, a deterministic network in one process.  Protocol
 * code calls the rk_conn_* functions and never sees the difference; it takes
 * the time from rk_context_now_ns().
 *
 * Threads: as rdmakit/device.h, the owner's.  Errors: 0 or negative errno.
 */
#ifndef RK_FABRIC_FABRIC_H
#define RK_FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/compiler.h"
#include "base/list.h"
#include "rdmakit/device.h"

struct rk_conn;
struct rk_listener;

/* Rights of memory; local write is always there. */
enum rk_access { RK_REMOTE_READ = 1, RK_REMOTE_WRITE = 2 };

struct rk_mem {
	void *addr;
	size_t bytes;
	uint32_t lkey, rkey;
	void *private_handle;
};

enum rk_close_reason {
	RK_CLOSE_LOCAL,	       /* rk_conn_disconnect() ran to its end */
	RK_CLOSE_PEER,	       /* the peer disconnected in order */
	RK_CLOSE_REJECTED,     /* by the peer; status is the reject reason, 28
				* when its program said so */
	RK_CLOSE_UNREACHABLE,  /* status: -ECONNREFUSED nobody listens there,
				* -ETIMEDOUT, -EHOSTUNREACH no route,
				* -ECONNRESET it gave up meanwhile, or what the
				* device said */
	RK_CLOSE_ERROR,	       /* a completion failed, or the peer died;
				* status is the enum ibv_wc_status or 0 */
};

/*
 * What a connection tells its user.  All are required.  Inside a callback any
 * call is allowed, rk_conn_destroy() on this connection too; after it returns
 * no callback of that connection runs.
 */
struct rk_conn_handler {
	/* Both sides may send.  private_data: what the peer gave, zero padded
	 * to the device's full size (passive side: NULL, 0). */
	void (*established)(struct rk_conn *conn, const void *private_data,
			    size_t bytes);

	/* A SEND arrived.  The memory is the receive's: valid for the call,
	 * re-posted after it. */
	void (*received)(struct rk_conn *conn, const void *message,
			 uint32_t bytes);

	/* A WRITE WITH IMMEDIATE arrived: immediate in host order, and the
	 * number of bytes of that one write.  What was written before it on
	 * this connection is visible. */
	void (*written)(struct rk_conn *conn, uint32_t immediate,
			uint32_t bytes);

	/* Signalled work up to and including this token is done: its source
	 * memory may be used again. */
	void (*sent)(struct rk_conn *conn, uint64_t token);

	/* Room in the send queue after a call said -EAGAIN. */
	void (*writable)(struct rk_conn *conn);

	/* The last callback.  Nothing can be sent any more. */
	void (*closed)(struct rk_conn *conn, enum rk_close_reason reason,
		       int status);
};

struct rk_conn_params {
	unsigned send_depth;	/* work requests outstanding, 1..8192 */
	unsigned receive_depth; /* receives kept posted, 1..8192 */
	unsigned receive_bytes; /* the longest SEND taken, 0..4096 */
	unsigned inline_bytes;	/* wanted; see rk_conn_inline_bytes() */
	uint8_t retry_count;	/* 0..7 */
	uint8_t rnr_retry_count; /* 0..7; 7 waits for ever */
};

struct rk_listen_handler {
	/*
	 * Somebody wants to connect.  Call rk_conn_accept() or
	 * rk_conn_reject() now or later; until then the connection holds the
	 * place.  private_data as given by the peer, zero padded.
	 */
	void (*request)(void *user, struct rk_conn *conn,
			const void *private_data, size_t bytes);
};

/* Base of both implementations' connection; the first member of theirs. */
struct rk_conn {
	struct rk_context *context;
	const struct rk_conn_handler *handler;
	void *user; /* the protocol's; set at connect or accept */
};

struct rk_listener {
	struct rk_context *context;
};

enum rk_post_flag {
	RK_SIGNALLED = 1, /* sent(token) when done */
	RK_INLINE = 2,	  /* data is copied by the call, needs no lkey; at most
			   * rk_conn_inline_bytes() in all */
	RK_SOLICITED = 4,
	RK_WITH_IMM = 8,
};

/* One local piece of a work request. */
struct rk_piece {
	const void *addr;
	uint32_t bytes;
	uint32_t lkey; /* ignored with RK_INLINE */
};

enum { RK_PIECES_MAX = 16 }; /* per work request, if the device has as many;
			      * see rk_conn_pieces_max() */

struct rk_fabric_ops {
	void (*close)(struct rk_context *context);
	int (*fd)(const struct rk_context *context);
	unsigned (*process)(struct rk_context *context, unsigned budget);
	int (*arm)(struct rk_context *context);
	uint64_t (*now_ns)(const struct rk_context *context);
	void (*info)(const struct rk_context *context,
		     struct rk_context_info *out);

	int (*listen)(struct rk_context *context, const struct sockaddr *addr,
		      int backlog, const struct rk_listen_handler *handler,
		      void *user, struct rk_listener **out);
	uint16_t (*listener_port)(const struct rk_listener *listener);
	void (*unlisten)(struct rk_listener *listener);

	int (*connect)(struct rk_context *context, const struct sockaddr *addr,
		       const struct sockaddr *source,
		       const struct rk_conn_params *params,
		       const void *private_data, size_t bytes, int timeout_ms,
		       const struct rk_conn_handler *handler, void *user,
		       struct rk_conn **out);
	int (*accept)(struct rk_conn *conn, const struct rk_conn_params *params,
		      const void *private_data, size_t bytes,
		      const struct rk_conn_handler *handler, void *user);
	int (*reject)(struct rk_conn *conn, const void *private_data,
		      size_t bytes);
	int (*disconnect)(struct rk_conn *conn);
	void (*destroy)(struct rk_conn *conn);

	int (*send)(struct rk_conn *conn, const struct rk_piece *pieces,
		    unsigned count, unsigned flags, uint64_t token);
	int (*write)(struct rk_conn *conn, const struct rk_piece *pieces,
		     unsigned count, uint64_t remote_addr, uint32_t rkey,
		     uint32_t immediate, unsigned flags, uint64_t token);

	int (*mem_alloc)(struct rk_context *context, struct rk_conn *conn,
			 size_t bytes, unsigned access, struct rk_mem *out);
	void (*mem_free)(struct rk_context *context, struct rk_mem *mem);

	unsigned (*inline_bytes)(const struct rk_conn *conn);
	unsigned (*pieces_max)(const struct rk_conn *conn);
	int (*peer_rnr_retry)(const struct rk_conn *conn);
	int (*address)(const struct rk_conn *conn, bool remote,
		       struct sockaddr_storage *out);
};

/*
 * Work that belongs to a context but not to a completion: a protocol object
 * asks to be called at a time, once.  Timers live in the base of the context
 * and run inside process() of either implementation.
 */
struct rk_timer {
	struct rk_timer *child, *next, *prev; /* of a heap, see context.c */
	uint64_t at_ns;			      /* 0: not set */
	void (*fire)(struct rk_timer *timer);
};

/*
 * What a protocol keeps per context (its objects, totals), embedded in a struct
 * of its own.  The protocol sets slots[its number] when it first needs it;
 * rk_context_close() calls close() of each that is set, before any connection
 * is destroyed: it destroys the protocol's connections, gives back their
 * memory and frees the slot.
 */
enum rk_protocol { RK_PROTOCOL_STREAM, RK_PROTOCOL_SESSION, RK_PROTOCOLS };

struct rk_context_slot {
	void (*close)(struct rk_context_slot *slot);
};

/* Base of both implementations; the first member of theirs. */
struct rk_context {
	const struct rk_fabric_ops *ops;
	struct rk_timer timers;		 /* its child is the first one due */
	uint64_t timers_run_ns;		 /* while they run: what is due */
	struct rk_context_slot *slots[RK_PROTOCOLS];
};

/* For the implementations: prepare the base, run due timers, ask for the
 * earliest. */
void rk_context_base_init(struct rk_context *context,
			  const struct rk_fabric_ops *ops);
unsigned rk_context_run_timers(struct rk_context *context);

static inline uint64_t rk_context_now_ns(const struct rk_context *context)
{
	return context->ops->now_ns(context);
}

void rk_timer_set(struct rk_context *context, struct rk_timer *timer,
		  uint64_t at_ns);
void rk_timer_cancel(struct rk_timer *timer);

/*
 * Listen on addr; port 0 takes a free one.  An IPv6 address takes IPv6 alone.
 * backlog 0 is the device's default.
 *   -EADDRINUSE, -EADDRNOTAVAIL, -ENOMEM
 */
static inline RK_MUST_CHECK int
rk_fabric_listen(struct rk_context *context, const struct sockaddr *addr,
		 int backlog, const struct rk_listen_handler *handler,
		 void *user, struct rk_listener **out)
{
	return context->ops->listen(context, addr, backlog, handler, user, out);
}

static inline uint16_t rk_listener_port(const struct rk_listener *listener)
{
	return listener->context->ops->listener_port(listener);
}

/* Connections made from it live on.  NULL is fine. */
static inline void rk_listener_destroy(struct rk_listener *listener)
{
	if (listener)
		listener->context->ops->unlisten(listener);
}

/*
 * Start connecting.  source may be NULL.  The outcome, established() or
 * closed(), comes from rk_context_process(), never from inside this call.
 * timeout_ms bounds the whole of it; 0 means 5000.
 */
static inline RK_MUST_CHECK int
rk_fabric_connect(struct rk_context *context, const struct sockaddr *addr,
		  const struct sockaddr *source,
		  const struct rk_conn_params *params, const void *private_data,
		  size_t bytes, int timeout_ms,
		  const struct rk_conn_handler *handler, void *user,
		  struct rk_conn **out)
{
	return context->ops->connect(context, addr, source, params,
				     private_data, bytes, timeout_ms, handler,
				     user, out);
}

/* Take a requested connection; receives are posted before the peer is told.
 * On failure the request has been rejected and the connection is still yours
 * to destroy.
 *   -ECONNRESET  the peer gave up meanwhile
 *   -ENOMEM, -EINVAL */
static inline RK_MUST_CHECK int
rk_conn_accept(struct rk_conn *conn, const struct rk_conn_params *params,
	       const void *private_data, size_t bytes,
	       const struct rk_conn_handler *handler, void *user)
{
	return conn->context->ops->accept(conn, params, private_data, bytes,
					  handler, user);
}

/* Refuse a requested connection, with a reason of at most 148 bytes; then
 * destroy it. */
static inline int rk_conn_reject(struct rk_conn *conn,
				 const void *private_data, size_t bytes)
{
	return conn->context->ops->reject(conn, private_data, bytes);
}

/* Start an orderly end.  What was posted before and has not completed may be
 * lost: wait for sent() of the last work first.  closed() follows. */
static inline int rk_conn_disconnect(struct rk_conn *conn)
{
	return conn->context->ops->disconnect(conn);
}

/* Free it, in whatever state; NULL is fine. */
static inline void rk_conn_destroy(struct rk_conn *conn)
{
	if (conn)
		conn->context->ops->destroy(conn);
}

/*
 * Post a SEND, at most the peer's receive_bytes long.  Source memory stays
 * untouched until a later sent() unless RK_INLINE.
 *   -EAGAIN    the send queue is full; writable() follows
 *   -ENOTCONN  not established, or closing
 */
static inline RK_MUST_CHECK int rk_conn_send(struct rk_conn *conn,
					     const struct rk_piece *pieces,
					     unsigned count, unsigned flags,
					     uint64_t token)
{
	return conn->context->ops->send(conn, pieces, count, flags, token);
}

/* Post a WRITE; with RK_WITH_IMM the peer gets written(immediate) and uses up
 * a receive.  count 0: no bytes; then address and key are not looked at.
 * Errors as rk_conn_send(). */
static inline RK_MUST_CHECK int
rk_conn_write(struct rk_conn *conn, const struct rk_piece *pieces,
	      unsigned count, uint64_t remote_addr, uint32_t rkey,
	      uint32_t immediate, unsigned flags, uint64_t token)
{
	return conn->context->ops->write(conn, pieces, count, remote_addr, rkey,
					 immediate, flags, token);
}

/*
 * Zeroed, page aligned, registered memory, counted against the context's cap.
 * With a conn and remote rights it is memory for that peer alone, who must be
 * known: from request() on the passive side, from established() on the active
 * side.  conn NULL, or no rights, is for local use (sources of sends).
 * It outlives the connection: free it after rk_conn_destroy(), when the peer
 * can write it no more and no work reads it.
 *   -EINVAL    no bytes, or remote rights without a conn
 *   -ENOTCONN  the peer is not known yet, or no more
 *   -ENOMEM  out of memory, over the cap or RLIMIT_MEMLOCK; logged, with the
 *            limit to raise
 */
static inline RK_MUST_CHECK int rk_mem_alloc(struct rk_context *context,
					     struct rk_conn *conn, size_t bytes,
					     unsigned access,
					     struct rk_mem *out)
{
	return context->ops->mem_alloc(context, conn, bytes, access, out);
}

/* An all-zero mem is fine. */
static inline void rk_mem_free(struct rk_context *context, struct rk_mem *mem)
{
	if (mem->addr)
		context->ops->mem_free(context, mem);
}

/* What the device gave: inline bytes per work request, pieces per work
 * request; the rnr_retry_count the peer announced (-1 before established). */
static inline unsigned rk_conn_inline_bytes(const struct rk_conn *conn)
{
	return conn->context->ops->inline_bytes(conn);
}

static inline unsigned rk_conn_pieces_max(const struct rk_conn *conn)
{
	return conn->context->ops->pieces_max(conn);
}

static inline int rk_conn_peer_rnr_retry(const struct rk_conn *conn)
{
	return conn->context->ops->peer_rnr_retry(conn);
}

static inline int rk_conn_address(const struct rk_conn *conn, bool remote,
				  struct sockaddr_storage *out)
{
	return conn->context->ops->address(conn, remote, out);
}

#endif
