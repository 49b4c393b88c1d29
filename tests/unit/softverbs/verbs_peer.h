/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue pair in each of two processes.  The one that connects is forked
 * before the other has a device; both exchange a greeting over the link.
 */
#ifndef RK_TESTS_VERBS_PEER_H
#define RK_TESTS_VERBS_PEER_H

#include "verbs_pair.h"

struct hello {
	uint32_t lane, qpn, rkey;
	uint64_t addr;
	bool heard;
};

static struct hello end_hello(const struct end *end, unsigned lane)
{
	return (struct hello){ .lane = lane, .qpn = end->qp->qp_num,
			       .rkey = end->mr->rkey,
			       .addr = (uintptr_t)end->mem, .heard = true };
}

static void say_hello(struct wire_link *link, const struct hello *hello)
{
	struct soft_device *device = soft_enter();

	if (wire_send(link, hello, sizeof(*hello)))
		printf("# nothing could be said\n");
	soft_unlock(device);
}

/* The side whose process connects; to a process that runs peer_listen(). */
static bool peer_connect(struct end *end, const struct pair_options *o,
			 uint16_t port, struct hello *peer)
{
	struct wire_link *link = pair_connect(port);
	struct soft_device *device;
	struct hello mine;
	unsigned lane;

	memset(end, 0, sizeof(*end));
	if (!link)
		return false;
	device = soft_enter();
	if (lane_reserve(link, &lane))
		lane = BOX_LANES;
	soft_unlock(device);
	end_open(end, link, o);
	if (end_open_lane(end, lane))
		return false;
	mine = end_hello(end, lane);
	say_hello(link, &mine);
	if (!until(cm_words))
		return false;
	memcpy(peer, cm_word, sizeof(*peer));
	return !end_connect(end, lane, peer->qpn, o) &&
	       !end_ready(end);
}

/* The side that listens, after the other one has been given the port. */
static bool peer_accept(struct end *end, const struct pair_options *o,
			struct hello *peer)
{
	struct hello mine;

	memset(end, 0, sizeof(*end));
	if (!until(cm_passive))
		return false;
	memcpy(peer, cm_word, sizeof(*peer));
	end_open(end, cm_passive, o);
	if (end_open_lane(end, peer->lane) ||
	    end_connect(end, peer->lane, peer->qpn, o) ||
	    end_ready(end))
		return false;
	mine = end_hello(end, peer->lane);
	say_hello(cm_passive, &mine);
	return true;
}

#endif
