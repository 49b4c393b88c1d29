/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rdmakit bench redis, what its files share: what is measured, where, and what
 * came out.  One thread.
 */
#ifndef RK_TOOLS_BENCH_REDIS_H
#define RK_TOOLS_BENCH_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"
#include "rdmakit/redis.h"
#include "redis/client/transport.h"
#include "tools/histogram.h"

enum {
	BENCH_TARGETS_MAX = 16,
	BENCH_ROUNDS_MAX = 99,
	BENCH_STALL_MS = 10000, /* no answer for so long ends the run */
	BENCH_CONNECT_MS = 5000,
};

struct bench_options {
	unsigned connections, pipeline, rounds;
	size_t bytes;
	uint64_t requests; /* of each round */
	unsigned runtime_s; /* instead of requests, if not 0 */
	uint64_t keyspace; /* keys used, at random if more than one */
	int spin_us;	   /* -1: what suits the transport */
	const char *device;
	pid_t server_pid; /* 0: ask the server for its CPU time */
	bool json, progress;
};

/* One operation; the table of all ends with a NULL name. */
struct bench_op {
	const char *name;
	/* The command.  In a word "%k" is a number from the keyspace and a
	 * word "%v" is the value. */
	const char *words[5];
	char mark; /* first byte of a good reply */
	bool nil_is_good;
	bool reads_value; /* the reply is what was SET under that number */
	/* Run before each round, every key: NULL or a command as above. */
	const char *prepare[5];
	uint64_t prepare_times; /* 0: once per key */
};

extern const struct bench_op bench_ops[];

const struct bench_op *bench_op_find(const char *name, size_t bytes);

/* The bytes that belong to a key; pattern is bench_pattern_new()'s. */
enum { BENCH_PATTERN_EXTRA = 4096 };

static inline const char *bench_value(const char *pattern, uint64_t key)
{
	return pattern + key % (BENCH_PATTERN_EXTRA - 3);
}

RK_MUST_CHECK char *bench_pattern_new(size_t value_bytes);

/*
 * An operation ready to be sent: the request is head, then, if it carries a
 * value, the value and "\r\n".
 */
struct bench_request {
	char *head;
	size_t head_bytes;
	size_t number_at; /* twelve digits in head; SIZE_MAX: none */
	bool has_value;
};

RK_MUST_CHECK int bench_request_build(struct bench_request *out,
				      const char *const *words,
				      size_t value_bytes);
void bench_request_free(struct bench_request *request);

/* Write key into the twelve digits at to. */
void bench_put_number(char *to, uint64_t key);

struct bench_target {
	const char *text; /* as the user wrote it */
	struct rk_uri uri;
	const struct rk_transport *transport;
	struct rk_redis *control; /* for preparing and INFO */
	char device[64];	  /* empty: it has none */
};

/* One round of one operation on one target. */
struct bench_result {
	double ops_per_s, bytes_per_s;
	double p50_us, p90_us, p99_us, p999_us, max_us;
	double cpu_us_per_op;
	double setup_us; /* of one connection, not in the latency */
	uint64_t operations, errors;
	uint64_t messages_sent, messages_received; /* what the device saw */
	char first_error[120];
};

/* Run one round.  Negative errno: it could not be finished, and why is on
 * standard error. */
RK_MUST_CHECK int bench_round(const struct bench_options *options,
			      struct bench_target *target,
			      const struct bench_op *op, const char *pattern,
			      const char *progress_text,
			      struct bench_result *out);

/* The load itself, between two readings of the server's CPU time. */
RK_MUST_CHECK int bench_load(const struct bench_options *options,
			     struct bench_target *target,
			     const struct bench_op *op, const char *pattern,
			     const char *progress_text,
			     struct bench_result *out);

/* CPU seconds that the server has used; negative: not known. */
double bench_server_cpu_s(const struct bench_options *options,
			  struct bench_target *target);

/* The round with the median rate, with the errors of all; sorts rounds. */
void bench_median(struct bench_result *rounds, unsigned count,
		  struct bench_result *out);

/* Delete the keys that any operation may have written. */
void bench_clean_up(const struct bench_options *options,
		    struct bench_target *target);

/* results[op][target]; ops in the order asked for. */
void bench_report(const struct bench_options *options,
		  const struct bench_op *const *ops, unsigned op_count,
		  const struct bench_target *targets, unsigned target_count,
		  const struct bench_result *results);
int bench_report_json(const struct bench_options *options,
		      const struct bench_op *const *ops, unsigned op_count,
		      const struct bench_target *targets,
		      unsigned target_count,
		      const struct bench_result *results);

#endif
