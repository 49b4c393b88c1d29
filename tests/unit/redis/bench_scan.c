/* SPDX-License-Identifier: BSD-3-Clause */
/* The benchmark's scanner sees what is wrong, wherever a reply is cut. */
#include "tools/bench_scan.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "tools/bench_redis.h"

#include "ok.h"

/* Replies in wire, fed in two pieces: '.' good, 'w' wrong; "!" no RESP. */
static const char *verdicts(const struct bench_expectation *expected,
			    const char *wire, size_t cut)
{
	static char out[64];
	struct bench_scan scan = { 0 };
	size_t bytes = strlen(wire), at = 0, used = 0;

	while (at < bytes && used < sizeof(out) - 2) {
		size_t end = at < cut ? cut : bytes;
		bool done;
		int64_t taken = bench_scan_take(&scan, expected, wire + at,
						end - at, &done);

		if (taken < 0) {
			out[used++] = '!';
			break;
		}
		at += (size_t)taken;
		if (done)
			out[used++] = scan.wrong ? 'w' : '.';
	}
	if (scan.inside || scan.line_bytes)
		out[used++] = '~';
	out[used] = '\0';
	return out;
}

static void gives(const struct bench_expectation *expected, const char *wire,
		  const char *wanted, const char *what)
{
	bool good = true;

	for (size_t cut = 0; cut <= strlen(wire); cut++) {
		const char *got = verdicts(expected, wire, cut);

		if (strcmp(got, wanted) != 0) {
			printf("# cut at %zu: %s, wanted %s\n", cut, got,
			       wanted);
			good = false;
		}
	}
	ok(good, "%s", what);
}

static void simple_replies(void)
{
	static const struct bench_expectation ok_reply = { .mark = '+' };
	static const struct bench_expectation number = { .mark = ':' };

	gives(&ok_reply, "+OK\r\n+PONG\r\n", "..", "statuses");
	gives(&ok_reply, "+OK\r\n-ERR no\r\n+OK\r\n", ".w.",
	      "an error between good ones");
	gives(&ok_reply, ":1\r\n$2\r\nab\r\n", "ww", "replies of another type");
	gives(&number, ":1\r\n:-5\r\n", "..", "integers");
	gives(&ok_reply, "+OK\r\n+O", ".~", "an unfinished one");
}

static void values_are_compared(void)
{
	static const struct bench_expectation value = {
		.mark = '$', .value = "hello", .value_bytes = 5,
	};
	static const struct bench_expectation maybe = {
		.mark = '$', .nil_is_good = true,
	};

	gives(&value, "$5\r\nhello\r\n$5\r\nhello\r\n", "..", "the value");
	gives(&value, "$5\r\nhellO\r\n$5\r\nhello\r\n", "w.",
	      "one byte is wrong");
	gives(&value, "$4\r\nhell\r\n$6\r\nhelloo\r\n$0\r\n\r\n", "www",
	      "the length is wrong");
	gives(&value, "$-1\r\n$5\r\nhello\r\n", "w.", "nothing is no value");
	gives(&maybe, "$-1\r\n$3\r\na\r\n\r\n", "..", "unless it may be");
}

static void arrays_are_one_reply(void)
{
	static const struct bench_expectation array = { .mark = '*' };

	gives(&array,
	      "*2\r\n*1\r\n:1\r\n$1\r\nx\r\n*0\r\n*-1\r\n%1\r\n+a\r\n*0\r\n",
	      "...w", "nested, empty, nil, and a map");
	gives(&array, "*1\r\n-ERR inside\r\n", ".", "an error inside");
}

static void no_resp_ends_it(void)
{
	static const struct bench_expectation any = { .mark = '+' };
	static const char *const bad[] = {
		"hello\r\n", "$x\r\n", "$-2\r\n", "$99999999999999\r\n",
		"*9999999999\r\n", "*\r\n", "\r\n",
	};

	for (size_t i = 0; i < RK_ARRAY_SIZE(bad); i++) {
		const char *got = verdicts(&any, bad[i], 0);

		ok(got[0] == '!', "bad input %zu is no RESP", i);
	}
}

static void requests_are_commands(void)
{
	struct bench_request request;
	const struct bench_op *set = bench_op_find("set", 3);
	char *pattern = bench_pattern_new(64);

	ok_or_die(set && !bench_request_build(&request, set->words, 64) &&
			  pattern,
		  "a SET");
	bench_put_number(request.head + request.number_at, 1234);
	ok(request.has_value && request.head_bytes == 51 &&
		   !memcmp(request.head,
			   "*3\r\n$3\r\nSET\r\n$26\r\n"
			   "rdmakit:bench:000000001234\r\n$64\r\n", 51),
	   "has its key and the length of the value");
	ok(memcmp(bench_value(pattern, 1), bench_value(pattern, 2), 64) != 0,
	   "each key has another value");
	bench_request_free(&request);
	rk_free(pattern);
}

static void the_median_is_reported(void)
{
	struct bench_result rounds[3] = {
		{ .ops_per_s = 30, .errors = 1, .first_error = "bad" },
		{ .ops_per_s = 10 },
		{ .ops_per_s = 20, .p50_us = 7 },
	};
	struct bench_result out;

	bench_median(rounds, 3, &out);
	ok(out.ops_per_s == 20 && out.p50_us == 7, "the median round, whole");
	ok(out.errors == 1 && !strcmp(out.first_error, "bad"),
	   "with the errors of all rounds");
}

int main(void)
{
	simple_replies();
	values_are_compared();
	arrays_are_one_reply();
	no_resp_ends_it();
	requests_are_commands();
	the_median_is_reported();
	return ok_done();
}
