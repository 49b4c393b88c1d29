/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of a context that both implementations share: its timers, and the
 * public calls that go through the table.
 *
 * Timers are a pairing heap: each has a list of children that are due no
 * earlier; prev is the left sibling, or the parent of the first child.  Ten
 * thousand connections set theirs without a walk.
 *
 * Thread: the context's owner.
 */
#include "base/clock.h"
#include "fabric/fabric.h"

void rk_context_base_init(struct rk_context *context,
			  const struct rk_fabric_ops *ops)
{
	*context = (struct rk_context){ .ops = ops };
}

/* ---- timers ------------------------------------------------------------ */

static void add_child(struct rk_timer *parent, struct rk_timer *child)
{
	child->next = parent->child;
	if (child->next)
		child->next->prev = child;
	child->prev = parent;
	parent->child = child;
}

/* Of two heaps one. */
static struct rk_timer *meld(struct rk_timer *a, struct rk_timer *b)
{
	if (!a || !b)
		return a ? a : b;
	if (b->at_ns < a->at_ns) {
		add_child(b, a);
		return b;
	}
	add_child(a, b);
	return a;
}

/* Of a list of siblings one heap: pairs first, then what that gave. */
static struct rk_timer *combine(struct rk_timer *first)
{
	struct rk_timer *pairs = NULL, *all = NULL, *a, *b;

	while (first) {
		a = first;
		b = a->next;
		first = b ? b->next : NULL;
		a = meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		a = pairs;
		pairs = a->next;
		all = meld(all, a);
	}
	return all;
}

void rk_timer_set(struct rk_context *context, struct rk_timer *timer,
		  uint64_t at_ns)
{
	struct rk_timer *root;

	rk_timer_cancel(timer);
	if (at_ns == RK_NEVER)
		return;
	/* one that sets itself again, even for now, waits for the next run */
	timer->at_ns = rk_max(at_ns, context->timers_run_ns + 1);
	timer->child = NULL;
	root = meld(context->timers.child, timer);
	context->timers.child = NULL;
	add_child(&context->timers, root);
}

/* Its children are due no earlier than it, so they can take its place. */
void rk_timer_cancel(struct rk_timer *timer)
{
	struct rk_timer *heir;

	if (!timer->at_ns)
		return;
	timer->at_ns = 0;
	heir = combine(timer->child);
	if (heir) {
		heir->prev = timer->prev;
		heir->next = timer->next;
	} else {
		heir = timer->next;
		if (heir)
			heir->prev = timer->prev;
	}
	if (timer->prev->child == timer)
		timer->prev->child = heir;
	else
		timer->prev->next = heir;
	if (heir && heir->next && heir != timer->next)
		heir->next->prev = heir;
}

unsigned rk_context_run_timers(struct rk_context *context)
{
	struct rk_timer *timer = context->timers.child;
	unsigned count = 0;

	if (!timer)
		return 0;
	context->timers_run_ns = rk_context_now_ns(context);
	while (timer && timer->at_ns <= context->timers_run_ns) {
		rk_timer_cancel(timer);
		timer->fire(timer);
		count++;
		timer = context->timers.child;
	}
	context->timers_run_ns = 0;
	return count;
}

uint64_t rk_context_deadline_ns(const struct rk_context *context)
{
	return context->timers.child ? context->timers.child->at_ns : RK_NEVER;
}

/* ---- public calls ------------------------------------------------------ */

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

void rk_context_info_get(const struct rk_context *context,
			 struct rk_context_info *out)
{
	context->ops->info(context, out);
}
