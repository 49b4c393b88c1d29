/* SPDX-License-Identifier: BSD-3-Clause */
/* The device a context gets, and the words about it. */
#include "world.h"

static char last_line[600];

static void remember(enum rk_log_level level, const char *line)
{
	snprintf(last_line, sizeof(last_line), "%s", line);
}

static void by_name(void)
{
	struct rk_context_params params = { .device = "no-such-device",
					    .completion_vector = -1 };
	struct rk_context *context = (void *)1;
	struct rk_context_info info;

	ok(rk_context_open(&context, &params) == -ENODEV && !context,
	   "a device that is not there");
	ok(strstr(last_line, "no-such-device") && strstr(last_line, "soft"),
	   "the line names it and those there are: %s", last_line);
	params.device = "soft";
	ok(!rk_context_open(&context, &params), "the software device");
	rk_context_info_get(context, &info);
	ok(info.software && !strcmp(info.device, "soft") &&
		   !strcmp(info.reason, "asked for"),
	   "says that it is, and why");
	ok(rk_context_fd(context) >= 0 &&
		   rk_context_deadline_ns(context) == RK_NEVER,
	   "an idle context has a descriptor and no deadline");
	rk_context_close(context);
	rk_context_close(NULL);
}

static void by_itself(void)
{
	struct rk_context *context;
	struct rk_context_info info;

	last_line[0] = '\0';
	ok(!rk_context_open(&context, NULL), "no wish: there is always one");
	rk_context_info_get(context, &info);
	ok(info.reason[0], "device %s: %s", info.device, info.reason);
	ok(!info.software || strstr(last_line, "software device"),
	   "falling back to software is said: %s", last_line);
	rk_context_close(context);
}

static void nonsense(void)
{
	struct rk_context_params params = { .device = "soft",
					    .completion_vector = 1000 };
	struct rk_context *context;

	ok(rk_context_open(&context, &params) == -EINVAL && !context,
	   "a completion vector the device does not have");
}

int main(void)
{
	rk_log_set_sink(remember);
	by_name();
	by_itself();
	nonsense();
	return ok_done();
}
