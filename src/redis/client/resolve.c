/* SPDX-License-Identifier: BSD-3-Clause */
/* See resolve.h. */
#include "redis/client/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(struct sockaddr_in) == 16, "as rk_address_bytes() says");
_Static_assert(sizeof(struct sockaddr_in6) == 28, "as rk_address_bytes() says");

int rk_resolve(struct rk_addresses *out, const struct rk_uri *uri, char *error,
	       size_t error_bytes)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found, *a;
	char port[8];
	int ret;

	out->count = out->next = 0;
	snprintf(port, sizeof(port), "%u", uri->port);
	ret = getaddrinfo(uri->host, port, &hints, &found);
	if (ret) {
		snprintf(error, error_bytes, "host '%.100s': %s", uri->host,
			 gai_strerror(ret));
		return ret == EAI_MEMORY ? -ENOMEM : -ENOENT;
	}
	for (a = found; a && out->count < RK_ADDRESSES_MAX; a = a->ai_next) {
		if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
			continue;
		memcpy(&out->list[out->count++], a->ai_addr, a->ai_addrlen);
	}
	freeaddrinfo(found);
	if (out->count)
		return 0;
	snprintf(error, error_bytes, "host '%.100s' has no IP address",
		 uri->host);
	return -ENOENT;
}
