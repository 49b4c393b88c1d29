/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What became of a queue pair: its state, its one asynchronous event, what was
 * flushed.
 */
#ifndef RK_TESTS_VERBS_FATE_H
#define RK_TESTS_VERBS_FATE_H

#include "softverbs/objects.h"

#include "verbs_pair.h"

static enum ibv_qp_state state_of(const struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	softverbs_table()->query_qp(end->qp, &attr, IBV_QP_STATE, &init);
	return attr.qp_state;
}

/* Is the only asynchronous event of this type, for this queue pair? */
static bool async_is(struct end *end, enum ibv_event_type type)
{
	const struct rk_verbs_table *v = softverbs_table();
	struct pollfd fd = { .fd = end->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	bool good;

	if (poll(&fd, 1, 0) != 1 || v->get_async_event(end->context, &event))
		return false;
	good = event.event_type == type && event.element.qp == end->qp;
	v->ack_async_event(&event);
	return good && poll(&fd, 1, 0) == 0;
}

static bool flushed(struct ibv_cq *cq, uint64_t wr_id)
{
	struct ibv_wc wc = poll_one(cq);

	return wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == wr_id;
}

#endif
