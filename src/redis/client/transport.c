/* SPDX-License-Identifier: BSD-3-Clause */
/* The transports by name; see transport.h. */
#include "redis/client/transport.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { TRANSPORTS_MAX = 16 };

static const struct rk_transport *transports[TRANSPORTS_MAX] = {
	&rk_transport_rdma,
	&rk_transport_tcp,
	&rk_transport_unix,
};

const struct rk_transport *rk_transport_find(const char *scheme, char *error,
					     size_t error_bytes)
{
	size_t used;

	for (int i = 0; i < TRANSPORTS_MAX && transports[i]; i++)
		if (!strcmp(transports[i]->scheme, scheme))
			return transports[i];
	snprintf(error, error_bytes, "there is no transport '%s'; known are",
		 scheme);
	for (int i = 0; i < TRANSPORTS_MAX && transports[i]; i++) {
		used = strlen(error);
		snprintf(error + used, error_bytes - used, "%s %s",
			 i ? "," : "", transports[i]->scheme);
	}
	return NULL;
}

int rk_transport_register(const struct rk_transport *transport)
{
	for (int i = 0; i < TRANSPORTS_MAX; i++) {
		if (!transports[i]) {
			transports[i] = transport;
			return 0;
		}
		if (!strcmp(transports[i]->scheme, transport->scheme))
			return -EEXIST;
	}
	return -ENOSPC;
}
