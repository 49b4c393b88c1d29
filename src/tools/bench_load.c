/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The load of rdmakit bench redis: one thread, all connections, each with one
 * batch of `pipeline` requests under way.  The next batch leaves when the
 * last answer of the one before has come.
 *
 * The latency of a request is from the sending of its batch to the reading of
 * its answer.  In the loop nothing is allocated and no tree is built; the
 * clock is read once for each connection served.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "tools/bench_load.h"

enum {
	READY_MAX = 256,
	PIECES_MAX = 512,   /* of one write */
	PROGRESS_NS = 200 * 1000 * 1000,
};

static uint64_t next_key(struct load *load)
{
	if (load->options->keyspace <= 1)
		return 0;
	load->random ^= load->random << 13;
	load->random ^= load->random >> 7;
	load->random ^= load->random << 17;
	return load->random % load->options->keyspace;
}

/* Keys, and the values that go with them, for the next batch. */
static void choose_keys(struct load *load, struct bench_connection *connection)
{
	const struct bench_request *request = &load->request;

	for (unsigned i = 0; i < connection->batch; i++) {
		char *at = connection->arena + i * load->stride;
		uint64_t key = next_key(load);

		connection->keys[i] = key;
		if (request->number_at != SIZE_MAX)
			bench_put_number(at + request->number_at, key);
		if (request->has_value && load->small)
			memcpy(at + request->head_bytes,
			       bench_value(load->pattern, key),
			       load->options->bytes);
	}
}

/*
 * The pieces of a batch.  Large values stand between their head and their
 * "\r\n", which is one piece with the next head.
 */
static void lay_pieces(struct load *load, struct bench_connection *connection)
{
	struct iovec *piece = connection->pieces;
	char *arena = connection->arena;
	size_t head_bytes = load->request.head_bytes;

	connection->piece_next = 0;
	if (load->small || !load->request.has_value) {
		piece->iov_base = arena;
		piece->iov_len = connection->batch * load->stride;
		connection->piece_count = 1;
		return;
	}
	piece->iov_base = arena;
	piece->iov_len = head_bytes;
	for (unsigned i = 0; i < connection->batch; i++) {
		bool last = i + 1 == connection->batch;

		piece++;
		piece->iov_base = (char *)bench_value(load->pattern,
						      connection->keys[i]);
		piece->iov_len = load->options->bytes;
		piece++;
		piece->iov_base = arena + i * load->stride + head_bytes;
		piece->iov_len = 2 + (last ? 0 : head_bytes);
	}
	connection->piece_count = 2 * connection->batch + 1;
}

/* Write what the link takes. */
static int push_out(struct load *load, struct bench_connection *connection)
{
	const struct rk_transport *transport = load->target->transport;
	struct iovec *piece;
	ssize_t sent;

	while (connection->piece_next < connection->piece_count) {
		piece = &connection->pieces[connection->piece_next];
		sent = transport->writev(
			connection->link, piece,
			(int)rk_min(connection->piece_count -
					    connection->piece_next,
				    (unsigned)PIECES_MAX));
		if (sent == -EAGAIN)
			return 0;
		if (sent < 0)
			return bench_load_fail(load, (int)sent, "connection lost",
				    connection->link->error);
		load->bytes_moved += (uint64_t)sent;
		while (sent && (size_t)sent >= piece->iov_len) {
			sent -= (ssize_t)piece->iov_len;
			connection->piece_next++;
			piece++;
		}
		if (sent) {
			piece->iov_base = (char *)piece->iov_base + sent;
			piece->iov_len -= (size_t)sent;
			return 0; /* cut short: WRITABLE follows */
		}
	}
	return 0;
}

/* The next batch, unless enough has been sent. */
static int start_batch(struct load *load, struct bench_connection *connection)
{
	const struct bench_options *options = load->options;
	uint64_t left = UINT64_MAX;

	if (options->runtime_s)
		left = load->now_ns < load->end_ns ? UINT64_MAX : 0;
	else
		left = options->requests - load->issued;
	connection->answered = 0;
	connection->batch = (unsigned)rk_min(left,
					     (uint64_t)options->pipeline);
	if (!connection->batch)
		return 0;
	load->issued += connection->batch;
	load->batches++;
	if (options->keyspace > 1)
		choose_keys(load, connection);
	lay_pieces(load, connection);
	connection->started_ns = load->now_ns;
	return push_out(load, connection);
}

static void count_error(struct load *load, const struct bench_scan *scan)
{
	load->errors++;
	if (load->first_error[0])
		return;
	if (scan->mark == '-')
		snprintf(load->first_error, sizeof(load->first_error), "%s",
			 scan->line + 1);
	else if (scan->mark == load->op->mark)
		snprintf(load->first_error, sizeof(load->first_error),
			 "an answer is not the value that was written");
	else
		snprintf(load->first_error, sizeof(load->first_error),
			 "an answer begins with '%c' instead of '%c'",
			 scan->mark, load->op->mark);
}

/* Answers in data; returns how many, or negative errno. */
static int take_answers(struct load *load, struct bench_connection *connection,
			const char *data, size_t bytes)
{
	struct bench_expectation expected = {
		.mark = load->op->mark,
		.nil_is_good = load->op->nil_is_good,
		.value_bytes = load->options->bytes,
	};
	int answers = 0;
	int64_t taken;
	bool done;

	while (bytes) {
		if (connection->answered == connection->batch)
			return bench_load_fail(load, -EPROTO,
				    "more answers than requests", "");
		if (load->op->reads_value)
			expected.value = bench_value(
				load->pattern,
				connection->keys[connection->answered]);
		taken = bench_scan_take(&connection->scan, &expected, data,
					bytes, &done);
		if (taken < 0)
			return bench_load_fail(load, (int)taken, "an answer is no RESP",
				    connection->scan.line);
		data += taken;
		bytes -= (size_t)taken;
		if (!done)
			break;
		if (rk_unlikely(connection->scan.wrong))
			count_error(load, &connection->scan);
		connection->answered++;
		answers++;
	}
	return answers;
}

static int pull_in(struct load *load, struct bench_connection *connection)
{
	const struct rk_transport *transport = load->target->transport;
	int answers = 0, ret;
	ssize_t got;

	do {
		got = transport->read(connection->link, load->input,
				      BENCH_READ_BYTES);
		if (got == -EAGAIN)
			break;
		if (got <= 0)
			return bench_load_fail(load, got ? (int)got : -ECONNRESET,
				    "connection lost",
				    got ? connection->link->error
					: "closed by the server");
		load->bytes_moved += (uint64_t)got;
		ret = take_answers(load, connection, load->input, (size_t)got);
		if (ret < 0)
			return ret;
		answers += ret;
	} while (got == BENCH_READ_BYTES);
	if (!answers)
		return 0;
	load->now_ns = rk_now_ns();
	load->answered += (unsigned)answers;
	rk_histogram_add(&load->latency,
			 load->now_ns - connection->started_ns,
			 (unsigned)answers);
	if (connection->answered < connection->batch)
		return 0;
	return start_batch(load, connection);
}

static int serve(struct load *load, const struct rk_link_ready *ready)
{
	struct bench_connection *connection = ready->link->user;
	int ret = 0;

	if (ready->events & RK_LINK_WRITABLE)
		ret = push_out(load, connection);
	if (!ret && ready->events & RK_LINK_READABLE)
		ret = pull_in(load, connection);
	if (!ret && ready->events == RK_LINK_CLOSED)
		ret = bench_load_fail(load, -ECONNRESET, "connection lost",
			   ready->link->error);
	return ret;
}

/* One wait and what it brought; -EINTR goes round again. */
static int turn(struct load *load, int timeout_ms)
{
	struct rk_link_ready ready[READY_MAX];
	int found, ret;

	found = load->target->transport->wait(load->context, ready, READY_MAX,
					      timeout_ms * 1000ll);
	if (found == -EINTR)
		return 1;
	if (found < 0)
		return bench_load_fail(load, found, "waiting", strerror(-found));
	for (int i = 0; i < found; i++) {
		ret = serve(load, &ready[i]);
		if (ret)
			return ret;
	}
	return found;
}

static void show_progress(const struct load *load, const char *text,
			  uint64_t start_ns)
{
	double seconds = (double)(load->now_ns - start_ns) / 1e9;
	double part = load->options->runtime_s
			      ? seconds / load->options->runtime_s
			      : (double)load->answered /
					(double)load->options->requests;

	fprintf(stderr, "\r\033[K%s  %3.0f %%  %.0f ops/s", text, part * 100,
		(double)load->answered / seconds);
	fflush(stderr);
}

/* Until every request has its answer. */
static int run(struct load *load, const char *progress_text)
{
	uint64_t start_ns = load->now_ns, shown_ns = start_ns;
	bool stalled = false;
	int ret;

	for (unsigned i = 0; i < load->connected; i++) {
		load->now_ns = rk_now_ns();
		ret = start_batch(load, &load->connections[i]);
		if (ret)
			return ret;
	}
	while (load->answered < load->issued) {
		ret = turn(load, BENCH_STALL_MS / 2);
		if (ret < 0)
			return ret;
		if (!ret && stalled)
			return bench_load_fail(load, -ETIMEDOUT, "no answer for 10 s", "");
		stalled = !ret;
		if (load->options->progress &&
		    load->now_ns - shown_ns > PROGRESS_NS) {
			shown_ns = load->now_ns;
			show_progress(load, progress_text, start_ns);
		}
	}
	return 0;
}

static void take_result(const struct load *load, uint64_t start_ns,
			double cpu_s, struct bench_result *out)
{
	const struct rk_histogram *latency = &load->latency;
	double seconds = (double)(load->now_ns - start_ns) / 1e9;

	out->operations = load->answered;
	out->errors = load->errors;
	out->ops_per_s = (double)load->answered / seconds;
	out->bytes_per_s = (double)load->bytes_moved / seconds;
	out->p50_us = (double)rk_histogram_value_at(latency, 0.5) / 1e3;
	out->p90_us = (double)rk_histogram_value_at(latency, 0.9) / 1e3;
	out->p99_us = (double)rk_histogram_value_at(latency, 0.99) / 1e3;
	out->p999_us = (double)rk_histogram_value_at(latency, 0.999) / 1e3;
	out->max_us = (double)latency->max / 1e3;
	out->cpu_us_per_op = cpu_s < 0 ? -1
				       : cpu_s * 1e6 / (double)load->answered;
	memcpy(out->first_error, load->first_error, sizeof(out->first_error));
}

/*
 * Every batch and its answers must have crossed as messages of the transport,
 * or what was measured was something else.
 */
static int check_crossing(const struct load *load, struct bench_result *out)
{
	load->target->transport->messages(load->context, &out->messages_sent,
					  &out->messages_received);
	if (out->messages_sent >= load->batches &&
	    out->messages_received >= load->batches)
		return 0;
	return bench_load_fail(load, -EIO,
			       "fewer messages crossed than batches were sent",
			       "");
}

int bench_load(const struct bench_options *options, struct bench_target *target,
	       const struct bench_op *op, const char *pattern,
	       const char *progress_text, struct bench_result *out)
{
	struct load *load = rk_zalloc(sizeof(*load));
	double cpu_before_s, cpu_after_s;
	const char *device;
	uint64_t start_ns;
	int ret;

	if (!load)
		return -ENOMEM;
	load->options = options;
	load->target = target;
	load->op = op;
	load->pattern = pattern;
	load->random = 0x2545f4914f6cdd1dull;
	ret = bench_load_open(load);
	if (!ret)
		ret = bench_load_connect(load, &out->setup_us);
	if (ret)
		goto out;
	device = target->transport->device(load->context);
	snprintf(target->device, sizeof(target->device), "%s",
		 device ? device : "");
	cpu_before_s = bench_server_cpu_s(options, target);
	start_ns = load->now_ns = rk_now_ns();
	load->end_ns = start_ns + options->runtime_s * RK_NS_PER_S;
	ret = run(load, progress_text);
	cpu_after_s = bench_server_cpu_s(options, target);
	if (!ret)
		ret = check_crossing(load, out);
	if (!ret)
		take_result(load, start_ns,
			    cpu_before_s < 0 || cpu_after_s < 0
				    ? -1
				    : cpu_after_s - cpu_before_s,
			    out);
out:
	bench_load_close(load);
	return ret;
}
