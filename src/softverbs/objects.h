/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs objects of the software device as their own code sees them.  Each
 * begins with the structure of verbs.h that the program holds.  Nothing
 * outside the verbs side includes this; engine.h is the door.
 *
 * Everything here is used with the device lock held.  Objects are counted by
 * those that refer to them, so a destroy in the wrong order answers EBUSY.
 */
#ifndef RK_SOFTVERBS_OBJECTS_H
#define RK_SOFTVERBS_OBJECTS_H

#include <errno.h>

#include "base/compiler.h"
#include "base/list.h"
#include "softverbs/engine.h"

/* What the device reports and then enforces. */
enum {
	MAX_QP = BOX_LANES,
	MAX_QP_WR = 16384,
	MAX_SGE = 32,
	MAX_CQ = 65536,
	MAX_CQE = 1 << 22,
	MAX_MR = 1 << 20,
	MAX_PD = 65536,
	MAX_INLINE_BYTES = 65536,
	MAX_RD_ATOMIC = 16,
	MAX_MESSAGE_BYTES = 1 << 30,
	/* inline payload of requests that wait, all queue pairs together */
	MAX_COPY_BYTES = 64 << 20,
	FAREWELL_MAX = 224, /* private data of a disconnect */
};

/* ---- asynchronous events (async.c) ------------------------------------ */

struct soft_context;

/* One kind of event of one object; at most one of a kind is queued. */
struct async_event {
	struct rk_list node;
	enum ibv_event_type type;
	void *object; /* struct soft_cq or struct soft_qp */
};

struct async_count {
	unsigned taken, acked;
};

void async_init(struct async_event *event, void *object);
void async_raise(struct soft_context *context, struct async_event *event,
		 enum ibv_event_type type);
/* Before the object goes: forget what is queued, wait for the acks of what the
 * program took.  Releases the lock while it waits. */
void async_forget(struct soft_context *context, struct async_event *event);
void async_wait_acked(struct async_count *count);
int async_get(struct ibv_context *context, struct ibv_async_event *event);
void async_ack(struct ibv_async_event *event);

/* ---- device (device.c) ------------------------------------------------ */

struct soft_context {
	struct ibv_context ibv;
	struct rk_list events; /* of struct async_event */
	unsigned users;	       /* channels, queues, domains */
};

struct soft_mr;

struct engine {
	struct soft_device base;
	struct ibv_device ibv;
	struct soft_context *cm_context; /* what soft_context() gives */
	pthread_cond_t acked;		 /* an event was acknowledged */

	struct rk_list qps;
	struct rk_list revisit; /* queue pairs to look at in the next pump */
	struct wire_timer revisit_timer;

	struct soft_mr **mr;   /* by index; grows */
	uint32_t mr_slots;
	uint32_t mr_free_hint;
	uint8_t *mr_generation;

	unsigned qp_count, cq_count, mr_count, pd_count;
	uint32_t last_pd, last_qpn;
	bool qpn_wrapped;
	size_t copy_bytes;

	unsigned armed;	   /* completion queues with a channel, armed */
	unsigned sleepers; /* threads asleep in soft_channel_wait() */
	bool overrun;	   /* some completion queue has just overrun */
};

extern struct engine soft_engine;

/* False: this is a forked child, and the lock is not held. */
static inline bool engine_lock(void)
{
	pthread_mutex_lock(&soft_engine.base.lock);
	if (rk_likely(!soft_engine.base.inert))
		return true;
	pthread_mutex_unlock(&soft_engine.base.lock);
	return false;
}

void cq_settle_overruns(void);

static inline void engine_unlock(void)
{
	if (rk_unlikely(soft_engine.overrun))
		cq_settle_overruns();
	pthread_mutex_unlock(&soft_engine.base.lock);
}

/* The one way the verbs side visits what has news. */
void engine_pump(bool thorough);

/* Promise to be woken, or release the peers from it, as the number of armed
 * queues and sleeping threads asks.  engine_promise(): true when news came
 * meanwhile. */
bool engine_promise(void);
void engine_release_promise(void);

struct ibv_device **device_list_get(int *count);
void device_list_free(struct ibv_device **list);
const char *device_name(struct ibv_device *device);
struct ibv_context *context_open(struct ibv_device *device);
int context_close(struct ibv_context *context);
int device_query(struct ibv_context *context, struct ibv_device_attr *attr);
int device_query_port(struct ibv_context *context, uint8_t port,
		      struct ibv_port_attr *attr);

static inline struct soft_context *context_of(struct ibv_context *context)
{
	return rk_container_of(context, struct soft_context, ibv);
}

/* ---- protection domains and memory regions (pd.c, mr.c) ---------------- */

struct soft_pd {
	struct ibv_pd ibv;
	uint32_t number; /* never 0; what the peer compares */
	unsigned users;
};

struct ibv_pd *pd_alloc(struct ibv_context *context);
int pd_dealloc(struct ibv_pd *pd);

/*
 * Local keys have the top bit set and so are never valid towards the peer;
 * remote keys are the wire's, and a region without remote rights has its local
 * key for one.
 */
enum { LKEY_MARK = 1u << 31, LKEY_GENERATION_BITS = 8 };

struct soft_mr {
	struct ibv_mr ibv;
	unsigned access;
	bool has_key; /* rkey is one of the wire's */
	bool lingers; /* it was, and a peer may still be using it */
};

struct ibv_mr *mr_reg(struct ibv_pd *pd, void *addr, size_t bytes, int access);
int mr_dereg(struct ibv_mr *mr);

/* May a queue pair of this domain use these bytes so? */
static inline bool mr_allows(const struct ibv_pd *pd, uint32_t lkey,
			     uint64_t addr, uint64_t bytes, unsigned access)
{
	uint32_t index = (lkey & ~LKEY_MARK) >> LKEY_GENERATION_BITS;
	const struct soft_mr *mr;
	uint64_t offset;

	if (rk_unlikely(index >= soft_engine.mr_slots))
		return false;
	mr = soft_engine.mr[index];
	if (rk_unlikely(!mr || mr->ibv.lkey != lkey || mr->ibv.pd != pd))
		return false;
	offset = addr - (uintptr_t)mr->ibv.addr;
	return offset <= mr->ibv.length && bytes <= mr->ibv.length - offset &&
	       (mr->access & access) == access;
}

/*
 * The pieces of sge that hold bytes [skip, skip + bytes) of its sum, as iov.
 * pd NULL: inline payload, whose keys mean nothing.  Returns how many, at most
 * count, or -EINVAL: a key is not good for its piece, or the sum is shorter.
 */
int sge_gather(const struct ibv_pd *pd, const struct ibv_sge *sge,
	       unsigned count, unsigned access, uint32_t skip, uint32_t bytes,
	       struct iovec *iov);

/* ---- completion channels and queues (channel.c, cq.c) ------------------ */

struct soft_comp_channel {
	struct ibv_comp_channel ibv;
	struct soft_channel channel;
	struct rk_list ready; /* of struct soft_cq */
};

struct ibv_comp_channel *channel_create(struct ibv_context *context);
int channel_destroy(struct ibv_comp_channel *channel);
int channel_get_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		      void **cq_context);

struct soft_qp;

struct cqe {
	uint64_t wr_id;
	struct soft_qp *qp;
	uint64_t sq_end; /* polling it frees the send queue up to here */
	uint32_t bytes;
	uint32_t imm;
	uint8_t status; /* enum ibv_wc_status */
	uint8_t opcode; /* enum ibv_wc_opcode */
	uint8_t flags;
	bool from_sq;
};

enum cq_armed { CQ_QUIET, CQ_ARMED_SOLICITED, CQ_ARMED_ANY };

struct soft_cq {
	struct ibv_cq ibv;
	struct cqe *ring;
	uint64_t head, tail; /* head - tail runs free */
	uint32_t mask, limit;
	unsigned polls;
	enum cq_armed armed;
	bool overrun;
	unsigned users; /* queue pairs, once per role */

	struct rk_list ready; /* in its channel's list while events wait */
	unsigned events_waiting, events_taken, events_acked;
	struct async_event error;
	struct async_count async;
};

struct ibv_cq *cq_create(struct ibv_context *context, int cqe, void *cq_context,
			 struct ibv_comp_channel *channel, int comp_vector);
int cq_destroy(struct ibv_cq *cq);
int cq_poll(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int cq_req_notify(struct ibv_cq *cq, int solicited_only);
void cq_ack_events(struct ibv_cq *cq, unsigned int count);

void cq_push(struct soft_cq *cq, const struct cqe *cqe, bool solicited);
void cq_forget_qp(struct soft_cq *cq, const struct soft_qp *qp);

static inline struct soft_cq *cq_of(struct ibv_cq *cq)
{
	return rk_container_of(cq, struct soft_cq, ibv);
}

/* ---- queue pairs (qp.c, qp_state.c, send.c, receive.c) ----------------- */

enum send_state {
	SEND_WAITING,	/* not gone yet, or not wholly */
	SEND_PUBLISHED, /* in the lane; done when acked, or sure */
	SEND_DONE,
	SEND_FAILED, /* with status, once everything before is done */
};

struct send_wqe {
	uint64_t wr_id;
	uint64_t sequence; /* of its last record */
	uint64_t remote_addr;
	void *copy; /* inline payload of a request that waits */
	uint32_t rkey;
	uint32_t imm;
	uint32_t bytes;
	uint32_t sent_bytes;
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t state;
	uint8_t status;
	uint8_t sge_count;
	bool signalled, solicited;
	bool early;   /* done once published to a peer that admits */
	bool started; /* its credit is spent, its bytes are placed */
};

/*
 * Positions run free; a slot is position & mask.
 *
 *    freed <= done <= sent <= posted,  posted - freed <= limit
 *
 * freed moves when a completion is polled, done when it is generated.
 */
struct send_queue {
	struct send_wqe *wqe;
	struct ibv_sge *sge; /* max_sge per slot, for requests that wait */
	uint64_t freed, done, sent, posted;
	uint32_t mask, limit, max_sge, max_inline;
	uint64_t credits_used;
	uint64_t sure;	  /* early records below this number are done */
	unsigned unsure;  /* published, not early, not acked */
	bool all_signalled;
	bool stopped;	  /* a request failed: nothing goes after it */
	bool failed;	  /* and its completion is out: all else is flushed */
	bool wants_credit; /* why the first waiting request waits */
	unsigned rnr_tries;
	struct wire_timer retry_timer;
};

struct recv_wqe {
	uint64_t wr_id;
	uint64_t addr;	/* of the only piece, if sge_count is 1 */
	uint32_t lkey;
	uint32_t bytes; /* all pieces */
	uint32_t sge_count;
	uint32_t reserved;
};

struct recv_queue {
	struct recv_wqe *wqe;
	struct ibv_sge *sge; /* max_sge per slot; NULL if that is 1 */
	uint64_t posted, taken;
	uint32_t mask, limit, max_sge;
	uint32_t smallest;  /* receive ever posted */
	/* the message of several fragments that is arriving */
	uint32_t message_bytes, filled_bytes;
	bool in_message;
};

/* A record that must still go when the queue pair is already in error. */
enum owed { OWES_NOTHING, OWES_FATAL, OWES_DISCONNECT };

struct soft_qp {
	struct ibv_qp ibv;
	struct send_queue sq;
	struct recv_queue rq;
	struct wire_lane lane;
	struct soft_path path;
	struct rk_list node;	/* engine.qps */
	struct rk_list revisit; /* engine.revisit */
	const struct soft_cm_events *events; /* NULL: not connected */
	void *cm;
	struct ibv_qp_attr attr; /* as given to modify */

	bool failing;	 /* inside qp_fail(): do not enter again */
	bool said_bye;	 /* the peer knows that we take nothing any more */
	bool said_disconnect; /* it has been sent, or is owed */
	bool first_seen; /* first_record() was called */
	bool deaf;	 /* what is in the lane is not taken any more */
	bool has_farewell;
	uint8_t owed, owed_syndrome;
	uint16_t farewell_bytes, owed_bytes;
	uint8_t farewell[FAREWELL_MAX]; /* the peer's */
	uint8_t owed_data[FAREWELL_MAX]; /* ours */

	struct async_event access_error, request_error, fatal_error;
	struct async_count async;
};

struct ibv_qp *qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int qp_destroy(struct ibv_qp *qp);
int qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
	     struct ibv_qp_init_attr *init_attr);
int qp_modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask);

static inline struct soft_qp *qp_of(struct ibv_qp *qp)
{
	return rk_container_of(qp, struct soft_qp, ibv);
}

static inline bool qp_is_connected(const struct soft_qp *qp)
{
	return qp->ibv.state == IBV_QPS_RTR || qp->ibv.state == IBV_QPS_RTS;
}

/*
 * To ERROR: no one-sided access any more, what the peer published is
 * delivered, then both queues are flushed in order and the connection manager
 * is told of a disconnect that came.  Harmless on a queue pair in ERROR.
 */
void qp_fail(struct soft_qp *qp);
/* To RESET: everything outstanding is forgotten, the lane closed. */
void qp_reset(struct soft_qp *qp);
/* Lane has news: called by the pump. */
void qp_visit(struct soft_qp *qp);
/* Its peer is gone. */
void qp_peer_gone(struct soft_qp *qp);
/* Look at it in the next pump, and let that come soon. */
void qp_revisit(struct soft_qp *qp);

int qp_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		 struct ibv_send_wr **bad_wr);
int qp_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		 struct ibv_recv_wr **bad_wr);

/* Learn what the peer did, complete, send what waited. */
void send_progress(struct soft_qp *qp);
/* What the peer did to the last: complete it, or fail what it refused. */
void send_settle(struct soft_qp *qp);
/* Complete what is done, in order. */
void send_complete(struct soft_qp *qp);
/* The first outstanding request ends with status, the rest is flushed. */
void send_fail_first(struct soft_qp *qp, enum ibv_wc_status status);
void send_flush(struct soft_qp *qp);
void send_forget(struct soft_qp *qp);
void send_owed(struct soft_qp *qp);
void send_retry_fire(struct wire_timer *timer);

/* What became of a request that was tried (execute.c). */
enum verdict { VERDICT_NEXT, VERDICT_WAIT, VERDICT_FAIL };

/* Where the payload of a request lies. */
struct payload {
	const struct ibv_sge *sge;
	unsigned count;
	bool is_inline; /* no keys to check */
};

enum verdict send_execute(struct soft_qp *qp, struct send_wqe *wqe,
			  const struct payload *payload);
void send_publish(struct soft_qp *qp);

/* Deliver what is in the lane.  False: the queue pair must go to error. */
RK_MUST_CHECK bool receive_records(struct soft_qp *qp);
/* In ERROR only the end of the connection is still of interest. */
void receive_discard(struct soft_qp *qp);
void receive_flush(struct soft_qp *qp);

#endif
