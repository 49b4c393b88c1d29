/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the subcommands of rdmakit share: how they are named and run, and the
 * exit codes.  argv[0] of a subcommand is its full name ("rdmakit redis").
 */
#ifndef RK_TOOLS_TOOL_H
#define RK_TOOLS_TOOL_H

#include "base/compiler.h"

enum { RK_EXIT_OK = 0, RK_EXIT_FAILED = 1, RK_EXIT_USAGE = 2 };

struct rk_tool {
	const char *name;
	const char *summary; /* one line */
	int (*run)(int argc, char **argv);
};

/*
 * Run the tool that argv[1] names; the table ends with a NULL name.  Answers
 * --help itself; an unknown word is answered with the nearest name.
 */
int rk_tool_dispatch(const struct rk_tool *tools, const char *prefix, int argc,
		     char **argv);

/* "rdmakit redis: text" on standard error; returns RK_EXIT_USAGE. */
RK_PRINTF(2, 3)
int rk_tool_usage_error(const char *name, const char *format, ...);

/* A whole number from min to max; k, M and G after it are powers of 1024.
 * -EINVAL */
RK_MUST_CHECK int rk_tool_number(const char *text, long long min,
				 long long max, long long *out);

/* How many single-letter changes lie between two words. */
unsigned rk_word_distance(const char *a, const char *b);

int rk_tool_redis(int argc, char **argv);
int rk_tool_bench(int argc, char **argv);
int rk_tool_bench_redis(int argc, char **argv);

#endif
