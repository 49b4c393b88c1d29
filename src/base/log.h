/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One line per event, to whoever runs the process: standard error unless a
 * sink is set (the server module sets the server's own log).  A line says what
 * was wrong, with which value, and what to do.  Any thread; not from a signal
 * handler.
 */
#ifndef RK_BASE_LOG_H
#define RK_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum rk_log_level { RK_LOG_DEBUG, RK_LOG_INFO, RK_LOG_WARNING, RK_LOG_ERROR };

typedef void rk_log_sink(enum rk_log_level level, const char *line);

/* Set once, before other threads log. NULL: back to standard error. */
void rk_log_set_sink(rk_log_sink *sink);

/* Lines below this level are dropped; the default is RK_LOG_INFO. */
void rk_log_set_level(enum rk_log_level level);

/*
 * For lines that a peer can cause: at most one a second from each limit, which
 * the caller owns (zeroed, one thread at a time).  False: say nothing.
 */
struct rk_log_limit {
	uint64_t next_ns;
};
bool rk_log_may(struct rk_log_limit *limit);

void rk_log(enum rk_log_level level, const char *format, ...) RK_PRINTF(2, 3);

#endif
