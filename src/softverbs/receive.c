/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receive queue: receives are posted to private memory and granted to the
 * peer as a count; records of the lane are matched to them, in order, whenever
 * the lane has news.  Lock held, except in posting.
 *
 * A record is what a peer says: each is checked here once, against the private
 * state of this queue pair, before anything is done with it.
 */
#include <string.h>
#include <sys/uio.h>

#include "softverbs/objects.h"

static struct recv_wqe *wqe_at(const struct soft_qp *qp, uint64_t position)
{
	return &qp->rq.wqe[position & qp->rq.mask];
}

static struct ibv_sge *sge_at(const struct soft_qp *qp, uint64_t position)
{
	return &qp->rq.sge[(position & qp->rq.mask) * qp->rq.max_sge];
}

/* Retire the oldest receive. */
static void retire(struct soft_qp *qp, enum ibv_wc_status status,
		   enum ibv_wc_opcode opcode, const struct record *record)
{
	struct recv_queue *rq = &qp->rq;
	struct cqe cqe = {
		.wr_id = wqe_at(qp, rq->taken++)->wr_id,
		.qp = qp,
		.status = status,
		.opcode = opcode,
	};
	bool solicited = false;

	if (record) {
		solicited = record->flags & RECORD_SOLICITED;
		cqe.bytes = record->length;
		cqe.imm = record->imm;
		if (record->flags & RECORD_HAS_IMM)
			cqe.flags = IBV_WC_WITH_IMM;
	}
	cq_push(cq_of(qp->ibv.recv_cq), &cqe, solicited);
}

/* Tell the peer that the record at hand will not be done.  Always false. */
static bool refuse(struct soft_qp *qp, enum nak_code code)
{
	lane_nak(&qp->lane, code, qp->lane.acked);
	qp->said_bye = qp->deaf = true;
	return false;
}

static bool refuse_malformed(struct soft_qp *qp)
{
	async_raise(context_of(qp->ibv.context), &qp->request_error,
		    IBV_EVENT_QP_REQ_ERR);
	return refuse(qp, NAK_INVALID_REQUEST);
}

static void pop(struct soft_qp *qp, const struct record *record)
{
	lane_pop(&qp->lane, record);
	qp->lane.acked++;
}

/* ---- records ---------------------------------------------------------- */

static bool send_is_sound(const struct recv_queue *rq, const struct record *r)
{
	if (rq->posted == rq->taken) /* sent without a credit */
		return false;
	if (r->offset != (rq->in_message ? rq->filled_bytes : 0))
		return false;
	if (rq->in_message && r->length != rq->message_bytes)
		return false;
	if (r->offset > r->length || r->bytes > r->length - r->offset)
		return false;
	if (!r->bytes && r->length)
		return false;
	return !!(r->flags & RECORD_LAST) ==
	       (r->bytes == r->length - r->offset);
}

static int scatter(const struct soft_qp *qp, const struct recv_wqe *wqe,
		   const struct record *record, struct iovec *iov)
{
	const struct ibv_sge one = { wqe->addr, wqe->bytes, wqe->lkey };

	return sge_gather(qp->ibv.pd,
			  wqe->sge_count > 1 ? sge_at(qp, qp->rq.taken) : &one,
			  wqe->sge_count, IBV_ACCESS_LOCAL_WRITE,
			  record->offset, record->bytes, iov);
}

static bool take_send(struct soft_qp *qp, const struct record *record)
{
	struct recv_queue *rq = &qp->rq;
	struct recv_wqe *wqe = wqe_at(qp, rq->taken);
	struct iovec iov[MAX_SGE];
	int count;

	if (!send_is_sound(rq, record))
		return refuse_malformed(qp);
	if (record->length > wqe->bytes) {
		retire(qp, IBV_WC_LOC_LEN_ERR, IBV_WC_RECV, NULL);
		return refuse(qp, NAK_INVALID_REQUEST);
	}
	count = scatter(qp, wqe, record, iov);
	if (count < 0) {
		retire(qp, IBV_WC_LOC_PROT_ERR, IBV_WC_RECV, NULL);
		return refuse(qp, NAK_OPERATION);
	}
	if (record->bytes)
		lane_copy(&qp->lane, record, iov, (unsigned)count);
	pop(qp, record);
	rq->in_message = !(record->flags & RECORD_LAST);
	if (rq->in_message) {
		rq->message_bytes = record->length;
		rq->filled_bytes = record->offset + record->bytes;
		return true;
	}
	retire(qp, IBV_WC_SUCCESS, IBV_WC_RECV, record);
	return true;
}

static bool take_write_imm(struct soft_qp *qp, const struct record *record)
{
	if (qp->rq.posted == qp->rq.taken || qp->rq.in_message ||
	    record->bytes || !(record->flags & RECORD_HAS_IMM))
		return refuse_malformed(qp);
	pop(qp, record);
	retire(qp, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM, record);
	return true;
}

static bool take_disconnect(struct soft_qp *qp, const struct record *record)
{
	struct iovec iov = { qp->farewell, record->bytes };

	if (record->bytes > FAREWELL_MAX)
		return refuse_malformed(qp);
	if (record->bytes)
		lane_copy(&qp->lane, record, &iov, 1);
	qp->farewell_bytes = (uint16_t)record->bytes;
	qp->has_farewell = true;
	pop(qp, record);
	return false;
}

static bool take_fatal(struct soft_qp *qp, const struct record *record)
{
	struct soft_context *context = context_of(qp->ibv.context);

	if (record->imm == NAK_ACCESS)
		async_raise(context, &qp->access_error,
			    IBV_EVENT_QP_ACCESS_ERR);
	else
		async_raise(context, &qp->request_error, IBV_EVENT_QP_REQ_ERR);
	qp->said_bye = true; /* it is in error already */
	pop(qp, record);
	return false;
}

static bool take(struct soft_qp *qp, const struct record *record)
{
	switch ((enum record_op)record->op) {
	case RECORD_WRITE_IMM:
		return take_write_imm(qp, record);
	case RECORD_SEND:
		return take_send(qp, record);
	case RECORD_DISCONNECT:
		return take_disconnect(qp, record);
	case RECORD_FATAL:
		return take_fatal(qp, record);
	}
	return refuse_malformed(qp);
}

/*
 * Bounded although the peer may go on publishing: every record needs a receive
 * of ours or a part of one, and none is posted while we hold the lock.
 */
bool receive_records(struct soft_qp *qp)
{
	struct record record;
	bool any = false, good = !qp->deaf;
	int got;

	while (good) {
		got = lane_peek(&qp->lane, &record);
		if (got <= 0) {
			good = !got || refuse_malformed(qp);
			break;
		}
		any = true;
		if (rk_unlikely(qp->ibv.state == IBV_QPS_RTR &&
				!qp->first_seen && !qp->failing)) {
			qp->first_seen = true;
			qp->events->first_record(qp->cm);
			if (!qp_is_connected(qp))
				return true; /* it was failed meanwhile */
			continue;
		}
		good = take(qp, &record);
	}
	if (any)
		lane_answer(&qp->lane);
	return good;
}

void receive_discard(struct soft_qp *qp)
{
	struct record record;
	bool any = false;

	for (int i = 0; i < RING_SLOTS; i++) {
		if (!qp->lane.link || lane_peek(&qp->lane, &record) <= 0)
			break;
		any = true;
		if (record.op != RECORD_DISCONNECT)
			lane_pop(&qp->lane, &record);
		else if (!take_disconnect(qp, &record) && !qp->has_farewell)
			break; /* malformed */
	}
	if (any)
		lane_answer(&qp->lane);
}

void receive_flush(struct soft_qp *qp)
{
	qp->rq.in_message = false;
	while (qp->rq.taken != qp->rq.posted)
		retire(qp, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, NULL);
}

/* ---- posting ---------------------------------------------------------- */

static int post_one(struct soft_qp *qp, const struct ibv_recv_wr *wr)
{
	struct recv_queue *rq = &qp->rq;
	struct recv_wqe *wqe = wqe_at(qp, rq->posted);
	uint64_t bytes = 0;

	if (rk_unlikely(wr->num_sge < 0 ||
			(unsigned)wr->num_sge > rq->max_sge))
		return EINVAL;
	if (rk_unlikely(rq->posted - rq->taken >= rq->limit))
		return ENOMEM;
	for (int i = 0; i < wr->num_sge; i++)
		bytes += wr->sg_list[i].length;
	if (rk_unlikely(bytes > UINT32_MAX))
		return EINVAL;
	wqe->wr_id = wr->wr_id;
	wqe->bytes = (uint32_t)bytes;
	wqe->sge_count = (uint32_t)wr->num_sge;
	if (wr->num_sge == 1) {
		wqe->addr = wr->sg_list[0].addr;
		wqe->lkey = wr->sg_list[0].lkey;
	} else if (wr->num_sge) {
		memcpy(sge_at(qp, rq->posted), wr->sg_list,
		       (size_t)wr->num_sge * sizeof(*wr->sg_list));
	}
	rq->smallest = rk_min(rq->smallest, wqe->bytes);
	rq->posted++;
	return 0;
}

/* EINVAL: in RESET, or a malformed request.  ENOMEM: the queue is full. */
int qp_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr,
		 struct ibv_recv_wr **bad_wr)
{
	struct soft_qp *qp = qp_of(ibv);
	int err = 0;

	if (!engine_lock()) {
		*bad_wr = wr;
		return ENODEV;
	}
	if (rk_unlikely(ibv->state == IBV_QPS_RESET))
		err = EINVAL;
	for (; wr && !err; wr = wr->next) {
		err = post_one(qp, wr);
		if (rk_unlikely(err))
			break;
	}
	if (rk_unlikely(err))
		*bad_wr = wr;
	if (rk_unlikely(ibv->state == IBV_QPS_ERR)) {
		receive_flush(qp);
	} else if (rk_likely(qp->lane.link != NULL)) {
		qp->lane.credit = qp->rq.posted;
		qp->lane.rqmin = qp->rq.smallest;
		lane_answer(&qp->lane);
	}
	engine_unlock();
	return err;
}
