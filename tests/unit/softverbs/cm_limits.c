/* SPDX-License-Identifier: BSD-3-Clause */
/* What is bounded, what times out, what is freed and when. */
#include <pthread.h>

#include "softverbs/wire_internal.h"

#include "cm_help.h"

static void backlog_is_a_limit(void)
{
	struct rdma_event_channel *in = channel_new(), *out = channel_new();
	struct rdma_cm_id *listener = listener_new(in, 2), *id[3];
	struct rdma_conn_param param = { .retry_count = 7, .qp_num = 1 };
	struct seen seen;

	cm_times.retry_ns = 20 * RK_NS_PER_MS;
	for (int i = 0; i < 3; i++) {
		id[i] = resolved(out, listener);
		ok_or_die(id[i] && !v->cm_connect(id[i], &param),
			  "connecting, %d of 3", i + 1);
	}
	settle();
	ok(cm_id_of(listener)->unfetched == 2,
	   "two wait for the program, as the backlog says");
	ok(got(in, RDMA_CM_EVENT_CONNECT_REQUEST, &seen), "one is fetched");
	v->cm_destroy_id(seen.id);
	ok(got(in, RDMA_CM_EVENT_CONNECT_REQUEST, &seen), "and another");
	v->cm_destroy_id(seen.id);
	ok(got(in, RDMA_CM_EVENT_CONNECT_REQUEST, &seen),
	   "the third tried again");
	v->cm_destroy_id(seen.id);
	for (int i = 0; i < 3; i++) {
		ok(got(out, RDMA_CM_EVENT_REJECTED, &seen), "rejected");
		v->cm_destroy_id(id[i]);
	}
	v->cm_destroy_id(listener);

	listener = listener_new(in, 5000);
	ok(cm_id_of(listener)->backlog == 1024, "1024 is the most");
	v->cm_destroy_id(listener);
	listener = listener_new(in, 0);
	ok(cm_id_of(listener)->backlog == 1024, "and the default");
	v->cm_destroy_id(listener);

	cm_times.answer_ns = 100 * RK_NS_PER_MS;
	listener = listener_new(in, 1);
	for (int i = 0; i < 2; i++) {
		id[i] = resolved(out, listener);
		ok_or_die(id[i] && !v->cm_connect(id[i], &param),
			  "connecting, %d of 2", i + 1);
	}
	for (int i = 0; i < 2; i++)
		ok(got(out, RDMA_CM_EVENT_UNREACHABLE, &seen) &&
			   seen.status == -ETIMEDOUT,
		   "nobody fetches: unreachable in the end");
	settle();
	ok(see_within(in, 0).type == NO_EVENT,
	   "a request that was given up is not fetched any more");
	for (int i = 0; i < 2; i++)
		v->cm_destroy_id(id[i]);
	v->cm_destroy_id(listener);
	v->cm_destroy_event_channel(in);
	v->cm_destroy_event_channel(out);
}

static void silence_times_out(void)
{
	struct pair pair;
	struct seen seen;
	struct rdma_conn_param param = { .retry_count = 7 };

	cm_times.answer_ns = 50 * RK_NS_PER_MS;
	ok_or_die(pair_open(&pair), "a listener");
	pair.active = resolved(pair.active_channel, pair.listener);
	ok_or_die(pair.active && !qp_new(pair.active) &&
			  !v->cm_connect(pair.active, &param) &&
			  got(pair.passive_channel,
			      RDMA_CM_EVENT_CONNECT_REQUEST, &seen),
		  "a request is fetched and not answered");
	pair.passive = seen.id;
	ok(got(pair.active_channel, RDMA_CM_EVENT_UNREACHABLE, &seen) &&
		   seen.status == -ETIMEDOUT &&
		   pair.active->qp->state == IBV_QPS_ERR,
	   "the active side gives up");
	ok(got(pair.passive_channel, RDMA_CM_EVENT_REJECTED, &seen) &&
		   seen.status == 4,
	   "and says so");
	ok(v->cm_accept(pair.passive, &param) && errno == EINVAL,
	   "then it is too late to accept");
	pair_close(&pair);

	ok_or_die(pair_open(&pair), "a listener");
	pair.active = resolved(pair.active_channel, pair.listener);
	ok_or_die(pair.active && !qp_new(pair.active) &&
			  !v->cm_connect(pair.active, &param) &&
			  got(pair.passive_channel,
			      RDMA_CM_EVENT_CONNECT_REQUEST, &seen) &&
			  !qp_new(seen.id) && !v->cm_accept(seen.id, &param),
		  "accepted, and the active side does not fetch it");
	pair.passive = seen.id;
	ok(got(pair.passive_channel, RDMA_CM_EVENT_UNREACHABLE, &seen) &&
		   seen.status == -ETIMEDOUT,
	   "the passive side gives up");
	settle();
	ok(got(pair.active_channel, RDMA_CM_EVENT_REJECTED, &seen) &&
		   seen.status == 4,
	   "and says so: the response is not seen any more");
	pair_close(&pair);
	cm_times.answer_ns = 64 * RK_NS_PER_S;
}

/* At each step, one end goes away without a word; nothing may be left. */
static void destroying_at_any_moment(void)
{
	struct rdma_conn_param param = { .retry_count = 7 };

	for (int step = 0; step < 14; step++) {
		struct pair pair;
		struct seen seen;

		if (!pair_open(&pair))
			break;
		v->cm_create_id(pair.active_channel, &pair.active, NULL,
				RDMA_PS_TCP);
		if (step > 0) {
			struct sockaddr_in to = ipv4(
				"127.0.0.1", v->cm_get_src_port(pair.listener));

			v->cm_resolve_addr(pair.active, NULL,
					   (struct sockaddr *)&to, 1);
		}
		if (step > 1)
			v->cm_resolve_route(pair.active, 1);
		if (step > 2) {
			qp_new(pair.active);
			v->cm_connect(pair.active, &param);
		}
		if (step > 4)
			settle(); /* the request is queued, not fetched */
		if (step > 6) {
			got(pair.passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST,
			    &seen);
			pair.passive = seen.id;
		}
		if (step > 8) {
			qp_new(pair.passive);
			v->cm_accept(pair.passive, &param);
		}
		if (step > 10)
			settle(); /* the response is queued, not fetched */
		if (step % 2) {
			id_end(pair.active);
			pair.active = NULL;
		} else if (pair.passive) {
			id_end(pair.passive);
			pair.passive = NULL;
		} else {
			id_end(pair.listener);
			pair.listener = NULL;
		}
		settle();
		pair_close(&pair);
		settle();
		ok(!lanes_in_use() && !cm.id_count && !cm.pd,
		   "step %d: no lane, id or domain is left", step);
	}
}

static void a_listener_takes_its_unfetched_children_along(void)
{
	struct rdma_event_channel *in = channel_new(), *out = channel_new();
	struct rdma_cm_id *listener = listener_new(in, 0), *id[10], *child;
	struct rdma_conn_param param = { .retry_count = 7, .qp_num = 1 };
	struct seen seen;

	for (int i = 0; i < 10; i++) {
		id[i] = resolved(out, listener);
		ok_or_die(id[i] && !v->cm_connect(id[i], &param),
			  "connecting, %d", i);
	}
	settle();
	got(in, RDMA_CM_EVENT_CONNECT_REQUEST, &seen);
	child = seen.id;
	v->cm_destroy_id(listener);
	ok(cm.id_count == 11, "nine children that nobody saw are gone");
	for (int i = 0; i < 9; i++)
		ok(got(out, RDMA_CM_EVENT_REJECTED, &seen) && seen.status == 28,
		   "rejected");
	ok(!v->cm_accept(child, &param) &&
		   got(out, RDMA_CM_EVENT_CONNECT_RESPONSE, &seen),
	   "the one that was fetched can still be accepted");
	v->cm_destroy_id(child);
	for (int i = 0; i < 10; i++)
		v->cm_destroy_id(id[i]);
	v->cm_destroy_event_channel(in);
	v->cm_destroy_event_channel(out);
}

static struct rdma_cm_id *victim;
static int destroyed;

static void *destroy_in_thread(void *arg)
{
	v->cm_destroy_id(victim);
	__atomic_store_n(&destroyed, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void destroy_waits_for_acknowledgements(void)
{
	struct rdma_event_channel *channel = channel_new();
	struct rdma_cm_id *listener = listener_new(channel, 0);
	struct sockaddr_in to = ipv4("127.0.0.1", v->cm_get_src_port(listener));
	struct rdma_cm_event *event;
	pthread_t thread;

	v->cm_create_id(channel, &victim, NULL, RDMA_PS_TCP);
	v->cm_resolve_addr(victim, NULL, (struct sockaddr *)&to, 1);
	ok_or_die(!v->cm_get_event(channel, &event), "an event is fetched");
	pthread_create(&thread, NULL, destroy_in_thread, NULL);
	for (;;) { /* until the thread has the id on its way out */
		struct soft_device *device = soft_enter();
		enum cm_state state = cm_id_of(victim)->state;

		soft_unlock(device);
		if (state == CM_DESTROYING)
			break;
		usleep(1000);
	}
	ok(!__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST),
	   "destroying waits for it");
	v->cm_ack_event(event);
	pthread_join(thread, NULL);
	ok(destroyed, "and ends when it is acknowledged");
	v->cm_destroy_id(listener);
	v->cm_destroy_event_channel(channel);
}

static void a_channel_destroyed_first(void)
{
	struct rdma_event_channel *in = channel_new(), *out = channel_new();
	struct rdma_cm_id *listener = listener_new(in, 0), *id;
	struct rdma_conn_param param = { .retry_count = 7, .qp_num = 1 };
	struct seen seen;

	id = resolved(out, listener);
	v->cm_connect(id, &param);
	settle();
	v->cm_destroy_event_channel(in);
	ok(got(out, RDMA_CM_EVENT_REJECTED, &seen),
	   "requests of a channel that is gone are rejected");
	v->cm_destroy_id(id);
	id = resolved(out, listener);
	v->cm_connect(id, &param);
	ok(got(out, RDMA_CM_EVENT_REJECTED, &seen) && seen.status == 8,
	   "nobody listens there");
	v->cm_destroy_id(id);
	v->cm_destroy_id(listener);
	v->cm_destroy_event_channel(out);
	ok(!cm.id_count, "ids outlive their channel and are freed");
}

/* One connection made and ended, with the n-th allocation failing. */
static bool connect_failing_at(long n)
{
	struct pair pair = { 0 };
	struct rdma_conn_param param = { .retry_count = 7 };
	bool good;

	/* the connection's own steps must never wait for long */
	cm_times.answer_ns = 200 * RK_NS_PER_MS;
	cm_times.retry_ns = 5 * RK_NS_PER_MS;
	pair.passive_channel = channel_new();
	pair.active_channel = channel_new();
	rk_alloc_fail_at(n);
	pair.listener = listener_new(pair.passive_channel, 0);
	good = pair.listener && pair_connect(&pair, &param);
	rk_alloc_fail_at(-1);
	if (!good && pair.listener) {
		struct seen seen = see_within(pair.passive_channel, 0);

		/* a request may be waiting that nobody took */
		if (seen.type == RDMA_CM_EVENT_CONNECT_REQUEST)
			id_end(seen.id);
	}
	pair_close(&pair);
	settle();
	return good;
}

static void every_allocation_may_fail(void)
{
	long live;
	long n;
	int failures = 0;

	settle();
	live = rk_alloc_live();
	patience_ms = 150;
	for (n = 0; n < 400; n++) {
		if (!connect_failing_at(n))
			failures++;
		else if (n > 100)
			break;
		if (rk_alloc_live() != live || lanes_in_use() || cm.id_count)
			break;
	}
	ok(failures >= 20 && rk_alloc_live() == live && !lanes_in_use() &&
		   !cm.id_count,
	   "%d failed allocations, nothing leaks (%ld more, %u ids, %d lanes)",
	   failures, rk_alloc_live() - live, cm.id_count,
	   (int)lanes_in_use());
	ok(connect_failing_at(-1), "and all is well afterwards");
}

int main(void)
{
	v = softverbs_table();
	v->cm_destroy_event_channel(v->cm_create_event_channel());
	cm.device->wire->linger_ns = 1; /* an unused link goes at once */
	backlog_is_a_limit();
	silence_times_out();
	destroying_at_any_moment();
	a_listener_takes_its_unfetched_children_along();
	destroy_waits_for_acknowledgements();
	a_channel_destroyed_first();
	every_allocation_may_fail();
	return ok_done();
}
