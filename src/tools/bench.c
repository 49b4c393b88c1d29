/* SPDX-License-Identifier: BSD-3-Clause */
/* rdmakit bench: a table of what can be measured. */
#include <stddef.h>

#include "tools/tool.h"

static const struct rk_tool benches[] = {
	{ "redis", "rate, latency and CPU of a Redis or Valkey server",
	  rk_tool_bench_redis },
	{ NULL, NULL, NULL },
};

int rk_tool_bench(int argc, char **argv)
{
	return rk_tool_dispatch(benches, "rdmakit bench", argc, argv);
}
