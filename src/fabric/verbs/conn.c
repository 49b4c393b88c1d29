/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection's life: made by connect or by a request, accepted or rejected,
 * destroyed.  What happens in between is reported in cm.c and ends in end.c.
 *
 * Thread: the context's owner.
 */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "fabric/verbs/internal.h"

enum {
	CONNECT_TIMEOUT_MS = 5000,
	ACCEPT_TIMEOUT_MS = 10000, /* until the peer says it is up */
};

static int check_params(const struct rk_conn_params *params)
{
	if (params->send_depth < 1 || params->send_depth > 8192 ||
	    params->receive_depth < 1 || params->receive_depth > 8192 ||
	    params->receive_bytes > 4096 || params->retry_count > 7 ||
	    params->rnr_retry_count > 7)
		return -EINVAL;
	return 0;
}

struct fabric_conn *fabric_conn_new(struct fabric_context *context,
				    struct rdma_cm_id *id,
				    enum conn_state state)
{
	struct fabric_conn *conn = rk_zalloc(sizeof(*conn));

	if (!conn)
		return NULL;
	conn->base.context = &context->base;
	conn->id = id;
	id->context = conn;
	conn->peer_rnr_retry = -1;
	conn->timer.fire = fabric_conn_timer_fire;
	fabric_conn_move(conn, state);
	rk_list_add_tail(&context->conns, &conn->node);
	context->connections++;
	return conn;
}

const char *fabric_conn_peer_text(const struct fabric_conn *conn, char *text,
				  size_t bytes)
{
	return fabric_address_text(&conn->id->route.addr.dst_addr, text, bytes);
}

/* ---- connecting -------------------------------------------------------- */

int fabric_conn_connect(struct rk_context *base, const struct sockaddr *addr,
			const struct sockaddr *source,
			const struct rk_conn_params *params,
			const void *private_data, size_t bytes, int timeout_ms,
			const struct rk_conn_handler *handler, void *user,
			struct rk_conn **out)
{
	struct fabric_context *context = fabric_context_of(base);
	struct fabric_conn *conn;
	struct rdma_cm_id *id;
	int ret;

	*out = NULL;
	if (check_params(params) || bytes > REQUEST_BYTES_MAX)
		return -EINVAL;
	if (timeout_ms <= 0)
		timeout_ms = CONNECT_TIMEOUT_MS;
	if (context->table->cm_create_id(context->events, &id, NULL,
					 RDMA_PS_TCP))
		return -errno;
	conn = fabric_conn_new(context, id, CONN_ADDRESS);
	if (!conn) {
		context->table->cm_destroy_id(id);
		return -ENOMEM;
	}
	conn->base.handler = handler;
	conn->base.user = user;
	conn->params = *params;
	conn->request_bytes = (uint8_t)bytes;
	if (bytes)
		memcpy(conn->request, private_data, bytes);
	conn->deadline_ns = rk_now_ns() + (uint64_t)timeout_ms * RK_NS_PER_MS;
	rk_timer_set(base, &conn->timer, conn->deadline_ns);
	if (context->table->cm_resolve_addr(id, (struct sockaddr *)source,
					    (struct sockaddr *)addr,
					    timeout_ms)) {
		ret = -errno;
		if (ret == -ENOMEM || ret == -EINVAL || ret == -EAFNOSUPPORT) {
			fabric_conn_destroy(&conn->base);
			return ret;
		}
		fabric_conn_end(conn, RK_CLOSE_UNREACHABLE, ret, true);
	}
	*out = &conn->base;
	return 0;
}

int fabric_conn_resolve_route(struct fabric_conn *conn)
{
	struct fabric_context *context = conn_context(conn);
	uint64_t now_ns = rk_now_ns();
	char text[80];

	if (conn->id->verbs != context->verbs) {
		rk_log(RK_LOG_WARNING,
		       "%s is reached through another device than %s",
		       fabric_conn_peer_text(conn, text, sizeof(text)),
		       context->choice.name);
		return -EHOSTUNREACH;
	}
	if (now_ns >= conn->deadline_ns)
		return -ETIMEDOUT;
	if (context->table->cm_resolve_route(
		    conn->id,
		    (int)((conn->deadline_ns - now_ns) / RK_NS_PER_MS) + 1))
		return -errno;
	fabric_conn_move(conn, CONN_ROUTE);
	return 0;
}

int fabric_conn_send_request(struct fabric_conn *conn)
{
	struct fabric_context *context = conn_context(conn);
	struct rdma_conn_param param = {
		.private_data = conn->request,
		.private_data_len = conn->request_bytes,
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = conn->params.retry_count,
		.rnr_retry_count = conn->params.rnr_retry_count,
	};
	struct rk_conn_params params = conn->params;
	int ret = fabric_queue_create(conn, &params);

	if (ret)
		return ret;
	if (context->table->cm_connect(conn->id, &param))
		return -errno;
	fabric_conn_move(conn, CONN_CONNECTING);
	return 0;
}

void fabric_conn_established(struct fabric_conn *conn, const void *private_data,
			     size_t bytes)
{
	rk_timer_cancel(&conn->timer);
	fabric_conn_move(conn, CONN_UP);
	fabric_queue_set_rnr_timer(conn);
	conn->base.handler->established(&conn->base, private_data, bytes);
}

/* ---- answering --------------------------------------------------------- */

static int accept_request(struct fabric_conn *conn,
			  const struct rk_conn_params *params,
			  const void *private_data, size_t bytes)
{
	struct fabric_context *context = conn_context(conn);
	struct rdma_conn_param param = {
		.private_data = private_data,
		.private_data_len = (uint8_t)bytes,
		.responder_resources = conn->responder_resources,
		.initiator_depth = conn->initiator_depth,
		.retry_count = params->retry_count,
		.rnr_retry_count = params->rnr_retry_count,
	};
	int ret;

	if (check_params(params) || bytes > REPLY_BYTES_MAX)
		return -EINVAL;
	ret = fabric_queue_create(conn, params);
	if (ret)
		return ret;
	if (context->table->cm_accept(conn->id, &param))
		return -errno;
	return 0;
}

int fabric_conn_accept(struct rk_conn *base,
		       const struct rk_conn_params *params,
		       const void *private_data, size_t bytes,
		       const struct rk_conn_handler *handler, void *user)
{
	struct fabric_conn *conn = fabric_conn_of(base);
	struct fabric_context *context = conn_context(conn);
	char text[80];
	int ret;

	if (conn->state != CONN_REQUESTED)
		return -EINVAL;
	base->handler = handler;
	base->user = user;
	ret = conn->peer_gave_up
		      ? -ECONNRESET
		      : accept_request(conn, params, private_data, bytes);
	if (ret) {
		if (rk_log_may(&context->refusals_said))
			rk_log(RK_LOG_WARNING,
			       "connection from %s not accepted: %s",
			       fabric_conn_peer_text(conn, text, sizeof(text)),
			       strerror(-ret));
		fabric_conn_move(conn, CONN_CLOSED);
		context->table->cm_reject(conn->id, NULL, 0);
		return ret;
	}
	fabric_conn_move(conn, CONN_ACCEPTED);
	rk_timer_set(&context->base, &conn->timer,
		     rk_now_ns() + ACCEPT_TIMEOUT_MS * RK_NS_PER_MS);
	return 0;
}

int fabric_conn_reject(struct rk_conn *base, const void *private_data,
		       size_t bytes)
{
	struct fabric_conn *conn = fabric_conn_of(base);

	if (conn->state != CONN_REQUESTED || bytes > REJECT_BYTES_MAX)
		return -EINVAL;
	fabric_conn_move(conn, CONN_CLOSED);
	if (conn_context(conn)->table->cm_reject(conn->id, private_data,
						 (uint8_t)bytes))
		return -errno;
	return 0;
}

/* ---- ending ------------------------------------------------------------ */

int fabric_conn_disconnect(struct rk_conn *base)
{
	struct fabric_conn *conn = fabric_conn_of(base);
	bool was_up = conn->state == CONN_UP || conn->state == CONN_ACCEPTED;

	if (conn->state == CONN_REQUESTED || conn->state >= CONN_ENDING)
		return -ENOTCONN;
	/* the peer's answer is the end of it, where there is a peer */
	fabric_conn_end(conn, RK_CLOSE_LOCAL, 0, !was_up);
	return 0;
}

/*
 * Everything of the device goes now.  The struct stays until no completion and
 * no caller up the stack can name it: see fabric_cq_sweep_graves().
 */
void fabric_conn_destroy(struct rk_conn *base)
{
	struct fabric_conn *conn = fabric_conn_of(base);
	struct fabric_context *context = conn_context(conn);

	if (conn->state == CONN_UP || conn->state == CONN_ACCEPTED)
		fabric_conn_leave(conn);
	else if (conn->state == CONN_REQUESTED)
		context->table->cm_reject(conn->id, NULL, 0);
	rk_timer_cancel(&conn->timer);
	conn->buried = true;
	fabric_conn_move(conn, CONN_CLOSED);
	fabric_queue_destroy(conn);
	context->table->cm_destroy_id(conn->id);
	conn->id = NULL;
	context->connections--;
	rk_list_remove(&conn->node);
	rk_list_add_tail(&context->graves, &conn->node);
	if (conn->cq)
		conn->grave_mark = conn->cq->drains;
	if (!context->processing)
		fabric_cq_sweep_graves(context, false);
}
