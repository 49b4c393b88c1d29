/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Event channels, and the life of an event: reserved by the call that will
 * lead to it, queued when the fact is known, fetched by the program (which for
 * a response is what brings up the queue pair), acknowledged, freed.
 *
 * Always true: a channel's descriptor is readable while an event is queued.
 * Runs in any thread of the program, under the device lock.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "softverbs/cm_internal.h"

/* ---- channels --------------------------------------------------------- */

struct rdma_event_channel *soft_rdma_create_event_channel(void)
{
	struct soft_device *device = soft_enter();
	struct cm_channel *channel;
	int ret = -ENOMEM;

	if (!device)
		return NULL;
	cm.device = device;
	channel = rk_zalloc(sizeof(*channel));
	if (channel) {
		ret = soft_channel_open(device, &channel->soft);
		if (ret) {
			rk_free(channel);
			channel = NULL;
		}
	}
	soft_unlock(device);
	if (!channel) {
		errno = -ret;
		return NULL;
	}
	channel->base.fd = channel->soft.fd;
	rk_list_init(&channel->events);
	channel->users = 1;
	return &channel->base;
}

void cm_channel_put(struct cm_channel *channel)
{
	if (!--channel->users)
		rk_free(channel);
}

/* Ids should be destroyed first; one that is not hears nothing any more. */
void soft_rdma_destroy_event_channel(struct rdma_event_channel *base)
{
	struct cm_channel *channel =
		rk_container_of(base, struct cm_channel, base);
	struct soft_device *device = soft_enter();
	struct rk_list *pos, *tmp;

	if (!device)
		return;
	channel->closed = true;
	rk_list_for_each_safe(pos, tmp, &channel->events) {
		struct cm_event *event =
			rk_list_entry(pos, struct cm_event, node);
		struct cm_id *child = cm_id_of(event->base.id);

		if (event->base.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			cm_passive_drop(child);
	}
	while (!rk_list_empty(&channel->events))
		cm_event_drop_queued(rk_list_first(&channel->events,
						   struct cm_event, node)
					     ->owner);
	soft_channel_close(device, &channel->soft);
	cm_channel_put(channel);
	soft_unlock(device);
}

/* ---- the reserve ------------------------------------------------------ */

int cm_event_reserve(struct cm_id *id, unsigned count)
{
	while (id->spare_count < count) {
		struct cm_event *event = rk_zalloc(sizeof(*event));

		if (!event)
			return -ENOMEM;
		rk_list_init(&event->owned);
		rk_list_add_tail(&id->spares, &event->node);
		id->spare_count++;
	}
	return 0;
}

void cm_event_unreserve(struct cm_id *id)
{
	struct rk_list *pos, *tmp;

	rk_list_for_each_safe(pos, tmp, &id->spares)
		rk_free(rk_list_entry(pos, struct cm_event, node));
	rk_list_init(&id->spares);
	id->spare_count = 0;
}

/* ---- queueing --------------------------------------------------------- */

struct cm_event *cm_event_queue(struct cm_id *id,
				enum rdma_cm_event_type type, int status,
				const void *private_data, size_t full)
{
	struct cm_id *owner = id;
	struct cm_channel *channel = id->channel;
	struct cm_event *event;

	assert(id->spare_count);
	event = rk_list_first(&id->spares, struct cm_event, node);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		owner = id->listener;
	memset(&event->base, 0, sizeof(event->base));
	event->base.id = &id->base;
	event->base.listen_id = owner == id ? NULL : &owner->base;
	event->base.event = type;
	event->base.status = status;
	event->owner = owner;
	if (full) {
		memset(event->private_data, 0, sizeof(event->private_data));
		if (private_data)
			memcpy(event->private_data, private_data, full);
		event->base.param.conn.private_data = event->private_data;
		event->base.param.conn.private_data_len = (uint8_t)full;
	}
	if (channel->closed)
		return event; /* still a spare */
	rk_list_remove(&event->node);
	id->spare_count--;
	if (rk_list_empty(&channel->events))
		soft_channel_signal(&channel->soft);
	rk_list_add_tail(&channel->events, &event->node);
	rk_list_add_tail(&owner->queued, &event->owned);
	return event;
}

/* What the peer will answer is what this side may start, and the reverse. */
void cm_event_fill_offer(struct cm_event *event, const struct cm_offer *offer)
{
	struct rdma_conn_param *conn = &event->base.param.conn;

	conn->responder_resources = offer->initiator_depth;
	conn->initiator_depth = offer->responder_resources;
	conn->flow_control = offer->flow_control;
	conn->retry_count = offer->retry_count;
	conn->rnr_retry_count = offer->rnr_retry_count;
	conn->srq = offer->srq;
	conn->qp_num = offer->qpn;
}

static void unqueue(struct cm_event *event)
{
	struct cm_channel *channel = event->owner->channel;

	rk_list_remove(&event->node);
	rk_list_remove(&event->owned);
	if (rk_list_empty(&channel->events))
		soft_channel_drain(&channel->soft);
}

void cm_event_take_back(struct cm_event *event, struct cm_id *id)
{
	unqueue(event);
	rk_list_add_tail(&id->spares, &event->node);
	id->spare_count++;
}

void cm_event_drop_queued(struct cm_id *id)
{
	struct rk_list *pos, *tmp;

	rk_list_for_each_safe(pos, tmp, &id->queued)
		cm_event_take_back(rk_list_entry(pos, struct cm_event, owned),
				   id);
}

/* ---- fetching --------------------------------------------------------- */

static bool nothing_queued(void *arg)
{
	struct cm_channel *channel = arg;

	return rk_list_empty(&channel->events);
}

static void fetch(struct cm_event *event)
{
	struct cm_id *id = cm_id_of(event->base.id);

	unqueue(event);
	event->owner->unacked++;
	if (event->base.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		event->owner->unfetched--;
		id->fetched = true;
	}
	if (event->base.event == RDMA_CM_EVENT_CONNECT_RESPONSE && id->base.qp)
		cm_active_establish(id, event);
}

int soft_rdma_get_cm_event(struct rdma_event_channel *base,
			   struct rdma_cm_event **out)
{
	struct cm_channel *channel =
		rk_container_of(base, struct cm_channel, base);
	struct soft_device *device = soft_enter();
	struct cm_event *event;

	if (!device)
		return -1;
	while (rk_list_empty(&channel->events)) {
		if (soft_channel_wait(device, &channel->soft, nothing_queued,
				      channel)) {
			int saved = errno;

			soft_unlock(device);
			errno = saved;
			return -1;
		}
	}
	event = rk_list_first(&channel->events, struct cm_event, node);
	fetch(event);
	soft_unlock(device);
	*out = &event->base;
	return 0;
}

int soft_rdma_ack_cm_event(struct rdma_cm_event *base)
{
	struct cm_event *event = rk_container_of(base, struct cm_event, base);
	struct soft_device *device = soft_enter();

	if (!device)
		return -1;
	if (!--event->owner->unacked)
		pthread_cond_broadcast(&cm.acknowledged);
	rk_free(event);
	soft_unlock(device);
	return 0;
}
