/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two streams against each other on the simulated network, thousands of times:
 * random windows, writes, reads, pauses, devices; refused memory, send queues
 * that are full without cause, cut connections, killed peers, aborts.
 *
 * The model: bytes received are a prefix of the bytes sent, always; all of
 * them, if the sender closed in order and nothing was cut; then the reader
 * gets 0 and no error.  Nothing hangs and nothing leaks.
 *
 *   test-sim-stream_pair              the seeds of every run
 *   test-sim-stream_pair --seed N     one seed, with a line per event
 *   test-sim-stream_pair --seeds A B  those from A to B
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "fabric/sim.h"
#include "ok.h"
#include "rdmakit/stream.h"

enum { PIECES = 40, RUN_S = 900 };

enum way_to_end {
	END_CLOSE,	/* close when all is written */
	END_AFTER_READ, /* read the peer's end first, then close */
	END_ABORT,	/* abort somewhere */
	END_CLOSE_EARLY, /* close somewhere, in a callback */
};

struct app {
	struct world *world;
	struct rk_context *context;
	struct rk_stream *stream;
	struct rk_timer timer;
	unsigned number; /* 0 connects, 1 accepts */
	uint64_t total, written, read;
	uint64_t end_at; /* bytes read or written, for the early ends */
	enum way_to_end end;
	unsigned write_most, read_most, pause_chance, more_chance, pause_us;
	bool peeks, offthread;
	bool connected, finished, saw_end, broken, closed_all;
	int error;
};

struct world {
	struct sim_net *net;
	struct app app[2];
	struct rk_stream_listener *listener;
	struct rk_timer trouble;
	bool cuts;   /* something may end a connection without order */
	bool memory; /* memory is refused at times */
	bool held;
	const char *wrong;
	uint8_t buffer[200000];
};

static uint8_t byte_at(unsigned from, uint64_t at)
{
	uint32_t x = (uint32_t)(at + 1) * 2654435761u + from * 97u;

	return (uint8_t)(x >> 24 ^ x >> 11);
}

static unsigned rnd(struct world *w, unsigned limit)
{
	return (unsigned)sim_random(w->net, limit);
}

static void wrong(struct world *w, const char *what)
{
	if (!w->wrong)
		w->wrong = what;
}

static void resume_later(struct app *a)
{
	rk_timer_set(a->context, &a->timer,
		     rk_context_now_ns(a->context) + 1 +
			     rnd(a->world, a->pause_us * 1000));
}

static void finish(struct app *a, bool in_order)
{
	struct rk_stream *s = a->stream;

	a->stream = NULL;
	a->finished = true;
	rk_timer_cancel(&a->timer);
	if (in_order) {
		a->closed_all = a->written == a->total;
		rk_stream_close(s);
	} else {
		rk_stream_abort(s);
	}
}

static bool due_to_end(struct app *a)
{
	if (a->end == END_ABORT || a->end == END_CLOSE_EARLY) {
		if (a->read < a->end_at && a->written < a->end_at &&
		    a->written < a->total)
			return false;
		finish(a, a->end == END_CLOSE_EARLY);
		return true;
	}
	if (a->written < a->total || (a->end == END_AFTER_READ && !a->saw_end))
		return false;
	finish(a, true);
	return true;
}

static void check_bytes(struct app *a, const uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		if (data[i] != byte_at(!a->number, a->read + i)) {
			wrong(a->world, "a byte is not the one that was sent");
			return;
		}
	}
	a->read += bytes;
}

static ssize_t read_some(struct app *a)
{
	struct world *w = a->world;
	size_t most = 1 + rnd(w, a->read_most);
	struct iovec piece[2];
	ssize_t got;
	int n;

	if (a->peeks && rk_stream_pending(a->stream)) {
		size_t all = 0;

		n = rk_stream_peek(a->stream, piece);
		for (int i = 0; i < n; i++) {
			size_t part = rk_min(piece[i].iov_len, most - all);

			check_bytes(a, piece[i].iov_base, part);
			all += part;
		}
		if (!n)
			wrong(w, "bytes are pending but cannot be seen");
		if (a->offthread)
			rk_stream_consume_offthread(a->stream, all);
		else
			rk_stream_consume(a->stream, all);
		got = (ssize_t)all;
	} else {
		most = rk_min(most, sizeof(w->buffer));
		if (a->offthread)
			got = rk_stream_read_offthread(a->stream, w->buffer,
						       most);
		else
			got = rk_stream_read(a->stream, w->buffer, most);
		if (got > 0)
			check_bytes(a, w->buffer, (size_t)got);
	}
	if (a->offthread && rk_stream_due(a->stream))
		rk_stream_service(a->stream);
	return got;
}

/* false: the stream is not ours any more, or it was paused. */
static bool app_read(struct app *a)
{
	for (;;) {
		ssize_t got;

		if (rnd(a->world, 1000) < a->pause_chance) {
			resume_later(a);
			return true;
		}
		got = read_some(a);
		if (got == -EAGAIN) {
			if (rk_stream_ready(a->stream) & RK_STREAM_READABLE)
				wrong(a->world, "readable, but nothing to read");
			return true;
		}
		if (got <= 0) {
			a->saw_end = true;
			a->error = (int)got;
			if (got < 0 || a->written < a->total) {
				finish(a, true);
				return false;
			}
			return !due_to_end(a);
		}
		if (due_to_end(a))
			return false;
	}
}

static unsigned fill_iov(struct app *a, struct iovec *iov, size_t bytes)
{
	struct world *w = a->world;
	unsigned pieces = rnd(w, 3) ? 1 + rnd(w, 3) : 1 + rnd(w, PIECES - 1);
	size_t at = 0;

	for (size_t i = 0; i < bytes; i++)
		w->buffer[i] = byte_at(a->number, a->written + i);
	for (unsigned i = 0; i < pieces; i++) {
		size_t n = rnd(w, (unsigned)(bytes - at + 1));

		if (i + 1 == pieces)
			n = bytes - at;
		iov[i] = (struct iovec){ .iov_base = w->buffer + at,
					 .iov_len = n };
		at += n;
	}
	return pieces;
}

static bool app_write(struct app *a)
{
	struct world *w = a->world;

	while (a->written < a->total) {
		struct iovec iov[PIECES];
		size_t bytes = 1 + rnd(w, a->write_most);
		unsigned pieces, flags = 0;
		ssize_t got;

		if (rnd(w, 1000) < a->pause_chance) {
			rk_stream_flush(a->stream);
			resume_later(a);
			return true;
		}
		bytes = rk_min(bytes, (size_t)(a->total - a->written));
		bytes = rk_min(bytes, sizeof(w->buffer));
		pieces = fill_iov(a, iov, bytes);
		if (rnd(w, 1000) < a->more_chance)
			flags = RK_STREAM_MORE;
		got = rk_stream_writev(a->stream, iov, (int)pieces, flags);
		memset(w->buffer, 0xee, bytes); /* it is ours again */
		if (got > (ssize_t)bytes || got == 0)
			wrong(w, "a write took what was not there");
		if (got == -EPIPE || got == -ENOMEM) {
			if (got == -ENOMEM && !w->memory)
				wrong(w, "no memory, but it was not refused");
			a->broken = true;
			if (got == -EPIPE && a->end == END_AFTER_READ)
				return true; /* the end is still to be read */
			finish(a, true);
			return false;
		}
		if (got == -EAGAIN || got < (ssize_t)bytes) {
			if (got > 0)
				a->written += (uint64_t)got;
			rk_stream_flush(a->stream);
			return true; /* WRITABLE must follow */
		}
		a->written += (uint64_t)got;
		if (due_to_end(a))
			return false;
	}
	rk_stream_flush(a->stream);
	return true;
}

static void app_run(struct app *a)
{
	if (a->stream && app_write(a) && a->stream)
		app_read(a);
}

static void on_timer(struct rk_timer *timer)
{
	app_run(rk_container_of(timer, struct app, timer));
}

static void on_event(struct rk_stream *s, void *user, unsigned events)
{
	struct app *a = user;

	if (a->finished) {
		wrong(a->world, "told after it was closed");
		return;
	}
	a->stream = s;
	if (events & RK_STREAM_OPEN)
		a->connected = true;
	if ((events & RK_STREAM_CLOSED) && !a->connected) {
		a->error = rk_stream_error(s);
		if (!rk_stream_error_text(s)[0])
			wrong(a->world, "an error without words");
		finish(a, true);
		return;
	}
	if ((events & RK_STREAM_WRITABLE) && a->number &&
	    !(rk_stream_ready(s) & RK_STREAM_WRITABLE))
		wrong(a->world, "told writable, but it is not");
	if (!due_to_end(a))
		app_run(a);
}

static void on_accepted(struct rk_stream *s, void *user)
{
	struct world *w = user;
	struct app *a = &w->app[1];

	a->stream = s;
	a->connected = true;
	rk_stream_set_callback(s, on_event, a);
	if (!due_to_end(a))
		app_run(a);
}

/* --- one run --------- */

/* The owner of the second is busy elsewhere, for 0 to 300 ms. */
static void on_trouble(struct rk_timer *timer)
{
	struct world *w = rk_container_of(timer, struct world, trouble);
	struct rk_context *context = w->app[rnd(w, 2)].context;

	if (w->held) {
		sim_hold(w->app[1].context, false);
		w->held = false;
	} else if (context == w->app[1].context) {
		sim_hold(context, true);
		w->held = true;
	}
	if (w->app[0].finished && w->app[1].finished && !w->held)
		return;
	rk_timer_set(w->app[0].context, timer,
		     rk_context_now_ns(context) + 1 + rnd(w, 300000000));
}

static void choose_net(struct world *w)
{
	static const unsigned inlines[] = { 0, 16, 32, 256, 65536 };
	struct sim_knobs *k = sim_knobs(w->net);

	k->inline_bytes = inlines[rnd(w, RK_ARRAY_SIZE(inlines))];
	k->pieces = (unsigned[]){ 1, 2, 4, 16 }[rnd(w, 4)];
	k->delay_max_ns = 1000 + rnd(w, rnd(w, 2) ? 20000 : 2000000);
	k->completion_max_ns = rnd(w, 4) ? 5000 : rnd(w, 3000000);
	k->process_max_ns = rnd(w, 2) ? 2000 : rnd(w, 500000);
	k->process_budget = rnd(w, 2) ? 0 : 1 + rnd(w, 8);
	k->full_chance = rnd(w, 3) ? 0 : rnd(w, 200);
	w->memory = rnd(w, 5) == 0;
	k->memory_chance = w->memory ? rnd(w, 300) : 0;
	w->cuts = rnd(w, 4) == 0;
	k->cut_chance = w->cuts ? rnd(w, 8) : 0;
}

static void choose_app(struct world *w, unsigned number)
{
	struct app *a = &w->app[number];

	a->world = w;
	a->number = number;
	a->timer.fire = on_timer;
	a->context = sim_context(w->net);
	a->write_most = (unsigned[]){ 10, 300, 20000, 200000 }[rnd(w, 4)];
	a->read_most = (unsigned[]){ 30, 3000, 70000, 200000 }[rnd(w, 4)];
	a->total = rnd(w, 8) ? rnd(w, a->write_most < 20 ? 30000 : 700000) : 0;
	if (a->read_most < 100)
		a->read_most += 300;
	a->pause_chance = rnd(w, 3) ? rnd(w, 60) : rnd(w, 400);
	a->pause_us = (unsigned[]){ 20, 500, 5000 }[rnd(w, 3)];
	a->more_chance = rnd(w, 2) ? 0 : rnd(w, 900);
	a->peeks = rnd(w, 2);
	a->offthread = rnd(w, 3) == 0;
	a->end = (enum way_to_end)(rnd(w, 6) ? rnd(w, 2) : rnd(w, 4));
	a->end_at = rnd(w, 300000);
	if (number && a->end == END_AFTER_READ &&
	    w->app[0].end == END_AFTER_READ)
		a->end = END_CLOSE; /* or both wait for ever */
}

static struct rk_stream_params choose_params(struct world *w)
{
	static const uint32_t windows[] = { 65536, 65537, 100003, 131072, 0 };

	return (struct rk_stream_params){
		.window_bytes = windows[rnd(w, RK_ARRAY_SIZE(windows))],
		.receive_depth = rnd(w, 3) ? 0 : 64 + rnd(w, 100),
		.linger_ms = RUN_S * 1000,
	};
}

static unsigned checked_whole; /* directions of which all had to arrive */

static void check_direction(struct world *w, const struct app *from,
			    const struct app *to)
{
	if (to->read > from->written && from->written)
		wrong(w, "more was read than written");
	if (w->cuts || w->memory || !from->connected || !from->closed_all ||
	    !to->saw_end)
		return;
	if (to->error)
		wrong(w, "closed in order, but the reader got an error");
	else if (to->read != from->total)
		wrong(w, "closed in order, but not all has arrived");
	checked_whole++;
}

static const char *one_run(uint64_t seed, FILE *trace)
{
	static struct world worlds;
	struct world *w = &worlds;
	struct rk_stream_params params;
	struct sockaddr_in addr = { .sin_family = AF_INET };
	struct rk_stream *s;
	long live = rk_alloc_live();
	int ret;

	memset(w, 0, sizeof(*w));
	w->net = sim_open(seed);
	sim_trace_to(w->net, trace);
	choose_app(w, 0);
	choose_app(w, 1);
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	addr.sin_port = htons(6379);
	params = choose_params(w);
	ret = rk_stream_listen(w->app[1].context, (struct sockaddr *)&addr, 0,
			       &params, on_accepted, w, &w->listener);
	if (ret)
		wrong(w, "cannot listen");
	params = choose_params(w);
	choose_net(w);
	ret = rk_stream_connect(w->app[0].context, (struct sockaddr *)&addr,
				NULL, 0, &params, on_event, &w->app[0], &s);
	if (ret)
		wrong(w, "cannot connect");
	w->trouble.fire = on_trouble;
	if (rnd(w, 3) == 0)
		on_trouble(&w->trouble);
	sim_run(w->net, RUN_S * RK_NS_PER_S);

	for (unsigned i = 0; i < 2; i++) {
		const struct app *a = &w->app[i];

		if (a->connected && !a->finished)
			wrong(w, i ? "the acceptor hangs" : "the connector hangs");
	}
	if (!w->app[0].connected && !w->memory && !w->cuts)
		wrong(w, "not connected");
	check_direction(w, &w->app[0], &w->app[1]);
	check_direction(w, &w->app[1], &w->app[0]);
	rk_stream_listener_close(w->listener);
	if (sim_errors(w->net)) {
		static char text[300];

		snprintf(text, sizeof(text), "%s", sim_error_text(w->net));
		wrong(w, text);
	}
	if (sim_connections_live(w->net))
		wrong(w, "a connection is left");
	if (sim_memory_live(w->net))
		wrong(w, "registered memory is left");
	sim_close(w->net);
	if (rk_alloc_live() != live)
		wrong(w, "an allocation is left");
	return w->wrong;
}

static void quiet(enum rk_log_level level, const char *line)
{
}

int main(int argc, char **argv)
{
	uint64_t first = 1, last = 600, seed, bad = 0;

	rk_log_set_sink(quiet);
	if (argc == 3 && !strcmp(argv[1], "--seed")) {
		first = last = strtoull(argv[2], NULL, 0);
	} else if (argc == 4 && !strcmp(argv[1], "--seeds")) {
		first = strtoull(argv[2], NULL, 0);
		last = strtoull(argv[3], NULL, 0);
	}
	for (seed = first; seed <= last; seed++) {
		const char *wrong_text =
			one_run(seed, first == last ? stdout : NULL);

		if (!wrong_text)
			continue;
		printf("# seed %llu: %s; replay with --seed %llu\n",
		       (unsigned long long)seed, wrong_text,
		       (unsigned long long)seed);
		if (++bad == 20)
			break;
	}
	ok(!bad, "seeds %llu to %llu: what arrives is what was sent, in order",
	   (unsigned long long)first, (unsigned long long)last);
	if (last > first)
		ok(checked_whole > (last - first) / 4,
		   "%u times all of a direction had to arrive, and did",
		   checked_whole);
	return ok_done();
}
