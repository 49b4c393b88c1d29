/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dirty bits: how the peer learns which of 16384 lanes has news by reading one
 * cache line, and how it is woken when it sleeps.
 *
 * Each level is the same pair.  The producer stores what is new, fences, and
 * reads whether the consumer still has to look; the consumer stores that it is
 * about to look, fences, and reads what is new.  One of them sees the other:
 *
 *   a lane's word  /  leaf seen     (fence F1)
 *   a leaf bit     /  summary seen  (fence F2)
 *   a summary bit  /  sleeping      (fence F3)
 *
 * A bit that was seen stays seen until its owner toggles it.  So it may be
 * toggled at once, without F1 or F2; only to leave a bit alone, because the
 * consumer has yet to look, it must be found unseen after the fence.
 */
#include "softverbs/wire_internal.h"

static void ring_token(struct wire_link *link)
{
	uint64_t number = link->peer ? rk_load(&link->peer->sleeping) : 0;

	if (number && number != link->token_for)
		link_token(link, number);
}

/* Toggle a bit unless the peer will look at it as it is; true: toggled. */
static bool mark_bit(uint64_t *mine, uint64_t *shown, const uint64_t *seen,
		     uint64_t bit)
{
	/* without the peer's box it has seen nothing; see lane_ring_all() */
	if ((*mine ^ (seen ? rk_load(seen) : 0)) & bit) {
		rk_fence(); /* F1 or F2 */
		if ((*mine ^ (seen ? rk_load(seen) : 0)) & bit)
			return false;
	}
	*mine ^= bit;
	rk_store_release(shown, *mine);
	return true;
}

void lane_ring(struct wire_link *link, unsigned number, bool urgent)
{
	unsigned leaf = number / 64, sum = leaf / 64;
	const struct box *peer = link->peer;

	if (mark_bit(&link->mark.leaf[leaf], &link->box->mark.leaf[leaf],
		     peer ? &peer->seen.leaf[leaf] : NULL,
		     1ull << (number % 64)) &&
	    mark_bit(&link->mark.sum[sum], &link->box->mark.sum[sum],
		     peer ? &peer->seen.sum[sum] : NULL, 1ull << (leaf % 64))) {
		rk_fence(); /* F3 */
		if (!urgent)
			ring_token(link);
	}
	if (rk_unlikely(urgent))
		link_token(link, peer ? rk_load(&peer->sleeping) : 0);
}

/*
 * Before the peer's box came we took its "seen" words for 0, which they may no
 * longer be: what we marked is marked again with the true ones.
 */
void lane_ring_all(struct wire_link *link)
{
	for (unsigned leaf = 0; leaf < BOX_LEAVES; leaf++)
		for (uint64_t bits = link->mark.leaf[leaf]; bits;
		     bits &= bits - 1)
			lane_ring(link, leaf * 64 +
					(unsigned)__builtin_ctzll(bits), false);
}

bool lane_is_dirty(const struct wire_link *link)
{
	if (!link->peer)
		return false;
	for (unsigned sum = 0; sum < BOX_SUMS; sum++)
		if (rk_load(&link->peer->mark.sum[sum]) != link->seen.sum[sum])
			return true;
	return false;
}

/* The two lines that the handler will read of each lane: fetch them at once. */
static void prefetch_lanes(const struct wire_link *link, unsigned leaf,
			   uint64_t dirty)
{
	for (; dirty; dirty &= dirty - 1) {
		unsigned number = leaf * 64 + (unsigned)__builtin_ctzll(dirty);
		const struct wire_lane *lane = lane_find(link, number);

		if (!lane)
			continue;
		__builtin_prefetch(&link->peer->lane[number]);
		__builtin_prefetch(
			&link->peer->ring[number][lane->head % RING_SLOTS]);
	}
}

static unsigned visit_lanes(struct wire_link *link, unsigned leaf,
			    uint64_t dirty)
{
	struct wire *wire = link->wire;
	unsigned news = 0;

	for (; dirty; dirty &= dirty - 1) {
		unsigned number = leaf * 64 + (unsigned)__builtin_ctzll(dirty);
		struct wire_lane *lane = lane_find(link, number);

		if (!lane)
			continue;
		link->hot = lane;
		link->hot_tail = lane->peer_tail;
		wire->handler->lane(wire->user, lane);
		news++;
	}
	return news;
}

/* Show that these bits are seen, before anything is looked at. */
static void leaf_seen(struct wire_link *link, unsigned leaf, uint64_t word,
		      uint64_t dirty)
{
	link->seen.leaf[leaf] = word;
	rk_store_release(&link->box->seen.leaf[leaf], word);
	prefetch_lanes(link, leaf, dirty);
	rk_fence(); /* pairs with F1, the first one also with F2 */
}

/*
 * The summary's "seen" is stored but not fenced yet when this begins: one
 * fence serves for both levels if the leaf is the same on both sides of it.
 * What is toggled after the second look toggles the summary too.
 */
static unsigned visit_leaf(struct wire_link *link, unsigned leaf)
{
	const uint64_t *marks = &link->peer->mark.leaf[leaf];
	uint64_t word = rk_load_acquire(marks), again;
	uint64_t dirty = word ^ link->seen.leaf[leaf];

	leaf_seen(link, leaf, word, dirty);
	again = rk_load_acquire(marks);
	if (rk_unlikely(again != word)) {
		dirty |= again ^ word;
		leaf_seen(link, leaf, again, dirty);
	}
	return visit_lanes(link, leaf, dirty);
}

/*
 * The lane that had news last is looked at directly: one line to fetch instead
 * of two, and no fence.  Its bit is taken later, by a visit that finds nothing
 * new there.  Never twice in a row, so that it does not starve the others.
 */
static bool visit_hot(struct wire_link *link)
{
	struct wire_lane *lane = link->hot;
	uint64_t tail;

	if (!lane || link->hot_was) {
		link->hot_was = false;
		return false;
	}
	tail = rk_load(&link->peer->lane[lane->number].tail);
	if (tail == lane->peer_tail || tail == link->hot_tail)
		return false;
	link->hot_tail = tail;
	link->hot_was = true;
	link->wire->handler->lane(link->wire->user, lane);
	return true;
}

unsigned lane_visit(struct wire_link *link)
{
	unsigned news = 0;

	if (rk_unlikely(!link->peer))
		return 0;
	if (visit_hot(link))
		return 1;
	for (unsigned sum = 0; sum < BOX_SUMS; sum++) {
		uint64_t word = rk_load_acquire(&link->peer->mark.sum[sum]);
		uint64_t dirty = word ^ link->seen.sum[sum];

		if (rk_likely(!dirty))
			continue;
		link->seen.sum[sum] = word;
		rk_store_release(&link->box->seen.sum[sum], word);
		for (; dirty; dirty &= dirty - 1)
			news += visit_leaf(link,
					   sum * 64 + (unsigned)
						   __builtin_ctzll(dirty));
	}
	return news;
}

unsigned lane_scan(struct wire_link *link)
{
	struct wire *wire = link->wire;
	unsigned news = 0;

	for (unsigned leaf = 0; leaf < BOX_LEAVES; leaf++) {
		if (!link->block[leaf])
			continue;
		for (unsigned bit = 0; bit < 64; bit++) {
			struct wire_lane *lane =
				lane_find(link, leaf * 64 + bit);

			if (!lane)
				continue;
			wire->handler->lane(wire->user, lane);
			news++;
		}
	}
	return news;
}
