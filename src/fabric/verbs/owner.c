/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which device of a table owns an address of this host, or reaches another
 * host: asked of the connection manager, which decides by the same rules when
 * a connection is made.
 *
 * The id that asks, and its channel, are gone when the answer is there.
 *
 * Any thread.  Asking for another host blocks, at most FABRIC_ASK_MS.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "fabric/verbs/internal.h"

/* ---- addresses --------------------------------------------------------- */

static bool is_v4(const struct sockaddr *addr, uint32_t *ip)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;

	if (addr->sa_family == AF_INET)
		*ip = ((const struct sockaddr_in *)addr)->sin_addr.s_addr;
	else if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		memcpy(ip, in6->sin6_addr.s6_addr + 12, sizeof(*ip));
	else
		return false;
	*ip = ntohl(*ip);
	return true;
}

bool fabric_address_is_ip(const struct sockaddr *addr)
{
	return addr->sa_family == AF_INET || addr->sa_family == AF_INET6;
}

bool fabric_address_is_wildcard(const struct sockaddr *addr)
{
	uint32_t ip;

	if (is_v4(addr, &ip))
		return ip == INADDR_ANY;
	return IN6_IS_ADDR_UNSPECIFIED(
		&((const struct sockaddr_in6 *)addr)->sin6_addr);
}

bool fabric_address_is_loopback(const struct sockaddr *addr)
{
	uint32_t ip;

	if (is_v4(addr, &ip))
		return ip >> 24 == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(
		&((const struct sockaddr_in6 *)addr)->sin6_addr);
}

static void copy_without_port(struct sockaddr_storage *to,
			      const struct sockaddr *from)
{
	memset(to, 0, sizeof(*to));
	if (from->sa_family == AF_INET) {
		memcpy(to, from, sizeof(struct sockaddr_in));
		((struct sockaddr_in *)to)->sin_port = 0;
	} else {
		memcpy(to, from, sizeof(struct sockaddr_in6));
		((struct sockaddr_in6 *)to)->sin6_port = 0;
	}
}

/* ---- asking ------------------------------------------------------------ */

/* The outcome of resolving: the one event that the id can have. */
static int take_outcome(const struct rk_verbs_table *table,
			struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	int ret = 0;

	if (table->cm_get_event(channel, &event))
		return -errno;
	if (event->event != RDMA_CM_EVENT_ADDR_RESOLVED)
		ret = event->status < 0 ? event->status : -EHOSTUNREACH;
	table->cm_ack_event(event);
	return ret;
}

static int wait_outcome(const struct rk_verbs_table *table,
			struct rdma_event_channel *channel)
{
	uint64_t end_ns = rk_now_ns() + FABRIC_ASK_MS * RK_NS_PER_MS;
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	uint64_t now_ns;
	int ret;

	for (;;) {
		now_ns = rk_now_ns();
		if (now_ns >= end_ns)
			return -ETIMEDOUT;
		ret = poll(&fd, 1,
			   (int)((end_ns - now_ns) / RK_NS_PER_MS) + 1);
		if (ret < 0 && errno != EINTR)
			return -errno;
		if (ret <= 0)
			continue;
		ret = take_outcome(table, channel);
		if (ret != -EAGAIN)
			return ret;
	}
}

static int ask(const struct rk_verbs_table *table,
	       struct rdma_event_channel *channel, struct rdma_cm_id *id,
	       const struct sockaddr *addr, bool remote)
{
	struct sockaddr_storage copy;
	int ret;

	/* a port that is in use says nothing about the address */
	copy_without_port(&copy, addr);
	if (!remote)
		return table->cm_bind_addr(id, (struct sockaddr *)&copy)
			       ? -errno
			       : 0;
	ret = fabric_set_nonblocking(channel->fd);
	if (ret)
		return ret;
	if (table->cm_resolve_addr(id, NULL, (struct sockaddr *)&copy,
				   FABRIC_ASK_MS))
		return -errno;
	return wait_outcome(table, channel);
}

int fabric_owner_find(const struct rk_verbs_table *table,
		      const struct sockaddr *addr, bool remote,
		      struct ibv_context **out)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	int ret;

	*out = NULL;
	channel = table->cm_create_event_channel();
	if (!channel)
		return -errno;
	if (table->cm_create_id(channel, &id, NULL, RDMA_PS_TCP)) {
		ret = -errno;
		goto out_channel;
	}
	ret = ask(table, channel, id, addr, remote);
	if (!ret) {
		/* none: a loopback address, which no device has alone */
		*out = id->verbs;
		ret = id->verbs ? 0 : -ENODEV;
	}
	table->cm_destroy_id(id);
out_channel:
	table->cm_destroy_event_channel(channel);
	return ret;
}
