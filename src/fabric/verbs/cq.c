/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The completion queues of a context: one, and more of them, each twice as
 * large, when the connections could overrun those there are.
 *
 * A completion names its connection by address.  Completions of a destroyed
 * connection may still be in its queue, so its memory is kept in a grave until
 * a poll that began after the burial has found the queue empty.
 *
 * Thread: the context's owner.
 */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "fabric/verbs/internal.h"

/* Acknowledging takes a lock: many events at a time. */
enum { ACK_BATCH = 256 };

int fabric_cq_open(struct fabric_context *context, unsigned entries)
{
	struct fabric_cq *cq = &context->cqs[context->cq_count];
	unsigned limit = (unsigned)rk_max(context->attr.max_cqe, 1);
	int ret;

	if (context->cq_count == CQS_MAX)
		return -ENOSPC;
	entries = rk_min(entries, limit);
	memset(cq, 0, sizeof(*cq));
	cq->cq = context->table->create_cq(context->verbs, (int)entries, cq,
					   context->channel,
					   context->completion_vector);
	if (!cq->cq) {
		ret = -errno;
		rk_log(RK_LOG_ERROR,
		       "cannot create a completion queue of %u entries: %s",
		       entries, strerror(-ret));
		return ret;
	}
	cq->entries = entries;
	context->cq_count++;
	return 0;
}

void fabric_cq_close_all(struct fabric_context *context)
{
	while (context->cq_count) {
		struct fabric_cq *cq = &context->cqs[--context->cq_count];

		if (cq->events_unacked)
			context->table->ack_cq_events(cq->cq,
						      cq->events_unacked);
		context->table->destroy_cq(cq->cq);
	}
}

static struct fabric_cq *find_room(struct fabric_context *context,
				   unsigned entries)
{
	for (unsigned i = 0; i < context->cq_count; i++) {
		struct fabric_cq *cq = &context->cqs[i];

		if (!cq->broken && cq->entries - cq->promised >= entries)
			return cq;
	}
	return NULL;
}

int fabric_cq_promise(struct fabric_context *context, struct fabric_conn *conn,
		      unsigned entries)
{
	struct fabric_cq *cq = find_room(context, entries);
	unsigned last, wanted;
	int ret;

	if (!cq) {
		last = context->cqs[context->cq_count - 1].entries;
		wanted = rk_min(last, 1u << 29) * 2;
		ret = fabric_cq_open(context, rk_max(wanted, entries));
		if (ret)
			return ret;
		cq = find_room(context, entries);
		if (!cq)
			return -ENOSPC;
	}
	cq->promised += entries;
	conn->cq = cq;
	conn->promise = entries;
	return 0;
}

/* Hand out what was polled. */
static unsigned hand_out(struct fabric_context *context, unsigned limit)
{
	unsigned count = 0;

	while (context->wc_next < context->wc_count && count < limit) {
		fabric_queue_completion(context,
					&context->wcs[context->wc_next++]);
		count++;
	}
	return count;
}

/* Nothing comes from it any more, and nothing will name who used it. */
static void queue_is_broken(struct fabric_context *context,
			    struct fabric_cq *cq)
{
	struct rk_list *pos, *tmp;

	cq->broken = true;
	rk_log(RK_LOG_ERROR,
	       "a completion queue of %u entries failed; its connections end",
	       cq->entries);
	rk_list_for_each_safe (pos, tmp, &context->conns) {
		struct fabric_conn *conn =
			rk_list_entry(pos, struct fabric_conn, node);

		if (conn->cq == cq)
			fabric_conn_end(conn, RK_CLOSE_ERROR, IBV_WC_FATAL_ERR,
					true);
	}
}

/* Fill context->wcs, which is empty. */
static unsigned poll_one(struct fabric_context *context, struct fabric_cq *cq,
			 unsigned wanted)
{
	int got = ibv_poll_cq(cq->cq, (int)wanted, context->wcs);

	context->wc_next = 0;
	context->wc_count = got > 0 ? (unsigned)got : 0;
	if (rk_unlikely(got < 0))
		queue_is_broken(context, cq);
	else if ((unsigned)got < wanted)
		cq->drains++;
	return context->wc_count;
}

unsigned fabric_cq_process(struct fabric_context *context, unsigned limit)
{
	unsigned count = hand_out(context, limit);
	unsigned wanted, got;

	for (unsigned i = 0; i < context->cq_count; i++) {
		struct fabric_cq *cq = &context->cqs[i];

		if (!cq->promised)
			continue;
		if (rk_unlikely(cq->broken)) {
			cq->drains++;
			continue;
		}
		do {
			if (count >= limit)
				return count;
			wanted = rk_min(limit - count, (unsigned)POLL_BATCH);
			got = poll_one(context, cq, wanted);
			count += hand_out(context, got);
		} while (got == wanted);
	}
	return count;
}

int fabric_cq_arm(struct fabric_context *context)
{
	if (context->wc_next < context->wc_count)
		return 1;
	context->cqs_armed = 0;
	for (unsigned i = 0; i < context->cq_count; i++) {
		struct fabric_cq *cq = &context->cqs[i];
		int ret;

		if (!cq->promised || cq->broken)
			continue;
		context->cqs_armed++;
		ret = -ibv_req_notify_cq(cq->cq, 0);
		if (ret || poll_one(context, cq, POLL_BATCH))
			return 1;
	}
	return 0;
}

/* One event per armed queue is all there is; what is left over from an earlier
 * arming ends a later sleep too early, no more. */
bool fabric_cq_take_events(struct fabric_context *context)
{
	struct ibv_cq *ibv;
	struct fabric_cq *cq;
	void *cq_context;
	unsigned taken;

	for (taken = 0; taken < context->cqs_armed; taken++) {
		if (context->table->get_cq_event(context->channel, &ibv,
						 &cq_context))
			break;
		cq = cq_context;
		if (++cq->events_unacked < ACK_BATCH)
			continue;
		context->table->ack_cq_events(ibv, cq->events_unacked);
		cq->events_unacked = 0;
	}
	return taken;
}

void fabric_cq_sweep_graves(struct fabric_context *context, bool all)
{
	struct rk_list *pos, *tmp;
	struct fabric_conn *conn;

	if (context->wc_next < context->wc_count && !all)
		return;
	rk_list_for_each_safe (pos, tmp, &context->graves) {
		conn = rk_list_entry(pos, struct fabric_conn, node);
		if (conn->cq && conn->cq->drains == conn->grave_mark && !all)
			continue;
		if (conn->cq)
			conn->cq->promised -= conn->promise;
		rk_list_remove(pos);
		rk_free(conn->marks);
		rk_free(conn);
	}
}
