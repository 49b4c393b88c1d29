/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Listeners, and the words for an address.
 *
 * Thread: the context's owner.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "fabric/verbs/internal.h"

const char *fabric_address_text(const struct sockaddr *addr, char *text,
				size_t bytes)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
	char host[INET6_ADDRSTRLEN] = "?";

	switch (addr->sa_family) {
	case AF_INET:
		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(text, bytes, "%s:%u", host, ntohs(in->sin_port));
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		snprintf(text, bytes, "[%s]:%u", host, ntohs(in6->sin6_port));
		break;
	default:
		snprintf(text, bytes, "an unknown address");
		break;
	}
	return text;
}

static int start(struct fabric_context *context,
		 struct fabric_listener *listener, const struct sockaddr *addr,
		 int backlog)
{
	const struct rk_verbs_table *table = context->table;
	struct rdma_cm_id *id = listener->id;
	int only = 1;

	if (addr->sa_family == AF_INET6)
		table->cm_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY,
				     &only, sizeof(only));
	if (table->cm_bind_addr(id, (struct sockaddr *)addr))
		return -errno;
	/* a wildcard is bound to no device yet */
	if (id->verbs && id->verbs != context->verbs)
		return -EADDRNOTAVAIL;
	if (table->cm_listen(id, backlog))
		return -errno;
	return 0;
}

int fabric_listen_open(struct rk_context *base, const struct sockaddr *addr,
		       int backlog, const struct rk_listen_handler *handler,
		       void *user, struct rk_listener **out)
{
	struct fabric_context *context = fabric_context_of(base);
	struct fabric_listener *listener = rk_zalloc(sizeof(*listener));
	char text[80];
	int ret;

	*out = NULL;
	if (!listener)
		return -ENOMEM;
	if (context->table->cm_create_id(context->events, &listener->id,
					 listener, RDMA_PS_TCP)) {
		ret = -errno;
		goto err_free;
	}
	ret = start(context, listener, addr, backlog);
	if (ret)
		goto err_id;
	listener->base.context = base;
	listener->handler = handler;
	listener->user = user;
	rk_list_add_tail(&context->listeners, &listener->node);
	*out = &listener->base;
	return 0;

err_id:
	context->table->cm_destroy_id(listener->id);
err_free:
	rk_free(listener);
	rk_log(RK_LOG_ERROR, "cannot listen on %s with device %s: %s",
	       fabric_address_text(addr, text, sizeof(text)),
	       context->choice.name, strerror(-ret));
	return ret;
}

uint16_t fabric_listen_port(const struct rk_listener *base)
{
	const struct fabric_listener *listener =
		rk_container_of(base, struct fabric_listener, base);

	return ntohs(fabric_context_of(base->context)
			     ->table->cm_get_src_port(listener->id));
}

void fabric_listen_close(struct rk_listener *base)
{
	struct fabric_listener *listener =
		rk_container_of(base, struct fabric_listener, base);

	fabric_context_of(base->context)->table->cm_destroy_id(listener->id);
	rk_list_remove(&listener->node);
	rk_free(listener);
}

void fabric_listen_request(struct fabric_listener *listener,
			   struct rdma_cm_id *id,
			   const struct rdma_conn_param *param,
			   const void *private_data, size_t bytes)
{
	struct fabric_context *context =
		fabric_context_of(listener->base.context);
	struct fabric_conn *conn = NULL;
	char text[80];

	if (id->verbs == context->verbs)
		conn = fabric_conn_new(context, id, CONN_REQUESTED);
	if (!conn) {
		rk_log(RK_LOG_WARNING, "request of %s rejected: %s",
		       fabric_address_text(&id->route.addr.dst_addr, text,
					   sizeof(text)),
		       id->verbs == context->verbs
			       ? "out of memory"
			       : "it came to another device");
		context->table->cm_reject(id, NULL, 0);
		context->table->cm_destroy_id(id);
		return;
	}
	conn->peer_rnr_retry = param->rnr_retry_count;
	conn->responder_resources = rk_min(param->responder_resources, 1);
	conn->initiator_depth = rk_min(param->initiator_depth, 1);
	listener->handler->request(listener->user, &conn->base, private_data,
				   bytes);
}
