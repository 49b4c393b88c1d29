/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links that the server moved to the event loop of one of its I/O threads
 * (Redis 8).  The owner of the device stays the main thread; the other loop
 * watches an eventfd of the link, which the owner makes readable when there is
 * something for the link's handlers.  Writes there go through link->out.
 *
 * Always: while remote_loop is set, the handlers of the link are called in
 * that loop only.  The server moves a link between two calls of its handlers,
 * and closes it on the main thread with the other thread at rest.
 */
#ifndef RK_MODULE_REMOTE_H
#define RK_MODULE_REMOTE_H

#include "link.h"

/* The server gave the link this loop; in the thread of that loop.  0 or -1. */
int rk_remote_bind(struct rk_link *link, void *server_loop);

/* A handler was set or taken away: watch the eventfd or not.  0 or -1. */
int rk_remote_changed(struct rk_link *link);

/* Owner, or the link's thread: there may be something for its handlers. */
void rk_remote_signal(struct rk_link *link);

/* Owner, at the end of the link. */
void rk_remote_drop(struct rk_link *link);

#endif
