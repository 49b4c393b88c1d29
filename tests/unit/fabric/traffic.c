/* SPDX-License-Identifier: BSD-3-Clause */
/* Work on a connection of the software device: limits, order, completions. */
#include "world.h"

enum { WRITES = 100000 };

/* Keep both directions going until each has written count immediates. */
static bool exchange(struct world *w, uint32_t count, unsigned flags)
{
	uint32_t next[2] = { 0, 0 };
	struct end *ends[2] = { &w->a, &w->b };
	uint64_t end_ns = rk_now_ns() + 30 * RK_NS_PER_S;
	bool full;
	int ret;

	while ((w->a.written < count || w->b.written < count) &&
	       rk_now_ns() < end_ns && !w->a.closed && !w->b.closed) {
		for (unsigned i = 0; i < 2; i++) {
			full = false;
			while (next[i] < count && !full) {
				ret = world_write(ends[i], &ends[!i]->target,
						  next[i], flags);
				full = ret == -EAGAIN;
				if (!ret)
					next[i]++;
				else if (!full)
					return false;
			}
		}
		world_step(w);
	}
	return w->a.written == count && w->b.written == count;
}

static void writes_with_immediate_each_way(void)
{
	uint64_t start_ns, took_ns;
	struct world w;

	world_up(&w);
	start_ns = rk_now_ns();
	ok(exchange(&w, WRITES, 0), "%u and %u of %u arrive", w.a.written,
	   w.b.written, (unsigned)WRITES);
	took_ns = rk_now_ns() - start_ns;
	printf("# %.0f ns per write and immediate\n",
	       (double)took_ns / (2.0 * WRITES));
	ok(!w.a.out_of_order && !w.b.out_of_order, "in order");
	ok(!w.a.torn && !w.b.torn, "each sees the write before it");
	ok(w.a.writable && w.b.writable, "full queues were told writable");
	ok(!w.a.closed && !w.b.closed, "receives never ran out for good");
	ok(w.a.sent == 0, "nobody asked for completions");
	ok(w.lost_wakeups == 0, "every event woke its sleeper");
	world_close(&w);
}

static void completions_come_in_order(void)
{
	struct world w;

	world_up(&w);
	ok(exchange(&w, 5000, RK_SIGNALLED), "5000 signalled writes each way");
	ok(world_until(&w, w.a.sent == 5000 && w.b.sent == 5000),
	   "each is told of all of its own");
	ok(!w.a.out_of_order && !w.b.out_of_order, "in order");
	world_close(&w);
}

static void a_small_send_queue_works(void)
{
	struct world w;

	world_open(&w);
	w.params[0].send_depth = w.params[1].send_depth = 2;
	w.params[0].receive_depth = w.params[1].receive_depth = 1;
	ok(world_connect(&w, 0) == 0 &&
		   world_until(&w, w.a.established && w.b.established),
	   "two sends, one receive");
	ok(!rk_mem_alloc(w.context[0], w.a.conn, WORLD_TARGET_BYTES,
			 RK_REMOTE_WRITE, &w.a.target) &&
		   !w.memory_result,
	   "memory for each other");
	ok(exchange(&w, 1000, 0), "1000 writes each way");
	ok(!w.a.out_of_order && !w.a.torn && !w.b.out_of_order && !w.b.torn,
	   "in order");
	world_close(&w);
}

static void sends_have_limits(void)
{
	struct rk_piece piece;
	unsigned count = 0;
	char bytes[65536] = { 0 };
	struct world w;

	world_up(&w);
	piece = (struct rk_piece){ bytes, 0, 0 };
	piece.bytes = rk_conn_inline_bytes(w.a.conn) + 1;
	ok(piece.bytes < sizeof(bytes) &&
		   rk_conn_send(w.a.conn, &piece, 1, RK_INLINE, 0) == -EINVAL,
	   "more than the inline bytes are refused");
	ok(rk_conn_send(w.a.conn, &piece, rk_conn_pieces_max(w.a.conn) + 1, 0,
			0) == -EINVAL,
	   "more than the pieces too");
	while (world_send(&w.a, count) == 0)
		count++;
	ok(count == w.params[0].send_depth,
	   "the send queue takes what was asked for: %u", count);
	ok(world_until(&w, w.a.writable), "writable follows");
	ok(world_until(&w, w.b.received == count) && !w.b.out_of_order,
	   "all arrive");
	ok(w.a.writable == 1, "writable is told once");
	world_close(&w);
}

static void a_budget_is_kept(void)
{
	unsigned most = 0, taken;
	struct world w;

	world_up(&w);
	for (uint32_t number = 0; number < 30; number++)
		if (world_send(&w.a, number))
			break;
	for (unsigned n = 0; n < 100000 && w.b.received < 30; n++) {
		rk_context_process(w.context[0], 0);
		taken = rk_context_process(w.context[1], 3);
		most = rk_max(most, taken);
	}
	ok(w.b.received == 30 && !w.b.out_of_order, "all arrive");
	ok(most > 0 && most <= 3, "at most three a call: %u", most);
	world_close(&w);
}

static void retries_run_out_where_the_peer_said_so(void)
{
	struct rk_context_info info;
	uint32_t number = 0;
	struct world w;

	world_open(&w);
	w.params[1].rnr_retry_count = 0; /* what the peer's sends get */
	ok(!world_connect(&w, 0) &&
		   world_until(&w, w.a.established && w.b.established),
	   "a peer that wants no retries");
	ok(rk_conn_peer_rnr_retry(w.a.conn) == 0, "says so");
	/* it does not run */
	for (unsigned n = 0; n < 100000 && !w.a.closed; n++) {
		if (!world_send(&w.a, number))
			number++;
		rk_context_process(w.context[0], 0);
	}
	ok(w.a.closed && w.a.reason == RK_CLOSE_ERROR &&
		   w.a.status == IBV_WC_RNR_RETRY_EXC_ERR,
	   "more than its receives end the connection: status %d", w.a.status);
	rk_context_info_get(w.context[0], &info);
	ok(info.receiver_not_ready == 1 && info.errors == 1, "it is counted");
	ok(world_until(&w, w.b.closed), "the peer is told");
	ok(w.b.received >= w.a.sent && w.b.received >= 32 && !w.b.out_of_order,
	   "what it had receives for was taken: %u, %u of them completed",
	   w.b.received, w.a.sent);
	world_close(&w);
}

static void a_wrong_key_costs_the_connection(void)
{
	struct rk_mem wrong;
	struct world w;

	world_up(&w);
	wrong = w.b.target;
	wrong.rkey ^= 0x5500;
	ok(world_write(&w.a, &wrong, 1, 0) == 0, "posted");
	ok(world_until(&w, w.a.closed && w.b.closed), "both are closed");
	ok(w.a.reason == RK_CLOSE_ERROR && w.a.status == IBV_WC_REM_ACCESS_ERR,
	   "the writer with remote access error: %d", w.a.status);
	ok(w.b.written == 0, "nothing was seen of it");
	world_close(&w);
}

static void too_long_a_message_costs_the_connection(void)
{
	struct rk_piece piece;
	struct world w;

	world_up(&w);
	ok(!rk_mem_alloc(w.context[0], NULL, 4096, 0, &w.a.source), "a source");
	piece = (struct rk_piece){ w.a.source.addr, 33, w.a.source.lkey };
	ok(rk_conn_send(w.a.conn, &piece, 1, 0, 0) == 0, "33 bytes for 32");
	ok(world_until(&w, w.a.closed && w.b.closed), "both are closed");
	ok(w.a.reason == RK_CLOSE_ERROR && w.b.reason == RK_CLOSE_ERROR &&
		   w.b.received == 0,
	   "with an error, and nothing was received");
	world_close(&w);
}

static void a_gathered_write_lands_in_one_piece(void)
{
	struct rk_piece pieces[3];
	struct world w;
	char *source;

	world_up(&w);
	ok(!rk_mem_alloc(w.context[0], NULL, 8192, 0, &w.a.source), "a source");
	source = w.a.source.addr;
	memcpy(source, "abc", 3);
	memcpy(source + 5000, "defg", 4);
	memcpy(source + 100, "h", 1);
	pieces[0] = (struct rk_piece){ source, 3, w.a.source.lkey };
	pieces[1] = (struct rk_piece){ source + 5000, 4, w.a.source.lkey };
	pieces[2] = (struct rk_piece){ source + 100, 1, w.a.source.lkey };
	ok(rk_conn_pieces_max(w.a.conn) >= 3 &&
		   rk_conn_write(w.a.conn, pieces, 3,
				 (uint64_t)(uintptr_t)w.b.target.addr + 1,
				 w.b.target.rkey, 0, RK_WITH_IMM, 0) == 0,
	   "three pieces are posted");
	ok(world_until(&w, w.b.written == 1) &&
		   !memcmp((char *)w.b.target.addr + 1, "abcdefgh", 8),
	   "they land behind each other");
	world_close(&w);
}

static void all(void)
{
	a_gathered_write_lands_in_one_piece();
	writes_with_immediate_each_way();
	completions_come_in_order();
	a_small_send_queue_works();
	sends_have_limits();
	a_budget_is_kept();
	retries_run_out_where_the_peer_said_so();
	a_wrong_key_costs_the_connection();
	too_long_a_message_costs_the_connection();
}

int main(void)
{
	long live;

	rk_log_set_level(RK_LOG_ERROR);
	all();
	live = rk_alloc_live(); /* the device itself stays */
	all();
	ok(rk_alloc_live() <= live, "nothing more is left: %ld, before %ld",
	   rk_alloc_live(), live);
	return ok_done();
}
