/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The send queue: posting, completing in order, waiting and failing.  What one
 * request does is in execute.c.
 *
 * Requests go strictly in order.  One that cannot go now keeps its scatter list
 * (and, if inline, a copy of its payload) and holds back all that follow; it is
 * tried again when the peer's words move, which the peer is asked to tell.
 * Completions are generated in order; the first that is an error moves the
 * queue pair to error, which flushes the rest.  Lock held, except in posting.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "softverbs/objects.h"

static struct send_wqe *wqe_at(const struct soft_qp *qp, uint64_t position)
{
	return &qp->sq.wqe[position & qp->sq.mask];
}

static struct ibv_sge *sge_at(const struct soft_qp *qp, uint64_t position)
{
	return &qp->sq.sge[(position & qp->sq.mask) * qp->sq.max_sge];
}

/* ---- completing ------------------------------------------------------- */

static const uint8_t wc_opcode[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
};

static void drop_copy(struct send_wqe *wqe)
{
	if (rk_likely(!wqe->copy))
		return;
	soft_engine.copy_bytes -= wqe->bytes;
	rk_free(wqe->copy);
	wqe->copy = NULL;
}

/* Retire the request at done. */
static void retire(struct soft_qp *qp, enum ibv_wc_status status)
{
	struct send_queue *sq = &qp->sq;
	struct send_wqe *wqe = wqe_at(qp, sq->done++);
	struct cqe cqe;

	drop_copy(wqe);
	if (status == IBV_WC_SUCCESS && !wqe->signalled)
		return;
	cqe = (struct cqe){
		.wr_id = wqe->wr_id,
		.qp = qp,
		.sq_end = sq->done,
		.bytes = wqe->bytes,
		.status = status,
		.opcode = wc_opcode[wqe->opcode],
		.from_sq = true,
	};
	cq_push(cq_of(qp->ibv.send_cq), &cqe, false);
}

static bool is_done(const struct soft_qp *qp, const struct send_wqe *wqe)
{
	if (wqe->state == SEND_PUBLISHED)
		return wqe->sequence < qp->lane.peer_acked ||
		       (wqe->early && wqe->sequence < qp->sq.sure);
	return wqe->state == SEND_DONE;
}

void send_complete(struct soft_qp *qp)
{
	struct send_queue *sq = &qp->sq;

	while (sq->done != sq->sent && !sq->failed) {
		struct send_wqe *wqe = wqe_at(qp, sq->done);

		if (rk_unlikely(wqe->state == SEND_FAILED)) {
			sq->failed = true;
			retire(qp, wqe->status);
			qp_fail(qp);
			return;
		}
		if (!is_done(qp, wqe))
			return;
		if (wqe->state == SEND_PUBLISHED && !wqe->early)
			sq->unsure--;
		retire(qp, IBV_WC_SUCCESS);
	}
}

void send_fail_first(struct soft_qp *qp, enum ibv_wc_status status)
{
	struct send_queue *sq = &qp->sq;
	struct send_wqe *wqe = wqe_at(qp, sq->done);

	if (sq->done == sq->posted)
		return;
	sq->stopped = true;
	wqe->state = SEND_FAILED;
	wqe->status = status;
	if (sq->sent == sq->done)
		sq->sent++;
	send_complete(qp);
}

void send_flush(struct soft_qp *qp)
{
	while (qp->sq.done != qp->sq.posted)
		retire(qp, IBV_WC_WR_FLUSH_ERR);
	qp->sq.sent = qp->sq.done;
	qp->sq.unsure = 0;
}

void send_forget(struct soft_qp *qp)
{
	struct send_queue *sq = &qp->sq;

	for (; sq->done != sq->posted; sq->done++)
		drop_copy(wqe_at(qp, sq->done));
	sq->freed = sq->done = sq->sent = sq->posted = 0;
	sq->credits_used = sq->sure = 0;
	sq->unsure = sq->rnr_tries = 0;
	sq->stopped = sq->failed = sq->wants_credit = false;
}

/* ---- waiting ---------------------------------------------------------- */

/* What a request needs to be tried again after the program's call returned. */
static int keep(struct soft_qp *qp, struct send_wqe *wqe,
		const struct ibv_send_wr *wr)
{
	struct ibv_sge *sge = sge_at(qp, qp->sq.posted);
	uint8_t *to;

	wqe->sge_count = (uint8_t)wr->num_sge;
	if (!(wr->send_flags & IBV_SEND_INLINE) || !wqe->bytes) {
		if (wr->num_sge)
			memcpy(sge, wr->sg_list,
			       (size_t)wr->num_sge * sizeof(*sge));
		return 0;
	}
	if (wqe->bytes > MAX_COPY_BYTES - soft_engine.copy_bytes)
		return ENOMEM;
	wqe->copy = to = rk_zalloc(wqe->bytes);
	if (!to)
		return ENOMEM;
	soft_engine.copy_bytes += wqe->bytes;
	for (int i = 0; i < wr->num_sge; i++) {
		if (!wr->sg_list[i].length)
			continue;
		memcpy(to, (void *)(uintptr_t)wr->sg_list[i].addr,
		       wr->sg_list[i].length);
		to += wr->sg_list[i].length;
	}
	return 0;
}

static void try_waiting(struct soft_qp *qp)
{
	struct send_queue *sq = &qp->sq;

	while (sq->sent != sq->posted && !sq->stopped) {
		struct send_wqe *wqe = wqe_at(qp, sq->sent);
		struct ibv_sge copy = { (uintptr_t)wqe->copy, wqe->bytes, 0 };
		struct payload payload = {
			.sge = wqe->copy ? &copy : sge_at(qp, sq->sent),
			.count = wqe->copy ? 1 : wqe->sge_count,
			.is_inline = wqe->copy,
		};
		enum verdict verdict = send_execute(qp, wqe, &payload);

		if (verdict == VERDICT_WAIT)
			return;
		sq->stopped = verdict == VERDICT_FAIL;
		sq->sent++;
		sq->rnr_tries = 0;
		wire_timer_cancel(soft_engine.base.wire, &sq->retry_timer);
		drop_copy(wqe);
	}
}

/* In 10 us, by the code of min_rnr_timer; the first is 655.36 ms. */
static const uint16_t rnr_pause[32] = {
	65535, 1,    2,    3,	 4,    6,    8,	   12,
	16,    24,   32,   48,	 64,   96,   128,  192,
	256,   384,  512,  768,	 1024, 1536, 2048, 3072,
	4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

/*
 * The first waiting request finds no receive.  The pause between tries is this
 * queue pair's own min_rnr_timer; the peer's is not known here.  A receive
 * that is posted in between is used at once.
 */
static void wait_for_receiver(struct soft_qp *qp)
{
	struct send_queue *sq = &qp->sq;

	if (qp->path.rnr_retry_count == 7)
		return;
	if (sq->rnr_tries >= qp->path.rnr_retry_count) {
		struct send_wqe *wqe = wqe_at(qp, sq->sent);

		wqe->state = SEND_FAILED;
		wqe->status = IBV_WC_RNR_RETRY_EXC_ERR;
		sq->stopped = true;
		sq->sent++;
		send_complete(qp);
	} else if (!sq->retry_timer.at_ns) {
		wire_timer_set(soft_engine.base.wire, &sq->retry_timer,
			       rk_now_ns() +
				       rnr_pause[qp->attr.min_rnr_timer & 31] *
					       10 * RK_NS_PER_US);
	}
}

void send_retry_fire(struct wire_timer *timer)
{
	struct soft_qp *qp = rk_container_of(timer, struct soft_qp,
					     sq.retry_timer);

	qp->sq.rnr_tries += qp->sq.wants_credit;
	if (qp_is_connected(qp))
		send_progress(qp);
}

static enum ibv_wc_status nak_status(uint64_t nak)
{
	switch ((enum nak_code)(nak >> 56)) {
	case NAK_INVALID_REQUEST:
		return IBV_WC_REM_INV_REQ_ERR;
	case NAK_ACCESS:
		return IBV_WC_REM_ACCESS_ERR;
	case NAK_OPERATION:
		return IBV_WC_REM_OP_ERR;
	case NAK_GONE:
		return IBV_WC_RETRY_EXC_ERR;
	case NAK_NONE:
		break;
	}
	return IBV_WC_BAD_RESP_ERR;
}

/* The peer refused: its first request that is not done is the one. */
static void answer_nak(struct soft_qp *qp)
{
	if (qp->sq.done != qp->sq.posted) {
		send_fail_first(qp, nak_status(qp->lane.peer_nak));
	} else if (qp->lane.peer_nak >> 56 != NAK_GONE) {
		/* what it refused had been completed: it broke its word */
		async_raise(context_of(qp->ibv.context), &qp->fatal_error,
			    IBV_EVENT_QP_FATAL);
		qp_fail(qp);
	}
}

/* A refusal outlives the disconnect that follows it; that the peer is gone is
 * no news then. */
void send_settle(struct soft_qp *qp)
{
	if (lane_refresh(&qp->lane))
		return;
	send_complete(qp);
	if (qp->lane.peer_nak && qp->lane.peer_nak >> 56 != NAK_GONE)
		send_fail_first(qp, nak_status(qp->lane.peer_nak));
}

void send_progress(struct soft_qp *qp)
{
	struct send_queue *sq = &qp->sq;

	for (int pass = 0; pass < 2; pass++) {
		if (lane_refresh(&qp->lane)) {
			send_fail_first(qp, IBV_WC_BAD_RESP_ERR);
			qp_fail(qp);
			return;
		}
		send_complete(qp);
		if (rk_unlikely(qp->lane.peer_nak) && qp_is_connected(qp))
			answer_nak(qp);
		try_waiting(qp);
		send_publish(qp);
		send_complete(qp);
		if (!qp_is_connected(qp))
			return;
		if (sq->done == sq->posted || qp->lane.want)
			break;
		/* asked to be rung; what moved before that is seen now */
		lane_want(&qp->lane, true);
	}
	if (sq->done == sq->posted) {
		if (qp->lane.want)
			lane_want(&qp->lane, false);
	} else if (sq->sent != sq->posted && sq->wants_credit) {
		wait_for_receiver(qp);
	}
}

/* ---- posting ---------------------------------------------------------- */

enum {
	SEND_FLAGS = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED |
		     IBV_SEND_INLINE,
};

/* The one check of what the program posts; 0 or the errno for it. */
static int check_wr(const struct soft_qp *qp, const struct ibv_send_wr *wr,
		    uint64_t *bytes)
{
	uint64_t sum = 0;

	if (rk_unlikely(wr->num_sge < 0 ||
			(unsigned)wr->num_sge > qp->sq.max_sge ||
			wr->send_flags & ~(unsigned)SEND_FLAGS))
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		sum += wr->sg_list[i].length;
	*bytes = rk_min(sum, (uint64_t)UINT32_MAX);
	switch (wr->opcode) {
	case IBV_WR_RDMA_READ:
		return wr->send_flags & IBV_SEND_INLINE ? EINVAL : 0;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		if (wr->send_flags & IBV_SEND_INLINE &&
		    sum > qp->sq.max_inline)
			return EINVAL;
		return 0;
	default:
		return EOPNOTSUPP;
	}
}

static void fill(const struct soft_qp *qp, struct send_wqe *wqe,
		 const struct ibv_send_wr *wr, uint64_t bytes)
{
	*wqe = (struct send_wqe){
		.wr_id = wr->wr_id,
		.remote_addr = wr->wr.rdma.remote_addr,
		.rkey = wr->wr.rdma.rkey,
		.imm = wr->imm_data,
		.bytes = (uint32_t)bytes,
		.opcode = wr->opcode,
		.signalled = qp->sq.all_signalled ||
			     wr->send_flags & IBV_SEND_SIGNALED,
		.solicited = wr->send_flags & IBV_SEND_SOLICITED,
	};
}

static int post_one(struct soft_qp *qp, const struct ibv_send_wr *wr)
{
	struct send_queue *sq = &qp->sq;
	struct send_wqe *wqe = wqe_at(qp, sq->posted);
	struct payload payload = {
		.sge = wr->sg_list,
		.count = (unsigned)wr->num_sge,
		.is_inline = wr->send_flags & IBV_SEND_INLINE,
	};
	enum verdict verdict = VERDICT_WAIT;
	uint64_t bytes;
	int err = check_wr(qp, wr, &bytes);

	if (rk_unlikely(err))
		return err;
	if (rk_unlikely(sq->posted - sq->freed >= sq->limit))
		return ENOMEM;
	fill(qp, wqe, wr, bytes);
	if (qp->ibv.state == IBV_QPS_RTS) {
		if (rk_likely(sq->sent == sq->posted && !sq->stopped))
			verdict = send_execute(qp, wqe, &payload);
		if (rk_unlikely(verdict == VERDICT_WAIT)) {
			err = keep(qp, wqe, wr);
			if (err && !wqe->started)
				return err;
			if (err) { /* part of it has gone already */
				wqe->state = SEND_FAILED;
				wqe->status = IBV_WC_LOC_QP_OP_ERR;
				verdict = VERDICT_FAIL;
			}
		}
	}
	sq->posted++;
	if (verdict != VERDICT_WAIT) {
		sq->stopped = verdict == VERDICT_FAIL;
		sq->sent++;
	}
	return 0;
}

static void finish_post(struct soft_qp *qp)
{
	if (rk_unlikely(qp->ibv.state == IBV_QPS_ERR)) {
		send_flush(qp);
		return;
	}
	send_publish(qp);
	send_complete(qp);
	if (rk_unlikely(qp->sq.done != qp->sq.posted))
		send_progress(qp);
}

/*
 * EINVAL: not in RTS or ERR, or a malformed request.  ENOMEM: the queue is
 * full until a completion is polled, or inline payload would have to wait and
 * there is too much of that.  EOPNOTSUPP: atomics, invalidation, windows.
 */
int qp_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr,
		 struct ibv_send_wr **bad_wr)
{
	struct soft_qp *qp = qp_of(ibv);
	int err = 0;

	if (!engine_lock()) {
		*bad_wr = wr;
		return ENODEV;
	}
	if (rk_unlikely(ibv->state != IBV_QPS_RTS &&
			ibv->state != IBV_QPS_ERR))
		err = EINVAL;
	for (; wr && !err; wr = wr->next) {
		err = post_one(qp, wr);
		if (rk_unlikely(err))
			break;
	}
	if (rk_unlikely(err))
		*bad_wr = wr;
	if (ibv->state == IBV_QPS_RTS || ibv->state == IBV_QPS_ERR)
		finish_post(qp);
	engine_unlock();
	return err;
}
