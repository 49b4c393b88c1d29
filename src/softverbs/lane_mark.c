/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dirty bits: how the peer learns which of 16384 lanes has news by reading one
 * cache line, and how it is woken when it sleeps.
 *
 * Each level is the same pair.  The producer stores what is new, fences, and
 * reads whether the consumer still has to look; the consumer stores that it is
 * about to look, fences, and reads what is new.  One of them sees the other:
 *
 *   a lane's word  /  leaf_seen     (fence F1)
 *   a leaf bit     /  sum_seen      (fence F2)
 *   a summary bit  /  sleeping      (fence F3)
 *
 * A bit is dirty while the owner's word and the other side's "seen" differ.
 */
#include "softverbs/wire_internal.h"

static void ring_token(struct wire_link *link)
{
	uint64_t number = link->peer ? rk_load(&link->peer->sleeping) : 0;

	if (number && number != link->token_for)
		link_token(link, number);
}

void lane_ring(struct wire_link *link, unsigned number, bool urgent)
{
	unsigned leaf = number / 64, sum = leaf / 64;
	uint64_t bit = 1ull << (number % 64), leaf_bit = 1ull << (leaf % 64);
	const struct box *peer = link->peer;
	uint64_t seen;

	rk_fence(); /* F1 */
	seen = peer ? rk_load(&peer->leaf_seen[leaf]) : 0;
	if ((link->leaf[leaf] ^ seen) & bit)
		goto marked; /* it has to look anyway */
	link->leaf[leaf] ^= bit;
	rk_store_release(&link->box->leaf[leaf], link->leaf[leaf]);
	rk_fence(); /* F2 */
	seen = peer ? rk_load(&peer->sum_seen[sum]) : 0;
	if ((link->sum[sum] ^ seen) & leaf_bit)
		goto marked;
	link->sum[sum] ^= leaf_bit;
	rk_store_release(&link->box->sum[sum], link->sum[sum]);
	rk_fence(); /* F3 */
	if (!urgent)
		ring_token(link);
marked:
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
		for (uint64_t bits = link->leaf[leaf]; bits; bits &= bits - 1)
			lane_ring(link, leaf * 64 +
					(unsigned)__builtin_ctzll(bits), false);
}

bool lane_is_dirty(const struct wire_link *link)
{
	if (!link->peer)
		return false;
	for (unsigned sum = 0; sum < BOX_SUMS; sum++)
		if (rk_load(&link->peer->sum[sum]) != link->sum_seen[sum])
			return true;
	return false;
}

static unsigned visit_leaf(struct wire_link *link, unsigned leaf)
{
	struct wire *wire = link->wire;
	uint64_t word = rk_load_acquire(&link->peer->leaf[leaf]);
	uint64_t dirty = word ^ link->leaf_seen[leaf];
	unsigned news = 0;

	if (!dirty)
		return 0;
	link->leaf_seen[leaf] = word;
	rk_store_release(&link->box->leaf_seen[leaf], word);
	rk_fence(); /* pairs with F1 */
	for (; dirty; dirty &= dirty - 1) {
		unsigned number = leaf * 64 + (unsigned)__builtin_ctzll(dirty);
		struct wire_lane *lane;

		lane = lane_find(link, number);
		if (!lane)
			continue;
		wire->handler->lane(wire->user, lane);
		news++;
	}
	return news;
}

unsigned lane_visit(struct wire_link *link)
{
	unsigned news = 0;

	if (rk_unlikely(!link->peer))
		return 0;
	for (unsigned sum = 0; sum < BOX_SUMS; sum++) {
		uint64_t word = rk_load_acquire(&link->peer->sum[sum]);
		uint64_t dirty = word ^ link->sum_seen[sum];

		if (rk_likely(!dirty))
			continue;
		link->sum_seen[sum] = word;
		rk_store_release(&link->box->sum_seen[sum], word);
		rk_fence(); /* pairs with F2 */
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
