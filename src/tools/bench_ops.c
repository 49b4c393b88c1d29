/* SPDX-License-Identifier: BSD-3-Clause */
/* What rdmakit bench redis can do, and how the requests are made. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "redis/client/buffer.h"
#include "tools/bench_redis.h"

#define KEY "rdmakit:bench:%k"

enum { NUMBER_DIGITS = 12 };

const struct bench_op bench_ops[] = {
	{ .name = "ping", .words = { "PING" }, .mark = '+' },
	{ .name = "set", .words = { "SET", KEY, "%v" }, .mark = '+' },
	{ .name = "get",
	  .words = { "GET", KEY },
	  .mark = '$',
	  .reads_value = true,
	  .prepare = { "SET", KEY, "%v" } },
	{ .name = "incr",
	  .words = { "INCR", "rdmakit:bench:counter:%k" },
	  .mark = ':' },
	{ .name = "lpush",
	  .words = { "LPUSH", "rdmakit:bench:list", "%v" },
	  .mark = ':',
	  .prepare = { "DEL", "rdmakit:bench:list" },
	  .prepare_times = 1 },
	{ .name = "lpop",
	  .words = { "LPOP", "rdmakit:bench:list" },
	  .mark = '$',
	  .nil_is_good = true,
	  .prepare = { "LPUSH", "rdmakit:bench:list", "%v" },
	  .prepare_times = 10000 },
	{ .name = "lrange_100",
	  .words = { "LRANGE", "rdmakit:bench:range", "0", "99" },
	  .mark = '*',
	  .prepare = { "LPUSH", "rdmakit:bench:range", "%v" },
	  .prepare_times = 100 },
	{ .name = "sadd",
	  .words = { "SADD", "rdmakit:bench:set", "member:%k" },
	  .mark = ':' },
	{ .name = "hset",
	  .words = { "HSET", "rdmakit:bench:hash", "field:%k", "%v" },
	  .mark = ':' },
	{ .name = "zadd",
	  .words = { "ZADD", "rdmakit:bench:zset", "0", "member:%k" },
	  .mark = ':' },
	{ .name = NULL },
};

const struct bench_op *bench_op_find(const char *name, size_t bytes)
{
	for (const struct bench_op *op = bench_ops; op->name; op++)
		if (strlen(op->name) == bytes &&
		    !strncasecmp(op->name, name, bytes))
			return op;
	return NULL;
}

/* Printable, without a period that a shifted copy could hide in. */
char *bench_pattern_new(size_t value_bytes)
{
	size_t bytes = value_bytes + BENCH_PATTERN_EXTRA;
	char *pattern = rk_zalloc(bytes);
	uint64_t state = 0x9e3779b97f4a7c15ull;

	if (!pattern)
		return NULL;
	for (size_t i = 0; i < bytes; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		pattern[i] = (char)('!' + (state >> 32) % 90);
	}
	return pattern;
}

void bench_put_number(char *to, uint64_t key)
{
	for (int i = NUMBER_DIGITS - 1; i >= 0; i--) {
		to[i] = (char)('0' + key % 10);
		key /= 10;
	}
}

static int append_text(struct rk_buffer *buffer, const char *text)
{
	return rk_buffer_append(buffer, text, strlen(text));
}

/* One word as an argument; a value only announces its length. */
static int append_word(struct bench_request *request, struct rk_buffer *buffer,
		       const char *word, size_t value_bytes)
{
	const char *number = strstr(word, "%k");
	size_t bytes = strlen(word);
	char length[24];
	int ret;

	if (!strcmp(word, "%v")) {
		snprintf(length, sizeof(length), "$%zu\r\n", value_bytes);
		request->has_value = true;
		return append_text(buffer, length);
	}
	if (number)
		bytes += NUMBER_DIGITS - 2;
	snprintf(length, sizeof(length), "$%zu\r\n", bytes);
	ret = append_text(buffer, length);
	if (!ret && number) {
		ret = rk_buffer_append(buffer, word, (size_t)(number - word));
		request->number_at = buffer->tail;
		if (!ret)
			ret = append_text(buffer, "000000000000");
		word = number + 2;
	}
	if (!ret)
		ret = append_text(buffer, word);
	return ret ? ret : append_text(buffer, "\r\n");
}

int bench_request_build(struct bench_request *out, const char *const *words,
			size_t value_bytes)
{
	struct rk_buffer buffer = { 0 };
	char count[24];
	unsigned words_used = 0;
	int ret;

	*out = (struct bench_request){ .number_at = SIZE_MAX };
	while (words_used < 5 && words[words_used])
		words_used++;
	snprintf(count, sizeof(count), "*%u\r\n", words_used);
	ret = append_text(&buffer, count);
	for (unsigned i = 0; i < words_used && !ret; i++)
		ret = append_word(out, &buffer, words[i], value_bytes);
	if (ret) {
		rk_buffer_free(&buffer);
		return ret;
	}
	out->head = buffer.data;
	out->head_bytes = buffer.tail;
	return 0;
}

void bench_request_free(struct bench_request *request)
{
	rk_free(request->head);
	*request = (struct bench_request){ 0 };
}
