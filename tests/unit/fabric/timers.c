/* SPDX-License-Identifier: BSD-3-Clause */
/* Timers of a context, on a clock of the test's own. */
#include "base/clock.h"
#include "fabric/fabric.h"
#include "ok.h"

static uint64_t now = 1000;

static uint64_t test_now_ns(const struct rk_context *context)
{
	return now;
}

static const struct rk_fabric_ops ops = { .now_ns = test_now_ns };

struct alarm_clock {
	struct rk_timer timer;
	struct rk_context *context;
	unsigned fired;
	uint64_t again_ns;
	struct rk_timer *cancels;
};

static unsigned order[8], order_count;

static void ring(struct rk_timer *timer)
{
	struct alarm_clock *clock =
		rk_container_of(timer, struct alarm_clock, timer);

	order[order_count++ % 8] = (unsigned)clock->again_ns;
	clock->fired++;
	if (clock->again_ns)
		rk_timer_set(clock->context, timer, now + clock->again_ns - 1);
	if (clock->cancels)
		rk_timer_cancel(clock->cancels);
}

static void in_order_of_time(void)
{
	struct rk_context context;
	struct alarm_clock clocks[5] = { 0 };
	static const uint64_t at[5] = { 1500, 1100, 1300, 1100, 1050 };
	bool sorted = true;
	uint64_t last = 0;

	rk_context_base_init(&context, &ops);
	ok(rk_context_deadline_ns(&context) == RK_NEVER &&
		   rk_context_run_timers(&context) == 0,
	   "none");
	for (unsigned i = 0; i < 5; i++) {
		clocks[i].timer.fire = ring;
		clocks[i].context = &context;
		rk_timer_set(&context, &clocks[i].timer, at[i]);
	}
	while ((now = rk_context_deadline_ns(&context)) != RK_NEVER) {
		sorted &= now >= last;
		last = now;
		rk_context_run_timers(&context);
	}
	ok(sorted && last == 1500, "the deadline is always the earliest");
	for (unsigned i = 0; i < 5; i++)
		sorted &= clocks[i].fired == 1;
	ok(sorted, "each fires once");
	now = 1000;
}

static void a_timer_that_sets_itself_waits(void)
{
	struct rk_context context;
	struct alarm_clock clock = { .timer.fire = ring,
				     .context = &context,
				     .again_ns = 1 };

	rk_context_base_init(&context, &ops);
	rk_timer_set(&context, &clock.timer, now);
	ok(rk_context_run_timers(&context) == 1 && clock.fired == 1 &&
		   rk_context_deadline_ns(&context) == now + 1,
	   "set again for now, it waits for a later call");
	now++;
	ok(rk_context_run_timers(&context) == 1 && clock.fired == 2,
	   "and then fires");
	rk_timer_cancel(&clock.timer);
	rk_timer_cancel(&clock.timer);
	ok(rk_context_run_timers(&context) == 0, "cancelling twice is fine");
}

static void one_cancels_another(void)
{
	struct rk_context context;
	struct alarm_clock one = { .timer.fire = ring, .context = &context };
	struct alarm_clock two = one;

	rk_context_base_init(&context, &ops);
	rk_timer_set(&context, &one.timer, now - 2);
	rk_timer_set(&context, &two.timer, now - 1);
	one.cancels = &two.timer;
	ok(rk_context_run_timers(&context) == 1 && !two.fired,
	   "of two that are due the first can cancel the second");
	rk_timer_set(&context, &one.timer, now + 5);
	rk_timer_set(&context, &one.timer, now + 9);
	ok(rk_context_deadline_ns(&context) == now + 9,
	   "setting again moves it");
	rk_timer_set(&context, &one.timer, RK_NEVER);
	ok(rk_context_deadline_ns(&context) == RK_NEVER,
	   "setting for never cancels");
}

/* Against a plain array: set, move, cancel and run at random. */
static void any_order_of_calls(void)
{
	enum { COUNT = 300 };
	static struct alarm_clock clocks[COUNT];
	static uint64_t at[COUNT]; /* 0: not set */
	struct rk_context context;
	uint64_t first, random = 1;
	unsigned wrong = 0, fired, due, i;

	rk_context_base_init(&context, &ops);
	for (i = 0; i < COUNT; i++) {
		clocks[i].timer.fire = ring;
		clocks[i].context = &context;
	}
	for (unsigned n = 0; n < 50000; n++) {
		random = random * 6364136223846793005ull + 1442695040888963407;
		i = (unsigned)(random >> 33) % COUNT;
		if (random >> 60 == 0) {
			rk_timer_cancel(&clocks[i].timer);
			at[i] = 0;
		} else if (random >> 60 == 1) {
			now += random >> 20 & 63;
			for (due = 0, i = 0; i < COUNT; i++) {
				due += at[i] && at[i] <= now;
				at[i] = at[i] <= now ? 0 : at[i];
			}
			fired = rk_context_run_timers(&context);
			wrong += fired != due;
		} else {
			at[i] = now + (random >> 20 & 1023);
			rk_timer_set(&context, &clocks[i].timer, at[i]);
		}
		for (first = RK_NEVER, i = 0; i < COUNT; i++)
			first = at[i] && at[i] < first ? at[i] : first;
		wrong += rk_context_deadline_ns(&context) != first;
		for (i = 0; i < COUNT; i++)
			wrong += at[i] != clocks[i].timer.at_ns;
	}
	ok(wrong == 0, "50000 steps, and the deadline is right after each");
}

int main(void)
{
	any_order_of_calls();
	in_order_of_time();
	a_timer_that_sets_itself_waits();
	one_cancels_another();
	return ok_done();
}
