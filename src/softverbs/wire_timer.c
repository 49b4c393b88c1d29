/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timers of the device: a list in order of time and one timerfd, armed for the
 * first of them.  Most are set for the same distance from now, so the place of
 * a new one is nearly always at the end, where the search begins.
 */
#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "softverbs/wire_internal.h"

static void timer_arm(struct wire *wire, uint64_t at_ns)
{
	struct itimerspec spec = {
		.it_value = {
			.tv_sec = (time_t)(at_ns / RK_NS_PER_S),
			.tv_nsec = (long)(at_ns % RK_NS_PER_S),
		},
	};

	if (!timerfd_settime(wire->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL))
		wire->timer_armed_ns = at_ns;
}

void wire_timer_set(struct wire *wire, struct wire_timer *timer,
		    uint64_t at_ns)
{
	struct rk_list *after;

	wire_timer_cancel(wire, timer);
	if (wire->abandoned)
		return;
	timer->at_ns = at_ns ? at_ns : 1;
	for (after = wire->timers.prev; after != &wire->timers;
	     after = after->prev) {
		const struct wire_timer *earlier =
			rk_list_entry(after, struct wire_timer, node);

		if (earlier->at_ns <= timer->at_ns)
			break;
	}
	/* the tail of a list that begins at the next one is right here */
	rk_list_add_tail(after->next, &timer->node);
	if (!wire->timer_armed_ns || timer->at_ns < wire->timer_armed_ns)
		timer_arm(wire, timer->at_ns);
}

/* A timer that was armed for nothing fires once in vain. */
void wire_timer_cancel(struct wire *wire, struct wire_timer *timer)
{
	if (!timer->at_ns)
		return;
	timer->at_ns = 0;
	rk_list_remove(&timer->node);
}

static void timers_fire(struct wire *wire, uint64_t now_ns)
{
	struct rk_list due;

	/* Taken out first: one that is set again fires in a later round. */
	rk_list_init(&due);
	while (!rk_list_empty(&wire->timers)) {
		struct wire_timer *timer =
			rk_list_first(&wire->timers, struct wire_timer, node);

		if (timer->at_ns > now_ns)
			break;
		rk_list_remove(&timer->node);
		rk_list_add_tail(&due, &timer->node);
	}
	while (!rk_list_empty(&due)) {
		struct wire_timer *timer =
			rk_list_first(&due, struct wire_timer, node);

		rk_list_remove(&timer->node);
		timer->at_ns = 0;
		timer->fire(timer);
	}
}

void wire_timers_ready(struct wire_source *source, uint32_t events)
{
	struct wire *wire = rk_container_of(source, struct wire, timer_source);
	uint64_t count;

	if (read(wire->timer_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		rk_log(RK_LOG_WARNING, "timerfd: cannot read, errno %d",
		       errno);
	wire->timer_armed_ns = 0;
	timers_fire(wire, rk_now_ns());
	if (!rk_list_empty(&wire->timers)) {
		const struct wire_timer *first =
			rk_list_first(&wire->timers, struct wire_timer, node);

		if (!wire->timer_armed_ns ||
		    first->at_ns < wire->timer_armed_ns)
			timer_arm(wire, first->at_ns);
	}
}
