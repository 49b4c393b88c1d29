/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection may be destroyed inside any callback, its own or another's, and
 * at any moment outside of them; nothing is told afterwards and nothing stays.
 */
#include "world.h"

static const char *const names[IN_CALLBACKS] = {
	[IN_ESTABLISHED] = "established", [IN_RECEIVED] = "received",
	[IN_WRITTEN] = "written",	  [IN_SENT] = "sent",
	[IN_WRITABLE] = "writable",	  [IN_CLOSED] = "closed",
};

static unsigned told(const struct end *end)
{
	return end->established + end->received + end->written + end->sent +
	       end->writable + end->closed;
}

/* Fill a's queue so that all callbacks come. */
static void load(struct world *w)
{
	uint32_t message = 0, number = 0;

	for (unsigned n = 0; n < 8; n++) {
		if (!w->a.conn || world_send(&w->a, message))
			return;
		message++;
	}
	while (w->a.conn && w->b.target.addr &&
	       !world_write(&w->a, &w->b.target, number, RK_SIGNALLED))
		number++;
}

static void destroyed_in(enum world_callback callback, bool passive)
{
	unsigned before, after;
	struct world w;
	struct end *end = passive ? &w.b : &w.a;
	struct end *other = passive ? &w.a : &w.b;

	world_open(&w);
	end->destroy_in = callback;
	if (world_connect(&w, 0))
		return;
	world_until(&w, (w.a.established && w.b.established) || w.a.destroyed ||
				w.b.destroyed);
	if (callback != IN_ESTABLISHED)
		load(&w);
	if (callback == IN_CLOSED) {
		world_until(&w, w.b.written > 5);
		rk_conn_disconnect(other->conn);
	}
	world_until(&w, end->destroyed);
	before = told(end);
	world_until(&w, other->closed);
	after = told(end);
	ok(end->destroyed && before == after,
	   "the %s side destroyed in %s hears nothing more",
	   passive ? "passive" : "active", names[callback]);
	ok(other->closed == 1, "the other side is told, once");
	world_close(&w);
}

static void destroyed_at_any_moment(void)
{
	unsigned rounds = 0, closed = 0;
	struct world w;

	world_open(&w);
	for (unsigned n = 0; n < 60; n++) {
		if (world_connect(&w, 0))
			break;
		for (unsigned step = 0; step < n; step++)
			world_run(&w);
		load(&w);
		for (unsigned step = 0; step < n % 7; step++)
			world_run(&w);
		rk_conn_destroy(w.a.conn);
		w.a.conn = NULL;
		rounds++;
		/* the passive side, if it ever was, must hear of the end */
		for (unsigned step = 0; step < 20; step++)
			world_run(&w);
		if (w.b.conn) {
			closed += world_until(&w, w.b.closed);
			rk_conn_destroy(w.b.conn);
			w.b.conn = NULL;
		} else {
			closed++;
		}
		rk_mem_free(w.context[1], &w.b.target);
		memset(&w.a, 0, sizeof(w.a));
		memset(&w.b, 0, sizeof(w.b));
	}
	ok(rounds == 60 && closed == 60,
	   "60 connections destroyed at 60 moments, all ends told (%u)",
	   closed);
	world_close(&w);
}

/* Completions of several connections are polled together: one destroys the
 * others, whose completions are in the same batch. */
static struct end crowd[8];

static void crowd_received(struct rk_conn *conn, const void *message,
			   uint32_t bytes)
{
	for (unsigned i = 0; i < RK_ARRAY_SIZE(crowd); i++) {
		if (crowd[i].conn && crowd[i].conn != conn) {
			rk_conn_destroy(crowd[i].conn);
			crowd[i].conn = NULL;
		}
	}
	((struct end *)conn->user)->received++;
}

static unsigned crowd_received_count(void)
{
	unsigned count = 0;

	for (unsigned i = 0; i < RK_ARRAY_SIZE(crowd); i++)
		count += crowd[i].received;
	return count;
}

static void crowd_request(void *user, struct rk_conn *conn, const void *data,
			  size_t bytes)
{
	static struct rk_conn_handler handler;
	struct world *w = user;
	struct end *end = &crowd[w->requests++ % RK_ARRAY_SIZE(crowd)];

	handler = world_handler;
	handler.received = crowd_received;
	memset(end, 0, sizeof(*end));
	if (rk_conn_accept(conn, &w->params[1], NULL, 0, &handler, end))
		rk_conn_destroy(conn);
	else
		end->conn = conn;
}

static void others_destroyed_in_a_callback(void)
{
	static const struct rk_listen_handler handler = { crowd_request };
	struct end clients[RK_ARRAY_SIZE(crowd)] = { 0 };
	unsigned up = 0, received = 0, closed = 0;
	struct world w;

	world_open(&w);
	rk_listener_destroy(w.listener);
	ok_or_die(!rk_fabric_listen(w.context[1], (struct sockaddr *)&w.addr, 0,
				    &handler, &w, &w.listener),
		  "the port can be listened on again");
	for (unsigned i = 0; i < RK_ARRAY_SIZE(crowd); i++) {
		if (rk_fabric_connect(w.context[0], (struct sockaddr *)&w.addr,
				      NULL, &w.params[0], NULL, 0, 0,
				      &world_handler, &clients[i],
				      &clients[i].conn))
			break;
		up += world_until(&w, clients[i].established &&
					      crowd[i].established);
	}
	for (unsigned i = 0; i < up; i++)
		for (uint32_t number = 0; number < 4; number++)
			if (world_send(&clients[i], number))
				break;
	for (unsigned n = 0; n < 100; n++)
		rk_context_process(w.context[0], 0);
	world_until(&w, (received = crowd_received_count()) >= 4);
	world_until(&w, clients[up - 1].closed || clients[0].closed);
	for (unsigned i = 0; i < up; i++) {
		world_until(&w, clients[i].closed || crowd[i].conn);
		closed += clients[i].closed;
	}
	ok(up == 8 && received == 4 && closed == 7,
	   "one is left of %u, with its %u messages; %u were told", up,
	   received, closed);
	for (unsigned i = 0; i < RK_ARRAY_SIZE(crowd); i++) {
		rk_conn_destroy(clients[i].conn);
		rk_conn_destroy(crowd[i].conn);
	}
	world_close(&w);
}

static void all(void)
{
	destroyed_in(IN_ESTABLISHED, false);
	destroyed_in(IN_ESTABLISHED, true);
	destroyed_in(IN_RECEIVED, true);
	destroyed_in(IN_WRITTEN, true);
	destroyed_in(IN_SENT, false);
	destroyed_in(IN_WRITABLE, false);
	destroyed_in(IN_CLOSED, false);
	destroyed_in(IN_CLOSED, true);
	destroyed_at_any_moment();
	others_destroyed_in_a_callback();
}

int main(void)
{
	long live;

	rk_log_set_level(RK_LOG_ERROR);
	all();
	live = rk_alloc_live(); /* the device itself stays */
	all();
	ok(rk_alloc_live() <= live, "nothing more is left: %ld, before %ld",
	   rk_alloc_live(), live);
	return ok_done();
}
