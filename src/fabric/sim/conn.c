/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting, accepting and the many ways a connection ends.
 *
 * A connection's closed() is an entry of its context behind everything that
 * arrived before, as completions come before what ends them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "fabric/sim/internal.h"

enum { CONNECT_TIMEOUT_MS = 5000 };

static struct sim_conn *conn_new(struct sim_context *context, struct pair *pair,
				 enum side side, enum conn_state state)
{
	struct sim_conn *conn = rk_zalloc(sizeof(*conn));

	if (!conn)
		return NULL;
	conn->base.context = &context->base;
	conn->pair = pair;
	conn->side = side;
	conn->state = state;
	conn->peer_rnr_retry = -1;
	pair->end[side] = conn;
	pair->references++;
	rk_list_add_tail(&context->conns, &conn->node);
	context->connections++;
	context->net->connections++;
	return conn;
}

static bool is_valid(const struct rk_conn_params *params)
{
	return params->send_depth >= 1 && params->send_depth <= 8192 &&
	       params->receive_depth >= 1 && params->receive_depth <= 8192 &&
	       params->receive_bytes <= 4096 && params->retry_count <= 7 &&
	       params->rnr_retry_count <= 7;
}

static struct pair *pair_new(struct sim_net *net,
			     const struct sockaddr_storage *addr,
			     const struct sockaddr_storage *source)
{
	struct pair *pair = sim_must_calloc(1, sizeof(*pair));

	pair->references = 1;
	pair->id = ++net->pair_count;
	pair->net = net;
	rk_list_init(&pair->from[ACTIVE].works);
	rk_list_init(&pair->from[PASSIVE].works);
	pair->address = *addr;
	pair->source = *source;
	if (!sim_addr_port(&pair->source))
		sim_addr_set_port(&pair->source, 32768 + pair->id % 16384);
	return pair;
}

int sim_conn_connect(struct rk_context *base, const struct sockaddr *addr,
		     const struct sockaddr *source,
		     const struct rk_conn_params *params,
		     const void *private_data, size_t bytes, int timeout_ms,
		     const struct rk_conn_handler *handler, void *user,
		     struct rk_conn **out)
{
	struct sim_context *context = sim_context_of(base);
	struct sim_net *net = context->net;
	struct sockaddr_storage to, from = { .ss_family = addr->sa_family };
	struct sim_conn *conn;
	struct pair *pair;

	*out = NULL;
	if (sim_addr_copy(&to, addr) ||
	    (source && sim_addr_copy(&from, source)))
		return -EAFNOSUPPORT;
	if (!is_valid(params) || bytes > REQUEST_PRIVATE_BYTES)
		return -EINVAL;
	pair = pair_new(net, &to, &from);
	conn = conn_new(context, pair, ACTIVE, CONNECTING);
	sim_pair_put(pair);
	if (!conn)
		return -ENOMEM;
	conn->base.handler = handler;
	conn->base.user = user;
	conn->params = *params;
	conn->receives_posted = params->receive_depth;
	conn->local = pair->source;
	conn->remote = pair->address;
	pair->request_params = *params;
	if (bytes)
		memcpy(pair->request_data, private_data, bytes);
	if (!sim_chance(net, net->knobs.lost_chance))
		sim_event_push(net,
			       sim_event_new(net, EVENT_REQUEST, pair, PASSIVE),
			       net->now_ns + sim_delay_ns(net));
	sim_event_push(
		net, sim_event_new(net, EVENT_TIMEOUT, pair, ACTIVE),
		net->now_ns + RK_NS_PER_MS *
				      (uint64_t)(timeout_ms > 0
							 ? timeout_ms
							 : CONNECT_TIMEOUT_MS));
	sim_trace(net, "connect", pair, ACTIVE, bytes, params->send_depth);
	*out = &conn->base;
	return 0;
}

static void send_reject(struct pair *pair, int status)
{
	struct sim_net *net = pair->net;
	struct event *event = sim_event_new(net, EVENT_REJECT, pair, ACTIVE);

	event->status = status;
	sim_event_push(net, event, net->now_ns + sim_delay_ns(net));
}

static void request_arrives(struct pair *pair)
{
	struct sim_listener *listener =
		sim_find_listener(pair->net, &pair->address);
	struct sim_context *context;
	struct sim_conn *conn;
	struct entry *entry;

	if (pair->cancelled)
		return;
	if (!listener || sim_context_of(listener->base.context)->crashed) {
		send_reject(pair, REJECT_NOBODY_LISTENS);
		return;
	}
	context = sim_context_of(listener->base.context);
	conn = sim_chance(pair->net, pair->net->knobs.reject_chance)
		       ? NULL
		       : conn_new(context, pair, PASSIVE, REQUESTED);
	if (!conn) {
		send_reject(pair, REJECT_NO_RESOURCES);
		return;
	}
	conn->peer_rnr_retry = pair->request_params.rnr_retry_count;
	conn->local = pair->address;
	conn->remote = pair->source;
	entry = sim_entry_new(ENTRY_REQUEST, pair, PASSIVE);
	entry->listener = listener;
	sim_entry_queue(context, entry);
}

int sim_conn_accept(struct rk_conn *base, const struct rk_conn_params *params,
		    const void *private_data, size_t bytes,
		    const struct rk_conn_handler *handler, void *user)
{
	struct sim_conn *conn = sim_conn_of(base);
	struct pair *pair = conn->pair;
	struct sim_net *net = pair->net;
	struct event *event;

	if (conn->state != REQUESTED)
		return -EINVAL;
	if (!is_valid(params) || bytes > REPLY_PRIVATE_BYTES) {
		conn->state = CLOSED;
		send_reject(pair, REJECT_NO_RESOURCES);
		return -EINVAL;
	}
	if (pair->cancelled || pair->cut) {
		conn->state = CLOSED;
		return -ECONNRESET;
	}
	base->handler = handler;
	base->user = user;
	conn->params = *params;
	conn->receives_posted = params->receive_depth;
	conn->state = ACCEPTED;
	event = sim_event_new(net, EVENT_REPLY, pair, ACTIVE);
	if (bytes)
		memcpy(event->private_data, private_data, bytes);
	sim_event_push(net, event, net->now_ns + sim_delay_ns(net));
	sim_event_push(net, sim_event_new(net, EVENT_TIMEOUT, pair, PASSIVE),
		       net->now_ns + CONNECT_TIMEOUT_MS * RK_NS_PER_MS);
	sim_trace(net, "accept", pair, PASSIVE, bytes, params->send_depth);
	return 0;
}

int sim_conn_reject(struct rk_conn *base, const void *private_data,
		    size_t bytes)
{
	struct sim_conn *conn = sim_conn_of(base);

	if (conn->state != REQUESTED || bytes > REJECT_PRIVATE_BYTES)
		return -EINVAL;
	conn->state = CLOSED;
	send_reject(conn->pair, REJECT_CONSUMER);
	return 0;
}

static void reply_arrives(struct event *event, struct sim_conn *conn)
{
	struct pair *pair = event->pair;
	struct entry *entry;

	if (conn->state != CONNECTING || pair->cancelled)
		return;
	pair->replied = true;
	entry = sim_entry_new(ENTRY_ESTABLISHED, pair, ACTIVE);
	if (pair->end[PASSIVE])
		conn->peer_rnr_retry =
			pair->end[PASSIVE]->params.rnr_retry_count;
	entry->bytes = REPLY_PRIVATE_BYTES;
	entry->message = sim_must_calloc(1, REPLY_PRIVATE_BYTES);
	memcpy(entry->message, event->private_data, REPLY_PRIVATE_BYTES);
	sim_entry_queue(sim_context_of(conn->base.context), entry);
}

/* The active side stops connecting; the passive one hears of it. */
static void cancel(struct pair *pair)
{
	struct sim_net *net = pair->net;

	if (pair->cancelled)
		return;
	pair->cancelled = true;
	sim_event_push(net, sim_event_new(net, EVENT_CANCEL, pair, PASSIVE),
		       net->now_ns + sim_delay_ns(net));
}

/* Does it cross the network? */
static bool is_message(enum event_kind kind)
{
	return kind == EVENT_REQUEST || kind == EVENT_REPLY ||
	       kind == EVENT_REJECT || kind == EVENT_READY ||
	       kind == EVENT_CANCEL;
}

/* A connection that never was is not lost, but out of reach. */
static void lost(struct pair *pair, enum side side, enum conn_state state,
		 int status)
{
	if (state == CONNECTING)
		sim_conn_fail(pair, side, RK_CLOSE_UNREACHABLE, -ECONNRESET);
	else
		sim_conn_fail(pair, side, RK_CLOSE_ERROR, status);
}

void sim_conn_event(struct event *event)
{
	struct pair *pair = event->pair;
	struct sim_conn *conn = pair->end[event->side];
	struct entry *entry;

	sim_trace(pair->net, "cm", pair, event->side, event->kind,
		  (uint64_t)event->status);
	if (pair->silent && is_message(event->kind))
		return;
	if (event->kind == EVENT_REQUEST)
		request_arrives(pair);
	if (!conn)
		return;
	switch (event->kind) {
	case EVENT_REPLY:
		reply_arrives(event, conn);
		break;
	case EVENT_REJECT:
		if (event->status == REJECT_NOBODY_LISTENS)
			sim_conn_fail(pair, ACTIVE, RK_CLOSE_UNREACHABLE,
				      -ECONNREFUSED);
		else
			sim_conn_fail(pair, ACTIVE, RK_CLOSE_REJECTED,
				      event->status);
		break;
	case EVENT_READY:
		if (conn->state != ACCEPTED)
			break;
		entry = sim_entry_new(ENTRY_ESTABLISHED, pair, PASSIVE);
		sim_entry_queue(sim_context_of(conn->base.context), entry);
		break;
	case EVENT_CANCEL:
		if (conn->state == ACCEPTED)
			sim_conn_fail(pair, PASSIVE, RK_CLOSE_UNREACHABLE,
				      -ECONNRESET);
		break;
	case EVENT_TIMEOUT:
		if (conn->state == CONNECTING && !pair->replied)
			cancel(pair);
		else if (conn->state != ACCEPTED)
			break;
		sim_conn_fail(pair, event->side, RK_CLOSE_UNREACHABLE,
			      -ETIMEDOUT);
		break;
	case EVENT_FAIL:
		lost(pair, event->side, conn->state, event->status);
		break;
	case EVENT_LOCAL_CLOSED:
		sim_conn_fail(pair, event->side, RK_CLOSE_LOCAL, 0);
		break;
	case EVENT_REQUEST:
	case EVENT_PROCESS:
	case EVENT_DELIVER:
	case EVENT_ACK:
		break; /* not of this file */
	}
}

void sim_conn_fail(struct pair *pair, enum side side,
		   enum rk_close_reason reason, int status)
{
	struct sim_conn *conn = pair->end[side];
	struct entry *entry;

	if (!conn || conn->state == DOWN || conn->state == CLOSED ||
	    conn->state == REQUESTED)
		return;
	conn->state = DOWN;
	sim_pipe_purge(&pair->from[side]);
	entry = sim_entry_new(ENTRY_CLOSED, pair, side);
	entry->reason = reason;
	entry->status = status;
	sim_entry_queue(sim_context_of(conn->base.context), entry);
}

/* What CLOSING and a destroyed connection have in common. */
static void leave(struct pair *pair, enum side side, enum conn_state state)
{
	switch (state) {
	case CONNECTING:
		cancel(pair);
		break;
	case REQUESTED:
		send_reject(pair, REJECT_CONSUMER);
		break;
	case ACCEPTED:
	case UP:
		sim_pipe_end(pair, side);
		break;
	case CLOSING:
	case DOWN:
	case CLOSED:
		break;
	}
}

int sim_conn_disconnect(struct rk_conn *base)
{
	struct sim_conn *conn = sim_conn_of(base);
	struct pair *pair = conn->pair;
	struct sim_net *net = pair->net;

	if (conn->state != UP && conn->state != ACCEPTED &&
	    conn->state != CONNECTING)
		return -ENOTCONN;
	sim_trace(net, "disconnect", pair, conn->side, conn->state, 0);
	leave(pair, conn->side, conn->state);
	conn->state = CLOSING;
	sim_event_push(
		net, sim_event_new(net, EVENT_LOCAL_CLOSED, pair, conn->side),
		rk_max(net->now_ns, pair->from[conn->side].last_arrive_ns) +
			sim_delay_ns(net));
	return 0;
}

void sim_conn_destroy(struct rk_conn *base)
{
	struct sim_conn *conn = sim_conn_of(base);
	struct sim_context *context = sim_context_of(base->context);
	struct pair *pair = conn->pair;

	sim_trace(pair->net, "destroy", pair, conn->side, conn->state, 0);
	if (!context->crashed)
		leave(pair, conn->side, conn->state);
	pair->end[conn->side] = NULL;
	sim_entries_drop(context, pair, conn->side);
	rk_list_remove(&conn->node);
	context->connections--;
	context->net->connections--;
	rk_free(conn);
	sim_pair_put(pair);
}

static void notice_later(struct pair *pair, enum side side)
{
	struct sim_net *net = pair->net;
	struct event *event = sim_event_new(net, EVENT_FAIL, pair, side);

	event->status = rk_list_empty(&pair->from[side].works)
				? 0
				: IBV_WC_RETRY_EXC_ERR;
	sim_event_push(net, event, net->now_ns + sim_delay_ns(net));
}

void sim_pair_cut(struct pair *pair)
{
	struct sim_conn *active = pair->end[ACTIVE];

	if (pair->cut)
		return;
	sim_trace(pair->net, "cut", pair, ACTIVE, 0, 0);
	pair->cut = true;
	if (active && active->state == CONNECTING)
		cancel(pair);
	notice_later(pair, ACTIVE);
	notice_later(pair, PASSIVE);
}

void sim_cut(struct rk_conn *conn)
{
	sim_pair_cut(sim_conn_of(conn)->pair);
}

void sim_silence(struct rk_conn *conn)
{
	struct pair *pair = sim_conn_of(conn)->pair;

	sim_trace(pair->net, "silence", pair, ACTIVE, 0, 0);
	pair->silent = true;
}
