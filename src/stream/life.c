/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stream's timer, and its end after the user has closed it: last words,
 * disconnect, freed.  Every wait here is bounded by limit_ns.
 *
 * Thread: the context's owner.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "stream/internal.h"

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
	if (!a_ns || !b_ns)
		return a_ns ? a_ns : b_ns;
	return rk_min(a_ns, b_ns);
}

/* Set the timer for the earliest of what is waited for. */
void stream_timer_update(struct rk_stream *s)
{
	uint64_t at_ns = earlier(s->limit_ns, s->tx.probe_ns);

	if (s->broken)
		at_ns = 1;
	if (at_ns != s->timer.at_ns)
		rk_timer_set(s->context, &s->timer, at_ns ? at_ns : RK_NEVER);
}

void stream_timer_fire(struct rk_timer *timer)
{
	struct rk_stream *s = rk_container_of(timer, struct rk_stream, timer);
	uint64_t now_ns = rk_context_now_ns(s->context);
	char words[WIRE_WORDS_BYTES];

	if (s->broken) {
		snprintf(words, sizeof(words), "posting to the device failed: %s",
			 strerror(-s->broken));
		stream_refuse(s, s->broken, words);
		return;
	}
	if (s->limit_ns && now_ns >= s->limit_ns) {
		stream_free(s); /* accepting, lingering, parting: nobody's */
		return;
	}
	credit_timeout(s, now_ns);
	if (s->state == STREAM_LINGERING && !stream_wind_down(s))
		return;
	stream_timer_update(s);
}

/*
 * Nothing was sent for a while: send something, so that the device notices if
 * the peer is no more.  A server's keepalive takes one of the peer's receives,
 * and a peer that never looks does not post new ones: before they are used up,
 * and always for a client, which must not send keepalives, an empty write does
 * the same and takes none.
 */
static void keepalive(struct rk_stream *s)
{
	bool quiet = s->keepalive_seen == s->tx.wr_posted;

	if (quiet && s->role == STREAM_SERVER && !credit_is_low(s)) {
		if (!(s->control.out & STREAM_DUE_KEEPALIVE)) {
			s->control.due |= STREAM_DUE_KEEPALIVE;
			control_post(s);
		}
	} else if (quiet && !s->keepalive_out && !tx_post_empty(s)) {
		s->keepalive_wr = s->tx.wr_posted;
		s->keepalive_out = true;
	}
	s->keepalive_seen = s->tx.wr_posted;
}

/* All wait equally long, so the list is in order by itself. */
static void keepalive_later(struct rk_stream *s)
{
	s->keepalive_ns = rk_context_now_ns(s->context) +
			  STREAM_KEEPALIVE_MS * RK_NS_PER_MS;
	rk_list_remove(&s->alive);
	rk_list_add_tail(&s->slot->alive, &s->alive);
}

/* A slot's timer: those that are due, and then the time of the next one. */
void stream_keepalive_fire(struct rk_timer *timer)
{
	struct stream_slot *slot =
		rk_container_of(timer, struct stream_slot, keepalive);
	uint64_t now_ns = rk_context_now_ns(slot->context);

	while (!rk_list_empty(&slot->alive)) {
		struct rk_stream *s =
			rk_list_first(&slot->alive, struct rk_stream, alive);

		if (s->keepalive_ns > now_ns) {
			rk_timer_set(slot->context, timer, s->keepalive_ns);
			return;
		}
		keepalive(s);
		keepalive_later(s);
	}
}

void stream_keepalive_start(struct rk_stream *s)
{
	keepalive_later(s);
	if (!s->slot->keepalive.at_ns)
		rk_timer_set(s->context, &s->slot->keepalive, s->keepalive_ns);
}

static void set_limit(struct rk_stream *s, unsigned ms)
{
	s->limit_ns = rk_context_now_ns(s->context) + ms * RK_NS_PER_MS;
	stream_timer_update(s);
}

/*
 * Last words: when all is announced and has completed, disconnect.  The last
 * work request may be one that is not signalled; then an empty one is.
 * false: the stream is gone.
 */
bool stream_wind_down(struct rk_stream *s)
{
	const struct stream_tx *tx = &s->tx;

	if (!tx_told(s))
		return true;
	if (tx->wr_done != tx->wr_posted) {
		if (tx->wr_signalled != tx->wr_posted)
			tx_post_empty(s); /* or at the next completion */
		return true;
	}
	stream_state_set(s, STREAM_PARTING);
	rk_list_remove(&s->alive);
	s->tx.probe_ns = 0;
	set_limit(s, STREAM_PART_MS);
	if (!rk_conn_disconnect(s->conn))
		return true;
	stream_free(s);
	return false;
}

RK_API void rk_stream_close(struct rk_stream *s)
{
	if (!s)
		return;
	if (s->state != STREAM_OPEN) {
		stream_free(s);
		return;
	}
	s->callback = NULL;
	stream_state_set(s, STREAM_LINGERING);
	set_limit(s, s->linger_ms);
	rx_discard(s);
	rk_stream_flush(s);
	stream_wind_down(s);
}

RK_API void rk_stream_abort(struct rk_stream *s)
{
	if (s)
		stream_free(s);
}
