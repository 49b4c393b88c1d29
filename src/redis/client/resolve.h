/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The addresses of a host, to be tried one after the other.  Blocks while the
 * name is looked up.  Any thread.
 */
#ifndef RK_REDIS_CLIENT_RESOLVE_H
#define RK_REDIS_CLIENT_RESOLVE_H

#include <sys/socket.h>

#include "redis/client/uri.h"

enum { RK_ADDRESSES_MAX = 4 };

struct rk_addresses {
	struct sockaddr_storage list[RK_ADDRESSES_MAX];
	unsigned count;
	unsigned next; /* the one to try next */
};

/* -ENOENT: no such host, with words in error. */
RK_MUST_CHECK int rk_resolve(struct rk_addresses *out,
			     const struct rk_uri *uri, char *error,
			     size_t error_bytes);

static inline socklen_t rk_address_bytes(const struct sockaddr_storage *addr)
{
	return addr->ss_family == AF_INET6 ? 28 : 16;
}

#endif
