/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/tool.h"
int rk_tool_redis(int argc, char **argv) { return 1; }
