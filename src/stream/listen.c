/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The listener: a request becomes a stream in state ACCEPTING, which is the
 * user's from accepted() on.
 *
 * Thread: the context's owner.
 */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "stream/internal.h"

static int take(struct rk_stream_listener *l, struct rk_conn *conn)
{
	struct rk_conn_params params;
	struct rk_stream *s;
	int ret;

	ret = stream_new(conn->context, &l->params, STREAM_SERVER, &s);
	if (ret)
		goto refuse;
	s->conn = conn;
	s->listener = l;
	ret = rx_start(s);
	if (ret) {
		s->conn = NULL; /* to be refused in words below */
		stream_free(s);
		goto refuse;
	}
	stream_conn_params(s, &params);
	ret = rk_conn_accept(conn, &params, NULL, 0, &stream_conn_handler, s);
	if (ret) {
		stream_free(s); /* the fabric has refused it */
		return ret;
	}
	s->limit_ns = rk_context_now_ns(s->context) +
		      STREAM_ACCEPT_MS * RK_NS_PER_MS;
	stream_timer_update(s);
	return 0;

refuse:
	rk_conn_reject(conn, strerror(-ret), strlen(strerror(-ret)) + 1);
	rk_conn_destroy(conn);
	return ret;
}

/* Private data has no meaning in this protocol. */
static void on_request(void *user, struct rk_conn *conn,
		       const void *private_data, size_t bytes)
{
	struct rk_stream_listener *listener = user;
	int ret = take(listener, conn);

	if (ret && rk_log_may(&listener->refusals_said))
		rk_log(RK_LOG_WARNING,
		       "a connect request was refused: no stream for it: %s",
		       strerror(-ret));
}

static const struct rk_listen_handler listen_handler = {
	.request = on_request,
};

RK_API int rk_stream_listen(struct rk_context *context,
			    const struct sockaddr *addr, int backlog,
			    const struct rk_stream_params *params,
			    rk_stream_accepted *accepted, void *user,
			    struct rk_stream_listener **out)
{
	struct stream_slot *slot = stream_slot_get(context);
	struct rk_stream_listener *l;
	int ret;

	*out = NULL;
	ret = stream_params_check(params);
	if (ret)
		return ret;
	l = slot ? rk_zalloc(sizeof(*l)) : NULL;
	if (!l)
		return -ENOMEM;
	l->slot = slot;
	if (params)
		l->params = *params;
	l->accepted = accepted;
	l->user = user;
	ret = rk_fabric_listen(context, addr, backlog, &listen_handler, l,
			       &l->listener);
	if (ret) {
		rk_free(l);
		return ret;
	}
	rk_list_add_tail(&slot->listeners, &l->node);
	*out = l;
	return 0;
}

RK_API uint16_t rk_stream_listener_port(const struct rk_stream_listener *l)
{
	return rk_listener_port(l->listener);
}

void stream_listener_free(struct rk_stream_listener *l)
{
	struct rk_list *pos, *tmp;

	rk_list_for_each_safe(pos, tmp, &l->slot->streams) {
		struct rk_stream *s =
			rk_list_entry(pos, struct rk_stream, node);

		if (s->listener == l)
			stream_free(s);
	}
	rk_list_remove(&l->node);
	rk_listener_destroy(l->listener);
	rk_free(l);
}

RK_API void rk_stream_listener_close(struct rk_stream_listener *l)
{
	if (l)
		stream_listener_free(l);
}
