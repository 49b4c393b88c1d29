/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peer is another process: it may be killed at any moment.  And this
 * process may fork: the child has nothing of the device.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "softverbs/wire_internal.h"

#include "verbs_peer.h"

static const struct rk_verbs_table *v;
static const struct pair_options options = { .rnr_retry = 7, .recv_wr = 64,
					     .send_wr = 64,
					     .mem_bytes = 2 << 20 };

struct client {
	pid_t pid;
	int port_fd;  /* it waits for the port here */
	int count_fd; /* and says here how much it completed */
};

typedef void client_fn(struct end *end, const struct hello *peer, int count_fd);

/* Before this process has a device. */
static struct client client_fork(client_fn *body)
{
	int port[2], count[2];
	struct client client;
	struct hello peer;
	struct end end;
	uint16_t number;

	if (pipe(port) || pipe(count))
		exit(1);
	client = (struct client){ fork(), port[1], count[0] };
	if (client.pid)
		return client;
	v = softverbs_table();
	close(port[1]);
	if (read(port[0], &number, sizeof(number)) == sizeof(number) &&
	    peer_connect(&end, &options, number, &peer))
		body(&end, &peer, count[1]);
	_exit(9);
}

static void meet(const struct client *client, uint16_t port, struct end *end,
		 struct hello *peer)
{
	cm_passive = NULL;
	if (write(client->port_fd, &port, sizeof(port)) != sizeof(port))
		exit(1);
	ok_or_die(peer_accept(end, &options, peer), "a peer connects");
}

static void forget_peer(struct end *end)
{
	end_close(end);
	wire_put(cm_passive);
	cm_passive = NULL;
}

/* ---- clients ---------------------------------------------------------- */

static void tell(int fd, unsigned count)
{
	if (write(fd, &count, sizeof(count)) != sizeof(count))
		_exit(8);
}

/* Ten sends that complete, and then death. */
static void sends_and_dies(struct end *end, const struct hello *peer,
			   int count_fd)
{
	struct ibv_wc wc;
	unsigned done = 0;

	for (unsigned i = 0; i < 10; i++)
		send_at(end, i, 0, 2000, IBV_SEND_SIGNALED);
	while (done < 10)
		if (ibv_poll_cq(end->send_cq, 1, &wc) == 1)
			done += wc.status == IBV_WC_SUCCESS;
	tell(count_fd, done);
	kill(getpid(), SIGKILL);
}

/* Writes all the time until it is killed. */
static void writes_for_ever(struct end *end, const struct hello *peer,
			    int count_fd)
{
	struct end target = { .mem = (char *)(uintptr_t)peer->addr };
	struct ibv_mr mr = { .rkey = peer->rkey };
	struct ibv_wc wc;

	target.mr = &mr;
	memset(end->mem, 'w', 65536);
	tell(count_fd, 1);
	for (;;) {
		access_at(end, &target, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0,
			  65536, IBV_SEND_SIGNALED);
		ibv_poll_cq(end->send_cq, 1, &wc);
	}
}

enum { ORDERED_ROUNDS = 100, ORDERED_BYTES = 1 << 20 };

/* A send and a long write behind it in one list, each round when told. */
static void sends_then_writes(struct end *end, const struct hello *peer,
			      int count_fd)
{
	struct ibv_sge sge[2];
	struct ibv_send_wr wr[2], *bad;
	struct ibv_wc wc;

	for (int round = 1; round <= ORDERED_ROUNDS; round++) {
		memset(end->mem, round, ORDERED_BYTES);
		sge[0] = piece(end, 0, 8);
		sge[1] = piece(end, 0, ORDERED_BYTES);
		wr[0] = (struct ibv_send_wr){ .sg_list = &sge[0], .num_sge = 1,
					      .opcode = IBV_WR_SEND,
					      .next = &wr[1] };
		wr[1] = (struct ibv_send_wr){
			.sg_list = &sge[1], .num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { peer->addr, peer->rkey },
		};
		if (ibv_post_send(end->qp, wr, &bad) ||
		    poll_one(end->send_cq).status != IBV_WC_SUCCESS)
			_exit(7);
		receive(end, 1, 0, 8);
		wc = poll_one(end->recv_cq); /* the other side goes on */
		if (wc.status != IBV_WC_SUCCESS)
			_exit(6);
	}
	tell(count_fd, ORDERED_ROUNDS);
	for (;;)
		pause();
}

/* As if it had been stopped in the middle of a copy. */
static void holds_its_hazard(struct end *end, const struct hello *peer,
			     int count_fd)
{
	rk_store_release(&end->link->box->hazard, 1);
	tell(count_fd, 1);
	for (;;)
		pause();
}

/* ---- deaths ----------------------------------------------------------- */

static unsigned told(const struct client *client)
{
	unsigned count = 0;

	if (read(client->count_fd, &count, sizeof(count)) != sizeof(count))
		return 0;
	return count;
}

static void the_peer_dies(const struct client *client, uint16_t port)
{
	struct pollfd waited = { .events = POLLIN };
	struct hello peer;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	struct end end;
	void *context;
	unsigned got = 0, flushed = 0;
	uint64_t deadline;

	meet(client, port, &end, &peer);
	fcntl(end.channel->fd, F_SETFL, O_NONBLOCK);
	for (unsigned i = 0; i < 12; i++)
		receive(&end, i, i * 4096, 4096);
	/* it has no receives: these wait, and will never go */
	send_at(&end, 50, 0, 8, 0);
	send_at(&end, 51, 0, 8, 0);
	ibv_req_notify_cq(end.send_cq, 0);
	ok(told(client) == 10, "the peer completed ten sends");
	waitpid(client->pid, NULL, 0);
	/* asleep, as an event driven program would be */
	deadline = rk_now_ns() + DEADLINE_MS * RK_NS_PER_MS;
	waited.fd = end.channel->fd;
	while (!end.gone && rk_now_ns() < deadline) {
		if (poll(&waited, 1, DEADLINE_MS) == 1 &&
		    !v->get_cq_event(end.channel, &cq, &context))
			v->ack_cq_events(cq, 1);
	}
	ok(end.gone == 1 && !end.disconnects, "its death wakes a sleeper");
	for (unsigned i = 0; i < 10; i++) {
		wc = poll_one(end.recv_cq);
		got += wc.status == IBV_WC_SUCCESS && wc.wr_id == i &&
		       wc.byte_len == 2000;
	}
	ok(got == 10, "all that it had completed arrives");
	for (unsigned i = 10; i < 12; i++) {
		wc = poll_one(end.recv_cq);
		flushed += wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == i;
	}
	ok(flushed == 2, "then the other receives are flushed");
	wc = poll_one(end.send_cq);
	ok(wc.status == IBV_WC_RETRY_EXC_ERR && wc.wr_id == 50,
	   "the first outstanding send: RETRY_EXC_ERR");
	wc = poll_one(end.send_cq);
	ok(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 51,
	   "the second: WR_FLUSH_ERR");
	ok(!send_at(&end, 52, 0, 8, 0) &&
		   poll_one(end.send_cq).status == IBV_WC_WR_FLUSH_ERR,
	   "later ones too");
	forget_peer(&end);
}

static void the_peer_is_killed_while_it_writes(const struct client *client,
					       uint16_t port)
{
	struct hello peer;
	struct ibv_wc wc;
	struct end end;
	unsigned got = 0;
	int err;

	meet(client, port, &end, &peer);
	for (unsigned i = 0; i < 64; i++)
		receive(&end, i, 0, 0);
	ok(told(client) == 1, "the peer writes");
	while (got < 200) {
		wc = poll_one(end.recv_cq);
		if (wc.status != IBV_WC_SUCCESS)
			break;
		receive(&end, 0, 0, 0);
		got++;
	}
	kill(client->pid, SIGKILL);
	ok(got == 200 && until(end.gone), "killed, its end is noticed");
	waitpid(client->pid, NULL, 0);
	err = v->dereg_mr(end.mr);
	end.mr = v->reg_mr(end.pd, end.mem, 64, 0);
	ok(!err && end.mr, "the dead hold no memory");
	forget_peer(&end);
}

/* A stopped peer is slow, not gone; and nobody waits for it. */
static void a_stopped_peer_stops_only_itself(const struct client *client,
					     uint16_t port)
{
	struct hello peer;
	struct end end;
	uint64_t began;
	int err;

	meet(client, port, &end, &peer);
	for (unsigned i = 0; i < 64; i++)
		receive(&end, i, 0, 0);
	ok(told(client) == 1, "the peer writes");
	kill(client->pid, SIGSTOP);
	waitpid(client->pid, NULL, WUNTRACED);
	device_pump(true);
	began = rk_now_ns();
	modify_state(end.qp, IBV_QPS_ERR);
	ok(rk_now_ns() - began < 500 * RK_NS_PER_MS,
	   "stopped, it delays an error by little");
	ok(!end.gone, "it is not taken for dead");
	began = rk_now_ns();
	err = v->dereg_mr(end.mr);
	ok(rk_now_ns() - began < 500 * RK_NS_PER_MS &&
		   (!err || err == EBUSY), "nor is deregistering (%d)", err);
	kill(client->pid, SIGKILL);
	waitpid(client->pid, NULL, 0);
	until(end.gone);
	if (err)
		v->dereg_mr(end.mr);
	end.mr = v->reg_mr(end.pd, end.mem, 64, 0);
	forget_peer(&end);
}

/* Who sees the first byte of a write finds the send that came before it. */
static void bytes_do_not_overtake_records(const struct client *client,
					  uint16_t port)
{
	struct hello peer;
	struct ibv_wc wc;
	struct end end;
	unsigned late = 0;
	int round;

	meet(client, port, &end, &peer);
	for (round = 1; round <= ORDERED_ROUNDS; round++) {
		uint64_t deadline = rk_now_ns() + RK_NS_PER_S;

		receive(&end, 1, ORDERED_BYTES, 8);
		while (rk_load_acquire(end.mem) != (char)round &&
		       rk_now_ns() < deadline)
			rk_pause();
		late += ibv_poll_cq(end.recv_cq, 1, &wc) != 1;
		if (late)
			break;
		while (rk_load_acquire(end.mem + ORDERED_BYTES - 1) !=
			       (char)round &&
		       rk_now_ns() < deadline)
			rk_pause();
		send_at(&end, 1, 0, 8, IBV_SEND_SIGNALED);
		if (poll_one(end.send_cq).status != IBV_WC_SUCCESS)
			break;
	}
	ok(!late && round > ORDERED_ROUNDS && told(client) == ORDERED_ROUNDS,
	   "a write's bytes do not overtake the send before it (%d)", round);
	kill(client->pid, SIGKILL);
	waitpid(client->pid, NULL, 0);
	until(end.gone);
	forget_peer(&end);
}

static void memory_in_use_is_not_given_up(const struct client *client,
					  uint16_t port)
{
	struct hello peer;
	struct end end;
	uint64_t began;
	int first, second, third;

	meet(client, port, &end, &peer);
	ok(told(client) == 1, "the peer is in the middle of a copy");
	began = rk_now_ns();
	first = v->dereg_mr(end.mr);
	second = v->dereg_mr(end.mr);
	ok(first == EBUSY && second == EBUSY, "EBUSY, every time");
	ok(rk_now_ns() - began < 500 * RK_NS_PER_MS, "and soon");
	ok(v->dealloc_pd(end.pd) == EBUSY, "the region lives on");
	kill(client->pid, SIGKILL);
	waitpid(client->pid, NULL, 0);
	ok(until(end.gone), "the peer dies");
	third = v->dereg_mr(end.mr);
	ok(!third, "then it is given up");
	end.mr = v->reg_mr(end.pd, end.mem, 64, 0);
	forget_peer(&end);
}

/* ---- fork ------------------------------------------------------------- */

/* What a child sees of the parent's device; a bit per call that worked. */
static int try_everything(struct pair *p)
{
	struct ibv_qp_init_attr init = { 0 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_async_event event;
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	int n = 0;

	if (ibv_poll_cq(p->a.recv_cq, 1, &wc) != -ENODEV)
		return 1;
	if (send_at(&p->a, 1, 0, 8, 0) != ENODEV ||
	    receive(&p->a, 1, 0, 8) != ENODEV)
		return 2;
	if (ibv_req_notify_cq(p->a.recv_cq, 0) != ENODEV)
		return 3;
	if (v->get_cq_event(p->a.channel, &cq, &context) != -1 ||
	    errno != ENODEV)
		return 4;
	if (v->get_async_event(p->a.context, &event) != -1 || errno != ENODEV)
		return 5;
	if (v->get_device_list(&n) || errno != ENODEV)
		return 6;
	if (v->create_comp_channel(p->a.context) ||
	    v->create_cq(p->a.context, 1, NULL, NULL, 0) ||
	    v->alloc_pd(p->a.context) ||
	    v->reg_mr(p->a.pd, &n, sizeof(n), 0) || errno != ENODEV)
		return 7;
	if (v->modify_qp(p->a.qp, &attr, IBV_QP_STATE) != ENODEV ||
	    v->query_qp(p->a.qp, &attr, 0, &init) != ENODEV)
		return 8;
	if (v->destroy_qp(p->a.qp) != ENODEV ||
	    v->destroy_cq(p->a.recv_cq) != ENODEV ||
	    v->dereg_mr(p->a.mr) != ENODEV ||
	    v->dealloc_pd(p->a.pd) != ENODEV ||
	    v->destroy_comp_channel(p->a.channel) != ENODEV)
		return 9;
	if (soft_enter() || errno != ENODEV || cm_abandoned != 1)
		return 10;
	return 0;
}

static int child_status(struct pair *p)
{
	pid_t child = fork();
	int status = -1;

	if (!child)
		_exit(try_everything(p));
	waitpid(child, &status, 0);
	return status;
}

static bool keep_locking = true;

static void *lock_and_unlock(void *arg)
{
	while (__atomic_load_n(&keep_locking, __ATOMIC_RELAXED))
		device_pump(false);
	return NULL;
}

static void a_forked_child_is_inert(void)
{
	pthread_t thread;
	struct pair p;
	unsigned wrong = 0;
	int status;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7,
					      .private_memory = true });
	receive(&p.b, 1, 0, 64);
	ibv_req_notify_cq(p.b.recv_cq, 0);
	status = child_status(&p);
	ok(WIFEXITED(status) && !WEXITSTATUS(status),
	   "every call of a child answers ENODEV (%d)", WEXITSTATUS(status));
	ok(!send_at(&p.a, 1, 0, 8, IBV_SEND_SIGNALED) &&
		   poll_one(p.b.recv_cq).status == IBV_WC_SUCCESS &&
		   poll_one(p.a.send_cq).status == IBV_WC_SUCCESS,
	   "the parent goes on as before");
	pthread_create(&thread, NULL, lock_and_unlock, NULL);
	for (int i = 0; i < 30; i++) {
		status = child_status(&p);
		wrong += !WIFEXITED(status) || WEXITSTATUS(status);
	}
	__atomic_store_n(&keep_locking, false, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	ok(!wrong, "also when another thread held the lock (%u)", wrong);
	pair_close(&p);
}

int main(void)
{
	struct client dying = client_fork(sends_and_dies);
	struct client killed = client_fork(writes_for_ever);
	struct client stopped = client_fork(writes_for_ever);
	struct client holding = client_fork(holds_its_hazard);
	struct client ordered = client_fork(sends_then_writes);
	uint16_t port;

	v = softverbs_table();
	port = pair_listen();
	the_peer_dies(&dying, port);
	the_peer_is_killed_while_it_writes(&killed, port);
	a_stopped_peer_stops_only_itself(&stopped, port);
	bytes_do_not_overtake_records(&ordered, port);
	memory_in_use_is_not_given_up(&holding, port);
	a_forked_child_is_inert();
	return ok_done();
}
