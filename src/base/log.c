/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"

static rk_log_sink *log_sink;
static enum rk_log_level log_level = RK_LOG_INFO;

void rk_log_set_sink(rk_log_sink *sink)
{
	log_sink = sink;
}

void rk_log_set_level(enum rk_log_level level)
{
	log_level = level;
}

bool rk_log_may(struct rk_log_limit *limit)
{
	uint64_t now_ns = rk_now_ns();

	if (now_ns < limit->next_ns)
		return false;
	limit->next_ns = now_ns + RK_NS_PER_S;
	return true;
}

void rk_log(enum rk_log_level level, const char *format, ...)
{
	static const char *const names[] = {
		[RK_LOG_DEBUG] = "debug",
		[RK_LOG_INFO] = "info",
		[RK_LOG_WARNING] = "warning",
		[RK_LOG_ERROR] = "error",
	};
	char line[512];
	va_list args;

	if (level < log_level)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (log_sink)
		log_sink(level, line);
	else
		fprintf(stderr, "rdmakit: %s: %s\n", names[level], line);
}
