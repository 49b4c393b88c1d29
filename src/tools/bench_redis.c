/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rdmakit bench redis: the command line, and the order of things.  For each
 * operation the rounds of all targets are interleaved, so that what else the
 * machine does hits all alike; of each target the round with the median rate
 * is reported.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "tools/bench_redis.h"
#include "tools/tool.h"

enum { OPS_MAX = 32, NAME_BYTES = 160 };

struct plan {
	struct bench_options options;
	const struct bench_op *ops[OPS_MAX];
	unsigned op_count;
	struct bench_target targets[BENCH_TARGETS_MAX];
	unsigned target_count;
	struct bench_result *results; /* [op][target], of the median round */
	char *pattern;
};

static const char help[] =
"Usage: rdmakit bench redis [OPTIONS] URI...\n"
"\n"
"Measure one or several servers, or one server over several transports, in\n"
"one run with interleaved rounds.  A URI is rdma://HOST[:PORT],\n"
"tcp://HOST[:PORT] or unix:///PATH; rates are compared with the first tcp://.\n"
"\n"
"  -c COUNT         connections (50)\n"
"  -P COUNT         requests sent together on a connection (1)\n"
"  -d BYTES         size of a value (64)\n"
"  -n COUNT         requests per round (100000)\n"
"  --runtime S      run each round for so many seconds instead\n"
"  -t OP,OP...      operations (set,get): %s\n"
"  -r COUNT         use so many keys, at random (1)\n"
"  --rounds COUNT   rounds of each, of which the median is shown (3)\n"
"  --device NAME    RDMA device: auto, soft or a name (auto)\n"
"  --spin US        poll so long before sleeping (RDMA: 50, else: 0)\n"
"  --server-pid PID take the server's CPU time from the system instead of\n"
"                   from its INFO\n"
"  --json           print one JSON object\n"
"\n"
"Keys begin with rdmakit:bench: and are deleted at the end.  Values that are\n"
"read are compared with what was written.  The exit code is 1 if any answer\n"
"was an error or wrong.\n";

static void print_help(void)
{
	char names[256] = "";
	size_t used = 0;

	for (const struct bench_op *op = bench_ops; op->name; op++)
		used += (size_t)snprintf(names + used, sizeof(names) - used,
					 "%s%s", used ? "," : "", op->name);
	printf(help, names);
}

static int parse_ops(struct plan *plan, const char *name, const char *list)
{
	plan->op_count = 0;
	while (*list) {
		size_t bytes = strcspn(list, ",");
		const struct bench_op *op = bench_op_find(list, bytes);

		if (!op)
			return rk_tool_usage_error(
				name, "'%.*s' is no operation", (int)bytes,
				list);
		if (plan->op_count == OPS_MAX)
			return rk_tool_usage_error(
				name, "more than %d operations", OPS_MAX);
		plan->ops[plan->op_count++] = op;
		list += bytes + (list[bytes] == ',');
	}
	if (!plan->op_count)
		return rk_tool_usage_error(name, "-t names no operation");
	return 0;
}

enum option_code {
	OPT_RUNTIME = 256,
	OPT_ROUNDS,
	OPT_DEVICE,
	OPT_SPIN,
	OPT_PID,
	OPT_JSON,
	OPT_HELP,
};

static const struct option long_options[] = {
	{ "runtime", required_argument, NULL, OPT_RUNTIME },
	{ "rounds", required_argument, NULL, OPT_ROUNDS },
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "spin", required_argument, NULL, OPT_SPIN },
	{ "server-pid", required_argument, NULL, OPT_PID },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 },
};

/* Options that are numbers, and their ranges. */
static const struct range {
	int code;
	const char *name;
	long long min, max;
} ranges[] = {
	{ 'c', "-c", 1, 100000 },
	{ 'P', "-P", 1, 65536 },
	{ 'd', "-d", 1, 512 << 20 },
	{ 'n', "-n", 1, 1ll << 50 },
	{ 'r', "-r", 1, 999999999999ll },
	{ OPT_RUNTIME, "--runtime", 1, 86400 },
	{ OPT_ROUNDS, "--rounds", 1, BENCH_ROUNDS_MAX },
	{ OPT_SPIN, "--spin", 0, 1000000 },
	{ OPT_PID, "--server-pid", 1, INT32_MAX },
};

static void set_number(struct bench_options *options, int code,
		       long long number)
{
	switch (code) {
	case 'c':
		options->connections = (unsigned)number;
		break;
	case 'P':
		options->pipeline = (unsigned)number;
		break;
	case 'd':
		options->bytes = (size_t)number;
		break;
	case 'n':
		options->requests = (uint64_t)number;
		break;
	case 'r':
		options->keyspace = (uint64_t)number;
		break;
	case OPT_RUNTIME:
		options->runtime_s = (unsigned)number;
		break;
	case OPT_ROUNDS:
		options->rounds = (unsigned)number;
		break;
	case OPT_SPIN:
		options->spin_us = (int)number;
		break;
	case OPT_PID:
		options->server_pid = (pid_t)number;
		break;
	}
}

static int unknown_option(const char *name, int code, const char *word)
{
	if (code == ':')
		return rk_tool_usage_error(name, "%s needs a value", word);
	return rk_tool_usage_error(name, "there is no option %s", word);
}

/* 0, or an exit code plus one. */
static int parse_option(struct plan *plan, const char *name, int code,
			const char *word)
{
	long long number;

	for (size_t i = 0; i < RK_ARRAY_SIZE(ranges); i++) {
		const struct range *range = &ranges[i];

		if (range->code != code)
			continue;
		if (rk_tool_number(optarg, range->min, range->max, &number))
			return 1 + rk_tool_usage_error(
				name, "%s takes a number from %lld to %lld, "
				"not '%s'", range->name, range->min,
				range->max, optarg);
		set_number(&plan->options, code, number);
		return 0;
	}
	if (code == 't')
		return parse_ops(plan, name, optarg) ? 1 + RK_EXIT_USAGE : 0;
	if (code == OPT_DEVICE) {
		plan->options.device = optarg;
	} else if (code == OPT_JSON) {
		plan->options.json = true;
	} else if (code == OPT_HELP) {
		print_help();
		return 1 + RK_EXIT_OK;
	} else {
		return 1 + unknown_option(name, code, word);
	}
	return 0;
}

static int add_target(struct plan *plan, const char *name, const char *text)
{
	struct bench_target *target = &plan->targets[plan->target_count];
	char error[256];

	if (plan->target_count == BENCH_TARGETS_MAX)
		return rk_tool_usage_error(name, "more than %d URIs",
					   BENCH_TARGETS_MAX);
	target->text = text;
	if (rk_uri_parse(&target->uri, text, error, sizeof(error)))
		return rk_tool_usage_error(name, "%s", error);
	target->transport = rk_transport_find(target->uri.scheme, error,
					      sizeof(error));
	if (!target->transport)
		return rk_tool_usage_error(name, "%s", error);
	plan->target_count++;
	return 0;
}

static int parse_arguments(struct plan *plan, int argc, char **argv)
{
	int code, at, ret;

	opterr = 0;
	optind = 1;
	for (;;) {
		at = optind;
		code = getopt_long(argc, argv, ":c:P:d:n:r:t:", long_options,
				   NULL);
		if (code == -1)
			break;
		ret = parse_option(plan, argv[0], code, argv[at]);
		if (ret)
			return ret;
	}
	if (optind == argc)
		return 1 + rk_tool_usage_error(argv[0], "no URI was given");
	for (int i = optind; i < argc; i++)
		if (add_target(plan, argv[0], argv[i]))
			return 1 + RK_EXIT_USAGE;
	return 0;
}

static int connect_control(const struct bench_options *options,
			   struct bench_target *target)
{
	const struct rk_redis_params params = {
		.connect_timeout_ms = BENCH_CONNECT_MS,
		.command_timeout_ms = BENCH_STALL_MS,
		.device = options->device,
	};
	int ret = rk_redis_open(&target->control, target->text, &params);

	if (ret)
		fprintf(stderr, "rdmakit bench redis: %s\n",
			target->control ? rk_redis_error(target->control)
					: "out of memory");
	return ret;
}

/* All rounds of one operation; the results of the medians go to out. */
static int run_op(struct plan *plan, const struct bench_op *op,
		  struct bench_result *out)
{
	struct bench_result all[BENCH_TARGETS_MAX][BENCH_ROUNDS_MAX];
	unsigned rounds = plan->options.rounds;
	char text[NAME_BYTES + RK_URI_TEXT_MAX], where[RK_URI_TEXT_MAX];
	int ret;

	memset(all, 0, sizeof(all));
	for (unsigned round = 0; round < rounds; round++) {
		for (unsigned i = 0; i < plan->target_count; i++) {
			rk_uri_text(&plan->targets[i].uri, where,
				    sizeof(where));
			snprintf(text, sizeof(text), "%s  round %u of %u  %s",
				 op->name, round + 1, rounds, where);
			ret = bench_round(&plan->options, &plan->targets[i],
					  op, plan->pattern, text,
					  &all[i][round]);
			if (ret)
				return ret;
		}
	}
	for (unsigned i = 0; i < plan->target_count; i++)
		bench_median(all[i], rounds, &out[i]);
	return 0;
}

static uint64_t count_errors(const struct plan *plan)
{
	uint64_t errors = 0;
	char where[RK_URI_TEXT_MAX];

	for (unsigned i = 0; i < plan->op_count * plan->target_count; i++) {
		const struct bench_result *result = &plan->results[i];

		errors += result->errors;
		if (!result->errors)
			continue;
		rk_uri_text(&plan->targets[i % plan->target_count].uri, where,
			    sizeof(where));
		fprintf(stderr,
			"rdmakit bench redis: %s: %s: %llu errors, the first: "
			"%s\n",
			where, plan->ops[i / plan->target_count]->name,
			(unsigned long long)result->errors,
			result->first_error);
	}
	return errors;
}

static int run_plan(struct plan *plan)
{
	int ret = 0;

	plan->pattern = bench_pattern_new(plan->options.bytes);
	plan->results = rk_calloc(plan->op_count * plan->target_count,
				  sizeof(*plan->results));
	if (!plan->pattern || !plan->results) {
		fprintf(stderr, "rdmakit bench redis: out of memory\n");
		return RK_EXIT_FAILED;
	}
	for (unsigned i = 0; i < plan->target_count && !ret; i++)
		ret = connect_control(&plan->options, &plan->targets[i]);
	/* Which device it is has been said now; each round opens it again. */
	rk_log_set_level(RK_LOG_WARNING);
	for (unsigned i = 0; i < plan->op_count && !ret; i++)
		ret = run_op(plan, plan->ops[i],
			     plan->results + i * plan->target_count);
	if (plan->options.progress)
		fprintf(stderr, "\r\033[K");
	for (unsigned i = 0; i < plan->target_count; i++)
		if (plan->targets[i].control)
			bench_clean_up(&plan->options, &plan->targets[i]);
	if (ret)
		return RK_EXIT_FAILED;
	if (plan->options.json)
		ret = bench_report_json(&plan->options, plan->ops,
					plan->op_count, plan->targets,
					plan->target_count, plan->results);
	else
		bench_report(&plan->options, plan->ops, plan->op_count,
			     plan->targets, plan->target_count, plan->results);
	return ret || count_errors(plan) ? RK_EXIT_FAILED : RK_EXIT_OK;
}

int rk_tool_bench_redis(int argc, char **argv)
{
	struct plan *plan = rk_zalloc(sizeof(*plan));
	int ret;

	if (!plan)
		return RK_EXIT_FAILED;
	plan->options = (struct bench_options){
		.connections = 50,
		.pipeline = 1,
		.rounds = 3,
		.bytes = 64,
		.requests = 100000,
		.keyspace = 1,
		.spin_us = -1,
		.progress = isatty(STDERR_FILENO),
	};
	plan->ops[0] = bench_op_find("set", 3);
	plan->ops[1] = bench_op_find("get", 3);
	plan->op_count = 2;
	ret = parse_arguments(plan, argc, argv);
	ret = ret ? ret - 1 : run_plan(plan);
	for (unsigned i = 0; i < plan->target_count; i++)
		rk_redis_close(plan->targets[i].control);
	rk_free(plan->results);
	rk_free(plan->pattern);
	rk_free(plan);
	return ret;
}
