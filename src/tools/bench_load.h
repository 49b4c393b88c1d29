/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The load of rdmakit bench redis: its state, which bench_connect.c sets up
 * and bench_load.c runs.  One thread.
 */
#ifndef RK_TOOLS_BENCH_LOAD_H
#define RK_TOOLS_BENCH_LOAD_H

#include <sys/uio.h>

#include "tools/bench_redis.h"
#include "tools/bench_scan.h"

enum { BENCH_READ_BYTES = 256 << 10 };

struct bench_connection {
	struct rk_link *link;
	char *arena; /* all of a batch but the large values */
	uint64_t *keys; /* of the requests of the batch */
	struct iovec *pieces;
	unsigned piece_count, piece_next; /* those not yet written */
	unsigned batch, answered;
	uint64_t started_ns;
	struct bench_scan scan;
};

struct load {
	const struct bench_options *options;
	struct bench_target *target;
	const struct bench_op *op;
	const char *pattern;
	struct bench_request request;
	struct rk_link_context *context;
	struct bench_connection *connections;
	unsigned connected;
	size_t stride; /* bytes of the arena per request */
	bool small;    /* values are in the arena */
	uint64_t issued, answered, errors, bytes_moved, batches;
	uint64_t now_ns, end_ns; /* end: no batch starts after it */
	uint64_t random;
	char first_error[120];
	char *input;
	struct rk_histogram latency;
};

/* Device, connections, log-in: everything that is not measured. */
RK_MUST_CHECK int bench_load_open(struct load *load);
RK_MUST_CHECK int bench_load_connect(struct load *load, double *setup_us);
void bench_load_close(struct load *load); /* frees load */

/* Say on standard error what went wrong with the target; returns error. */
int bench_load_fail(const struct load *load, int error, const char *what,
		    const char *why);

#endif
