/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending: work requests that carry bytes into the peer's window, to its last
 * byte, and the immediates that tell of them.  write.c decides what is sent.
 *
 * Thread: the owner.
 */
#include <errno.h>
#include <stdio.h>

#include "stream/internal.h"

void tx_start(struct rk_stream *s)
{
	s->tx.inline_bytes = rk_conn_inline_bytes(s->conn);
	s->tx.pieces_max = (uint16_t)rk_min(rk_conn_pieces_max(s->conn),
					    (unsigned)RK_PIECES_MAX);
	s->tx.wr_limit = STREAM_SEND_DEPTH - STREAM_CONTROL_SLOTS;
	s->tx.blocked = true; /* WRITABLE with the first window */
	credit_start(s);
}

void tx_stop(struct rk_stream *s)
{
	rk_mem_free(s->context, &s->tx.source);
}

/* Would a write take at least one byte? */
bool tx_writable(const struct rk_stream *s)
{
	const struct stream_tx *tx = &s->tx;

	if (s->state != STREAM_OPEN || tx->filled == tx->length)
		return false;
	if (!tx_queue_has_room(tx))
		return false;
	return !tx->source_bytes || tx_source_used(tx) < tx->source_bytes;
}

/*
 * What the next work request will be, if it takes so many staged bytes along.
 * It is signalled often enough that slots and source come back while there is
 * still some left, and always when it is the last that fits: after it nothing
 * but its completion brings room.
 */
struct tx_work tx_prepare(const struct rk_stream *s, uint32_t bytes,
			  bool uses_receive, bool signal)
{
	const struct stream_tx *tx = &s->tx;
	struct tx_work w = {
		.number = tx->wr_posted + 1,
		.used = tx->used_posted + uses_receive,
		.source = tx->source_head - (tx->filled - tx->posted - bytes),
	};

	if (signal || w.number - tx->wr_signalled >= STREAM_SIGNAL_EVERY ||
	    w.number - tx->wr_done >= tx->wr_limit ||
	    w.source - tx->source_signalled > tx->source_bytes / 4)
		w.flags = RK_SIGNALLED;
	return w;
}

/* Of two of them the low bits do: fewer than 2^16 are outstanding. */
uint64_t tx_token(const struct tx_work *w)
{
	return (uint64_t)w->source << 32 | (w->used & 0xffff) << 16 |
	       (w->number & 0xffff);
}

void tx_commit(struct rk_stream *s, const struct tx_work *w)
{
	s->tx.wr_posted = w->number;
	s->tx.used_posted = w->used;
	if (w->flags & RK_SIGNALLED) {
		s->tx.wr_signalled = w->number;
		s->tx.source_signalled = w->source;
	}
}

/*
 * Post the next bytes of the window, which are already counted as filled, and
 * announce all that is posted if `tell` and there is credit.
 */
int tx_post(struct rk_stream *s, const struct rk_piece *pieces, unsigned count,
	    uint32_t bytes, bool tell, unsigned flags)
{
	struct stream_tx *tx = &s->tx;
	uint32_t end = tx->posted + bytes;
	struct tx_work w;
	int ret;

	if (!tx_queue_has_room(tx))
		return -EAGAIN;
	if (tell && !credit_allows(s, end)) {
		tell = false;
		credit_wait(s);
	}
	w = tx_prepare(s, bytes, tell,
		       tell && !tx->rnr_waits && credit_is_low(s));
	ret = rk_conn_write(s->conn, pieces, count, tx->addr + tx->posted,
			    tx->key, tell ? end - tx->announced : 0,
			    flags | w.flags | (tell ? RK_WITH_IMM : 0),
			    tx_token(&w));
	if (rk_unlikely(ret)) {
		stream_broken(s, ret);
		return ret;
	}
	tx_commit(s, &w);
	tx->posted = end;
	if (!tell)
		return 0;
	s->stats.immediates_sent++;
	tx->announced = end;
	tx->probe_ns = 0;
	if (end == tx->length)
		tx->used_at_full = w.used;
	return 0;
}

/* No bytes, no receive of the peer's: its completion says that all before it
 * is done and that the peer is there. */
int tx_post_empty(struct rk_stream *s)
{
	struct tx_work w = tx_prepare(s, 0, false, true);
	int ret;

	if (!tx_queue_has_room(&s->tx))
		return -EAGAIN;
	ret = rk_conn_write(s->conn, NULL, 0, s->tx.addr, s->tx.key, 0, w.flags,
			    tx_token(&w));
	if (ret) {
		stream_broken(s, ret);
		return ret;
	}
	tx_commit(s, &w);
	return 0;
}

/* Post one work request of what is staged; tell if it takes the last of it. */
static int post_some_staged(struct rk_stream *s, bool tell)
{
	struct stream_tx *tx = &s->tx;
	uint32_t staged = tx->filled - tx->posted;
	uint32_t bytes = rk_min(staged, (uint32_t)STREAM_CHUNK_BYTES);
	uint32_t at = (tx->source_head - staged) & (tx->source_bytes - 1);
	uint32_t straight = rk_min(bytes, tx->source_bytes - at);
	struct rk_piece piece[2] = {
		{ .addr = (char *)tx->source.addr + at,
		  .bytes = straight,
		  .lkey = tx->source.lkey },
		{ .addr = tx->source.addr,
		  .bytes = bytes - straight,
		  .lkey = tx->source.lkey },
	};
	unsigned count = 1;

	if (bytes > straight && tx->pieces_max > 1)
		count = 2;
	else
		bytes = straight;
	if (bytes < staged &&
	    tx->posted + bytes - tx->announced < STREAM_CHUNK_BYTES)
		tell = false;
	return tx_post(s, piece, count, bytes, tell, 0);
}

int tx_post_staged(struct rk_stream *s, bool tell)
{
	int ret = 0;

	while (!ret && s->tx.posted < s->tx.filled)
		ret = post_some_staged(s, tell);
	return ret;
}

/* Go on with what could not be posted or announced before. */
void tx_pump(struct rk_stream *s)
{
	struct stream_tx *tx = &s->tx;

	if (!tx->push ||
	    (s->state != STREAM_OPEN && s->state != STREAM_LINGERING))
		return;
	if (tx_post_staged(s, true))
		return;
	if (!tx_told(s)) {
		if (credit_allows(s, tx->posted))
			tx_post(s, NULL, 0, 0, true, 0);
		else
			credit_wait(s);
	}
	tx->push = !tx_told(s);
}

void tx_sent(struct rk_stream *s, uint64_t token)
{
	struct stream_tx *tx = &s->tx;

	tx->wr_done += (uint16_t)(token - tx->wr_done);
	tx->used_done += (uint16_t)((token >> 16) - tx->used_done);
	tx->source_tail = (uint32_t)(token >> 32);
	credit_completed(s);
}

/* The peer announced a window. */
int tx_window(struct rk_stream *s, const struct wire_message *m,
	      char words[WIRE_WORDS_BYTES])
{
	struct stream_tx *tx = &s->tx;

	if (!tx_told(s)) {
		snprintf(words, WIRE_WORDS_BYTES,
			 "the peer announced a new window with %u bytes in the "
			 "last one that it was not told of",
			 tx->filled - tx->announced);
		return -EPROTO;
	}
	if (tx->length && tx->announced == tx->length)
		credit_refilled(s);
	if (tx->stall_ns) {
		s->stats.stall_ns +=
			rk_context_now_ns(s->context) - tx->stall_ns;
		tx->stall_ns = 0;
	}
	tx->addr = m->address;
	tx->length = m->length;
	tx->key = m->key;
	tx->filled = 0;
	tx->posted = 0;
	tx->announced = 0;
	return 0;
}
