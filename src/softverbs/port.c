/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses, and the names that ports have on this host.
 *
 * A port is an abstract unix socket, so it belongs to a network namespace as
 * a TCP port does, takes no TCP port, and vanishes with its process:
 *
 *   "\0rdmakit/1/7471/192.0.2.1"     one address
 *   "\0rdmakit/1/7471/0.0.0.0"       every IPv4 address
 *   "\0rdmakit/1/7471/::"            every IPv6 and every IPv4 address
 *   "\0rdmakit/1/7471/:: v6only"     every IPv6 address
 *
 * An IPv6 link-local address is followed by '%' and its interface number.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "softverbs/wire_internal.h"

int port_parse(const struct sockaddr *addr, struct port_address *out)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)addr;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)addr;

	memset(out, 0, sizeof(*out));
	if (addr->sa_family == AF_INET) {
		out->family = AF_INET;
		out->port = ntohs(v4->sin_port);
		out->v4 = v4->sin_addr;
		return 0;
	}
	if (addr->sa_family != AF_INET6)
		return -EAFNOSUPPORT;
	out->port = ntohs(v6->sin6_port);
	if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		out->family = AF_INET;
		memcpy(&out->v4, &v6->sin6_addr.s6_addr[12], sizeof(out->v4));
		return 0;
	}
	out->family = AF_INET6;
	out->v6 = v6->sin6_addr;
	if (IN6_IS_ADDR_LINKLOCAL(&out->v6))
		out->scope = v6->sin6_scope_id;
	return 0;
}

bool port_is_wildcard(const struct port_address *address)
{
	if (address->family == AF_INET)
		return address->v4.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&address->v6);
}

static bool is_multicast(const struct port_address *address)
{
	if (address->family == AF_INET)
		return IN_MULTICAST(ntohl(address->v4.s_addr)) ||
		       address->v4.s_addr == htonl(INADDR_BROADCAST);
	return IN6_IS_ADDR_MULTICAST(&address->v6);
}

static bool is_loopback(const struct port_address *address)
{
	if (address->family == AF_INET)
		return ntohl(address->v4.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&address->v6);
}

/* The kernel knows which addresses are ours: it lets a socket be bound. */
int port_check_local(const struct port_address *address)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET,
				  .sin_addr = address->v4 };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
				   .sin6_addr = address->v6,
				   .sin6_scope_id = address->scope };
	int fd, ret;

	if (is_multicast(address))
		return -EADDRNOTAVAIL;
	if (port_is_wildcard(address) || is_loopback(address))
		return 0;
	fd = socket(address->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (address->family == AF_INET)
		ret = bind(fd, (struct sockaddr *)&v4, sizeof(v4));
	else
		ret = bind(fd, (struct sockaddr *)&v6, sizeof(v6));
	ret = ret ? -EADDRNOTAVAIL : 0;
	close(fd);
	return ret;
}

static socklen_t name_write(struct sockaddr_un *out, uint16_t port,
			    const char *text, const char *suffix)
{
	const size_t room = sizeof(out->sun_path) - 1;
	int bytes;

	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	/* the first byte stays 0: an abstract name; always fits */
	bytes = snprintf(out->sun_path + 1, room, "rdmakit/1/%u/%s%s", port,
			 text, suffix);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)bytes);
}

socklen_t port_name(const struct port_address *address, bool v6_only,
		    struct sockaddr_un *out)
{
	char text[INET6_ADDRSTRLEN], suffix[16] = "";

	if (address->family == AF_INET) {
		inet_ntop(AF_INET, &address->v4, text, sizeof(text));
	} else {
		inet_ntop(AF_INET6, &address->v6, text, sizeof(text));
		if (address->scope)
			snprintf(suffix, sizeof(suffix), "%%%u",
				 address->scope);
		else if (v6_only && port_is_wildcard(address))
			snprintf(suffix, sizeof(suffix), " v6only");
	}
	return name_write(out, address->port, text, suffix);
}

int port_names(const struct port_address *address,
	       struct sockaddr_un names[PORT_NAMES_MAX],
	       socklen_t bytes[PORT_NAMES_MAX])
{
	struct port_address target = *address;
	int ret;

	if (!address->port)
		return -ECONNREFUSED;
	/* As everywhere, "any address" as a destination is this host. */
	if (port_is_wildcard(address)) {
		if (address->family == AF_INET)
			target.v4.s_addr = htonl(INADDR_LOOPBACK);
		else
			target.v6 = in6addr_loopback;
	}
	ret = port_check_local(&target);
	if (ret == -EADDRNOTAVAIL || ret == -EAFNOSUPPORT)
		return -EHOSTUNREACH;
	if (ret)
		return ret;
	bytes[0] = port_name(&target, false, &names[0]);
	bytes[1] = name_write(&names[1], target.port, "::", "");
	if (target.family == AF_INET)
		bytes[2] = name_write(&names[2], target.port, "0.0.0.0", "");
	else
		bytes[2] = name_write(&names[2], target.port, "::",
				      " v6only");
	return PORT_NAMES_MAX;
}
