/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of fabric/verbs know of each other.
 *
 *   system.c   the table of the system's rdma-core, opened at run time
 *   choose.c   which device
 *   owner.c    whose an address is
 *   context.c  a context: open, close, process, arm
 *   cq.c       its completion queues, and whom a completion belongs to
 *   queue.c    a connection's queue pair: posting, completions, receives
 *   conn.c     connect, accept, reject, disconnect, destroy
 *   cm.c       what the connection manager reports
 *   end.c      how a connection ends
 *   listen.c   listeners
 *   memory.c   registered memory
 *
 * Thread: the context's owner, but for system.c, choose.c, owner.c (any).
 */
#ifndef RK_FABRIC_VERBS_INTERNAL_H
#define RK_FABRIC_VERBS_INTERNAL_H

#include "base/clock.h"
#include "base/log.h"
#include "fabric/fabric.h"
#include "softverbs/table.h"

enum {
	POLL_BATCH = 32,
	CQS_MAX = 16,		/* completion queues of a context */
	REQUEST_BYTES_MAX = 56, /* private data a user may give */
	REPLY_BYTES_MAX = 196,
	REJECT_BYTES_MAX = 148,
	FABRIC_ASK_MS = 2000, /* for the device that reaches an address */
};

/* ---- the device (system.c, choose.c, owner.c) -------------------------- */

struct fabric_choice {
	const struct rk_verbs_table *table;
	struct ibv_context *verbs;
	char name[64];
	char reason[200];
	bool software;
};

/* rdma-core's; NULL, and why in words, if this host has none. */
const struct rk_verbs_table *fabric_system_table(const char **why_not);

/* By the device and the address of params, which may be NULL.  -ENODEV,
 * -EINVAL and others, logged. */
int fabric_choose(const struct rk_context_params *params,
		  struct fabric_choice *out);
/* The first device of a table. */
int fabric_choose_from(const struct rk_verbs_table *table,
		       struct fabric_choice *out);

/* What follows takes IPv4 and IPv6. */
bool fabric_address_is_ip(const struct sockaddr *addr);
bool fabric_address_is_wildcard(const struct sockaddr *addr);
bool fabric_address_is_loopback(const struct sockaddr *addr);
/* The device that owns addr, or that reaches it as a remote one.  -ENODEV,
 * -EADDRNOTAVAIL: none does; -ETIMEDOUT and others: not known. */
int fabric_owner_find(const struct rk_verbs_table *table,
		      const struct sockaddr *addr, bool remote,
		      struct ibv_context **out);

/* ---- a context --------------------------------------------------------- */

/*
 * One completion queue.  promised is what its connections can ever have in it
 * at once and never exceeds entries, so that it cannot overrun.
 */
struct fabric_cq {
	struct ibv_cq *cq;
	unsigned entries, promised;
	unsigned drains; /* polls that found less than they asked for */
	unsigned events_unacked;
	bool broken; /* polling fails: it is let alone */
};

struct fabric_context {
	struct rk_context base;
	struct fabric_choice choice;
	const struct rk_verbs_table *table; /* the choice's */
	struct ibv_context *verbs;
	struct ibv_device_attr attr;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct rdma_event_channel *events;
	int epoll_fd;
	int completion_vector;
	unsigned cq_count;
	struct fabric_cq cqs[CQS_MAX];

	/* completions polled and not handed out yet */
	struct ibv_wc wcs[POLL_BATCH];
	unsigned wc_next, wc_count;

	bool processing;
	bool armed;	      /* since the last process(), and to be slept on */
	unsigned arms;	      /* calls of arm() */
	unsigned cqs_armed;   /* completion queues that may have an event */
	bool cm_failed;	      /* and that was logged */
	bool cm_due;	      /* look at the event channel */
	unsigned calls, idle; /* of process(); those that found nothing */
	unsigned unsettled;   /* connections that wait for a CM event */
	struct rk_log_limit refusals_said, losses_said;

	struct rk_list conns, listeners;
	struct rk_list closing; /* closed() is due */
	struct rk_list graves;	/* destroyed; see cq.c */

	/* memory.c */
	struct rk_list chunks, quarantine, regions;
	struct rk_timer quarantine_timer;
	uint64_t cap_bytes, bytes_registered;

	unsigned connections;
	uint64_t receiver_not_ready, errors;
};

struct fabric_listener {
	struct rk_listener base;
	struct rk_list node;
	struct rdma_cm_id *id;
	const struct rk_listen_handler *handler;
	void *user;
};

/* ---- a connection ------------------------------------------------------ */

/*
 *   ADDRESS --> ROUTE --> CONNECTING --> UP      REQUESTED --> ACCEPTED --> UP
 *
 *   any of these --lost, rejected, disconnected--> ENDING --> CLOSED
 *   REQUESTED --reject, failed accept--> CLOSED
 *
 * ENDING: the queue pair is in error; closed() is told when its last receives
 * have come back and the reason is known, or after a while.
 */
enum conn_state {
	CONN_ADDRESS,
	CONN_ROUTE,
	CONN_CONNECTING,
	CONN_REQUESTED,
	CONN_ACCEPTED,
	CONN_UP,
	CONN_ENDING,
	CONN_CLOSED,
};

/* A signalled work request: what its completion releases. */
struct sent_mark {
	uint64_t token;
	uint32_t slots;
	bool tell;
};

struct fabric_conn {
	/* the hot part: what posting and completions touch */
	struct rk_conn base;
	enum conn_state state;
	bool buried; /* destroyed; completions of it are ignored */
	bool wants_writable;
	struct ibv_qp *qp;
	unsigned slots_used, slots_max;
	unsigned unsignalled, signal_every;
	struct sent_mark *marks; /* a ring of slots_max */
	unsigned mark_first, mark_count;
	unsigned inline_bytes, pieces_max;
	uint8_t *receive_slab;
	uint32_t receive_lkey, receive_stride, receive_bytes;
	unsigned receive_depth;	  /* buffers in the slab */
	unsigned receive_next;	  /* buffer of the next completion */
	unsigned receive_used;	  /* completed, not posted again yet */
	unsigned receives_posted; /* the device has */
	unsigned receive_batch;

	struct rk_list node; /* context's conns, closing or graves */
	struct rdma_cm_id *id;
	struct fabric_cq *cq;
	unsigned promise, grave_mark;
	struct rk_mem slab;
	struct rk_conn_params params;
	struct rk_timer timer; /* of connecting, accepting, ending */
	uint64_t deadline_ns;  /* of connecting */
	int peer_rnr_retry;
	uint8_t responder_resources, initiator_depth;
	bool unsettled;	   /* counted in the context's */
	bool must_drain;   /* its receives may hold last words */
	bool peer_gave_up; /* before we accepted */
	bool reason_known;
	enum rk_close_reason reason;
	int status;
	uint8_t request_bytes;
	uint8_t request[REQUEST_BYTES_MAX]; /* active: to send */
};

static inline struct fabric_context *
fabric_context_of(const struct rk_context *c)
{
	return rk_container_of(c, struct fabric_context, base);
}

static inline struct fabric_conn *fabric_conn_of(const struct rk_conn *conn)
{
	return rk_container_of(conn, struct fabric_conn, base);
}

static inline struct fabric_context *
conn_context(const struct fabric_conn *conn)
{
	return fabric_context_of(conn->base.context);
}

/* context.c */
int fabric_context_open(struct rk_context **out,
			const struct rk_context_params *params,
			const struct fabric_choice *choice);
int fabric_set_nonblocking(int fd);

/* cq.c */
int fabric_cq_open(struct fabric_context *context, unsigned entries);
void fabric_cq_close_all(struct fabric_context *context);
/* Room for this many completions, in a new queue if need be. */
int fabric_cq_promise(struct fabric_context *context, struct fabric_conn *conn,
		      unsigned entries);
unsigned fabric_cq_process(struct fabric_context *context, unsigned limit);
int fabric_cq_arm(struct fabric_context *context); /* 1: something was there */
bool fabric_cq_take_events(struct fabric_context *context); /* any? */
/* The memory of destroyed connections that no completion names any more. */
void fabric_cq_sweep_graves(struct fabric_context *context, bool all);

/* queue.c */
int fabric_queue_create(struct fabric_conn *conn,
			const struct rk_conn_params *params);
void fabric_queue_destroy(struct fabric_conn *conn);
void fabric_queue_set_rnr_timer(struct fabric_conn *conn);
int fabric_queue_send(struct rk_conn *base, const struct rk_piece *pieces,
		      unsigned count, unsigned flags, uint64_t token);
int fabric_queue_write(struct rk_conn *base, const struct rk_piece *pieces,
		       unsigned count, uint64_t remote_addr, uint32_t rkey,
		       uint32_t immediate, unsigned flags, uint64_t token);
void fabric_queue_completion(struct fabric_context *context,
			     const struct ibv_wc *wc);

/* conn.c */
/* NULL: no memory, the id is still the caller's. */
struct fabric_conn *fabric_conn_new(struct fabric_context *context,
				    struct rdma_cm_id *id,
				    enum conn_state state);
int fabric_conn_connect(struct rk_context *context, const struct sockaddr *addr,
			const struct sockaddr *source,
			const struct rk_conn_params *params,
			const void *private_data, size_t bytes, int timeout_ms,
			const struct rk_conn_handler *handler, void *user,
			struct rk_conn **out);
int fabric_conn_accept(struct rk_conn *base,
		       const struct rk_conn_params *params,
		       const void *private_data, size_t bytes,
		       const struct rk_conn_handler *handler, void *user);
int fabric_conn_reject(struct rk_conn *base, const void *private_data,
		       size_t bytes);
int fabric_conn_disconnect(struct rk_conn *base);
void fabric_conn_destroy(struct rk_conn *base);
/* The next step of connecting, after what the event said is done. */
int fabric_conn_resolve_route(struct fabric_conn *conn);
int fabric_conn_send_request(struct fabric_conn *conn);
void fabric_conn_established(struct fabric_conn *conn, const void *private_data,
			     size_t bytes);

/* cm.c */
unsigned fabric_cm_process(struct fabric_context *context, unsigned limit);

/* end.c */
/* The only function that writes conn->state. */
void fabric_conn_move(struct fabric_conn *conn, enum conn_state state);
/* The connection is over; closed() follows from process(). */
void fabric_conn_end(struct fabric_conn *conn, enum rk_close_reason reason,
		     int status, bool known);
/* DISCONNECTED was reported; status is 0 for an orderly end. */
void fabric_conn_peer_disconnected(struct fabric_conn *conn, int status);
void fabric_conn_check_drained(struct fabric_conn *conn);
unsigned fabric_conn_tell_closed(struct fabric_context *context);
void fabric_conn_timer_fire(struct rk_timer *timer);
/* Its queue pair goes to error, the peer is told. */
bool fabric_conn_leave(struct fabric_conn *conn);
/* "1.2.3.4:5" of the peer, for a log line. */
const char *fabric_conn_peer_text(const struct fabric_conn *conn, char *text,
				  size_t bytes);

/* listen.c */
/* A request arrived; the id is ours from here. */
void fabric_listen_request(struct fabric_listener *listener,
			   struct rdma_cm_id *id,
			   const struct rdma_conn_param *param,
			   const void *private_data, size_t bytes);
int fabric_listen_open(struct rk_context *context, const struct sockaddr *addr,
		       int backlog, const struct rk_listen_handler *handler,
		       void *user, struct rk_listener **out);
uint16_t fabric_listen_port(const struct rk_listener *listener);
void fabric_listen_close(struct rk_listener *listener);
const char *fabric_address_text(const struct sockaddr *addr, char *text,
				size_t bytes);

/* memory.c */
void fabric_memory_init(struct fabric_context *context);
int fabric_memory_alloc(struct rk_context *context, struct rk_conn *conn,
			size_t bytes, unsigned access, struct rk_mem *out);
void fabric_memory_free(struct rk_context *context, struct rk_mem *mem);
void fabric_memory_close(struct fabric_context *context);

#endif
