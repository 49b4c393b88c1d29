/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What state a queue pair is in, who may change it and what that entails.
 *
 *   RESET --> INIT --> RTR --> RTS        any --> ERR, any --> RESET
 *
 * The program's own transitions go through a table of the attributes that each
 * requires and allows.  RTR is entered through the connection manager only: a
 * bare queue pair number says nothing about the process behind it.
 * Lock held.
 */
#include <string.h>

#include "base/alloc.h"
#include "softverbs/objects.h"

/* ---- the program's transitions ---------------------------------------- */

enum { STATES = IBV_QPS_ERR + 1 };

struct transition {
	bool legal;
	int required, optional; /* besides IBV_QP_STATE */
};

#define ANY_TO_RESET_OR_ERR \
	[IBV_QPS_RESET] = { .legal = true }, [IBV_QPS_ERR] = { .legal = true }

static const struct transition table[STATES][STATES] = {
	[IBV_QPS_RESET] = {
		ANY_TO_RESET_OR_ERR,
		[IBV_QPS_INIT] = {
			.legal = true,
			.required = IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS,
		},
	},
	[IBV_QPS_INIT] = {
		ANY_TO_RESET_OR_ERR,
		[IBV_QPS_INIT] = {
			.legal = true,
			.optional = IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS,
		},
		[IBV_QPS_RTR] = {
			.legal = true,
			.required = IBV_QP_AV | IBV_QP_PATH_MTU |
				    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER,
			.optional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
				    IBV_QP_PKEY_INDEX,
		},
	},
	[IBV_QPS_RTR] = {
		ANY_TO_RESET_OR_ERR,
		[IBV_QPS_RTS] = {
			.legal = true,
			.required = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC,
			.optional = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH |
				    IBV_QP_ACCESS_FLAGS |
				    IBV_QP_MIN_RNR_TIMER |
				    IBV_QP_PATH_MIG_STATE,
		},
	},
	[IBV_QPS_RTS] = {
		ANY_TO_RESET_OR_ERR,
		[IBV_QPS_RTS] = {
			.legal = true,
			.optional = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS |
				    IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
				    IBV_QP_MIN_RNR_TIMER,
		},
		[IBV_QPS_SQD] = {
			.legal = true,
			.optional = IBV_QP_EN_SQD_ASYNC_NOTIFY,
		},
	},
	[IBV_QPS_SQD] = { ANY_TO_RESET_OR_ERR },
	[IBV_QPS_SQE] = { ANY_TO_RESET_OR_ERR },
	[IBV_QPS_ERR] = { ANY_TO_RESET_OR_ERR },
};

enum {
	REMOTE_ACCESS = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	NO_PATH_CHANGE = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE,
};

/* Are the attributes that the mask names ones this device can have? */
static int check_values(const struct ibv_qp_attr *attr, int mask,
			enum ibv_qp_state next)
{
	if (mask & IBV_QP_PORT && attr->port_num != 1)
		return EINVAL;
	if (mask & IBV_QP_PKEY_INDEX && attr->pkey_index != 0)
		return EINVAL;
	if (mask & IBV_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31)
		return EINVAL;
	if (mask & IBV_QP_RNR_RETRY && attr->rnr_retry > 7)
		return EINVAL;
	if (mask & IBV_QP_RETRY_CNT && attr->retry_cnt > 7)
		return EINVAL;
	if (mask & IBV_QP_TIMEOUT && attr->timeout > 31)
		return EINVAL;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC &&
	    attr->max_rd_atomic > MAX_RD_ATOMIC)
		return EINVAL;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC &&
	    attr->max_dest_rd_atomic > MAX_RD_ATOMIC)
		return EINVAL;
	if (mask & NO_PATH_CHANGE || next == IBV_QPS_SQD)
		return EOPNOTSUPP;
	/* a connected queue pair grants what its regions grant */
	if (mask & IBV_QP_ACCESS_FLAGS && next == IBV_QPS_RTS &&
	    (attr->qp_access_flags & REMOTE_ACCESS) != REMOTE_ACCESS)
		return EOPNOTSUPP;
	return 0;
}

static int check_modify(const struct soft_qp *qp,
			const struct ibv_qp_attr *attr, int mask)
{
	const enum ibv_qp_state now = qp->ibv.state;
	enum ibv_qp_state next = mask & IBV_QP_STATE ? attr->qp_state : now;
	const struct transition *step;

	if ((unsigned)next >= STATES)
		return EINVAL;
	if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != now)
		return EINVAL;
	mask &= ~IBV_QP_STATE;
	step = &table[now][next];
	if (!step->legal || (mask & step->required) != step->required ||
	    mask & ~(step->required | step->optional))
		return EINVAL;
	return check_values(attr, mask, next);
}

static void remember(struct soft_qp *qp, const struct ibv_qp_attr *attr,
		     int mask)
{
	struct ibv_qp_attr *mine = &qp->attr;

	if (mask & IBV_QP_PORT)
		mine->port_num = attr->port_num;
	if (mask & IBV_QP_ACCESS_FLAGS)
		mine->qp_access_flags = attr->qp_access_flags;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		mine->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IBV_QP_TIMEOUT)
		mine->timeout = attr->timeout;
	if (mask & IBV_QP_SQ_PSN)
		mine->sq_psn = attr->sq_psn;
	if (mask & IBV_QP_RETRY_CNT)
		mine->retry_cnt = qp->path.retry_count = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		mine->rnr_retry = qp->path.rnr_retry_count = attr->rnr_retry;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		mine->max_rd_atomic = qp->path.max_rd_atomic =
			attr->max_rd_atomic;
}

static int step_to(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	if (!(mask & IBV_QP_STATE)) {
		remember(qp, attr, mask);
		return 0;
	}
	switch (attr->qp_state) {
	case IBV_QPS_RESET:
		qp_reset(qp);
		return 0;
	case IBV_QPS_INIT:
		remember(qp, attr, mask);
		qp->ibv.state = IBV_QPS_INIT;
		return 0;
	case IBV_QPS_RTR:
		return EOPNOTSUPP;
	case IBV_QPS_RTS:
		remember(qp, attr, mask);
		return qp->ibv.state == IBV_QPS_RTS ? 0 : -soft_qp_ready(qp);
	case IBV_QPS_ERR:
		qp_fail(qp);
		return 0;
	case IBV_QPS_SQD:
	case IBV_QPS_SQE:
	case IBV_QPS_UNKNOWN:
		break;
	}
	return EINVAL;
}

/*
 * EINVAL: the transition is not one, an attribute it requires is missing, one
 * it does not allow is given, or a value is out of range.
 * EOPNOTSUPP, after those checks: RTR (the connection manager enters it), SQD,
 * alternate paths, and fewer rights on a connected queue pair than the
 * connection manager gives.
 */
int qp_modify(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int attr_mask)
{
	struct soft_qp *qp = qp_of(ibv);
	int err;

	if (!engine_lock())
		return ENODEV;
	err = check_modify(qp, attr, attr_mask);
	if (!err)
		err = step_to(qp, attr, attr_mask);
	engine_unlock();
	return err;
}

/* ---- the connection manager's ----------------------------------------- */

struct soft_qp *soft_qp_of(struct ibv_qp *qp)
{
	return qp_of(qp);
}

int soft_qp_init(struct soft_qp *qp)
{
	if (qp->ibv.state != IBV_QPS_RESET)
		return -EINVAL;
	qp->attr.port_num = 1;
	qp->attr.qp_access_flags = REMOTE_ACCESS | IBV_ACCESS_LOCAL_WRITE;
	qp->ibv.state = IBV_QPS_INIT;
	return 0;
}

int soft_qp_open_lane(struct soft_qp *qp, struct wire_link *link, unsigned lane)
{
	struct soft_pd *pd = rk_container_of(qp->ibv.pd, struct soft_pd, ibv);
	int err;

	if (qp->ibv.state != IBV_QPS_INIT || qp->lane.link)
		return -EINVAL;
	err = lane_open(&qp->lane, link, lane, pd->number);
	if (err)
		return err;
	wire_get(link);
	/* receives may have been posted before: the peer may count on them */
	qp->lane.credit = qp->rq.posted;
	qp->lane.rqmin = qp->rq.smallest;
	lane_answer(&qp->lane);
	return 0;
}

int soft_qp_connect(struct soft_qp *qp, const struct soft_path *path,
		    const struct soft_cm_events *events, void *cm)
{
	if (qp->ibv.state != IBV_QPS_INIT || !qp->lane.link ||
	    qp->lane.link != path->link || qp->lane.number != path->lane)
		return -EINVAL;
	qp->path = *path;
	qp->events = events;
	qp->cm = cm;
	qp->attr.dest_qp_num = path->dest_qpn;
	qp->attr.path_mtu = IBV_MTU_4096;
	qp->attr.retry_cnt = path->retry_count;
	qp->attr.rnr_retry = path->rnr_retry_count;
	qp->attr.max_rd_atomic = path->max_rd_atomic;
	qp->attr.max_dest_rd_atomic = path->max_dest_rd_atomic;
	qp->ibv.state = IBV_QPS_RTR;
	lane_admit(&qp->lane);
	/* nothing is refused, but a peer that waits to be admitted is rung */
	lane_nak(&qp->lane, NAK_NONE, 0);
	return 0;
}

int soft_qp_ready(struct soft_qp *qp)
{
	if (qp->ibv.state == IBV_QPS_RTS)
		return 0;
	if (qp->ibv.state != IBV_QPS_RTR)
		return -EINVAL;
	qp->ibv.state = IBV_QPS_RTS;
	/* records may have come while nobody could take them */
	qp_revisit(qp);
	return 0;
}

void soft_qp_fail(struct soft_qp *qp)
{
	qp_fail(qp);
}

void soft_qp_disconnect(struct soft_qp *qp, const void *private_data,
			size_t bytes)
{
	/* in error or not, the peer is told of the end of the connection */
	if (qp->lane.link && !qp->said_disconnect && qp->events) {
		bytes = rk_min(bytes, (size_t)FAREWELL_MAX);
		if (bytes)
			memcpy(qp->owed_data, private_data, bytes);
		qp->owed_bytes = (uint16_t)bytes;
		qp->owed = OWES_DISCONNECT;
		qp->said_bye = qp->said_disconnect = true;
		send_owed(qp);
	}
	qp_fail(qp);
}

/* ---- to error --------------------------------------------------------- */

static void tell_of_farewell(struct soft_qp *qp)
{
	if (!qp->has_farewell)
		return;
	qp->has_farewell = false;
	if (qp->events)
		qp->events->disconnected(qp->cm, qp->farewell,
					 qp->farewell_bytes);
}

/* The peer must not wait for ever for what will not be taken. */
static void say_gone(struct soft_qp *qp)
{
	lane_answer(&qp->lane);
	if (qp->said_bye)
		return;
	qp->said_bye = true;
	lane_nak(&qp->lane, NAK_GONE, qp->lane.acked);
}

void qp_fail(struct soft_qp *qp)
{
	bool drains = qp_is_connected(qp);

	if (qp->ibv.state == IBV_QPS_ERR || qp->failing)
		return;
	qp->failing = true;
	qp->sq.stopped = true;
	wire_timer_cancel(soft_engine.base.wire, &qp->sq.retry_timer);
	if (drains) {
		/* Closed first, then drained: what a peer publishes and finds
		 * us still open after is in the lane now. */
		lane_revoke(&qp->lane);
		if (!receive_records(qp))
			qp->said_bye |= qp->has_farewell;
		send_settle(qp);
	}
	qp->ibv.state = IBV_QPS_ERR;
	if (qp->lane.link)
		say_gone(qp);
	send_flush(qp);
	receive_flush(qp);
	qp->failing = false;
	tell_of_farewell(qp);
}

void qp_reset(struct soft_qp *qp)
{
	struct wire_link *link = qp->lane.link;
	unsigned number = qp->lane.number;

	wire_timer_cancel(soft_engine.base.wire, &qp->sq.retry_timer);
	if (link) {
		qp->failing = true; /* nothing is delivered any more */
		lane_revoke(&qp->lane);
		say_gone(qp);
		lane_close(&qp->lane);
		soft_cm_lane_closed(link, number);
		wire_put(link);
		qp->failing = false;
	}
	send_forget(qp);
	qp->rq.posted = qp->rq.taken = 0;
	qp->rq.smallest = UINT32_MAX;
	qp->rq.in_message = false;
	cq_forget_qp(cq_of(qp->ibv.send_cq), qp);
	cq_forget_qp(cq_of(qp->ibv.recv_cq), qp);
	rk_list_remove(&qp->revisit);
	memset(&qp->lane, 0, sizeof(qp->lane));
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->events = NULL;
	qp->said_bye = qp->said_disconnect = qp->first_seen = false;
	qp->has_farewell = qp->deaf = false;
	qp->owed = OWES_NOTHING;
	qp->ibv.state = IBV_QPS_RESET;
}

/* ---- news ------------------------------------------------------------- */

void qp_visit(struct soft_qp *qp)
{
	if (qp->ibv.state == IBV_QPS_ERR) {
		receive_discard(qp);
		tell_of_farewell(qp);
		if (qp->owed)
			send_owed(qp);
		return;
	}
	if (!qp_is_connected(qp) || qp->failing)
		return;
	if (!receive_records(qp)) {
		qp->said_bye |= qp->has_farewell;
		qp_fail(qp);
		return;
	}
	send_progress(qp);
}

void qp_peer_gone(struct soft_qp *qp)
{
	const struct soft_cm_events *events = qp->events;

	/* nobody is left to tell */
	qp->said_bye = qp->said_disconnect = true;
	qp->owed = OWES_NOTHING;
	if (qp_is_connected(qp)) {
		if (!receive_records(qp))
			qp_fail(qp);
		else
			send_settle(qp);
		send_fail_first(qp, IBV_WC_RETRY_EXC_ERR);
	}
	qp_fail(qp);
	if (events)
		events->gone(qp->cm);
}
