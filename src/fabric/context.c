/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of a context that both implementations share: its timers, and the
 * public calls that go through the table.
 *
 * Timers are a list in order of time.  Most are set further ahead than all
 * others, so a new one looks for its place from the end.
 *
 * Thread: the context's owner.
 */
#include "base/clock.h"
#include "fabric/fabric.h"

void rk_context_base_init(struct rk_context *context,
			  const struct rk_fabric_ops *ops)
{
	*context = (struct rk_context){ .ops = ops };
	rk_list_init(&context->timers);
}

void rk_timer_set(struct rk_context *context, struct rk_timer *timer,
		  uint64_t at_ns)
{
	struct rk_list *after;

	rk_timer_cancel(timer);
	if (at_ns == RK_NEVER)
		return;
	timer->at_ns = at_ns ? at_ns : 1;
	for (after = context->timers.prev; after != &context->timers;
	     after = after->prev) {
		if (rk_list_entry(after, struct rk_timer, node)->at_ns <=
		    timer->at_ns)
			break;
	}
	rk_list_add_tail(after->next, &timer->node);
}

void rk_timer_cancel(struct rk_timer *timer)
{
	if (!timer->at_ns)
		return;
	timer->at_ns = 0;
	rk_list_remove(&timer->node);
}

/*
 * Runs those that are due now and no others: one that sets itself again, even
 * for now, waits for the next call.  They move to a list of their own first,
 * where they can still be cancelled.
 */
unsigned rk_context_run_timers(struct rk_context *context)
{
	struct rk_list due, *pos, *tmp;
	struct rk_timer *timer;
	unsigned count = 0;
	uint64_t now_ns;

	if (rk_list_empty(&context->timers))
		return 0;
	now_ns = rk_context_now_ns(context);
	rk_list_init(&due);
	rk_list_for_each_safe (pos, tmp, &context->timers) {
		timer = rk_list_entry(pos, struct rk_timer, node);
		if (timer->at_ns > now_ns)
			break;
		rk_list_remove(pos);
		rk_list_add_tail(&due, pos);
	}
	while (!rk_list_empty(&due)) {
		timer = rk_list_first(&due, struct rk_timer, node);
		rk_timer_cancel(timer);
		timer->fire(timer);
		count++;
	}
	return count;
}

void rk_context_close(struct rk_context *context)
{
	if (!context)
		return;
	for (unsigned i = 0; i < RK_PROTOCOLS; i++) {
		if (context->slots[i])
			context->slots[i]->close(context->slots[i]);
	}
	context->ops->close(context);
}

int rk_context_fd(const struct rk_context *context)
{
	return context->ops->fd(context);
}

unsigned rk_context_process(struct rk_context *context, unsigned budget)
{
	return context->ops->process(context, budget);
}

int rk_context_arm(struct rk_context *context)
{
	return context->ops->arm(context);
}

uint64_t rk_context_deadline_ns(const struct rk_context *context)
{
	if (rk_list_empty(&context->timers))
		return RK_NEVER;
	return rk_list_first(&context->timers, struct rk_timer, node)->at_ns;
}

void rk_context_info_get(const struct rk_context *context,
			 struct rk_context_info *out)
{
	context->ops->info(context, out);
}
