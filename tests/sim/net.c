/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the simulator promises: order, receives and RNR, send queue slots,
 * refusals, timers, and the same run for the same seed.
 */
#include "world.h"

static void connections_carry_private_data(void)
{
	struct world w;

	world_up(&w, 1);
	ok(w.a.established == 1 && w.b.established == 1,
	   "both sides are told once");
	ok(w.a.private_bytes == 196, "the reply is padded to 196 bytes");
	ok(rk_conn_peer_rnr_retry(w.a.conn) == 7, "the peer's RNR count");
	rk_conn_disconnect(w.a.conn);
	sim_settle(w.net);
	ok(w.a.closed == 1 && w.a.reason == RK_CLOSE_LOCAL,
	   "who disconnects gets LOCAL");
	ok(w.b.closed == 1 && w.b.reason == RK_CLOSE_PEER, "the other PEER");
	ok(send_number(&w, 0) == -ENOTCONN, "nothing can be sent then");
	world_close(&w);
}

static void refusals_say_why(void)
{
	struct world w;

	world_open(&w, 2);
	w.b.refuse = true;
	ok(world_connect(&w) == 0 && w.a.closed == 0, "connect only starts");
	sim_settle(w.net);
	ok(w.a.reason == RK_CLOSE_REJECTED && w.a.status == 28,
	   "a program's rejection is reason 28");
	rk_conn_destroy(w.a.conn);
	w.addr.sin_port ^= 1;
	ok(world_connect(&w) == 0, "connect to a port nobody has");
	sim_settle(w.net);
	ok(w.a.closed == 2 && w.a.reason == RK_CLOSE_UNREACHABLE &&
		   w.a.status == -ECONNREFUSED,
	   "nobody listens: UNREACHABLE, connection refused");
	rk_conn_destroy(w.a.conn);
	w.addr.sin_port ^= 1;
	w.b.refuse = false;
	sim_knobs(w.net)->lost_chance = 1000;
	ok(world_connect(&w) == 0, "connect into a hole");
	sim_run(w.net, 99 * RK_NS_PER_MS);
	ok(w.a.closed == 2, "not given up before the time");
	sim_run(w.net, 2 * RK_NS_PER_MS);
	ok(w.a.closed == 3 && w.a.reason == RK_CLOSE_UNREACHABLE &&
		   w.a.status == -ETIMEDOUT,
	   "given up after it");
	world_close(&w);
}

static void order_is_kept(void)
{
	struct world w;
	uint32_t number = 0;
	int ret;

	world_up(&w, 3);
	while (number < 20000) {
		ret = write_number(&w, number, RK_SIGNALLED);
		if (ret == 0)
			number++;
		else if (ret != -EAGAIN || !sim_step(w.net))
			break;
	}
	sim_settle(w.net);
	ok(number == 20000 && w.b.written == 20000, "all arrive");
	ok(!w.b.out_of_order && !w.b.torn,
	   "in order, each with the write before it");
	ok(w.a.sent == 20000 && !w.a.out_of_order, "completions in order");
	ok(w.a.writable > 0, "a full queue was told writable");
	ok(sim_errors(w.net) == 0, "no mistakes");
	world_close(&w);
}

static void unsignalled_posts_release_slots(void)
{
	struct world w;
	unsigned full = 0;

	world_up(&w, 4);
	for (uint32_t number = 0; number < 1000; number++) {
		while (write_number(&w, number, 0) == -EAGAIN) {
			full++;
			if (!sim_step(w.net))
				break;
		}
	}
	sim_settle(w.net);
	ok(w.b.written == 1000 && full > 0 && w.a.sent == 0,
	   "never stuck although nobody asked for a completion");
	world_close(&w);
}

static void a_held_receiver_makes_senders_wait(void)
{
	struct world w;
	struct rk_context_info info;

	world_up(&w, 5);
	sim_hold(w.context[1], true);
	for (uint32_t number = 0; number < 20; number++)
		if (send_number(&w, number))
			abort();
	sim_run(w.net, RK_NS_PER_S);
	rk_context_info_get(w.context[0], &info);
	ok(w.a.sent == 16 && info.receiver_not_ready > 4,
	   "16 receives take 16 messages, the next waits");
	sim_hold(w.context[1], false);
	sim_run(w.net, RK_NS_PER_S);
	ok(w.b.received == 20 && !w.b.out_of_order && w.a.sent == 20,
	   "all arrive when the receiver runs");
	world_close(&w);
}

static void rnr_retries_run_out(void)
{
	struct world w;

	world_open(&w, 6);
	w.params.rnr_retry_count = 2;
	if (world_connect(&w))
		abort();
	sim_settle(w.net);
	sim_hold(w.context[1], true);
	for (uint32_t number = 0; number < 17; number++)
		if (send_number(&w, number))
			abort();
	sim_run(w.net, RK_NS_PER_S);
	ok(w.a.closed == 1 && w.a.reason == RK_CLOSE_ERROR &&
		   w.a.status == IBV_WC_RNR_RETRY_EXC_ERR,
	   "the sender ends with RNR retries exceeded");
	sim_hold(w.context[1], false);
	sim_settle(w.net);
	ok(w.b.received == 16 && w.b.closed == 1 && w.b.reason == RK_CLOSE_PEER,
	   "the receiver gets what came before, then PEER");
	world_close(&w);
}

static uint64_t run_once(uint64_t seed)
{
	struct world w;
	uint64_t hash;

	world_up(&w, seed);
	sim_knobs(w.net)->full_chance = 50;
	sim_knobs(w.net)->process_budget = 3;
	for (uint32_t number = 0; number < 500; number++) {
		while (write_number(&w, number, 0) == -EAGAIN)
			sim_step(w.net);
	}
	sim_cut(w.b.conn);
	sim_settle(w.net);
	hash = sim_trace_hash(w.net);
	world_close(&w);
	return hash;
}

static void a_seed_is_a_run(void)
{
	ok(run_once(12) == run_once(12), "the same seed gives the same run");
	ok(run_once(12) != run_once(13), "another seed another one");
}

struct alarm_clock {
	struct rk_timer timer;
	struct rk_context *context;
	unsigned fired;
	uint64_t at_ns;
};

static void ring(struct rk_timer *timer)
{
	struct alarm_clock *clock =
		rk_container_of(timer, struct alarm_clock, timer);

	clock->fired++;
	clock->at_ns = rk_context_now_ns(clock->context);
}

static void timers_fire_on_the_virtual_clock(void)
{
	struct alarm_clock one = { .timer.fire = ring },
			   two = { .timer.fire = ring };
	uint64_t start_ns;
	struct world w;

	world_open(&w, 14);
	one.context = two.context = w.context[0];
	start_ns = sim_now_ns(w.net);
	rk_timer_set(w.context[0], &one.timer, start_ns + 3000000);
	rk_timer_set(w.context[0], &two.timer, start_ns + 1000000);
	ok(rk_context_deadline_ns(w.context[0]) == start_ns + 1000000,
	   "the deadline is the earlier one");
	sim_run(w.net, 2000000);
	ok(!one.fired && two.fired == 1 && two.at_ns == start_ns + 1000000,
	   "on time, and only that one");
	rk_timer_cancel(&one.timer);
	sim_run(w.net, RK_NS_PER_S);
	ok(!one.fired && rk_context_deadline_ns(w.context[0]) == RK_NEVER,
	   "a cancelled one never");
	world_close(&w);
}

int main(void)
{
	connections_carry_private_data();
	refusals_say_why();
	order_is_kept();
	unsignalled_posts_release_slots();
	a_held_receiver_makes_senders_wait();
	rnr_retries_run_out();
	a_seed_is_a_run();
	timers_fire_on_the_virtual_clock();
	return ok_done();
}
