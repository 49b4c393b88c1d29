/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From nothing to an id that can connect or that listens.  This device
 * reaches the addresses of this host, and no others: those end in ADDR_ERROR
 * with -EHOSTUNREACH.  Nothing here waits, so time-outs given by the program
 * have no meaning.  Runs in any thread of the program, under the device lock.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

#include "softverbs/cm_internal.h"

/* ---- bind and listen -------------------------------------------------- */

static int bind_id(struct cm_id *id, const struct sockaddr *addr)
{
	struct rdma_addr *route = &id->base.route.addr;
	int ret;

	if (id->state != CM_IDLE)
		return -EINVAL;
	if (!cm_addr_bytes(addr))
		return -EAFNOSUPPORT;
	ret = cm_port_take(id, addr);
	if (ret)
		return ret;
	cm_addr_copy(&route->src_storage, (struct sockaddr *)&id->port->addr);
	cm_id_move(id, CM_BOUND);
	if (!cm_addr_is_wildcard(addr)) {
		cm_id_use_device(id);
		cm_addr_fill_gids(id);
	}
	return 0;
}

int soft_rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct soft_device *device = soft_enter();
	int ret;

	if (!device)
		return -1;
	ret = bind_id(cm_id_of(id), addr);
	soft_unlock(device);
	return cm_result(ret);
}

static int listen_id(struct cm_id *id, int backlog)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	int ret;

	if (id->state == CM_IDLE) {
		ret = bind_id(id, (struct sockaddr *)&any);
		if (ret)
			return ret;
	}
	if (id->state != CM_BOUND)
		return -EINVAL;
	if (id->port->users > 1)
		return -EADDRINUSE;
	/* the wire's queue is of links, ours of requests: not the same */
	ret = wire_listen(id->port->listener, CM_BACKLOG_MAX);
	if (ret)
		return ret;
	id->port->listening = true;
	id->backlog = CM_BACKLOG_MAX;
	if (backlog > 0 && backlog < CM_BACKLOG_MAX)
		id->backlog = (unsigned)backlog;
	rk_list_add_tail(&cm.listeners, &id->listen_node);
	cm_id_move(id, CM_LISTENING);
	return 0;
}

int soft_rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct soft_device *device = soft_enter();
	int ret;

	if (!device)
		return -1;
	ret = listen_id(cm_id_of(id), backlog);
	soft_unlock(device);
	return cm_result(ret);
}

/* ---- resolve ---------------------------------------------------------- */

/* The wildcard as a destination means this host. */
static void set_destination(struct cm_id *id, const struct sockaddr *dst)
{
	struct rdma_addr *route = &id->base.route.addr;

	cm_addr_copy(&route->dst_storage, dst);
	if (!cm_addr_is_wildcard(dst))
		return;
	if (dst->sa_family == AF_INET)
		route->dst_sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		route->dst_sin6.sin6_addr = in6addr_loopback;
}

/* A destination on this host is its own source, as with sockets. */
static int choose_source(struct cm_id *id, const struct sockaddr *src)
{
	struct rdma_addr *route = &id->base.route.addr;
	bool given = src && cm_addr_bytes(src);
	uint16_t port;
	int ret;

	if (id->state == CM_IDLE && given && cm_addr_port(src)) {
		ret = bind_id(id, src);
		if (ret)
			return ret;
	}
	if (id->state == CM_BOUND) {
		port = cm_addr_port((struct sockaddr *)&id->port->addr);
		src = (struct sockaddr *)&id->port->addr;
		given = true;
	} else {
		if (!id->ephemeral)
			id->ephemeral = cm_port_ephemeral();
		port = id->ephemeral;
	}
	if (given && !cm_addr_is_wildcard(src)) {
		if (src->sa_family != route->dst_addr.sa_family)
			return -EINVAL;
		ret = cm_addr_check_local(src);
		if (ret)
			return ret;
		cm_addr_copy(&route->src_storage, src);
	} else {
		cm_addr_copy(&route->src_storage, &route->dst_addr);
	}
	cm_addr_set_port(&route->src_addr, port);
	return 0;
}

static int resolve_addr(struct cm_id *id, const struct sockaddr *src,
			const struct sockaddr *dst)
{
	struct wire_link *wire = NULL;
	int ret;

	if (id->state != CM_IDLE && id->state != CM_BOUND)
		return -EINVAL;
	if (!dst)
		return -EINVAL;
	if (!cm_addr_bytes(dst))
		return -EAFNOSUPPORT;
	ret = cm_event_reserve(id, 1);
	if (ret)
		return ret;
	set_destination(id, dst);
	ret = choose_source(id, src);
	if (ret)
		return ret;

	ret = wire_connect(cm.device->wire, &id->base.route.addr.dst_addr,
			   &wire);
	if (!ret) {
		ret = cm_link_attach(id, wire);
		wire_put(wire);
	}
	if (ret == -EHOSTUNREACH) {
		cm_event_queue(id, RDMA_CM_EVENT_ADDR_ERROR, ret, NULL, 0);
		return 0;
	}
	/* nobody there, or busy: connecting will tell */
	if (ret && ret != -ECONNREFUSED && ret != -EAGAIN)
		return ret;
	cm_addr_fill_gids(id);
	cm_id_use_device(id);
	cm_id_move(id, CM_ADDR);
	cm_event_queue(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
	return 0;
}

int soft_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src,
			   struct sockaddr *dst, int timeout_ms)
{
	struct soft_device *device = soft_enter();
	int ret;

	if (!device)
		return -1;
	ret = resolve_addr(cm_id_of(id), src, dst);
	soft_unlock(device);
	return cm_result(ret);
}

static int resolve_route(struct cm_id *id)
{
	int ret;

	if (id->state != CM_ADDR)
		return -EINVAL;
	ret = cm_event_reserve(id, 1);
	if (ret)
		return ret;
	cm_id_move(id, CM_ROUTE);
	cm_event_queue(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
	return 0;
}

int soft_rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	struct soft_device *device = soft_enter();
	int ret;

	if (!device)
		return -1;
	ret = resolve_route(cm_id_of(id));
	soft_unlock(device);
	return cm_result(ret);
}
