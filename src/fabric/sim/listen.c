/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Listeners and the addresses they are found by.  There is one space of
 * addresses in a net: every context can listen on any.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "fabric/sim/internal.h"

uint16_t sim_addr_port(const struct sockaddr_storage *addr)
{
	if (addr->ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)addr)->sin6_port);
	return ntohs(((const struct sockaddr_in *)addr)->sin_port);
}

void sim_addr_set_port(struct sockaddr_storage *addr, uint16_t port)
{
	if (addr->ss_family == AF_INET6)
		((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)addr)->sin_port = htons(port);
}

int sim_addr_copy(struct sockaddr_storage *out, const struct sockaddr *addr)
{
	memset(out, 0, sizeof(*out));
	if (addr->sa_family == AF_INET)
		memcpy(out, addr, sizeof(struct sockaddr_in));
	else if (addr->sa_family == AF_INET6)
		memcpy(out, addr, sizeof(struct sockaddr_in6));
	else
		return -EAFNOSUPPORT;
	return 0;
}

static bool is_wildcard(const struct sockaddr_storage *addr)
{
	const struct sockaddr_in6 *in6 = (const void *)addr;

	if (addr->ss_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
	return !((const struct sockaddr_in *)addr)->sin_addr.s_addr;
}

static bool is_same_host(const struct sockaddr_storage *a,
			 const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET6)
		return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
			       &((const struct sockaddr_in6 *)b)->sin6_addr,
			       sizeof(struct in6_addr));
	return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
	       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

struct sim_listener *sim_find_listener(struct sim_net *net,
				       const struct sockaddr_storage *addr)
{
	struct sim_listener *listener;
	struct rk_list *pos, *tmp;

	rk_list_for_each_safe (pos, tmp, &net->listeners) {
		listener = rk_list_entry(pos, struct sim_listener, node);
		if (sim_addr_port(&listener->addr) == sim_addr_port(addr) &&
		    (is_wildcard(&listener->addr) || is_wildcard(addr) ||
		     is_same_host(&listener->addr, addr)))
			return listener;
	}
	return NULL;
}

int sim_conn_listen(struct rk_context *context, const struct sockaddr *addr,
		    int backlog, const struct rk_listen_handler *handler,
		    void *user, struct rk_listener **out)
{
	struct sim_net *net = sim_context_of(context)->net;
	struct sockaddr_storage own;
	struct sim_listener *listener;
	uint16_t port = 49152;
	int ret;

	*out = NULL;
	ret = sim_addr_copy(&own, addr);
	if (ret)
		return ret;
	if (!sim_addr_port(&own)) {
		do
			sim_addr_set_port(&own, port++);
		while (sim_find_listener(net, &own));
	} else if (sim_find_listener(net, &own)) {
		return -EADDRINUSE;
	}
	listener = rk_zalloc(sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	listener->base.context = context;
	listener->addr = own;
	listener->handler = handler;
	listener->user = user;
	rk_list_add_tail(&net->listeners, &listener->node);
	*out = &listener->base;
	return 0;
}

uint16_t sim_conn_listener_port(const struct rk_listener *listener)
{
	return sim_addr_port(
		&rk_container_of(listener, struct sim_listener, base)->addr);
}

/* Requests that the owner has not seen yet are refused. */
void sim_conn_unlisten(struct rk_listener *base)
{
	struct sim_listener *listener =
		rk_container_of(base, struct sim_listener, base);
	struct sim_context *context = sim_context_of(base->context);
	struct entry *entry;
	bool again;

	rk_list_remove(&listener->node);
	do {
		struct rk_list *pos, *tmp;

		again = false;
		rk_list_for_each_safe (pos, tmp, &context->entries) {
			entry = rk_list_entry(pos, struct entry, node);
			if (entry->listener != listener)
				continue;
			sim_conn_destroy(&entry->pair->end[PASSIVE]->base);
			again = true; /* the entry is gone with it */
			break;
		}
	} while (again);
	rk_free(listener);
}
