/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the simulator promises: order, receives and RNR, send queue slots,
 * cuts, refusals, mistakes found, and the same run for the same seed.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "fabric/sim.h"
#include "ok.h"

enum { TARGET_BYTES = 65536 };

struct end {
	struct rk_conn *conn;
	struct rk_mem target, source;
	unsigned established, received, written, sent, writable, closed;
	unsigned reason, private_bytes;
	uint64_t last_token;
	uint32_t next_immediate;
	bool out_of_order, torn, refuse, destroy_in_callback;
	int status;
};

struct world {
	struct sim_net *net;
	struct rk_context *context[2];
	struct rk_listener *listener;
	struct rk_conn_params params;
	struct end a, b;
	struct sockaddr_in addr;
};

static struct end *end_of(struct rk_conn *conn)
{
	return conn->user;
}

static void maybe_destroy(struct end *end)
{
	if (!end->destroy_in_callback)
		return;
	rk_conn_destroy(end->conn);
	end->conn = NULL;
}

static void on_established(struct rk_conn *conn, const void *data, size_t bytes)
{
	end_of(conn)->established++;
	end_of(conn)->private_bytes = (unsigned)bytes;
	maybe_destroy(end_of(conn));
}

static void on_received(struct rk_conn *conn, const void *message,
			uint32_t bytes)
{
	uint32_t number;

	memcpy(&number, message, sizeof(number));
	if (number != end_of(conn)->received)
		end_of(conn)->out_of_order = true;
	end_of(conn)->received++;
	maybe_destroy(end_of(conn));
}

static void on_written(struct rk_conn *conn, uint32_t immediate, uint32_t bytes)
{
	struct end *end = end_of(conn);
	const uint32_t *word = end->target.addr;

	if (immediate != end->next_immediate)
		end->out_of_order = true;
	/* the plain write before this immediate is to be visible */
	if (word[immediate % 1024] != immediate)
		end->torn = true;
	end->next_immediate = immediate + 1;
	end->written++;
	maybe_destroy(end);
}

static void on_sent(struct rk_conn *conn, uint64_t token)
{
	struct end *end = end_of(conn);

	if (token <= end->last_token && end->sent)
		end->out_of_order = true;
	end->last_token = token;
	end->sent++;
	maybe_destroy(end);
}

static void on_writable(struct rk_conn *conn)
{
	end_of(conn)->writable++;
}

static void on_closed(struct rk_conn *conn, enum rk_close_reason reason,
		      int status)
{
	end_of(conn)->closed++;
	end_of(conn)->reason = reason;
	end_of(conn)->status = status;
	maybe_destroy(end_of(conn));
}

static const struct rk_conn_handler handler = {
	.established = on_established,
	.received = on_received,
	.written = on_written,
	.sent = on_sent,
	.writable = on_writable,
	.closed = on_closed,
};

static void on_request(void *user, struct rk_conn *conn, const void *data,
		       size_t bytes)
{
	struct world *w = user;
	const char *text = data;

	w->b.private_bytes = (unsigned)bytes;
	if (w->b.refuse || text[0] != 'h') {
		rk_conn_reject(conn, NULL, 0);
		rk_conn_destroy(conn);
		return;
	}
	if (rk_conn_accept(conn, &w->params, "reply", 5, &handler, &w->b) ||
	    rk_mem_alloc(w->context[1], conn, TARGET_BYTES, RK_REMOTE_WRITE,
			 &w->b.target)) {
		rk_conn_destroy(conn);
		return;
	}
	w->b.conn = conn;
}

static const struct rk_listen_handler listen_handler = { on_request };

static void world_open(struct world *w, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->net = sim_open(seed);
	w->context[0] = sim_context(w->net);
	w->context[1] = sim_context(w->net);
	w->params = (struct rk_conn_params){ .send_depth = 64,
					     .receive_depth = 16,
					     .receive_bytes = 32,
					     .inline_bytes = 64,
					     .retry_count = 7,
					     .rnr_retry_count = 7 };
	w->addr.sin_family = AF_INET;
	w->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (rk_fabric_listen(w->context[1], (struct sockaddr *)&w->addr, 0,
			     &listen_handler, w, &w->listener))
		abort();
	w->addr.sin_port = htons(rk_listener_port(w->listener));
}

static int world_connect(struct world *w)
{
	return rk_fabric_connect(w->context[0], (struct sockaddr *)&w->addr,
				 NULL, &w->params, "hello", 5, 100, &handler,
				 &w->a, &w->a.conn);
}

static void world_up(struct world *w, uint64_t seed)
{
	world_open(w, seed);
	if (world_connect(w) ||
	    rk_mem_alloc(w->context[0], w->a.conn, TARGET_BYTES,
			 RK_REMOTE_WRITE, &w->a.target) != -ENOTCONN ||
	    rk_mem_alloc(w->context[0], NULL, TARGET_BYTES, 0, &w->a.source))
		abort();
	sim_settle(w->net);
	if (!w->a.established || !w->b.established ||
	    rk_mem_alloc(w->context[0], w->a.conn, TARGET_BYTES,
			 RK_REMOTE_WRITE, &w->a.target))
		abort();
}

static void world_close(struct world *w)
{
	rk_conn_destroy(w->a.conn);
	rk_conn_destroy(w->b.conn);
	rk_mem_free(w->context[0], &w->a.target);
	rk_mem_free(w->context[0], &w->a.source);
	rk_mem_free(w->context[1], &w->b.target);
	rk_listener_destroy(w->listener);
	sim_close(w->net);
}

/* A plain write of one word, then an immediate without bytes. */
static int write_number(struct world *w, uint32_t number, unsigned flags)
{
	struct rk_piece piece = { &number, sizeof(number), 0 };
	uint64_t at = (uint64_t)(uintptr_t)w->b.target.addr +
		      number % 1024 * sizeof(number);
	int ret;

	ret = rk_conn_write(w->a.conn, &piece, 1, at, w->b.target.rkey, 0,
			    RK_INLINE, 0);
	return ret ? ret
		   : rk_conn_write(w->a.conn, NULL, 0, 0, 0, number,
				   RK_WITH_IMM | flags, number);
}

static int send_number(struct world *w, uint32_t number)
{
	struct rk_piece piece = { &number, sizeof(number), 0 };

	return rk_conn_send(w->a.conn, &piece, 1, RK_INLINE | RK_SIGNALLED,
			    number);
}

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
	a_cut_closes_both_sides();
	silence_is_noticed_by_who_sends();
	last_words_may_be_lost();
	mistakes_are_found();
	memory_is_refused();
	destroy_inside_any_callback();
	a_seed_is_a_run();
	timers_fire_on_the_virtual_clock();
	return ok_done();
}
