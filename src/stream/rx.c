/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving: our windows, and reading from them.
 *
 * Threads: rk_stream_peek(), _pending(), _read_offthread(),
 * _consume_offthread() and _due() on the one reader's, all else on the
 * owner's.  internal.h says how the two stay apart.
 */
#include <errno.h>
#include <string.h>

#include "stream/internal.h"

enum {
	/* A window that was filled in less is not the trickle of a quiet
	 * connection: it gets a second one without waiting for the reader. */
	FAST_NS = 100 * 1000000,
};
static const uint64_t retry_after_ns = 10 * RK_NS_PER_S;

int rx_start(struct rk_stream *s)
{
	s->rx.windows = 1;
	return rk_mem_alloc(s->context, s->conn, s->rx.length, RK_REMOTE_WRITE,
			    &s->rx.window[0]);
}

void rx_stop(struct rk_stream *s)
{
	rk_mem_free(s->context, &s->rx.window[0]);
	rk_mem_free(s->context, &s->rx.window[1]);
}

void rx_arrived(struct rk_stream *s, uint32_t bytes)
{
	s->rx.filled += bytes;
	rk_store_release(&s->rx.arrived, s->rx.arrived + bytes);
}

bool rx_filled_fast(const struct rk_stream *s)
{
	return rk_context_now_ns(s->context) - s->rx.announced_ns < FAST_NS;
}

static bool second_window(struct rk_stream *s)
{
	struct stream_rx *rx = &s->rx;
	uint64_t now_ns;

	if (rx->windows == 2)
		return true;
	now_ns = rk_context_now_ns(s->context);
	if (now_ns < rx->retry_ns)
		return false;
	if (rk_mem_alloc(s->context, s->conn, rx->length, RK_REMOTE_WRITE,
			 &rx->window[1])) {
		rx->window[1].addr = NULL;
		rx->retry_ns = now_ns + retry_after_ns;
		return false;
	}
	rk_store(&rx->windows, 2);
	return true;
}

/*
 * Which window can be announced after the one that is full?  The same one when
 * all is read, the other when all before this one is read; -1: none yet.
 */
static int next_window(struct rk_stream *s, bool may_allocate)
{
	const struct stream_rx *rx = &s->rx;
	uint64_t unread = rx->arrived - rk_load_acquire(&rx->consumed);
	int current = rx->window_of[rx->fill_slot];

	if (!unread)
		return current;
	if (unread > rx->length)
		return -1;
	if (rx->windows == 2 || (may_allocate && second_window(s)))
		return !current;
	return -1;
}

/* Owner.  Announce the next window if it is due and there is one. */
void rx_service(struct rk_stream *s, bool may_allocate)
{
	struct stream_rx *rx = &s->rx;
	int next;

	if (!rx_full(s) ||
	    (s->state != STREAM_OPEN && s->state != STREAM_LINGERING))
		return;
	next = next_window(s, may_allocate);
	if (next < 0) {
		/* Either we see what the reader does after this, or it sees
		 * that we are starved. */
		rk_store(&rx->starved, 1);
		rk_fence();
		next = next_window(s, false);
		if (next < 0)
			return;
	}
	rk_store(&rx->starved, 0);
	rx->fill_slot ^= 1;
	rx->window_of[rx->fill_slot] = (uint8_t)next;
	rx->filled = 0;
	rx->announced = 0;
	s->control.due |= STREAM_DUE_MEMORY;
	control_post(s);
}

RK_API void rk_stream_service(struct rk_stream *s)
{
	if (rx_full(s))
		rx_service(s, true);
}

RK_API bool rk_stream_due(const struct rk_stream *s)
{
	const struct stream_rx *rx = &s->rx;
	uint64_t unread;

	rk_fence(); /* pairs with the one in rx_service() */
	if (!rk_load(&rx->starved))
		return false;
	unread = rk_load_acquire(&rx->arrived) - rk_load(&rx->consumed);
	return !unread || (rk_load(&rx->windows) == 2 && unread <= rx->length);
}

RK_API size_t rk_stream_pending(const struct rk_stream *s)
{
	return rk_load_acquire(&s->rx.arrived) - rk_load(&s->rx.consumed);
}

RK_API int rk_stream_peek(struct rk_stream *s, struct iovec pieces[2])
{
	const struct stream_rx *rx = &s->rx;
	size_t pending = rk_stream_pending(s);
	size_t first = rk_min(pending, (size_t)(rx->length - rx->read_offset));

	if (!pending)
		return 0;
	pieces[0].iov_base =
		(char *)rx->window[rx->window_of[rx->read_slot]].addr +
		rx->read_offset;
	pieces[0].iov_len = first;
	if (pending == first)
		return 1;
	pieces[1].iov_base = rx->window[rx->window_of[!rx->read_slot]].addr;
	pieces[1].iov_len = pending - first;
	return 2;
}

RK_API void rk_stream_consume_offthread(struct rk_stream *s, size_t bytes)
{
	struct stream_rx *rx = &s->rx;
	size_t offset = rx->read_offset + bytes;

	/* at most two windows wait, so this ends after two turns */
	while (offset >= rx->length) {
		offset -= rx->length;
		rx->read_slot ^= 1;
	}
	rx->read_offset = (uint32_t)offset;
	rk_store_release(&rx->consumed, rx->consumed + bytes);
}

RK_API void rk_stream_consume(struct rk_stream *s, size_t bytes)
{
	rk_stream_consume_offthread(s, bytes);
	rk_stream_service(s);
}

/* Nobody will read any more: make room at once. */
void rx_discard(struct rk_stream *s)
{
	rk_stream_consume_offthread(s, rk_stream_pending(s));
	rx_service(s, false);
}

/* Nothing waits: why? */
static ssize_t read_nothing(const struct rk_stream *s)
{
	if (!rk_load_acquire(&s->rx.ended) || rk_stream_pending(s))
		return -EAGAIN;
	return s->error;
}

RK_API ssize_t rk_stream_read_offthread(struct rk_stream *s, void *data,
					size_t bytes)
{
	struct iovec piece[2];
	int count = rk_stream_peek(s, piece);
	size_t taken = 0;

	if (!count)
		return read_nothing(s);
	for (int i = 0; i < count && taken < bytes; i++) {
		size_t n = rk_min(piece[i].iov_len, bytes - taken);

		memcpy((char *)data + taken, piece[i].iov_base, n);
		taken += n;
	}
	rk_stream_consume_offthread(s, taken);
	return (ssize_t)taken;
}

RK_API ssize_t rk_stream_read(struct rk_stream *s, void *data, size_t bytes)
{
	ssize_t taken = rk_stream_read_offthread(s, data, bytes);

	if (rx_full(s) && taken > 0)
		rx_service(s, true);
	return taken;
}
