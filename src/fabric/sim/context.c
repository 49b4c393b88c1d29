/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A simulated context: what arrived waits in its list of entries until its
 * owner runs, which is an event of its own.  An entry that belongs to a
 * connection is dropped with it, so the connection is there when its entry is
 * taken; it may be gone when the callback returns.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/sim/internal.h"

struct entry *sim_entry_new(enum entry_kind kind, struct pair *pair,
			    enum side side)
{
	struct entry *entry = sim_must_calloc(1, sizeof(*entry));

	entry->kind = kind;
	entry->pair = pair;
	entry->side = side;
	pair->references++;
	return entry;
}

void sim_entry_free(struct entry *entry)
{
	rk_list_remove(&entry->node);
	sim_pair_put(entry->pair);
	free(entry->message);
	free(entry);
}

void sim_context_wake(struct sim_context *context)
{
	struct sim_net *net = context->net;
	struct event *event;

	if (context->held || context->crashed || context->process_pending ||
	    rk_list_empty(&context->entries))
		return;
	context->process_pending = true;
	event = sim_event_new(net, EVENT_PROCESS, NULL, ACTIVE);
	event->context = context;
	sim_event_push(net, event,
		       net->now_ns +
			       sim_random(net, net->knobs.process_max_ns + 1));
}

void sim_entry_queue(struct sim_context *context, struct entry *entry)
{
	rk_list_add_tail(&context->entries, &entry->node);
	sim_context_wake(context);
}

void sim_entries_drop(struct sim_context *context, const struct pair *pair,
		      enum side side)
{
	struct rk_list *pos, *tmp;
	struct entry *entry;

	rk_list_for_each_safe (pos, tmp, &context->entries) {
		entry = rk_list_entry(pos, struct entry, node);
		if (entry->pair == pair && entry->side == side)
			sim_entry_free(entry);
	}
}

/* The passive side is up with the peer's answer or with its first data. */
static void establish(struct pair *pair, struct sim_conn *conn,
		      const struct entry *entry)
{
	struct sim_net *net = pair->net;

	if (conn->state == ACCEPTED) {
		conn->state = UP;
		conn->base.handler->established(&conn->base, NULL, 0);
		return;
	}
	if (conn->state != CONNECTING)
		return;
	conn->state = UP;
	sim_event_push(net, sim_event_new(net, EVENT_READY, pair, PASSIVE),
		       net->now_ns + sim_delay_ns(net));
	conn->base.handler->established(&conn->base, entry->message,
					entry->bytes);
}

static void take_arrival(struct pair *pair, struct sim_conn *conn,
			 struct entry *entry)
{
	const struct rk_conn_handler *handler = conn->base.handler;
	enum side side = entry->side;

	if (conn->state == ACCEPTED) {
		establish(pair, conn, entry);
		conn = pair->end[side];
		if (!conn)
			return;
	}
	if (entry->kind == ENTRY_RECEIVED)
		handler->received(&conn->base, entry->message, entry->bytes);
	else
		handler->written(&conn->base, entry->immediate, entry->bytes);
	conn = pair->end[side];
	if (conn)
		conn->receives_posted++;
}

static void tell_writable(struct sim_conn *conn)
{
	if (!conn->wants_writable || conn->state != UP ||
	    conn->slots_used >= conn->params.send_depth)
		return;
	conn->wants_writable = false;
	conn->base.handler->writable(&conn->base);
}

static void take_sent(struct pair *pair, struct sim_conn *conn,
		      const struct entry *entry)
{
	conn->slots_used -= entry->slots;
	if (entry->tell)
		conn->base.handler->sent(&conn->base, entry->token);
	conn = pair->end[entry->side];
	if (conn)
		tell_writable(conn);
}

static void take(struct sim_context *context, struct entry *entry)
{
	struct pair *pair = entry->pair;
	struct sim_conn *conn = pair->end[entry->side];
	struct sim_listener *listener = entry->listener;

	switch (entry->kind) {
	case ENTRY_REQUEST:
		listener->handler->request(listener->user, &conn->base,
					   pair->request_data,
					   sizeof(pair->request_data));
		break;
	case ENTRY_ESTABLISHED:
		establish(pair, conn, entry);
		break;
	case ENTRY_RECEIVED:
	case ENTRY_WRITTEN:
		take_arrival(pair, conn, entry);
		break;
	case ENTRY_SENT:
		take_sent(pair, conn, entry);
		break;
	case ENTRY_WRITABLE:
		tell_writable(conn);
		break;
	case ENTRY_CLOSED:
		conn->state = CLOSED;
		if (entry->reason == RK_CLOSE_ERROR)
			context->errors++;
		conn->base.handler->closed(&conn->base, entry->reason,
					   entry->status);
		break;
	}
}

static unsigned context_process(struct rk_context *base, unsigned budget)
{
	struct sim_context *context = sim_context_of(base);
	struct entry *entry;
	unsigned count = 0;

	while (!rk_list_empty(&context->entries) &&
	       (!budget || count < budget)) {
		entry = rk_list_first(&context->entries, struct entry, node);
		/* out of the list, so that a destroy inside leaves it alone */
		rk_list_remove(&entry->node);
		sim_trace(context->net, "process", entry->pair, entry->side,
			  entry->kind, entry->bytes);
		take(context, entry);
		sim_entry_free(entry);
		count++;
	}
	return count + rk_context_run_timers(base);
}

void sim_context_run(struct sim_context *context)
{
	if (context->held || context->crashed)
		return;
	rk_context_process(&context->base, context->net->knobs.process_budget);
	sim_context_wake(context);
}

static void context_close(struct rk_context *base)
{
	struct sim_context *context = sim_context_of(base);
	struct sim_net *net = context->net;
	struct rk_list *pos, *tmp;

	rk_list_for_each_safe (pos, tmp, &net->listeners) {
		struct sim_listener *listener =
			rk_list_entry(pos, struct sim_listener, node);
		if (listener->base.context == base)
			sim_conn_unlisten(&listener->base);
	}
	rk_list_for_each_safe (pos, tmp, &context->conns)
		sim_conn_destroy(
			&rk_list_entry(pos, struct sim_conn, node)->base);
	sim_memory_free_all(context);
	rk_list_remove(&context->node);
	for (size_t i = 0; i < net->heap_count; i++) {
		if (net->heap[i]->context == context)
			net->heap[i]->context = NULL;
	}
	free(context);
}

static int context_fd(const struct rk_context *base)
{
	return -1;
}

static int context_arm(struct rk_context *base)
{
	return !rk_list_empty(&sim_context_of(base)->entries);
}

static uint64_t context_now_ns(const struct rk_context *base)
{
	return sim_context_of(base)->net->now_ns;
}

static void context_info(const struct rk_context *base,
			 struct rk_context_info *out)
{
	const struct sim_context *context = sim_context_of(base);

	*out = (struct rk_context_info){
		.device = "simulated",
		.reason = "a simulation",
		.software = true,
		.connections = context->connections,
		.bytes_registered = context->bytes_registered,
		.receiver_not_ready = context->receiver_not_ready,
		.errors = context->errors,
	};
}

static unsigned conn_inline_bytes(const struct rk_conn *base)
{
	const struct sim_conn *conn = sim_conn_of(base);

	return rk_min(conn->params.inline_bytes,
		      conn->pair->net->knobs.inline_bytes);
}

static unsigned conn_pieces_max(const struct rk_conn *base)
{
	return rk_min(sim_conn_of(base)->pair->net->knobs.pieces,
		      (unsigned)RK_PIECES_MAX);
}

static int conn_peer_rnr_retry(const struct rk_conn *base)
{
	return sim_conn_of(base)->peer_rnr_retry;
}

static int conn_address(const struct rk_conn *base, bool remote,
			struct sockaddr_storage *out)
{
	const struct sim_conn *conn = sim_conn_of(base);

	*out = remote ? conn->remote : conn->local;
	return 0;
}

const struct rk_fabric_ops sim_ops = {
	.close = context_close,
	.fd = context_fd,
	.process = context_process,
	.arm = context_arm,
	.now_ns = context_now_ns,
	.info = context_info,
	.listen = sim_conn_listen,
	.listener_port = sim_conn_listener_port,
	.unlisten = sim_conn_unlisten,
	.connect = sim_conn_connect,
	.accept = sim_conn_accept,
	.reject = sim_conn_reject,
	.disconnect = sim_conn_disconnect,
	.destroy = sim_conn_destroy,
	.send = sim_pipe_send,
	.write = sim_pipe_write,
	.mem_alloc = sim_memory_alloc,
	.mem_free = sim_memory_free,
	.inline_bytes = conn_inline_bytes,
	.pieces_max = conn_pieces_max,
	.peer_rnr_retry = conn_peer_rnr_retry,
	.address = conn_address,
};

struct rk_context *sim_context(struct sim_net *net)
{
	struct sim_context *context = sim_must_calloc(1, sizeof(*context));

	rk_context_base_init(&context->base, &sim_ops);
	context->net = net;
	rk_list_init(&context->entries);
	rk_list_init(&context->conns);
	rk_list_add_tail(&net->contexts, &context->node);
	return &context->base;
}

void sim_hold(struct rk_context *base, bool hold)
{
	struct sim_context *context = sim_context_of(base);

	context->held = hold;
	sim_context_wake(context);
}

void sim_crash(struct rk_context *base)
{
	struct sim_context *context = sim_context_of(base);
	struct rk_list *pos, *tmp;

	context->crashed = true;
	rk_list_for_each_safe (pos, tmp, &context->conns)
		sim_pair_cut(rk_list_entry(pos, struct sim_conn, node)->pair);
}
