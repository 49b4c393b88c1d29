/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer on the bare fabric, written without src/stream (but for the bytes of
 * its messages), and a world with one of our streams to set it against.
 */
#ifndef RK_TESTS_SIM_STREAM_BARE_H
#define RK_TESTS_SIM_STREAM_BARE_H

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

RK_UNUSED static const struct rk_listen_handler peer_listen = {
	.request = peer_request,
};

/* --- our side --------- */

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

/* --- a bare client, against our listener --------- */

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

RK_UNUSED static bool peer_connects(struct world *w)
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

RK_UNUSED static void quiet(enum rk_log_level level, const char *line)
{
}

#endif
