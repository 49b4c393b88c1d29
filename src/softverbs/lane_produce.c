/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The producing half of a lane: records into the ring, long payloads into
 * chunks of the staging area.
 *
 * What is always true: a slot or a chunk is written again only after the
 * peer's head, which it stores after copying out, has passed it.  Chunks of a
 * lane are freed in the order they were filled; those of a lane that was
 * closed meanwhile when the peer's head says so, or when the number is used
 * again.
 */
#include <errno.h>
#include <string.h>

#include "softverbs/wire_internal.h"

/* ---- chunks ------------------------------------------------------------ */

void stage_init(struct wire_link *link)
{
	for (unsigned i = 0; i < BOX_STAGE_CHUNKS; i++)
		link->chunk[i].next = (uint16_t)(i + 1);
	link->chunk[BOX_STAGE_CHUNKS - 1].next = CHUNK_NONE;
	link->chunk_free = 0;
}

static void chunk_free(struct wire_link *link, unsigned index)
{
	struct stage_chunk *chunk = &link->chunk[index];

	chunk->busy = false;
	chunk->lane = NULL;
	chunk->next = link->chunk_free; /* last in, first out: still cached */
	link->chunk_free = (uint16_t)index;
	link->chunks_busy--;
}

/* The lane's chunks that the peer has copied. */
static void stage_reap(struct wire_lane *lane)
{
	struct wire_link *link = lane->link;

	while (lane->stage_first != CHUNK_NONE) {
		const struct stage_chunk *chunk =
			&link->chunk[lane->stage_first];
		uint16_t next = chunk->next;

		if (lane->peer_head < chunk->needed_head)
			return;
		chunk_free(link, lane->stage_first);
		lane->stage_first = next;
	}
	lane->stage_last = CHUNK_NONE;
}

/* None is free: look at all lanes, also the closed ones. */
static void stage_reap_all(struct wire_link *link)
{
	for (unsigned i = 0; i < BOX_STAGE_CHUNKS; i++) {
		struct stage_chunk *chunk = &link->chunk[i];

		if (!chunk->busy)
			continue;
		if (chunk->lane) {
			if (!lane_refresh(chunk->lane))
				stage_reap(chunk->lane);
		} else if (rk_load_acquire(&link->peer->lane[chunk->number]
						    .head) >=
			   chunk->needed_head) {
			chunk_free(link, i);
		}
	}
}

/* The lane is closed; the peer may not have read it to the end. */
void stage_orphan(struct wire_lane *lane)
{
	while (lane->stage_first != CHUNK_NONE) {
		struct stage_chunk *chunk =
			&lane->link->chunk[lane->stage_first];

		lane->stage_first = chunk->next;
		chunk->lane = NULL;
	}
}

/* Both sides have closed the number and one of them opens it again. */
void stage_reset(struct wire_link *link, unsigned number)
{
	if (!link->chunks_busy)
		return;
	for (unsigned i = 0; i < BOX_STAGE_CHUNKS; i++)
		if (link->chunk[i].busy && !link->chunk[i].lane &&
		    link->chunk[i].number == number)
			chunk_free(link, i);
}

/* An index, or -EAGAIN. */
static int stage_take(struct wire_lane *lane, uint64_t needed_head)
{
	struct wire_link *link = lane->link;
	struct stage_chunk *chunk;
	uint16_t index;

	/* without the peer's words nothing tells when it can be freed */
	if (!lane_is_ready(lane) || !link->peer)
		return -EAGAIN;
	stage_reap(lane);
	if (link->chunk_free == CHUNK_NONE)
		stage_reap_all(link);
	index = link->chunk_free;
	if (index == CHUNK_NONE)
		return -EAGAIN;
	chunk = &link->chunk[index];
	link->chunk_free = chunk->next;
	*chunk = (struct stage_chunk){
		.lane = lane,
		.needed_head = needed_head,
		.number = (uint16_t)lane->number,
		.next = CHUNK_NONE,
		.busy = true,
	};
	if (lane->stage_first == CHUNK_NONE)
		lane->stage_first = index;
	else
		link->chunk[lane->stage_last].next = index;
	lane->stage_last = index;
	link->chunks_busy++;
	link->chunks_touched = rk_max(link->chunks_touched, index + 1u);
	return index;
}

/* ---- payload ----------------------------------------------------------- */

static void gather(uint8_t *to, const struct iovec *iov, unsigned iov_count)
{
	for (unsigned i = 0; i < iov_count; i++) {
		if (iov[i].iov_len)
			memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
}

/* Into the second half of the first slot, then slot after slot; the ring may
 * wrap between two of them. */
static void gather_inline(struct slot *ring, uint64_t tail,
			  const struct iovec *iov, unsigned iov_count)
{
	uint64_t slot = tail % RING_SLOTS;
	uint8_t *to = (uint8_t *)&ring[slot] + RECORD_HEAD_BYTES;
	size_t room = SLOT_BYTES - RECORD_HEAD_BYTES;

	for (unsigned i = 0; i < iov_count; i++) {
		const uint8_t *from = iov[i].iov_base;
		size_t left = iov[i].iov_len;

		while (left) {
			size_t part;

			if (!room) {
				slot = (slot + 1) % RING_SLOTS;
				to = (uint8_t *)&ring[slot];
				/* in one go up to the end of the ring */
				room = (RING_SLOTS - slot) * SLOT_BYTES;
				slot = RING_SLOTS - 1;
			}
			part = rk_min(left, room);
			memcpy(to, from, part);
			to += part;
			from += part;
			left -= part;
			room -= part;
		}
	}
}

static bool sum_iov(const struct iovec *iov, unsigned iov_count, size_t *sum)
{
	*sum = 0;
	for (unsigned i = 0; i < iov_count; i++)
		if (__builtin_add_overflow(*sum, iov[i].iov_len, sum))
			return false;
	return *sum <= STAGE_CHUNK_BYTES;
}

static unsigned inline_slots(size_t bytes)
{
	if (bytes <= SLOT_BYTES - RECORD_HEAD_BYTES)
		return 1;
	return 1 + (unsigned)((bytes - (SLOT_BYTES - RECORD_HEAD_BYTES) +
			       SLOT_BYTES - 1) / SLOT_BYTES);
}

/* ---- records ----------------------------------------------------------- */

/* 0 when that many slots are free. */
static int lane_room(struct wire_lane *lane, unsigned slots)
{
	int ret;

	if (rk_likely(lane->tail - lane->peer_head <= RING_SLOTS - slots))
		return 0;
	ret = lane_refresh(lane);
	if (ret)
		return ret;
	return lane->tail - lane->peer_head <= RING_SLOTS - slots ? 0 :
								    -EAGAIN;
}

int lane_push(struct wire_lane *lane, struct record *record,
	      const struct iovec *iov, unsigned iov_count)
{
	struct wire_link *link = lane->link;
	struct slot *ring = link->box->ring[lane->number];
	bool staged;
	size_t bytes;
	int ret;

	if (!sum_iov(iov, iov_count, &bytes))
		return -EMSGSIZE;
	staged = bytes > RECORD_INLINE_MAX;
	record->bytes = (uint32_t)bytes;
	record->slots = (uint16_t)(staged ? 1 : inline_slots(bytes));
	record->chunk = 0;
	record->sequence = lane->sequence;
	ret = lane_room(lane, record->slots);
	if (rk_unlikely(ret))
		return ret;
	if (rk_unlikely(staged)) {
		ret = stage_take(lane, lane->tail + 1);
		if (ret < 0)
			return ret;
		record->chunk = (uint32_t)ret + 1;
		gather(link->box->stage[ret], iov, iov_count);
	} else {
		gather_inline(ring, lane->tail, iov, iov_count);
	}
	memcpy(&ring[lane->tail % RING_SLOTS], record, sizeof(*record));
	lane->tail += record->slots;
	/* the peer read it one turn of the ring ago: have it back in time */
	__builtin_prefetch(&ring[lane->tail % RING_SLOTS], 1);
	if (link->peer) /* for the flush */
		__builtin_prefetch(&link->peer->seen.leaf[lane->number / 64]);
	lane->sequence++;
	if (rk_unlikely(record->op == RECORD_DISCONNECT ||
			record->op == RECORD_FATAL))
		lane->urgent = true;
	link->wire->stats.records_sent++;
	return 0;
}

void lane_flush(struct wire_lane *lane)
{
	struct wire_link *link = lane->link;

	if (lane->published == lane->tail)
		return;
	rk_store_release(&link->box->lane[lane->number].tail, lane->tail);
	lane->published = lane->tail;
	lane_ring(link, lane->number, lane->urgent);
	lane->urgent = false;
}
