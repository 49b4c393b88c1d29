/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peer's receives: never more immediates than it can be known to take,
 * and never a stop for ever when it does not answer.
 */
#include "script.h"

enum { MIB = 1048576 };

/* Valkey's server: our device does not wait for its receives. */
static struct script *up(int peer_rnr)
{
	struct script *sc = script_new();

	sc->peer_rnr = peer_rnr;
	script_up(sc, STREAM_CLIENT, NULL);
	script_peer_window(sc, MIB, 7);
	script_forget(sc);
	return sc;
}

static void write_tiny(struct script *sc, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		if (rk_stream_write(sc->stream, "0123456789", 10, 0) != 10)
			printf("# write %u was not taken\n", i);
		script_complete(sc);
	}
}

/* SENDs and immediates */
static unsigned receives_used(const struct script *sc)
{
	unsigned used = script_immediates(sc);

	for (unsigned i = 0; i < sc->ops; i++)
		used += sc->op[i].send;
	return used;
}

static void ten_thousand_without_an_answer(void)
{
	struct script *sc = up(0);
	unsigned before;

	write_tiny(sc, 10000);
	ok(sc->stream->tx.filled == 100000, "all are taken");
	before = receives_used(sc);
	ok(before <= 500, "with %u immediates", before);
	ok(script_announced(sc) < 100000, "so not all are announced");
	script_pass_ms(sc, 99);
	ok(receives_used(sc) == before, "nothing for 99 ms");
	script_pass_ms(sc, 1);
	ok(receives_used(sc) == before + 1 &&
		   script_announced(sc) == 100000,
	   "after 100 ms one immediate announces the rest");
	for (unsigned i = 0; i < 20; i++) {
		write_tiny(sc, 50);
		script_pass_ms(sc, 100);
	}
	ok(receives_used(sc) == before + 21 &&
		   script_announced(sc) == 110000,
	   "and so on, one every 100 ms");
	script_end(sc);
}

static void window_end_is_announced_at_once(void)
{
	struct script *sc = up(0);
	static uint8_t big[MIB];
	unsigned used;

	write_tiny(sc, 1000);
	used = receives_used(sc);
	ok(rk_stream_write(sc->stream, big, MIB, 0) == MIB - 10000,
	   "the window is filled");
	script_complete(sc);
	ok(receives_used(sc) == used + 1 && script_announced(sc) == MIB,
	   "its end is announced without waiting");
	script_peer_window(sc, MIB, 7);
	script_forget(sc);
	write_tiny(sc, 400);
	ok(script_announced(sc) == 4000 && script_immediates(sc) == 400,
	   "a new window proves that all was taken");
	script_end(sc);
}

static void answers_are_evidence(void)
{
	struct script *sc = up(0);
	uint32_t at = 0;

	for (unsigned i = 0; i < 5000; i++) {
		write_tiny(sc, 1);
		sc->now_ns += 50 * RK_NS_PER_US;
		script_peer_writes(sc, at++, "x", 1);
		rk_stream_consume(sc->stream, 1);
	}
	ok(script_immediates(sc) == 5000 && script_announced(sc) == 50000,
	   "question and answer: every write is announced at once");
	ok(sc->stream->stats.credit_stalls == 0, "nothing was held back");
	script_end(sc);
}

static void an_answer_too_soon_proves_nothing(void)
{
	struct script *sc = up(0);

	write_tiny(sc, 1000);
	ok(receives_used(sc) <= 500, "held back");
	script_forget(sc);
	sc->now_ns += 100 * RK_NS_PER_US;
	script_peer_writes(sc, 0, "x", 1); /* may have been on its way */
	ok(script_immediates(sc) == 0, "an answer after 0.1 ms");
	script_pass_ms(sc, 1);
	ok(script_immediates(sc) == 1 &&
		   sc->stream->tx.announced == sc->stream->tx.filled,
	   "but the peer is awake: one immediate soon after");
	sc->now_ns += 2 * RK_NS_PER_MS;
	script_peer_writes(sc, 1, "x", 1);
	script_forget(sc);
	write_tiny(sc, 100);
	ok(script_immediates(sc) == 100, "an answer later is evidence");
	script_end(sc);
}

/* Immediates that have not even completed are not proved by an answer. */
static void only_completed_work_is_proved(void)
{
	struct script *sc = up(0);
	unsigned taken = 0, used;

	for (unsigned round = 0; round < 10; round++) {
		while (rk_stream_write(sc->stream, "x", 1, 0) == 1)
			taken++;
		sc->now_ns += 5 * RK_NS_PER_MS;
		script_peer_writes(sc, round, "x", 1);
	}
	used = receives_used(sc);
	ok(taken == 252 && used <= 252, "the send queue is the limit");
	ok(sc->stream->tx.used_known <= 1, "nothing of it is known");
	script_end(sc);
}

static void no_receives_left_in_reserve(void)
{
	struct script *sc = up(0);
	unsigned used;

	write_tiny(sc, 600);
	for (unsigned i = 0; i < 700; i++) {
		script_pass_ms(sc, 100);
		write_tiny(sc, 1);
	}
	used = receives_used(sc);
	ok(used > 1000 && used < 1024,
	   "70 s without an answer: %u of 1024 receives used", used);
	for (unsigned i = 0; i < 300; i++) {
		script_pass_ms(sc, 100);
		write_tiny(sc, 1);
	}
	ok(receives_used(sc) - used <= 30 && receives_used(sc) > used + 20,
	   "then one a second: it never stops for ever");
	script_end(sc);
}

static void device_that_waits_needs_no_credit(void)
{
	struct script *sc = up(7);

	write_tiny(sc, 10000);
	ok(script_immediates(sc) == 10000, "every write is announced at once");
	script_end(sc);
}

static void staged_bytes_wait_too(void)
{
	struct script *sc = script_new();

	sc->inline_bytes = 0;
	sc->peer_rnr = 0;
	script_up(sc, STREAM_CLIENT, NULL);
	script_peer_window(sc, MIB, 7);
	script_forget(sc);
	write_tiny(sc, 2000);
	ok(receives_used(sc) <= 500 && sc->stream->tx.filled == 20000,
	   "through the source");
	script_pass_ms(sc, 100);
	ok(script_announced(sc) == 20000, "announced by the timer");
	script_end(sc);
}

static void last_words_wait_for_credit(void)
{
	struct script *sc = up(0);

	write_tiny(sc, 1000);
	rk_stream_close(sc->stream);
	ok(sc->disconnects == 0 && script_announced(sc) < 10000,
	   "closed with bytes that are not announced");
	script_pass_ms(sc, 100);
	ok(script_announced(sc) == 10000 && sc->disconnects == 0,
	   "they are announced");
	script_complete(sc);
	ok(sc->disconnects == 1, "and then it disconnects");
	sc->conn.handler->closed(&sc->conn, RK_CLOSE_LOCAL, 0);
	ok(sc->destroys == 1, "and is gone");
	script_end(sc);
}

int main(void)
{
	ten_thousand_without_an_answer();
	window_end_is_announced_at_once();
	answers_are_evidence();
	an_answer_too_soon_proves_nothing();
	only_completed_work_is_proved();
	no_receives_left_in_reserve();
	device_that_waits_needs_no_credit();
	staged_bytes_wait_too();
	last_words_wait_for_credit();
	return ok_done();
}
