/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the simulator's files know of each other.
 *
 *   net.c     the clock, the heap of events, chance, the trace
 *   context.c a context: its queue of completions, process()
 *   listen.c  listeners, addresses
 *   conn.c    connecting, accepting, ending
 *   pipe.c    posted work on its way, one pipe per direction
 *   memory.c  registered regions and their keys
 *
 * Two connections that belong together hang on one pair, which outlives both
 * while something of theirs is on its way.  An event names a pair and a side,
 * never a connection: who is gone is NULL there.
 */
#ifndef RK_FABRIC_SIM_INTERNAL_H
#define RK_FABRIC_SIM_INTERNAL_H

#include <infiniband/verbs.h>

#include "fabric/sim.h"

/* Private data as the connection manager's messages carry it, padded. */
enum {
	REQUEST_PRIVATE_BYTES = 56,
	REPLY_PRIVATE_BYTES = 196,
	REJECT_PRIVATE_BYTES = 148,
};

/* Reasons in a rejection, by InfiniBand's numbers. */
enum {
	REJECT_NO_RESOURCES = 3,
	REJECT_NOBODY_LISTENS = 8,
	REJECT_CONSUMER = 28,
};

enum side { ACTIVE, PASSIVE };

static inline enum side other(enum side side)
{
	return side == ACTIVE ? PASSIVE : ACTIVE;
}

enum event_kind {
	EVENT_PROCESS,	   /* a context's owner runs */
	EVENT_REQUEST,	   /* connect request reaches the listening host */
	EVENT_REPLY,	   /* accept reaches the active side */
	EVENT_REJECT,	   /* reject reaches the active side */
	EVENT_READY,	   /* the active side's answer reaches the passive */
	EVENT_CANCEL,	   /* the active side gave up; reaches the passive */
	EVENT_TIMEOUT,	   /* connecting took too long */
	EVENT_DELIVER,	   /* the head of the pipe from side arrives */
	EVENT_ACK,	   /* a completion for the sender */
	EVENT_FAIL,	   /* side notices that the connection is lost */
	EVENT_LOCAL_CLOSED /* disconnect ran to its end */
};

struct event {
	uint64_t at_ns, sequence;
	enum event_kind kind;
	enum side side;
	struct pair *pair;	     /* a reference, or NULL */
	struct sim_context *context; /* EVENT_PROCESS */
	uint64_t token;		     /* EVENT_ACK */
	unsigned slots;		     /* EVENT_ACK */
	bool tell;		     /* EVENT_ACK: the user asked for it */
	int status;		     /* EVENT_FAIL, EVENT_REJECT */
	uint8_t private_data[REPLY_PRIVATE_BYTES];
};

struct sim_net {
	struct sim_knobs knobs;
	uint64_t now_ns, random, sequence, trace_hash;
	FILE *trace;
	struct event **heap;
	size_t heap_count, heap_room;
	size_t timeouts; /* events that only matter if nothing else comes */
	struct rk_list contexts, listeners;
	struct region *regions;
	unsigned region_count, region_room;
	unsigned pair_count, connections;
	uint64_t memory_bytes;
	unsigned errors;
	char error_text[200];
};

/* What a context's process() takes, in order of arrival. */
enum entry_kind {
	ENTRY_REQUEST,
	ENTRY_ESTABLISHED,
	ENTRY_RECEIVED,
	ENTRY_WRITTEN,
	ENTRY_SENT,
	ENTRY_WRITABLE,
	ENTRY_CLOSED,
};

struct entry {
	struct rk_list node;
	enum entry_kind kind;
	struct pair *pair; /* a reference */
	enum side side;
	struct sim_listener *listener;
	uint8_t *message; /* of exactly bytes, so that overruns show */
	uint32_t bytes, immediate;
	uint64_t token;
	unsigned slots;
	bool tell;
	enum rk_close_reason reason;
	int status;
};

struct sim_context {
	struct rk_context base;
	struct sim_net *net;
	struct rk_list node;
	struct rk_list entries, conns;
	bool held, crashed, process_pending;
	uint64_t bytes_registered, receiver_not_ready, errors;
	unsigned connections;
};

struct sim_listener {
	struct rk_listener base;
	struct rk_list node;
	struct sockaddr_storage addr;
	const struct rk_listen_handler *handler;
	void *user;
};

/*
 *   CONNECTING --reply--> UP        REQUESTED --accept--> ACCEPTED --> UP
 *   UP --disconnect--> CLOSING      any --lost, rejected, ended--> DOWN
 *   DOWN, CLOSING --closed()--> CLOSED
 */
enum conn_state { CONNECTING, REQUESTED, ACCEPTED, UP, CLOSING, DOWN, CLOSED };

struct sim_conn {
	struct rk_conn base;
	struct rk_list node; /* of its context */
	struct pair *pair;
	enum side side;
	enum conn_state state;
	struct rk_conn_params params;
	int peer_rnr_retry;
	unsigned receives_posted;
	unsigned slots_used, unsignalled; /* of the send queue */
	bool wants_writable;
	struct sockaddr_storage local, remote;
};

struct work {
	struct rk_list node;
	enum { WORK_SEND, WORK_WRITE, WORK_DISCONNECT } op;
	unsigned flags, count;
	struct rk_piece pieces[RK_PIECES_MAX];
	uint8_t *copy; /* inline data, or what left before a disconnect */
	uint32_t bytes, immediate, rkey;
	uint64_t remote_addr, token, hash, arrive_ns;
	unsigned slots; /* that its completion releases; 0: none follows */
	unsigned rnr_count;
};

struct pipe {
	struct rk_list works;
	bool event_pending;
	uint64_t last_arrive_ns, last_ack_ns;
};

struct pair {
	unsigned references, id;
	struct sim_net *net;
	struct sim_conn *end[2];
	struct pipe from[2];
	bool cut, silent; /* nothing is delivered any more */
	bool cancelled;	  /* the active side gave up connecting */
	bool replied;	  /* the accept has reached the active side */
	uint8_t request_data[REQUEST_PRIVATE_BYTES];
	struct rk_conn_params request_params;
	struct sockaddr_storage address, source;
};

struct region {
	uint8_t *addr;
	size_t bytes;
	unsigned access;
	uint8_t generation;
	struct sim_context *owner; /* NULL: not in use */
	struct pair *pair;	   /* a reference, or NULL: local use */
	enum side side;
};

static inline struct sim_context *sim_context_of(const struct rk_context *c)
{
	return rk_container_of(c, struct sim_context, base);
}

static inline struct sim_conn *sim_conn_of(const struct rk_conn *conn)
{
	return rk_container_of(conn, struct sim_conn, base);
}

/* net.c */
void *sim_must_calloc(size_t count, size_t bytes);
struct event *sim_event_new(struct sim_net *net, enum event_kind kind,
			    struct pair *pair, enum side side);
void sim_event_push(struct sim_net *net, struct event *event, uint64_t at_ns);
uint64_t sim_delay_ns(struct sim_net *net);
bool sim_chance(struct sim_net *net, unsigned of_1000);
void sim_trace(struct sim_net *net, const char *what, const struct pair *pair,
	       enum side side, uint64_t a, uint64_t b);
void sim_mistake(struct sim_net *net, const struct pair *pair,
		 const char *format, ...) RK_PRINTF(3, 4);
uint64_t sim_hash_bytes(uint64_t hash, const void *data, size_t bytes);
void sim_pair_put(struct pair *pair); /* NULL is fine */

/* context.c */
extern const struct rk_fabric_ops sim_ops;
struct entry *sim_entry_new(enum entry_kind kind, struct pair *pair,
			    enum side side);
void sim_entry_queue(struct sim_context *context, struct entry *entry);
void sim_entries_drop(struct sim_context *context, const struct pair *pair,
		      enum side side);
void sim_entry_free(struct entry *entry);
void sim_context_wake(struct sim_context *context);
void sim_context_run(struct sim_context *context);

/* listen.c */
uint16_t sim_addr_port(const struct sockaddr_storage *addr);
void sim_addr_set_port(struct sockaddr_storage *addr, uint16_t port);
int sim_addr_copy(struct sockaddr_storage *out, const struct sockaddr *addr);
struct sim_listener *sim_find_listener(struct sim_net *net,
				       const struct sockaddr_storage *addr);
int sim_conn_listen(struct rk_context *context, const struct sockaddr *addr,
		    int backlog, const struct rk_listen_handler *handler,
		    void *user, struct rk_listener **out);
uint16_t sim_conn_listener_port(const struct rk_listener *listener);
void sim_conn_unlisten(struct rk_listener *listener);

/* conn.c */
int sim_conn_connect(struct rk_context *context, const struct sockaddr *addr,
		     const struct sockaddr *source,
		     const struct rk_conn_params *params,
		     const void *private_data, size_t bytes, int timeout_ms,
		     const struct rk_conn_handler *handler, void *user,
		     struct rk_conn **out);
int sim_conn_accept(struct rk_conn *base, const struct rk_conn_params *params,
		    const void *private_data, size_t bytes,
		    const struct rk_conn_handler *handler, void *user);
int sim_conn_reject(struct rk_conn *base, const void *private_data,
		    size_t bytes);
int sim_conn_disconnect(struct rk_conn *base);
void sim_conn_destroy(struct rk_conn *base);
void sim_conn_event(struct event *event);
/* The state becomes DOWN and closed() follows, unless it is on its way. */
void sim_conn_fail(struct pair *pair, enum side side,
		   enum rk_close_reason reason, int status);
void sim_pair_cut(struct pair *pair);

/* pipe.c */
int sim_pipe_send(struct rk_conn *base, const struct rk_piece *pieces,
		  unsigned count, unsigned flags, uint64_t token);
int sim_pipe_write(struct rk_conn *base, const struct rk_piece *pieces,
		   unsigned count, uint64_t remote_addr, uint32_t rkey,
		   uint32_t immediate, unsigned flags, uint64_t token);
void sim_pipe_purge(struct pipe *pipe);
/* Keep a random number of what is on its way, and end it with DISCONNECT. */
void sim_pipe_end(struct pair *pair, enum side from);
void sim_pipe_deliver(struct pair *pair, enum side from);
void sim_pipe_ack(struct event *event);
void sim_pair_error(struct pair *pair, int status);

/* memory.c */
int sim_memory_alloc(struct rk_context *context, struct rk_conn *conn,
		     size_t bytes, unsigned access, struct rk_mem *out);
void sim_memory_free(struct rk_context *context, struct rk_mem *mem);
void sim_memory_free_all(struct sim_context *context);
/* The place of a range in a region of owner, or NULL.  pair NULL: local use;
 * else what the peer of that side may write. */
void *sim_memory_find(struct sim_context *owner, const struct pair *pair,
		      enum side side, uint32_t key, uint64_t addr,
		      uint64_t bytes);

#endif
