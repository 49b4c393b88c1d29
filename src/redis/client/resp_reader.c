/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See resp_reader.h.
 *
 *   next() loops over steps; a step takes one header line or some bytes of a
 *   string.  What is complete goes to complete(), which hangs it into the
 *   aggregate on top of the stack and pops those that are full.
 */
#include "redis/client/resp_reader.h"

#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "redis/client/reply.h"

enum {
	STEP_MORE = 0,	 /* wait for bytes */
	STEP_DONE = 1,	 /* *out is a complete value */
	STEP_OPENED = 2, /* an aggregate or a string was begun */
	BULK_START_BYTES = 64 << 10,
	ELEMENTS_START = 8,
};

/* Aggregates larger than this are refused whatever arrives. */
#define COUNT_MAX UINT32_MAX

static RK_PRINTF(3, 4) int fail(struct rk_resp_reader *reader, int error,
				const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reader->error, sizeof(reader->error), format, args);
	va_end(args);
	reader->failed = error;
	return error;
}

static int no_memory(struct rk_resp_reader *reader)
{
	return fail(reader, -ENOMEM, "out of memory while reading a reply");
}

int rk_resp_reader_feed(struct rk_resp_reader *reader, const void *data,
			size_t bytes)
{
	return rk_buffer_append(&reader->in, data, bytes);
}

bool rk_resp_reader_idle(const struct rk_resp_reader *reader)
{
	return !reader->depth && !reader->bulk &&
	       !rk_buffer_bytes(&reader->in);
}

void rk_resp_reader_free(struct rk_resp_reader *reader)
{
	for (unsigned i = 0; i < reader->depth; i++)
		rk_reply_free(reader->stack[i].reply);
	rk_reply_free(reader->bulk);
	rk_buffer_free(&reader->in);
	*reader = (struct rk_resp_reader){ 0 };
}

/* 1: the line (without "\r\n") is in *line; 0: not all there. */
static int find_line(struct rk_resp_reader *reader, const char **line,
		     size_t *bytes)
{
	const char *start = rk_buffer_head(&reader->in);
	size_t have = rk_buffer_bytes(&reader->in);
	const char *end = NULL;

	if (!have)
		return 0;
	if (have > reader->scanned)
		end = memchr(start + reader->scanned, '\r',
			     have - reader->scanned);
	reader->scanned = end ? (size_t)(end - start) : have;
	if (reader->scanned > RK_RESP_LINE_MAX)
		return fail(reader, -EPROTO, "a line is longer than %d bytes",
			    RK_RESP_LINE_MAX);
	if (!end || reader->scanned + 1 == have)
		return 0;
	if (end[1] != '\n')
		return fail(reader, -EPROTO,
			    "a line ends in 0x0d 0x%02x instead of 0x0d 0x0a",
			    (unsigned char)end[1]);
	*line = start;
	*bytes = reader->scanned;
	return 1;
}

/* The whole text is one signed 64-bit number. */
static bool parse_integer(const char *text, size_t bytes, int64_t *out)
{
	bool negative = bytes && text[0] == '-';
	size_t i = bytes && (text[0] == '-' || text[0] == '+');
	uint64_t value = 0;

	if (i == bytes)
		return false;
	for (; i < bytes; i++) {
		unsigned digit = (unsigned char)text[i] - '0';

		if (digit > 9 ||
		    __builtin_mul_overflow(value, (uint64_t)10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)digit, &value))
			return false;
	}
	if (value > (uint64_t)INT64_MAX + negative)
		return false;
	*out = negative ? (int64_t)(0 - value) : (int64_t)value;
	return true;
}

/* "3.14" is a number whatever the locale of the program. */
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void make_c_locale(void)
{
	c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static bool parse_double(const struct rk_reply *reply, double *out)
{
	static const char allowed[] = "0123456789+-.eEinfatyINFATY";
	char *end;

	if (!reply->bytes || strspn(reply->text, allowed) != reply->bytes)
		return false;
	pthread_once(&c_locale_once, make_c_locale);
	*out = c_locale ? strtod_l(reply->text, &end, c_locale)
			: strtod(reply->text, &end);
	return end == reply->text + reply->bytes;
}

/* A value that is all in its line. */
static int take_scalar(struct rk_resp_reader *reader, char mark,
		       enum rk_reply_type type, const char *text, size_t bytes,
		       struct rk_reply **out)
{
	struct rk_reply *reply = rk_reply_new(type);
	bool good = true;

	if (!reply)
		return no_memory(reader);
	if (type == RK_REPLY_INTEGER) {
		good = parse_integer(text, bytes, &reply->integer);
	} else if (type == RK_REPLY_BOOLEAN) {
		good = bytes == 1 && (*text == 't' || *text == 'f');
		reply->integer = good && *text == 't';
	} else if (type == RK_REPLY_NIL) {
		good = bytes == 0;
	} else if (rk_reply_set_text(reply, text, bytes)) {
		rk_reply_free(reply);
		return no_memory(reader);
	} else if (type == RK_REPLY_DOUBLE) {
		good = parse_double(reply, &reply->number);
	}
	if (!good) {
		rk_reply_free(reply);
		return fail(reader, -EPROTO, "'%.*s' is no valid value",
			    (int)rk_min(bytes, (size_t)40), text);
	}
	*out = reply;
	return STEP_DONE;
}

/* "$5", "!21", "=15": a string of so many bytes follows. */
static int begin_bulk(struct rk_resp_reader *reader, char mark,
		      enum rk_reply_type type, const char *text, size_t bytes,
		      struct rk_reply **out)
{
	int64_t length;

	if (!parse_integer(text, bytes, &length) || length < -1 ||
	    (length == -1 && type != RK_REPLY_STRING) ||
	    (length < 4 && type == RK_REPLY_VERBATIM))
		return fail(reader, -EPROTO, "'%.*s' is no length of a string",
			    (int)rk_min(bytes, (size_t)40), text);
	if (length > RK_RESP_BULK_MAX)
		return fail(reader, -EPROTO,
			    "a string of %lld bytes is over the bound of %d",
			    (long long)length, RK_RESP_BULK_MAX);
	if (length == -1)
		return take_scalar(reader, mark, RK_REPLY_NIL, "", 0, out);
	reader->bulk = rk_reply_new(type);
	if (!reader->bulk)
		return no_memory(reader);
	reader->bulk_bytes = (size_t)length;
	reader->bulk_capacity = 0;
	return STEP_OPENED;
}

static int begin_aggregate(struct rk_resp_reader *reader, char mark,
			   enum rk_reply_type type, const char *text,
			   size_t bytes, struct rk_reply **out)
{
	struct rk_resp_frame *frame = &reader->stack[reader->depth];
	bool pairs = mark == '%' || mark == '|';
	struct rk_reply *reply;
	int64_t count;

	if (!parse_integer(text, bytes, &count) || count < -1 ||
	    count > (int64_t)COUNT_MAX || (count == -1 && mark != '*'))
		return fail(reader, -EPROTO,
			    "'%.*s' is no number of elements",
			    (int)rk_min(bytes, (size_t)40), text);
	if (count == -1)
		return take_scalar(reader, mark, RK_REPLY_NIL, "", 0, out);
	if (count && reader->depth == RK_RESP_DEPTH_MAX)
		return fail(reader, -EPROTO, "nested deeper than %d levels",
			    RK_RESP_DEPTH_MAX);
	if (!count && mark == '|')
		return STEP_OPENED;
	reply = rk_reply_new(type);
	if (!reply)
		return no_memory(reader);
	if (!count) {
		*out = reply;
		return STEP_DONE;
	}
	*frame = (struct rk_resp_frame){
		.reply = reply,
		.left = (uint64_t)count << pairs,
		.attribute = mark == '|',
	};
	reader->depth++;
	return STEP_OPENED;
}

typedef int take_function(struct rk_resp_reader *reader, char mark,
			  enum rk_reply_type type, const char *text,
			  size_t bytes, struct rk_reply **out);

/* By the first byte of a line; no function: not RESP. */
static const struct {
	take_function *take;
	enum rk_reply_type type;
} marks[256] = {
	['+'] = { take_scalar, RK_REPLY_STATUS },
	['-'] = { take_scalar, RK_REPLY_ERROR },
	[':'] = { take_scalar, RK_REPLY_INTEGER },
	['_'] = { take_scalar, RK_REPLY_NIL },
	['#'] = { take_scalar, RK_REPLY_BOOLEAN },
	[','] = { take_scalar, RK_REPLY_DOUBLE },
	['('] = { take_scalar, RK_REPLY_BIGNUMBER },
	['$'] = { begin_bulk, RK_REPLY_STRING },
	['!'] = { begin_bulk, RK_REPLY_ERROR },
	['='] = { begin_bulk, RK_REPLY_VERBATIM },
	['*'] = { begin_aggregate, RK_REPLY_ARRAY },
	['%'] = { begin_aggregate, RK_REPLY_MAP },
	['~'] = { begin_aggregate, RK_REPLY_SET },
	['>'] = { begin_aggregate, RK_REPLY_PUSH },
	['|'] = { begin_aggregate, RK_REPLY_MAP },
};

static int take_header(struct rk_resp_reader *reader, struct rk_reply **out)
{
	unsigned char mark;
	const char *line = NULL;
	size_t bytes = 0;
	int ret = find_line(reader, &line, &bytes);

	if (ret <= 0)
		return ret;
	mark = (unsigned char)line[0]; /* '\r' for an empty line */
	if (!marks[mark].take)
		return fail(reader, -EPROTO,
			    "a reply begins with byte 0x%02x, this is no RESP",
			    mark);
	ret = marks[mark].take(reader, (char)mark, marks[mark].type, line + 1,
			       bytes - 1, out);
	if (ret < 0)
		return ret;
	rk_buffer_consume(&reader->in, reader->scanned + 2);
	reader->scanned = 0;
	return ret;
}

/* Room for what is there of the string; at most doubles what has arrived. */
static int grow_bulk(struct rk_resp_reader *reader, size_t wanted)
{
	size_t capacity = rk_max(reader->bulk_capacity * 2,
				 (size_t)BULK_START_BYTES);
	char *text;

	if (wanted <= reader->bulk_capacity)
		return 0;
	capacity = rk_max(capacity, wanted);
	capacity = rk_min(capacity, reader->bulk_bytes);
	text = rk_realloc(reader->bulk->text, capacity + 1);
	if (!text)
		return no_memory(reader);
	reader->bulk->text = text;
	reader->bulk_capacity = capacity;
	return 0;
}

static int end_bulk(struct rk_resp_reader *reader, struct rk_reply **out)
{
	struct rk_reply *bulk = reader->bulk;

	if (memcmp(rk_buffer_head(&reader->in), "\r\n", 2) != 0)
		return fail(reader, -EPROTO,
			    "a string of %zu bytes does not end there",
			    bulk->bytes);
	if (bulk->type == RK_REPLY_VERBATIM) {
		if (bulk->text[3] != ':')
			return fail(reader, -EPROTO,
				    "a verbatim string names no format");
		memcpy(bulk->format, bulk->text, 3);
		bulk->bytes -= 4;
		memmove(bulk->text, bulk->text + 4, bulk->bytes);
	}
	bulk->text[bulk->bytes] = '\0';
	rk_buffer_consume(&reader->in, 2);
	reader->bulk = NULL;
	*out = bulk;
	return STEP_DONE;
}

static int take_bulk(struct rk_resp_reader *reader, struct rk_reply **out)
{
	struct rk_reply *bulk = reader->bulk;
	size_t have = rk_buffer_bytes(&reader->in);
	size_t take = rk_min(have, reader->bulk_bytes - bulk->bytes);
	int ret = 0;

	if (!bulk->text && !reader->bulk_bytes) {
		bulk->text = rk_zalloc(1);
		if (!bulk->text)
			return no_memory(reader);
	}
	if (take) {
		ret = grow_bulk(reader, bulk->bytes + take);
		if (ret)
			return ret;
		memcpy(bulk->text + bulk->bytes, rk_buffer_head(&reader->in),
		       take);
		bulk->bytes += take;
		rk_buffer_consume(&reader->in, take);
	}
	if (bulk->bytes < reader->bulk_bytes ||
	    rk_buffer_bytes(&reader->in) < 2)
		return STEP_MORE;
	return end_bulk(reader, out);
}

static int hang_into(struct rk_resp_reader *reader,
		     struct rk_resp_frame *frame, struct rk_reply *value)
{
	struct rk_reply *reply = frame->reply;
	struct rk_reply **elements;
	size_t capacity;

	if (reply->element_count == frame->capacity) {
		capacity = frame->capacity ? frame->capacity * 2
					   : ELEMENTS_START;
		capacity = rk_min(capacity,
				  frame->capacity + (size_t)frame->left);
		elements = rk_realloc(reply->elements,
				      capacity * sizeof(*elements));
		if (!elements)
			return no_memory(reader);
		reply->elements = elements;
		frame->capacity = capacity;
	}
	reply->elements[reply->element_count++] = value;
	frame->left--;
	return 0;
}

/* 1: *value is a whole reply; 0: it became part of one, or was dropped. */
static int complete(struct rk_resp_reader *reader, struct rk_reply **value)
{
	while (reader->depth) {
		struct rk_resp_frame *frame = &reader->stack[reader->depth - 1];

		if (hang_into(reader, frame, *value)) {
			rk_reply_free(*value);
			return reader->failed;
		}
		if (frame->left)
			return 0;
		*value = frame->reply;
		reader->depth--;
		if (frame->attribute) {
			rk_reply_free(*value);
			return 0;
		}
	}
	return 1;
}

int rk_resp_reader_next(struct rk_resp_reader *reader, struct rk_reply **out)
{
	struct rk_reply *value;
	int ret;

	*out = NULL;
	if (reader->failed)
		return reader->failed;
	for (;;) {
		value = NULL;
		ret = reader->bulk ? take_bulk(reader, &value)
				   : take_header(reader, &value);
		if (ret <= 0)
			return ret;
		if (ret == STEP_OPENED)
			continue;
		ret = complete(reader, &value);
		if (ret < 0)
			return ret;
		if (ret) {
			*out = value;
			return 1;
		}
	}
}
