/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reserving ports and taking connections on them.
 *
 * A name is held by a bound socket.  Names that would take the same
 * connections (the wildcard against one address) are found by binding them for
 * a moment: whoever does that holds a conflicting name himself, so the worst
 * that two binders at the same instant can see is that both are refused.
 * Not found are 127.0.0.2 and above against a wildcard bound later; there the
 * more special name gets the connection.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "softverbs/wire_internal.h"

enum {
	PORT_FIRST = 49152,
	PORT_COUNT = 65536 - PORT_FIRST,
	ACCEPT_BUDGET = 64,
	ACCEPT_PAUSE_MS = 100,
};

static int name_bind(const struct sockaddr_un *name, socklen_t bytes)
{
	int fd, ret;

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)name, bytes)) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd;
}

/* Is somebody else's hand on that name? */
static int name_probe(const struct port_address *address, bool v6_only)
{
	struct sockaddr_un name;
	socklen_t bytes = port_name(address, v6_only, &name);
	int fd = name_bind(&name, bytes);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static int probe_wildcard(int family, uint16_t port, bool v6_only)
{
	struct port_address any = { .family = family, .port = port };

	return name_probe(&any, v6_only);
}

static int probe_loopback(int family, uint16_t port)
{
	struct port_address own = { .family = family, .port = port };

	if (family == AF_INET)
		own.v4.s_addr = htonl(INADDR_LOOPBACK);
	else
		own.v6 = in6addr_loopback;
	return name_probe(&own, false);
}

/* Every address of the host but the loopback ones. */
static int probe_interfaces(int family, uint16_t port)
{
	struct ifaddrs *list, *entry;
	int ret = 0;

	if (getifaddrs(&list))
		return -errno;
	for (entry = list; entry && !ret; entry = entry->ifa_next) {
		struct port_address own;

		if (!entry->ifa_addr || entry->ifa_addr->sa_family != family ||
		    port_parse(entry->ifa_addr, &own))
			continue;
		own.port = port;
		ret = name_probe(&own, false);
	}
	freeifaddrs(list);
	return ret;
}

static int probe_specific(int family, uint16_t port)
{
	int ret = probe_loopback(family, port);

	return ret ? ret : probe_interfaces(family, port);
}

/* Names other than address's own that take the same connections. */
static int probe_conflicts(const struct port_address *address, bool v6_only)
{
	bool any = port_is_wildcard(address);
	uint16_t port = address->port;
	int ret = 0;

	if (address->family == AF_INET) {
		ret = probe_wildcard(AF_INET6, port, false);
		if (!ret && !any)
			ret = probe_wildcard(AF_INET, port, false);
		if (!ret && any)
			ret = probe_specific(AF_INET, port);
		return ret;
	}
	if (!any || v6_only)
		ret = probe_wildcard(AF_INET6, port, false);
	if (!ret && (!any || !v6_only))
		ret = probe_wildcard(AF_INET6, port, true);
	if (!ret && any)
		ret = probe_specific(AF_INET6, port);
	if (!ret && any && !v6_only)
		ret = probe_wildcard(AF_INET, port, false);
	if (!ret && any && !v6_only)
		ret = probe_specific(AF_INET, port);
	return ret;
}

/* A socket that holds the name; negative errno. */
static int port_hold(const struct port_address *address, bool v6_only)
{
	struct sockaddr_un name;
	socklen_t bytes = port_name(address, v6_only, &name);
	int fd, ret;

	fd = name_bind(&name, bytes);
	if (fd < 0)
		return fd;
	ret = probe_conflicts(address, v6_only);
	if (ret) {
		close(fd);
		return ret;
	}
	return fd;
}

static int port_hold_any(struct port_address *address, bool v6_only)
{
	uint32_t start;
	int fd = -EADDRINUSE;

	/* processes that start together should not try the same ones */
	if (getrandom(&start, sizeof(start), GRND_NONBLOCK) !=
	    (ssize_t)sizeof(start))
		start = (uint32_t)rk_now_ns();
	for (unsigned i = 0; i < PORT_COUNT && fd == -EADDRINUSE; i++) {
		address->port = (uint16_t)(PORT_FIRST +
					   (start + i) % PORT_COUNT);
		fd = port_hold(address, v6_only);
	}
	return fd;
}

static void listener_ignore(struct wire_source *source, uint32_t events)
{
}

int wire_bind(struct wire *wire, const struct sockaddr *addr, bool v6_only,
	      struct wire_listener **out)
{
	struct wire_listener *listener;
	struct port_address address;
	int ret;

	*out = NULL;
	ret = port_parse(addr, &address);
	if (ret)
		return ret;
	ret = port_check_local(&address);
	if (ret)
		return ret;
	listener = rk_zalloc(sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	ret = address.port ? port_hold(&address, v6_only) :
			     port_hold_any(&address, v6_only);
	if (ret < 0) {
		rk_free(listener);
		return ret;
	}
	listener->socket = ret;
	listener->wire = wire;
	listener->port = address.port;
	listener->source.ready = listener_ignore;
	rk_list_add_tail(&wire->listeners, &listener->node);
	*out = listener;
	return 0;
}

uint16_t wire_listener_port(const struct wire_listener *listener)
{
	return listener->port;
}

static void listener_resume(struct wire_timer *timer)
{
	struct wire_listener *listener =
		rk_container_of(timer, struct wire_listener, retry);
	struct wire *wire = listener->wire;

	if (wire_watch(wire, listener->socket, &listener->source, EPOLLIN))
		wire_timer_set(wire, timer, rk_now_ns() +
				       ACCEPT_PAUSE_MS * RK_NS_PER_MS);
}

/* Out of something: look away for a moment, as the socket stays readable. */
static void listener_pause(struct wire_listener *listener, int error)
{
	struct wire *wire = listener->wire;

	if (rk_log_may(&wire->complaints))
		rk_log(RK_LOG_WARNING,
		       "port %u: cannot accept a link: %s; again in %d ms",
		       listener->port, strerror(-error), ACCEPT_PAUSE_MS);
	epoll_ctl(wire->epoll_fd, EPOLL_CTL_DEL, listener->socket, NULL);
	listener->retry.fire = listener_resume;
	wire_timer_set(wire, &listener->retry,
		       rk_now_ns() + ACCEPT_PAUSE_MS * RK_NS_PER_MS);
}

static void listener_accept(struct wire_source *source, uint32_t events)
{
	struct wire_listener *listener =
		rk_container_of(source, struct wire_listener, source);

	for (unsigned i = 0; i < ACCEPT_BUDGET; i++) {
		int fd, ret;

		fd = accept4(listener->socket, NULL, NULL,
			     SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EAGAIN || errno == ECONNABORTED ||
			       errno == EINTR))
			return;
		ret = fd < 0 ? -errno : link_accept(listener->wire, fd);
		if (ret) {
			listener_pause(listener, ret);
			return;
		}
	}
}

int wire_listen(struct wire_listener *listener, int backlog)
{
	int ret;

	if (listen(listener->socket, backlog > 0 ? backlog : SOMAXCONN))
		return -errno;
	if (listener->listening)
		return 0; /* a new backlog */
	ret = wire_watch(listener->wire, listener->socket, &listener->source,
			 EPOLLIN);
	if (ret)
		return ret;
	listener->source.ready = listener_accept;
	listener->listening = true;
	return 0;
}

void wire_unbind(struct wire_listener *listener)
{
	struct wire *wire;

	if (!listener)
		return;
	wire = listener->wire;
	if (wire->abandoned)
		return;
	/* by hand: a child that just forked may still hold the socket */
	epoll_ctl(wire->epoll_fd, EPOLL_CTL_DEL, listener->socket, NULL);
	close(listener->socket);
	wire_timer_cancel(wire, &listener->retry);
	rk_list_remove(&listener->node);
	listener->source.ready = listener_ignore;
	if (wire->pumping)
		rk_list_add_tail(&wire->buried_listeners, &listener->node);
	else
		rk_free(listener);
}

void port_bury(struct wire *wire)
{
	while (!rk_list_empty(&wire->buried_listeners)) {
		struct wire_listener *listener =
			rk_list_first(&wire->buried_listeners,
				      struct wire_listener, node);

		rk_list_remove(&listener->node);
		rk_free(listener);
	}
}
