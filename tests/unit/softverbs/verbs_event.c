/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion events: one per arming, for what comes after it, of the kind that
 * was asked for; and none is ever lost, whoever sleeps.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include "verbs_peer.h"

static const struct rk_verbs_table *v;

static bool readable(int fd, int timeout_ms)
{
	struct pollfd waited = { .fd = fd, .events = POLLIN };

	return poll(&waited, 1, timeout_ms) == 1;
}

static void make_nonblocking(struct end *end)
{
	fcntl(end->channel->fd, F_SETFL,
	      fcntl(end->channel->fd, F_GETFL) | O_NONBLOCK);
}

/* Is there an event now?  Takes and acknowledges it. */
static struct ibv_cq *take_event(struct end *end)
{
	struct ibv_cq *cq;
	void *context;

	if (v->get_cq_event(end->channel, &cq, &context))
		return NULL;
	if (context != end)
		return NULL;
	v->ack_cq_events(cq, 1);
	return cq;
}

static void one_event_per_arming(void)
{
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ 0 });
	make_nonblocking(&p.b);
	for (int i = 0; i < 4; i++)
		receive(&p.b, 1, 0, 64);
	device_pump(true);
	send_at(&p.a, 1, 0, 8, 0);
	device_pump(true);
	ok(!take_event(&p.b) && errno == EAGAIN, "not armed, no event");
	ibv_req_notify_cq(p.b.recv_cq, 0);
	ok(!take_event(&p.b), "none for what was there before arming");
	send_at(&p.a, 2, 0, 8, 0);
	send_at(&p.a, 3, 0, 8, 0);
	ok(readable(p.b.channel->fd, 1000), "armed, the descriptor wakes");
	ok(take_event(&p.b) == p.b.recv_cq, "for the queue that has news");
	ok(!take_event(&p.b), "once, though two came");
	ok(ibv_poll_cq(p.b.recv_cq, 1, &wc) == 1 &&
		   ibv_poll_cq(p.b.recv_cq, 1, &wc) == 1 &&
		   ibv_poll_cq(p.b.recv_cq, 1, &wc) == 1, "all three are in");
	ok(!readable(p.b.channel->fd, 0), "the descriptor is quiet again");
	pair_close(&p);
}

static void the_arming_race_is_closed(void)
{
	struct pair p;

	pair_open(&p, &(struct pair_options){ 0 });
	make_nonblocking(&p.b);
	receive(&p.b, 1, 0, 64);
	device_pump(true);
	/* published, but nobody looked yet: it comes "after" arming */
	send_at(&p.a, 1, 0, 8, 0);
	ibv_req_notify_cq(p.b.recv_cq, 0);
	ok(readable(p.b.channel->fd, 1000) && take_event(&p.b),
	   "a record that waits while arming makes an event");
	pair_close(&p);
}

static void solicited_only(void)
{
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	make_nonblocking(&p.b);
	for (int i = 0; i < 8; i++)
		receive(&p.b, 1, 0, 64);
	device_pump(true);
	ibv_req_notify_cq(p.b.recv_cq, 1);
	send_at(&p.a, 1, 0, 8, 0);
	ok(poll_one(p.b.recv_cq).status == IBV_WC_SUCCESS &&
		   !take_event(&p.b), "an ordinary send makes no event");
	access_at(&p.a, &p.b, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 8, 0);
	ok(poll_one(p.b.recv_cq).status == IBV_WC_SUCCESS &&
		   !take_event(&p.b), "nor an ordinary write with immediate");
	send_at(&p.a, 3, 0, 8, IBV_SEND_SOLICITED);
	ok(take_event(&p.b) == p.b.recv_cq, "a solicited send does");
	ibv_req_notify_cq(p.b.recv_cq, 1);
	access_at(&p.a, &p.b, IBV_WR_RDMA_WRITE_WITH_IMM, 4, 0, 8,
		  IBV_SEND_SOLICITED);
	ok(take_event(&p.b) == p.b.recv_cq, "and a solicited write");
	ibv_req_notify_cq(p.b.recv_cq, 1);
	ibv_req_notify_cq(p.b.recv_cq, 0);
	send_at(&p.a, 5, 0, 8, 0);
	ok(take_event(&p.b) == p.b.recv_cq, "arming for any upgrades");
	ibv_req_notify_cq(p.b.recv_cq, 0);
	ibv_req_notify_cq(p.b.recv_cq, 1);
	send_at(&p.a, 6, 0, 8, 0);
	ok(take_event(&p.b) == p.b.recv_cq, "arming for solicited never less");
	while (ibv_poll_cq(p.b.recv_cq, 1, &wc) == 1)
		;
	ibv_req_notify_cq(p.b.recv_cq, 1);
	modify_state(p.b.qp, IBV_QPS_ERR);
	ok(take_event(&p.b) == p.b.recv_cq, "an error always counts");
	pair_close(&p);
}

static void two_queues_on_one_channel(void)
{
	struct pair p;
	struct ibv_cq *first, *second;

	pair_open(&p, &(struct pair_options){ .sig_all = true });
	make_nonblocking(&p.a);
	receive(&p.a, 1, 0, 64);
	receive(&p.b, 1, 0, 64);
	device_pump(true);
	ibv_req_notify_cq(p.a.send_cq, 0);
	ibv_req_notify_cq(p.a.recv_cq, 0);
	send_at(&p.a, 1, 0, 8, 0);
	send_at(&p.b, 1, 0, 8, 0);
	first = take_event(&p.a);
	second = take_event(&p.a);
	ok(first == p.a.send_cq && second == p.a.recv_cq,
	   "each reports for itself, in the order of its news");
	ok(!take_event(&p.a), "once");
	pair_close(&p);
}

/* ---- destroying waits for acknowledgements ---------------------------- */

static bool destroyed;

static void *destroy(void *cq)
{
	v->destroy_cq(cq);
	__atomic_store_n(&destroyed, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void destroy_waits_for_the_ack(void)
{
	struct pair p;
	struct ibv_cq *cq, *mine;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp;
	struct ibv_recv_wr wr = { 0 }, *bad;
	void *context;
	pthread_t thread;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	pair_open(&p, &(struct pair_options){ 0 });
	mine = v->create_cq(p.a.context, 8, &p.a, p.a.channel, 0);
	init.send_cq = init.recv_cq = mine;
	qp = v->create_qp(p.a.pd, &init);
	v->modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	ibv_post_recv(qp, &wr, &bad);
	ibv_req_notify_cq(mine, 0);
	modify_state(qp, IBV_QPS_ERR);
	ok(!v->get_cq_event(p.a.channel, &cq, &context) && cq == mine,
	   "an event is taken");
	ok(v->destroy_cq(mine) == EBUSY, "a queue in use is not destroyed");
	v->destroy_qp(qp);
	pthread_create(&thread, NULL, destroy, mine);
	usleep(20000);
	ok(!__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST),
	   "destroying waits while it is not acknowledged");
	v->ack_cq_events(mine, 1);
	pthread_join(thread, NULL);
	ok(destroyed, "and returns after");
	pair_close(&p);
}

static void *destroy_qp(void *qp)
{
	v->destroy_qp(qp);
	__atomic_store_n(&destroyed, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void a_queue_pair_waits_for_the_ack_too(void)
{
	struct ibv_async_event event;
	struct end beyond;
	struct pair p;
	pthread_t thread;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	beyond = p.b;
	beyond.mem += beyond.mem_bytes;
	access_at(&p.a, &beyond, IBV_WR_RDMA_WRITE, 1, 0, 8, 0);
	device_pump(true);
	ok(!v->get_async_event(p.b.context, &event) &&
		   event.element.qp == p.b.qp, "an async event is taken");
	destroyed = false;
	pthread_create(&thread, NULL, destroy_qp, p.b.qp);
	usleep(20000);
	ok(!__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST),
	   "its queue pair is not destroyed before it is acknowledged");
	v->ack_async_event(&event);
	pthread_join(thread, NULL);
	ok(destroyed, "but after");
	p.b.qp = NULL;
	fcntl(p.a.context->async_fd, F_SETFL, O_NONBLOCK);
	ok(v->get_async_event(p.a.context, &event) && errno == EAGAIN,
	   "no event, non-blocking: EAGAIN");
	fcntl(p.a.context->async_fd, F_SETFL, 0);
	pair_close(&p);
}

static void an_event_nobody_took_goes_with_its_queue(void)
{
	struct pair p;

	pair_open(&p, &(struct pair_options){ 0 });
	make_nonblocking(&p.b);
	receive(&p.b, 1, 0, 64);
	ibv_req_notify_cq(p.b.recv_cq, 0);
	modify_state(p.b.qp, IBV_QPS_ERR);
	ok(readable(p.b.channel->fd, 0), "an event waits");
	v->destroy_qp(p.b.qp);
	p.b.qp = NULL;
	v->destroy_cq(p.b.recv_cq);
	device_pump(true);
	ok(!readable(p.b.channel->fd, 0), "and is gone with its queue");
	p.b.recv_cq = v->create_cq(p.b.context, 1, &p.b, NULL, 0);
	pair_close(&p);
}

/* ---- nobody sleeps for ever ------------------------------------------- */

enum { ROUNDS = 4000, ROUND_MS = 3000 };

static unsigned random_state = 1;

/* Mostly nothing, sometimes long enough for the other side to fall asleep. */
static void dawdle(void)
{
	unsigned turns;

	random_state = random_state * 1103515245 + 12345;
	turns = (random_state >> 16) % 64;
	for (unsigned i = 0; turns < 40 && i < turns * 50; i++)
		rk_pause();
}

/* The next completion, found as event driven programs do: arm, poll until
 * empty, sleep on the descriptor. */
static bool sleep_for_one(struct end *end, struct ibv_wc *wc)
{
	struct ibv_cq *cq;
	void *context;
	int got;

	for (;;) {
		got = ibv_poll_cq(end->recv_cq, 1, wc);
		if (got)
			return got == 1 && wc->status == IBV_WC_SUCCESS;
		ibv_req_notify_cq(end->recv_cq, 0);
		dawdle();
		got = ibv_poll_cq(end->recv_cq, 1, wc);
		if (got)
			return got == 1 && wc->status == IBV_WC_SUCCESS;
		dawdle();
		if (!readable(end->channel->fd, ROUND_MS)) {
			got = ibv_poll_cq(end->recv_cq, 1, wc);
			printf("# not woken in %d ms; a poll then gives %d\n",
			       ROUND_MS, got);
			return false; /* a wake-up was lost */
		}
		if (!v->get_cq_event(end->channel, &cq, &context))
			v->ack_cq_events(cq, 1);
	}
}

static unsigned play(struct end *end, bool serves)
{
	struct ibv_wc wc;
	unsigned round;

	make_nonblocking(end);
	for (round = 0; round < ROUNDS; round++) {
		if (serves || round)
			if (!sleep_for_one(end, &wc))
				break;
		receive(end, round, 0, 64);
		dawdle();
		if (send_at(end, round, 0, 8, IBV_SEND_SIGNALED)) {
			printf("# round %u could not be sent\n", round);
			break;
		}
		while (ibv_poll_cq(end->send_cq, 1, &wc) == 1)
			if (wc.status != IBV_WC_SUCCESS) {
				printf("# send of round %u: status %d\n",
				       round, (int)wc.status);
				return round;
			}
	}
	/* stay for the last answer */
	if (!serves && !sleep_for_one(end, &wc))
		return 0;
	return round;
}

static void two_sleeping_processes(void)
{
	const struct pair_options o = { .rnr_retry = 7, .send_wr = 64 };
	struct hello peer;
	struct end end;
	unsigned rounds = 0;
	uint16_t port;
	int to_child[2], status = 1;
	pid_t child;

	if (pipe(to_child))
		exit(1);
	child = fork();
	if (!child) {
		random_state = 77;
		v = softverbs_table();
		if (read(to_child[0], &port, sizeof(port)) != sizeof(port) ||
		    !peer_connect(&end, &o, port, &peer))
			_exit(2);
		receive(&end, 0, 0, 64);
		rounds = play(&end, false);
		_exit(rounds == ROUNDS ? 0 : 3);
	}
	v = softverbs_table();
	port = pair_listen();
	if (write(to_child[1], &port, sizeof(port)) != sizeof(port))
		exit(1);
	ok_or_die(peer_accept(&end, &o, &peer), "two processes meet");
	receive(&end, 0, 0, 64);
	rounds = play(&end, true);
	ok(rounds == ROUNDS, "%u rounds, each side asleep, none lost", rounds);
	waitpid(child, &status, 0);
	ok(WIFEXITED(status) && !WEXITSTATUS(status), "the other side agrees");
	end_close(&end);
	wire_put(cm_passive);
	cm_passive = NULL;
}

struct sleeper {
	struct end *end;
	unsigned got;
};

/* A blocking channel, in a thread of its own. */
static void *sleep_blocking(void *arg)
{
	struct sleeper *s = arg;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	while (s->got < ROUNDS) {
		if (v->get_cq_event(s->end->channel, &cq, &context))
			return NULL;
		v->ack_cq_events(cq, 1);
		ibv_req_notify_cq(cq, 0);
		while (ibv_poll_cq(cq, 1, &wc) == 1) {
			receive(s->end, 1, 0, 64);
			__atomic_fetch_add(&s->got, 1, __ATOMIC_SEQ_CST);
		}
	}
	return NULL;
}

static void a_blocked_thread_is_woken(void)
{
	struct pair p;
	struct sleeper s = { .end = &p.b };
	uint64_t deadline = rk_now_ns() + 15 * RK_NS_PER_S;
	struct ibv_wc wc;
	pthread_t thread;
	unsigned sent = 0;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7,
					      .sig_all = true });
	for (int i = 0; i < 16; i++)
		receive(&p.b, 1, 0, 64);
	ibv_req_notify_cq(p.b.recv_cq, 0);
	pthread_create(&thread, NULL, sleep_blocking, &s);
	while (sent < ROUNDS && rk_now_ns() < deadline) {
		dawdle();
		if (!send_at(&p.a, sent, 0, 8, 0))
			sent++;
		while (ibv_poll_cq(p.a.send_cq, 1, &wc) == 1)
			;
		/* this thread does not pump for the other: it waits for it */
		while (sent % 16 == 0 && rk_now_ns() < deadline &&
		       __atomic_load_n(&s.got, __ATOMIC_SEQ_CST) < sent)
			sched_yield();
	}
	ok(sent == ROUNDS && __atomic_load_n(&s.got, __ATOMIC_SEQ_CST) ==
				     ROUNDS, "%u of %u events woke it", s.got,
	   sent);
	if (s.got != ROUNDS)
		exit(1);
	pthread_join(thread, NULL);
	pair_close(&p);
}

static void a_sleeping_sender_learns_of_its_ack(void)
{
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	make_nonblocking(&p.a);
	ibv_req_notify_cq(p.a.send_cq, 0);
	send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED);
	ok(!take_event(&p.a), "a send without a receive waits");
	receive(&p.b, 1, 0, 64);
	ok(readable(p.a.channel->fd, 1000) && take_event(&p.a) == p.a.send_cq,
	   "the receive wakes the sender, which polls nothing");
	ok(ibv_poll_cq(p.a.send_cq, 1, &wc) == 1 &&
		   wc.status == IBV_WC_SUCCESS, "its completion is there");

	ibv_req_notify_cq(p.a.send_cq, 0);
	receive(&p.b, 2, 0, 8);
	receive(&p.b, 3, 0, 64);
	send_at(&p.a, 2, 0, 8, 0);
	send_at(&p.a, 3, 0, 64, IBV_SEND_SIGNALED);
	ok(poll_one(p.b.recv_cq).status == IBV_WC_SUCCESS, "an unsure one");
	ok(readable(p.a.channel->fd, 1000) && take_event(&p.a) == p.a.send_cq,
	   "wakes it when it is acknowledged");
	pair_close(&p);
}

int main(void)
{
	two_sleeping_processes();
	v = softverbs_table();
	one_event_per_arming();
	the_arming_race_is_closed();
	solicited_only();
	two_queues_on_one_channel();
	destroy_waits_for_the_ack();
	a_queue_pair_waits_for_the_ack_too();
	an_event_nobody_took_goes_with_its_queue();
	a_sleeping_sender_learns_of_its_ack();
	a_blocked_thread_is_woken();
	return ok_done();
}
