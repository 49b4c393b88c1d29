/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs: made, asked, destroyed.  All memory a queue pair ever needs for
 * its queues is taken here, so posting takes none (but for inline payload that
 * has to wait).  Any thread.
 */
#include <string.h>

#include "base/alloc.h"
#include "softverbs/objects.h"

static uint32_t ring_size(uint32_t entries)
{
	uint32_t size = 1;

	while (size < entries)
		size *= 2;
	return size;
}

static int check(const struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	const struct ibv_qp_cap *cap = &attr->cap;

	if (attr->qp_type != IBV_QPT_RC || attr->srq)
		return EOPNOTSUPP;
	if (!attr->send_cq || !attr->recv_cq ||
	    attr->send_cq->context != pd->context ||
	    attr->recv_cq->context != pd->context)
		return EINVAL;
	if (cap->max_send_wr > MAX_QP_WR || cap->max_recv_wr > MAX_QP_WR ||
	    cap->max_send_sge > MAX_SGE || cap->max_recv_sge > MAX_SGE ||
	    cap->max_inline_data > MAX_INLINE_BYTES)
		return EINVAL;
	return 0;
}

static void queues_free(struct soft_qp *qp)
{
	rk_free(qp->rq.sge);
	rk_free(qp->rq.wqe);
	rk_free(qp->sq.sge);
	rk_free(qp->sq.wqe);
}

static int queues_alloc(struct soft_qp *qp, const struct ibv_qp_init_attr *attr)
{
	struct send_queue *sq = &qp->sq;
	struct recv_queue *rq = &qp->rq;
	uint32_t slots;

	sq->limit = rk_max(attr->cap.max_send_wr, 1u);
	sq->max_sge = rk_max(attr->cap.max_send_sge, 1u);
	sq->max_inline = attr->cap.max_inline_data;
	sq->all_signalled = attr->sq_sig_all;
	slots = ring_size(sq->limit);
	sq->mask = slots - 1;
	sq->wqe = rk_calloc(slots, sizeof(*sq->wqe));
	sq->sge = rk_calloc((size_t)slots * sq->max_sge, sizeof(*sq->sge));
	rk_list_init(&sq->retry_timer.node);
	sq->retry_timer.fire = send_retry_fire;

	rq->limit = rk_max(attr->cap.max_recv_wr, 1u);
	rq->max_sge = rk_max(attr->cap.max_recv_sge, 1u);
	rq->smallest = UINT32_MAX;
	slots = ring_size(rq->limit);
	rq->mask = slots - 1;
	rq->wqe = rk_calloc(slots, sizeof(*rq->wqe));
	if (rq->max_sge > 1)
		rq->sge = rk_calloc((size_t)slots * rq->max_sge,
				    sizeof(*rq->sge));
	if (sq->wqe && sq->sge && rq->wqe && (rq->sge || rq->max_sge == 1))
		return 0;
	queues_free(qp);
	return ENOMEM;
}

static bool number_is_used(uint32_t number)
{
	struct rk_list *pos, *tmp;

	rk_list_for_each_safe(pos, tmp, &soft_engine.qps)
		if (rk_list_entry(pos, struct soft_qp, node)->ibv.qp_num ==
		    number)
			return true;
	return false;
}

static uint32_t unused_number(void)
{
	do {
		soft_engine.last_qpn = (soft_engine.last_qpn + 1) & 0xffffff;
		/* 0 and 1 are the management queue pairs of a real port */
		if (soft_engine.last_qpn < 2) {
			soft_engine.last_qpn = 2;
			soft_engine.qpn_wrapped = true;
		}
	} while (soft_engine.qpn_wrapped &&
		 number_is_used(soft_engine.last_qpn));
	return soft_engine.last_qpn;
}

static void fill(struct soft_qp *qp, struct ibv_pd *pd,
		 struct ibv_qp_init_attr *attr)
{
	qp->ibv.context = pd->context;
	qp->ibv.qp_context = attr->qp_context;
	qp->ibv.pd = pd;
	qp->ibv.send_cq = attr->send_cq;
	qp->ibv.recv_cq = attr->recv_cq;
	qp->ibv.state = IBV_QPS_RESET;
	qp->ibv.qp_type = IBV_QPT_RC;
	rk_list_init(&qp->node);
	rk_list_init(&qp->revisit);
	async_init(&qp->access_error, qp);
	async_init(&qp->request_error, qp);
	async_init(&qp->fatal_error, qp);
	attr->cap.max_send_wr = qp->sq.limit;
	attr->cap.max_recv_wr = qp->rq.limit;
	attr->cap.max_send_sge = qp->sq.max_sge;
	attr->cap.max_recv_sge = qp->rq.max_sge;
}

/*
 * EOPNOTSUPP: not a reliable connected queue pair, or one with a shared
 * receive queue.  EINVAL: more than the device reports.  attr->cap comes back
 * with what was given, which is at least one of each.
 */
struct ibv_qp *qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	int err = check(pd, attr);
	struct soft_qp *qp;

	if (err)
		goto err_errno;
	err = ENOMEM;
	qp = rk_zalloc(sizeof(*qp));
	if (!qp)
		goto err_errno;
	err = queues_alloc(qp, attr);
	if (err)
		goto err_free;
	err = ENODEV;
	if (!engine_lock())
		goto err_queues;
	err = ENOMEM;
	if (soft_engine.qp_count == MAX_QP)
		goto err_unlock;
	fill(qp, pd, attr);
	qp->ibv.qp_num = qp->ibv.handle = unused_number();
	soft_engine.qp_count++;
	rk_list_add_tail(&soft_engine.qps, &qp->node);
	rk_container_of(pd, struct soft_pd, ibv)->users++;
	cq_of(attr->send_cq)->users++;
	cq_of(attr->recv_cq)->users++;
	engine_unlock();
	return &qp->ibv;

err_unlock:
	engine_unlock();
err_queues:
	queues_free(qp);
err_free:
	rk_free(qp);
err_errno:
	errno = err;
	return NULL;
}

/* Completions it has in the queues go with it.  Waits until the asynchronous
 * events that were taken are acknowledged. */
int qp_destroy(struct ibv_qp *ibv)
{
	struct soft_context *context = context_of(ibv->context);
	struct soft_qp *qp = qp_of(ibv);

	if (!engine_lock())
		return ENODEV;
	qp_reset(qp);
	rk_list_remove(&qp->node);
	rk_list_remove(&qp->revisit);
	async_forget(context, &qp->access_error);
	async_forget(context, &qp->request_error);
	async_forget(context, &qp->fatal_error);
	async_wait_acked(&qp->async);
	soft_engine.qp_count--;
	rk_container_of(ibv->pd, struct soft_pd, ibv)->users--;
	cq_of(ibv->send_cq)->users--;
	cq_of(ibv->recv_cq)->users--;
	engine_unlock();
	queues_free(qp);
	rk_free(qp);
	return 0;
}

/* Answers everything it knows, whatever the mask. */
int qp_query(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int attr_mask,
	     struct ibv_qp_init_attr *init_attr)
{
	struct soft_qp *qp = qp_of(ibv);
	struct ibv_qp_cap cap;

	if (!engine_lock())
		return ENODEV;
	cap = (struct ibv_qp_cap){
		.max_send_wr = qp->sq.limit,
		.max_recv_wr = qp->rq.limit,
		.max_send_sge = qp->sq.max_sge,
		.max_recv_sge = qp->rq.max_sge,
		.max_inline_data = qp->sq.max_inline,
	};
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = ibv->state;
	attr->cap = cap;
	*init_attr = (struct ibv_qp_init_attr){
		.qp_context = ibv->qp_context,
		.send_cq = ibv->send_cq,
		.recv_cq = ibv->recv_cq,
		.cap = cap,
		.qp_type = ibv->qp_type,
		.sq_sig_all = qp->sq.all_signalled,
	};
	engine_unlock();
	return 0;
}
