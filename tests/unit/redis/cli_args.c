/* SPDX-License-Identifier: BSD-3-Clause */
/* A typed line becomes arguments by redis-cli's rules. */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "tools/redis_cli.h"
#include "tools/tool.h"

#include "ok.h"

/* expected: the arguments, each followed by '|'. */
static void splits(const char *line, const char *expected)
{
	struct cli_args args;
	char got[256] = "";
	int ret = cli_args_split(&args, line);

	for (int i = 0; i < args.argc; i++) {
		strcat(got, args.argv[i]);
		strcat(got, "|");
	}
	cli_args_free(&args);
	if (!ok(!ret && !strcmp(got, expected), "a line gives %d arguments",
		(int)strlen(expected)))
		printf("# %s gave %s\n", line, got);
}

static void rules(void)
{
	splits("", "");
	splits("  \t\n", "");
	splits("GET key\n", "GET|key|");
	splits("SET  k \"a b\"", "SET|k|a b|");
	splits("X \"\" ''", "X|||");
	splits("X \"\\n\\r\\t\\b\\a\"", "X|\n\r\t\b\a|");
	splits("X \"\\x41\\x6A\\x6a\"", "X|Ajj|");
	splits("X \"\\x4\\xzz\\q\\\\\\\"\"", "X|x4xzzq\\\"|");
	splits("X '\\n'", "X|\\n|");
	splits("X 'it\\'s'", "X|it's|");
	splits("X a\"b c\"", "X|ab c|");
	splits("X a\\nb", "X|a\\nb|");
}

static void zero_bytes_survive(void)
{
	struct cli_args args;

	ok(!cli_args_split(&args, "SET k \"a\\x00b\"") && args.argc == 3 &&
		   args.lengths[2] == 3 && !memcmp(args.argv[2], "a\0b", 3),
	   "\\x00 is a byte like others");
	cli_args_free(&args);
}

static void open_quotes_are_refused(void)
{
	static const char *const bad[] = {
		"X \"abc", "X 'abc", "X \"a\"b", "X 'a'b", "X \"abc\\\"",
		"X \"a\"\"b\"", "X \"abc\\",
	};

	for (size_t i = 0; i < RK_ARRAY_SIZE(bad); i++) {
		struct cli_args args;

		ok(cli_args_split(&args, bad[i]) == -EINVAL && !args.argc,
		   "%s", bad[i]);
	}
}

static void every_allocation_may_fail(void)
{
	long before = rk_alloc_live();
	int n = 0, ret;

	for (;; n++) {
		struct cli_args args;

		rk_alloc_fail_at(n);
		ret = cli_args_split(&args, "SET key \"a value\"");
		rk_alloc_fail_at(-1);
		cli_args_free(&args);
		if (ret != -ENOMEM || rk_alloc_live() != before)
			break;
	}
	ok(!ret && n >= 9 && rk_alloc_live() == before,
	   "each of %d allocations may fail, nothing leaks", n);
}

static void nearest_word(void)
{
	ok(rk_word_distance("bench", "benhc") == 2 &&
		   rk_word_distance("redis", "reds") == 1 &&
		   rk_word_distance("", "abc") == 3 &&
		   rk_word_distance("same", "same") == 0,
	   "the distance of words counts single changes");
}

static void numbers(void)
{
	long long n = 0;

	ok(!rk_tool_number("64k", 0, 1 << 20, &n) && n == 65536, "64k");
	ok(!rk_tool_number("-1", -1, 5, &n) && n == -1, "-1");
	ok(rk_tool_number("", 0, 5, &n) && rk_tool_number("6", 0, 5, &n) &&
		   rk_tool_number("1x", 0, 5, &n) &&
		   rk_tool_number("1kk", 0, 5000, &n) &&
		   rk_tool_number("9999999999999G", 0, INT64_MAX, &n) &&
		   rk_tool_number("99999999999999999999", 0, INT64_MAX, &n),
	   "what is no number in the range is refused");
}

int main(void)
{
	rules();
	zero_bytes_survive();
	open_quotes_are_refused();
	every_allocation_may_fail();
	nearest_word();
	numbers();
	return ok_done();
}
