/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the server gets as the descriptor of a link: a connected UDP socket
 * that never carries a byte.  Server code asks it for addresses and sets
 * options on it.  Owner only.
 */
#ifndef RK_MODULE_SOCKET_H
#define RK_MODULE_SOCKET_H

#include <stdbool.h>

#include "base/log.h"
#include "link.h"

/* Both addresses in words: fill link->ip and link->port. */
void rk_socket_describe(struct rk_link *link);

/* The descriptor, or -1 when there are none left; an address that cannot be
 * given to a socket is left out. */
int rk_socket_stand_in(struct rk_link *link);

/* Let descriptors above the server's own range exist. */
void rk_socket_prepare(struct rk_server_context *ctx);

#endif
