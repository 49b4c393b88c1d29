/* SPDX-License-Identifier: BSD-3-Clause */
/* See tool.h. */
#include "tools/tool.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MAX = 32 };

unsigned rk_word_distance(const char *a, const char *b)
{
	unsigned row[WORD_MAX + 1];
	size_t a_bytes = rk_min(strlen(a), (size_t)WORD_MAX);
	size_t b_bytes = rk_min(strlen(b), (size_t)WORD_MAX);

	for (size_t j = 0; j <= b_bytes; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= a_bytes; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_bytes; j++) {
			unsigned change = diagonal + (a[i - 1] != b[j - 1]);
			unsigned step = rk_min(row[j], row[j - 1]) + 1;

			diagonal = row[j];
			row[j] = rk_min(change, step);
		}
	}
	return row[b_bytes];
}

int rk_tool_usage_error(const char *name, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nTry '%s --help'.\n", name);
	return RK_EXIT_USAGE;
}

int rk_tool_number(const char *text, long long min, long long max,
		   long long *out)
{
	static const char units[] = "kMG";
	const char *unit;
	long long value;
	char *end;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (end == text || errno || isspace((unsigned char)*text))
		return -EINVAL;
	if (*end) {
		unit = strchr(units, *end == 'K' ? 'k' : *end);
		if (!unit || end[1] ||
		    __builtin_mul_overflow(value, 1ll << 10 * (unit - units + 1),
					   &value))
			return -EINVAL;
	}
	if (value < min || value > max)
		return -EINVAL;
	*out = value;
	return 0;
}

static void print_tools(FILE *to, const struct rk_tool *tools,
			const char *prefix)
{
	fprintf(to, "Usage: %s COMMAND ...\n\n", prefix);
	for (; tools->name; tools++)
		fprintf(to, "  %-10s %s\n", tools->name, tools->summary);
	fprintf(to, "\n'%s COMMAND --help' says more.\n", prefix);
}

static const struct rk_tool *nearest(const struct rk_tool *tools,
				     const char *word)
{
	const struct rk_tool *best = NULL;
	unsigned best_distance = 3;

	for (; tools->name; tools++) {
		unsigned distance = rk_word_distance(word, tools->name);

		if (distance < best_distance && distance < strlen(word)) {
			best = tools;
			best_distance = distance;
		}
	}
	return best;
}

int rk_tool_dispatch(const struct rk_tool *tools, const char *prefix, int argc,
		     char **argv)
{
	const struct rk_tool *tool;
	char name[64];

	if (argc < 2) {
		print_tools(stderr, tools, prefix);
		return RK_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
	    !strcmp(argv[1], "help")) {
		print_tools(stdout, tools, prefix);
		return RK_EXIT_OK;
	}
	for (tool = tools; tool->name; tool++) {
		if (strcmp(tool->name, argv[1]) != 0)
			continue;
		snprintf(name, sizeof(name), "%s %s", prefix, tool->name);
		argv[1] = name;
		return tool->run(argc - 1, argv + 1);
	}
	tool = nearest(tools, argv[1]);
	if (tool)
		return rk_tool_usage_error(
			prefix, "'%s' is no command; did you mean '%s'?",
			argv[1], tool->name);
	return rk_tool_usage_error(prefix, "'%s' is no command", argv[1]);
}
