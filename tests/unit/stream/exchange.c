/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes onto the wire: the exchanges of a capture of Valkey's, how a write
 * is cut, RK_STREAM_MORE, features and keepalives.
 */
#include "script.h"

enum { MIB = 1048576 };

static uint8_t data[2 * MIB];

/* Is this op a WRITE of so many bytes at this offset of the peer's window? */
static bool is_write(const struct script *sc, unsigned n, uint64_t offset,
		     uint32_t bytes, bool with_imm, uint32_t immediate)
{
	const struct op *op = &sc->op[n];

	return n < sc->ops && !op->send &&
	       op->addr == sc->window_addr + offset && op->bytes == bytes &&
	       op->with_imm == with_imm && op->immediate == immediate;
}

static void server_answers_get(void)
{
	static const char get[] = "*2\r\n$3\r\nget\r\n$1\r\nk\r\n";
	static const char answer[] = "$15\r\nhello-over-rdma\r\n";
	static const uint8_t from_client[32] = {
		0x00, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0x00, 0x00, 0x7f, 0xff, 0xf7, 0x4a, 0x1b, 0xc0,
		0x00, 0x10, 0x00, 0x00, 0x00, 0x06, 0x10, 0x14,
	};
	struct script *sc = script_new();
	struct wire_message m;
	char buffer[64];

	script_up(sc, STREAM_SERVER, NULL);
	m = script_our_window(sc);
	ok(sc->ops == 1 && sc->op[0].send && sc->op[0].bytes == 32 &&
		   sc->op[0].was_inline && m.length == MIB,
	   "the first message is a window of 1 MiB");
	ok(sc->params.rnr_retry_count == 7 && sc->params.retry_count == 7 &&
		   sc->params.receive_depth == 1024 &&
		   sc->params.receive_bytes == 32,
	   "connection parameters");
	ok(rk_stream_write(sc->stream, "x", 1, 0) == -EAGAIN,
	   "nothing is taken before the peer's window is known");
	script_receive(sc, from_client, 32);
	ok(sc->told_writable == 1, "writable is told with the window");

	script_peer_writes(sc, 0, get, 20);
	ok(sc->told_readable == 1 && rk_stream_pending(sc->stream) == 20,
	   "the request is readable");
	ok(rk_stream_read(sc->stream, buffer, sizeof(buffer)) == 20 &&
		   !memcmp(buffer, get, 20),
	   "and read");
	ok(rk_stream_read(sc->stream, buffer, 1) == -EAGAIN, "all of it");

	ok(rk_stream_write(sc->stream, answer, 22, 0) == 22, "answered");
	ok(sc->ops == 2 && is_write(sc, 1, 0, 22, true, 22) &&
		   sc->op[1].key == 0x61014 &&
		   !memcmp(sc->op[1].head, answer, 22),
	   "by one write with immediate at the window's start");
	script_end(sc);
}

/* 1500000 bytes into a window of 1 MiB, as `get big` in the capture: 10 bytes,
 * up to the last byte of the window, a new window, 451434 bytes. */
static void long_answer_is_split_at_the_window(void)
{
	struct script *sc = script_new();
	uint64_t at = 0, told = 0;
	ssize_t taken;

	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + (i >> 11));
	script_up(sc, STREAM_SERVER, NULL);
	script_peer_window(sc, MIB, 0x616a6);
	script_forget(sc);
	rk_stream_write(sc->stream, data, 10, 0);
	ok(is_write(sc, 0, 0, 10, true, 10), "the length of the answer");
	taken = rk_stream_write(sc->stream, data + 10, 1500000, 0);
	ok(taken == 1048566, "up to the window's end is taken");
	for (unsigned i = 0; i < sc->ops; i++) {
		ok(sc->op[i].addr == sc->window_addr + at &&
			   sc->op[i].with_imm &&
			   sc->op[i].immediate == sc->op[i].bytes &&
			   sc->op[i].bytes <= 65536,
		   "chunk %u of %u bytes is announced by itself", i,
		   sc->op[i].bytes);
		at += sc->op[i].bytes;
		told += sc->op[i].immediate;
	}
	ok(at == MIB && told == MIB && !memcmp(sc->window, data, MIB),
	   "every byte of the window is used");
	ok(rk_stream_write(sc->stream, data, 1, 0) == -EAGAIN &&
		   !(rk_stream_ready(sc->stream) & RK_STREAM_WRITABLE),
	   "then nothing is taken");
	script_forget(sc);
	ok(sc->told == 0, "completions alone do not make it writable");
	script_peer_window(sc, MIB, 0x616a6);
	ok(sc->told_writable == 1, "the next window does");
	ok(rk_stream_write(sc->stream, data + MIB, 451434, 0) == 451434 &&
		   is_write(sc, 0, 0, 65536, true, 65536) &&
		   script_announced(sc) == 451434 &&
		   !memcmp(sc->window, data + MIB, 451434),
	   "and is filled from its start");
	script_end(sc);
}

static void train_has_one_immediate(void)
{
	struct script *sc = script_new();
	struct iovec iov[40];

	script_up(sc, STREAM_CLIENT, NULL);
	script_peer_window(sc, MIB, 7);
	script_forget(sc);
	for (unsigned i = 0; i < 40; i++)
		iov[i] = (struct iovec){ data + 1000 * i, 1000 };
	ok(rk_stream_writev(sc->stream, iov, 40, 0) == 40000, "40 pieces");
	ok(sc->ops == 3 && is_write(sc, 0, 0, 16000, false, 0) &&
		   is_write(sc, 1, 16000, 16000, false, 0) &&
		   is_write(sc, 2, 32000, 8000, true, 40000),
	   "two plain writes, and one that announces all");
	ok(!memcmp(sc->window, data, 40000), "bytes");
	script_forget(sc);
	for (unsigned i = 0; i < 40; i++)
		iov[i] = (struct iovec){ data + 40000 + 10 * i, i ? 10 : 0 };
	ok(rk_stream_writev(sc->stream, iov, 40, 0) == 390 && sc->ops == 1 &&
		   is_write(sc, 0, 40000, 390, true, 390) &&
		   !memcmp(sc->window + 40000, data + 40010, 390),
	   "short pieces are gathered into one write");
	script_end(sc);
}

static void more_waits_for_the_rest(void)
{
	struct script *sc = script_new();
	unsigned i;

	script_up(sc, STREAM_CLIENT, NULL);
	script_peer_window(sc, 200000, 7);
	script_forget(sc);
	for (i = 0; i < 5; i++)
		rk_stream_write(sc->stream, data + i * 100, 100,
				RK_STREAM_MORE);
	ok(sc->ops == 5 && !script_immediates(sc), "five plain writes");
	rk_stream_write(sc->stream, data + 500, 100, 0);
	ok(sc->ops == 6 && is_write(sc, 5, 500, 100, true, 600),
	   "the last announces them all");
	rk_stream_flush(sc->stream);
	ok(sc->ops == 6, "nothing is left to flush");
	script_forget(sc);
	rk_stream_write(sc->stream, data, 50, RK_STREAM_MORE);
	rk_stream_flush(sc->stream);
	ok(sc->ops == 2 && is_write(sc, 1, 650, 0, true, 50),
	   "a flush announces with a write of no bytes");
	script_forget(sc);
	rk_stream_write(sc->stream, data, 65536 * 2, RK_STREAM_MORE);
	ok(script_announced(sc) == 65536 * 2, "64 KiB are announced anyway");
	script_forget(sc);
	rk_stream_write(sc->stream, data, 200000, RK_STREAM_MORE);
	ok(script_announced(sc) == 200000 - 650 - 131072,
	   "and so is the window's end");
	script_end(sc);
}

/* A card that takes little or nothing inline. */
static void source_is_used_without_inline(unsigned inline_bytes, int pieces)
{
	struct script *sc = script_new();
	uint64_t taken = 0;
	ssize_t n;

	sc->software = false;
	sc->inline_bytes = inline_bytes;
	sc->pieces_max = (unsigned)pieces;
	script_up(sc, STREAM_CLIENT, NULL);
	ok(sc->params.inline_bytes == 256, "a card is asked for 256 bytes");
	script_peer_window(sc, 2 * MIB, 7);
	script_forget(sc);
	for (unsigned i = 0; i < 10; i++)
		rk_stream_write(sc->stream, data + i * 10, 10, RK_STREAM_MORE);
	rk_stream_write(sc->stream, data + 100, 300, 0);
	ok(sc->ops == 1 && is_write(sc, 0, 0, 400, true, 400),
	   "%u inline: small writes travel together", inline_bytes);
	taken = 400;
	for (unsigned i = 0; i < 40; i++) {
		n = rk_stream_write(sc->stream, data + taken,
				    rk_min((size_t)300000,
					   (size_t)(2 * MIB - taken)),
				    0);
		if (n > 0)
			taken += (uint64_t)n;
		else
			script_complete(sc);
		if (taken == 2 * MIB)
			break;
	}
	ok(taken == 2 * MIB && !memcmp(sc->window, data, 2 * MIB),
	   "every byte went through the source");
	ok(script_announced(sc) == 2 * MIB, "and is announced");
	script_end(sc);
}

static void full_source_tells_writable(void)
{
	struct script *sc = script_new();
	ssize_t n;

	sc->inline_bytes = 0;
	script_up(sc, STREAM_CLIENT, NULL);
	script_peer_window(sc, MIB, 7);
	script_forget(sc);
	n = rk_stream_write(sc->stream, data, MIB, 0);
	ok(n == STREAM_SOURCE_BYTES, "as much as the source has is taken");
	ok(rk_stream_write(sc->stream, data, 1, 0) == -EAGAIN &&
		   sc->told_writable == 0,
	   "then nothing");
	script_complete(sc);
	ok(sc->told_writable == 1 &&
		   (rk_stream_ready(sc->stream) & RK_STREAM_WRITABLE),
	   "its completion makes room, which is told once");
	script_end(sc);
}

static void source_falls_back(void)
{
	struct script *sc = script_new();

	sc->inline_bytes = 200;
	script_up(sc, STREAM_CLIENT, NULL);
	script_peer_window(sc, MIB, 7);
	script_forget(sc);
	sc->mem_fails = 100;
	ok(rk_stream_write(sc->stream, data, 1000, 0) == 1000 &&
		   sc->ops == 5 && script_immediates(sc) == 1 &&
		   script_announced(sc) == 1000,
	   "no memory for a source: it goes inline, bit by bit");
	sc->mem_fails = 1;
	rk_stream_write(sc->stream, data, 1000, 0);
	ok(!sc->op[5].was_inline && sc->op[5].bytes == 1000,
	   "memory again: a smaller source");
	script_end(sc);

	sc = script_new();
	sc->inline_bytes = 0;
	script_up(sc, STREAM_CLIENT, NULL);
	script_peer_window(sc, MIB, 7);
	sc->mem_fails = 100;
	ok(rk_stream_write(sc->stream, data, 10, 0) == -ENOMEM,
	   "no inline, no memory: the write says so");
	sc->mem_fails = 0;
	ok(rk_stream_write(sc->stream, data, 10, 0) == 10, "and works later");
	script_end(sc);
}

static void full_send_queue(void)
{
	struct script *sc = script_new();
	unsigned taken = 0, sends = 0;
	union wire_control c;

	script_up(sc, STREAM_SERVER, NULL);
	script_peer_window(sc, MIB, 7);
	script_forget(sc);
	while (rk_stream_write(sc->stream, data + taken, 1, 0) == 1)
		taken++;
	ok(taken == STREAM_SEND_DEPTH - STREAM_CONTROL_SLOTS,
	   "%u writes fit into the send queue", taken);
	ok(sc->op[taken - 1].signalled, "the last one is signalled");
	wire_make_feature(&c, 0, 0);
	script_receive(sc, &c, 32);
	for (unsigned i = 0; i < sc->ops; i++)
		sends += sc->op[i].send;
	ok(sends == 1, "a control message still goes");
	ok(sc->told == 0, "nothing is told");
	script_complete(sc);
	ok(sc->told_writable == 1, "room is told once");
	ok(rk_stream_write(sc->stream, data, 1, 0) == 1, "and is there");
	sc->full = true;
	ok(rk_stream_write(sc->stream, data, 1, 0) == -EAGAIN,
	   "the device says that it is full");
	sc->full = false;
	sc->conn.handler->writable(&sc->conn);
	ok(sc->told_writable == 2, "and later that it is not");
	script_end(sc);
}

/* Counters go round 2^32 (and the tokens' round 2^16) without a stop. */
static void counters_wrap(void)
{
	struct script *sc = script_new();
	struct stream_tx *tx;
	uint64_t taken = 0, rounds = 0;

	sc->inline_bytes = 0;
	script_up(sc, STREAM_CLIENT, NULL);
	script_peer_window(sc, MIB, 7);
	script_forget(sc);
	tx = &sc->stream->tx;
	tx->wr_posted = tx->wr_done = tx->wr_signalled = UINT32_MAX - 100;
	tx->used_posted = tx->used_done = tx->used_known = UINT32_MAX - 50;
	tx->source_head = tx->source_tail = tx->source_signalled =
		(uint32_t)-STREAM_SOURCE_BYTES;
	while (taken < MIB && rounds++ < 10000) {
		ssize_t n = rk_stream_write(
			sc->stream, data + taken,
			rk_min((size_t)3001, (size_t)(MIB - taken)), 0);

		if (n > 0)
			taken += (uint64_t)n;
		else
			script_complete(sc);
	}
	ok(taken == MIB && !memcmp(sc->window, data, MIB), "bytes");
	script_complete(sc);
	ok(tx->wr_done < 1000, "the count of work has wrapped");
	script_end(sc);
}

static void features_and_keepalives(void)
{
	static const uint8_t answer[32] = { 0, 0, 0xab, 0xcd };
	static const uint8_t alive[32] = { 0, 2 };
	struct script *sc = script_new();
	union wire_control c;

	script_up(sc, STREAM_SERVER, NULL);
	script_forget(sc);
	wire_make_feature(&c, 0xabcd, UINT64_MAX);
	for (unsigned i = 0; i < 1000; i++)
		script_receive(sc, &c, 32);
	ok(sc->ops == 1 && !memcmp(sc->op[0].head, answer, 32),
	   "a thousand questions: one answer is outstanding, no features");
	script_complete(sc);
	ok(sc->ops == 2 && !memcmp(sc->op[1].head, answer, 32),
	   "and one more when it is gone");
	script_forget(sc);
	c.bytes[1] = 1;
	script_receive(sc, &c, 32);
	wire_make_keepalive(&c);
	script_receive(sc, &c, 32);
	ok(sc->ops == 0 && !rk_stream_error(sc->stream),
	   "what needs no answer gets none");
	script_pass_ms(sc, 2999);
	ok(sc->ops == 0, "quiet");
	script_pass_ms(sc, 1);
	script_pass_ms(sc, 3000);
	ok(sc->ops == 1 && !memcmp(sc->op[0].head, alive, 32),
	   "a keepalive after 3 s");
	script_pass_ms(sc, 3000);
	script_pass_ms(sc, 3000);
	ok(sc->ops == 1, "one at most");
	script_complete(sc);
	script_pass_ms(sc, 3000);
	ok(sc->ops == 2, "the next when it is done");
	script_forget(sc);
	script_peer_window(sc, MIB, 7);
	for (unsigned i = 0; i < 5; i++) {
		rk_stream_write(sc->stream, "x", 1, 0);
		script_pass_ms(sc, 3000);
		script_complete(sc);
	}
	ok(sc->ops == 5, "none while there is traffic");
	script_end(sc);
}

/* A client that never looks does not post receives again: they must not be
 * used up while it is idle, however long. */
static void keepalives_leave_receives(void)
{
	struct script *sc = script_new();
	unsigned sends = 0;

	script_up(sc, STREAM_SERVER, NULL);
	script_peer_window(sc, MIB, 7);
	for (unsigned i = 0; i < 5000; i++) {
		script_pass_ms(sc, 3000);
		script_complete(sc);
	}
	for (unsigned i = 0; i < sc->ops; i++)
		sends += sc->op[i].send;
	ok(sends < 500, "%u control messages in four idle hours", sends);
	ok(sc->ops > 2000 && !sc->op[sc->ops - 1].with_imm &&
		   sc->op[sc->ops - 1].bytes == 0,
	   "then writes of no bytes, which use no receive");
	script_end(sc);

	sc = script_new();
	script_up(sc, STREAM_CLIENT, NULL);
	script_peer_window(sc, MIB, 7);
	script_forget(sc);
	script_pass_ms(sc, 3000);
	script_pass_ms(sc, 3000);
	ok(sc->ops == 1 && !sc->op[0].send && sc->op[0].bytes == 0 &&
		   !sc->op[0].with_imm,
	   "a client sends no keepalive, only such writes");
	script_end(sc);
}

static void control_without_inline(void)
{
	struct script *sc = script_new();

	sc->inline_bytes = 16;
	script_up(sc, STREAM_SERVER, NULL);
	ok(sc->ops == 1 && !sc->op[0].was_inline &&
		   script_our_window(sc).length == MIB,
	   "from registered memory when it does not go inline");
	script_end(sc);
}

int main(void)
{
	server_answers_get();
	long_answer_is_split_at_the_window();
	train_has_one_immediate();
	more_waits_for_the_rest();
	source_is_used_without_inline(0, 16);
	source_is_used_without_inline(0, 1);
	source_is_used_without_inline(256, 2);
	full_source_tells_writable();
	source_falls_back();
	full_send_queue();
	counters_wrap();
	features_and_keepalives();
	keepalives_leave_receives();
	control_without_inline();
	return ok_done();
}
