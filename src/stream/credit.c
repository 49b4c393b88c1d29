/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many immediates and control messages the peer can take.  Each uses up a
 * receive that the peer posted and posts again when it polls; the protocol has
 * no message that says so, and a peer of Valkey's accepts with an RNR retry
 * count of 0: one immediate too many ends the connection.
 *
 * Known to be polled is what these prove:
 *  - a new window after a full one: everything up to the immediate that filled
 *    the old one (the peer counted it);
 *  - payload: what had completed at least SETTLE_US before it came.  The peer
 *    wrote it in a turn of its loop, and polls before the next one.  It may
 *    have been written before our work was polled, and one turn may write
 *    several times: hence the time, and hence only half of the receives are
 *    used on this evidence (used_soft).
 *
 * Without credit bytes still go into the window, and one immediate announces
 * them all when there is evidence, at the window's end, or after
 * STREAM_PROBE_MS: one at a time, from the other half.  When that is used up as
 * well (50 s at least), one every STREAM_PROBE_LAST_MS: more likely the peer
 * polls and has nothing to answer than that it has slept so long.  A peer that
 * announced that our device waits for its receives (RNR retry 7) needs none of
 * this.
 *
 * Thread: the owner.
 */
#include "stream/internal.h"

enum {
	SETTLE_US = 1000,
	MARK_EVERY_US = 500, /* so one of four is 1000 to 2000 us old */
};

static uint32_t unknown(const struct stream_tx *tx)
{
	return tx->used_posted - tx->used_known;
}

static uint32_t now_us(const struct rk_stream *s)
{
	return (uint32_t)(rk_context_now_ns(s->context) / RK_NS_PER_US);
}

void credit_start(struct rk_stream *s)
{
	unsigned depth = rk_min(s->receive_depth,
				(unsigned)STREAM_DEPTH_DEFAULT);

	s->tx.used_hard = depth - STREAM_DEPTH_MARGIN;
	s->tx.used_soft = s->tx.used_hard / 2;
	s->tx.rnr_waits = rk_conn_peer_rnr_retry(s->conn) == 7;
}

bool credit_is_low(const struct rk_stream *s)
{
	return unknown(&s->tx) + 1 >= s->tx.used_soft;
}

/* May an immediate go now, with which `posted` bytes of the window are
 * written? */
bool credit_allows(const struct rk_stream *s, uint32_t posted)
{
	const struct stream_tx *tx = &s->tx;

	if (rk_likely(tx->rnr_waits || unknown(tx) < tx->used_soft))
		return true;
	if (posted == tx->length)
		return unknown(tx) < tx->used_hard;
	return tx->probing;
}

/* An immediate is held back. */
void credit_wait(struct rk_stream *s)
{
	struct stream_tx *tx = &s->tx;
	uint64_t wait_ms = unknown(tx) < tx->used_hard ? STREAM_PROBE_MS :
							 STREAM_PROBE_LAST_MS;

	if (tx->probe_ns)
		return;
	s->stats.credit_stalls++;
	tx->probe_ns = rk_context_now_ns(s->context) + wait_ms * RK_NS_PER_MS;
	stream_timer_update(s);
}

/* used_done has moved.  The first mark is always of now; the others are at
 * least MARK_EVERY_US apart. */
void credit_completed(struct rk_stream *s)
{
	struct stream_tx *tx = &s->tx;

	if (tx->rnr_waits)
		return;
	if (tx->mark[0].us - tx->mark[1].us >= MARK_EVERY_US) {
		for (unsigned i = STREAM_MARKS - 1; i > 0; i--)
			tx->mark[i] = tx->mark[i - 1];
	}
	tx->mark[0] = (struct stream_mark){ .count = tx->used_done,
					    .us = now_us(s) };
}

static void known(struct rk_stream *s, uint32_t count)
{
	if ((int32_t)(count - s->tx.used_known) > 0)
		s->tx.used_known = count;
}

/* Payload has come. */
void credit_answered(struct rk_stream *s)
{
	struct stream_tx *tx = &s->tx;
	uint32_t us;

	if (tx->rnr_waits || tx->used_known == tx->used_done)
		return;
	us = now_us(s);
	for (unsigned i = 0; i < STREAM_MARKS; i++) {
		if (us - tx->mark[i].us >= SETTLE_US) {
			known(s, tx->mark[i].count);
			break;
		}
	}
	credit_completed(s);
	if (!tx->probe_ns)
		return;
	/* Answers come, so the peer is awake: the next try may be soon. */
	tx->probe_ns = rk_min(tx->probe_ns, rk_context_now_ns(s->context) +
						    SETTLE_US * RK_NS_PER_US);
	stream_timer_update(s);
	tx_pump(s);
}

/* A new window has come after a full one. */
void credit_refilled(struct rk_stream *s)
{
	known(s, s->tx.used_at_full);
}

/*
 * The timer for what is held back.  "One at a time": the last one must have
 * completed, that is, found a receive.
 */
void credit_timeout(struct rk_stream *s, uint64_t now_ns)
{
	struct stream_tx *tx = &s->tx;

	if (!tx->probe_ns || now_ns < tx->probe_ns)
		return;
	tx->probe_ns = 0;
	tx->probing = tx->used_done == tx->used_posted;
	tx_pump(s);
	tx->probing = false;
}
