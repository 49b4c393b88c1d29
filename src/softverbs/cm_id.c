/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ids of the connection manager: their numbers, their states, how they end.
 *
 * A number names an id to the peer and to the queue pairs, which may outlive
 * it: the low half is a place in the table, the high half counts ids, so an
 * old number finds nothing.  Runs in any thread of the program, under the
 * device lock.
 */
#include <assert.h>
#include <errno.h>

#include "base/alloc.h"
#include "softverbs/cm_internal.h"

struct cm_times cm_times = {
	/* the kernel asks 15 times, 4.3 s apart */
	.answer_ns = 64ull * 1000 * 1000 * 1000,
	.retry_ns = 100ull * 1000 * 1000,
	.timewait_ns = 1000ull * 1000 * 1000,
};

struct cm cm = {
	.free_slot = CM_IDS_MAX,
	.listeners = { &cm.listeners, &cm.listeners },
	.ports = { &cm.ports, &cm.ports },
	.acknowledged = PTHREAD_COND_INITIALIZER,
};

#define TO(state) (1u << (state))

static const uint16_t next_states[CM_STATES] = {
	[CM_IDLE] = TO(CM_BOUND) | TO(CM_ADDR) | TO(CM_REQUESTED),
	[CM_BOUND] = TO(CM_LISTENING) | TO(CM_ADDR),
	[CM_LISTENING] = 0,
	[CM_ADDR] = TO(CM_ROUTE),
	[CM_ROUTE] = TO(CM_CONNECTING),
	[CM_CONNECTING] = TO(CM_RESPONDED) | TO(CM_FAILED),
	[CM_RESPONDED] = TO(CM_ESTABLISHED) | TO(CM_FAILED),
	[CM_REQUESTED] = TO(CM_ACCEPTED) | TO(CM_FAILED),
	[CM_ACCEPTED] = TO(CM_ESTABLISHED) | TO(CM_DISCONNECTED) |
			TO(CM_FAILED),
	[CM_ESTABLISHED] = TO(CM_DISCONNECTED),
	[CM_DISCONNECTED] = TO(CM_ENDED),
	[CM_ENDED] = 0,
	[CM_FAILED] = 0,
	[CM_DESTROYING] = 0,
};

void cm_id_move(struct cm_id *id, enum cm_state state)
{
	assert(state == CM_DESTROYING ||
	       (next_states[id->state] & TO(state)));
	id->state = state;
}

int cm_result(int error)
{
	if (!error)
		return 0;
	errno = -error;
	return -1;
}

/* ---- numbers ---------------------------------------------------------- */

static int slots_grow(void)
{
	unsigned count = cm.slot_count ? cm.slot_count * 2 : 64;
	struct cm_slot *grown;

	if (cm.slot_count >= CM_IDS_MAX)
		return -EMFILE;
	grown = rk_realloc(cm.slots, count * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	cm.slots = grown;
	for (unsigned i = count; i-- > cm.slot_count;) {
		cm.slots[i].id = NULL;
		cm.slots[i].next_free = cm.free_slot;
		cm.free_slot = i;
	}
	cm.slot_count = count;
	return 0;
}

static int number_take(struct cm_id *id)
{
	unsigned slot;
	int ret;

	if (cm.free_slot == CM_IDS_MAX) {
		ret = slots_grow();
		if (ret)
			return ret;
	}
	slot = cm.free_slot;
	cm.free_slot = cm.slots[slot].next_free;
	cm.slots[slot].id = id;
	cm.id_count++;
	if (!++cm.generation)
		cm.generation = 1; /* a number is never 0 */
	id->number = (uint32_t)cm.generation << 16 | slot;
	return 0;
}

static void number_give(struct cm_id *id)
{
	unsigned slot = id->number & 0xffff;

	cm.slots[slot].id = NULL;
	cm.slots[slot].next_free = cm.free_slot;
	cm.free_slot = slot;
	if (--cm.id_count)
		return;
	rk_free(cm.slots);
	cm.slots = NULL;
	cm.slot_count = 0;
	cm.free_slot = CM_IDS_MAX;
}

struct cm_id *cm_id_find(uint32_t number)
{
	unsigned slot = number & 0xffff;
	struct cm_id *id;

	if (slot >= cm.slot_count)
		return NULL;
	id = cm.slots[slot].id;
	return id && id->number == number ? id : NULL;
}

/* ---- making and freeing ----------------------------------------------- */

int cm_id_new(struct cm_channel *channel, void *context, struct cm_id **out)
{
	struct cm_id *id = rk_zalloc(sizeof(*id));
	int ret;

	if (!id)
		return -ENOMEM;
	ret = number_take(id);
	if (ret) {
		rk_free(id);
		return ret;
	}
	id->base.channel = &channel->base;
	id->base.context = context;
	id->base.ps = RDMA_PS_TCP;
	id->base.qp_type = IBV_QPT_RC;
	id->channel = channel;
	channel->users++;
	id->lane = CM_LANE_NONE;
	id->timer.fire = cm_timer_fire;
	rk_list_init(&id->timer.node);
	rk_list_init(&id->spares);
	rk_list_init(&id->queued);
	rk_list_init(&id->listen_node);
	rk_list_init(&id->children);
	rk_list_init(&id->child_node);
	rk_list_init(&id->link_node);
	*out = id;
	return 0;
}

void cm_id_free(struct cm_id *id)
{
	assert(rk_list_empty(&id->queued) && !id->unacked && !id->link);
	cm_event_unreserve(id);
	number_give(id);
	cm_channel_put(id->channel);
	rk_free(id);
}

void cm_id_use_device(struct cm_id *id)
{
	id->base.verbs = cm.pd->context;
	if (!id->base.pd)
		id->base.pd = cm.pd;
	id->base.port_num = 1;
}

/* The program has not seen these children and never will. */
static void retire_listener(struct cm_id *id)
{
	struct rk_list *pos, *tmp;

	rk_list_remove(&id->listen_node);
	rk_list_for_each_safe(pos, tmp, &id->queued) {
		struct cm_event *event =
			rk_list_entry(pos, struct cm_event, owned);

		if (event->base.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			cm_passive_drop(cm_id_of(event->base.id));
	}
	rk_list_for_each_safe(pos, tmp, &id->children)
		cm_passive_answered(
			rk_list_entry(pos, struct cm_id, child_node));
}

static void tell_peer_the_end(struct cm_id *id)
{
	struct soft_qp *qp = cm_end_qp(id);

	switch (id->state) {
	case CM_CONNECTING:
		cm_end_send_reject(id, CM_REASON_TIMEOUT, NULL, 0);
		break;
	case CM_RESPONDED:
	case CM_REQUESTED:
	case CM_ACCEPTED:
		cm_end_send_reject(id, CM_REASON_CONSUMER, NULL, 0);
		if (qp)
			soft_qp_fail(qp);
		break;
	case CM_ESTABLISHED:
		cm_end_tell_disconnect(id);
		break;
	case CM_LISTENING:
		retire_listener(id);
		break;
	case CM_IDLE:
	case CM_BOUND:
	case CM_ADDR:
	case CM_ROUTE:
	case CM_DISCONNECTED:
	case CM_ENDED:
	case CM_FAILED:
	case CM_DESTROYING:
	case CM_STATES:
		break;
	}
}

void cm_id_retire(struct cm_id *id)
{
	tell_peer_the_end(id);
	cm_id_move(id, CM_DESTROYING);
	wire_timer_cancel(cm.device->wire, &id->timer);
	cm_passive_answered(id);
	cm_link_detach(id);
	cm_port_give(id);
	cm_event_drop_queued(id);
}

/*
 * An id has a channel: one with NULL, whose calls wait for their own events,
 * is refused with EOPNOTSUPP, and port spaces other than RDMA_PS_TCP with
 * EPROTONOSUPPORT.
 */
int soft_rdma_create_id(struct rdma_event_channel *channel,
			struct rdma_cm_id **out, void *context,
			enum rdma_port_space ps)
{
	struct soft_device *device;
	struct cm_id *id;
	int ret;

	if (!channel)
		return cm_result(-EOPNOTSUPP);
	if (ps != RDMA_PS_TCP)
		return cm_result(-EPROTONOSUPPORT);
	ret = cm_pd_get();
	if (ret)
		return cm_result(ret);
	device = soft_enter();
	if (!device) {
		ret = -errno;
		cm_pd_put();
		return cm_result(ret);
	}
	ret = cm_id_new(rk_container_of(channel, struct cm_channel, base),
			context, &id);
	soft_unlock(device);
	if (ret) {
		cm_pd_put();
		return cm_result(ret);
	}
	*out = &id->base;
	return 0;
}

int soft_rdma_destroy_id(struct rdma_cm_id *rdma_id)
{
	struct soft_device *device = soft_enter();
	struct cm_id *id = cm_id_of(rdma_id);

	if (!device)
		return -1;
	cm_id_retire(id);
	/* the program still holds events of it */
	while (id->unacked)
		pthread_cond_wait(&cm.acknowledged, &device->lock);
	cm_id_free(id);
	soft_unlock(device);
	cm_pd_put();
	return 0;
}
