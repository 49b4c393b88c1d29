/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands as bytes, and the buffer they gather in. */
#include "redis/client/resp_format.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"

#include "ok.h"

static bool holds(const struct rk_buffer *buffer, const char *text,
		  size_t bytes)
{
	return rk_buffer_bytes(buffer) == bytes &&
	       !memcmp(rk_buffer_head(buffer), text, bytes);
}

static void arguments_become_bulk_strings(void)
{
	static const char *const set[] = { "SET", "a key", "" };
	static const char *const raw[] = { "ECHO", "x\0y\r\n" };
	static const size_t lengths[] = { 4, 5 };
	static const char expected[] =
		"*3\r\n$3\r\nSET\r\n$5\r\na key\r\n$0\r\n\r\n";
	static const char second[] =
		"*2\r\n$4\r\nECHO\r\n$5\r\nx\0y\r\n\r\n";
	struct rk_buffer out = { 0 };

	ok(!rk_resp_format(&out, 3, set, NULL) &&
		   holds(&out, expected, sizeof(expected) - 1),
	   "strings, an empty one too");
	rk_buffer_consume(&out, rk_buffer_bytes(&out));
	ok(!rk_resp_format(&out, 2, raw, lengths) &&
		   holds(&out, second, sizeof(second) - 1),
	   "bytes of any value");
	ok(rk_resp_format(&out, 0, set, NULL) == -EINVAL &&
		   holds(&out, second, sizeof(second) - 1),
	   "a command without a name is refused, nothing is added");
	rk_buffer_free(&out);
}

static void long_arguments_have_long_lengths(void)
{
	enum { BYTES = 123456 };
	char *value = rk_zalloc(BYTES + 1);
	const char *argv[] = { "X", value };
	struct rk_buffer out = { 0 };

	ok_or_die(value, "memory");
	memset(value, 'v', BYTES);
	ok(!rk_resp_format(&out, 2, argv, NULL) &&
		   !strncmp(rk_buffer_head(&out),
			    "*2\r\n$1\r\nX\r\n$123456\r\nvvv", 23) &&
		   rk_buffer_bytes(&out) == 20 + BYTES + 2,
	   "a length of six digits");
	rk_buffer_free(&out);
	rk_free(value);
}

static void no_memory_adds_nothing(void)
{
	static const char *const ping[] = { "PING" };
	struct rk_buffer out = { 0 };
	long before = rk_alloc_live();

	rk_alloc_fail_at(0);
	ok(rk_resp_format(&out, 1, ping, NULL) == -ENOMEM &&
		   !rk_buffer_bytes(&out),
	   "without memory nothing is added");
	rk_alloc_fail_at(-1);
	rk_buffer_free(&out);
	ok(rk_alloc_live() == before, "and nothing leaks");
}

static void buffer_moves_bytes_through(void)
{
	struct rk_buffer buffer = { 0 };
	unsigned char in = 0, out = 0;
	bool good = true;

	for (int i = 0; i < 100000 && good; i++) {
		good &= !rk_buffer_append(&buffer, &in, 1);
		in++;
		good &= !rk_buffer_append(&buffer, &in, 1);
		in++;
		good &= *(unsigned char *)rk_buffer_head(&buffer) == out++;
		rk_buffer_consume(&buffer, 1);
		if (i % 1000 != 999)
			continue;
		while (good && rk_buffer_bytes(&buffer)) {
			good &= *(unsigned char *)rk_buffer_head(&buffer) ==
				out++;
			rk_buffer_consume(&buffer, 1);
		}
	}
	ok(good, "bytes leave in the order they came");
	ok(buffer.capacity <= 8192, "the memory is that of the fill level");
	rk_buffer_free(&buffer);
}

int main(void)
{
	arguments_become_bulk_strings();
	long_arguments_have_long_lengths();
	no_memory_adds_nothing();
	buffer_moves_bytes_through();
	return ok_done();
}
