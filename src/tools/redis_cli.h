/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rdmakit redis, what its files share.  One thread; a signal handler sets one
 * flag.
 */
#ifndef RK_TOOLS_REDIS_CLI_H
#define RK_TOOLS_REDIS_CLI_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/compiler.h"
#include "rdmakit/redis.h"
#include "redis/client/uri.h"

/* --- redis_args.c --- */

struct cli_args {
	int argc;
	char **argv; /* each with a NUL after it */
	size_t *lengths;
};

/*
 * A line to arguments, with redis-cli's quoting: "..." knows \n \r \t \b \a
 * \xHH and \ANY, '...' knows \', and a closing quote ends the argument.
 *   -EINVAL  a quote is open, or something follows a closing one
 *   -ENOMEM
 */
RK_MUST_CHECK int cli_args_split(struct cli_args *out, const char *line);

/* Append a copy of one argument. */
RK_MUST_CHECK int cli_args_add(struct cli_args *args, const char *text,
			       size_t bytes);
void cli_args_free(struct cli_args *args);

/* --- redis_print.c --- */

enum cli_format {
	CLI_FORMAT_PEOPLE, /* types and numbering, for a terminal */
	CLI_FORMAT_RAW,
	CLI_FORMAT_CSV,
	CLI_FORMAT_JSON,
};

void cli_print(FILE *out, const struct rk_reply *reply,
	       enum cli_format format);

/* --- redis_session.c --- */

struct cli_options {
	struct rk_uri uri;
	const char *device;
	enum cli_format format;
	bool resp3;
	bool fail_on_error; /* -e */
	bool show_pushes;
	long repeat;	  /* negative: for ever */
	double interval_s;
	bool argument_from_stdin; /* -x */
};

struct cli_session {
	struct cli_options *options;
	struct rk_redis *redis; /* NULL: not connected */
	unsigned db;
	bool in_transaction, resp3;
	bool failed; /* with fail_on_error: an error reply came */
};

/* Set by SIGINT while a command runs in interactive use. */
extern volatile sig_atomic_t cli_interrupted;

/* Connect if need be; says why not on standard error. */
RK_MUST_CHECK int cli_session_connect(struct cli_session *session);
void cli_session_close(struct cli_session *session);

/* Run one command and print what comes.  Negative errno: the connection was
 * lost, which has been said; an error reply is no failure. */
RK_MUST_CHECK int cli_session_run(struct cli_session *session,
				  const struct cli_args *args);

/* Take and print pushes that wait; finds out whether the server is still
 * there. */
void cli_session_check(struct cli_session *session);

/* --- redis_repl.c --- */

/* Commands from the terminal, or one per line from standard input. */
int cli_interactive(struct cli_session *session);
int cli_from_stdin(struct cli_session *session);

#endif
