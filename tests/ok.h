/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole test library: each ok() is one promise, printed as a TAP line.
 * A test program calls its tests from main() and returns ok_done().
 */
#ifndef RK_TESTS_OK_H
#define RK_TESTS_OK_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static int ok_count, ok_failed;

__attribute__((format(printf, 4, 5), unused)) static bool
ok_at(bool good, const char *file, int line, const char *format, ...)
{
	va_list args;

	printf("%sok %d - ", good ? "" : "not ", ++ok_count);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	if (!good) {
		ok_failed++;
		printf("# failed at %s:%d\n", file, line);
	}
	fflush(stdout);
	return good;
}

#define ok(cond, ...) ok_at((cond), __FILE__, __LINE__, __VA_ARGS__)

/* For set-up that must work for the rest to mean anything. */
#define ok_or_die(cond, ...)                      \
	do {                                      \
		if (!ok(cond, __VA_ARGS__)) {     \
			printf("Bail out!\n");    \
			exit(1);                  \
		}                                 \
	} while (0)

__attribute__((unused)) static int ok_done(void)
{
	printf("1..%d\n", ok_count);
	return ok_failed ? 1 : 0;
}

#endif
