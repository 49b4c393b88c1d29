/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lane's life and its words: numbers, opening and closing, and the words
 * that the two sides show each other (head, acked, credit, nak, want, epoch).
 *
 * A lane number is used again only when both sides have closed it.  The side
 * that hands numbers out opens first, and then may still see the words of the
 * peer's last use; they count as the peer's only once its epoch has changed.
 * The acceptor opens when it is told, so what it sees is fresh.
 */
#include <errno.h>
#include <string.h>

#include "softverbs/wire_internal.h"

enum {
	/* receives a peer may post between two looks at its credit */
	CREDIT_STEP_MAX = 1 << 30,
	NAK_SHIFT = 56,
};

/* ---- numbers ----------------------------------------------------------- */

int lane_reserve(struct wire_link *link, unsigned *number)
{
	if (!link->ours)
		return -EINVAL;
	/* lowest first: a page once touched is used again */
	for (unsigned leaf = 0; leaf < BOX_LEAVES; leaf++) {
		unsigned bit;

		if (link->reserved[leaf] == UINT64_MAX)
			continue;
		bit = (unsigned)__builtin_ctzll(~link->reserved[leaf]);
		link->reserved[leaf] |= 1ull << bit;
		*number = leaf * 64 + bit;
		return 0;
	}
	return -EMFILE;
}

void lane_unreserve(struct wire_link *link, unsigned number)
{
	assert(number < BOX_LANES);
	link->reserved[number / 64] &= ~(1ull << (number % 64));
}

/* ---- opening and closing ----------------------------------------------- */

static int lane_enter(struct wire_link *link, unsigned number,
		      struct wire_lane *lane)
{
	struct lane_block **block = &link->block[number / 64];

	if (!*block)
		*block = rk_zalloc(sizeof(**block));
	if (!*block)
		return -ENOMEM;
	(*block)->lane[number % 64] = lane;
	link->lane_count++;
	link->lanes_touched = rk_max(link->lanes_touched, number + 1);
	return 0;
}

void lane_free_blocks(struct wire_link *link)
{
	for (unsigned i = 0; i < BOX_LEAVES; i++)
		rk_free(link->block[i]);
}

int lane_open(struct wire_lane *lane, struct wire_link *link, unsigned number,
	      uint32_t pd)
{
	struct lane_words *words;
	int ret;

	if (number >= BOX_LANES || link->state == LINK_NEW ||
	    lane_find(link, number))
		return -EINVAL;
	ret = lane_enter(link, number, lane);
	if (ret)
		return ret;
	stage_reset(link, number);
	*lane = (struct wire_lane){
		.link = link,
		.number = number,
		.rqmin = UINT32_MAX,
		.peer_rqmin = UINT32_MAX,
		.shown_rqmin = UINT32_MAX,
		.stage_first = CHUNK_NONE,
		.stage_last = CHUNK_NONE,
		.ready = !link->ours,
		/* odd, and unlike that of any earlier use of the number */
		.epoch = ++link->opens << 32 | 1,
	};
	if (link->peer)
		lane->stale_epoch =
			rk_load_acquire(&link->peer->lane[number].epoch);

	words = &link->box->lane[number];
	rk_store(&words->tail, 0);
	rk_store(&words->head, 0);
	rk_store(&words->acked, 0);
	rk_store(&words->credit, 0);
	rk_store(&words->rqmin, UINT32_MAX);
	rk_store(&words->pd, pd);
	rk_store(&words->nak, 0);
	rk_store(&words->want, 0);
	rk_store_release(&words->epoch, lane->epoch);

	/* a record that came before would have been nobody's */
	link->scan = true;
	if (link->state == LINK_UP)
		link_pend(link);
	return 0;
}

void lane_close(struct wire_lane *lane)
{
	struct wire_link *link = lane->link;

	if (!link || (link->wire && link->wire->abandoned))
		return;
	(void)!lane_revoke(lane);
	stage_orphan(lane);
	if (link->hot == lane)
		link->hot = NULL;
	link->block[lane->number / 64]->lane[lane->number % 64] = NULL;
	link->lane_count--;
	lane->link = NULL;
}

bool lane_check_ready(struct wire_lane *lane)
{
	const struct box *peer = lane->link->peer;

	if (!peer || rk_load_acquire(&peer->lane[lane->number].epoch) ==
			     lane->stale_epoch)
		return false;
	lane->ready = true;
	return true;
}

/* ---- what the peer shows ----------------------------------------------- */

int lane_refresh(struct wire_lane *lane)
{
	const struct lane_words *words;
	uint64_t head, acked, credit, nak;

	if (!lane->link->peer || !lane_is_ready(lane))
		return 0;
	words = &lane->link->peer->lane[lane->number];
	/* each is at least as new as what was stored before the one above */
	nak = rk_load_acquire(&words->nak);
	head = rk_load_acquire(&words->head);
	acked = rk_load(&words->acked);
	credit = rk_load_acquire(&words->credit);

	if (head - lane->peer_head > lane->published - lane->peer_head ||
	    acked - lane->peer_acked > lane->sequence - lane->peer_acked ||
	    credit - lane->peer_credit > CREDIT_STEP_MAX ||
	    nak >> NAK_SHIFT > NAK_GONE ||
	    (nak & ((1ull << NAK_SHIFT) - 1)) > lane->sequence)
		return -EPROTO;
	lane->peer_head = head;
	lane->peer_acked = acked;
	lane->peer_credit = credit;
	lane->peer_rqmin = rk_load(&words->rqmin);
	lane->peer_nak = nak;
	return 0;
}

void lane_want(struct wire_lane *lane, bool want)
{
	if (lane->want == want)
		return;
	lane->want = want;
	rk_store(&lane->link->box->lane[lane->number].want, want);
	if (want)
		rk_fence(); /* seen before the caller's next refresh */
}

/* ---- what we show ------------------------------------------------------ */

static bool lane_is_wanted(const struct wire_lane *lane)
{
	const struct box *peer = lane->link->peer;

	/* not mapped yet: better a ring in vain */
	return !peer || (rk_load(&peer->lane[lane->number].want) & 1);
}

void lane_answer(struct wire_lane *lane)
{
	struct lane_words *words = &lane->link->box->lane[lane->number];

	if (lane->head == lane->shown_head &&
	    lane->acked == lane->shown_acked &&
	    lane->credit == lane->shown_credit)
		return;
	if (lane->rqmin != lane->shown_rqmin)
		rk_store(&words->rqmin, lane->rqmin);
	if (lane->credit != lane->shown_credit)
		rk_store_release(&words->credit, lane->credit);
	if (lane->acked != lane->shown_acked)
		rk_store(&words->acked, lane->acked);
	rk_store_release(&words->head, lane->head);
	lane->shown_rqmin = lane->rqmin;
	lane->shown_credit = lane->credit;
	lane->shown_acked = lane->acked;
	lane->shown_head = lane->head;
	if (lane->tail != lane->published)
		return; /* what is pushed must be flushed, and that rings */
	rk_fence();
	if (lane_is_wanted(lane))
		lane_ring(lane->link, lane->number, false);
}

void lane_nak(struct wire_lane *lane, enum nak_code code, uint64_t sequence)
{
	struct lane_words *words = &lane->link->box->lane[lane->number];

	rk_store_release(&words->nak,
			 (uint64_t)code << NAK_SHIFT |
				 (sequence & ((1ull << NAK_SHIFT) - 1)));
	lane_ring(lane->link, lane->number, false);
}

/* ---- one-sided access -------------------------------------------------- */

/* The fence between the published tail and this look is that of lane_ring(). */
bool lane_peer_admits(const struct wire_lane *lane)
{
	const struct box *peer = lane->link->peer;
	uint64_t epoch;

	if (!peer)
		return false;
	epoch = rk_load_acquire(&peer->lane[lane->number].epoch);
	return !(epoch & 1) && (lane->ready || epoch != lane->stale_epoch);
}

void lane_admit(struct wire_lane *lane)
{
	if (!(lane->epoch & 1))
		return;
	lane->epoch++;
	rk_store_release(&lane->link->box->lane[lane->number].epoch,
			 lane->epoch);
}

int lane_revoke(struct wire_lane *lane)
{
	if (lane->epoch & 1)
		return 0;
	lane->epoch++;
	rk_store_release(&lane->link->box->lane[lane->number].epoch,
			 lane->epoch);
	rk_fence();
	return key_hazard_wait(lane->link);
}
