/* SPDX-License-Identifier: BSD-3-Clause */
/* Links: messages, sleep and tokens, timers, the end of a peer. */
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "wire_ends.h"

static bool fd_is_readable(int fd)
{
	struct pollfd poller = { .fd = fd, .events = POLLIN };

	return poll(&poller, 1, 0) == 1;
}

static void messages_arrive_in_order_whatever_the_socket_takes(void)
{
	char out[WIRE_MESSAGE_MAX];
	unsigned sent = 0, queued;
	struct ends ends;
	int ret;

	ends_open(&ends);
	memset(out, 'm', sizeof(out));
	while (!(ret = wire_send(ends.active, out, sizeof(out))))
		sent++;
	queued = ends.active->queue_count;
	ok(ret == -ENOBUFS && queued == LINK_MESSAGES_MAX && sent > queued,
	   "%u messages wait for a peer that does not read, then ENOBUFS",
	   sent);
	ends.messages = 0;
	ends_settle(&ends);
	ok(ends.messages == sent && ends.last_bytes == sizeof(out),
	   "it gets all of them when it reads");
	ok(ends.active->queue_count == 0, "and the queue is empty");
	ok(!wire_send(ends.passive, "", 0), "an empty message");
	ends.last_bytes = 9;
	ends_settle(&ends);
	ok(ends.last_bytes == 0, "arrives too, in the other direction");
	ok(wire_send(ends.active, out, sizeof(out) + 1) == -EMSGSIZE,
	   "a longer one is EMSGSIZE");
	ends_close(&ends);
}

static void one_process_is_one_link(void)
{
	struct wire_link *again;
	struct ends ends;

	ends_open(&ends);
	ok(!ends_connect(&ends, "127.0.0.1",
			 wire_listener_port(ends.listener), &again),
	   "connecting again");
	ok(again == ends.active, "gives the link there is");
	wire_put(again);
	ends_settle(&ends);
	ok(wire_link_is_alive(ends.active) && ends.gone == 0,
	   "which does not suffer from the probe");
	ok(wire_link_pid(ends.active) == getpid() &&
		   wire_link_is_ours(ends.active) &&
		   !wire_link_is_ours(ends.passive),
	   "it knows who is who");
	ends_close(&ends);
}

static void a_sleeper_gets_one_token_per_sleep(void)
{
	struct wire_stats before, after;
	struct ends ends;

	ends_open(&ends);
	ends_open_lane(&ends);
	ok(!fd_is_readable(wire_fd(ends.wire)), "quiet");
	ok(!wire_sleep(ends.wire), "nothing to do: sleep");
	wire_stats_get(ends.wire, &before);
	for (int i = 0; i < 10; i++) {
		(void)!ends_push(&ends.a, "x", 1);
		lane_flush(&ends.a);
	}
	wire_stats_get(ends.wire, &after);
	ok(after.tokens_sent == before.tokens_sent + 1,
	   "ten records send one token");
	ok(fd_is_readable(wire_fd(ends.wire)), "the descriptor is readable");
	ends.lanes = 0;
	wire_pump(ends.wire, true);
	ok(ends.lanes == 1, "the lane is visited");
	ok(!fd_is_readable(wire_fd(ends.wire)), "quiet again");

	(void)!ends_push(&ends.a, "x", 1);
	lane_flush(&ends.a);
	ok(fd_is_readable(wire_fd(ends.wire)),
	   "the promise was renewed by the pump that took the token");
	wire_pump(ends.wire, true);
	wire_wake(ends.wire);
	wire_stats_get(ends.wire, &before);
	(void)!ends_push(&ends.a, "x", 1);
	lane_flush(&ends.a);
	wire_stats_get(ends.wire, &after);
	ok(after.tokens_sent == before.tokens_sent,
	   "who is awake gets no token");
	ok(wire_sleep(ends.wire), "but may not sleep: there is news");
	wire_wake(ends.wire);
	wire_pump(ends.wire, false);
	ok(!wire_sleep(ends.wire), "after a look at it, it may");
	ends_close(&ends);
}

static void a_disconnect_wakes_those_who_only_poll(void)
{
	struct record record = { .op = RECORD_DISCONNECT };
	struct ends ends;

	ends_open(&ends);
	ends_open_lane(&ends);
	ok(!lane_push(&ends.a, &record, NULL, 0), "a DISCONNECT record");
	lane_flush(&ends.a);
	ok(fd_is_readable(wire_fd(ends.wire)),
	   "makes the descriptor readable though nobody sleeps");
	ends_close(&ends);
}

static void many_idle_links_are_put_to_sleep(void)
{
	struct wire *wires[AWAKE_LINKS_FREE + 4];
	struct wire_link *links[AWAKE_LINKS_FREE + 4];
	const unsigned count = RK_ARRAY_SIZE(wires);
	struct sockaddr_storage addr;
	struct ends ends;
	unsigned asleep = 0;

	/* several devices of one process, all connected to the one of ends */
	ends_open(&ends);
	addr = ends_addr("127.0.0.1", wire_listener_port(ends.listener));
	for (unsigned i = 0; i < count; i++) {
		struct ends *user = &ends;

		if (wire_open(&wires[i], &ends_handler, user) ||
		    wire_connect(wires[i], (struct sockaddr *)&addr,
				 &links[i]))
			ok_or_die(false, "link %u", i);
		ends_settle(&ends);
		wire_pump(wires[i], true);
	}
	ends_open_lane(&ends);
	ok(ends.wire->awake_count == count + 2, "all are awake at first");
	for (unsigned i = 0; i < 2 * IDLE_PUMPS_MAX; i++)
		wire_pump(ends.wire, false);
	ok(ends.wire->awake_count == AWAKE_LINKS_FREE,
	   "after many idle pumps %u are", ends.wire->awake_count);
	asleep = !ends.active->awake + !ends.passive->awake;
	ok(asleep == 2, "the oldest two sleep");
	(void)!ends_push(&ends.a, "x", 1);
	lane_flush(&ends.a);
	ends.last_lane = NULL;
	for (unsigned i = 0; i < POLL_CREDIT + 1; i++)
		wire_pump(ends.wire, false);
	ok(ends.last_lane == &ends.b, "a record still arrives within %d pumps",
	   POLL_CREDIT);
	ok(ends.passive->awake, "and wakes its link");
	ok(!wire_sleep(ends.wire), "sleep");
	(void)!ends_push(&ends.b, "x", 1);
	lane_flush(&ends.b);
	ok(fd_is_readable(wire_fd(ends.wire)),
	   "one that was put to sleep before gets its token too");
	for (unsigned i = 0; i < count; i++) {
		wire_put(links[i]);
		wire_close(wires[i]);
	}
	ends_settle(&ends);
	ok(ends.gone == count, "each is told gone, once");
	ends_close(&ends);
}

static void what_was_sent_before_the_end_is_delivered(void)
{
	struct sockaddr_storage addr;
	struct wire_lane far, near;
	struct wire_link *link;
	struct wire *other;
	struct ends ends;
	unsigned number;
	uint8_t in[8];

	ends_open(&ends);
	wire_put(ends.passive);
	ends.passive = NULL;
	addr = ends_addr("127.0.0.1", wire_listener_port(ends.listener));
	if (wire_open(&other, &ends_handler, &ends) ||
	    wire_connect(other, (struct sockaddr *)&addr, &link) ||
	    wire_send(link, "one", 3))
		ok_or_die(false, "a second device");
	ends_settle(&ends);
	wire_pump(other, true);
	if (!ends.passive || lane_reserve(link, &number) ||
	    lane_open(&far, link, number, 1) ||
	    lane_open(&near, ends.passive, number, 1) ||
	    ends_push(&far, "last", 4) || wire_send(link, "two", 3))
		ok_or_die(false, "last words");
	ends_settle(&ends);
	ends.messages = ends.lanes = 0;
	lane_flush(&far);
	lane_close(&far);
	if (wire_send(link, "three", 5))
		ok_or_die(false, "last words");
	wire_put(link);
	wire_close(other);
	ends_settle(&ends);
	ok(ends.messages == 1 && ends.last_bytes == 5,
	   "the last message arrives");
	ok(ends.lanes >= 1 && ends.last_lane == &near,
	   "the lane is offered once more");
	ok(ends.gone == 1 && ends.last_gone == ends.passive,
	   "then the peer is gone");
	ok(!wire_link_is_alive(ends.passive), "and the link says so");
	ok(ends_pop(&near, in, sizeof(in)) == 4 && !memcmp(in, "last", 4),
	   "its last record can be read after that");
	ok(wire_send(ends.passive, "x", 1) == -EPIPE, "no more messages");
	errno = 0;
	ok(!wire_mem_alloc(ends.wire, ends.passive, 4096, ENDS_ALL) &&
		   errno == EPIPE,
	   "no more memory for it");
	lane_close(&near);
	ends_close(&ends);
}

static void an_unused_link_is_kept_for_a_while(void)
{
	uint64_t until_ns = rk_now_ns() + 5 * RK_NS_PER_S;
	struct wire_link *link;
	struct ends ends;

	ends_open(&ends);
	ends.wire->linger_ns = 1000 * RK_NS_PER_S;
	link = ends.active;
	wire_put(ends.active);
	ends_settle(&ends);
	ok(wire_link_is_alive(ends.passive), "nobody uses it, it stays");
	ok(!ends_connect(&ends, "127.0.0.1",
			 wire_listener_port(ends.listener), &ends.active) &&
		   ends.active == link,
	   "and is found again");
	ends.wire->linger_ns = RK_NS_PER_MS;
	wire_put(ends.active);
	ends.active = NULL;
	while (!ends.gone && rk_now_ns() < until_ns) {
		struct pollfd poller = { .fd = wire_fd(ends.wire),
					 .events = POLLIN };

		poll(&poller, 1, 1000);
		ends_settle(&ends);
	}
	ok(ends.gone == 1, "in the end it is closed, and the peer told");
	ends_close(&ends);
}

static void who_says_nothing_is_dropped(void)
{
	uint64_t until_ns = rk_now_ns() + 5 * RK_NS_PER_S;
	struct port_address address;
	struct sockaddr_storage addr;
	struct sockaddr_un name;
	struct wire_stats stats;
	struct ends ends;
	socklen_t bytes;
	char byte;
	int fd;

	ends_open(&ends);
	ends.wire->hello_ns = RK_NS_PER_MS;
	addr = ends_addr("127.0.0.1", wire_listener_port(ends.listener));
	if (port_parse((struct sockaddr *)&addr, &address))
		ok_or_die(false, "parse");
	bytes = port_name(&address, false, &name);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
	ok(!connect(fd, (struct sockaddr *)&name, bytes), "a silent client");
	ends_settle(&ends);
	wire_stats_get(ends.wire, &stats);
	while (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 &&
	       rk_now_ns() < until_ns) {
		struct pollfd poller = { .fd = wire_fd(ends.wire),
					 .events = POLLIN };

		poll(&poller, 1, 1000);
		ends_settle(&ends);
	}
	ok(recv(fd, &byte, 1, MSG_DONTWAIT) == 0, "is hung up on");
	ok(ends.gone == 0, "and nobody hears of it");
	close(fd);
	ends_close(&ends);
}

/* ---- timers ------------------------------------------------------------ */

struct shot {
	struct wire_timer timer;
	struct wire *wire;
	unsigned order;
	bool again;
};

static unsigned shots;

static void shot_fire(struct wire_timer *timer)
{
	struct shot *shot = rk_container_of(timer, struct shot, timer);

	shot->order = ++shots;
	if (shot->again) {
		shot->again = false;
		wire_timer_set(shot->wire, timer, 1);
	}
}

static void timers_fire_once_in_order(void)
{
	uint64_t until_ns = rk_now_ns() + 5 * RK_NS_PER_S;
	uint64_t now_ns = rk_now_ns();
	struct shot shot[5];
	struct ends ends;

	memset(shot, 0, sizeof(shot));
	memset(&ends, 0, sizeof(ends));
	if (wire_open(&ends.wire, &ends_handler, &ends))
		ok_or_die(false, "a wire");
	for (int i = 0; i < 5; i++) {
		shot[i].timer.fire = shot_fire;
		shot[i].wire = ends.wire;
	}
	wire_timer_set(ends.wire, &shot[0].timer, now_ns + 3 * RK_NS_PER_MS);
	wire_timer_set(ends.wire, &shot[1].timer, now_ns + 1 * RK_NS_PER_MS);
	wire_timer_set(ends.wire, &shot[2].timer, now_ns + 2 * RK_NS_PER_MS);
	wire_timer_set(ends.wire, &shot[3].timer, now_ns + 1 * RK_NS_PER_MS);
	wire_timer_set(ends.wire, &shot[4].timer, now_ns + RK_NS_PER_S * 999);
	wire_timer_cancel(ends.wire, &shot[3].timer);
	wire_timer_cancel(ends.wire, &shot[3].timer);
	wire_timer_set(ends.wire, &shot[2].timer, now_ns + 9 * RK_NS_PER_MS);
	shot[0].again = true;
	while (shots < 4 && rk_now_ns() < until_ns) {
		struct pollfd poller = { .fd = wire_fd(ends.wire),
					 .events = POLLIN };

		poll(&poller, 1, 1000);
		wire_pump(ends.wire, true);
	}
	ok(shots == 4, "four shots of three timers");
	ok(shot[1].order == 1 && !shot[3].order && !shot[4].order,
	   "the earliest first; not the cancelled, not the one far away");
	ok(shot[0].order > 1 && shot[2].order > 1 &&
		   shot[0].order != shot[2].order,
	   "one set again from its own shot fires again");
	ok(!shot[1].timer.at_ns, "a timer that fired is not set");
	ends_close(&ends);
}

int main(void)
{
	messages_arrive_in_order_whatever_the_socket_takes();
	one_process_is_one_link();
	a_sleeper_gets_one_token_per_sleep();
	a_disconnect_wakes_those_who_only_poll();
	many_idle_links_are_put_to_sleep();
	what_was_sent_before_the_end_is_delivered();
	an_unused_link_is_kept_for_a_while();
	who_says_nothing_is_dropped();
	timers_fire_once_in_order();
	ok(rk_alloc_live() == 0, "nothing is left allocated");
	return ok_done();
}
