/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links as connections use them, and whose lanes are in use on them.
 *
 * A lane has a side here and a side there.  The active side of connections is
 * who opened the link.  It chooses numbers, and may choose one again when both
 * sides are done with it:
 *
 *   owner[lane]  this side uses it, on behalf of that id; first the id itself,
 *		  then its queue pair, until that is destroyed
 *   lent[lane]	  active side only: the peer was told and has not said CLOSED
 *
 * The passive side says CLOSED exactly once for each lane it was told of; the
 * active side says it unless the passive side was first.
 * Runs in any thread of the program, under the device lock.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "softverbs/cm_internal.h"

/* ---- finding ---------------------------------------------------------- */

static struct rk_list *chain_of(const struct wire_link *wire)
{
	uintptr_t key = (uintptr_t)wire >> 4;
	struct rk_list *chain =
		&cm.links[(key ^ key >> 8) % RK_ARRAY_SIZE(cm.links)];

	if (!chain->next)
		rk_list_init(chain);
	return chain;
}

struct cm_link *cm_link_find(struct wire_link *wire)
{
	struct rk_list *chain = chain_of(wire), *pos, *tmp;

	rk_list_for_each_safe(pos, tmp, chain) {
		struct cm_link *link =
			rk_list_entry(pos, struct cm_link, node);

		if (link->wire == wire)
			return link;
	}
	return NULL;
}

static void retry_fire(struct wire_timer *timer);

static struct cm_link *link_new(struct wire_link *wire)
{
	struct cm_link *link = rk_zalloc(sizeof(*link));

	if (!link)
		return NULL;
	link->wire = wire_get(wire);
	link->retry.fire = retry_fire;
	rk_list_init(&link->retry.node);
	rk_list_init(&link->ids);
	rk_list_add_tail(chain_of(wire), &link->node);
	return link;
}

void cm_link_hold(struct cm_link *link)
{
	link->users++;
}

void cm_link_unhold(struct cm_link *link)
{
	if (--link->users)
		return;
	wire_timer_cancel(cm.device->wire, &link->retry);
	rk_list_remove(&link->node);
	wire_put(link->wire);
	rk_free(link->owner);
	rk_free(link);
}

int cm_link_attach(struct cm_id *id, struct wire_link *wire)
{
	struct cm_link *link = cm_link_find(wire);

	if (!link)
		link = link_new(wire);
	if (!link)
		return -ENOMEM;
	cm_link_hold(link);
	id->link = link;
	rk_list_add_tail(&link->ids, &id->link_node);
	return 0;
}

void cm_link_detach(struct cm_id *id)
{
	struct cm_link *link = id->link;

	if (!link)
		return;
	if (id->lane_is_ours)
		cm_lane_release(link, id->lane);
	id->lane_is_ours = false;
	id->lane = CM_LANE_NONE;
	rk_list_remove(&id->link_node);
	id->link = NULL;
	cm_link_unhold(link);
}

/* ---- lanes of this side ----------------------------------------------- */

static int owners_grow(struct cm_link *link, uint32_t lane)
{
	unsigned count = rk_max(link->lane_count, 16u);
	uint32_t *grown;

	if (lane < link->lane_count)
		return 0;
	while (count <= lane)
		count *= 2;
	grown = rk_realloc(link->owner, count * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	memset(grown + link->lane_count, 0,
	       (count - link->lane_count) * sizeof(*grown));
	link->owner = grown;
	link->lane_count = count;
	return 0;
}

int cm_lane_take(struct cm_id *id, uint32_t lane)
{
	struct cm_link *link = id->link;
	int ret;

	if (lane >= BOX_LANES)
		return -EINVAL;
	ret = owners_grow(link, lane);
	if (ret)
		return ret;
	if (link->owner[lane])
		return -EBUSY;
	link->owner[lane] = id->number;
	cm_link_hold(link);
	id->lane = lane;
	id->lane_is_ours = true;
	return 0;
}

int cm_lane_choose(struct cm_id *id)
{
	unsigned lane;
	int ret = lane_reserve(id->link->wire, &lane);

	if (ret)
		return ret;
	ret = cm_lane_take(id, lane);
	if (ret)
		lane_unreserve(id->link->wire, lane);
	return ret;
}

static bool bit_get(const uint64_t *bits, uint32_t n)
{
	return bits[n / 64] >> (n % 64) & 1;
}

static void bit_put(uint64_t *bits, uint32_t n, bool value)
{
	uint64_t mask = 1ull << (n % 64);

	bits[n / 64] = value ? bits[n / 64] | mask : bits[n / 64] & ~mask;
}

bool cm_lane_is_used(const struct cm_link *link, uint32_t lane)
{
	return lane < link->lane_count && link->owner[lane];
}

static void told(struct cm_link *link, uint32_t lane)
{
	bit_put(link->untold, lane, false);
	link->untold_count--;
	link->users--; /* never the last: the caller holds one */
}

void cm_lane_lend(struct cm_link *link, uint32_t lane)
{
	assert(lane < BOX_LANES && !bit_get(link->lent, lane));
	bit_put(link->lent, lane, true);
	cm_link_hold(link);
}

/* lane may be anything: it came from the peer. */
void cm_lane_return(struct cm_link *link, uint32_t lane)
{
	if (lane >= BOX_LANES || !bit_get(link->lent, lane))
		return;
	bit_put(link->lent, lane, false);
	if (!cm_lane_is_used(link, lane))
		lane_unreserve(link->wire, lane);
	if (bit_get(link->untold, lane))
		told(link, lane); /* what it had to be told is of no use now */
	cm_link_unhold(link);
}

/* ---- telling the peer ------------------------------------------------------ */

static int send_closed(struct wire_link *wire, uint32_t lane)
{
	struct cm_closed closed = {
		.head = { .version = CM_VERSION,
			  .type = CM_CLOSED,
			  .bytes = sizeof(closed) },
		.lane = lane,
	};

	return wire_send(wire, &closed, sizeof(closed));
}

/* The peer does not read: keep the number, say it later. */
static void tell_later(struct cm_link *link, uint32_t lane)
{
	if (bit_get(link->untold, lane))
		return;
	bit_put(link->untold, lane, true);
	cm_link_hold(link);
	if (!link->untold_count++)
		wire_timer_set(cm.device->wire, &link->retry,
			       rk_now_ns() + cm_times.retry_ns);
}

static void retry_fire(struct wire_timer *timer)
{
	struct cm_link *link = rk_container_of(timer, struct cm_link, retry);

	cm_link_hold(link);
	for (uint32_t lane = 0; lane < BOX_LANES && link->untold_count;
	     lane++) {
		if (!bit_get(link->untold, lane))
			continue;
		if (send_closed(link->wire, lane) == -ENOBUFS) {
			wire_timer_set(cm.device->wire, timer,
				       rk_now_ns() + cm_times.retry_ns);
			break;
		}
		told(link, lane);
	}
	cm_link_unhold(link);
}

void cm_lane_release(struct cm_link *link, uint32_t lane)
{
	bool ours = wire_link_is_ours(link->wire);
	bool known; /* to the peer, which may be using it */

	if (!cm_lane_is_used(link, lane))
		return;
	link->owner[lane] = 0;
	known = !ours || bit_get(link->lent, lane);
	if (!known)
		lane_unreserve(link->wire, lane);
	else if (send_closed(link->wire, lane) == -ENOBUFS)
		tell_later(link, lane);
	cm_link_unhold(link);
}

struct cm_id *cm_lane_user(const struct cm_link *link, uint32_t lane)
{
	struct cm_id *id;

	if (!cm_lane_is_used(link, lane))
		return NULL;
	id = cm_id_find(link->owner[lane]);
	return id && id->link == link && id->lane == lane ? id : NULL;
}

/* Best effort: a link without connections has nobody to repeat it. */
void cm_lane_refuse(struct wire_link *wire, uint32_t lane)
{
	if (lane < BOX_LANES && !wire_link_is_ours(wire))
		(void)!send_closed(wire, lane);
}

void soft_cm_lane_closed(struct wire_link *wire, unsigned lane)
{
	struct cm_link *link = cm_link_find(wire);

	if (link)
		cm_lane_release(link, lane);
}

void cm_link_dead(struct cm_link *link)
{
	cm_link_hold(link);
	for (uint32_t lane = 0; lane < BOX_LANES; lane++)
		cm_lane_return(link, lane);
	cm_link_unhold(link);
}

/* ---- small messages --------------------------------------------------- */

int cm_send_head(struct wire_link *wire, enum cm_message_type type,
		 uint32_t to, uint32_t from)
{
	struct cm_head head = {
		.version = CM_VERSION,
		.type = (uint8_t)type,
		.bytes = sizeof(head),
		.to = to,
		.from = from,
	};

	return wire_send(wire, &head, sizeof(head));
}

int cm_send_reject(struct wire_link *wire, uint32_t to, uint32_t from,
		   uint32_t reason, const void *private_data, size_t bytes)
{
	struct cm_reject reject = {
		.head = { .version = CM_VERSION,
			  .type = CM_REJECT,
			  .bytes = sizeof(reject),
			  .to = to,
			  .from = from },
		.reason = reason,
	};

	if (bytes)
		memcpy(reject.private_data, private_data, bytes);
	return wire_send(wire, &reject, sizeof(reject));
}
