/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes: the other one disconnects while this one sleeps, or is killed
 * at some step of a connection.  The victims are forked before this process
 * starts its device, and wait for their turn.
 */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "cm_help.h"

enum role {
	LISTENS,	/* fetches nothing */
	FETCHES,	/* the request, and does not answer */
	ACCEPTS,	/* and is established */
	CONNECTS,	/* fetches nothing */
	DISCONNECTS,	/* having accepted, when told to */
	STALLS,		/* once established, until it is told to go on */
	IS_ESTABLISHED, /* as the active side */
	IN_CHILD,	/* forks after use: the device is gone there */
	ROLES
};

struct victim {
	pid_t pid;
	int talk; /* a socket: a port to it, a port or a mark back */
};

static struct victim victims[ROLES];
static struct rdma_conn_param param = { .retry_count = 7,
					.rnr_retry_count = 7 };

/* ---- the victims ------------------------------------------------------ */

static void say(int talk, uint16_t word)
{
	if (write(talk, &word, sizeof(word)) != sizeof(word))
		_exit(2);
}

static uint16_t hear(int talk)
{
	struct pollfd fd = { .fd = talk, .events = POLLIN };
	uint16_t word = 0;

	if (poll(&fd, 1, 10000) != 1 ||
	    read(talk, &word, sizeof(word)) != sizeof(word))
		return 0;
	return word;
}

static void victim_listens(enum role role, int talk)
{
	struct rdma_event_channel *channel = channel_new();
	struct rdma_cm_id *id = listener_new(channel, 0);
	struct seen seen;

	say(talk, v->cm_get_src_port(id));
	if (role == FETCHES &&
	    got(channel, RDMA_CM_EVENT_CONNECT_REQUEST, &seen))
		say(talk, 1);
	if ((role == ACCEPTS || role == DISCONNECTS) &&
	    got(channel, RDMA_CM_EVENT_CONNECT_REQUEST, &seen) &&
	    !qp_new(seen.id) && !v->cm_accept(seen.id, &param) &&
	    got(channel, RDMA_CM_EVENT_ESTABLISHED, &seen))
		say(talk, 1);
	if (role == DISCONNECTS && hear(talk) == 1)
		v->cm_disconnect(seen.id);
}

enum { RECEIVES = 128 };

static unsigned completions(struct ibv_cq *cq, enum ibv_wc_status status)
{
	unsigned count = 0;
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) == 1)
		count += wc.status == status;
	return count;
}

/* What it says in the end: how many messages it has; 0: something is wrong. */
static void victim_stalls(int talk)
{
	struct rdma_event_channel *channel = channel_new();
	struct rdma_cm_id *id = listener_new(channel, 0);
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;
	unsigned count;
	struct seen seen;

	say(talk, v->cm_get_src_port(id));
	if (!got(channel, RDMA_CM_EVENT_CONNECT_REQUEST, &seen) ||
	    qp_new_deep(seen.id, RECEIVES))
		_exit(4);
	id = seen.id;
	for (int i = 0; i < RECEIVES; i++)
		if (ibv_post_recv(id->qp, &wr, &bad))
			_exit(5);
	if (v->cm_accept(id, &param) ||
	    !got(channel, RDMA_CM_EVENT_ESTABLISHED, &seen))
		_exit(6);
	say(talk, 1);
	hear(talk);
	if (!got(channel, RDMA_CM_EVENT_DISCONNECTED, &seen) || seen.status)
		_exit(7);
	count = completions(id->recv_cq, IBV_WC_SUCCESS);
	say(talk, (uint16_t)count);
}

static void victim_connects(enum role role, int talk, uint16_t port)
{
	struct rdma_event_channel *channel = channel_new();
	struct sockaddr_in addr = ipv4("127.0.0.1", port);
	struct rdma_cm_id *id = resolved_to(channel, &addr);
	struct seen seen;

	if (!id || qp_new(id) || v->cm_connect(id, &param))
		_exit(3);
	if (role == CONNECTS ||
	    got(channel, RDMA_CM_EVENT_ESTABLISHED, &seen))
		say(talk, 1);
}

static void victim_forks(int talk)
{
	struct rdma_event_channel *channel = channel_new();
	struct rdma_cm_id *listener = listener_new(channel, 0), *id;
	int status;
	pid_t pid = fork();

	if (!pid) {
		struct rdma_cm_event *event;

		alarm(5);
		_exit(!(v->cm_create_id(channel, &id, NULL, RDMA_PS_TCP) &&
			errno == ENODEV && v->cm_get_event(channel, &event) &&
			errno == ENODEV && v->cm_destroy_id(listener) &&
			errno == ENODEV && !v->cm_create_event_channel() &&
			errno == ENODEV));
	}
	waitpid(pid, &status, 0);
	/* the parent goes on as if nothing had been */
	id = resolved(channel, listener);
	say(talk, !status && id && !v->cm_connect(id, &param) ? 1 : 9);
}

static void victim_main(enum role role, int talk)
{
	uint16_t port = hear(talk);

	alarm(30);
	v = softverbs_table();
	if (role == IN_CHILD)
		victim_forks(talk);
	else if (role == STALLS)
		victim_stalls(talk);
	else if (role == CONNECTS || role == IS_ESTABLISHED)
		victim_connects(role, talk, port);
	else
		victim_listens(role, talk);
	for (;;)
		pause();
}

static void victims_fork(void)
{
	for (int i = 0; i < ROLES; i++) {
		int talk[2];

		if (socketpair(AF_UNIX, SOCK_STREAM, 0, talk))
			exit(1);
		victims[i].talk = talk[0];
		victims[i].pid = fork();
		if (victims[i].pid)
			close(talk[1]);
		else
			victim_main((enum role)i, talk[1]);
	}
}

static void victim_kill(enum role role)
{
	kill(victims[role].pid, SIGKILL);
	waitpid(victims[role].pid, NULL, 0);
}

/* ---- the survivor ----------------------------------------------------- */

static struct rdma_event_channel *channel;

static struct rdma_cm_id *connect_to_victim(enum role role)
{
	struct sockaddr_in addr;
	struct rdma_cm_id *id;

	say(victims[role].talk, 1);
	addr = ipv4("127.0.0.1", hear(victims[role].talk));
	id = resolved_to(channel, &addr);
	if (!id || qp_new(id) || v->cm_connect(id, &param))
		return NULL;
	return id;
}

static void nothing_is_left(void)
{
	settle();
	ok(!cm.id_count && !lanes_in_use(), "no id and no lane is left");
}

static void passive_dies_before_it_answers(enum role role)
{
	struct rdma_cm_id *id = connect_to_victim(role);
	uint64_t start;
	struct seen seen;

	ok_or_die(id, "connecting to a process that does not answer");
	if (role == FETCHES)
		ok(hear(victims[role].talk) == 1, "it has the request");
	start = rk_now_ns();
	victim_kill(role);
	ok(got(channel, RDMA_CM_EVENT_UNREACHABLE, &seen) && seen.id == id,
	   "killed: unreachable");
	ok(rk_now_ns() - start < 2 * RK_NS_PER_S, "at once");
	id_end(id);
	nothing_is_left();
}

static void passive_dies_established(void)
{
	struct rdma_cm_id *id = connect_to_victim(ACCEPTS), *again;
	struct sockaddr_in addr;
	struct seen seen;

	ok_or_die(id && got(channel, RDMA_CM_EVENT_ESTABLISHED, &seen) &&
			  hear(victims[ACCEPTS].talk) == 1,
		  "established with another process");
	addr = id->route.addr.dst_sin;
	again = resolved_to(channel, &addr);
	victim_kill(ACCEPTS);
	ok(got(channel, RDMA_CM_EVENT_DISCONNECTED, &seen) && seen.id == id &&
		   seen.status == -ECONNRESET,
	   "killed: disconnected, and not in order");
	ok(again && !qp_new(again) && !v->cm_connect(again, &param) &&
		   got(channel, RDMA_CM_EVENT_REJECTED, &seen) &&
		   seen.status == 8,
	   "connecting now: nobody listens");
	ok(!v->cm_disconnect(id) && !v->cm_disconnect(again),
	   "disconnecting is no error");
	id_end(id);
	id_end(again);
	nothing_is_left();
}

static void a_disconnect_wakes(void)
{
	struct rdma_cm_id *id = connect_to_victim(DISCONNECTS);
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct seen seen;

	ok_or_die(id && got(channel, RDMA_CM_EVENT_ESTABLISHED, &seen) &&
			  hear(victims[DISCONNECTS].talk) == 1,
		  "established with another process");
	/* from here on the program only polls the descriptor */
	say(victims[DISCONNECTS].talk, 1);
	ok(poll(&fd, 1, 5000) == 1,
	   "the peer disconnects: the descriptor becomes readable");
	ok(got(channel, RDMA_CM_EVENT_DISCONNECTED, &seen) && seen.id == id &&
		   seen.status == 0,
	   "disconnected in order");
	id_end(id);
	victim_kill(DISCONNECTS);
	nothing_is_left();
}

/* The lane is full and its reader does not look: no room for a farewell. */
static void a_full_lane_is_disconnected(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct sockaddr_in addr;
	struct rdma_cm_id *id;
	struct seen seen;
	int talk = victims[STALLS].talk, posted = 0;
	uint16_t count;

	say(talk, 1);
	addr = ipv4("127.0.0.1", hear(talk));
	id = resolved_to(channel, &addr);
	ok_or_die(id && !qp_new_deep(id, RECEIVES) &&
			  !v->cm_connect(id, &param) &&
			  got(channel, RDMA_CM_EVENT_ESTABLISHED, &seen) &&
			  hear(talk) == 1,
		  "established with another process");
	while (posted < 100 && !ibv_post_send(id->qp, &wr, &bad))
		posted++;
	ok(posted == 100, "100 messages posted to it while it stalls");
	v->cm_disconnect(id);
	ok(got(channel, RDMA_CM_EVENT_DISCONNECTED, &seen), "disconnected");
	id_end(id);
	say(talk, 1);
	count = hear(talk);
	ok(count >= RING_SLOTS && count <= 100,
	   "it gets the %u that fitted the lane, and is disconnected", count);
	victim_kill(STALLS);
	nothing_is_left();
}

static void active_dies_connecting(void)
{
	struct rdma_cm_id *listener = listener_new(channel, 0);
	struct seen seen;

	say(victims[CONNECTS].talk, v->cm_get_src_port(listener));
	ok_or_die(hear(victims[CONNECTS].talk) == 1 &&
			  got(channel, RDMA_CM_EVENT_CONNECT_REQUEST, &seen),
		  "asked by another process");
	ok_or_die(!qp_new(seen.id) && !v->cm_accept(seen.id, &param),
		  "accepted");
	victim_kill(CONNECTS);
	struct rdma_cm_id *id = seen.id;

	ok(got(channel, RDMA_CM_EVENT_REJECTED, &seen) && seen.id == id &&
		   seen.status == 4 && id->qp->state == IBV_QPS_ERR,
	   "killed before it was established: rejected, status 4");
	id_end(id);
	id_end(listener);
	nothing_is_left();
}

static void active_dies_established(void)
{
	struct rdma_cm_id *listener = listener_new(channel, 0), *id;
	struct seen seen;

	say(victims[IS_ESTABLISHED].talk, v->cm_get_src_port(listener));
	ok_or_die(got(channel, RDMA_CM_EVENT_CONNECT_REQUEST, &seen) &&
			  !qp_new(seen.id) && !v->cm_accept(seen.id, &param),
		  "accepted");
	id = seen.id;
	ok_or_die(got(channel, RDMA_CM_EVENT_ESTABLISHED, &seen) &&
			  hear(victims[IS_ESTABLISHED].talk) == 1,
		  "established");
	victim_kill(IS_ESTABLISHED);
	ok(got(channel, RDMA_CM_EVENT_DISCONNECTED, &seen) && seen.id == id &&
		   seen.status == -ECONNRESET,
	   "killed: disconnected, and not in order");
	id_end(id);
	id_end(listener);
	nothing_is_left();
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	victims_fork();
	v = softverbs_table();
	channel = channel_new();
	passive_dies_before_it_answers(LISTENS);
	passive_dies_before_it_answers(FETCHES);
	passive_dies_established();
	a_disconnect_wakes();
	a_full_lane_is_disconnected();
	active_dies_connecting();
	active_dies_established();
	say(victims[IN_CHILD].talk, 1);
	ok(hear(victims[IN_CHILD].talk) == 1,
	   "a forked child has no device, its parent goes on");
	victim_kill(IN_CHILD);
	v->cm_destroy_event_channel(channel);
	return ok_done();
}
