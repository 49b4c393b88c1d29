/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include <string.h>

#include "ok.h"

static char last[600];
static unsigned lines;

static void keep(enum rk_log_level level, const char *line)
{
	snprintf(last, sizeof(last), "%d %s", (int)level, line);
	lines++;
}

static void lines_go_to_the_sink(void)
{
	rk_log_set_sink(keep);
	rk_log(RK_LOG_WARNING, "value %d", 7);
	ok(!strcmp(last, "2 value 7"), "level and text arrive: %s", last);
	lines = 0;
	rk_log(RK_LOG_DEBUG, "quiet");
	ok(lines == 0, "below the level nothing does");
	rk_log(RK_LOG_ERROR, "%0600d", 1);
	ok(strlen(last) < 520, "a long line is cut");
	rk_log_set_sink(NULL);
}

static void a_peer_cannot_fill_the_log(void)
{
	struct rk_log_limit limit = { 0 }, other = { 0 };
	unsigned said = 0;

	for (unsigned n = 0; n < 1000; n++)
		said += rk_log_may(&limit);
	ok(said >= 1 && said < 1000, "%u of 1000 lines", said);
	ok(rk_log_may(&other), "one limit does not silence another");
}

int main(void)
{
	lines_go_to_the_sink();
	a_peer_cannot_fill_the_log();
	return ok_done();
}
