/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection's queue pair: what is posted to it and what comes back.
 *
 * Send queue: every work request takes a slot.  Slots come back with signalled
 * completions, each releasing those before it too; at least every fourth of
 * the depth is signalled, so that a full queue always has one on its way.
 * Their tokens wait in a ring, since completions of one queue come in order.
 *
 * Receive queue: there are receive_batch more buffers than the user asked for,
 * so that posting them again can wait until a batch is used up.  Receives
 * complete in the order of posting, so no number needs to travel with them.
 *
 * Thread: the context's owner.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "fabric/verbs/internal.h"

enum {
	RECEIVE_BATCH_MAX = 32,
	RNR_TIMER_640_US = 12, /* the wait a NAK asks of the sender */
};

/* wr_id: the connection's address, and in its lowest bit what it was. */
enum { WORK_RECEIVE = 0, WORK_SEND = 1, WORK_MASK = 1 };

static uint64_t work_id(const struct fabric_conn *conn, unsigned kind)
{
	return (uint64_t)(uintptr_t)conn | kind;
}

/* ---- create, destroy --------------------------------------------------- */

/* What a device takes of inline bytes and pieces is only known by asking. */
static int create_qp(struct fabric_conn *conn, struct ibv_qp_init_attr *attr)
{
	struct fabric_context *context = conn_context(conn);
	struct ibv_qp_init_attr asked = *attr;
	int error;

	for (;;) {
		*attr = asked;
		if (!context->table->cm_create_qp(conn->id, context->pd, attr))
			return 0;
		error = errno;
		if (asked.cap.max_inline_data)
			asked.cap.max_inline_data /= 2;
		else if (asked.cap.max_send_sge > 1)
			asked.cap.max_send_sge /= 2;
		else
			return -error;
		if (error != EINVAL && error != ENOMEM)
			return -error;
	}
}

static int allocate(struct fabric_conn *conn,
		    const struct rk_conn_params *params)
{
	struct fabric_context *context = conn_context(conn);
	int ret;

	conn->marks = rk_calloc(conn->slots_max, sizeof(*conn->marks));
	if (!conn->marks)
		return -ENOMEM;
	if (!params->receive_bytes)
		return 0;
	conn->receive_bytes = params->receive_bytes;
	conn->receive_stride = (uint32_t)rk_round_up(params->receive_bytes, 32);
	ret = fabric_memory_alloc(&context->base, NULL,
				  (size_t)conn->receive_stride *
					  conn->receive_depth,
				  0, &conn->slab);
	if (ret)
		return ret;
	conn->receive_slab = conn->slab.addr;
	conn->receive_lkey = conn->slab.lkey;
	return 0;
}

static int plan(struct fabric_conn *conn, const struct rk_conn_params *params)
{
	struct fabric_context *context = conn_context(conn);
	unsigned limit = (unsigned)rk_max(context->attr.max_qp_wr, 1);

	if (params->receive_depth > limit) {
		rk_log(RK_LOG_ERROR,
		       "%u receives of a connection are more than the %u that "
		       "%s has",
		       params->receive_depth, limit, context->choice.name);
		return -EINVAL;
	}
	conn->params = *params;
	conn->slots_max = rk_min(params->send_depth, limit);
	conn->signal_every = rk_max(conn->slots_max / 4, 1u);
	conn->receive_batch = rk_max(params->receive_depth / 8, 1u);
	if (conn->receive_batch > RECEIVE_BATCH_MAX)
		conn->receive_batch = RECEIVE_BATCH_MAX;
	conn->receive_depth =
		rk_min(params->receive_depth + conn->receive_batch, limit);
	/* the last batch may not be there to wait for */
	conn->receive_batch =
		rk_max(conn->receive_depth - params->receive_depth, 1u);
	return 0;
}

static int post_receives(struct fabric_conn *conn, unsigned first,
			 unsigned count)
{
	struct ibv_recv_wr wrs[RECEIVE_BATCH_MAX], *bad;
	struct ibv_sge sges[RECEIVE_BATCH_MAX];
	unsigned at = first;

	for (unsigned i = 0; i < count; i++) {
		sges[i] = (struct ibv_sge){
			.addr = (uint64_t)(uintptr_t)conn->receive_slab +
				(uint64_t)at * conn->receive_stride,
			.length = conn->receive_bytes,
			.lkey = conn->receive_lkey,
		};
		wrs[i] = (struct ibv_recv_wr){
			.wr_id = work_id(conn, WORK_RECEIVE),
			.next = i + 1 < count ? &wrs[i + 1] : NULL,
			.sg_list = conn->receive_bytes ? &sges[i] : NULL,
			.num_sge = conn->receive_bytes ? 1 : 0,
		};
		if (++at == conn->receive_depth)
			at = 0;
	}
	return -ibv_post_recv(conn->qp, wrs, &bad); /* returns +errno */
}

static int post_all_receives(struct fabric_conn *conn)
{
	unsigned count;
	int ret;

	for (unsigned at = 0; at < conn->receive_depth; at += count) {
		count = rk_min(conn->receive_depth - at,
			       (unsigned)RECEIVE_BATCH_MAX);
		ret = post_receives(conn, at, count);
		if (ret)
			return ret;
		conn->receives_posted += count;
	}
	return 0;
}

/* On failure the rest is left to fabric_queue_destroy(). */
int fabric_queue_create(struct fabric_conn *conn,
			const struct rk_conn_params *params)
{
	struct fabric_context *context = conn_context(conn);
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	unsigned pieces = (unsigned)rk_max(context->attr.max_sge, 1);
	int ret;

	ret = plan(conn, params);
	if (!ret)
		ret = allocate(conn, params);
	if (!ret)
		ret = fabric_cq_promise(context, conn,
					conn->slots_max + conn->receive_depth);
	if (ret)
		return ret;
	attr.send_cq = attr.recv_cq = conn->cq->cq;
	attr.cap = (struct ibv_qp_cap){
		.max_send_wr = conn->slots_max,
		.max_recv_wr = conn->receive_depth,
		.max_send_sge = rk_min(pieces, (unsigned)RK_PIECES_MAX),
		.max_recv_sge = 1,
		.max_inline_data = params->inline_bytes,
	};
	ret = create_qp(conn, &attr);
	if (ret) {
		rk_log(RK_LOG_WARNING,
		       "cannot create a queue pair of %u sends and %u receives "
		       "on %s: %s",
		       conn->slots_max, conn->receive_depth,
		       context->choice.name, strerror(-ret));
		return ret;
	}
	conn->qp = conn->id->qp;
	conn->inline_bytes = attr.cap.max_inline_data;
	conn->pieces_max =
		rk_min(attr.cap.max_send_sge, (uint32_t)RK_PIECES_MAX);
	return post_all_receives(conn);
}

void fabric_queue_destroy(struct fabric_conn *conn)
{
	struct fabric_context *context = conn_context(conn);

	if (conn->qp)
		context->table->cm_destroy_qp(conn->id);
	conn->qp = NULL;
	if (conn->slab.addr)
		fabric_memory_free(&context->base, &conn->slab);
}

/* The connection manager leaves it at 655 ms.  It is no loss if the device
 * does not take it now. */
void fabric_queue_set_rnr_timer(struct fabric_conn *conn)
{
	struct ibv_qp_attr attr = { .min_rnr_timer = RNR_TIMER_640_US };

	conn_context(conn)->table->modify_qp(conn->qp, &attr,
					     IBV_QP_MIN_RNR_TIMER);
}

/* ---- posting ----------------------------------------------------------- */

static int post_failed(struct fabric_conn *conn, int error)
{
	if (error == ENOMEM && conn->mark_count) {
		conn->wants_writable = true;
		return -EAGAIN;
	}
	rk_log(RK_LOG_ERROR, "posting to a queue pair failed: %s",
	       strerror(error));
	fabric_conn_end(conn, RK_CLOSE_ERROR, IBV_WC_GENERAL_ERR, true);
	return -ENOTCONN;
}

static void take_slot(struct fabric_conn *conn, uint64_t token, unsigned flags,
		      bool signalled)
{
	unsigned at;

	conn->slots_used++;
	conn->unsignalled++;
	if (!signalled)
		return;
	at = conn->mark_first + conn->mark_count++;
	if (at >= conn->slots_max)
		at -= conn->slots_max;
	conn->marks[at] = (struct sent_mark){
		.token = token,
		.slots = conn->unsignalled,
		.tell = flags & RK_SIGNALLED,
	};
	conn->unsignalled = 0;
}

static int post(struct fabric_conn *conn, struct ibv_send_wr *wr,
		const struct rk_piece *pieces, unsigned count, unsigned flags,
		uint64_t token)
{
	struct ibv_sge sges[RK_PIECES_MAX];
	struct ibv_send_wr *bad;
	uint64_t total = 0;
	bool signalled;
	int error;

	if (rk_unlikely(conn->state != CONN_UP))
		return -ENOTCONN;
	if (conn->slots_used >= conn->slots_max) {
		conn->wants_writable = true;
		return -EAGAIN;
	}
	if (rk_unlikely(count > conn->pieces_max))
		return -EINVAL;
	for (unsigned i = 0; i < count; i++) {
		sges[i].addr = (uint64_t)(uintptr_t)pieces[i].addr;
		sges[i].length = pieces[i].bytes;
		sges[i].lkey = pieces[i].lkey;
		total += pieces[i].bytes;
	}
	if (rk_unlikely((flags & RK_INLINE) && total > conn->inline_bytes))
		return -EINVAL;
	signalled = (flags & RK_SIGNALLED) ||
		    conn->unsignalled + 1 >= conn->signal_every;
	wr->wr_id = work_id(conn, WORK_SEND);
	wr->next = NULL;
	wr->sg_list = sges;
	wr->num_sge = (int)count;
	wr->send_flags = (signalled ? IBV_SEND_SIGNALED : 0) |
			 (flags & RK_INLINE ? IBV_SEND_INLINE : 0) |
			 (flags & RK_SOLICITED ? IBV_SEND_SOLICITED : 0);
	error = ibv_post_send(conn->qp, wr, &bad); /* returns +errno */
	if (rk_unlikely(error))
		return post_failed(conn, error);
	take_slot(conn, token, flags, signalled);
	return 0;
}

/* Only what these operations use of a work request is set: clearing all of it
 * would take longer than posting it. */
int fabric_queue_send(struct rk_conn *base, const struct rk_piece *pieces,
		      unsigned count, unsigned flags, uint64_t token)
{
	struct ibv_send_wr wr;

	wr.opcode = IBV_WR_SEND;
	return post(fabric_conn_of(base), &wr, pieces, count, flags, token);
}

int fabric_queue_write(struct rk_conn *base, const struct rk_piece *pieces,
		       unsigned count, uint64_t remote_addr, uint32_t rkey,
		       uint32_t immediate, unsigned flags, uint64_t token)
{
	struct ibv_send_wr wr;

	wr.opcode = flags & RK_WITH_IMM ? IBV_WR_RDMA_WRITE_WITH_IMM
					: IBV_WR_RDMA_WRITE;
	wr.imm_data = htonl(immediate);
	wr.wr.rdma.remote_addr = remote_addr;
	wr.wr.rdma.rkey = rkey;
	return post(fabric_conn_of(base), &wr, pieces, count, flags, token);
}

/* ---- completions ------------------------------------------------------- */

static const char *status_words(enum ibv_wc_status status)
{
	switch ((int)status) {
	case IBV_WC_LOC_LEN_ERR:
		return "a message was longer than the receive";
	case IBV_WC_LOC_PROT_ERR:
		return "local memory is not registered for this";
	case IBV_WC_REM_INV_REQ_ERR:
		return "the peer could not take the request";
	case IBV_WC_REM_ACCESS_ERR:
		return "the peer does not allow access to that memory";
	case IBV_WC_REM_OP_ERR:
		return "the peer could not do it";
	case IBV_WC_RETRY_EXC_ERR:
		return "the peer does not answer";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the peer posted no receives";
	}
	return "a completion failed";
}

static void take_error(struct fabric_context *context, struct fabric_conn *conn,
		       const struct ibv_wc *wc)
{
	char text[80];

	if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		/* the connection manager will say why, or nobody */
		context->cm_due = true;
		if (conn->state == CONN_ACCEPTED || conn->state == CONN_UP)
			fabric_conn_end(conn, RK_CLOSE_ERROR, 0, false);
		return;
	}
	if ((conn->state == CONN_ACCEPTED || conn->state == CONN_UP ||
	     (conn->state == CONN_ENDING && !conn->reason_known)) &&
	    rk_log_may(&context->losses_said))
		rk_log(RK_LOG_WARNING, "connection with %s lost: %s (%d)",
		       fabric_conn_peer_text(conn, text, sizeof(text)),
		       status_words(wc->status), (int)wc->status);
	fabric_conn_end(conn, RK_CLOSE_ERROR, (int)wc->status, true);
}

static void repost(struct fabric_conn *conn)
{
	unsigned first, count = conn->receive_used;
	int ret;

	if (conn->state != CONN_UP && conn->state != CONN_ACCEPTED)
		return; /* it only has to run dry */
	first = conn->receive_next >= count
			? conn->receive_next - count
			: conn->receive_next + conn->receive_depth - count;
	ret = post_receives(conn, first, count);
	if (ret) {
		post_failed(conn, -ret);
		return;
	}
	conn->receives_posted += count;
	conn->receive_used = 0;
}

static void take_receive(struct fabric_conn *conn, const struct ibv_wc *wc)
{
	const struct rk_conn_handler *handler = conn->base.handler;
	unsigned at = conn->receive_next;

	conn->receive_used++;
	if (++conn->receive_next == conn->receive_depth)
		conn->receive_next = 0;
	if (rk_unlikely(conn->state == CONN_ACCEPTED)) {
		fabric_conn_established(conn, NULL, 0);
		if (conn->buried)
			return;
	}
	if (conn->state != CONN_UP && conn->state != CONN_ENDING)
		return;
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		handler->written(&conn->base, ntohl(wc->imm_data),
				 wc->byte_len);
	else
		handler->received(&conn->base,
				  conn->receive_slab +
					  (size_t)at * conn->receive_stride,
				  wc->byte_len);
	if (!conn->buried && conn->receive_used >= conn->receive_batch)
		repost(conn);
}

static void take_sent(struct fabric_conn *conn)
{
	const struct rk_conn_handler *handler = conn->base.handler;
	struct sent_mark mark = conn->marks[conn->mark_first];

	assert(conn->mark_count);
	if (++conn->mark_first == conn->slots_max)
		conn->mark_first = 0;
	if (!--conn->mark_count)
		conn->mark_first = 0; /* stay in warm memory */
	conn->slots_used -= mark.slots;
	if (conn->state != CONN_UP && conn->state != CONN_ENDING)
		return;
	if (mark.tell) {
		handler->sent(&conn->base, mark.token);
		if (conn->buried)
			return;
	}
	if (conn->wants_writable && conn->state == CONN_UP &&
	    conn->slots_used < conn->slots_max) {
		conn->wants_writable = false;
		handler->writable(&conn->base);
	}
}

/* On an error only wr_id and status mean anything. */
void fabric_queue_completion(struct fabric_context *context,
			     const struct ibv_wc *wc)
{
	bool is_send = wc->wr_id & WORK_MASK;
	struct fabric_conn *conn =
		(struct fabric_conn *)(uintptr_t)(wc->wr_id &
						  ~(uint64_t)WORK_MASK);

	if (rk_unlikely(conn->buried))
		return;
	if (!is_send)
		conn->receives_posted--;
	if (rk_unlikely(wc->status != IBV_WC_SUCCESS))
		take_error(context, conn, wc);
	else if (is_send)
		take_sent(conn);
	else
		take_receive(conn, wc);
	if (rk_unlikely(conn->state == CONN_ENDING && !conn->buried))
		fabric_conn_check_drained(conn);
}
