/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One request of the send queue: tried as soon as everything before it has
 * gone, and again whenever the peer's words moved, until it is in the lane, has
 * been placed, or has failed.  Lock held.
 *
 * A request is early when the peer must have taken it once it is published: a
 * receive waits for it that is long enough, and its payload has been copied.
 * Any other is unsure until the peer acknowledges it; one-sided access, which
 * cannot be taken back, waits for that.
 */
#include <sys/uio.h>

#include "base/clock.h"
#include "base/log.h"
#include "softverbs/objects.h"

static enum verdict fail(struct send_wqe *wqe, enum ibv_wc_status status)
{
	wqe->state = SEND_FAILED;
	wqe->status = status;
	return VERDICT_FAIL;
}

static int gather(const struct soft_qp *qp, const struct payload *payload,
		  unsigned access, uint32_t skip, uint32_t bytes,
		  struct iovec *iov)
{
	return sge_gather(payload->is_inline ? NULL : qp->ibv.pd, payload->sge,
			  payload->count, access, skip, bytes, iov);
}

/* 1, 0, or -EPROTO: the peer's words are nonsense. */
static int has_credit(struct soft_qp *qp)
{
	int err;

	if (rk_likely(qp->sq.credits_used < qp->lane.peer_credit))
		return 1;
	err = lane_refresh(&qp->lane);
	if (err)
		return err;
	qp->sq.wants_credit = qp->sq.credits_used >= qp->lane.peer_credit;
	return !qp->sq.wants_credit;
}

static int push(struct soft_qp *qp, struct record *record,
		const struct iovec *iov, unsigned count)
{
	int err = lane_push(&qp->lane, record, iov, count);

	if (rk_likely(err != -EAGAIN))
		return err;
	/* what is in the ring may be what has to be taken first */
	send_publish(qp);
	err = lane_refresh(&qp->lane);
	return err ? err : lane_push(&qp->lane, record, iov, count);
}

static uint8_t flags_of(const struct send_wqe *wqe)
{
	uint8_t flags = wqe->solicited ? RECORD_SOLICITED : 0;

	if (wqe->opcode == IBV_WR_SEND_WITH_IMM ||
	    wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		flags |= RECORD_HAS_IMM;
	return flags;
}

static enum verdict published(struct soft_qp *qp, struct send_wqe *wqe,
			      const struct record *record)
{
	wqe->sequence = record->sequence;
	wqe->state = SEND_PUBLISHED;
	if (!wqe->early)
		qp->sq.unsure++;
	return VERDICT_NEXT;
}

static enum verdict execute_send(struct soft_qp *qp, struct send_wqe *wqe,
				 const struct payload *payload)
{
	struct iovec iov[MAX_SGE];
	struct record record;
	int err, count;

	if (!wqe->started) {
		err = has_credit(qp);
		if (err <= 0)
			return err ? fail(wqe, IBV_WC_BAD_RESP_ERR) :
				     VERDICT_WAIT;
	}
	do {
		uint32_t part = rk_min(wqe->bytes - wqe->sent_bytes,
				       (uint32_t)STAGE_CHUNK_BYTES);
		bool last = wqe->sent_bytes + part == wqe->bytes;

		count = gather(qp, payload, 0, wqe->sent_bytes, part, iov);
		if (count < 0)
			return fail(wqe, IBV_WC_LOC_PROT_ERR);
		record = (struct record){
			.op = RECORD_SEND,
			.flags = flags_of(wqe) | (last ? RECORD_LAST : 0),
			.bytes = part,
			.imm = wqe->imm,
			.length = wqe->bytes,
			.offset = wqe->sent_bytes,
		};
		err = push(qp, &record, iov, (unsigned)count);
		if (err)
			return err == -EAGAIN ?
				VERDICT_WAIT : fail(wqe, IBV_WC_BAD_RESP_ERR);
		if (!wqe->started) {
			wqe->started = true;
			wqe->early = wqe->bytes <= qp->lane.peer_rqmin;
			qp->sq.credits_used++;
		}
		wqe->sent_bytes += part;
		if (!last)
			lane_flush(&qp->lane); /* the peer copies meanwhile */
	} while (wqe->sent_bytes != wqe->bytes);
	return published(qp, wqe, &record);
}

/* The peer's queue pair is to learn that it was addressed wrongly. */
static enum verdict fail_both(struct soft_qp *qp, struct send_wqe *wqe,
			      enum ibv_wc_status status, enum nak_code code)
{
	qp->owed = OWES_FATAL;
	qp->owed_syndrome = code;
	qp->said_bye = true;
	send_owed(qp);
	return fail(wqe, status);
}

static enum verdict one_sided_failed(struct soft_qp *qp, struct send_wqe *wqe,
				     int err)
{
	static bool said;

	switch (err) {
	case -EACCES:
		return fail_both(qp, wqe, IBV_WC_REM_ACCESS_ERR, NAK_ACCESS);
	case -EHOSTDOWN:
		return fail(wqe, IBV_WC_RETRY_EXC_ERR);
	case -ESHUTDOWN:
		/* not admitted yet, or why not is about to arrive */
		return VERDICT_WAIT;
	case -EAGAIN:
		/* the peer's grant is still on its way */
		wire_timer_set(soft_engine.base.wire, &qp->sq.retry_timer,
			       rk_now_ns() + RK_NS_PER_MS);
		return VERDICT_WAIT;
	case -EOPNOTSUPP:
		if (!said)
			rk_log(RK_LOG_ERROR,
			       "soft device: memory of process %d is private "
			       "to it and the kernel does not let us write "
			       "there; register memory of mem_alloc, or allow "
			       "ptrace between the two",
			       (int)wire_link_pid(qp->lane.link));
		said = true;
		break;
	}
	return fail_both(qp, wqe, IBV_WC_REM_OP_ERR, NAK_OPERATION);
}

static enum verdict place(struct soft_qp *qp, struct send_wqe *wqe,
			  const struct payload *payload)
{
	bool reads = wqe->opcode == IBV_WR_RDMA_READ;
	struct iovec iov[MAX_SGE];
	int count, err;

	if (qp->sq.unsure)
		return VERDICT_WAIT;
	count = gather(qp, payload, reads ? IBV_ACCESS_LOCAL_WRITE : 0, 0,
		       wqe->bytes, iov);
	if (count < 0)
		return fail(wqe, IBV_WC_LOC_PROT_ERR);
	if (!wqe->bytes)
		return VERDICT_NEXT; /* needs no valid key */
	if (reads)
		err = wire_read(&qp->lane, wqe->remote_addr, wqe->rkey, iov,
				(unsigned)count, wqe->bytes);
	else
		err = wire_write(&qp->lane, wqe->remote_addr, wqe->rkey, iov,
				 (unsigned)count, wqe->bytes);
	return rk_likely(!err) ? VERDICT_NEXT : one_sided_failed(qp, wqe, err);
}

/* A plain access: whoever sees the bytes must find the records before it. */
static enum verdict execute_one_sided(struct soft_qp *qp, struct send_wqe *wqe,
				      const struct payload *payload)
{
	enum verdict verdict;

	send_publish(qp);
	verdict = place(qp, wqe, payload);
	if (verdict == VERDICT_NEXT)
		wqe->state = SEND_DONE;
	return verdict;
}

/*
 * The data first, then the record.  The data may be seen before an earlier
 * record of the same batch: nothing tells the program that it is there but the
 * completion, and that comes in order.
 */
static enum verdict execute_write_imm(struct soft_qp *qp, struct send_wqe *wqe,
				      const struct payload *payload)
{
	enum verdict verdict;
	struct record record;
	int err;

	if (!wqe->started) {
		err = has_credit(qp);
		if (err <= 0)
			return err ? fail(wqe, IBV_WC_BAD_RESP_ERR) :
				     VERDICT_WAIT;
		verdict = place(qp, wqe, payload);
		if (verdict != VERDICT_NEXT)
			return verdict;
		wqe->started = true;
	}
	record = (struct record){
		.op = RECORD_WRITE_IMM,
		.flags = flags_of(wqe) | RECORD_LAST,
		.imm = wqe->imm,
		.length = wqe->bytes,
	};
	err = push(qp, &record, NULL, 0);
	if (err)
		return err == -EAGAIN ? VERDICT_WAIT :
					fail(wqe, IBV_WC_BAD_RESP_ERR);
	qp->sq.credits_used++;
	wqe->early = true; /* the receive's length does not matter */
	return published(qp, wqe, &record);
}

enum verdict send_execute(struct soft_qp *qp, struct send_wqe *wqe,
			  const struct payload *payload)
{
	qp->sq.wants_credit = false;
	if (rk_unlikely(wqe->bytes > MAX_MESSAGE_BYTES))
		return fail(wqe, IBV_WC_LOC_LEN_ERR);
	switch ((enum ibv_wr_opcode)wqe->opcode) {
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return execute_write_imm(qp, wqe, payload);
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return execute_send(qp, wqe, payload);
	case IBV_WR_RDMA_READ:
		/* reads run one at a time, so one is all it takes */
		if (!qp->path.max_rd_atomic)
			return fail(wqe, IBV_WC_REM_INV_REQ_ERR);
		return execute_one_sided(qp, wqe, payload);
	case IBV_WR_RDMA_WRITE:
		return execute_one_sided(qp, wqe, payload);
	default: /* post refused these */
		return fail(wqe, IBV_WC_LOC_QP_OP_ERR);
	}
}

/* ---- records outside the queue ---------------------------------------- */

void send_publish(struct soft_qp *qp)
{
	struct wire_lane *lane = &qp->lane;

	if (lane->tail == lane->published)
		return;
	lane_flush(lane);
	if (rk_likely(lane_peer_admits(lane)))
		qp->sq.sure = lane->sequence;
}

static int push_owed(struct soft_qp *qp)
{
	struct iovec iov = { qp->owed_data, qp->owed_bytes };
	struct record record = { .flags = RECORD_LAST };
	int err;

	if (qp->owed == OWES_FATAL) {
		record.op = RECORD_FATAL;
		record.imm = qp->owed_syndrome;
		err = push(qp, &record, NULL, 0);
	} else {
		record.op = RECORD_DISCONNECT;
		record.bytes = record.length = qp->owed_bytes;
		err = push(qp, &record, &iov, 1);
	}
	if (err != -EAGAIN) {
		qp->owed = OWES_NOTHING;
		send_publish(qp);
	}
	return err;
}

/* Try to send the record that is owed; if the ring is full, be told. */
void send_owed(struct soft_qp *qp)
{
	if (!qp->lane.link || !wire_link_is_alive(qp->lane.link)) {
		qp->owed = OWES_NOTHING;
		return;
	}
	if (push_owed(qp) != -EAGAIN)
		return;
	lane_want(&qp->lane, true);
	push_owed(qp); /* there may have come room meanwhile */
}
