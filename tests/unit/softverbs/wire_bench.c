/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast records go between two processes that spin.  Not a test: run by
 * hand, on a machine with two free cores.
 */
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire_ends.h"

enum { LANES_MAX = 4096 };

struct bench {
	struct wire *wire;
	struct wire_link *link;
	struct wire_lane lane[LANES_MAX];
	unsigned lanes, opened;
	uint64_t taken, wanted;
	bool echo, over;
	uint8_t buffer[STAGE_CHUNK_BYTES];
};

static void pin(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void bench_message(void *user, struct wire_link *link,
			  const void *message, size_t bytes)
{
	struct bench *bench = user;
	unsigned count;

	if (bytes != sizeof(count))
		abort();
	memcpy(&count, message, sizeof(count));
	if (!wire_link_is_ours(link)) {
		bench->link = wire_get(link);
		for (unsigned i = 0; i < count; i++)
			if (lane_open(&bench->lane[i], link, i, 1))
				abort();
		if (wire_send(link, &count, sizeof(count)))
			abort();
	}
	bench->opened = count;
}

static void bench_lane(void *user, struct wire_lane *lane)
{
	struct bench *bench = user;
	bool any = false;
	int ret;

	while ((ret = ends_pop(lane, bench->buffer, sizeof(bench->buffer))) >=
	       0) {
		any = true;
		bench->taken++;
		if (bench->echo && ends_push(lane, bench->buffer, (size_t)ret))
			abort();
	}
	if (ret != -EAGAIN)
		abort();
	if (any && bench->echo)
		lane_flush(lane);
	if (any)
		lane_answer(lane);
}

static void bench_gone(void *user, struct wire_link *link)
{
	struct bench *bench = user;

	bench->over = true;
}

static const struct wire_handler handler = { bench_message, bench_lane,
					     bench_gone };

static void doze(struct bench *bench)
{
	struct pollfd poller = { .fd = wire_fd(bench->wire),
				 .events = POLLIN };

	if (!wire_sleep(bench->wire))
		poll(&poller, 1, -1);
	wire_wake(bench->wire);
}

static int consumer(int port_pipe, bool echo, bool sleepy)
{
	static struct bench bench;
	struct sockaddr_storage addr = ends_addr("127.0.0.1", 0);
	struct wire_listener *listener;
	uint16_t port;

	pin(1);
	bench.echo = echo;
	if (wire_open(&bench.wire, &handler, &bench) ||
	    wire_bind(bench.wire, (struct sockaddr *)&addr, false,
		      &listener) ||
	    wire_listen(listener, 1))
		abort();
	port = wire_listener_port(listener);
	if (write(port_pipe, &port, sizeof(port)) != sizeof(port))
		abort();
	while (!bench.over)
		if (!wire_pump(bench.wire, sleepy) && sleepy)
			doze(&bench);
	wire_close(bench.wire);
	return 0;
}

/* Start the other process and connect to it. */
static pid_t producer(struct bench *bench, unsigned lanes, bool echo,
		      bool sleepy)
{
	struct sockaddr_storage addr;
	uint16_t port;
	int fds[2];
	pid_t child;

	if (pipe(fds))
		abort();
	child = fork();
	if (!child)
		_exit(consumer(fds[1], echo, sleepy));
	if (read(fds[0], &port, sizeof(port)) != sizeof(port))
		abort();
	close(fds[0]);
	close(fds[1]);
	pin(0);
	memset(bench, 0, sizeof(*bench));
	addr = ends_addr("127.0.0.1", port);
	if (wire_open(&bench->wire, &handler, bench) ||
	    wire_connect(bench->wire, (struct sockaddr *)&addr, &bench->link))
		abort();
	for (unsigned i = 0; i < lanes; i++) {
		unsigned number;

		if (lane_reserve(bench->link, &number) ||
		    lane_open(&bench->lane[number], bench->link, number, 1))
			abort();
	}
	if (wire_send(bench->link, &lanes, sizeof(lanes)))
		abort();
	while (!bench->opened)
		wire_pump(bench->wire, true);
	return child;
}

static void run(const char *name, size_t bytes, unsigned lanes, uint64_t count,
		unsigned batch, bool echo, bool sleepy)
{
	static struct bench bench;
	static uint8_t payload[STAGE_CHUNK_BYTES];
	uint64_t start_ns, best_ns = UINT64_MAX, sent = 0;
	double ns;
	pid_t child = producer(&bench, lanes, echo, sleepy);

	start_ns = rk_now_ns();
	for (unsigned at = 0; sent < count; at = (at + 1) % lanes) {
		struct wire_lane *lane = &bench.lane[at];
		uint64_t one_ns = echo ? rk_now_ns() : 0;

		for (unsigned i = 0; i < batch && sent < count; i++) {
			if (ends_push(lane, payload, bytes))
				break;
			sent++;
		}
		lane_flush(lane);
		while (echo && bench.taken < sent)
			if (!wire_pump(bench.wire, sleepy) && sleepy)
				doze(&bench);
		if (echo)
			best_ns = rk_min(best_ns, rk_now_ns() - one_ns);
	}
	for (unsigned i = 0; i < lanes; i++)
		while (bench.lane[i].peer_acked < bench.lane[i].sequence)
			if (lane_refresh(&bench.lane[i]))
				abort();
	ns = (double)(rk_now_ns() - start_ns) / (double)count;
	for (unsigned i = 0; i < lanes; i++)
		lane_close(&bench.lane[i]);
	wire_put(bench.link);
	wire_close(bench.wire);
	waitpid(child, NULL, 0);
	if (echo)
		printf("%-38s half round trip mean %.0f ns, best %.0f ns\n",
		       name, ns / 2, (double)best_ns / 2);
	else
		printf("%-38s %.2f M records/s, %.2f GB/s\n", name, 1000 / ns,
		       (double)bytes / ns);
	fflush(stdout);
}

int main(void)
{
	run("16 B, 1 lane, one by one", 16, 1, 1000000, 1, false, false);
	run("16 B, 1 lane, batches of 16", 16, 1, 3000000, 16, false, false);
	run("64 B, 1 lane, batches of 16", 64, 1, 2000000, 16, false, false);
	run("900 B, 1 lane, batches of 4", 900, 1, 500000, 4, false, false);
	run("4 KiB staged, 1 lane, batches of 8", 4096, 1, 200000, 8, false,
	    false);
	run("16 KiB staged, 1 lane, batches of 8", 16384, 1, 60000, 8, false,
	    false);
	run("16 B, 4096 lanes, batches of 16", 16, 4096, 3000000, 16, false,
	    false);
	run("16 B ping-pong, spinning", 16, 1, 200000, 1, true, false);
	run("64 B ping-pong, spinning", 64, 1, 200000, 1, true, false);
	run("4 KiB ping-pong, spinning", 4096, 1, 100000, 1, true, false);
	run("16 B ping-pong, 4096 lanes", 16, 4096, 200000, 1, true, false);
	run("16 B ping-pong, always asleep", 16, 1, 10000, 1, true, true);
	return 0;
}
