/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pipe over RDMA, for tests in other languages: what comes on standard input
 * goes to a stream, what the stream brings goes to standard output.  The first
 * line on standard error is "open LOCAL-ADDRESS LOCAL-PORT", or what went
 * wrong.  The end of the input closes the stream in order; the end of the
 * stream ends the program, with 0 if it was orderly.
 *
 * Usage: rdma-pipe ADDRESS PORT [WINDOW-BYTES [SOURCE-ADDRESS]]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "rdmakit/stream.h"

enum { INPUT_BYTES = 65536, CONNECT_MS = 30000, LAST_WORDS_MS = 2000 };

static struct {
	struct rk_context *device;
	struct rk_stream *stream;
	bool open, closed;
	char input[INPUT_BYTES]; /* read, but not taken by the stream */
	size_t start, bytes;
	bool input_ended;
} pipe_state;

static void on_event(struct rk_stream *stream, void *user, unsigned events)
{
	if (events & RK_STREAM_OPEN)
		pipe_state.open = true;
	if (events & RK_STREAM_CLOSED)
		pipe_state.closed = true;
}

static int die(const char *what, int error)
{
	fprintf(stderr, "%s: %s\n", what, strerror(error));
	return 1;
}

static void announce(void)
{
	struct sockaddr_storage local = { 0 };
	char ip[64] = "?", port[16] = "0";

	rk_stream_address(pipe_state.stream, false, &local);
	getnameinfo((struct sockaddr *)&local, sizeof(local), ip, sizeof(ip),
		    port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	fprintf(stderr, "open %s %s\n", ip, port);
}

/* Standard input to the stream; true if anything moved. */
static bool pump_in(void)
{
	bool moved = false;
	ssize_t n;

	if (!pipe_state.bytes && !pipe_state.input_ended) {
		n = read(0, pipe_state.input, sizeof(pipe_state.input));
		if (n == 0 || (n < 0 && errno != EAGAIN))
			pipe_state.input_ended = true;
		if (n > 0) {
			pipe_state.start = 0;
			pipe_state.bytes = (size_t)n;
		}
		moved = n > 0;
	}
	if (pipe_state.bytes) {
		n = rk_stream_write(pipe_state.stream,
				    pipe_state.input + pipe_state.start,
				    pipe_state.bytes, 0);
		if (n > 0) {
			pipe_state.start += (size_t)n;
			pipe_state.bytes -= (size_t)n;
			moved = true;
		} else if (n != -EAGAIN) {
			pipe_state.bytes = 0; /* nobody is there */
		}
	}
	return moved;
}

/* The stream to standard output; true if anything moved. */
static bool pump_out(bool *want_output)
{
	struct iovec pieces[2];
	ssize_t n;
	int count;

	*want_output = false;
	count = rk_stream_peek(pipe_state.stream, pieces);
	if (!count)
		return false;
	n = writev(1, pieces, count);
	if (n < 0) {
		*want_output = errno == EAGAIN;
		if (errno == EAGAIN)
			return false;
		exit(1); /* our user is gone */
	}
	rk_stream_consume(pipe_state.stream, (size_t)n);
	return true;
}

static int milliseconds_until(uint64_t at_ns)
{
	uint64_t now_ns = rk_now_ns();

	if (at_ns == RK_NEVER)
		return 1000;
	if (at_ns <= now_ns)
		return 0;
	return (int)rk_min((at_ns - now_ns) / RK_NS_PER_MS + 1, 1000ull);
}

static void wait_for_work(bool want_output)
{
	struct pollfd fds[3] = {
		{ .fd = rk_context_fd(pipe_state.device), .events = POLLIN },
		{ .fd = -1, .events = POLLIN },
		{ .fd = -1, .events = POLLOUT },
	};

	if (pipe_state.open && !pipe_state.bytes && !pipe_state.input_ended)
		fds[1].fd = 0;
	if (want_output)
		fds[2].fd = 1;
	if (rk_context_arm(pipe_state.device))
		return;
	poll(fds, 3,
	     milliseconds_until(rk_context_deadline_ns(pipe_state.device)));
}

static int run(void)
{
	bool announced = false, want_output = false, moved;

	for (;;) {
		moved = rk_context_process(pipe_state.device, 0) > 0;
		if (pipe_state.open && !announced) {
			announced = true;
			announce();
		}
		if (pipe_state.open) {
			moved |= pump_out(&want_output);
			moved |= pump_in();
		}
		if (pipe_state.closed &&
		    !rk_stream_pending(pipe_state.stream))
			break;
		if (pipe_state.input_ended && !pipe_state.bytes)
			return 0;
		if (!moved)
			wait_for_work(want_output);
	}
	if (rk_stream_error(pipe_state.stream)) {
		fprintf(stderr, "%s\n",
			rk_stream_error_text(pipe_state.stream));
		return 1;
	}
	return 0;
}

/* Let what was written arrive, then give everything back. */
static void finish(void)
{
	uint64_t end_ns = rk_now_ns() + LAST_WORDS_MS * RK_NS_PER_MS;
	struct rk_context_info info;

	rk_stream_close(pipe_state.stream);
	for (;;) {
		rk_context_process(pipe_state.device, 0);
		rk_context_info_get(pipe_state.device, &info);
		if (!info.connections || rk_now_ns() > end_ns)
			break;
		if (!rk_context_arm(pipe_state.device)) {
			struct pollfd fd = {
				.fd = rk_context_fd(pipe_state.device),
				.events = POLLIN
			};

			poll(&fd, 1, 10);
		}
	}
	rk_context_close(pipe_state.device);
}

int main(int argc, char **argv)
{
	struct rk_context_params device = { .device = "soft",
					    .completion_vector = -1 };
	struct rk_stream_params params = { 0 };
	struct addrinfo *addr = NULL, *source = NULL;
	int ret;

	if (argc < 3) {
		fprintf(stderr, "usage: rdma-pipe ADDRESS PORT "
				"[WINDOW [SOURCE]]\n");
		return 2;
	}
	if (argc > 3)
		params.window_bytes = (uint32_t)strtoul(argv[3], NULL, 10);
	ret = getaddrinfo(argv[1], argv[2], NULL, &addr);
	if (!ret && argc > 4)
		ret = getaddrinfo(argv[4], NULL, NULL, &source);
	if (ret) {
		fprintf(stderr, "%s: %s\n", argv[1], gai_strerror(ret));
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
	fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK);
	ret = rk_context_open(&pipe_state.device, &device);
	if (ret)
		return die("device", -ret);
	ret = rk_stream_connect(pipe_state.device, addr->ai_addr,
				source ? source->ai_addr : NULL,
				CONNECT_MS, &params, on_event, NULL,
				&pipe_state.stream);
	freeaddrinfo(addr);
	if (source)
		freeaddrinfo(source);
	if (ret)
		return die("connect", -ret);
	ret = run();
	finish();
	return ret;
}
