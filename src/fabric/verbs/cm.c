/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the connection manager reports, one event at a time.  An event is
 * copied and acknowledged before anything is done about it, so that whoever is
 * told may destroy the connection or the listener.
 *
 * An id is destroyed with its connection and has no events afterwards, so an
 * event's id always has an owner.
 *
 * Thread: the context's owner.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "fabric/verbs/internal.h"

/* Reasons of a rejection, by InfiniBand's numbers. */
enum { REJECT_NOBODY_LISTENS = 8 };

struct news {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	void *owner; /* struct fabric_conn, or fabric_listener */
	struct rdma_conn_param param;
	uint8_t private_data[256];
	size_t bytes;
};

static void copy_event(struct news *news, const struct rdma_cm_event *event)
{
	bool is_request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;

	*news = (struct news){
		.type = event->event,
		.status = event->status,
		.id = event->id,
		.owner = is_request ? event->listen_id->context
				    : event->id->context,
	};
	switch ((int)event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_REJECTED:
		news->param = event->param.conn;
		news->bytes = event->param.conn.private_data_len;
		if (news->bytes && event->param.conn.private_data)
			memcpy(news->private_data,
			       event->param.conn.private_data, news->bytes);
		break;
	}
}

/* A step of connecting failed at this side. */
static void give_up(struct fabric_conn *conn, const char *step, int error)
{
	char text[80];

	rk_log(RK_LOG_WARNING, "connecting to %s failed: %s: %s",
	       fabric_conn_peer_text(conn, text, sizeof(text)), step,
	       strerror(-error));
	fabric_conn_end(conn, RK_CLOSE_UNREACHABLE, error, true);
}

/* The status of a failure: most are a negative errno, some devices give a
 * positive one or none. */
static int error_of(const struct news *news, int otherwise)
{
	if (!news->status)
		return otherwise;
	return news->status < 0 ? news->status : -news->status;
}

static bool is_connecting(const struct fabric_conn *conn)
{
	return conn->state == CONN_ADDRESS || conn->state == CONN_ROUTE ||
	       conn->state == CONN_CONNECTING;
}

/* A program may give its reason in words. */
static void log_rejection(const struct fabric_conn *conn,
			  const struct news *news)
{
	char text[80], words[160];
	size_t n = 0;

	while (n < news->bytes && news->private_data[n] >= ' ' &&
	       news->private_data[n] <= '~') {
		words[n] = (char)news->private_data[n];
		if (++n == sizeof(words) - 1)
			break;
	}
	words[n] = '\0';
	rk_log(RK_LOG_WARNING, "%s rejected the connection (reason %d)%s%s",
	       fabric_conn_peer_text(conn, text, sizeof(text)), news->status,
	       n ? ": " : "", words);
}

static void on_rejected(struct fabric_conn *conn, const struct news *news)
{
	if (!is_connecting(conn)) {
		fabric_conn_end(conn, RK_CLOSE_UNREACHABLE, -ECONNRESET, true);
	} else if (news->status == REJECT_NOBODY_LISTENS) {
		give_up(conn, "nobody listens there", -ECONNREFUSED);
	} else {
		log_rejection(conn, news);
		fabric_conn_end(conn, RK_CLOSE_REJECTED, news->status, true);
	}
}

static void on_failed(struct fabric_conn *conn, const struct news *news,
		      const char *step, int otherwise)
{
	if (is_connecting(conn))
		give_up(conn, step, error_of(news, otherwise));
	else
		fabric_conn_end(conn, RK_CLOSE_UNREACHABLE, -ECONNRESET, true);
}

static void on_established(struct fabric_conn *conn, const struct news *news)
{
	switch (conn->state) {
	case CONN_CONNECTING:
		conn->peer_rnr_retry = news->param.rnr_retry_count;
		fabric_conn_established(conn, news->private_data, news->bytes);
		break;
	case CONN_ACCEPTED:
		fabric_conn_established(conn, NULL, 0);
		break;
	case CONN_ENDING:
	case CONN_CLOSED:
		/* too late: the peer is not to think that it is connected */
		fabric_conn_leave(conn);
		break;
	case CONN_ADDRESS:
	case CONN_ROUTE:
	case CONN_REQUESTED:
	case CONN_UP: /* the first data said so already */
		break;
	}
}

static void step(struct fabric_conn *conn, enum conn_state expected,
		 const char *words, int (*next)(struct fabric_conn *conn))
{
	int ret;

	if (conn->state != expected)
		return; /* disconnected meanwhile */
	ret = next(conn);
	if (ret)
		give_up(conn, words, ret);
}

static void on_device_removal(struct fabric_conn *conn)
{
	rk_log(RK_LOG_ERROR, "device %s is going away",
	       conn_context(conn)->choice.name);
	fabric_conn_end(conn, RK_CLOSE_ERROR, IBV_WC_FATAL_ERR, true);
}

static void dispatch_conn(struct fabric_conn *conn, const struct news *news)
{
	if (conn->state == CONN_REQUESTED) {
		/* whatever it is, an end to a request is all it can be */
		conn->peer_gave_up = true;
		return;
	}
	switch (news->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		step(conn, CONN_ADDRESS, "no route", fabric_conn_resolve_route);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		step(conn, CONN_ROUTE, "no queue pair",
		     fabric_conn_send_request);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		on_established(conn, news);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
		on_failed(conn, news, "no device has a way to this address",
			  -EHOSTUNREACH);
		break;
	case RDMA_CM_EVENT_ROUTE_ERROR:
		on_failed(conn, news, "no route", -EHOSTUNREACH);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		on_failed(conn, news, "the device", -ECONNABORTED);
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
		on_failed(conn, news, "no answer", -ETIMEDOUT);
		break;
	case RDMA_CM_EVENT_REJECTED:
		on_rejected(conn, news);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		fabric_conn_peer_disconnected(conn, news->status);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		on_device_removal(conn);
		break;
	case RDMA_CM_EVENT_ADDR_CHANGE:
		rk_log(RK_LOG_INFO, "an address of device %s moved",
		       conn_context(conn)->choice.name);
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_MULTICAST_JOIN:
	case RDMA_CM_EVENT_MULTICAST_ERROR:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	default: /* not our enum: a later library may have more */
		break;
	}
}

static void dispatch(struct fabric_context *context, struct news *news)
{
	struct rk_list *pos, *tmp;

	if (news->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		fabric_listen_request(news->owner, news->id, &news->param,
				      news->private_data, news->bytes);
		return;
	}
	rk_list_for_each_safe (pos, tmp, &context->listeners) {
		if (news->owner ==
		    rk_list_entry(pos, struct fabric_listener, node)) {
			rk_log(RK_LOG_ERROR, "a listener ended: %s",
			       context->table->cm_event_str(news->type));
			return;
		}
	}
	dispatch_conn(news->owner, news);
}

/* Once: what is wrong with the channel stays wrong. */
static void log_failure(struct fabric_context *context, int error)
{
	if (error == EAGAIN || error == EINTR || context->cm_failed)
		return;
	context->cm_failed = true;
	rk_log(RK_LOG_ERROR, "the connection manager failed: %s",
	       strerror(error));
}

unsigned fabric_cm_process(struct fabric_context *context, unsigned limit)
{
	struct rdma_cm_event *event;
	struct news news;
	unsigned count = 0;

	while (count < limit) {
		if (context->table->cm_get_event(context->events, &event)) {
			log_failure(context, errno);
			context->cm_due = false;
			break;
		}
		copy_event(&news, event);
		context->table->cm_ack_event(event);
		dispatch(context, &news);
		count++;
	}
	return count;
}
