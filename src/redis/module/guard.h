/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guard: before anything is added to the server, prove that its inside is
 * what the tables say.  Main thread, once, at load.
 */
#ifndef RK_MODULE_GUARD_H
#define RK_MODULE_GUARD_H

#include <stdbool.h>

#include "api.h"

enum { RK_GUARD_WHY_BYTES = 400 };

struct rk_guard_result {
	char version[64];	      /* "redis 7.0.15" */
	char build[64];		      /* the program's build id, in hex */
	bool tested;		      /* the build is one we tested with */
	char why[RK_GUARD_WHY_BYTES]; /* one sentence, if refused */
};

/*
 * Fill rk_server.  0, or -ENOTSUP: do not load, result->why says what was
 * expected and what was found.
 */
int rk_guard_check(struct rk_server_context *ctx,
		   struct rk_guard_result *result);

/* probe.c: drive the server's own objects and one of ours in a forked child.
 * 0, or -ENOTSUP with the sentence in why. */
int rk_guard_probe(char why[RK_GUARD_WHY_BYTES]);

#endif
