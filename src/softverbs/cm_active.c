/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connecting side: REQUEST out, REPLY in, READY out.
 *
 * The program's fetching of the response is what makes its queue pair ready to
 * send and what lets the other side know: no READY before that.  Runs in any
 * thread of the program, under the device lock.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "softverbs/cm_internal.h"

/* ---- parameters, of both sides ---------------------------------------- */

int cm_param_check(const struct cm_id *id, const struct rdma_conn_param *param,
		   size_t private_max)
{
	if (!param)
		return id->base.qp ? 0 : -EINVAL;
	if (param->private_data_len > private_max)
		return -EINVAL;
	if (param->private_data_len && !param->private_data)
		return -EINVAL;
	if (param->responder_resources != RDMA_MAX_RESP_RES &&
	    param->responder_resources > cm.max_responder_resources)
		return -EINVAL;
	if (param->initiator_depth != RDMA_MAX_INIT_DEPTH &&
	    param->initiator_depth > cm.max_initiator_depth)
		return -EINVAL;
	return 0;
}

/* What we will say.  The limits of "as many as possible" are the device's, or
 * on the passive side what the request asked for, which is in id->offer. */
void cm_param_defaults(struct cm_id *id, const struct rdma_conn_param *param)
{
	struct cm_offer *offer = &id->offer;

	offer->retry_count = 7;
	offer->rnr_retry_count = 7;
	offer->flow_control = 1;
	if (param) {
		if (param->responder_resources != RDMA_MAX_RESP_RES)
			offer->responder_resources = param->responder_resources;
		if (param->initiator_depth != RDMA_MAX_INIT_DEPTH)
			offer->initiator_depth = param->initiator_depth;
		offer->retry_count = rk_min(param->retry_count, 7);
		offer->rnr_retry_count = rk_min(param->rnr_retry_count, 7);
		offer->flow_control = !!param->flow_control;
		offer->srq = !!param->srq;
		offer->qpn = param->qp_num & 0xffffff;
	}
	if (id->base.qp) {
		offer->qpn = id->base.qp->qp_num;
		offer->srq = !!id->base.qp->srq;
	}
}

/* ---- the request ------------------------------------------------------ */

static void arm_timer(struct cm_id *id, uint64_t at_ns)
{
	wire_timer_set(cm.device->wire, &id->timer,
		       rk_min(at_ns, id->deadline_ns));
}

/* The queue pair's lane opens before the peer hears of it. */
static int prepare_lane(struct cm_id *id)
{
	int ret;

	if (id->lane != CM_LANE_NONE)
		return 0;
	ret = cm_lane_choose(id);
	if (ret || !id->base.qp)
		return ret;
	ret = soft_qp_open_lane(soft_qp_of(id->base.qp), id->link->wire,
				id->lane);
	if (!ret)
		id->lane_is_ours = false; /* the queue pair's now */
	return ret;
}

static int send_request(struct cm_id *id)
{
	struct cm_request request = {
		.head = { .version = CM_VERSION,
			  .type = CM_REQUEST,
			  .bytes = sizeof(request),
			  .from = id->number },
		.offer = id->offer,
	};
	int ret;

	request.offer.lane = id->lane;
	cm_addr_pack(&request.source, &id->base.route.addr.src_addr);
	cm_addr_pack(&request.target, &id->base.route.addr.dst_addr);
	memcpy(request.private_data, id->request_private,
	       sizeof(request.private_data));
	ret = wire_send(id->link->wire, &request, sizeof(request));
	if (!ret)
		cm_lane_lend(id->link, id->lane);
	return ret;
}

/* 0: somebody will answer; -EAGAIN: try later; else it is over. */
static int attempt(struct cm_id *id)
{
	struct wire_link *wire;
	int ret;

	if (id->link && !wire_link_is_alive(id->link->wire)) {
		/* memory for the old peer is no use to the next */
		if (id->link_memory || id->lane != CM_LANE_NONE)
			return -ECONNREFUSED;
		cm_link_detach(id);
	}
	if (!id->link) {
		ret = wire_connect(cm.device->wire,
				   &id->base.route.addr.dst_addr, &wire);
		if (ret)
			return ret;
		ret = cm_link_attach(id, wire);
		wire_put(wire);
		if (ret)
			return ret;
	}
	ret = prepare_lane(id);
	if (ret)
		return ret;
	ret = send_request(id);
	return ret == -ENOBUFS ? -EAGAIN : ret;
}

/* The outcome is an event, even where it is known at once. */
void cm_active_attempt(struct cm_id *id)
{
	uint64_t now = rk_now_ns();
	int ret;

	if (now >= id->deadline_ns) {
		cm_end_send_reject(id, CM_REASON_TIMEOUT, NULL, 0);
		cm_end_failed(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		return;
	}
	ret = attempt(id);
	if (!ret)
		arm_timer(id, id->deadline_ns);
	else if (ret == -EAGAIN)
		arm_timer(id, now + cm_times.retry_ns);
	else if (ret == -ECONNREFUSED || ret == -EPIPE)
		cm_end_rejected(id, CM_REASON_INVALID_SERVICE, NULL);
	else if (ret == -EHOSTUNREACH)
		cm_end_failed(id, RDMA_CM_EVENT_UNREACHABLE, ret);
	else
		cm_end_failed(id, RDMA_CM_EVENT_CONNECT_ERROR, ret);
}

static int connect_id(struct cm_id *id, const struct rdma_conn_param *param)
{
	int ret;

	if (id->state != CM_ROUTE)
		return -EINVAL;
	ret = cm_param_check(id, param, CM_REQUEST_PRIVATE);
	if (ret)
		return ret;
	ret = cm_event_reserve(id, CM_EVENTS_ACTIVE);
	if (ret)
		return ret;
	id->offer.responder_resources = cm.max_responder_resources;
	id->offer.initiator_depth = cm.max_initiator_depth;
	cm_param_defaults(id, param);
	if (param && param->private_data_len)
		memcpy(id->request_private, param->private_data,
		       param->private_data_len);
	cm_id_move(id, CM_CONNECTING);
	id->deadline_ns = rk_now_ns() + cm_times.answer_ns;
	cm_active_attempt(id);
	return 0;
}

int soft_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct soft_device *device = soft_enter();
	int ret;

	if (!device)
		return -1;
	ret = connect_id(cm_id_of(id), param);
	soft_unlock(device);
	return cm_result(ret);
}

/* ---- the answer ------------------------------------------------------- */

/* The peer has no room and has forgotten us, our lane too. */
void cm_active_on_later(struct cm_id *id)
{
	cm_lane_return(id->link, id->lane);
	arm_timer(id, rk_now_ns() + cm_times.retry_ns);
}

void cm_active_on_reply(struct cm_id *id, const struct cm_reply *reply)
{
	struct cm_event *event;

	id->peer = reply->head.from;
	id->peer_offer = reply->offer;
	wire_timer_cancel(cm.device->wire, &id->timer);
	cm_id_move(id, CM_RESPONDED);
	event = cm_event_queue(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0,
			       reply->private_data, CM_REPLY_PRIVATE);
	cm_event_fill_offer(event, &reply->offer);
}

static int bring_up(struct cm_id *id)
{
	struct soft_qp *qp = soft_qp_of(id->base.qp);
	struct soft_path path = {
		.link = id->link->wire,
		.lane = id->lane,
		.dest_qpn = id->peer_offer.qpn,
		.retry_count = id->offer.retry_count,
		.rnr_retry_count = id->peer_offer.rnr_retry_count,
		.max_rd_atomic = id->peer_offer.responder_resources,
		.max_dest_rd_atomic = id->peer_offer.initiator_depth,
	};
	int ret = soft_qp_connect(qp, &path, &cm_qp_events,
				  (void *)(uintptr_t)id->number);

	if (!ret)
		ret = soft_qp_ready(qp);
	if (!ret)
		ret = cm_send_head(id->link->wire, CM_READY, id->peer,
				   id->number);
	return ret;
}

void cm_active_establish(struct cm_id *id, struct cm_event *event)
{
	int ret;

	if (id->state != CM_RESPONDED)
		return;
	ret = bring_up(id);
	if (!ret) {
		cm_id_move(id, CM_ESTABLISHED);
		event->base.event = RDMA_CM_EVENT_ESTABLISHED;
		return;
	}
	cm_end_send_reject(id, CM_REASON_CONSUMER, NULL, 0);
	cm_end_fail_qp(id);
	cm_id_move(id, CM_FAILED);
	event->base.event = RDMA_CM_EVENT_CONNECT_ERROR;
	event->base.status = ret;
}
