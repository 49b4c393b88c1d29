/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The benchmark's view of a reply: how far it goes, whether it is an error,
 * whether it is the value that was written.  Builds nothing, so that the
 * clients cost little beside the server they measure.
 *
 * What a server sends is input: a line or a length that is no RESP ends the
 * run.  One thread.
 */
#ifndef RK_TOOLS_BENCH_SCAN_H
#define RK_TOOLS_BENCH_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* Of one connection; all zero is between replies. */
struct bench_scan {
	bool inside;	       /* a reply has begun */
	bool wrong;	       /* it is not what was expected */
	bool comparing;	       /* the string in progress is the value */
	char mark;	       /* its first byte */
	uint64_t elements_left; /* values to come until it is complete */
	uint64_t bulk_left;    /* bytes of a string to come, with "\r\n" */
	unsigned line_bytes;   /* of the line in progress, in line */
	char line[120];	       /* cut off, for error texts */
};

struct bench_expectation {
	char mark;	   /* first byte of a good reply */
	bool nil_is_good;
	const char *value; /* NULL: a string's bytes are not compared */
	size_t value_bytes;
};

/*
 * Take bytes up to the end of one reply.  Returns how many were taken; *done
 * says whether the reply is complete, and then scan->wrong how it was and
 * scan->line its (last) line.
 *   -EPROTO  no RESP
 */
RK_MUST_CHECK int64_t bench_scan_take(struct bench_scan *scan,
				      const struct bench_expectation *expected,
				      const char *data, size_t bytes,
				      bool *done);

#endif
