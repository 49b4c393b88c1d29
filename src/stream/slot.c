/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the streams of one context share: the list of them, so that they go
 * when the context goes, and the sums over those that are gone.
 *
 * Thread: the context's owner.
 */
#include "base/alloc.h"
#include "stream/internal.h"

static void slot_close(struct rk_context_slot *base)
{
	struct stream_slot *slot =
		rk_container_of(base, struct stream_slot, base);

	while (!rk_list_empty(&slot->listeners))
		stream_listener_free(rk_list_first(
			&slot->listeners, struct rk_stream_listener, node));
	while (!rk_list_empty(&slot->streams))
		stream_free(rk_list_first(&slot->streams, struct rk_stream,
					  node));
	rk_timer_cancel(&slot->keepalive);
	slot->context->slots[RK_PROTOCOL_STREAM] = NULL;
	rk_free(slot);
}

/* NULL: out of memory. */
struct stream_slot *stream_slot_get(struct rk_context *context)
{
	struct rk_context_slot *base = context->slots[RK_PROTOCOL_STREAM];
	struct rk_context_info info;
	struct stream_slot *slot;

	if (base)
		return rk_container_of(base, struct stream_slot, base);
	slot = rk_zalloc(sizeof(*slot));
	if (!slot)
		return NULL;
	slot->base.close = slot_close;
	slot->context = context;
	rk_list_init(&slot->streams);
	rk_list_init(&slot->listeners);
	rk_list_init(&slot->alive);
	slot->keepalive.fire = stream_keepalive_fire;
	rk_context_info_get(context, &info);
	slot->inline_bytes =
		info.software ? STREAM_CHUNK_BYTES : STREAM_INLINE_BYTES;
	context->slots[RK_PROTOCOL_STREAM] = &slot->base;
	return slot;
}

void stream_stats_add(struct rk_stream_stats *to,
		      const struct rk_stream_stats *from)
{
	to->bytes_read += from->bytes_read;
	to->bytes_written += from->bytes_written;
	to->immediates_sent += from->immediates_sent;
	to->immediates_received += from->immediates_received;
	to->windows_announced += from->windows_announced;
	to->window_stalls += from->window_stalls;
	to->stall_ns += from->stall_ns;
	to->credit_stalls += from->credit_stalls;
}

RK_API void rk_stream_stats_get(const struct rk_stream *s,
				struct rk_stream_stats *out)
{
	*out = s->stats;
	out->bytes_read = rk_load(&s->rx.consumed);
}

RK_API void rk_context_stream_stats(const struct rk_context *context,
				    struct rk_stream_stats *out)
{
	const struct rk_context_slot *base =
		context->slots[RK_PROTOCOL_STREAM];
	const struct stream_slot *slot;
	const struct rk_list *pos;
	struct rk_stream_stats one;

	*out = (struct rk_stream_stats){ 0 };
	if (!base)
		return;
	slot = rk_container_of(base, struct stream_slot, base);
	*out = slot->past;
	for (pos = slot->streams.next; pos != &slot->streams; pos = pos->next) {
		rk_stream_stats_get(rk_list_entry(pos, struct rk_stream, node),
				    &one);
		stream_stats_add(out, &one);
	}
}
