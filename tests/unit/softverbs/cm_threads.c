/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocking channels and several threads at once. */
#include <pthread.h>
#include <signal.h>

#include "cm_help.h"

enum { CLIENTS = 3, ROUNDS = 100 };

static struct rdma_conn_param param = { .retry_count = 7,
					.rnr_retry_count = 7 };

static void on_signal(int number)
{
}

struct sleep {
	pthread_t sleeper;
	int ended;
};

/* Again and again: the first may come before the other is in its call. */
static void *interrupt(void *arg)
{
	struct sleep *sleep = arg;

	while (!__atomic_load_n(&sleep->ended, __ATOMIC_SEQ_CST)) {
		usleep(1000);
		pthread_kill(sleep->sleeper, SIGUSR1);
	}
	return NULL;
}

static void a_signal_interrupts(void)
{
	struct rdma_event_channel *channel = v->cm_create_event_channel();
	struct sigaction action = { .sa_handler = on_signal };
	struct sleep arg = { .sleeper = pthread_self() };
	struct rdma_cm_event *event;
	pthread_t thread;

	sigaction(SIGUSR1, &action, NULL);
	pthread_create(&thread, NULL, interrupt, &arg);
	ok(v->cm_get_event(channel, &event) == -1 && errno == EINTR,
	   "a blocking wait ends with EINTR");
	__atomic_store_n(&arg.ended, 1, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	v->cm_destroy_event_channel(channel);
}

/* ---- many at once ----------------------------------------------------- */

static struct rdma_event_channel *server_channel;
static struct rdma_cm_id *server_listener;
static int served;

/* Every event in turn until each connection has come and gone. */
static void *server(void *arg)
{
	while (served < CLIENTS * ROUNDS) {
		struct rdma_cm_event *event;
		struct rdma_cm_id *id;
		int type;

		if (v->cm_get_event(server_channel, &event))
			break;
		id = event->id;
		type = (int)event->event;
		v->cm_ack_event(event);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			if (qp_new(id) || v->cm_accept(id, &param))
				break;
		} else if (type != RDMA_CM_EVENT_ESTABLISHED) {
			served += type == RDMA_CM_EVENT_DISCONNECTED;
			v->cm_disconnect(id);
			id_end(id);
		}
	}
	return NULL;
}

static bool expect(struct rdma_event_channel *channel,
		   enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	bool good;

	if (v->cm_get_event(channel, &event))
		return false;
	good = event->event == type;
	v->cm_ack_event(event);
	return good;
}

static void *client(void *arg)
{
	struct rdma_event_channel *channel = v->cm_create_event_channel();
	struct sockaddr_in to =
		ipv4("127.0.0.1", v->cm_get_src_port(server_listener));
	unsigned *good = arg;

	for (int i = 0; i < ROUNDS; i++) {
		struct rdma_cm_id *id;

		if (v->cm_create_id(channel, &id, NULL, RDMA_PS_TCP))
			break;
		*good += !v->cm_resolve_addr(id, NULL, (struct sockaddr *)&to,
					     100) &&
			 expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED) &&
			 !v->cm_resolve_route(id, 100) &&
			 expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED) &&
			 !qp_new(id) && !v->cm_connect(id, &param) &&
			 expect(channel, RDMA_CM_EVENT_ESTABLISHED) &&
			 !v->cm_disconnect(id) &&
			 expect(channel, RDMA_CM_EVENT_DISCONNECTED);
		id_end(id);
	}
	v->cm_destroy_event_channel(channel);
	return NULL;
}

static void threads_with_blocking_channels(void)
{
	pthread_t threads[CLIENTS], serving;
	unsigned good[CLIENTS] = { 0 }, sum = 0;

	server_channel = v->cm_create_event_channel();
	server_listener = listener_new(server_channel, 0);
	ok_or_die(server_listener, "a listener");
	alarm(60); /* a lost wake-up shall not hang the run */
	pthread_create(&serving, NULL, server, NULL);
	for (int i = 0; i < CLIENTS; i++)
		pthread_create(&threads[i], NULL, client, &good[i]);
	for (int i = 0; i < CLIENTS; i++) {
		pthread_join(threads[i], NULL);
		sum += good[i];
	}
	pthread_join(serving, NULL);
	ok(sum == CLIENTS * ROUNDS, "%u of %d connections of %d threads", sum,
	   CLIENTS * ROUNDS, CLIENTS);
	ok(served == CLIENTS * ROUNDS, "each was told to the server");
	v->cm_destroy_id(server_listener);
	v->cm_destroy_event_channel(server_channel);
	settle();
	ok(!cm.id_count && !cm.pd && !lanes_in_use(), "nothing is left");
}

int main(void)
{
	v = softverbs_table();
	a_signal_interrupts();
	threads_with_blocking_channels();
	return ok_done();
}
