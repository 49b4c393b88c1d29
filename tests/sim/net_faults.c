/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes wrong in the simulator when it is told to, or when the protocol
 * under test makes a mistake.
 */
#include "world.h"

static void a_cut_closes_both_sides(void)
{
	unsigned both = 0, in_order = 0, partial = 0;
	struct world w;

	for (unsigned seed = 0; seed < 200; seed++) {
		world_up(&w, 100 + seed);
		for (uint32_t number = 0; number < 10; number++)
			if (send_number(&w, number))
				abort();
		for (unsigned n = seed / 4; n > 0; n--)
			sim_step(w.net);
		sim_cut(w.a.conn);
		sim_settle(w.net);
		both += w.a.closed == 1 && w.b.closed == 1 &&
			w.a.reason == RK_CLOSE_ERROR &&
			w.b.reason == RK_CLOSE_ERROR;
		in_order += !w.b.out_of_order && w.a.sent <= w.b.received;
		partial += w.b.received > 0 && w.b.received < 10;
		world_close(&w);
	}
	ok(both == 200, "both sides get closed(ERROR) once");
	ok(in_order == 200, "sent() was said of nothing that did not arrive");
	ok(partial > 20, "cuts hit messages in flight");
}

static void silence_is_noticed_by_who_sends(void)
{
	struct world w;

	world_up(&w, 7);
	sim_silence(w.a.conn);
	sim_run(w.net, 10 * RK_NS_PER_S);
	ok(!w.a.closed && !w.b.closed, "an idle connection notices nothing");
	if (send_number(&w, 0))
		abort();
	sim_run(w.net, 10 * RK_NS_PER_S);
	ok(w.a.closed == 1 && w.a.status == IBV_WC_RETRY_EXC_ERR,
	   "who sends ends with retries exceeded");
	ok(!w.b.closed, "and the other still notices nothing");
	world_close(&w);
}

static void last_words_may_be_lost(void)
{
	bool count[11] = { false };
	unsigned kinds = 0;
	struct world w;

	for (unsigned seed = 0; seed < 100; seed++) {
		world_up(&w, 400 + seed);
		for (uint32_t number = 0; number < 10; number++)
			if (send_number(&w, number))
				abort();
		rk_conn_destroy(w.a.conn);
		w.a.conn = NULL;
		sim_settle(w.net);
		if (w.b.reason != RK_CLOSE_PEER || w.b.out_of_order)
			abort();
		count[w.b.received] = true;
		world_close(&w);
	}
	for (unsigned i = 0; i <= 10; i++)
		kinds += count[i];
	ok(kinds == 11, "from none to all of ten messages survive a destroy");
}

static void mistakes_are_found(void)
{
	uint32_t number = 5;
	struct rk_piece piece;
	struct world w;

	world_up(&w, 8);
	piece = (struct rk_piece){ w.a.source.addr, 4096, w.a.source.lkey };
	if (rk_conn_write(w.a.conn, &piece, 1,
			  (uint64_t)(uintptr_t)w.b.target.addr + TARGET_BYTES -
				  4095,
			  w.b.target.rkey, 0, 0, 0))
		abort();
	sim_settle(w.net);
	ok(sim_errors(w.net) == 1, "a write past the end: %s",
	   sim_error_text(w.net));
	ok(w.a.reason == RK_CLOSE_ERROR && w.b.reason == RK_CLOSE_ERROR &&
		   w.a.status == IBV_WC_REM_ACCESS_ERR,
	   "it ends both sides");
	world_close(&w);

	world_up(&w, 9);
	piece = (struct rk_piece){ w.a.source.addr, 33, w.a.source.lkey };
	if (rk_conn_send(w.a.conn, &piece, 1, 0, 0))
		abort();
	sim_settle(w.net);
	ok(sim_errors(w.net) == 1 && w.a.closed && w.b.closed,
	   "a message longer than the receive: %s", sim_error_text(w.net));
	world_close(&w);

	world_up(&w, 10);
	piece = (struct rk_piece){ w.a.source.addr, 8, w.a.source.lkey };
	if (rk_conn_send(w.a.conn, &piece, 1, 0, 0))
		abort();
	memcpy(w.a.source.addr, &number, sizeof(number));
	sim_settle(w.net);
	ok(sim_errors(w.net) == 1 && !w.a.closed,
	   "a source used again too early: %s", sim_error_text(w.net));
	if (rk_conn_send(w.a.conn, &piece, 1, 0, 0))
		abort();
	rk_mem_free(w.context[0], &w.a.source);
	sim_settle(w.net);
	ok(sim_errors(w.net) == 2 && w.a.closed,
	   "a source freed too early ends the connection");
	world_close(&w);
}

static void memory_is_refused(void)
{
	struct rk_mem one, two;
	struct world w;

	world_open(&w, 11);
	sim_knobs(w.net)->memory_cap_bytes = 8192;
	ok(rk_mem_alloc(w.context[0], NULL, 5000, 0, &one) == 0 &&
		   rk_mem_alloc(w.context[0], NULL, 1, 0, &two) == -ENOMEM &&
		   !two.addr,
	   "the cap counts whole pages");
	rk_mem_free(w.context[0], &one);
	sim_knobs(w.net)->memory_fail_at = 1;
	ok(rk_mem_alloc(w.context[0], NULL, 1, 0, &one) == 0 &&
		   rk_mem_alloc(w.context[0], NULL, 1, 0, &two) == -ENOMEM &&
		   rk_mem_alloc(w.context[0], NULL, 1, 0, &two) == 0,
	   "the second one fails, once");
	ok(sim_memory_live(w.net) == 8192, "what is live is counted");
	rk_mem_free(w.context[0], &one);
	rk_mem_free(w.context[0], &two);
	ok(sim_memory_live(w.net) == 0, "and given back");
	world_close(&w);
}

static void destroy_inside_any_callback(void)
{
	long live = rk_alloc_live();
	unsigned quiet = 0;
	struct world w;

	for (unsigned seed = 0; seed < 100; seed++) {
		world_up(&w, 500 + seed);
		for (uint32_t number = 0; number < 10; number++)
			if (send_number(&w, number) ||
			    write_number(&w, number, RK_SIGNALLED))
				abort();
		w.a.destroy_in_callback = seed & 1;
		w.b.destroy_in_callback = !(seed & 1);
		sim_settle(w.net);
		quiet += (w.a.conn == NULL) != (w.b.conn == NULL);
		world_close(&w);
	}
	ok(quiet == 100, "the destroyed side hears nothing more");
	ok(rk_alloc_live() == live, "nothing is left");
}

int main(void)
{
	a_cut_closes_both_sides();
	silence_is_noticed_by_who_sends();
	last_words_may_be_lost();
	mistakes_are_found();
	memory_is_refused();
	destroy_inside_any_callback();
	return ok_done();
}
