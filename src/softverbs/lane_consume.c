/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The consuming half of a lane.  The ring is memory that the peer goes on
 * writing: a record head is copied out word by word, the copy is checked
 * whole, and only the copy is used.
 */
#include <errno.h>
#include <string.h>

#include "softverbs/wire_internal.h"

enum { FIRST_SLOT_PAYLOAD = SLOT_BYTES - RECORD_HEAD_BYTES };

static bool slots_are_right(const struct record *record)
{
	uint32_t bytes = record->bytes;

	if (record->chunk)
		return record->chunk <= BOX_STAGE_CHUNKS &&
		       bytes <= STAGE_CHUNK_BYTES && record->slots == 1;
	if (bytes > RECORD_INLINE_MAX)
		return false;
	if (bytes <= FIRST_SLOT_PAYLOAD)
		return record->slots == 1;
	return record->slots == 1 + (bytes - FIRST_SLOT_PAYLOAD +
				     SLOT_BYTES - 1) / SLOT_BYTES;
}

/* The one place where a record is judged; available: slots up to the tail. */
static int record_check(const struct wire_lane *lane,
			const struct record *record, uint64_t available)
{
	if (record->op < RECORD_SEND || record->op > RECORD_FATAL ||
	    (record->flags &
	     ~(RECORD_SOLICITED | RECORD_HAS_IMM | RECORD_LAST)) ||
	    record->slots > available || !slots_are_right(record) ||
	    record->sequence != lane->peer_sequence)
		return -EPROTO;
	if (record->op == RECORD_SEND &&
	    (record->offset > record->length ||
	     record->bytes > record->length - record->offset))
		return -EPROTO;
	return 1;
}

int lane_peek(struct wire_lane *lane, struct record *record)
{
	const struct wire_link *link = lane->link;
	const struct slot *slot;
	uint64_t head[RECORD_HEAD_BYTES / 8], tail;

	if (lane->head == lane->peer_tail) {
		if (!link->peer || !lane_is_ready(lane))
			return 0;
		tail = rk_load_acquire(&link->peer->lane[lane->number].tail);
		if (tail - lane->head > RING_SLOTS)
			return -EPROTO;
		lane->peer_tail = tail;
		if (tail == lane->head)
			return 0;
	}
	slot = &link->peer->ring[lane->number][lane->head % RING_SLOTS];
	for (unsigned i = 0; i < RK_ARRAY_SIZE(head); i++)
		head[i] = rk_load(&slot->word[i]);
	memcpy(record, head, sizeof(*record));
	return record_check(lane, record, lane->peer_tail - lane->head);
}

/* Up to three pieces of the peer's memory, in order. */
struct pieces {
	const uint8_t *at[3];
	size_t bytes[3];
};

static void payload_pieces(const struct wire_lane *lane,
			   const struct record *record, struct pieces *out)
{
	const struct box *peer = lane->link->peer;
	const struct slot *ring = peer->ring[lane->number];
	uint64_t slot = lane->head % RING_SLOTS;
	size_t left = record->bytes, to_end;

	*out = (struct pieces){ .at = { NULL } };
	if (record->chunk) {
		out->at[0] = peer->stage[record->chunk - 1];
		out->bytes[0] = left;
		return;
	}
	out->at[0] = (const uint8_t *)&ring[slot] + RECORD_HEAD_BYTES;
	out->bytes[0] = rk_min(left, (size_t)FIRST_SLOT_PAYLOAD);
	left -= out->bytes[0];
	if (!left)
		return;
	slot = (slot + 1) % RING_SLOTS;
	to_end = (RING_SLOTS - slot) * SLOT_BYTES;
	out->at[1] = (const uint8_t *)&ring[slot];
	out->bytes[1] = rk_min(left, to_end);
	out->at[2] = (const uint8_t *)ring;
	out->bytes[2] = left - out->bytes[1];
}

void lane_copy(struct wire_lane *lane, const struct record *record,
	       const struct iovec *iov, unsigned iov_count)
{
	struct pieces pieces;
	unsigned piece = 0;

	payload_pieces(lane, record, &pieces);
	for (unsigned i = 0; i < iov_count && piece < 3; i++) {
		uint8_t *to = iov[i].iov_base;
		size_t room = iov[i].iov_len;

		while (room && piece < 3) {
			size_t part = rk_min(room, pieces.bytes[piece]);

			if (part)
				memcpy(to, pieces.at[piece], part);
			to += part;
			room -= part;
			pieces.at[piece] += part;
			pieces.bytes[piece] -= part;
			if (!pieces.bytes[piece])
				piece++;
		}
	}
}

void lane_pop(struct wire_lane *lane, const struct record *record)
{
	lane->head += record->slots;
	lane->peer_sequence++;
	lane->link->wire->stats.records_received++;
}
