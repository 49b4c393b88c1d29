/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous events of a context.  Every object embeds the events it can
 * have, so raising one needs no memory; one that is still queued is not queued
 * twice.  Lock held, except in the two calls of the program.
 *
 * async_fd is a plain eventfd: such events arise when this process pumps the
 * wire or posts, and something of it always does that while it has armed
 * completion queues or waits in the connection manager.
 */
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "softverbs/objects.h"

void async_init(struct async_event *event, void *object)
{
	rk_list_init(&event->node);
	event->object = object;
}

void async_raise(struct soft_context *context, struct async_event *event,
		 enum ibv_event_type type)
{
	uint64_t one = 1;
	bool first = rk_list_empty(&context->events);

	if (!rk_list_empty(&event->node))
		return;
	event->type = type;
	rk_list_add_tail(&context->events, &event->node);
	if (first && write(context->ibv.async_fd, &one, sizeof(one)) < 0)
		return; /* cannot be: the counter is 0 */
}

/* Take one off the queue; the descriptor follows the queue. */
static void take(struct soft_context *context, struct async_event *event)
{
	uint64_t count;

	rk_list_remove(&event->node);
	if (rk_list_empty(&context->events) &&
	    read(context->ibv.async_fd, &count, sizeof(count)) < 0)
		return; /* cannot be: it was signalled, and we hold the lock */
}

void async_forget(struct soft_context *context, struct async_event *event)
{
	if (!rk_list_empty(&event->node))
		take(context, event);
}

void async_wait_acked(struct async_count *count)
{
	while (count->taken != count->acked)
		pthread_cond_wait(&soft_engine.acked, &soft_engine.base.lock);
}

static bool is_cq_event(enum ibv_event_type type)
{
	return type == IBV_EVENT_CQ_ERR;
}

static void give(struct async_event *event, struct ibv_async_event *out)
{
	out->event_type = event->type;
	if (is_cq_event(event->type)) {
		struct soft_cq *cq = event->object;

		cq->async.taken++;
		out->element.cq = &cq->ibv;
	} else {
		struct soft_qp *qp = event->object;

		qp->async.taken++;
		out->element.qp = &qp->ibv;
	}
}

/* -1 and EAGAIN where the program made async_fd non-blocking; EINTR. */
int async_get(struct ibv_context *ibv, struct ibv_async_event *out)
{
	struct soft_context *context = context_of(ibv);
	struct pollfd waited = { .fd = ibv->async_fd, .events = POLLIN };

	for (;;) {
		if (!engine_lock()) {
			errno = ENODEV;
			return -1;
		}
		if (!rk_list_empty(&context->events))
			break;
		engine_unlock();
		if (fcntl(ibv->async_fd, F_GETFL) & O_NONBLOCK) {
			errno = EAGAIN;
			return -1;
		}
		if (poll(&waited, 1, -1) < 0)
			return -1;
	}
	give(rk_list_first(&context->events, struct async_event, node), out);
	take(context,
	     rk_list_first(&context->events, struct async_event, node));
	engine_unlock();
	return 0;
}

void async_ack(struct ibv_async_event *event)
{
	if (!engine_lock())
		return;
	if (is_cq_event(event->event_type))
		cq_of(event->element.cq)->async.acked++;
	else
		qp_of(event->element.qp)->async.acked++;
	pthread_cond_broadcast(&soft_engine.acked);
	engine_unlock();
}
