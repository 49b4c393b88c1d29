/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the user writes, cut into chunks: at the end of the peer's window, and
 * so that no more than STREAM_CHUNK_BYTES wait to be announced.  A chunk that
 * the device takes inline goes from the user's memory; any other is copied
 * into the source first.  The last work request of a chunk carries the
 * immediate, unless the user said RK_STREAM_MORE or there is no credit; then a
 * later one does, with no bytes of its own if need be.
 *
 * Thread: the owner.
 */
#include <errno.h>
#include <string.h>

#include "stream/internal.h"

/* What is left of a user's write. */
struct cursor {
	const struct iovec *iov;
	int count;
	size_t offset; /* in iov[0] */
	size_t left;
};

static void cursor_advance(struct cursor *c, size_t bytes)
{
	c->left -= bytes;
	while (bytes) {
		size_t n = rk_min(bytes, c->iov->iov_len - c->offset);

		c->offset += n;
		bytes -= n;
		if (c->offset == c->iov->iov_len) {
			c->iov++;
			c->count--;
			c->offset = 0;
		}
	}
}

/* --- inline: from the user's memory --------- */

enum {
	BOUNCE_BYTES = 4096,
	BOUNCE_PIECE = 512, /* longer ones are worth a piece of their own */
};

struct gathered {
	struct rk_piece piece[RK_PIECES_MAX];
	unsigned count;
	uint32_t bytes;
	unsigned bounced;
	char bounce[BOUNCE_BYTES];
};

/* Append n bytes; a run of short ones is copied together.  false: full. */
static bool gather_one(struct gathered *g, const char *data, uint32_t n,
		       unsigned pieces_max, bool many)
{
	struct rk_piece *last = g->count ? &g->piece[g->count - 1] : NULL;
	char *end = g->bounce + g->bounced;

	if (many && n <= BOUNCE_PIECE && g->bounced + n <= BOUNCE_BYTES) {
		if (last && (const char *)last->addr + last->bytes == end) {
			last->bytes += n;
		} else {
			if (g->count == pieces_max)
				return false;
			g->piece[g->count++] =
				(struct rk_piece){ .addr = end, .bytes = n };
		}
		memcpy(end, data, n);
		g->bounced += n;
		return true;
	}
	if (g->count == pieces_max)
		return false;
	g->piece[g->count++] = (struct rk_piece){ .addr = data, .bytes = n };
	return true;
}

/* As many pieces as one work request takes, at most `most` bytes. */
static void gather(struct gathered *g, struct cursor *c, uint32_t most,
		   unsigned pieces_max)
{
	bool many = (unsigned)c->count > pieces_max;

	g->count = 0;
	g->bytes = 0;
	g->bounced = 0;
	while (g->bytes < most) {
		size_t n = rk_min(c->iov->iov_len - c->offset,
				  (size_t)(most - g->bytes));

		if (n && !gather_one(g, (char *)c->iov->iov_base + c->offset,
				     (uint32_t)n, pieces_max, many))
			return;
		g->bytes += (uint32_t)n;
		cursor_advance(c, n);
		if (!n) { /* an empty piece of the user's */
			c->iov++;
			c->count--;
			c->offset = 0;
		}
	}
}

static int post_inline(struct rk_stream *s, struct cursor *c, uint32_t chunk,
		       bool tell)
{
	struct gathered g;

	while (chunk) {
		struct cursor after = *c;
		int ret;

		gather(&g, &after, chunk, s->tx.pieces_max);
		s->tx.filled += g.bytes;
		ret = tx_post(s, g.piece, g.count, g.bytes,
			   tell && g.bytes == chunk, RK_INLINE);
		if (ret) {
			s->tx.filled -= g.bytes;
			return ret;
		}
		*c = after;
		chunk -= g.bytes;
	}
	return 0;
}

/* --- through the source --------- */

/* The largest there is memory for; all of it is useful. */
static bool source_exists(struct rk_stream *s)
{
	struct stream_tx *tx = &s->tx;
	uint32_t bytes = STREAM_SOURCE_BYTES;

	if (tx->source_bytes)
		return true;
	while (bytes / 2 >= tx->length && bytes > 4096)
		bytes /= 2;
	for (; bytes >= 4096; bytes /= 4) {
		if (!rk_mem_alloc(s->context, NULL, bytes, 0, &tx->source)) {
			tx->source_bytes = bytes;
			return true;
		}
		tx->source.addr = NULL;
	}
	return false;
}

/* Copy at most `most` bytes into the source; returns how many. */
static uint32_t stage(struct rk_stream *s, struct cursor *c, uint32_t most)
{
	struct stream_tx *tx = &s->tx;
	uint32_t taken = 0;

	most = rk_min(most, tx->source_bytes - tx_source_used(tx));
	while (taken < most) {
		uint32_t at = tx->source_head & (tx->source_bytes - 1);
		size_t straight = rk_min(most - taken, tx->source_bytes - at);
		size_t n = rk_min(c->iov->iov_len - c->offset, straight);

		if (!n) {
			c->iov++;
			c->count--;
			c->offset = 0;
			continue;
		}
		memcpy((char *)tx->source.addr + at,
		       (char *)c->iov->iov_base + c->offset, n);
		cursor_advance(c, n);
		tx->source_head += (uint32_t)n;
		taken += (uint32_t)n;
	}
	tx->filled += taken;
	return taken;
}

/* --- the calls --------- */

/* How much of a write the next chunk takes; 0: the window is full. */
static uint32_t chunk_bytes(const struct stream_tx *tx, size_t left)
{
	uint32_t waiting = tx->filled - tx->announced;
	uint32_t span = STREAM_CHUNK_BYTES;

	if (waiting < STREAM_CHUNK_BYTES)
		span -= waiting;
	span = rk_min(span, tx->length - tx->filled);
	return left < span ? (uint32_t)left : span;
}

/* Copy a chunk of the write into the source; it is posted later. */
static int stage_chunk(struct rk_stream *s, struct cursor *c, uint32_t chunk)
{
	if (stage(s, c, chunk))
		return 0;
	tx_post_staged(s, false); /* its completion brings room */
	return -EAGAIN;
}

/* Take one chunk of the write.  0, -EAGAIN or -ENOMEM. */
static int write_chunk(struct rk_stream *s, struct cursor *c, bool more)
{
	struct stream_tx *tx = &s->tx;
	uint32_t chunk = chunk_bytes(tx, c->left);
	bool go_inline = chunk <= tx->inline_bytes &&
			 (!more || tx->inline_bytes >= STREAM_CHUNK_BYTES);
	bool tell;
	int ret;

	if (!go_inline && !source_exists(s)) {
		if (!tx->inline_bytes)
			return -ENOMEM;
		chunk = rk_min(chunk, tx->inline_bytes);
		go_inline = true;
	}
	if (go_inline && tx->posted < tx->filled && tx_post_staged(s, false))
		return -EAGAIN; /* it must not overtake */
	tell = chunk == c->left && !more;
	tell |= tx->filled + chunk == tx->length;
	tell |= tx->filled + chunk - tx->announced >= STREAM_CHUNK_BYTES;
	if (go_inline) {
		ret = post_inline(s, c, chunk, tell);
	} else {
		ret = stage_chunk(s, c, chunk);
		if (!ret && tell)
			tx_post_staged(s, true);
	}
	if (tell && !tx_told(s))
		tx->push = true;
	return ret;
}

static int stalled(struct rk_stream *s)
{
	if (s->tx.length && !s->tx.stall_ns) {
		s->stats.window_stalls++;
		s->tx.stall_ns = rk_context_now_ns(s->context);
	}
	return -EAGAIN;
}

static int write_all(struct rk_stream *s, struct cursor *c, bool more)
{
	int ret = 0;

	while (c->left && !ret) {
		if (s->tx.filled == s->tx.length)
			ret = stalled(s);
		else if (!tx_queue_has_room(&s->tx))
			ret = -EAGAIN;
		else
			ret = write_chunk(s, c, more);
	}
	return ret;
}

RK_API ssize_t rk_stream_writev(struct rk_stream *s, const struct iovec *iov,
				int iov_count, unsigned flags)
{
	struct cursor c = { .iov = iov, .count = iov_count };
	bool more = flags & RK_STREAM_MORE;
	size_t total;
	int ret;

	if (s->state == STREAM_ENDED)
		return -EPIPE;
	for (int i = 0; i < iov_count; i++)
		c.left += iov[i].iov_len;
	total = c.left;
	ret = write_all(s, &c, more);
	s->stats.bytes_written += total - c.left;
	if (!more)
		rk_stream_flush(s);
	if (c.left || !tx_writable(s))
		s->tx.blocked = true;
	return total == c.left && total ? ret : (ssize_t)(total - c.left);
}

RK_API ssize_t rk_stream_write(struct rk_stream *s, const void *data,
			       size_t bytes, unsigned flags)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data,
			     .iov_len = bytes };

	return rk_stream_writev(s, &iov, 1, flags);
}

RK_API void rk_stream_flush(struct rk_stream *s)
{
	if (rk_likely(tx_told(s)))
		return;
	s->tx.push = true;
	tx_pump(s);
}
