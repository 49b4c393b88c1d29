/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The accepting side: a REQUEST becomes a new id on the listener's channel,
 * which the program accepts, rejects or destroys.
 *
 * A listener holds at most its backlog of requests that the program has not
 * fetched, and CM_UNANSWERED_MAX of those it has; a peer with more is told to
 * come back later.  Runs in any thread of the program, under the device lock.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "softverbs/cm_internal.h"

/* ---- requests --------------------------------------------------------- */

void cm_passive_answered(struct cm_id *id)
{
	if (!id->listener)
		return;
	rk_list_remove(&id->child_node);
	id->listener->unanswered--;
	id->listener = NULL;
}

/* The program never heard of it: the event goes with the id. */
void cm_passive_drop(struct cm_id *child)
{
	struct cm_id *listener = child->listener;
	struct rk_list *pos, *tmp;

	rk_list_for_each_safe(pos, tmp, &listener->queued) {
		struct cm_event *event =
			rk_list_entry(pos, struct cm_event, owned);

		if (event->base.id == &child->base)
			cm_event_take_back(event, child);
	}
	listener->unfetched--;
	cm_id_retire(child);
	cm_id_free(child);
	cm.pd_users--; /* the listener has another */
}

static int make_child(struct cm_id *listener, struct wire_link *wire,
		      const struct cm_request *request, struct cm_id **out)
{
	struct cm_id *id;
	int ret = cm_id_new(listener->channel, listener->base.context, &id);

	if (ret)
		return ret;
	ret = cm_event_reserve(id, CM_EVENTS_PASSIVE);
	if (ret)
		goto err_id;
	ret = cm_link_attach(id, wire);
	if (ret)
		goto err_id;
	ret = cm_lane_take(id, request->offer.lane);
	if (ret)
		goto err_link;
	cm.pd_users++;
	*out = id;
	return 0;

err_link:
	cm_link_detach(id);
err_id:
	cm_id_free(id);
	return ret;
}

static void announce(struct cm_id *id, struct cm_id *listener,
		     const struct cm_request *request)
{
	struct cm_event *event;

	id->listener = listener;
	rk_list_add_tail(&listener->children, &id->child_node);
	listener->unanswered++;
	listener->unfetched++;
	cm_id_use_device(id);
	cm_id_move(id, CM_REQUESTED);
	event = cm_event_queue(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0,
			       request->private_data, CM_REQUEST_PRIVATE);
	cm_event_fill_offer(event, &request->offer);
}

void cm_passive_on_request(struct wire_link *wire,
			   const struct cm_request *request,
			   const struct sockaddr *source,
			   const struct sockaddr *target)
{
	struct cm_id *listener = cm_listener_find(target), *id;
	uint32_t from = request->head.from;
	int ret;

	if (!listener || listener->channel->closed) {
		cm_lane_refuse(wire, request->offer.lane);
		(void)!cm_send_reject(wire, from, 0, CM_REASON_INVALID_SERVICE,
				      NULL, 0);
		return;
	}
	if (listener->unfetched >= listener->backlog ||
	    listener->unanswered >= CM_UNANSWERED_MAX) {
		(void)!cm_send_head(wire, CM_LATER, from, 0);
		return;
	}
	ret = make_child(listener, wire, request, &id);
	if (ret) {
		if (ret != -EBUSY) /* a lane in use is not ours to free */
			cm_lane_refuse(wire, request->offer.lane);
		(void)!cm_send_reject(wire, from, 0,
				      ret == -EBUSY ? CM_REASON_UNSUPPORTED :
						      CM_REASON_NO_RESOURCES,
				      NULL, 0);
		return;
	}
	id->peer = from;
	id->peer_offer = request->offer;
	/* the most we may ask for is what the peer will do */
	id->offer.responder_resources = rk_min(
		request->offer.initiator_depth, cm.max_responder_resources);
	id->offer.initiator_depth = rk_min(request->offer.responder_resources,
					   cm.max_initiator_depth);
	cm_addr_copy(&id->base.route.addr.src_storage, target);
	cm_addr_copy(&id->base.route.addr.dst_storage, source);
	cm_addr_fill_gids(id);
	announce(id, listener, request);
}

/* ---- answers ---------------------------------------------------------- */

/* Receiving and sending from here on, before the peer knows. */
static int bring_up(struct cm_id *id)
{
	struct soft_qp *qp = soft_qp_of(id->base.qp);
	struct soft_path path = {
		.link = id->link->wire,
		.lane = id->lane,
		.dest_qpn = id->peer_offer.qpn,
		.retry_count = id->peer_offer.retry_count,
		.rnr_retry_count = id->peer_offer.rnr_retry_count,
		.max_rd_atomic = id->offer.initiator_depth,
		.max_dest_rd_atomic = id->offer.responder_resources,
	};
	int ret = soft_qp_open_lane(qp, id->link->wire, id->lane);

	if (ret)
		return ret;
	id->lane_is_ours = false; /* the queue pair's now */
	ret = soft_qp_connect(qp, &path, &cm_qp_events,
			      (void *)(uintptr_t)id->number);
	return ret ? ret : soft_qp_ready(qp);
}

static int send_reply(struct cm_id *id, const struct rdma_conn_param *param)
{
	struct cm_reply reply = {
		.head = { .version = CM_VERSION,
			  .type = CM_REPLY,
			  .bytes = sizeof(reply),
			  .to = id->peer,
			  .from = id->number },
		.offer = id->offer,
	};

	reply.offer.lane = id->lane;
	reply.offer.retry_count = 0; /* the request's governs both */
	if (param && param->private_data_len)
		memcpy(reply.private_data, param->private_data,
		       param->private_data_len);
	return wire_send(id->link->wire, &reply, sizeof(reply));
}

static int accept_id(struct cm_id *id, const struct rdma_conn_param *param)
{
	int ret;

	if (id->state != CM_REQUESTED)
		return -EINVAL;
	ret = cm_param_check(id, param, CM_REPLY_PRIVATE);
	if (ret)
		return ret;
	cm_param_defaults(id, param);
	if (id->base.qp) {
		ret = bring_up(id);
		if (ret)
			return ret;
	}
	ret = send_reply(id, param);
	if (ret)
		return ret;
	cm_passive_answered(id);
	cm_id_move(id, CM_ACCEPTED);
	id->deadline_ns = rk_now_ns() + cm_times.answer_ns;
	wire_timer_set(cm.device->wire, &id->timer, id->deadline_ns);
	return 0;
}

int soft_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct soft_device *device = soft_enter();
	int ret;

	if (!device)
		return -1;
	ret = accept_id(cm_id_of(id), param);
	soft_unlock(device);
	return cm_result(ret);
}

static int reject_id(struct cm_id *id, const void *private_data, size_t bytes)
{
	if (id->state != CM_REQUESTED || bytes > CM_REJECT_PRIVATE)
		return -EINVAL;
	if (bytes && !private_data)
		return -EINVAL;
	cm_end_send_reject(id, CM_REASON_CONSUMER, private_data, bytes);
	cm_end_fail_qp(id);
	cm_passive_answered(id);
	cm_id_move(id, CM_FAILED);
	cm_link_detach(id);
	return 0;
}

int soft_rdma_reject(struct rdma_cm_id *id, const void *private_data,
		     uint8_t private_data_bytes)
{
	struct soft_device *device = soft_enter();
	int ret;

	if (!device)
		return -1;
	ret = reject_id(cm_id_of(id), private_data, private_data_bytes);
	soft_unlock(device);
	return cm_result(ret);
}

/* READY, or the first record, which may overtake it. */
void cm_passive_on_ready(struct cm_id *id)
{
	if (id->state != CM_ACCEPTED)
		return;
	wire_timer_cancel(cm.device->wire, &id->timer);
	cm_id_move(id, CM_ESTABLISHED);
	cm_event_queue(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
}
