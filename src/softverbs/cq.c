/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion queues: a private ring filled by the queue pairs of this process
 * and emptied by polling.  The only place where a completion becomes an event.
 *
 * Arming is one-shot: the next completion that qualifies disarms and queues one
 * event.  A queue that overruns takes nothing any more; what is in it can
 * still be polled, and its queue pairs go to error before the lock is next
 * released.  Lock held, except in the calls of the program.
 */
#include <string.h>

#include "base/alloc.h"
#include "softverbs/objects.h"

enum {
	/* a program that always finds completions still hears of the rest */
	PUMP_EVERY_POLLS = 64,
	ARM_PUMPS_MAX = 16,
};

static struct soft_comp_channel *channel_of(const struct soft_cq *cq)
{
	return rk_container_of(cq->ibv.channel, struct soft_comp_channel, ibv);
}

/* ---- create, destroy -------------------------------------------------- */

static uint32_t ring_size(uint32_t entries)
{
	uint32_t size = 1;

	while (size < entries)
		size *= 2;
	return size;
}

struct ibv_cq *cq_create(struct ibv_context *context, int cqe, void *cq_context,
			 struct ibv_comp_channel *channel, int comp_vector)
{
	struct soft_cq *cq;
	int err = EINVAL;

	if (cqe < 1 || cqe > MAX_CQE || comp_vector < 0 ||
	    comp_vector >= context->num_comp_vectors)
		goto err_errno;
	err = ENOMEM;
	cq = rk_zalloc(sizeof(*cq));
	if (!cq)
		goto err_errno;
	cq->limit = (uint32_t)cqe;
	cq->mask = ring_size(cq->limit) - 1;
	cq->ring = rk_calloc((size_t)cq->mask + 1, sizeof(*cq->ring));
	if (!cq->ring)
		goto err_free;
	cq->ibv.context = context;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->ibv.cqe = cqe;
	rk_list_init(&cq->ready);
	async_init(&cq->error, cq);
	err = ENODEV;
	if (!engine_lock())
		goto err_ring;
	err = ENOMEM;
	if (soft_engine.cq_count == MAX_CQ)
		goto err_unlock;
	soft_engine.cq_count++;
	context_of(context)->users++;
	if (channel)
		channel->refcnt++;
	engine_unlock();
	return &cq->ibv;

err_unlock:
	engine_unlock();
err_ring:
	rk_free(cq->ring);
err_free:
	rk_free(cq);
err_errno:
	errno = err;
	return NULL;
}

static void disarm(struct soft_cq *cq)
{
	if (cq->armed != CQ_QUIET && cq->ibv.channel)
		soft_engine.armed--;
	cq->armed = CQ_QUIET;
}

/* EBUSY while a queue pair uses it.  Waits until every event that was taken is
 * acknowledged. */
int cq_destroy(struct ibv_cq *ibv)
{
	struct soft_cq *cq = cq_of(ibv);

	if (!engine_lock())
		return ENODEV;
	if (cq->users) {
		engine_unlock();
		return EBUSY;
	}
	disarm(cq);
	engine_release_promise();
	if (!rk_list_empty(&cq->ready)) {
		rk_list_remove(&cq->ready);
		cq->events_waiting = 0;
		if (rk_list_empty(&channel_of(cq)->ready))
			soft_channel_drain(&channel_of(cq)->channel);
	}
	async_forget(context_of(ibv->context), &cq->error);
	while (cq->events_taken != cq->events_acked)
		pthread_cond_wait(&soft_engine.acked, &soft_engine.base.lock);
	async_wait_acked(&cq->async);
	soft_engine.cq_count--;
	context_of(ibv->context)->users--;
	if (ibv->channel)
		ibv->channel->refcnt--;
	engine_unlock();
	rk_free(cq->ring);
	rk_free(cq);
	return 0;
}

/* ---- filling ---------------------------------------------------------- */

static void notify(struct soft_cq *cq)
{
	struct soft_comp_channel *channel;
	bool first;

	disarm(cq);
	if (!cq->ibv.channel)
		return;
	channel = channel_of(cq);
	first = rk_list_empty(&channel->ready);
	if (!cq->events_waiting++)
		rk_list_add_tail(&channel->ready, &cq->ready);
	if (first)
		soft_channel_signal(&channel->channel);
	engine_release_promise();
}

void cq_push(struct soft_cq *cq, const struct cqe *cqe, bool solicited)
{
	if (rk_unlikely(cq->tail - cq->head >= cq->limit)) {
		if (!cq->overrun)
			async_raise(context_of(cq->ibv.context), &cq->error,
				    IBV_EVENT_CQ_ERR);
		cq->overrun = soft_engine.overrun = true;
		return;
	}
	if (rk_unlikely(cq->overrun))
		return;
	cq->ring[cq->tail++ & cq->mask] = *cqe;
	if (cq->armed == CQ_ARMED_ANY ||
	    (cq->armed == CQ_ARMED_SOLICITED &&
	     (solicited || cqe->status != IBV_WC_SUCCESS)))
		notify(cq);
}

/* Called before the lock is released after a queue overran. */
void cq_settle_overruns(void)
{
	struct rk_list *pos, *tmp;

	/* failing a queue pair flushes, which may overrun another queue */
	while (soft_engine.overrun) {
		soft_engine.overrun = false;
		rk_list_for_each_safe(pos, tmp, &soft_engine.qps) {
			struct soft_qp *qp =
				rk_list_entry(pos, struct soft_qp, node);

			if (cq_of(qp->ibv.send_cq)->overrun ||
			    cq_of(qp->ibv.recv_cq)->overrun)
				qp_fail(qp);
		}
	}
}

/* As with hardware drivers, a destroyed queue pair leaves no completions. */
void cq_forget_qp(struct soft_cq *cq, const struct soft_qp *qp)
{
	uint64_t kept = cq->head;

	for (uint64_t at = cq->head; at != cq->tail; at++)
		if (cq->ring[at & cq->mask].qp != qp)
			cq->ring[kept++ & cq->mask] = cq->ring[at & cq->mask];
	cq->tail = kept;
}

/* ---- the program's calls ---------------------------------------------- */

static void give(const struct cqe *cqe, struct ibv_wc *wc)
{
	struct soft_qp *qp = cqe->qp;

	*wc = (struct ibv_wc){
		.wr_id = cqe->wr_id,
		.status = cqe->status,
		.opcode = cqe->opcode,
		.byte_len = cqe->bytes,
		.imm_data = cqe->imm,
		.qp_num = qp->ibv.qp_num,
		.src_qp = qp->path.dest_qpn,
		.wc_flags = cqe->flags,
	};
	if (cqe->from_sq)
		qp->sq.freed = cqe->sq_end;
}

/* -EOVERFLOW: the queue overran and all that it held has been polled. */
int cq_poll(struct ibv_cq *ibv, int count, struct ibv_wc *wc)
{
	struct soft_cq *cq = cq_of(ibv);
	int got = 0;

	if (!engine_lock())
		return -ENODEV;
	if (cq->head == cq->tail || ++cq->polls % PUMP_EVERY_POLLS == 0)
		engine_pump(false);
	while (got < count && cq->head != cq->tail)
		give(&cq->ring[cq->head++ & cq->mask], &wc[got++]);
	if (rk_unlikely(!got && cq->overrun && count > 0))
		got = -EOVERFLOW;
	engine_unlock();
	return got;
}

/*
 * What comes after this call makes an event; news that had come but was not
 * looked at yet counts as coming after.
 */
int cq_req_notify(struct ibv_cq *ibv, int solicited_only)
{
	struct soft_cq *cq = cq_of(ibv);

	if (!engine_lock())
		return ENODEV;
	if (cq->armed == CQ_QUIET && ibv->channel)
		soft_engine.armed++;
	if (!solicited_only)
		cq->armed = CQ_ARMED_ANY;
	else if (cq->armed == CQ_QUIET)
		cq->armed = CQ_ARMED_SOLICITED;
	if (ibv->channel) {
		int pumps = 0;

		while (cq->armed != CQ_QUIET && engine_promise()) {
			if (pumps++ == ARM_PUMPS_MAX) {
				/* so busy that the program need not sleep */
				soft_channel_signal(&channel_of(cq)->channel);
				break;
			}
			engine_pump(false);
		}
	}
	engine_unlock();
	return 0;
}

void cq_ack_events(struct ibv_cq *ibv, unsigned int count)
{
	if (!engine_lock())
		return;
	cq_of(ibv)->events_acked += count;
	pthread_cond_broadcast(&soft_engine.acked);
	engine_unlock();
}
