/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes: a child that listens and sends back what it gets, and its
 * parent.  The child is forked before either has a device.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

enum { MESSAGES = 2000 };

/* ---- the child --------------------------------------------------------- */

static void echo(struct rk_conn *conn, const void *message, uint32_t bytes)
{
	struct rk_piece piece = { message, bytes, 0 };

	if (rk_conn_send(conn, &piece, 1, RK_INLINE, 0))
		rk_conn_disconnect(conn);
}

static void ignore_established(struct rk_conn *conn, const void *data,
			       size_t bytes)
{
}

static void ignore_written(struct rk_conn *conn, uint32_t immediate,
			   uint32_t bytes)
{
}

static void ignore_sent(struct rk_conn *conn, uint64_t token)
{
}

static void ignore_writable(struct rk_conn *conn)
{
}

static void destroy_closed(struct rk_conn *conn, enum rk_close_reason reason,
			   int status)
{
	rk_conn_destroy(conn);
}

static const struct rk_conn_handler echo_handler = {
	.established = ignore_established,
	.received = echo,
	.written = ignore_written,
	.sent = ignore_sent,
	.writable = ignore_writable,
	.closed = destroy_closed,
};

static void accept_echo(void *user, struct rk_conn *conn, const void *data,
			size_t bytes)
{
	struct world *w = user;

	if (rk_conn_accept(conn, &w->params[1], NULL, 0, &echo_handler, w))
		rk_conn_destroy(conn);
}

static void child(int port_fd)
{
	static const struct rk_listen_handler handler = { accept_echo };
	static const struct rk_context_params params = {
		.device = "soft",
		.completion_vector = -1,
	};
	struct pollfd pollfd = { .events = POLLIN };
	struct rk_context *context;
	struct rk_listener *listener;
	struct world w;
	uint16_t port;

	alarm(60); /* in case the parent does not kill us */
	world_init(&w);
	w.params[1].send_depth = 256; /* for all that may be on its way */
	if (rk_context_open(&context, &params) ||
	    rk_fabric_listen(context, (struct sockaddr *)&w.addr, 0, &handler,
			     &w, &listener))
		_exit(1);
	port = rk_listener_port(listener);
	if (write(port_fd, &port, sizeof(port)) != sizeof(port))
		_exit(1);
	pollfd.fd = rk_context_fd(context);
	for (;;) {
		if (rk_context_process(context, 0) || rk_context_arm(context))
			continue;
		poll(&pollfd, 1, 100);
	}
}

/* ---- the parent -------------------------------------------------------- */

struct pair {
	struct world w; /* only its first context and its end a are used */
	pid_t pid;
	in_port_t port;
};

static void step(struct pair *p)
{
	struct pollfd pollfd = { .events = POLLIN };

	if (rk_context_process(p->w.context[0], 0) ||
	    rk_context_arm(p->w.context[0]))
		return;
	pollfd.fd = rk_context_fd(p->w.context[0]);
	if (poll(&pollfd, 1, WORLD_SLEEP_MS) == 0 &&
	    rk_context_process(p->w.context[0], 0))
		p->w.lost_wakeups++;
}

#define until(p, cond)                                                         \
	({                                                                     \
		uint64_t end_ns_ = rk_now_ns() + 8 * RK_NS_PER_S;              \
		while (!(cond) && rk_now_ns() < end_ns_)                       \
			step(p);                                               \
		(cond);                                                        \
	})

static void start_child(struct pair *p)
{
	int port_fd[2];
	uint16_t port = 0;

	if (pipe(port_fd))
		abort();
	p->pid = fork();
	if (!p->pid)
		child(port_fd[1]);
	close(port_fd[1]);
	ok_or_die(read(port_fd[0], &port, sizeof(port)) == sizeof(port),
		  "a child listens");
	close(port_fd[0]);
	p->port = htons(port);
}

static void start(struct pair *p)
{
	static const struct rk_context_params params = {
		.device = "soft",
		.completion_vector = -1,
	};

	world_init(&p->w);
	p->w.addr.sin_port = p->port;
	ok_or_die(!rk_context_open(&p->w.context[0], &params) &&
			  !world_connect(&p->w, 0) &&
			  until(p, p->w.a.established),
		  "and is connected with");
}

static void stop(struct pair *p)
{
	rk_conn_destroy(p->w.a.conn);
	rk_context_close(p->w.context[0]);
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
}

static void messages_come_back(struct pair *p)
{
	uint64_t end_ns = rk_now_ns() + 8 * RK_NS_PER_S;
	uint32_t next = 0;

	while (p->w.a.received < MESSAGES && !p->w.a.closed) {
		while (next < MESSAGES && next - p->w.a.received < 16 &&
		       !world_send(&p->w.a, next))
			next++;
		if (rk_now_ns() > end_ns)
			break;
		step(p);
	}
	ok(p->w.a.received == MESSAGES && !p->w.a.out_of_order,
	   "%u messages come back in order", p->w.a.received);
	ok(p->w.lost_wakeups == 0, "every event woke its sleeper");
}

static void an_idle_killed_peer_is_noticed(struct pair *p)
{
	kill(p->pid, SIGKILL);
	ok(until(p, p->w.a.closed), "a killed peer is noticed");
	ok(p->w.a.closed == 1 && p->w.a.reason == RK_CLOSE_ERROR,
	   "as an error: reason %d", p->w.a.reason);
}

static void a_peer_killed_under_load_is_noticed(struct pair *p)
{
	uint32_t next = 0;

	while (p->w.a.received < 100 && !p->w.a.closed) {
		if (!world_send(&p->w.a, next))
			next++;
		step(p);
	}
	kill(p->pid, SIGKILL);
	while (next < 1000000 && world_send(&p->w.a, next) != -ENOTCONN &&
	       !p->w.a.closed) {
		next++;
		rk_context_process(p->w.context[0], 0);
	}
	ok(until(p, p->w.a.closed) && p->w.a.reason == RK_CLOSE_ERROR,
	   "a peer killed under load: error %d", p->w.a.status);
	ok(!p->w.a.out_of_order, "what came before it was whole");
}

static void a_stopped_peer_does_not_stop_us(struct pair *p)
{
	uint64_t start_ns, worst_ns = 0, took_ns;
	uint32_t sent = 0;

	kill(p->pid, SIGSTOP);
	for (unsigned n = 0; n < 1000; n++) {
		start_ns = rk_now_ns();
		if (!world_send(&p->w.a, sent))
			sent++;
		rk_context_process(p->w.context[0], 0);
		took_ns = rk_now_ns() - start_ns;
		worst_ns = rk_max(worst_ns, took_ns);
	}
	ok(sent >= 1 && sent <= 64 + 36 && !p->w.a.closed,
	   "a stopped peer: its receives and our sends fill, no more (%u)",
	   sent);
	ok(worst_ns < 200 * RK_NS_PER_MS, "no call took long: %llu us",
	   (unsigned long long)(worst_ns / 1000));
	kill(p->pid, SIGCONT);
	ok(until(p, p->w.a.received == sent) && !p->w.a.out_of_order,
	   "all goes on when it does");
}

int main(void)
{
	static void (*const tests[])(struct pair * p) = {
		messages_come_back,
		an_idle_killed_peer_is_noticed,
		a_peer_killed_under_load_is_noticed,
		a_stopped_peer_does_not_stop_us,
	};
	struct pair pairs[RK_ARRAY_SIZE(tests)] = { 0 };

	rk_log_set_level(RK_LOG_ERROR);
	/* a child that is forked later has no device */
	for (unsigned i = 0; i < RK_ARRAY_SIZE(tests); i++)
		start_child(&pairs[i]);
	for (unsigned i = 0; i < RK_ARRAY_SIZE(tests); i++) {
		start(&pairs[i]);
		tests[i](&pairs[i]);
		stop(&pairs[i]);
	}
	return ok_done();
}
