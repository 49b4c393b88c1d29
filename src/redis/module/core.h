/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The module as a whole: one per process, set up by module.c.
 *
 * Threads: the thread that loads the module is the server's main thread and
 * the owner of the device: only it posts, polls, accepts and closes.  The
 * server's I/O threads may be inside read() and write() of a connection
 * (link.h says what they touch).  A forked child touches nothing.
 */
#ifndef RK_MODULE_CORE_H
#define RK_MODULE_CORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "api.h"
#include "guard.h"
#include "rdmakit/device.h"
#include "rdmakit/stream.h"
#include "server.h"
#include "settings.h"

struct rk_core {
	struct rk_settings settings;
	struct rk_guard_result guard;
	struct rk_server_context *ctx; /* for log lines and INFO */
	struct rk_context *device;
	pthread_t owner;
	bool in_child;	/* this process is a fork of the server */
	bool loaded;	/* never unloaded again */

	void *type[RK_SLOTS_MAX]; /* the connection type `rdma` */

	/* Counted by the owner. */
	uint64_t accepted, rejected;
};

extern struct rk_core rk_core;

static inline bool rk_on_owner(void)
{
	return pthread_equal(pthread_self(), rk_core.owner);
}

/* report.c: the section of INFO. */
void rk_report(struct rk_server_report *report, int for_crash_report);

#endif
