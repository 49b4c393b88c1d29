/* SPDX-License-Identifier: BSD-3-Clause */
/* See bench_scan.h. */
#include "tools/bench_scan.h"

#include <errno.h>
#include <string.h>

enum { COUNT_MAX = 1 << 30 };

/* The number after the mark; -1 for nil. */
static bool line_number(const struct bench_scan *scan, int64_t *out)
{
	int64_t value = 0;
	unsigned i = 1;

	if (scan->line_bytes == 3 && !memcmp(scan->line + 1, "-1", 2)) {
		*out = -1;
		return true;
	}
	if (scan->line_bytes < 2 || scan->line_bytes > 11)
		return false;
	for (; i < scan->line_bytes; i++) {
		unsigned digit = (unsigned char)scan->line[i] - '0';

		if (digit > 9)
			return false;
		value = value * 10 + digit;
	}
	*out = value;
	return value <= COUNT_MAX;
}

/* A whole line is in scan->line: a value, or the head of one. */
static int take_line(struct bench_scan *scan,
		     const struct bench_expectation *expected)
{
	char mark = scan->line[0];
	bool first = !scan->inside;
	int64_t number;

	if (first) {
		scan->inside = true;
		scan->elements_left = 1;
		scan->mark = mark;
		scan->wrong = mark != expected->mark;
	}
	scan->elements_left--;
	switch (mark) {
	case '+':
	case '-':
	case ':':
	case '_':
	case '#':
	case ',':
	case '(':
		return 0;
	case '$':
	case '=':
	case '!':
		if (!line_number(scan, &number))
			return -EPROTO;
		if (first && number < 0)
			scan->wrong |= !expected->nil_is_good;
		scan->bulk_left = number < 0 ? 0 : (uint64_t)number + 2;
		scan->comparing = first && number >= 0 && expected->value;
		if (scan->comparing &&
		    (uint64_t)number != expected->value_bytes) {
			scan->wrong = true;
			scan->comparing = false;
		}
		return 0;
	case '*':
	case '~':
	case '>':
	case '%':
		if (!line_number(scan, &number))
			return -EPROTO;
		if (number > 0)
			scan->elements_left += (uint64_t)number
					       << (mark == '%');
		return 0;
	default: /* a byte from the wire, no enum of ours */
		return -EPROTO;
	}
}

static size_t take_bulk(struct bench_scan *scan,
			const struct bench_expectation *expected,
			const char *data, size_t bytes)
{
	size_t take = rk_min((uint64_t)bytes, scan->bulk_left);
	size_t at, compare;

	if (scan->comparing && scan->bulk_left > 2) {
		at = expected->value_bytes + 2 - scan->bulk_left;
		compare = rk_min(take, expected->value_bytes - at);
		if (memcmp(data, expected->value + at, compare) != 0)
			scan->wrong = true;
	}
	scan->bulk_left -= take;
	return take;
}

/* Bytes of a line; *ended says whether "\n" was among them. */
static size_t collect_line(struct bench_scan *scan, const char *data,
			   size_t bytes, bool *ended)
{
	for (size_t i = 0; i < bytes; i++) {
		if (data[i] == '\n') {
			*ended = true;
			return i + 1;
		}
		if (data[i] != '\r' && scan->line_bytes < sizeof(scan->line) - 1)
			scan->line[scan->line_bytes++] = data[i];
	}
	*ended = false;
	return bytes;
}

int64_t bench_scan_take(struct bench_scan *scan,
			const struct bench_expectation *expected,
			const char *data, size_t bytes, bool *done)
{
	size_t taken = 0;
	bool ended;

	*done = false;
	while (taken < bytes) {
		if (scan->bulk_left) {
			taken += take_bulk(scan, expected, data + taken,
					   bytes - taken);
			if (scan->bulk_left)
				break;
		} else {
			taken += collect_line(scan, data + taken,
					      bytes - taken, &ended);
			if (!ended)
				break;
			scan->line[scan->line_bytes] = '\0';
			if (take_line(scan, expected))
				return -EPROTO;
			scan->line_bytes = 0;
			if (scan->bulk_left)
				continue;
		}
		if (!scan->elements_left) {
			scan->inside = false;
			*done = true;
			break;
		}
	}
	return (int64_t)taken;
}
