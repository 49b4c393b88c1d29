/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Posted work on its way to the other side: one queue per direction, whose
 * head alone has an event.  What it meets there decides: delivered, held up by
 * RNR, or the end of the connection.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fabric/sim/internal.h"

static void work_free(struct work *work)
{
	rk_list_remove(&work->node);
	free(work->copy);
	free(work);
}

void sim_pipe_purge(struct pipe *pipe)
{
	while (!rk_list_empty(&pipe->works))
		work_free(rk_list_first(&pipe->works, struct work, node));
}

static void schedule(struct pair *pair, enum side from, uint64_t not_before_ns)
{
	struct pipe *pipe = &pair->from[from];
	struct work *work;

	if (pipe->event_pending || rk_list_empty(&pipe->works))
		return;
	work = rk_list_first(&pipe->works, struct work, node);
	pipe->event_pending = true;
	sim_event_push(pair->net,
		       sim_event_new(pair->net, EVENT_DELIVER, pair, from),
		       rk_max(work->arrive_ns, not_before_ns));
}

/* The bytes of a work as they are in its source memory now. */
static uint8_t *gather(const struct work *work)
{
	uint8_t *bytes = sim_must_calloc(1, work->bytes);
	size_t at = 0;

	for (unsigned i = 0; i < work->count; i++) {
		memcpy(bytes + at, work->pieces[i].addr, work->pieces[i].bytes);
		at += work->pieces[i].bytes;
	}
	return bytes;
}

static bool source_is_registered(const struct work *work,
				 const struct sim_conn *sender)
{
	const struct rk_piece *piece;

	for (unsigned i = 0; i < work->count; i++) {
		piece = &work->pieces[i];
		if (piece->bytes &&
		    !sim_memory_find(sim_context_of(sender->base.context), NULL,
				     sender->side, piece->lkey,
				     (uint64_t)(uintptr_t)piece->addr,
				     piece->bytes))
			return false;
	}
	return true;
}

static int check_post(struct sim_conn *conn, const struct rk_piece *pieces,
		      unsigned count, unsigned flags, uint64_t *total)
{
	struct sim_net *net = conn->pair->net;

	*total = 0;
	for (unsigned i = 0; i < count; i++)
		*total += pieces[i].bytes;
	if (conn->state != UP)
		return -ENOTCONN;
	if (count > net->knobs.pieces || count > RK_PIECES_MAX ||
	    *total > UINT32_MAX)
		return -EINVAL;
	if ((flags & RK_INLINE) && *total > rk_conn_inline_bytes(&conn->base))
		return -EINVAL;
	if (conn->slots_used >= conn->params.send_depth) {
		conn->wants_writable = true;
		return -EAGAIN;
	}
	if (sim_chance(net, net->knobs.full_chance)) {
		conn->wants_writable = true;
		sim_entry_queue(sim_context_of(conn->base.context),
				sim_entry_new(ENTRY_WRITABLE, conn->pair,
					      conn->side));
		return -EAGAIN;
	}
	return 0;
}

static void take_slot(struct sim_conn *conn, struct work *work)
{
	unsigned every = rk_max(conn->params.send_depth / 4, 1u);

	conn->slots_used++;
	conn->unsignalled++;
	if (!(work->flags & RK_SIGNALLED) && conn->unsignalled < every)
		return;
	work->slots = conn->unsignalled;
	conn->unsignalled = 0;
}

static int post(struct sim_conn *conn, struct work *work,
		const struct rk_piece *pieces, unsigned count)
{
	struct pair *pair = conn->pair;
	struct pipe *pipe = &pair->from[conn->side];
	uint64_t total;
	int ret;

	ret = check_post(conn, pieces, count, work->flags, &total);
	if (ret) {
		free(work);
		return ret;
	}
	work->bytes = (uint32_t)total;
	work->count = count;
	if (count)
		memcpy(work->pieces, pieces, count * sizeof(*pieces));
	if (!(work->flags & RK_INLINE) && !source_is_registered(work, conn)) {
		free(work);
		sim_mistake(pair->net, pair,
			    "source of a post is not registered");
		sim_pair_error(pair, IBV_WC_LOC_PROT_ERR);
		return 0;
	}
	work->copy = gather(work);
	work->hash = sim_hash_bytes(0, work->copy, work->bytes);
	if (!(work->flags & RK_INLINE)) {
		free(work->copy);
		work->copy = NULL;
	}
	take_slot(conn, work);
	pipe->last_arrive_ns =
		rk_max(pipe->last_arrive_ns,
		       pair->net->now_ns + sim_delay_ns(pair->net));
	work->arrive_ns = pipe->last_arrive_ns;
	rk_list_add_tail(&pipe->works, &work->node);
	sim_trace(pair->net, work->op == WORK_SEND ? "send" : "write", pair,
		  conn->side, work->bytes, work->hash);
	schedule(pair, conn->side, 0);
	return 0;
}

int sim_pipe_send(struct rk_conn *base, const struct rk_piece *pieces,
		  unsigned count, unsigned flags, uint64_t token)
{
	struct work *work = sim_must_calloc(1, sizeof(*work));

	work->op = WORK_SEND;
	work->flags = flags & ~RK_WITH_IMM;
	work->token = token;
	rk_list_init(&work->node);
	return post(sim_conn_of(base), work, pieces, count);
}

int sim_pipe_write(struct rk_conn *base, const struct rk_piece *pieces,
		   unsigned count, uint64_t remote_addr, uint32_t rkey,
		   uint32_t immediate, unsigned flags, uint64_t token)
{
	struct work *work = sim_must_calloc(1, sizeof(*work));

	work->op = WORK_WRITE;
	work->flags = flags;
	work->remote_addr = remote_addr;
	work->rkey = rkey;
	work->immediate = immediate;
	work->token = token;
	rk_list_init(&work->node);
	return post(sim_conn_of(base), work, pieces, count);
}

void sim_pipe_end(struct pair *pair, enum side from)
{
	struct pipe *pipe = &pair->from[from];
	struct rk_list *pos, *tmp;
	struct sim_conn *conn = pair->end[from];
	struct work *work;
	uint64_t kept, count = 0;

	rk_list_for_each_safe (pos, tmp, &pipe->works)
		count++;
	kept = sim_random(pair->net, count + 1);
	rk_list_for_each_safe (pos, tmp, &pipe->works) {
		work = rk_list_entry(pos, struct work, node);
		if (!work->copy && kept && source_is_registered(work, conn))
			work->copy = gather(work); /* has left */
		if (!work->copy || !kept) {
			kept = 0;
			work_free(work);
			continue;
		}
		kept--;
	}
	work = sim_must_calloc(1, sizeof(*work));
	work->op = WORK_DISCONNECT;
	work->arrive_ns = rk_max(pipe->last_arrive_ns,
				 pair->net->now_ns + sim_delay_ns(pair->net));
	pipe->last_arrive_ns = work->arrive_ns;
	rk_list_add_tail(&pipe->works, &work->node);
	schedule(pair, from, 0);
}

/* A mistake of one side costs both their connection. */
void sim_pair_error(struct pair *pair, int status)
{
	sim_conn_fail(pair, ACTIVE, RK_CLOSE_ERROR, status);
	sim_conn_fail(pair, PASSIVE, RK_CLOSE_ERROR, status);
	pair->cut = true;
}

static void complete(struct pair *pair, enum side from, struct work *work)
{
	struct sim_net *net = pair->net;
	struct pipe *pipe = &pair->from[from];
	struct event *event;

	if (work->slots && pair->end[from]) {
		event = sim_event_new(net, EVENT_ACK, pair, from);
		event->token = work->token;
		event->slots = work->slots;
		event->tell = work->flags & RK_SIGNALLED;
		pipe->last_ack_ns = rk_max(
			pipe->last_ack_ns,
			net->now_ns + sim_delay_ns(net) +
				sim_random(net,
					   net->knobs.completion_max_ns + 1));
		sim_event_push(net, event, pipe->last_ack_ns);
	}
	work_free(work);
}

void sim_pipe_ack(struct event *event)
{
	struct sim_conn *conn = event->pair->end[event->side];
	struct entry *entry;

	if (!conn || event->pair->cut ||
	    (conn->state != UP && conn->state != CLOSING))
		return;
	entry = sim_entry_new(ENTRY_SENT, event->pair, event->side);
	entry->token = event->token;
	entry->slots = event->slots;
	entry->tell = event->tell;
	sim_entry_queue(sim_context_of(conn->base.context), entry);
}

/* Who has left repeats nothing; only its farewell gets through. */
static void drop_all_but_farewell(struct pipe *pipe)
{
	struct rk_list *pos, *tmp;
	struct work *work;

	rk_list_for_each_safe (pos, tmp, &pipe->works) {
		work = rk_list_entry(pos, struct work, node);
		if (work->op != WORK_DISCONNECT)
			work_free(work);
	}
}

/* No receive is posted: wait and try again, or give up. */
static void not_ready(struct pair *pair, enum side from, struct work *work)
{
	struct sim_net *net = pair->net;
	struct sim_conn *sender = pair->end[from];
	unsigned retries;

	sim_trace(net, "rnr", pair, from, work->rnr_count, 0);
	if (!sender || sender->state != UP) {
		drop_all_but_farewell(&pair->from[from]);
		return;
	}
	sim_context_of(sender->base.context)->receiver_not_ready++;
	retries = (unsigned)rk_max(sender->peer_rnr_retry, 0);
	if (retries < 7 && work->rnr_count++ >= retries) {
		sim_conn_fail(pair, from, RK_CLOSE_ERROR,
			      IBV_WC_RNR_RETRY_EXC_ERR);
		sim_pipe_end(pair, from);
		return;
	}
	work->arrive_ns = net->now_ns + net->knobs.rnr_wait_ns;
}

/* Everything about a work that the receiving side checks.  NULL: no place is
 * needed or, with *status set, it is refused. */
static uint8_t *find_place(struct work *work, struct sim_conn *target,
			   int *status)
{
	struct pair *pair = target->pair;
	uint8_t *place;

	*status = 0;
	if (work->op == WORK_SEND) {
		if (work->bytes <= target->params.receive_bytes)
			return NULL;
		sim_mistake(pair->net, pair,
			    "a SEND of %u bytes for a receive of %u",
			    work->bytes, target->params.receive_bytes);
		*status = IBV_WC_REM_INV_REQ_ERR;
		return NULL;
	}
	if (!work->bytes)
		return NULL;
	place = sim_memory_find(sim_context_of(target->base.context), pair,
				target->side, work->rkey, work->remote_addr,
				work->bytes);
	if (place)
		return place;
	sim_mistake(pair->net, pair,
		    "a WRITE of %u bytes to 0x%llx, key %u: "
		    "not the peer's memory",
		    work->bytes, (unsigned long long)work->remote_addr,
		    work->rkey);
	*status = IBV_WC_REM_ACCESS_ERR;
	return NULL;
}

/* Take the bytes as they are now; false: they are gone. */
static bool read_source(struct pair *pair, enum side from, struct work *work)
{
	if (work->copy)
		return true;
	if (!source_is_registered(work, pair->end[from])) {
		sim_mistake(pair->net, pair,
			    "source of a post of %u bytes was "
			    "freed before it was delivered",
			    work->bytes);
		return false;
	}
	work->copy = gather(work);
	if (sim_hash_bytes(0, work->copy, work->bytes) != work->hash)
		sim_mistake(pair->net, pair,
			    "source of a post of %u bytes changed "
			    "before it was delivered",
			    work->bytes);
	return true;
}

static void arrive(struct pair *pair, enum side from, struct work *work,
		   struct sim_conn *target)
{
	bool takes_receive = work->op == WORK_SEND ||
			     (work->flags & RK_WITH_IMM);
	struct entry *entry;
	uint8_t *place;
	int status;

	if (takes_receive && !target->receives_posted) {
		not_ready(pair, from, work);
		return;
	}
	place = find_place(work, target, &status);
	if (!status && !read_source(pair, from, work))
		status = IBV_WC_LOC_PROT_ERR;
	if (status) {
		sim_pair_error(pair, status);
		return;
	}
	if (place)
		memcpy(place, work->copy, work->bytes);
	sim_trace(pair->net, "deliver", pair, from, work->bytes,
		  work->immediate);
	if (takes_receive) {
		target->receives_posted--;
		entry = sim_entry_new(work->op == WORK_SEND ? ENTRY_RECEIVED
							    : ENTRY_WRITTEN,
				      pair, target->side);
		entry->bytes = work->bytes;
		entry->immediate = work->immediate;
		if (work->op == WORK_SEND) {
			entry->message = work->copy;
			work->copy = NULL;
		}
		sim_entry_queue(sim_context_of(target->base.context), entry);
	}
	complete(pair, from, work);
}

/* The peer does not answer: its sender notices after a while. */
static void nobody_there(struct pair *pair, enum side from)
{
	struct event *event = sim_event_new(pair->net, EVENT_FAIL, pair, from);

	sim_pipe_purge(&pair->from[from]);
	event->status = IBV_WC_RETRY_EXC_ERR;
	sim_event_push(pair->net, event,
		       pair->net->now_ns + pair->net->knobs.retry_ns);
}

void sim_pipe_deliver(struct pair *pair, enum side from)
{
	struct pipe *pipe = &pair->from[from];
	struct sim_conn *target = pair->end[other(from)];
	struct work *work;

	pipe->event_pending = false;
	if (rk_list_empty(&pipe->works))
		return;
	work = rk_list_first(&pipe->works, struct work, node);
	if (work->arrive_ns > pair->net->now_ns) {
		schedule(pair, from, 0);
		return;
	}
	if (!pair->cut && work->op != WORK_DISCONNECT &&
	    sim_chance(pair->net, pair->net->knobs.cut_chance))
		sim_pair_cut(pair);
	if (pair->cut || !target ||
	    (target->state != UP && target->state != ACCEPTED)) {
		sim_pipe_purge(pipe); /* who posted it is told otherwise */
		return;
	}
	if (pair->silent) {
		nobody_there(pair, from);
		return;
	}
	if (work->op == WORK_DISCONNECT) {
		sim_conn_fail(pair, other(from), RK_CLOSE_PEER, 0);
		sim_pipe_purge(pipe);
		return;
	}
	arrive(pair, from, work, target);
	schedule(pair, from, 0);
}
