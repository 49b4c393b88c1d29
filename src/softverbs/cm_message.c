/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What peers say, checked: one flat function per message looks at every field
 * and at the state of the connection it is for; what it hands on is not
 * checked again.  A message that breaks the rules costs its sender the
 * connection it names, if it names one of the sender's own, and nothing else.
 * Runs in any thread of the program, under the device lock.
 */
#include <errno.h>
#include <string.h>

#include "softverbs/cm_internal.h"

static const uint16_t message_bytes[CM_TYPES] = {
	[CM_REQUEST] = sizeof(struct cm_request),
	[CM_LATER] = sizeof(struct cm_head),
	[CM_REPLY] = sizeof(struct cm_reply),
	[CM_READY] = sizeof(struct cm_head),
	[CM_REJECT] = sizeof(struct cm_reject),
	[CM_DISCONNECT] = sizeof(struct cm_head),
	[CM_CLOSED] = sizeof(struct cm_closed),
};

/* The connection of this peer that a message is for; NULL: there is none
 * (any more), which is no offence. */
static struct cm_id *id_for(struct wire_link *wire, uint32_t number)
{
	struct cm_id *id = cm_id_find(number);

	return id && id->link && id->link->wire == wire ? id : NULL;
}

/* A peer that gives up a request does not know our number yet. */
static struct cm_id *id_of_peer(struct wire_link *wire, uint32_t from)
{
	struct cm_link *link = cm_link_find(wire);
	struct rk_list *pos, *tmp;

	if (!link || !from)
		return NULL;
	rk_list_for_each_safe(pos, tmp, &link->ids) {
		struct cm_id *id =
			rk_list_entry(pos, struct cm_id, link_node);

		if (id->peer == from && (id->state == CM_REQUESTED ||
					 id->state == CM_ACCEPTED))
			return id;
	}
	return NULL;
}

static int offer_check(const struct cm_offer *offer)
{
	if (offer->qpn > 0xffffff)
		return -EPROTO;
	if (offer->retry_count > 7 || offer->rnr_retry_count > 7)
		return -EPROTO;
	if (offer->flow_control > 1 || offer->srq > 1)
		return -EPROTO;
	return 0;
}

/* ---- one check per message -------------------------------------------- */

static int request_check(struct wire_link *wire, const struct cm_request *req,
			 struct sockaddr_storage *source,
			 struct sockaddr_storage *target)
{
	if (!req->head.from || offer_check(&req->offer))
		return -EPROTO;
	/* who asks has opened the link, and chooses the lane */
	if (wire_link_is_ours(wire) || req->offer.lane >= BOX_LANES)
		return -EPROTO;
	if (cm_addr_unpack(source, &req->source) ||
	    cm_addr_unpack(target, &req->target))
		return -EPROTO;
	if (source->ss_family != target->ss_family)
		return -EPROTO;
	/* the program may trust loopback and not others */
	if (!cm_addr_is_same((struct sockaddr *)source,
			     (struct sockaddr *)target) &&
	    cm_addr_check_local((struct sockaddr *)source))
		return -EPROTO;
	return 0;
}

static int reply_check(const struct cm_id *id, const struct cm_reply *reply)
{
	if (id->state != CM_CONNECTING || !reply->head.from)
		return -EPROTO;
	if (reply->offer.lane != id->lane)
		return -EPROTO;
	return offer_check(&reply->offer);
}

static int reject_check(const struct cm_id *id, const struct cm_reject *reject)
{
	if (!reject->reason || reject->reason > UINT16_MAX)
		return -EPROTO;
	if (id->peer && reject->head.from && reject->head.from != id->peer)
		return -EPROTO;
	return 0;
}

static int ready_check(const struct cm_id *id, const struct cm_head *head)
{
	if (head->from != id->peer)
		return -EPROTO;
	/* later states: the first record overtook it, or we disconnected */
	return id->state == CM_ACCEPTED || id->state == CM_ESTABLISHED ||
			       id->state == CM_DISCONNECTED ||
			       id->state == CM_ENDED ?
		       0 :
		       -EPROTO;
}

static int disconnect_check(const struct cm_id *id, const struct cm_head *head)
{
	if (head->from != id->peer)
		return -EPROTO;
	return id->state == CM_ACCEPTED || id->state == CM_ESTABLISHED ||
			       id->state == CM_DISCONNECTED ||
			       id->state == CM_ENDED ?
		       0 :
		       -EPROTO;
}

/* ---- handling --------------------------------------------------------- */

static void on_request(struct wire_link *wire, const struct cm_request *request)
{
	struct sockaddr_storage source, target;

	if (request_check(wire, request, &source, &target)) {
		(void)!cm_send_reject(wire, request->head.from, 0,
				      CM_REASON_UNSUPPORTED, NULL, 0);
		return;
	}
	cm_passive_on_request(wire, request, (struct sockaddr *)&source,
			      (struct sockaddr *)&target);
}

static void on_reply(struct wire_link *wire, struct cm_id *id,
		     const struct cm_reply *reply)
{
	if (!id) { /* given up meanwhile */
		(void)!cm_send_reject(wire, reply->head.from, 0,
				      CM_REASON_INVALID_ID, NULL, 0);
		return;
	}
	if (reply_check(id, reply))
		cm_end_broken(id);
	else
		cm_active_on_reply(id, reply);
}

static void on_reject(struct wire_link *wire, struct cm_id *id,
		      const struct cm_reject *reject)
{
	if (!id && !reject->head.to)
		id = id_of_peer(wire, reject->head.from);
	if (!id)
		return;
	if (reject_check(id, reject))
		cm_end_broken(id);
	else
		cm_end_on_reject(id, reject->reason, reject->private_data);
}

static void on_later(struct cm_id *id)
{
	if (id->state == CM_CONNECTING)
		cm_active_on_later(id);
	else
		cm_end_broken(id);
}

static void on_ready(struct cm_id *id, const struct cm_head *head)
{
	if (ready_check(id, head))
		cm_end_broken(id);
	else
		cm_passive_on_ready(id);
}

static void on_disconnect(struct cm_id *id, const struct cm_head *head)
{
	if (disconnect_check(id, head))
		cm_end_broken(id);
	else
		cm_end_on_disconnect(id, 0);
}

static void on_closed(struct wire_link *wire, const struct cm_closed *closed)
{
	struct cm_link *link = cm_link_find(wire);
	struct cm_id *id = link ? cm_lane_user(link, closed->lane) : NULL;

	if (id)
		cm_end_on_closed(id);
	if (link && wire_link_is_ours(wire))
		cm_lane_return(link, closed->lane);
}

void soft_cm_message(struct soft_device *device, struct wire_link *wire,
		     const void *message, size_t bytes)
{
	union cm_message m;
	struct cm_id *id;

	if (bytes < sizeof(m.head) || bytes > sizeof(m))
		return;
	memcpy(&m, message, bytes);
	id = id_for(wire, m.head.to);
	if (m.head.version != CM_VERSION || m.head.type >= CM_TYPES ||
	    message_bytes[m.head.type] != bytes || m.head.bytes != bytes) {
		if (id)
			cm_end_broken(id);
		return;
	}
	switch ((enum cm_message_type)m.head.type) {
	case CM_REQUEST:
		on_request(wire, &m.request);
		break;
	case CM_REPLY:
		on_reply(wire, id, &m.reply);
		break;
	case CM_REJECT:
		on_reject(wire, id, &m.reject);
		break;
	case CM_LATER:
		if (id)
			on_later(id);
		break;
	case CM_READY:
		if (id)
			on_ready(id, &m.head);
		break;
	case CM_DISCONNECT:
		if (id)
			on_disconnect(id, &m.head);
		break;
	case CM_CLOSED:
		on_closed(wire, &m.closed);
		break;
	case CM_TYPES:
		break;
	}
}

/* Everything is reached through the device, which answers ENODEV. */
void soft_cm_abandon(void)
{
	cm.device = NULL;
}
