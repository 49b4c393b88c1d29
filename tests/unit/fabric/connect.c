/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections on the software device come, are refused, and go. */
#include <sys/epoll.h>
#include <unistd.h>

#include "world.h"

static char last_line[600];

static void remember(enum rk_log_level level, const char *line)
{
	if (level >= RK_LOG_WARNING)
		snprintf(last_line, sizeof(last_line), "%s", line);
}

static void both_sides_come_up(void)
{
	struct sockaddr_storage local, remote;
	struct rk_context_info info;
	struct world w;

	world_up(&w);
	ok(w.a.established == 1 && w.b.established == 1, "once each");
	ok(w.a.private_bytes == 196 && !strcmp(w.a.private_data, "welcome"),
	   "the reply's private data, padded to 196 bytes");
	ok(w.requests == 1 && !strcmp(w.request_data, "hello"),
	   "the request's private data");
	ok(rk_conn_peer_rnr_retry(w.a.conn) == 7 &&
		   rk_conn_peer_rnr_retry(w.b.conn) == 7,
	   "each knows the other's RNR count");
	ok(rk_conn_inline_bytes(w.a.conn) >= 64 &&
		   rk_conn_pieces_max(w.a.conn) >= 1,
	   "inline bytes and pieces are known");
	ok(!rk_conn_address(w.a.conn, true, &remote) &&
		   ((struct sockaddr_in *)&remote)->sin_port == w.addr.sin_port,
	   "the peer's address is the listener's");
	ok(!rk_conn_address(w.b.conn, false, &local) &&
		   ((struct sockaddr_in *)&local)->sin_port == w.addr.sin_port,
	   "and the passive side's own");
	rk_context_info_get(w.context[0], &info);
	ok(info.connections == 1 && info.software && info.errors == 0 &&
		   info.bytes_registered >= WORLD_TARGET_BYTES &&
		   !strcmp(info.device, "soft"),
	   "the context counts");
	ok(w.lost_wakeups == 0, "every event woke its sleeper");
	world_close(&w);
}

/* A program's event loop may be an epoll set inside another one. */
static void the_descriptor_nests(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	int inner = epoll_create1(EPOLL_CLOEXEC);
	struct world w;

	world_up(&w);
	ok(!epoll_ctl(inner, EPOLL_CTL_ADD, rk_context_fd(w.context[1]),
		      &event),
	   "the descriptor goes into an epoll set");
	while (world_run(&w) || rk_context_arm(w.context[1]))
		;
	ok(epoll_wait(inner, &event, 1, 0) == 0, "where it is quiet");
	ok(!world_send(&w.a, 0), "until something comes");
	ok(epoll_wait(inner, &event, 1, 2000) == 1, "which it says");
	ok(world_until(&w, w.b.received == 1), "and which is there");
	world_close(&w);
	close(inner);
}

static void over_ipv6(void)
{
	struct sockaddr_in6 addr = { .sin6_family = AF_INET6,
				     .sin6_addr = IN6ADDR_LOOPBACK_INIT,
				     .sin6_port = world_port };
	struct rk_listener *listener;
	struct world w;
	int ret;

	world_open(&w);
	ret = rk_fabric_listen(w.context[1], (struct sockaddr *)&addr, 0,
			       &world_listen_handler, &w, &listener);
	if (ret == -EADDRNOTAVAIL) {
		ok(true, "# SKIP this host has no IPv6");
		world_close(&w);
		return;
	}
	ok_or_die(!ret, "listen on [::1]");
	addr.sin6_port = htons(rk_listener_port(listener));
	ok(!rk_fabric_connect(w.context[0], (struct sockaddr *)&addr, NULL,
			      &w.params[0], NULL, 0, 0, &world_handler, &w.a,
			      &w.a.conn) &&
		   world_until(&w, w.a.established && w.b.established),
	   "and connect to it");
	rk_listener_destroy(listener);
	ok(!world_send(&w.a, 0) && world_until(&w, w.b.received == 1),
	   "the connection outlives its listener");
	world_close(&w);
}

static void an_orderly_end(void)
{
	struct world w;

	world_up(&w);
	ok(rk_conn_disconnect(w.a.conn) == 0 && w.a.closed == 0,
	   "disconnect only starts the end");
	ok(world_send(&w.a, 0) == -ENOTCONN, "nothing can be sent from there");
	ok(world_until(&w, w.a.closed && w.b.closed), "both are told");
	ok(w.a.reason == RK_CLOSE_LOCAL && w.b.reason == RK_CLOSE_PEER,
	   "LOCAL here, PEER there");
	ok(rk_conn_disconnect(w.b.conn) == -ENOTCONN, "it is over");
	world_run(&w);
	ok(w.a.closed == 1 && w.b.closed == 1, "told once");
	world_close(&w);
}

static void last_words_come_before_the_end(void)
{
	struct world w;

	world_up(&w);
	for (uint32_t number = 0; number < 20; number++)
		if (world_send(&w.a, number))
			break;
	/* the receiver does not run: all waits in its queue */
	while (w.a.sent < 20 && !w.a.closed)
		rk_context_process(w.context[0], 0);
	rk_conn_disconnect(w.a.conn);
	for (unsigned n = 0; n < 1000; n++)
		rk_context_process(w.context[0], 0);
	ok(world_until(&w, w.b.closed), "the receiver is told of the end");
	ok(w.b.received == 20 && !w.b.out_of_order &&
		   w.b.reason == RK_CLOSE_PEER,
	   "after all that was sent before it");
	world_close(&w);
}

static void refusals_say_why(void)
{
	struct world w;

	world_open(&w);
	w.answer = REJECT;
	ok(world_connect(&w, 0) == 0 && !w.a.closed, "connect only starts");
	ok(world_until(&w, w.a.closed) && w.a.reason == RK_CLOSE_REJECTED &&
		   w.a.status == 28,
	   "a program's rejection is reason 28");
	ok(strstr(last_line, "not today"), "its words are logged: %s",
	   last_line);
	rk_conn_destroy(w.a.conn);
	w.a.conn = NULL;

	rk_listener_destroy(w.listener);
	w.listener = NULL;
	ok(world_connect(&w, 0) == 0, "connect to a port nobody has any more");
	ok(world_until(&w, w.a.closed == 2) &&
		   w.a.reason == RK_CLOSE_UNREACHABLE &&
		   w.a.status == -ECONNREFUSED,
	   "nobody listens: UNREACHABLE, connection refused");
	ok(strstr(last_line, "nobody listens"), "logged: %s", last_line);
	rk_conn_destroy(w.a.conn);
	w.a.conn = NULL;

	w.addr.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1 */
	ok(world_connect(&w, 500) == 0, "connect to a host that is not there");
	ok(world_until(&w, w.a.closed == 3) &&
		   w.a.reason == RK_CLOSE_UNREACHABLE && w.a.status < 0,
	   "UNREACHABLE: %s", strerror(-w.a.status));
	world_close(&w);
}

static void time_outs_are_kept(void)
{
	uint64_t start_ns, took_ms;
	struct world w;

	world_open(&w);
	w.answer = NO_ANSWER;
	start_ns = rk_now_ns();
	ok(world_connect(&w, 150) == 0, "connect to one who does not answer");
	ok(world_until(&w, w.a.closed), "it ends");
	took_ms = (rk_now_ns() - start_ns) / RK_NS_PER_MS;
	ok(w.a.reason == RK_CLOSE_UNREACHABLE && w.a.status == -ETIMEDOUT,
	   "as timed out");
	ok(took_ms >= 149 && took_ms < 2000, "after %llu ms",
	   (unsigned long long)took_ms);
	ok(w.unanswered != NULL, "the request had come");
	rk_conn_destroy(w.a.conn);
	w.a.conn = NULL;
	/* nobody sleeps here, so the event channel is looked at rarely */
	for (unsigned n = 0; n < 2000; n++)
		world_run(&w);
	ok(rk_conn_accept(w.unanswered, &w.params[1], NULL, 0, &world_handler,
			  &w.b) == -ECONNRESET,
	   "accepting it afterwards says that the peer gave up");
	world_close(&w);
}

static void nonsense_is_refused(void)
{
	struct rk_conn *conn;
	struct world w;
	struct rk_mem mem;

	world_open(&w);
	w.params[0].send_depth = 0;
	ok(world_connect(&w, 0) == -EINVAL, "no send queue");
	w.params[0].send_depth = 8193;
	ok(world_connect(&w, 0) == -EINVAL, "too deep a send queue");
	w.params[0].send_depth = 1;
	ok(rk_fabric_connect(w.context[0], (struct sockaddr *)&w.addr, NULL,
			     &w.params[0], w.request_data, 57, 0,
			     &world_handler, &w.a, &conn) == -EINVAL &&
		   !conn,
	   "57 bytes of private data in a request");
	ok(rk_mem_alloc(w.context[0], NULL, 4096, RK_REMOTE_WRITE, &mem) ==
		   -EINVAL,
	   "remote memory for nobody");
	ok(rk_mem_alloc(w.context[0], NULL, 0, 0, &mem) == -EINVAL,
	   "memory of no bytes");
	world_close(&w);
}

static void many_connections_share_a_context(void)
{
	enum { COUNT = 100 };
	static struct end ends[COUNT];
	struct rk_context_info info;
	unsigned up = 0;
	struct world w;
	int ret = 0;

	memset(ends, 0, sizeof(ends));
	world_open(&w);
	/* more than the first completion queue can hold */
	w.params[0].receive_depth = w.params[1].receive_depth = 1024;
	for (unsigned i = 0; i < COUNT && !ret; i++) {
		ret = rk_fabric_connect(w.context[0],
					(struct sockaddr *)&w.addr, NULL,
					&w.params[0], "hello", 6, 0,
					&world_handler, &ends[i],
					&ends[i].conn);
		if (!world_until(&w, ends[i].established || ends[i].closed))
			break;
		up += ends[i].established;
		rk_mem_free(w.context[1], &w.b.target);
	}
	ok(up == COUNT, "%u connections of 1024 receives", up);
	rk_context_info_get(w.context[1], &info);
	ok(info.connections == COUNT, "all are counted");
	ok(fabric_context_of(w.context[1])->cq_count > 1,
	   "their completions cannot overrun: %u queues",
	   fabric_context_of(w.context[1])->cq_count);
	w.b.conn = NULL; /* the context closes them */
	for (unsigned i = 0; i < COUNT; i++)
		rk_conn_destroy(ends[i].conn);
	world_close(&w);
}

static void all(void)
{
	both_sides_come_up();
	the_descriptor_nests();
	over_ipv6();
	an_orderly_end();
	last_words_come_before_the_end();
	refusals_say_why();
	time_outs_are_kept();
	nonsense_is_refused();
	many_connections_share_a_context();
}

int main(void)
{
	long live;

	rk_log_set_sink(remember);
	all();
	live = rk_alloc_live(); /* the device itself stays */
	all();
	ok(rk_alloc_live() <= live, "nothing more is left: %ld, before %ld",
	   rk_alloc_live(), live);
	return ok_done();
}
