/* SPDX-License-Identifier: BSD-3-Clause */
/* See resp_format.h. */
#include "redis/client/resp_format.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

enum { HEADER_MAX = 24 }; /* a mark, 20 digits, "\r\n" */

static char *put_header(char *at, char mark, size_t value)
{
	char digits[20];
	unsigned count = 0;

	*at++ = mark;
	do
		digits[count++] = (char)('0' + value % 10);
	while (value /= 10);
	while (count)
		*at++ = digits[--count];
	*at++ = '\r';
	*at++ = '\n';
	return at;
}

static size_t argument_bytes(const char *const *argv, const size_t *lengths,
			     int i)
{
	return lengths ? lengths[i] : strlen(argv[i]);
}

int rk_resp_format(struct rk_buffer *out, int argc, const char *const *argv,
		   const size_t *lengths)
{
	size_t total = HEADER_MAX;
	char *at;
	int ret;

	if (argc < 1)
		return -EINVAL;
	for (int i = 0; i < argc; i++)
		if (__builtin_add_overflow(total,
					   argument_bytes(argv, lengths, i) +
						   HEADER_MAX + 2,
					   &total))
			return -ENOMEM;
	ret = rk_buffer_reserve(out, total);
	if (ret)
		return ret;
	at = put_header(rk_buffer_tail(out), '*', (size_t)argc);
	for (int i = 0; i < argc; i++) {
		size_t bytes = argument_bytes(argv, lengths, i);

		at = put_header(at, '$', bytes);
		if (bytes)
			memcpy(at, argv[i], bytes);
		at += bytes;
		*at++ = '\r';
		*at++ = '\n';
	}
	rk_buffer_commit(out, (size_t)(at - rk_buffer_tail(out)));
	return 0;
}
