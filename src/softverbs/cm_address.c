/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses and ports.  RDMA ports are a space of their own: taking one takes
 * no TCP port.  A port that is only the source of connections is not reserved
 * against other processes, since that would cost a descriptor each; it is
 * chosen below those that wire_bind() hands out.  Runs in any thread of the
 * program, under the device lock.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "softverbs/cm_internal.h"

enum { EPHEMERAL_FIRST = 32768, EPHEMERAL_COUNT = 16384 };

static uint64_t ephemeral_used[EPHEMERAL_COUNT / 64];
static unsigned ephemeral_next;

/* ---- socket addresses ------------------------------------------------- */

static const struct sockaddr_in *v4(const struct sockaddr *addr)
{
	return (const struct sockaddr_in *)(const void *)addr;
}

static const struct sockaddr_in6 *v6(const struct sockaddr *addr)
{
	return (const struct sockaddr_in6 *)(const void *)addr;
}

socklen_t cm_addr_bytes(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET)
		return sizeof(struct sockaddr_in);
	if (addr->sa_family == AF_INET6)
		return sizeof(struct sockaddr_in6);
	return 0;
}

bool cm_addr_is_wildcard(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET)
		return v4(addr)->sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&v6(addr)->sin6_addr);
}

bool cm_addr_is_same(const struct sockaddr *a, const struct sockaddr *b)
{
	struct cm_address x, y;

	cm_addr_pack(&x, a);
	cm_addr_pack(&y, b);
	x.port = y.port = 0;
	return !memcmp(&x, &y, sizeof(x));
}

uint16_t cm_addr_port(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET)
		return v4(addr)->sin_port;
	return addr->sa_family == AF_INET6 ? v6(addr)->sin6_port : 0;
}

void cm_addr_set_port(struct sockaddr *addr, uint16_t port)
{
	if (addr->sa_family == AF_INET)
		((struct sockaddr_in *)(void *)addr)->sin_port = port;
	else
		((struct sockaddr_in6 *)(void *)addr)->sin6_port = port;
}

void cm_addr_copy(struct sockaddr_storage *to, const struct sockaddr *from)
{
	memset(to, 0, sizeof(*to));
	memcpy(to, from, cm_addr_bytes(from));
}

/* An IPv4 address in IPv6's clothes becomes one: listeners match by value. */
void cm_addr_pack(struct cm_address *to, const struct sockaddr *from)
{
	memset(to, 0, sizeof(*to));
	to->family = from->sa_family;
	to->port = cm_addr_port(from);
	if (from->sa_family == AF_INET) {
		memcpy(to->ip, &v4(from)->sin_addr, 4);
		return;
	}
	if (IN6_IS_ADDR_V4MAPPED(&v6(from)->sin6_addr)) {
		to->family = AF_INET;
		memcpy(to->ip, v6(from)->sin6_addr.s6_addr + 12, 4);
		return;
	}
	memcpy(to->ip, &v6(from)->sin6_addr, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&v6(from)->sin6_addr))
		to->scope = v6(from)->sin6_scope_id;
}

int cm_addr_unpack(struct sockaddr_storage *to, const struct cm_address *from)
{
	struct sockaddr_in *in = (struct sockaddr_in *)to;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)to;

	memset(to, 0, sizeof(*to));
	to->ss_family = from->family;
	if (from->family == AF_INET) {
		memcpy(&in->sin_addr, from->ip, 4);
		in->sin_port = from->port;
		return 0;
	}
	if (from->family != AF_INET6)
		return -EPROTO;
	memcpy(&in6->sin6_addr, from->ip, 16);
	in6->sin6_port = from->port;
	in6->sin6_scope_id = from->scope;
	return 0;
}

static bool is_loopback(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET)
		return ntohl(v4(addr)->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&v6(addr)->sin6_addr);
}

int cm_addr_check_local(const struct sockaddr *addr)
{
	struct sockaddr_storage probe;
	int fd, ret = 0;

	if (is_loopback(addr))
		return 0;
	cm_addr_copy(&probe, addr);
	cm_addr_set_port((struct sockaddr *)&probe, 0);
	fd = socket(addr->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&probe, cm_addr_bytes(addr)))
		ret = -errno;
	close(fd);
	return ret;
}

static void fill_gid(union ibv_gid *gid, const struct sockaddr *addr)
{
	memset(gid, 0, sizeof(*gid));
	if (addr->sa_family == AF_INET) {
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(gid->raw + 12, &v4(addr)->sin_addr, 4);
	} else if (addr->sa_family == AF_INET6) {
		memcpy(gid->raw, &v6(addr)->sin6_addr, 16);
	}
}

void cm_addr_fill_gids(struct cm_id *id)
{
	struct rdma_addr *addr = &id->base.route.addr;

	fill_gid(&addr->addr.ibaddr.sgid, &addr->src_addr);
	fill_gid(&addr->addr.ibaddr.dgid, &addr->dst_addr);
	addr->addr.ibaddr.pkey = htons(0xffff);
}

/* ---- ports ------------------------------------------------------------ */

static struct cm_port *port_to_share(const struct sockaddr *addr)
{
	struct rk_list *pos, *tmp;

	if (!cm_addr_port(addr))
		return NULL;
	rk_list_for_each_safe(pos, tmp, &cm.ports) {
		struct cm_port *port = rk_list_entry(pos, struct cm_port, node);
		struct sockaddr *taken = (struct sockaddr *)&port->addr;

		if (port->reuse && !port->listening &&
		    cm_addr_port(taken) == cm_addr_port(addr) &&
		    cm_addr_is_same(taken, addr))
			return port;
	}
	return NULL;
}

int cm_port_take(struct cm_id *id, const struct sockaddr *addr)
{
	struct cm_port *port = id->reuse ? port_to_share(addr) : NULL;
	int ret;

	if (port) {
		port->users++;
		id->port = port;
		return 0;
	}
	port = rk_zalloc(sizeof(*port));
	if (!port)
		return -ENOMEM;
	ret = wire_bind(cm.device->wire, addr, id->v6_only, &port->listener);
	if (ret) {
		rk_free(port);
		return ret;
	}
	cm_addr_copy(&port->addr, addr);
	cm_addr_set_port((struct sockaddr *)&port->addr,
			 htons(wire_listener_port(port->listener)));
	port->users = 1;
	port->reuse = id->reuse;
	port->v6_only = id->v6_only;
	rk_list_add_tail(&cm.ports, &port->node);
	id->port = port;
	return 0;
}

void cm_port_give(struct cm_id *id)
{
	struct cm_port *port = id->port;

	if (id->ephemeral) {
		unsigned n = ntohs(id->ephemeral) - EPHEMERAL_FIRST;

		ephemeral_used[n / 64] &= ~(1ull << (n % 64));
		id->ephemeral = 0;
	}
	id->port = NULL;
	if (!port || --port->users)
		return;
	wire_unbind(port->listener);
	rk_list_remove(&port->node);
	rk_free(port);
}

/* With all of them in use one is used twice: only the pair of ports and the
 * program's own eyes tell such connections apart. */
uint16_t cm_port_ephemeral(void)
{
	unsigned n = 0;

	if (!ephemeral_next)
		ephemeral_next = (unsigned)getpid() * 2654435761u;
	for (unsigned i = 0; i < EPHEMERAL_COUNT; i++) {
		n = ephemeral_next++ % EPHEMERAL_COUNT;
		if (!(ephemeral_used[n / 64] >> (n % 64) & 1))
			break;
	}
	ephemeral_used[n / 64] |= 1ull << (n % 64);
	return htons((uint16_t)(EPHEMERAL_FIRST + n));
}

/* ---- listeners -------------------------------------------------------- */

/* 2: this very address; 1: a wildcard that covers it; 0: not. */
static int port_match(const struct cm_port *port, const struct sockaddr *target)
{
	const struct sockaddr *addr = (const struct sockaddr *)&port->addr;

	if (cm_addr_port(addr) != cm_addr_port(target))
		return 0;
	if (cm_addr_is_same(addr, target))
		return 2;
	if (!cm_addr_is_wildcard(addr))
		return 0;
	if (addr->sa_family == target->sa_family)
		return 1;
	return addr->sa_family == AF_INET6 && !port->v6_only;
}

struct cm_id *cm_listener_find(const struct sockaddr *target)
{
	struct rk_list *pos, *tmp;
	struct cm_id *best = NULL;
	int best_match = 0;

	rk_list_for_each_safe(pos, tmp, &cm.listeners) {
		struct cm_id *id = rk_list_entry(pos, struct cm_id, listen_node);
		int match = port_match(id->port, target);

		if (match > best_match) {
			best = id;
			best_match = match;
		}
	}
	return best;
}
