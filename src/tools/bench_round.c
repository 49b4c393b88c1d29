/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One round of rdmakit bench redis and what surrounds its load: keys written
 * before, the server's CPU time, the median, the keys deleted afterwards.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench_redis.h"

enum { PIPELINE_BYTES = 1 << 20 };

static int control_failed(const struct bench_target *target, int error)
{
	fprintf(stderr, "rdmakit bench redis: %s\n",
		rk_redis_error(target->control));
	return error;
}

static int take_replies(struct bench_target *target, uint64_t count)
{
	struct rk_reply *reply;
	int ret;

	while (count--) {
		ret = rk_redis_read(target->control, &reply);
		if (ret)
			return control_failed(target, ret);
		if (reply->type == RK_REPLY_ERROR) {
			fprintf(stderr,
				"rdmakit bench redis: preparing: %s\n",
				reply->text);
			ret = -EIO;
		}
		rk_reply_free(reply);
		if (ret)
			return ret;
	}
	return 0;
}

/* The command for every number below times, some MiB at a time. */
static int send_many(const struct bench_options *options,
		     struct bench_target *target, const char *const *words,
		     const char *pattern, uint64_t times)
{
	struct bench_request request;
	uint64_t waiting = 0, waiting_bytes = 0;
	int ret = bench_request_build(&request, words, options->bytes);

	for (uint64_t key = 0; key < times && !ret; key++) {
		if (request.number_at != SIZE_MAX)
			bench_put_number(request.head + request.number_at,
					 key);
		ret = rk_redis_append_raw(target->control, request.head,
					  request.head_bytes);
		if (!ret && request.has_value)
			ret = rk_redis_append_raw(target->control,
						  bench_value(pattern, key),
						  options->bytes);
		if (!ret && request.has_value)
			ret = rk_redis_append_raw(target->control, "\r\n", 2);
		if (ret) {
			control_failed(target, ret);
			break;
		}
		waiting++;
		waiting_bytes += request.head_bytes + options->bytes;
		if (waiting_bytes < PIPELINE_BYTES && key + 1 < times)
			continue;
		ret = take_replies(target, waiting);
		waiting = waiting_bytes = 0;
	}
	bench_request_free(&request);
	return ret;
}

int bench_round(const struct bench_options *options,
		struct bench_target *target, const struct bench_op *op,
		const char *pattern, const char *progress_text,
		struct bench_result *out)
{
	uint64_t times = op->prepare_times ? op->prepare_times
					   : options->keyspace;
	int ret = 0;

	if (op->prepare[0])
		ret = send_many(options, target, op->prepare, pattern, times);
	return ret ? ret
		   : bench_load(options, target, op, pattern, progress_text,
				out);
}

void bench_clean_up(const struct bench_options *options,
		    struct bench_target *target)
{
	static const char *const lists[] = {
		"UNLINK", "rdmakit:bench:list",	 "rdmakit:bench:range",
		NULL,
	};
	static const char *const others[] = {
		"UNLINK", "rdmakit:bench:set",	"rdmakit:bench:hash",
		"rdmakit:bench:zset", NULL,
	};
	static const char *const keys[] = {
		"UNLINK", "rdmakit:bench:%k", NULL,
	};
	static const char *const counters[] = {
		"UNLINK", "rdmakit:bench:counter:%k", NULL,
	};

	/* After the measurement: what fails here has been said, no more. */
	if (send_many(options, target, lists, NULL, 1) ||
	    send_many(options, target, others, NULL, 1) ||
	    send_many(options, target, keys, NULL, options->keyspace) ||
	    send_many(options, target, counters, NULL, options->keyspace))
		fprintf(stderr,
			"rdmakit bench redis: keys rdmakit:bench:* were left "
			"behind\n");
}

static double field(const char *text, const char *name)
{
	const char *found = strstr(text, name);

	return found ? strtod(found + strlen(name), NULL) : -1;
}

static double cpu_from_info(struct bench_target *target)
{
	const char *const info[] = { "INFO", "cpu" };
	struct rk_reply *reply;
	double system_s = -1, user_s = -1;

	if (rk_redis_command(target->control, 2, info, NULL, &reply))
		return -1;
	if (reply->type == RK_REPLY_STRING) {
		system_s = field(reply->text, "used_cpu_sys:");
		user_s = field(reply->text, "used_cpu_user:");
	}
	rk_reply_free(reply);
	return system_s < 0 || user_s < 0 ? -1 : system_s + user_s;
}

/* The time that all threads of a process spent on a processor. */
static double cpu_from_system(pid_t pid)
{
	char path[128];
	struct dirent *entry;
	uint64_t total_ns = 0, ns;
	bool found = false;
	DIR *tasks;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	if (!tasks)
		return -1;
	while ((entry = readdir(tasks))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat",
			 (int)pid, entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fscanf(file, "%" SCNu64, &ns) == 1) {
			total_ns += ns;
			found = true;
		}
		fclose(file);
	}
	closedir(tasks);
	return found ? (double)total_ns / 1e9 : -1;
}

double bench_server_cpu_s(const struct bench_options *options,
			  struct bench_target *target)
{
	return options->server_pid ? cpu_from_system(options->server_pid)
				   : cpu_from_info(target);
}

static int by_rate(const void *a, const void *b)
{
	double x = ((const struct bench_result *)a)->ops_per_s;
	double y = ((const struct bench_result *)b)->ops_per_s;

	return x < y ? -1 : x > y;
}

void bench_median(struct bench_result *rounds, unsigned count,
		  struct bench_result *out)
{
	const struct bench_result *bad = NULL;
	uint64_t errors = 0;

	qsort(rounds, count, sizeof(*rounds), by_rate);
	for (unsigned i = 0; i < count; i++) {
		errors += rounds[i].errors;
		if (rounds[i].errors)
			bad = &rounds[i];
	}
	*out = rounds[(count - 1) / 2];
	out->errors = errors;
	if (bad)
		memmove(out->first_error, bad->first_error,
			sizeof(out->first_error));
}
