/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control messages.  What is due is a mask, so a peer that asks often is
 * answered as often as its questions can be answered, not more; at most
 * STREAM_CONTROL_SLOTS are outstanding, for which the send queue has places
 * that payload never takes.
 *
 * Thread: the owner.
 */
#include <errno.h>
#include <string.h>

#include "stream/internal.h"

static uint8_t slot(unsigned number)
{
	return (uint8_t)(number % STREAM_CONTROL_SLOTS);
}

int control_start(struct rk_stream *s)
{
	if (s->tx.inline_bytes >= WIRE_CONTROL_BYTES)
		return 0;
	return rk_mem_alloc(s->context, NULL,
			    STREAM_CONTROL_SLOTS * WIRE_CONTROL_BYTES, 0,
			    &s->control.source);
}

/* The most urgent of what may go; 0: none. */
static unsigned choose(const struct stream_control *c)
{
	unsigned may = c->due;

	may &= ~(c->out & (STREAM_DUE_FEATURE | STREAM_DUE_KEEPALIVE));
	return may & -may;
}

static void make(const struct rk_stream *s, enum stream_due what,
		 union wire_control *out)
{
	const struct stream_rx *rx = &s->rx;
	const struct rk_mem *mem;

	switch (what) {
	case STREAM_DUE_MEMORY:
		mem = &rx->window[rx->window_of[rx->fill_slot]];
		wire_make_memory(out, (uintptr_t)mem->addr, rx->length,
				 mem->rkey);
		return;
	case STREAM_DUE_FEATURE:
		wire_make_feature(out, s->control.select, 0);
		return;
	case STREAM_DUE_KEEPALIVE:
		wire_make_keepalive(out);
		return;
	}
}

static int post_one(struct rk_stream *s, enum stream_due what)
{
	struct stream_control *c = &s->control;
	struct tx_work w = tx_prepare(s, 0, true, true);
	uint8_t mine = slot(c->oldest + c->busy);
	union wire_control message, *source = &message;
	struct rk_piece piece = { .bytes = WIRE_CONTROL_BYTES };
	unsigned flags = RK_SIGNALLED | RK_INLINE;
	int ret;

	if (c->source.addr) {
		source = (union wire_control *)c->source.addr + mine;
		piece.lkey = c->source.lkey;
		flags = RK_SIGNALLED;
	}
	piece.addr = source;
	make(s, what, source);
	ret = rk_conn_send(s->conn, &piece, 1, flags, tx_token(&w));
	if (ret) {
		stream_broken(s, ret);
		return ret;
	}
	tx_commit(s, &w);
	c->slot_wr[mine] = w.number;
	c->slot_kind[mine] = (uint8_t)what;
	c->busy++;
	c->out |= (uint8_t)what;
	c->due &= (uint8_t)~what;
	if (what == STREAM_DUE_MEMORY) {
		s->rx.announced = 1;
		s->rx.announced_ns = rk_context_now_ns(s->context);
		s->stats.windows_announced++;
	}
	return 0;
}

/* Post what is due; what does not go now goes with the next completion. */
void control_post(struct rk_stream *s)
{
	unsigned what;

	if (s->state != STREAM_OPEN && s->state != STREAM_LINGERING)
		return;
	while (s->control.busy < STREAM_CONTROL_SLOTS) {
		what = choose(&s->control);
		if (!what || post_one(s, (enum stream_due)what))
			return;
	}
}

/* Work has completed, maybe some of ours. */
void control_sent(struct rk_stream *s)
{
	struct stream_control *c = &s->control;

	while (c->busy &&
	       (int32_t)(s->tx.wr_done - c->slot_wr[c->oldest]) >= 0) {
		c->out &= (uint8_t)~c->slot_kind[c->oldest];
		c->oldest = slot(c->oldest + 1u);
		c->busy--;
	}
	if (s->keepalive_out && (int32_t)(s->tx.wr_done - s->keepalive_wr) >= 0)
		s->keepalive_out = false;
	if (c->due)
		control_post(s);
}

/* A checked message; 0, or -EPROTO and words. */
int control_received(struct rk_stream *s, const struct wire_message *m,
		     char words[WIRE_WORDS_BYTES])
{
	switch (m->opcode) {
	case WIRE_GET_SERVER_FEATURE:
		if (s->role == STREAM_SERVER) {
			s->control.select = m->select;
			s->control.due |= STREAM_DUE_FEATURE;
			control_post(s);
		}
		return 0;
	case WIRE_SET_CLIENT_FEATURE: /* we offered none */
	case WIRE_KEEPALIVE:
		return 0;
	case WIRE_REGISTER_XFER_MEMORY:
		return tx_window(s, m, words);
	}
	return 0;
}
