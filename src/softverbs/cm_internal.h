/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connection manager's own structs and what its files call of each other.
 *
 * All of it is guarded by the device lock: every function below is called with
 * the lock held unless it says otherwise.  Errors are negative errno; only the
 * table's functions (soft_rdma_*) follow librdmacm: -1 and errno.
 *
 *   cm_id.c	      ids: numbers, states, reserved events, freeing
 *   cm_event.c	      event channels, queueing, fetching, acknowledging
 *   cm_address.c     addresses and ports
 *   cm_resolve.c     bind, resolve, listen
 *   cm_link.c	      links and whose lanes are in use on them
 *   cm_active.c      connecting
 *   cm_passive.c     accepting
 *   cm_end.c	      disconnects, rejections, time-outs, dead peers
 *   cm_message.c     checking what peers say
 *   cm_qp.c	      queue pairs and memory of an id
 *   cm_table.c	      options, names, the table
 */
#ifndef RK_SOFTVERBS_CM_INTERNAL_H
#define RK_SOFTVERBS_CM_INTERNAL_H

#include "base/list.h"
#include "softverbs/cm_message.h"
#include "softverbs/engine.h"

enum {
	CM_IDS_MAX = 65536,	   /* per process */
	CM_BACKLOG_MAX = 1024,	   /* requests a program has not fetched */
	CM_UNANSWERED_MAX = 4096,  /* and not accepted or rejected */
	CM_EVENTS_PASSIVE = 4, /* request, outcome, disconnect, timewait */
	CM_EVENTS_ACTIVE = 3,  /* outcome, disconnect, timewait */
};

#define CM_LANE_NONE UINT32_MAX

/* How long things take; tests shorten them. */
struct cm_times {
	uint64_t answer_ns;   /* an unanswered request or reply: UNREACHABLE */
	uint64_t retry_ns;    /* between requests the peer had no room for */
	uint64_t timewait_ns; /* from DISCONNECTED to TIMEWAIT_EXIT */
};
extern struct cm_times cm_times;

/*
 *  IDLE --bind--> BOUND --listen--> LISTENING
 *    |              |
 *    +---resolve----+--> ADDR --route--> ROUTE --connect--> CONNECTING
 *			    ^_________________________________/	  |
 *		  (peer gone before connect: stays, link is dropped)  REPLY
 *								  v
 *  REQUESTED --accept--> ACCEPTED			      RESPONDED
 *	|		     |	READY or first record		  | fetched
 *	|		     +-----------> ESTABLISHED <----------+
 *	|		     |			|
 *	+----reject, lost----+--> FAILED	+--> DISCONNECTED --> CLOSED
 *
 *  CONNECTING and RESPONDED also end in FAILED; RESPONDED and ACCEPTED can be
 *  disconnected.  Every state can be destroyed: DESTROYING.
 */
enum cm_state {
	CM_IDLE,
	CM_BOUND,
	CM_LISTENING,
	CM_ADDR,
	CM_ROUTE,
	CM_CONNECTING,
	CM_RESPONDED,
	CM_REQUESTED,
	CM_ACCEPTED,
	CM_ESTABLISHED,
	CM_DISCONNECTED,
	CM_ENDED, /* TIMEWAIT_EXIT was queued */
	CM_FAILED,
	CM_DESTROYING,
	CM_STATES
};

struct cm_channel {
	struct rdma_event_channel base; /* first: what the program holds */
	struct soft_channel soft;
	struct rk_list events; /* of struct cm_event */
	unsigned users;	       /* ids, and the program */
	bool closed;
};

/* Events are reserved when the call that leads to them is made, so that
 * reporting a fact never fails. */
struct cm_event {
	struct rdma_cm_event base; /* first: what the program holds */
	struct rk_list node;	   /* the channel's events, or id's spares */
	struct rk_list owned;	   /* the owner's queued events */
	struct cm_id *owner;	   /* who waits for its acknowledgement */
	uint8_t private_data[CM_REPLY_PRIVATE];
};

/* A port taken in this process; shared by ids that said REUSEADDR. */
struct cm_port {
	struct rk_list node;
	unsigned users;
	bool reuse, v6_only, listening;
	struct sockaddr_storage addr;
	struct wire_listener *listener;
};

/* A link as connections use it.  Lives while an id is attached or a lane is in
 * use on either side. */
struct cm_link {
	struct rk_list node; /* its hash chain */
	struct wire_link *wire;
	struct rk_list ids;
	unsigned users;	     /* ids, lanes owned, lanes lent */
	unsigned lane_count; /* length of owner */
	uint32_t *owner;     /* by lane: id that took it here; 0: none */
	/* active side: lanes the peer has not closed yet */
	uint64_t lent[BOX_LANES / 64];
	/* CLOSED could not be sent yet */
	uint64_t untold[BOX_LANES / 64];
	unsigned untold_count;
	struct wire_timer retry;
};

struct cm_id {
	struct rdma_cm_id base; /* first: what the program holds */
	enum cm_state state;
	uint32_t number; /* ours, and the peer's */
	uint32_t peer;
	struct cm_channel *channel;
	struct rk_list spares; /* reserved events */
	unsigned spare_count;
	struct rk_list queued; /* events not fetched */
	unsigned unacked;      /* events fetched, not acknowledged */

	/* address */
	struct cm_port *port;
	uint16_t ephemeral; /* source port of our own choice; 0: none */
	bool reuse, v6_only;
	uint8_t tos, ack_timeout; /* kept; no meaning inside a host */

	/* a listener */
	struct rk_list listen_node;
	unsigned backlog;
	unsigned unfetched;	 /* CONNECT_REQUESTs in the queue */
	unsigned unanswered;	 /* children not accepted or rejected */
	struct rk_list children; /* those */

	/* its child, until answered */
	bool fetched; /* the program knows of it */
	struct cm_id *listener;
	struct rk_list child_node;

	/* a connection */
	struct cm_link *link;
	struct rk_list link_node;
	uint32_t lane;	   /* or CM_LANE_NONE */
	bool lane_is_ours; /* taken by the id, not yet the queue pair's */
	bool link_memory;  /* memory was granted to this link's peer */
	bool peer_told;	   /* of the disconnect */
	uint64_t deadline_ns;
	struct wire_timer timer;
	struct cm_offer offer;	    /* what we said */
	struct cm_offer peer_offer; /* what the peer said */
	uint8_t request_private[CM_REQUEST_PRIVATE]; /* active: to repeat */
};

struct cm_slot {
	struct cm_id *id;
	unsigned next_free;
};

struct cm {
	struct soft_device *device; /* set by the first event channel */
	struct cm_slot *slots;	    /* by the low half of the number */
	unsigned slot_count, id_count;
	unsigned free_slot;  /* first of a chain; CM_IDS_MAX: none */
	uint16_t generation; /* of the last number */
	struct rk_list listeners; /* ids that listen */
	struct rk_list ports;
	struct rk_list links[64];
	pthread_cond_t acknowledged;
	/* the protection domain of ids, while there are ids */
	struct ibv_pd *pd;
	unsigned pd_users;
	uint8_t max_responder_resources, max_initiator_depth;
};
extern struct cm cm;

static inline struct cm_id *cm_id_of(struct rdma_cm_id *id)
{
	return rk_container_of(id, struct cm_id, base);
}

/* 0, or -1 with errno from a negative errno. */
int cm_result(int error);

/* ---- cm_id.c ---------------------------------------------------------- */

int cm_id_new(struct cm_channel *channel, void *context, struct cm_id **out);
void cm_id_free(struct cm_id *id); /* detached from everything, no events */
struct cm_id *cm_id_find(uint32_t number);
/* The only function that writes id->state. */
void cm_id_move(struct cm_id *id, enum cm_state state);
void cm_id_use_device(struct cm_id *id); /* verbs, pd, port_num */
/* End whatever it is doing, telling peers; drop its queued events. */
void cm_id_retire(struct cm_id *id);

int soft_rdma_create_id(struct rdma_event_channel *channel,
			struct rdma_cm_id **id, void *context,
			enum rdma_port_space ps);
int soft_rdma_destroy_id(struct rdma_cm_id *id);

/* ---- cm_event.c ------------------------------------------------------- */

int cm_event_reserve(struct cm_id *id, unsigned count);
void cm_event_unreserve(struct cm_id *id); /* free all spares */
/* Queue an event of id, from its reserve; private_data is zero padded to
 * full bytes.  Returns it for more to be filled in. */
struct cm_event *cm_event_queue(struct cm_id *id,
				enum rdma_cm_event_type type, int status,
				const void *private_data, size_t full);
void cm_event_fill_offer(struct cm_event *event, const struct cm_offer *offer);
/* The program will not see them; they go back to the reserve. */
void cm_event_drop_queued(struct cm_id *id);
void cm_event_take_back(struct cm_event *event, struct cm_id *id);
void cm_channel_put(struct cm_channel *channel);

struct rdma_event_channel *soft_rdma_create_event_channel(void);
void soft_rdma_destroy_event_channel(struct rdma_event_channel *channel);
int soft_rdma_get_cm_event(struct rdma_event_channel *channel,
			   struct rdma_cm_event **event);
int soft_rdma_ack_cm_event(struct rdma_cm_event *event);

/* ---- cm_address.c ----------------------------------------------------- */

socklen_t cm_addr_bytes(const struct sockaddr *addr); /* 0: not IP */
bool cm_addr_is_wildcard(const struct sockaddr *addr);
bool cm_addr_is_same(const struct sockaddr *a, const struct sockaddr *b);
uint16_t cm_addr_port(const struct sockaddr *addr); /* network order */
void cm_addr_set_port(struct sockaddr *addr, uint16_t port);
void cm_addr_copy(struct sockaddr_storage *to, const struct sockaddr *from);
void cm_addr_pack(struct cm_address *to, const struct sockaddr *from);
/* -EPROTO: not an IP address */
int cm_addr_unpack(struct sockaddr_storage *to, const struct cm_address *from);
int cm_addr_check_local(const struct sockaddr *addr); /* or -EADDRNOTAVAIL */
/* The GIDs of an id from its addresses. */
void cm_addr_fill_gids(struct cm_id *id);

int cm_port_take(struct cm_id *id, const struct sockaddr *addr);
void cm_port_give(struct cm_id *id); /* also the ephemeral one */
uint16_t cm_port_ephemeral(void);    /* network order */
struct cm_id *cm_listener_find(const struct sockaddr *target);

/* ---- cm_resolve.c ----------------------------------------------------- */

int soft_rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr);
int soft_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src,
			   struct sockaddr *dst, int timeout_ms);
int soft_rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms);
int soft_rdma_listen(struct rdma_cm_id *id, int backlog);

/* ---- cm_link.c -------------------------------------------------------- */

struct cm_link *cm_link_find(struct wire_link *wire);
/* Attach id to the link, which is known from now on. */
int cm_link_attach(struct cm_id *id, struct wire_link *wire);
void cm_link_detach(struct cm_id *id);
/* The number is used by id on this side from now on.  -EBUSY: it is in use;
 * -EINVAL: no such lane. */
int cm_lane_take(struct cm_id *id, uint32_t lane);
/* The active side takes an unused one. */
int cm_lane_choose(struct cm_id *id);
/* The peer was told of the lane; or it does not use it (any more). */
void cm_lane_lend(struct cm_link *link, uint32_t lane);
void cm_lane_return(struct cm_link *link, uint32_t lane);
/* This side does not use the lane any more. */
void cm_lane_release(struct cm_link *link, uint32_t lane);
/* A lane in a request that this side did not take: say so. */
void cm_lane_refuse(struct wire_link *wire, uint32_t lane);
void cm_link_dead(struct cm_link *link); /* nothing is lent any more */
struct cm_id *cm_lane_user(const struct cm_link *link, uint32_t lane);
bool cm_lane_is_used(const struct cm_link *link, uint32_t lane);
void cm_link_hold(struct cm_link *link);
void cm_link_unhold(struct cm_link *link); /* may free it */

int cm_send_head(struct wire_link *wire, enum cm_message_type type,
		 uint32_t to, uint32_t from);
int cm_send_reject(struct wire_link *wire, uint32_t to, uint32_t from,
		   uint32_t reason, const void *private_data, size_t bytes);

/* ---- cm_active.c ------------------------------------------------------ */

int soft_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param);
/* Send the request, now or again. */
void cm_active_attempt(struct cm_id *id);
void cm_active_on_later(struct cm_id *id);
void cm_active_on_reply(struct cm_id *id, const struct cm_reply *reply);
/* The program fetches the response: bring up the queue pair. */
void cm_active_establish(struct cm_id *id, struct cm_event *event);
void cm_param_defaults(struct cm_id *id, const struct rdma_conn_param *param);
int cm_param_check(const struct cm_id *id, const struct rdma_conn_param *param,
		   size_t private_max);

/* ---- cm_passive.c ----------------------------------------------------- */

void cm_passive_on_request(struct wire_link *wire,
			   const struct cm_request *request,
			   const struct sockaddr *source,
			   const struct sockaddr *target);
void cm_passive_on_ready(struct cm_id *id);
void cm_passive_answered(struct cm_id *id); /* no longer its listener's */
void cm_passive_drop(struct cm_id *child); /* whose request is not fetched */
int soft_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);
int soft_rdma_reject(struct rdma_cm_id *id, const void *private_data,
		     uint8_t private_data_bytes);

/* ---- cm_end.c --------------------------------------------------------- */

extern const struct soft_cm_events cm_qp_events;
/* The queue pair while it holds a lane; else NULL. */
struct soft_qp *cm_end_qp(const struct cm_id *id);
/* To error, so that what the program posted comes back. */
void cm_end_fail_qp(struct cm_id *id);
void cm_end_send_reject(struct cm_id *id, uint32_t reason,
			const void *private_data, size_t bytes);
void cm_end_tell_disconnect(struct cm_id *id);
void cm_end_failed(struct cm_id *id, enum rdma_cm_event_type type, int status);
void cm_end_rejected(struct cm_id *id, uint32_t reason,
		     const void *private_data);
void cm_end_on_reject(struct cm_id *id, uint32_t reason,
		      const void *private_data);
/* status: 0, or -ECONNRESET where the process died */
void cm_end_on_disconnect(struct cm_id *id, int status);
void cm_end_on_closed(struct cm_id *id);
void cm_end_broken(struct cm_id *id); /* the peer broke the rules */
void cm_timer_fire(struct wire_timer *timer);
int soft_rdma_disconnect(struct rdma_cm_id *id);

/* ---- cm_qp.c ---------------------------------------------------------- */

int cm_pd_get(void);  /* without the lock */
void cm_pd_put(void); /* without the lock */
int soft_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
			struct ibv_qp_init_attr *attr);
void soft_rdma_destroy_qp(struct rdma_cm_id *id);
void *soft_mem_alloc(struct rdma_cm_id *id, size_t bytes, int access);
void soft_mem_free(void *addr, size_t bytes);

#endif
