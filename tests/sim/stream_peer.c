/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Our streams against peers that are not ours: one that behaves like Valkey's
 * server (one window, receives of which a sender must not use one too many),
 * one like its client (which looks only when it is called), and hostile ones,
 * beside which others live on.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "fabric/sim.h"
#include "ok.h"
#include "rdmakit/stream.h"
#include "stream/wire_format.h"

enum { LENGTH = 1048576, PEER_DEPTH = 1024 };

/* A peer on the bare fabric. */
struct peer {
	struct rk_conn *conn;
	struct rk_mem window, source;
	uint64_t addr; /* of our stream's window */
	uint32_t key, length, sent;
	uint32_t arrived; /* in the window */
	uint64_t total;	  /* ever */
	uint64_t most;	  /* immediates that one process() brought */
	unsigned keepalives, windows;
	bool established, closed, wrong, answers;
	enum rk_close_reason reason;
	int status;
};

struct world {
	struct sim_net *net;
	struct rk_context *context[2]; /* of the stream, of the peer */
	struct rk_listener *bare_listener;
	struct rk_stream_listener *listener;
	struct rk_stream *stream, *neighbour, *good;
	struct peer peer;
	uint64_t to_write, written;
	unsigned step;
	struct rk_timer hold_timer;
	bool held, done;
	unsigned hold_ms;
	long live;
};

static uint8_t buffer[65536];

static uint8_t byte_at(uint64_t at)
{
	return (uint8_t)(at * 7 + (at >> 10));
}

static void peer_send(struct peer *p, const void *message, uint32_t bytes)
{
	struct rk_piece piece = { .addr = message, .bytes = bytes };

	if (rk_conn_send(p->conn, &piece, 1, RK_INLINE | RK_SIGNALLED, 0))
		p->wrong = true;
}

static void peer_announce(struct peer *p, uint32_t length)
{
	union wire_control c;

	wire_make_memory(&c, (uintptr_t)p->window.addr, length, p->window.rkey);
	peer_send(p, &c, sizeof(c));
}

static void peer_write(struct peer *p, const void *data, uint32_t bytes,
		       uint32_t immediate)
{
	struct rk_piece piece = { .addr = data, .bytes = bytes };

	if (p->sent + bytes > p->length ||
	    rk_conn_write(p->conn, &piece, 1, p->addr + p->sent, p->key,
			  immediate, RK_INLINE | RK_SIGNALLED | RK_WITH_IMM, 0))
		p->wrong = true;
	p->sent += bytes;
}

static void peer_established(struct rk_conn *conn, const void *data, size_t n)
{
	struct peer *p = conn->user;

	p->established = true;
	if (!p->window.addr &&
	    rk_mem_alloc(conn->context, conn, LENGTH, RK_REMOTE_WRITE,
			 &p->window))
		p->wrong = true;
	peer_announce(p, LENGTH);
}

static void peer_received(struct rk_conn *conn, const void *data, uint32_t n)
{
	struct peer *p = conn->user;
	char words[WIRE_WORDS_BYTES];
	struct wire_message m;

	if (wire_check_control(data, n, &m, words)) {
		p->wrong = true;
		return;
	}
	if (m.opcode == WIRE_REGISTER_XFER_MEMORY) {
		p->addr = m.address;
		p->key = m.key;
		p->length = m.length;
		p->sent = 0;
		p->windows++;
	}
	p->keepalives += m.opcode == WIRE_KEEPALIVE;
}

static void peer_written(struct rk_conn *conn, uint32_t immediate, uint32_t n)
{
	struct peer *p = conn->user;
	const uint8_t *bytes = p->window.addr;

	if (immediate > LENGTH - p->arrived) {
		p->wrong = true;
		return;
	}
	for (uint32_t i = 0; i < immediate; i++)
		p->wrong |= bytes[p->arrived + i] != byte_at(p->total + i);
	p->arrived += immediate;
	p->total += immediate;
	if (p->answers)
		peer_write(p, "+", 1, 1);
	if (p->arrived == LENGTH) {
		p->arrived = 0;
		peer_announce(p, LENGTH);
	}
}

static void peer_sent(struct rk_conn *conn, uint64_t token)
{
}

static void peer_writable(struct rk_conn *conn)
{
}

static void peer_closed(struct rk_conn *conn, enum rk_close_reason reason,
			int status)
{
	struct peer *p = conn->user;

	p->closed = true;
	p->reason = reason;
	p->status = status;
}

static const struct rk_conn_handler peer_handler = {
	.established = peer_established,
	.received = peer_received,
	.written = peer_written,
	.sent = peer_sent,
	.writable = peer_writable,
	.closed = peer_closed,
};

static void peer_free(struct world *w)
{
	rk_conn_destroy(w->peer.conn);
	rk_mem_free(w->context[1], &w->peer.window);
	memset(&w->peer, 0, sizeof(w->peer));
}

/* What Valkey's server announces: its clients' devices do not wait. */
static const struct rk_conn_params valkey_server = {
	.send_depth = 8192,
	.receive_depth = PEER_DEPTH,
	.receive_bytes = 32,
	.inline_bytes = 64,
	.retry_count = 7,
	.rnr_retry_count = 0,
};

static void peer_request(void *user, struct rk_conn *conn, const void *data,
			 size_t bytes)
{
	struct world *w = user;

	w->peer.conn = conn;
	if (rk_mem_alloc(conn->context, conn, LENGTH, RK_REMOTE_WRITE,
			 &w->peer.window) ||
	    rk_conn_accept(conn, &valkey_server, NULL, 0, &peer_handler,
			   &w->peer))
		w->peer.wrong = true;
}

static const struct rk_listen_handler peer_listen = {
	.request = peer_request,
};

/* --- our side ------------------------------------------------------------------- */

static void write_on(struct world *w)
{
	while (w->written < w->to_write) {
		size_t n = rk_min((uint64_t)w->step, w->to_write - w->written);
		ssize_t taken;

		for (size_t i = 0; i < n; i++)
			buffer[i] = byte_at(w->written + i);
		taken = rk_stream_write(w->stream, buffer, n, 0);
		if (taken < 0)
			return;
		w->written += (uint64_t)taken;
	}
}

static void on_event(struct rk_stream *s, void *user, unsigned events)
{
	struct world *w = user;
	uint8_t byte[4096];

	if (events & RK_STREAM_READABLE)
		while (rk_stream_read(s, byte, sizeof(byte)) > 0)
			;
	if (s == w->stream)
		write_on(w);
}

/* The neighbour gets back what it sends. */
static void on_neighbour(struct rk_stream *s, void *user, unsigned events)
{
	struct iovec piece[2];
	int n;

	if (events & RK_STREAM_CLOSED)
		return;
	while ((n = rk_stream_peek(s, piece))) {
		ssize_t taken = rk_stream_writev(s, piece, n, 0);

		if (taken <= 0)
			return;
		rk_stream_consume(s, (size_t)taken);
	}
}

static void world_open(struct world *w, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->live = rk_alloc_live();
	w->net = sim_open(seed);
	w->step = 10;
	w->context[0] = sim_context(w->net);
	w->context[1] = sim_context(w->net);
}

static struct sockaddr_in address(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_port = htons(6379) };

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return addr;
}

static bool world_is_clean(struct world *w)
{
	bool clean;

	peer_free(w);
	rk_stream_abort(w->stream);
	rk_stream_listener_close(w->listener);
	rk_listener_destroy(w->bare_listener);
	sim_run(w->net, 10 * RK_NS_PER_S);
	if (sim_errors(w->net))
		printf("# %s\n", sim_error_text(w->net));
	clean = !sim_errors(w->net) && !sim_connections_live(w->net) &&
		!sim_memory_live(w->net);
	sim_close(w->net);
	return clean && rk_alloc_live() == w->live;
}

/* --- like Valkey's server ----------------------------------------------------------- */

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

/* --- like Valkey's client --------------------------------------------------------------- */

static void on_accepted(struct rk_stream *s, void *user)
{
	struct world *w = user;

	if (!w->stream) {
		w->stream = s;
		rk_stream_set_callback(s, on_event, w);
	} else {
		w->neighbour = s;
		rk_stream_set_callback(s, on_neighbour, w);
	}
}

static bool peer_connects(struct world *w)
{
	struct rk_conn_params params = valkey_server;
	struct sockaddr_in addr = address();

	params.rnr_retry_count = 7;
	if (rk_stream_listen(w->context[0], (struct sockaddr *)&addr, 0, NULL,
			     on_accepted, w, &w->listener) ||
	    rk_fabric_connect(w->context[1], (struct sockaddr *)&addr, NULL,
			      &params, NULL, 0, 0, &peer_handler, &w->peer,
			      &w->peer.conn))
		return false;
	sim_run(w->net, 100 * RK_NS_PER_MS);
	return w->peer.established && w->peer.windows == 1;
}

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

/* --- hostile clients ---------------------------------------------------------------------- */

enum attack {
	SHORT_SEND,
	UNKNOWN_OPCODE,
	EMPTY_WINDOW,
	HUGE_WINDOW,
	WRAPPING_WINDOW,
	LONG_IMMEDIATE,
	HUGE_IMMEDIATE,
	TWICE_THE_WINDOW,
	FOREIGN_WINDOW,
	QUESTIONS,
	ATTACKS,
};

static const char *const attack_names[ATTACKS] = {
	"a SEND of 7 bytes",
	"opcode 65535",
	"a window of 0 bytes",
	"a window of 4 GiB",
	"a window past the end of memory",
	"an immediate beyond the window",
	"an immediate of 4294967295",
	"immediates that add up to more than the window",
	"a window it does not have",
	"1000 questions for features",
};

static void attack(struct peer *p, enum attack how)
{
	union wire_control c = { .bytes = { 0 } };

	switch (how) {
	case SHORT_SEND:
		peer_send(p, "1234567", 7);
		return;
	case UNKNOWN_OPCODE:
		memset(&c, 0xff, sizeof(c));
		peer_send(p, &c, sizeof(c));
		return;
	case EMPTY_WINDOW:
		peer_announce(p, 0);
		return;
	case HUGE_WINDOW:
		peer_announce(p, UINT32_MAX);
		return;
	case WRAPPING_WINDOW:
		wire_make_memory(&c, UINT64_MAX - 5, 6000, 1);
		peer_send(p, &c, sizeof(c));
		return;
	case LONG_IMMEDIATE:
		peer_write(p, "x", 1, LENGTH + 1);
		return;
	case HUGE_IMMEDIATE:
		peer_write(p, "x", 1, UINT32_MAX);
		return;
	case TWICE_THE_WINDOW:
		peer_write(p, "x", 1, LENGTH);
		peer_write(p, "x", 1, 2);
		peer_write(p, "x", 1, LENGTH);
		return;
	case FOREIGN_WINDOW:
		wire_make_memory(&c, 0x123000, LENGTH, 0xdead);
		peer_send(p, &c, sizeof(c));
		peer_write(p, "x", 1, 1);
		return;
	case QUESTIONS:
		for (unsigned i = 0; i < 1000; i++)
			peer_send(p, &c, sizeof(c));
		return;
	case ATTACKS:
		return;
	}
}

static void one_attack(enum attack how)
{
	struct sockaddr_in addr = address();
	struct world w;
	uint8_t answer[100];
	bool survives;

	world_open(&w, 20 + how);
	sim_knobs(w.net)->tolerate_mistakes = true;
	if (!peer_connects(&w) ||
	    rk_stream_connect(w.context[1], (struct sockaddr *)&addr, NULL, 0,
			      NULL, NULL, NULL, &w.good))
		return;
	sim_run(w.net, 100 * RK_NS_PER_MS);
	attack(&w.peer, how);
	sim_run(w.net, 100 * RK_NS_PER_MS);
	if (how == FOREIGN_WINDOW) {
		w.to_write = 10;
		write_on(&w);
		sim_run(w.net, 100 * RK_NS_PER_MS);
	}
	survives = how == QUESTIONS;
	ok(!(rk_stream_ready(w.stream) & RK_STREAM_CLOSED) == survives,
	   "%s: %s", attack_names[how], rk_stream_error_text(w.stream));
	ok(rk_stream_write(w.good, "hello", 5, 0) == 5, "a neighbour asks");
	sim_run(w.net, 10 * RK_NS_PER_MS);
	ok(rk_stream_read(w.good, answer, sizeof(answer)) == 5 &&
		   !memcmp(answer, "hello", 5),
	   "and is answered");
	rk_stream_close(w.good);
	sim_run(w.net, RK_NS_PER_S);
	rk_stream_close(w.neighbour);
	ok(world_is_clean(&w), "nothing is left");
}

static void quiet(enum rk_log_level level, const char *line)
{
}

int main(void)
{
	rk_log_set_sink(quiet);
	busy_server_is_not_overrun();
	idle_client_is_not_used_up();
	subscriber_gets_each_message();
	for (unsigned how = 0; how < ATTACKS; how++)
		one_attack((enum attack)how);
	return ok_done();
}
