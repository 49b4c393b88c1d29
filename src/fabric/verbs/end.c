/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a connection ends, whatever the cause: its queue pair goes to error, so
 * that the device gives back every receive, those with a peer's last words
 * first; when all have come back and the reason is known, closed() is told.
 * Neither is waited for longer than ENDING_MS.
 *
 * Always true: closed() runs from process(), once, and nothing after it.
 * Thread: the context's owner.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "fabric/verbs/internal.h"

enum { ENDING_MS = 2000 };

static bool is_unsettled(enum conn_state state)
{
	switch (state) {
	case CONN_ADDRESS:
	case CONN_ROUTE:
	case CONN_CONNECTING:
	case CONN_ACCEPTED:
	case CONN_ENDING:
		return true;
	case CONN_REQUESTED:
	case CONN_UP:
	case CONN_CLOSED:
		return false;
	}
	return false;
}

void fabric_conn_move(struct fabric_conn *conn, enum conn_state state)
{
	struct fabric_context *context = conn_context(conn);
	bool unsettled = is_unsettled(state) && !conn->buried;

	context->unsettled += unsettled;
	context->unsettled -= conn->unsettled;
	conn->unsettled = unsettled;
	conn->state = state;
}

/* false: no DISCONNECTED will follow, or it is there already. */
bool fabric_conn_leave(struct fabric_conn *conn)
{
	const struct rk_verbs_table *table = conn_context(conn)->table;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (!table->cm_disconnect(conn->id))
		return true;
	if (conn->qp)
		table->modify_qp(conn->qp, &attr, IBV_QP_STATE);
	return false;
}

void fabric_conn_check_drained(struct fabric_conn *conn)
{
	struct fabric_context *context = conn_context(conn);

	if (conn->state != CONN_ENDING || !conn->reason_known ||
	    (conn->must_drain && conn->receives_posted && !conn->cq->broken))
		return;
	rk_list_remove(&conn->node);
	rk_list_add_tail(&context->closing, &conn->node);
}

/* The reason is better known than before. */
static void learn(struct fabric_conn *conn, enum rk_close_reason reason,
		  int status)
{
	if (conn->reason_known)
		return;
	if (conn->reason != RK_CLOSE_LOCAL) {
		conn->reason = reason;
		conn->status = status;
	}
	conn->reason_known = true;
	fabric_conn_check_drained(conn);
}

void fabric_conn_end(struct fabric_conn *conn, enum rk_close_reason reason,
		     int status, bool known)
{
	struct fabric_context *context = conn_context(conn);

	if (conn->state == CONN_CLOSED || conn->state == CONN_REQUESTED)
		return;
	if (conn->state == CONN_ENDING) {
		if (known)
			learn(conn, reason, status);
		return;
	}
	conn->reason = reason;
	conn->status = status;
	conn->reason_known = known;
	conn->must_drain = conn->state == CONN_UP ||
			   conn->state == CONN_ACCEPTED;
	if (conn->must_drain && !fabric_conn_leave(conn) &&
	    reason == RK_CLOSE_LOCAL)
		conn->reason_known = true;
	fabric_conn_move(conn, CONN_ENDING);
	rk_timer_set(&context->base, &conn->timer,
		     rk_now_ns() + ENDING_MS * RK_NS_PER_MS);
	fabric_conn_check_drained(conn);
}

void fabric_conn_peer_disconnected(struct fabric_conn *conn, int status)
{
	enum rk_close_reason reason = status ? RK_CLOSE_ERROR : RK_CLOSE_PEER;

	if (conn->state == CONN_ACCEPTED || conn->state == CONN_UP)
		fabric_conn_end(conn, reason, 0, true);
	else if (conn->state == CONN_ENDING)
		learn(conn, reason, 0);
}

unsigned fabric_conn_tell_closed(struct fabric_context *context)
{
	unsigned count = 0;

	while (!rk_list_empty(&context->closing)) {
		struct fabric_conn *conn = rk_list_first(
			&context->closing, struct fabric_conn, node);

		rk_list_remove(&conn->node);
		rk_list_add_tail(&context->conns, &conn->node);
		rk_timer_cancel(&conn->timer);
		fabric_conn_move(conn, CONN_CLOSED);
		if (conn->reason == RK_CLOSE_ERROR)
			context->errors++;
		if (conn->status == IBV_WC_RNR_RETRY_EXC_ERR &&
		    conn->reason == RK_CLOSE_ERROR)
			context->receiver_not_ready++;
		conn->base.handler->closed(&conn->base, conn->reason,
					   conn->status);
		count++;
	}
	return count;
}

void fabric_conn_timer_fire(struct rk_timer *timer)
{
	struct fabric_conn *conn =
		rk_container_of(timer, struct fabric_conn, timer);
	char text[80];

	switch (conn->state) {
	case CONN_ADDRESS:
	case CONN_ROUTE:
	case CONN_CONNECTING:
	case CONN_ACCEPTED:
		rk_log(RK_LOG_WARNING, "connecting with %s took too long",
		       fabric_conn_peer_text(conn, text, sizeof(text)));
		fabric_conn_end(conn, RK_CLOSE_UNREACHABLE, -ETIMEDOUT, true);
		break;
	case CONN_ENDING:
		conn->must_drain = false;
		conn->reason_known = true;
		fabric_conn_check_drained(conn);
		break;
	case CONN_REQUESTED:
	case CONN_UP:
	case CONN_CLOSED:
		break;
	}
}
