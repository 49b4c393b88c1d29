/* SPDX-License-Identifier: BSD-3-Clause */
/* The program rdmakit: a table of subcommands, one file or more for each. */
#include <stdio.h>
#include <string.h>

#include "tools/tool.h"

static const struct rk_tool tools[] = {
	{ "redis", "talk to a Redis or Valkey server", rk_tool_redis },
	{ "bench", "measure", rk_tool_bench },
	{ NULL, NULL, NULL },
};

int main(int argc, char **argv)
{
	if (argc == 2 &&
	    (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))) {
		printf("rdmakit %s\n", RK_VERSION);
		return RK_EXIT_OK;
	}
	return rk_tool_dispatch(tools, "rdmakit", argc, argv);
}
