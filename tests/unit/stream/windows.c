/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Our windows: when the next one is announced and which, one or two of them,
 * reading across their edge, reading beside the owner.
 */
#include "script.h"

enum { LENGTH = 65536 };

static const struct rk_stream_params params = { .window_bytes = LENGTH };
static uint8_t data[LENGTH], buffer[2 * LENGTH];

static struct script *up(void)
{
	struct script *sc = script_new();

	for (unsigned i = 0; i < LENGTH; i++)
		data[i] = (uint8_t)(i * 31 + (i >> 8));
	script_up(sc, STREAM_SERVER, &params);
	script_peer_window(sc, 1048576, 7);
	return sc;
}

static unsigned windows_announced(const struct script *sc)
{
	struct rk_stream_stats stats;

	rk_stream_stats_get(sc->stream, &stats);
	return (unsigned)stats.windows_announced;
}

static void second_is_announced_when_the_first_is_full(void)
{
	struct script *sc = up();
	struct wire_message first = script_our_window(sc), second;
	struct iovec piece[2];

	script_peer_writes(sc, 0, data, LENGTH - 1);
	ok(windows_announced(sc) == 1, "one byte short of full: nothing");
	script_peer_writes(sc, LENGTH - 1, data + LENGTH - 1, 1);
	second = script_our_window(sc);
	ok(windows_announced(sc) == 2 && second.length == LENGTH &&
		   second.address != first.address && second.key != first.key,
	   "full: another one of the same length, before anything is read");
	script_peer_writes(sc, 0, data, LENGTH);
	ok(windows_announced(sc) == 2, "both are full: nothing to announce");
	ok(rk_stream_pending(sc->stream) == 2 * LENGTH &&
		   rk_stream_peek(sc->stream, piece) == 2 &&
		   piece[0].iov_len == LENGTH && piece[1].iov_len == LENGTH &&
		   !memcmp(piece[0].iov_base, data, LENGTH) &&
		   !memcmp(piece[1].iov_base, data, LENGTH),
	   "both are seen");
	rk_stream_consume(sc->stream, LENGTH - 1);
	ok(windows_announced(sc) == 2, "one byte is unread: nothing");
	rk_stream_consume(sc->stream, 1);
	ok(windows_announced(sc) == 3 &&
		   script_our_window(sc).address == first.address,
	   "the first is read: it is announced again");
	ok(rk_stream_read(sc->stream, buffer, LENGTH) == LENGTH &&
		   !memcmp(buffer, data, LENGTH) && windows_announced(sc) == 3,
	   "the second is read");
	script_peer_writes(sc, 0, data, LENGTH);
	ok(windows_announced(sc) == 4 &&
		   script_our_window(sc).address == second.address,
	   "they take turns");
	ok(sc->mems == 2, "there are two");
	script_end(sc);
}

static void reads_cross_the_edge(void)
{
	struct script *sc = up();
	struct iovec piece[2];

	script_peer_writes(sc, 0, data, LENGTH);
	script_peer_writes(sc, 0, data, 100);
	ok(rk_stream_read(sc->stream, buffer, LENGTH - 10) == LENGTH - 10,
	   "up to 10 bytes before the edge");
	ok(rk_stream_peek(sc->stream, piece) == 2 && piece[0].iov_len == 10 &&
		   piece[1].iov_len == 100,
	   "two pieces");
	ok(rk_stream_read(sc->stream, buffer, 1000) == 110 &&
		   !memcmp(buffer, data + LENGTH - 10, 10) &&
		   !memcmp(buffer + 10, data, 100),
	   "one read takes both");
	ok(rk_stream_peek(sc->stream, piece) == 0, "nothing waits");
	script_end(sc);
}

static void one_window_is_enough_when_memory_is_refused(void)
{
	struct script *sc = up();
	struct wire_message first = script_our_window(sc);

	sc->mem_fails = 1;
	script_peer_writes(sc, 0, data, LENGTH);
	ok(windows_announced(sc) == 1, "refused: nothing is announced");
	rk_stream_service(sc->stream);
	ok(sc->mems == 1, "it is not asked for again at once");
	ok(rk_stream_read(sc->stream, buffer, LENGTH - 1) == LENGTH - 1 &&
		   windows_announced(sc) == 1,
	   "one byte is unread: nothing");
	ok(rk_stream_read(sc->stream, buffer, LENGTH) == 1 &&
		   windows_announced(sc) == 2 &&
		   script_our_window(sc).address == first.address &&
		   script_our_window(sc).length == LENGTH,
	   "read to its end: the same is announced again");
	sc->now_ns += 20 * RK_NS_PER_S;
	script_peer_writes(sc, 0, data, LENGTH);
	ok(windows_announced(sc) == 3 && sc->mems == 2,
	   "later there is memory for two");
	script_end(sc);
}

static void read_at_once(struct rk_stream *s, void *user, unsigned events)
{
	if (events & RK_STREAM_READABLE)
		rk_stream_read(s, buffer, sizeof(buffer));
}

static void slow_and_read_at_once_needs_one(void)
{
	struct script *sc = up();

	rk_stream_set_callback(sc->stream, read_at_once, sc);
	for (unsigned round = 0; round < 5; round++) {
		for (unsigned at = 0; at < LENGTH; at += LENGTH / 8) {
			sc->now_ns += 50 * RK_NS_PER_MS;
			script_peer_writes(sc, at, data, LENGTH / 8);
			script_complete(sc);
		}
	}
	ok(windows_announced(sc) == 6 && sc->mems == 1,
	   "a trickle that is read at once never takes a second window");
	script_peer_writes(sc, 0, data, LENGTH);
	ok(windows_announced(sc) == 7 && sc->mems == 2,
	   "a burst does, although it is read at once");
	script_end(sc);
}

static void announce_waits_for_the_queue(void)
{
	struct script *sc = up();

	sc->full = true;
	script_peer_writes(sc, 0, data, LENGTH);
	ok(windows_announced(sc) == 1, "the send queue is full");
	sc->conn.handler->written(&sc->conn, 0, 0);
	ok(!rk_stream_error(sc->stream), "an immediate of 0 is nothing");
	sc->full = false;
	sc->conn.handler->writable(&sc->conn);
	ok(windows_announced(sc) == 2, "it goes when there is room");
	script_end(sc);
}

static void reader_on_another_thread(void)
{
	struct script *sc = up();

	sc->mem_fails = 1;
	ok(!rk_stream_due(sc->stream), "nothing is due");
	script_peer_writes(sc, 0, data, LENGTH);
	ok(!rk_stream_due(sc->stream), "full, but not read");
	ok(rk_stream_read_offthread(sc->stream, buffer, LENGTH / 2) ==
			   LENGTH / 2 &&
		   !rk_stream_due(sc->stream),
	   "half read");
	rk_stream_consume_offthread(sc->stream, LENGTH / 2);
	ok(rk_stream_due(sc->stream) && windows_announced(sc) == 1,
	   "read: due, but not posted by the reader");
	rk_stream_service(sc->stream);
	ok(windows_announced(sc) == 2 && !rk_stream_due(sc->stream),
	   "the owner posts it");
	sc->now_ns += 20 * RK_NS_PER_S;
	script_peer_writes(sc, 0, data, LENGTH);
	script_peer_writes(sc, 0, data, LENGTH);
	ok(windows_announced(sc) == 3, "two are full");
	rk_stream_consume_offthread(sc->stream, LENGTH - 1);
	ok(!rk_stream_due(sc->stream), "not yet");
	rk_stream_consume_offthread(sc->stream, 1);
	ok(rk_stream_due(sc->stream), "one of them is read");
	rk_stream_service(sc->stream);
	ok(windows_announced(sc) == 4, "and announced");
	script_end(sc);
}

static void what_arrived_stays_after_the_end(enum rk_close_reason reason,
					     int status, ssize_t end)
{
	struct script *sc = up();

	script_peer_writes(sc, 0, data, 1000);
	sc->conn.handler->closed(&sc->conn, reason, status);
	ok((sc->events & RK_STREAM_CLOSED) &&
		   rk_stream_ready(sc->stream) ==
			   (RK_STREAM_CLOSED | RK_STREAM_READABLE),
	   "the end is told: %s", rk_stream_error_text(sc->stream));
	ok(rk_stream_write(sc->stream, "x", 1, 0) == -EPIPE, "no writes");
	ok(rk_stream_read(sc->stream, buffer, 600) == 600 &&
		   rk_stream_read(sc->stream, buffer, 600) == 400,
	   "what arrived is read");
	ok(rk_stream_read(sc->stream, buffer, 600) == end &&
		   rk_stream_read(sc->stream, buffer, 600) == end &&
		   rk_stream_error(sc->stream) == end,
	   "and then the end, %d", (int)end);
	ok(rk_stream_error_text(sc->stream)[0], "in words");
	script_end(sc);
}

int main(void)
{
	second_is_announced_when_the_first_is_full();
	reads_cross_the_edge();
	one_window_is_enough_when_memory_is_refused();
	slow_and_read_at_once_needs_one();
	announce_waits_for_the_queue();
	reader_on_another_thread();
	what_arrived_stays_after_the_end(RK_CLOSE_PEER, 0, 0);
	what_arrived_stays_after_the_end(RK_CLOSE_ERROR, 12, -ETIMEDOUT);
	what_arrived_stays_after_the_end(RK_CLOSE_ERROR, 0, -ECONNRESET);
	return ok_done();
}
