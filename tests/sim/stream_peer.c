/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Our streams against peers that are not ours: one that behaves like Valkey's
 * server (one window, receives of which a sender must not use one too many),
 * and one like its client (which looks only when it is called).
 */
#include "stream_bare.h"

/* --- like Valkey's server --------- */

/* Its owner is busy, for up to hold_ms at a time. */
static void on_hold(struct rk_timer *timer)
{
	struct world *w = rk_container_of(timer, struct world, hold_timer);
	uint64_t pause_ms = 1 + sim_random(w->net, w->hold_ms);

	if (w->done)
		return;
	w->held = !w->held;
	if (!w->held)
		pause_ms = 1 + pause_ms / 8;
	sim_hold(w->context[1], w->held);
	rk_timer_set(w->context[0], timer,
		     sim_now_ns(w->net) + pause_ms * RK_NS_PER_MS);
}

static bool against_server(uint64_t seed, uint64_t bytes, unsigned step,
			   unsigned hold_ms, bool answers)
{
	struct sockaddr_in addr = address();
	struct world w;
	bool good;

	world_open(&w, seed);
	w.step = step;
	w.hold_ms = hold_ms;
	w.hold_timer.fire = on_hold;
	w.peer.answers = answers;
	sim_knobs(w.net)->inline_bytes = seed & 1 ? 65536 : 0;
	if (rk_fabric_listen(w.context[1], (struct sockaddr *)&addr, 0,
			     &peer_listen, &w, &w.bare_listener) ||
	    rk_stream_connect(w.context[0], (struct sockaddr *)&addr, NULL, 0,
			      NULL, on_event, &w, &w.stream))
		return false;
	sim_knobs(w.net)->inline_bytes = seed & 1 ? 65536 : 64;
	sim_run(w.net, 5 * RK_NS_PER_MS);
	if (hold_ms)
		on_hold(&w.hold_timer);
	w.to_write = bytes;
	write_on(&w);
	for (unsigned i = 0; i < 600 && w.peer.total < bytes; i++)
		sim_run(w.net, RK_NS_PER_S);
	w.done = true;
	if (w.held)
		sim_hold(w.context[1], false);
	good = w.peer.total == bytes && !w.peer.wrong && !w.peer.closed;
	if (!good)
		printf("# seed %llu: %llu of %llu there, closed %d status %d\n",
		       (unsigned long long)seed,
		       (unsigned long long)w.peer.total,
		       (unsigned long long)bytes, w.peer.closed,
		       w.peer.status);
	return world_is_clean(&w) && good;
}

static void busy_server_is_not_overrun(void)
{
	unsigned good = 0;

	ok(against_server(1, 100000, 10, 0, false),
	   "10000 tiny writes without an answer");
	ok(against_server(2, 100000, 10, 0, true), "and with one for each");
	ok(against_server(3, 3 * LENGTH + 7, 10, 0, false),
	   "300000 of them, over three windows");
	ok(against_server(4, 10 * LENGTH + 7, 60000, 0, false),
	   "large ones");
	for (uint64_t seed = 0; seed < 30; seed++)
		good += against_server(100 + seed, 60000 + seed * 1000, 10,
				       seed % 3 ? 500 : 5000, seed & 2);
	ok(good == 30, "a server that is busy for up to 5 s: %u of 30 runs",
	   good);
}

/* --- like Valkey's client --------- */

static void idle_client_is_not_used_up(void)
{
	struct rk_context_info info;
	struct world w;

	world_open(&w, 10);
	sim_knobs(w.net)->rnr_wait_ns = 655 * RK_NS_PER_MS;
	ok(peer_connects(&w), "a client that looks only when it is called");
	sim_hold(w.context[1], true);
	sim_run(w.net, 4 * 3600 * RK_NS_PER_S);
	rk_context_info_get(w.context[0], &info);
	ok(!w.peer.closed && info.receiver_not_ready == 0,
	   "four hours later it still has receives posted");
	sim_hold(w.context[1], false);
	sim_run(w.net, 10 * RK_NS_PER_MS);
	ok(w.peer.keepalives > 100 && w.peer.keepalives < 500,
	   "%u keepalives waited for it", w.peer.keepalives);
	w.to_write = 10;
	write_on(&w);
	sim_run(w.net, 10 * RK_NS_PER_MS);
	ok(w.peer.total == 10, "an answer arrives at once");
	ok(world_is_clean(&w), "nothing is left");
}

static void subscriber_gets_each_message(void)
{
	struct world w;

	world_open(&w, 11);
	ok(peer_connects(&w), "a client that never writes");
	for (unsigned i = 0; i < 5000; i++) {
		w.to_write += 20;
		write_on(&w);
		sim_run(w.net, 200 * RK_NS_PER_US);
	}
	ok(w.peer.total == 100000 && !w.peer.wrong,
	   "gets 5000 messages, each at once");
	ok(world_is_clean(&w), "nothing is left");
}

int main(void)
{
	rk_log_set_sink(quiet);
	busy_server_is_not_overrun();
	idle_client_is_not_used_up();
	subscriber_gets_each_message();
	return ok_done();
}
