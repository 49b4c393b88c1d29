/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams on the simulated network, one promise at a time: the edges of the
 * windows, tiny writes, last words, a peer that dies, close in every callback,
 * every allocation refused in turn.
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
#include "stream/internal.h"

enum { CLIENT, SERVER };

struct side {
	struct world *world;
	struct rk_stream *stream;
	size_t to_write, written, step, read;
	unsigned told[4]; /* how often, by event */
	unsigned close_at; /* in the callback with this event; 0: never */
	bool abort, close_when_written, keep_unread, ended, wrong;
	bool connected;
	int error;
};

struct world {
	struct sim_net *net;
	struct rk_context *context[2];
	struct rk_stream_listener *listener;
	struct side side[2];
	bool close_in_accepted;
	int ret;
	long live;
};

static uint8_t buffer[262144];

static uint8_t byte_at(unsigned from, size_t at)
{
	return (uint8_t)(at * 13 + (at >> 9) + from * 101);
}

static unsigned number_of(const struct side *side)
{
	return side == &side->world->side[SERVER];
}

static void give_up(struct side *side)
{
	struct rk_stream *s = side->stream;

	side->stream = NULL;
	if (side->abort)
		rk_stream_abort(s);
	else
		rk_stream_close(s);
}

static void side_write(struct side *side)
{
	while (side->written < side->to_write) {
		size_t n = rk_min(side->step, side->to_write - side->written);
		ssize_t taken;

		for (size_t i = 0; i < n; i++)
			buffer[i] = byte_at(number_of(side), side->written + i);
		taken = rk_stream_write(side->stream, buffer, n, 0);
		if (taken < 0)
			return;
		side->written += (size_t)taken;
	}
	if (side->close_when_written)
		give_up(side);
}

static void side_read(struct side *side)
{
	ssize_t n;

	while ((n = rk_stream_read(side->stream, buffer, sizeof(buffer))) > 0) {
		for (ssize_t i = 0; i < n; i++)
			side->wrong |= buffer[i] !=
				       byte_at(!number_of(side), side->read + i);
		side->read += (size_t)n;
	}
	if (n == -EAGAIN)
		return;
	side->ended = true;
	side->error = (int)n;
	give_up(side);
}

static void on_event(struct rk_stream *s, void *user, unsigned events)
{
	struct side *side = user;

	side->stream = s;
	for (unsigned i = 0; i < 4; i++)
		side->told[i] += events >> i & 1;
	side->connected |= events & RK_STREAM_OPEN;
	if (events & side->close_at) {
		give_up(side);
		return;
	}
	side_write(side);
	if (side->stream && !side->keep_unread)
		side_read(side);
}

static void on_accepted(struct rk_stream *s, void *user)
{
	struct world *w = user;

	w->side[SERVER].stream = s;
	w->side[SERVER].connected = true;
	rk_stream_set_callback(s, on_event, &w->side[SERVER]);
	if (w->close_in_accepted)
		give_up(&w->side[SERVER]);
	else
		side_write(&w->side[SERVER]);
}

static void world_open(struct world *w, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->live = rk_alloc_live();
	w->net = sim_open(seed);
	for (unsigned i = 0; i < 2; i++) {
		w->context[i] = sim_context(w->net);
		w->side[i].world = w;
		w->side[i].step = 16384;
	}
}

static int world_connect(struct world *w, uint32_t client_window,
			 uint32_t server_window)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_port = htons(6379) };
	struct rk_stream_params params = { .window_bytes = server_window,
					   .linger_ms = 60000 };
	struct rk_stream *s;
	int ret;

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ret = rk_stream_listen(w->context[SERVER], (struct sockaddr *)&addr, 0,
			       &params, on_accepted, w, &w->listener);
	if (ret)
		return ret;
	params.window_bytes = client_window;
	ret = rk_stream_connect(w->context[CLIENT], (struct sockaddr *)&addr,
				NULL, 0, &params, on_event, &w->side[CLIENT],
				&s);
	w->side[CLIENT].stream = s;
	return ret;
}

static bool world_is_clean(struct world *w)
{
	bool clean;

	rk_stream_listener_close(w->listener);
	if (sim_errors(w->net))
		printf("# %s\n", sim_error_text(w->net));
	clean = !sim_errors(w->net) && !sim_connections_live(w->net) &&
		!sim_memory_live(w->net);
	sim_close(w->net);
	return clean && rk_alloc_live() == w->live;
}

/* --- the bytes --------- */

static bool both_ways(size_t bytes, uint32_t client_window,
		      uint32_t server_window, size_t step, unsigned inline_bytes)
{
	struct world w;
	struct side *c = &w.side[CLIENT], *s = &w.side[SERVER];
	bool good;

	world_open(&w, bytes + step);
	sim_knobs(w.net)->inline_bytes = inline_bytes;
	c->to_write = s->to_write = bytes;
	c->step = s->step = step;
	if (world_connect(&w, client_window, server_window))
		return false;
	sim_run(w.net, 20 * RK_NS_PER_S);
	good = c->read == bytes && s->read == bytes && !c->wrong && !s->wrong;
	if (!good)
		printf("# %zu of %zu there, %zu back\n", s->read, bytes,
		       c->read);
	if (c->stream)
		rk_stream_close(c->stream);
	sim_run(w.net, 10 * RK_NS_PER_S);
	good &= s->ended && !s->error;
	return world_is_clean(&w) && good;
}

static void window_edges(void)
{
	static const uint32_t windows[][2] = {
		{ 65536, 65536 }, { 65537, 131071 }, { 262144, 65536 },
	};

	for (unsigned i = 0; i < RK_ARRAY_SIZE(windows); i++) {
		size_t l = windows[i][1];
		size_t sizes[] = { l - 1, l, l + 1, 2 * l, 2 * l + 3,
				   5 * l + 1 };

		for (unsigned k = 0; k < RK_ARRAY_SIZE(sizes); k++) {
			ok(both_ways(sizes[k], windows[i][0], windows[i][1],
				     200000, k & 1 ? 0 : 65536),
			   "%zu bytes both ways, windows %u and %zu", sizes[k],
			   windows[i][0], l);
		}
	}
	ok(both_ways(65536, 65536, 65536, 1, 65536),
	   "65536 writes of one byte fill a window exactly");
	ok(both_ways(20000, 65536, 65536, 2, 0), "10000 writes of 2 bytes");
	ok(both_ways(0, 65536, 65536, 1, 0), "nothing at all");
}

static void slow_reader_gets_last_words(void)
{
	struct world w;

	world_open(&w, 5);
	w.side[SERVER].to_write = 300000;
	w.side[SERVER].close_when_written = true;
	w.side[CLIENT].keep_unread = true;
	if (world_connect(&w, 65536, 65536))
		return;
	sim_run(w.net, 2 * RK_NS_PER_S);
	ok(rk_stream_pending(w.side[CLIENT].stream) == 131072,
	   "two windows wait, the rest is at the sender");
	w.side[CLIENT].keep_unread = false;
	side_read(&w.side[CLIENT]);
	sim_run(w.net, 10 * RK_NS_PER_S);
	ok(w.side[CLIENT].read == 300000 && w.side[CLIENT].ended &&
		   !w.side[CLIENT].error && !w.side[CLIENT].wrong,
	   "written, closed, read 2 s later: all of it, then 0");
	ok(world_is_clean(&w), "nothing is left");
}

static void idle_connection_lives(void)
{
	struct world w;

	world_open(&w, 6);
	if (world_connect(&w, 65536, 65536))
		return;
	sim_run(w.net, 3600 * RK_NS_PER_S);
	ok((rk_stream_ready(w.side[CLIENT].stream) & RK_STREAM_OPEN) &&
		   (rk_stream_ready(w.side[SERVER].stream) & RK_STREAM_OPEN),
	   "an hour without a byte");
	w.side[CLIENT].to_write = 5;
	side_write(&w.side[CLIENT]);
	sim_run(w.net, RK_NS_PER_MS);
	ok(w.side[SERVER].read == 5, "then a byte gets through at once");
	rk_stream_close(w.side[CLIENT].stream);
	sim_run(w.net, RK_NS_PER_S);
	ok(world_is_clean(&w), "nothing is left");
}

/* --- ends --------- */

static void dead_peer_is_noticed(void)
{
	struct world w;

	for (unsigned dead = 0; dead < 2; dead++) {
		struct side *alive = &w.side[!dead];

		world_open(&w, 7 + dead);
		if (world_connect(&w, 65536, 65536))
			return;
		sim_run(w.net, 100 * RK_NS_PER_MS);
		rk_stream_abort(w.side[dead].stream);
		sim_run(w.net, 10 * RK_NS_PER_S);
		ok(alive->ended, "an abort ends the other side, error %d",
		   alive->error);
		ok(world_is_clean(&w), "nothing is left");
	}
	for (unsigned dead = 0; dead < 2; dead++) {
		struct side *alive = &w.side[!dead];

		world_open(&w, 9 + dead);
		if (world_connect(&w, 65536, 65536))
			return;
		sim_run(w.net, 100 * RK_NS_PER_MS);
		sim_crash(w.context[dead]);
		sim_run(w.net, 20 * RK_NS_PER_S);
		ok(alive->ended && alive->error < 0,
		   "a killed %s is noticed without traffic: error %d",
		   dead ? "server" : "client", alive->error);
		sim_close(w.net);
		ok(rk_alloc_live() == w.live, "nothing is left");
	}
}

/* Its host is off: no answer, and nobody says so.  There is no traffic, so only
 * what an idle stream sends by itself can find out, at either side. */
static void silent_peer_is_noticed(void)
{
	struct world w;

	world_open(&w, 12);
	if (world_connect(&w, 65536, 65536))
		return;
	sim_run(w.net, 10 * RK_NS_PER_S);
	sim_silence(w.side[CLIENT].stream->conn);
	sim_run(w.net, 5 * RK_NS_PER_S);
	for (unsigned i = 0; i < 2; i++)
		ok(w.side[i].ended && w.side[i].error < 0,
		   "an idle %s notices within 5 s, error %d",
		   i ? "server" : "client", w.side[i].error);
	ok(world_is_clean(&w), "nothing is left");
}

/* Where a stream may be closed: event, and for which side. */
static void close_in_every_callback(void)
{
	static const unsigned events[] = { RK_STREAM_OPEN, RK_STREAM_READABLE,
					   RK_STREAM_WRITABLE,
					   RK_STREAM_CLOSED };
	struct world w;

	for (unsigned n = 0; n < 4 * 2 * 2; n++) {
		struct side *closer = &w.side[n & 1];
		struct side *other = &w.side[!(n & 1)];

		world_open(&w, 100 + n);
		closer->close_at = events[n / 4];
		closer->abort = n & 2;
		closer->to_write = 100000;
		other->to_write = 100000;
		other->close_when_written =
			events[n / 4] == RK_STREAM_CLOSED;
		if (world_connect(&w, 65536, 65536))
			return;
		sim_run(w.net, 100 * RK_NS_PER_S);
		if (!closer->told[3] && !(n & 1 && n / 4 == 0))
			ok(!closer->stream, "it was closed");
		for (unsigned i = 0; i < 2; i++)
			if (w.side[i].stream)
				rk_stream_close(w.side[i].stream);
		sim_run(w.net, 100 * RK_NS_PER_S);
		ok(!w.side[0].wrong && !w.side[1].wrong && world_is_clean(&w),
		   "%s in the callback with event %u at the %s",
		   n & 2 ? "abort" : "close", closer->close_at,
		   n & 1 ? "server" : "client");
	}
	for (unsigned n = 0; n < 2; n++) {
		world_open(&w, 200 + n);
		w.close_in_accepted = true;
		w.side[SERVER].abort = n;
		if (world_connect(&w, 65536, 65536))
			return;
		sim_run(w.net, 100 * RK_NS_PER_S);
		ok(w.side[CLIENT].ended && world_is_clean(&w),
		   "%s in accepted()", n ? "abort" : "close");
	}
}

static void context_takes_its_streams_along(void)
{
	struct world w;

	for (unsigned n = 0; n < 2; n++) {
		world_open(&w, 300 + n);
		w.side[CLIENT].to_write = 100000;
		if (world_connect(&w, 65536, 65536))
			return;
		if (n)
			sim_run(w.net, RK_NS_PER_MS);
		rk_context_close(w.context[CLIENT]);
		sim_run(w.net, 10 * RK_NS_PER_S);
		ok(!n || w.side[SERVER].ended, "the peer is told");
		ok(world_is_clean(&w), "streams go with their context");
	}
}

static void nobody_listens(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_port = htons(1) };
	struct rk_stream *s;
	struct world w;

	world_open(&w, 400);
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	w.side[CLIENT].keep_unread = true;
	ok(!rk_stream_connect(w.context[CLIENT], (struct sockaddr *)&addr, NULL,
			      0, NULL, on_event, &w.side[CLIENT], &s),
	   "connecting to where nobody listens");
	sim_run(w.net, 10 * RK_NS_PER_S);
	ok(w.side[CLIENT].told[3] == 1 && rk_stream_error(s) == -ECONNREFUSED,
	   "%s", rk_stream_error_text(s));
	rk_stream_close(s);
	ok(world_is_clean(&w), "nothing is left");
}

/* --- refused memory --------- */

/* One run in which the n-th allocation fails; false when there was none. */
static bool run_without(long n, long registered, bool *good)
{
	struct world w;
	int ret;

	world_open(&w, 500);
	w.side[CLIENT].to_write = 200000;
	w.side[CLIENT].close_when_written = true;
	sim_knobs(w.net)->inline_bytes = n & 1 ? 0 : 65536;
	sim_knobs(w.net)->memory_fail_at = registered;
	rk_alloc_fail_at(n);
	ret = world_connect(&w, 65536, 65536);
	sim_run(w.net, 100 * RK_NS_PER_S);
	rk_alloc_fail_at(-1);
	*good = !w.side[SERVER].wrong;
	if (w.side[CLIENT].stream)
		rk_stream_close(w.side[CLIENT].stream);
	if (w.side[SERVER].stream)
		rk_stream_close(w.side[SERVER].stream);
	sim_run(w.net, 100 * RK_NS_PER_S);
	/* all has arrived, or somebody was told that it has not */
	*good &= w.side[SERVER].read == 200000 || ret ||
		 w.side[CLIENT].ended || w.side[SERVER].ended;
	*good &= world_is_clean(&w);
	return w.side[SERVER].read != 200000;
}

static void every_allocation_fails(void)
{
	unsigned failed = 0;
	bool good = true, all = true;

	for (long n = 0; n < 100 && all; n++) {
		if (run_without(n, -1, &good))
			failed++;
		all &= good;
	}
	ok(all && failed >= 5, "allocations refused one by one: %u runs failed",
	   failed);
	failed = 0;
	for (long n = 0; n < 20 && all; n++) {
		if (run_without(-1 - (n & 1), n / 2, &good))
			failed++;
		all &= good;
	}
	ok(all && failed >= 2, "registered memory the same: %u", failed);
}

static void quiet(enum rk_log_level level, const char *line)
{
}

int main(void)
{
	rk_log_set_sink(quiet);
	window_edges();
	slow_reader_gets_last_words();
	idle_connection_lives();
	dead_peer_is_noticed();
	silent_peer_is_noticed();
	close_in_every_callback();
	context_takes_its_streams_along();
	nobody_listens();
	every_allocation_fails();
	return ok_done();
}
