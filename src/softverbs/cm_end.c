/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How connections end: disconnects of either side, rejections, time-outs,
 * peers that died.
 *
 * Always true: an id reports DISCONNECTED once, and only if it was
 * established (or had accepted); otherwise its end is REJECTED, UNREACHABLE or
 * CONNECT_ERROR, once.  The side that disconnects is told at once, the other
 * when it has read what was sent before.  A queue pair that is moved to error
 * may report its peer's disconnect from inside that call, so an id's state
 * changes first.  Runs in any thread of the program, under the device lock.
 */
#include <errno.h>

#include "base/clock.h"
#include "softverbs/cm_internal.h"

/* ---- the queue pair --------------------------------------------------- */

static bool lane_was_opened(const struct cm_id *id)
{
	return id->link && id->lane != CM_LANE_NONE && !id->lane_is_ours;
}

/* The program may have destroyed it behind the id's back; what it cannot do
 * is destroy it without its lane being released. */
struct soft_qp *cm_end_qp(const struct cm_id *id)
{
	if (!id->base.qp || !lane_was_opened(id))
		return NULL;
	if (id->link->owner[id->lane] != id->number)
		return NULL;
	return soft_qp_of(id->base.qp);
}

void cm_end_fail_qp(struct cm_id *id)
{
	struct soft_qp *qp = cm_end_qp(id);

	if (!qp && id->base.qp && !lane_was_opened(id))
		qp = soft_qp_of(id->base.qp);
	if (qp)
		soft_qp_fail(qp);
}

/* ---- not established -------------------------------------------------- */

void cm_end_send_reject(struct cm_id *id, uint32_t reason,
			const void *private_data, size_t bytes)
{
	if (id->link)
		(void)!cm_send_reject(id->link->wire, id->peer, id->number,
				      reason, private_data, bytes);
}

static void fail(struct cm_id *id, enum rdma_cm_event_type type, int status,
		 const void *private_data, size_t full)
{
	wire_timer_cancel(cm.device->wire, &id->timer);
	cm_id_move(id, CM_FAILED);
	cm_end_fail_qp(id);
	cm_passive_answered(id);
	cm_event_drop_queued(id); /* a response that nobody fetched */
	cm_link_detach(id);
	cm_event_queue(id, type, status, private_data, full);
}

void cm_end_failed(struct cm_id *id, enum rdma_cm_event_type type, int status)
{
	fail(id, type, status, NULL, 0);
}

void cm_end_rejected(struct cm_id *id, uint32_t reason,
		     const void *private_data)
{
	fail(id, RDMA_CM_EVENT_REJECTED, (int)reason, private_data,
	     CM_REJECT_PRIVATE);
}

/* ---- disconnects ------------------------------------------------------ */

void cm_end_tell_disconnect(struct cm_id *id)
{
	struct soft_qp *qp = cm_end_qp(id);

	if (id->peer_told)
		return;
	id->peer_told = true;
	if (qp)
		soft_qp_disconnect(qp, NULL, 0);
	else if (id->link)
		(void)!cm_send_head(id->link->wire, CM_DISCONNECT, id->peer,
				    id->number);
}

static void report_disconnected(struct cm_id *id, int status)
{
	cm_id_move(id, CM_DISCONNECTED);
	cm_event_queue(id, RDMA_CM_EVENT_DISCONNECTED, status, NULL, 0);
	wire_timer_set(cm.device->wire, &id->timer,
		       rk_now_ns() + cm_times.timewait_ns);
}

void cm_end_on_disconnect(struct cm_id *id, int status)
{
	cm_passive_on_ready(id); /* the peer was established, so it sent it */
	if (id->state != CM_ESTABLISHED)
		return;
	id->peer_told = true; /* it need not be */
	report_disconnected(id, status);
}

/*
 * The peer's queue pair is no more.  Mostly its DISCONNECT came first, or is
 * found now that the lane is drained; it is missing where the peer's records
 * had no room.
 */
void cm_end_on_closed(struct cm_id *id)
{
	if (id->state != CM_ESTABLISHED)
		return;
	cm_end_fail_qp(id);
	cm_end_on_disconnect(id, 0);
}

static int disconnect_id(struct cm_id *id)
{
	switch (id->state) {
	case CM_ACCEPTED:
		if (!cm_end_qp(id)) {
			/* no lane to say it in behind the reply */
			cm_end_send_reject(id, CM_REASON_CONSUMER, NULL, 0);
			id->peer_told = true;
		}
		__attribute__((fallthrough));
	case CM_ESTABLISHED:
		report_disconnected(id, 0);
		cm_end_tell_disconnect(id);
		return 0;
	case CM_CONNECTING:
	case CM_RESPONDED:
	case CM_DISCONNECTED:
	case CM_ENDED:
	case CM_FAILED:
		cm_end_fail_qp(id);
		return 0;
	case CM_IDLE:
	case CM_BOUND:
	case CM_LISTENING:
	case CM_ADDR:
	case CM_ROUTE:
	case CM_REQUESTED:
	case CM_DESTROYING:
	case CM_STATES:
		break;
	}
	return -EINVAL;
}

int soft_rdma_disconnect(struct rdma_cm_id *id)
{
	struct soft_device *device = soft_enter();
	int ret;

	if (!device)
		return -1;
	ret = disconnect_id(cm_id_of(id));
	soft_unlock(device);
	return cm_result(ret);
}

/* ---- what the peer does ----------------------------------------------- */

void cm_end_on_reject(struct cm_id *id, uint32_t reason,
		      const void *private_data)
{
	switch (id->state) {
	case CM_REQUESTED:
		if (!id->fetched) {
			cm_passive_drop(id);
			break;
		}
		__attribute__((fallthrough));
	case CM_CONNECTING:
	case CM_RESPONDED:
	case CM_ACCEPTED:
		cm_end_rejected(id, reason, private_data);
		break;
	case CM_ESTABLISHED:
		/* it gave up while our READY was on its way */
		cm_end_on_disconnect(id, 0);
		cm_end_fail_qp(id);
		break;
	case CM_IDLE:
	case CM_BOUND:
	case CM_LISTENING:
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

void cm_end_broken(struct cm_id *id)
{
	if (id->state == CM_ESTABLISHED) {
		report_disconnected(id, -EPROTO);
		cm_end_tell_disconnect(id);
		return;
	}
	cm_end_send_reject(id, CM_REASON_UNSUPPORTED, NULL, 0);
	cm_end_on_reject(id, CM_REASON_UNSUPPORTED, NULL);
}

/* A queue pair names its id by number: the id may be gone. */
static struct cm_id *id_of_qp(void *number)
{
	return cm_id_find((uint32_t)(uintptr_t)number);
}

static void qp_first_record(void *number)
{
	struct cm_id *id = id_of_qp(number);

	if (id)
		cm_passive_on_ready(id);
}

static void qp_disconnected(void *number, const void *private_data,
			    size_t bytes)
{
	struct cm_id *id = id_of_qp(number);

	if (id)
		cm_end_on_disconnect(id, 0);
}

static void qp_gone(void *number)
{
	struct cm_id *id = id_of_qp(number);

	if (id && id->state == CM_ESTABLISHED)
		cm_end_on_disconnect(id, -ECONNRESET);
}

const struct soft_cm_events cm_qp_events = {
	.first_record = qp_first_record,
	.disconnected = qp_disconnected,
	.gone = qp_gone,
};

static void peer_died(struct cm_id *id)
{
	switch (id->state) {
	case CM_ADDR:
	case CM_ROUTE:
		if (!id->link_memory)
			cm_link_detach(id);
		break;
	case CM_CONNECTING:
	case CM_RESPONDED:
		cm_end_failed(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		break;
	case CM_REQUESTED:
	case CM_ACCEPTED:
		cm_end_on_reject(id, CM_REASON_TIMEOUT, NULL);
		break;
	case CM_ESTABLISHED:
		/* a queue pair says it itself, after the last record */
		if (!cm_end_qp(id))
			cm_end_on_disconnect(id, -ECONNRESET);
		break;
	case CM_IDLE:
	case CM_BOUND:
	case CM_LISTENING:
	case CM_DISCONNECTED:
	case CM_ENDED:
	case CM_FAILED:
	case CM_DESTROYING:
	case CM_STATES:
		break;
	}
}

void soft_cm_gone(struct soft_device *device, struct wire_link *wire)
{
	struct cm_link *link = cm_link_find(wire);
	struct rk_list *pos, *tmp;

	if (!link)
		return;
	cm_link_hold(link);
	rk_list_for_each_safe(pos, tmp, &link->ids)
		peer_died(rk_list_entry(pos, struct cm_id, link_node));
	cm_link_dead(link);
	cm_link_unhold(link);
}

/* ---- time ------------------------------------------------------------- */

void cm_timer_fire(struct wire_timer *timer)
{
	struct cm_id *id = rk_container_of(timer, struct cm_id, timer);

	switch (id->state) {
	case CM_CONNECTING:
		cm_active_attempt(id);
		break;
	case CM_ACCEPTED:
		cm_end_send_reject(id, CM_REASON_TIMEOUT, NULL, 0);
		cm_end_failed(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		break;
	case CM_DISCONNECTED:
		cm_id_move(id, CM_ENDED);
		cm_event_queue(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, NULL, 0);
		break;
	case CM_IDLE:
	case CM_BOUND:
	case CM_LISTENING:
	case CM_ADDR:
	case CM_ROUTE:
	case CM_RESPONDED:
	case CM_REQUESTED:
	case CM_ESTABLISHED:
	case CM_ENDED:
	case CM_FAILED:
	case CM_DESTROYING:
	case CM_STATES:
		break;
	}
}
