/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes on the software device: 64 MB each way at once, closed in
 * order; question and answer; thousands of tiny writes; the end of a killed
 * process.  Rates are printed as comments.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "ok.h"
#include "rdmakit/stream.h"

enum { BYTES = 64000000, STEP = 200000, DEADLINE_S = 60, ROUNDS = 20000 };

struct side {
	struct rk_context *context;
	struct rk_stream *stream;
	uint64_t to_write, written, read;
	size_t step;
	unsigned number, rounds;
	uint64_t first_ns, last_ns;
	bool echo, ping, connected, ended, wrong, close_when_done;
	int error;
};

static uint64_t pattern[2][STEP / 8 + 2];

/* The stream repeats a pattern whose length is no power of two. */
static void make_patterns(void)
{
	uint64_t x = 88172645463325252ull;

	for (unsigned n = 0; n < 2; n++) {
		for (unsigned i = 0; i < RK_ARRAY_SIZE(pattern[n]); i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			pattern[n][i] = x;
		}
	}
}

static void side_write(struct side *side)
{
	while (side->written < side->to_write) {
		size_t at = side->written % STEP;
		size_t n = rk_min(side->step, STEP - at);
		ssize_t taken;

		n = rk_min(n, side->to_write - side->written);
		taken = rk_stream_write(side->stream,
					(char *)pattern[side->number] + at, n,
					0);
		if (taken < 0)
			return;
		side->written += (uint64_t)taken;
	}
}

static void side_consume(struct side *side, const struct iovec *piece)
{
	const char *data = piece->iov_base;
	size_t left = piece->iov_len;

	while (left) {
		size_t at = side->read % STEP;
		size_t n = rk_min(left, STEP - at);

		side->wrong |= memcmp(data, (char *)pattern[!side->number] + at,
				      n) != 0;
		side->read += n;
		data += n;
		left -= n;
	}
}

static void side_read(struct side *side)
{
	struct iovec piece[2];
	char byte;
	int n;

	while ((n = rk_stream_peek(side->stream, piece))) {
		size_t all = 0;

		for (int i = 0; i < n; i++) {
			side_consume(side, &piece[i]);
			all += piece[i].iov_len;
		}
		rk_stream_consume(side->stream, all);
	}
	n = (int)rk_stream_read(side->stream, &byte, 1);
	if (n == -EAGAIN)
		return;
	side->ended = true;
	side->error = n;
}

static void on_event(struct rk_stream *s, void *user, unsigned events)
{
	struct side *side = user;
	char bytes[64];
	ssize_t n;

	side->stream = s;
	side->connected = true;
	if (side->echo || side->ping) {
		while ((n = rk_stream_read(s, bytes, sizeof(bytes))) > 0) {
			if (side->ping && ++side->rounds == ROUNDS)
				break;
			rk_stream_write(s, bytes, (size_t)n, RK_STREAM_MORE);
		}
		rk_stream_flush(s);
		side->ended |= n == 0 || (n < 0 && n != -EAGAIN);
		side->error = side->ended ? (int)n : 0;
		return;
	}
	side_write(side);
	side_read(side);
	side->last_ns = rk_now_ns();
}

static void on_accepted(struct rk_stream *s, void *user)
{
	struct side *side = user;

	side->stream = s;
	side->connected = true;
	rk_stream_set_callback(s, on_event, side);
}

/* Run until done says so; false: the deadline came first. */
static bool run(struct side *side, bool (*done)(const struct side *))
{
	uint64_t end_ns = rk_now_ns() + DEADLINE_S * RK_NS_PER_S;

	while (!done(side)) {
		struct pollfd fd = { .fd = rk_context_fd(side->context),
				     .events = POLLIN };
		uint64_t now_ns, until_ns;

		if (rk_context_process(side->context, 0))
			continue;
		now_ns = rk_now_ns();
		if (now_ns > end_ns)
			return false;
		if (rk_context_arm(side->context))
			continue;
		until_ns = rk_min(end_ns, rk_context_deadline_ns(side->context));
		if (until_ns > now_ns)
			poll(&fd, 1, (int)((until_ns - now_ns) / RK_NS_PER_MS) + 1);
	}
	return true;
}

static bool has_all(const struct side *side)
{
	return (side->read == side->to_write &&
		side->written == side->to_write) ||
	       side->ended;
}

static bool has_ended(const struct side *side)
{
	return side->ended;
}

static bool is_connected(const struct side *side)
{
	return side->connected || side->ended;
}

static bool has_all_rounds(const struct side *side)
{
	return side->rounds == ROUNDS || side->ended;
}

static bool is_gone(const struct side *side)
{
	struct rk_context_info info;

	rk_context_info_get(side->context, &info);
	return !info.connections;
}

static bool open_context(struct side *side)
{
	struct rk_context_params params = { .device = "soft" };

	return !rk_context_open(&side->context, &params);
}

/* The child: accepts, does as the parent, waits for the end. */
static int child(int pipe_fd, struct side *side)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	struct rk_stream_listener *listener;
	uint16_t port;
	bool good;

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!open_context(side) ||
	    rk_stream_listen(side->context, (struct sockaddr *)&addr, 0, NULL,
			     on_accepted, side, &listener))
		return 1;
	port = rk_stream_listener_port(listener);
	if (write(pipe_fd, &port, sizeof(port)) != sizeof(port))
		return 1;
	good = run(side, has_ended) && !side->error && !side->wrong &&
	       (side->echo ||
		(side->read == side->to_write && side->written == side->read));
	rk_stream_close(side->stream);
	rk_stream_listener_close(listener);
	rk_context_close(side->context);
	return good ? 0 : 2;
}

/* A process that had the device open cannot give it to one it forks, so the
 * peer is this program anew: --peer FD STEP BYTES ECHO. */
static void become_peer(int fd, const struct side *peer)
{
	char text[4][24];

	snprintf(text[0], sizeof(text[0]), "%d", fd);
	snprintf(text[1], sizeof(text[1]), "%zu", peer->step);
	snprintf(text[2], sizeof(text[2]), "%llu",
		 (unsigned long long)peer->to_write);
	snprintf(text[3], sizeof(text[3]), "%d", peer->echo);
	execl("/proc/self/exe", "peer", "--peer", text[0], text[1], text[2],
	      text[3], NULL);
	_exit(3);
}

static int peer_main(char **argv)
{
	struct side side = { .number = 1,
			     .step = strtoul(argv[3], NULL, 0),
			     .to_write = strtoull(argv[4], NULL, 0),
			     .echo = argv[5][0] == '1' };

	make_patterns();
	return child(atoi(argv[2]), &side);
}

static pid_t start(const struct side *peer, struct side *side)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	uint16_t port = 0;
	int fds[2];
	pid_t pid;

	if (pipe(fds))
		return -1;
	pid = fork();
	if (!pid)
		become_peer(fds[1], peer);
	close(fds[1]);
	if (read(fds[0], &port, sizeof(port)) != sizeof(port))
		port = 0;
	close(fds[0]);
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	addr.sin_port = htons(port);
	ok_or_die(port && open_context(side) &&
			  !rk_stream_connect(side->context,
					     (struct sockaddr *)&addr, NULL, 0,
					     NULL, on_event, side,
					     &side->stream),
		  "two processes, one stream");
	return pid;
}

static int status_of(pid_t pid)
{
	int status = -1;

	waitpid(pid, &status, 0);
	return status;
}

static void both_ways_at_once(size_t step, uint64_t bytes)
{
	struct side side = { .to_write = bytes, .step = step };
	struct side peer = side;
	struct rk_stream_stats stats;
	uint64_t start_ns = rk_now_ns();
	pid_t pid;

	pid = start(&peer, &side);
	ok(run(&side, has_all) && !side.ended && !side.wrong,
	   "%llu bytes each way, %zu a write, checked",
	   (unsigned long long)bytes, step);
	rk_stream_stats_get(side.stream, &stats);
	printf("# %.0f MB/s each way; %llu immediates, %llu window stalls of "
	       "%.1f ms in all\n",
	       (double)bytes * 1000 / (double)(rk_now_ns() - start_ns),
	       (unsigned long long)stats.immediates_sent,
	       (unsigned long long)stats.window_stalls,
	       (double)stats.stall_ns / 1e6);
	rk_stream_close(side.stream);
	ok(run(&side, is_gone), "closed");
	ok(status_of(pid) == 0, "the other side has all, and then 0");
	rk_context_close(side.context);
}

static void question_and_answer(void)
{
	struct side side = { .ping = true }, peer = { .echo = true };
	uint64_t start_ns;
	pid_t pid = start(&peer, &side);

	ok(run(&side, is_connected) && !side.ended, "connected");
	while (!(rk_stream_ready(side.stream) & RK_STREAM_WRITABLE))
		rk_context_process(side.context, 0);
	start_ns = rk_now_ns();
	rk_stream_write(side.stream, "question", 8, 0);
	ok(run(&side, has_all_rounds) && !side.ended, "%d round trips", ROUNDS);
	printf("# %.1f us each\n",
	       (double)(rk_now_ns() - start_ns) / 1e3 / ROUNDS);
	rk_stream_close(side.stream);
	run(&side, is_gone);
	ok(status_of(pid) == 0, "closed in order");
	rk_context_close(side.context);
}

static void killed_peer(void)
{
	struct side side = { .ping = true }, peer = { .echo = true };
	pid_t pid = start(&peer, &side);
	uint64_t start_ns;
	bool told;

	ok(run(&side, is_connected) && !side.ended, "connected");
	kill(pid, SIGKILL);
	start_ns = rk_now_ns();
	told = run(&side, has_ended);
	ok(told, "the end of a killed peer is told: %s",
	   rk_stream_error_text(side.stream));
	ok(rk_now_ns() - start_ns < 10 * RK_NS_PER_S, "soon");
	ok(side.error < 0, "as an error, %d", side.error);
	status_of(pid);
	rk_stream_close(side.stream);
	rk_context_close(side.context);
}

int main(int argc, char **argv)
{
	if (argc == 6 && !strcmp(argv[1], "--peer"))
		return peer_main(argv);
	make_patterns();
	both_ways_at_once(STEP, BYTES);
	both_ways_at_once(100, 4000000);
	question_and_answer();
	killed_peer();
	return ok_done();
}
