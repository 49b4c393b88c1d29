/* SPDX-License-Identifier: BSD-3-Clause */
/* What rdmakit bench redis prints: a table for people, or one JSON object. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench_redis.h"

/* The target that rates are compared with. */
static unsigned base_target(const struct bench_target *targets, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (!strcmp(targets[i].uri.scheme, "tcp"))
			return i;
	return 0;
}

static void print_row(const struct bench_op *op,
		      const struct bench_target *target,
		      const struct bench_result *result,
		      const struct bench_result *base)
{
	char where[RK_URI_TEXT_MAX], cpu[16] = "-";

	rk_uri_text(&target->uri, where, sizeof(where));
	if (result->cpu_us_per_op >= 0)
		snprintf(cpu, sizeof(cpu), "%.2f", result->cpu_us_per_op);
	printf("%-10s %-28.28s %9.0f %6.2fx %8.1f %8.1f %8.1f %8.1f %8.1f "
	       "%9.1f %8s %8.1f %6llu\n",
	       op->name, where, result->ops_per_s,
	       result->ops_per_s / base->ops_per_s, result->p50_us,
	       result->p90_us, result->p99_us, result->p999_us, result->max_us,
	       result->bytes_per_s / 1e6, cpu, result->setup_us,
	       (unsigned long long)result->errors);
}

void bench_report(const struct bench_options *options,
		  const struct bench_op *const *ops, unsigned op_count,
		  const struct bench_target *targets, unsigned target_count,
		  const struct bench_result *results)
{
	unsigned base = base_target(targets, target_count);

	printf("%u connections, pipeline %u, values of %zu bytes, median of "
	       "%u rounds\n",
	       options->connections, options->pipeline, options->bytes,
	       options->rounds);
	for (unsigned i = 0; i < target_count; i++)
		if (targets[i].device[0])
			printf("%s runs on device %s\n", targets[i].uri.scheme,
			       targets[i].device);
	printf("\n%-10s %-28s %9s %7s %8s %8s %8s %8s %8s %9s %8s %8s %6s\n",
	       "", "", "ops/s", "ratio", "p50 us", "p90", "p99", "p99.9",
	       "max", "MB/s", "CPU us", "setup us", "errors");
	for (unsigned i = 0; i < op_count; i++)
		for (unsigned j = 0; j < target_count; j++)
			print_row(ops[i], &targets[j],
				  &results[i * target_count + j],
				  &results[i * target_count + base]);
}

static json_t *number_or_null(double value)
{
	return value < 0 ? json_null() : json_real(value);
}

static json_t *one_result(const struct bench_options *options,
			  const struct bench_op *op,
			  const struct bench_target *target,
			  const struct bench_result *result)
{
	char where[RK_URI_TEXT_MAX];
	json_t *object;

	rk_uri_text(&target->uri, where, sizeof(where));
	object = json_pack(
		"{s:s, s:s, s:s, s:f, s:f, s:{s:f, s:f, s:f, s:f, s:f}, s:o, "
		"s:f, s:I, s:i, s:i, s:I, s:I, s:I}",
		"transport", target->uri.scheme, "uri", where, "op", op->name,
		"ops_per_s", result->ops_per_s, "bytes_per_s",
		result->bytes_per_s, "latency_us", "p50", result->p50_us,
		"p90", result->p90_us, "p99", result->p99_us, "p999",
		result->p999_us, "max", result->max_us, "cpu_us_per_op",
		number_or_null(result->cpu_us_per_op), "setup_us",
		result->setup_us, "errors", (json_int_t)result->errors,
		"connections", (int)options->connections, "pipeline",
		(int)options->pipeline, "bytes", (json_int_t)options->bytes,
		"messages_sent", (json_int_t)result->messages_sent,
		"messages_received", (json_int_t)result->messages_received);
	if (object && target->device[0])
		json_object_set_new(object, "device",
				    json_string(target->device));
	return object;
}

int bench_report_json(const struct bench_options *options,
		      const struct bench_op *const *ops, unsigned op_count,
		      const struct bench_target *targets,
		      unsigned target_count,
		      const struct bench_result *results)
{
	json_t *list = json_array();
	json_t *object = json_pack("{s:o}", "results", list);
	int ret = object ? 0 : -ENOMEM;

	for (unsigned i = 0; i < op_count * target_count && !ret; i++) {
		json_t *result = one_result(options, ops[i / target_count],
					    &targets[i % target_count],
					    &results[i]);

		if (!result || json_array_append_new(list, result))
			ret = -ENOMEM;
	}
	if (!ret && json_dumpf(object, stdout, JSON_INDENT(2) |
			       JSON_REAL_PRECISION(9)))
		ret = -EIO;
	printf("\n");
	if (ret)
		fprintf(stderr, "rdmakit bench redis: %s\n", strerror(-ret));
	json_decref(object);
	return ret;
}
