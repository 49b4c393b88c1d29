/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The load of rdmakit bench redis before and after it runs: connections are
 * made one after the other, so that each set-up is seen alone, and logged in.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "redis/client/resp_format.h"
#include "tools/bench_load.h"

enum {
	COPY_BELOW = 1024, /* smaller values are copied into the request */
};

int bench_load_fail(const struct load *load, int error, const char *what,
		    const char *why)
{
	char text[RK_URI_TEXT_MAX];

	rk_uri_text(&load->target->uri, text, sizeof(text));
	fprintf(stderr, "rdmakit bench redis: %s: %s%s%s\n", text, what,
		*why ? ": " : "", why);
	return error;
}

/* Lay out the arena: request after request, values in between or not. */
static int prepare_connection(struct load *load,
			      struct bench_connection *connection)
{
	unsigned pipeline = load->options->pipeline;
	const struct bench_request *request = &load->request;
	size_t tail = request->has_value ? 2 : 0;
	char *at;

	load->small = load->options->bytes < COPY_BELOW;
	load->stride = request->head_bytes + tail;
	if (load->small && request->has_value)
		load->stride += load->options->bytes;
	connection->arena = rk_calloc(pipeline, load->stride);
	connection->keys = rk_calloc(pipeline, sizeof(uint64_t));
	connection->pieces = rk_calloc(2 * (size_t)pipeline + 1,
				       sizeof(struct iovec));
	if (!connection->arena || !connection->keys || !connection->pieces)
		return -ENOMEM;
	for (unsigned i = 0; i < pipeline; i++) {
		at = connection->arena + i * load->stride;
		memcpy(at, request->head, request->head_bytes);
		if (!request->has_value)
			continue;
		if (load->small)
			memcpy(at + request->head_bytes,
			       bench_value(load->pattern, 0),
			       load->options->bytes);
		memcpy(at + load->stride - 2, "\r\n", 2);
	}
	return 0;
}

static int wait_open(struct load *load, struct bench_connection *connection)
{
	uint64_t end_ns = rk_now_ns() + BENCH_CONNECT_MS * RK_NS_PER_MS;
	struct rk_link_ready ready;
	int found;

	do {
		found = load->target->transport->wait(
			load->context, &ready, 1, BENCH_CONNECT_MS * 1000ll);
		if (found < 0 && found != -EINTR)
			return bench_load_fail(load, found, "connecting",
				    strerror(-found));
		if (found > 0 && ready.events & RK_LINK_CLOSED)
			return bench_load_fail(load, -ECONNREFUSED, "cannot connect",
				    ready.link->error);
		if (found > 0 && ready.events & RK_LINK_OPEN)
			return 0;
	} while (rk_now_ns() < end_ns);
	return bench_load_fail(load, -ETIMEDOUT, "no connection in 5 s", "");
}

/* Send one command and take its answer, before the load starts. */
static int greet(struct load *load, struct bench_connection *connection,
		 int argc, const char *const *argv)
{
	static const struct bench_expectation ok = { .mark = '+' };
	const struct rk_transport *transport = load->target->transport;
	struct rk_buffer command = { 0 };
	struct rk_link_ready ready;
	struct iovec iov;
	bool done = false;
	ssize_t got;
	int ret = rk_resp_format(&command, argc, argv, NULL);

	if (ret)
		return ret;
	iov.iov_base = rk_buffer_head(&command);
	iov.iov_len = rk_buffer_bytes(&command);
	got = transport->writev(connection->link, &iov, 1);
	ret = got == (ssize_t)iov.iov_len ? 0 : -EIO;
	rk_buffer_free(&command);
	while (!ret && !done) {
		ret = transport->wait(load->context, &ready, 1,
				      BENCH_CONNECT_MS * 1000ll);
		if (ret <= 0 && ret != -EINTR)
			return bench_load_fail(load, -ETIMEDOUT, "no answer to", argv[0]);
		ret = 0;
		got = transport->read(connection->link, load->input,
				      BENCH_READ_BYTES);
		if (got == -EAGAIN)
			continue;
		if (got <= 0)
			return bench_load_fail(load, -ECONNRESET, "connection lost", "");
		ret = (int)rk_min(bench_scan_take(&connection->scan, &ok,
						  load->input, (size_t)got,
						  &done), (int64_t)0);
	}
	if (ret || connection->scan.wrong)
		return bench_load_fail(load, -EACCES, argv[0], connection->scan.line);
	return 0;
}

static int log_in(struct load *load, struct bench_connection *connection)
{
	const struct rk_uri *uri = &load->target->uri;
	const char *auth[3] = { "AUTH" };
	char db[12];
	const char *select[2] = { "SELECT", db };
	int argc = 1, ret = 0;

	if (uri->password[0]) {
		if (uri->user[0])
			auth[argc++] = uri->user;
		auth[argc++] = uri->password;
		ret = greet(load, connection, argc, auth);
	}
	if (!ret && uri->db) {
		snprintf(db, sizeof(db), "%u", uri->db);
		ret = greet(load, connection, 2, select);
	}
	return ret;
}

int bench_load_connect(struct load *load, double *setup_us)
{
	const struct bench_options *options = load->options;
	uint64_t spent_ns = 0, start_ns;
	char why[160];
	int ret;

	for (unsigned i = 0; i < options->connections; i++) {
		struct bench_connection *connection = &load->connections[i];

		ret = prepare_connection(load, connection);
		if (ret)
			return bench_load_fail(load, ret, "out of memory", "");
		start_ns = rk_now_ns();
		ret = load->target->transport->connect(
			load->context, &load->target->uri, BENCH_CONNECT_MS,
			connection, &connection->link, why, sizeof(why));
		if (ret)
			return bench_load_fail(load, ret, "cannot connect", why);
		load->connected++;
		ret = wait_open(load, connection);
		spent_ns += rk_now_ns() - start_ns;
		if (!ret)
			ret = log_in(load, connection);
		if (ret)
			return ret;
	}
	*setup_us = (double)spent_ns / 1e3 / options->connections;
	return 0;
}

/* The receive window of a link: what a batch of answers needs, several times
 * over, and no more, so that all windows together stay in the cache. */
static uint32_t window_bytes(const struct load *load)
{
	uint64_t answer = 64 + (load->op->mark == '$' ? load->options->bytes
						      : 0);
	uint64_t wanted = 4 * answer * load->options->pipeline;
	uint32_t window = 64 << 10;

	if (load->op->mark == '*')
		wanted *= 100;
	while (window < wanted && window < 1 << 20)
		window *= 2;
	return window;
}

int bench_load_open(struct load *load)
{
	const struct bench_options *options = load->options;
	struct bench_target *target = load->target;
	const char *device = target->uri.device[0] ? target->uri.device
						   : options->device;
	struct rk_link_options link_options = {
		.device = device,
		.spin_us = options->spin_us,
		.window_bytes = window_bytes(load),
		.uri = &target->uri,
	};
	char why[160];
	int ret;

	load->input = rk_zalloc(BENCH_READ_BYTES);
	load->connections = rk_calloc(options->connections,
				      sizeof(*load->connections));
	if (!load->input || !load->connections)
		return bench_load_fail(load, -ENOMEM, "out of memory", "");
	ret = bench_request_build(&load->request, load->op->words,
				  options->bytes);
	if (ret)
		return bench_load_fail(load, ret, "out of memory", "");
	ret = target->transport->open(&load->context, &link_options, why,
				      sizeof(why));
	return ret ? bench_load_fail(load, ret, "cannot open the device", why) : 0;
}

void bench_load_close(struct load *load)
{
	const struct rk_transport *transport = load->target->transport;

	for (unsigned i = 0; load->connections &&
			     i < load->options->connections; i++) {
		struct bench_connection *connection = &load->connections[i];

		if (connection->link)
			transport->disconnect(connection->link);
		rk_free(connection->arena);
		rk_free(connection->keys);
		rk_free(connection->pieces);
	}
	if (load->context)
		transport->close(load->context);
	bench_request_free(&load->request);
	rk_free(load->connections);
	rk_free(load->input);
	rk_free(load);
}

