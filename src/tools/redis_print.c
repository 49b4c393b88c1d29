/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replies as redis-cli prints them, without the last newline.  Where that is
 * no valid JSON (errors, numbers that JSON lacks) ours is.
 */
#include <ctype.h>
#include <string.h>

#include "tools/redis_cli.h"

/* In quotes, with what does not print escaped. */
static void print_quoted(FILE *out, const char *text, size_t bytes, bool json)
{
	static const char names[] = "\"\\nrtba", bytes_of[] = "\"\\\n\r\t\b\a";
	const char *found;

	putc('"', out);
	for (size_t i = 0; i < bytes; i++) {
		unsigned char c = (unsigned char)text[i];

		found = c ? strchr(bytes_of, c) : NULL;
		if (json && c == '\a')
			found = NULL;
		if (found)
			fprintf(out, "\\%c", names[found - bytes_of]);
		else if (json && (c < 0x20 || c == 0x7f))
			fprintf(out, "\\u%04x", c);
		else if (json || isprint(c))
			putc(c, out);
		else
			fprintf(out, "\\x%02x", c);
	}
	putc('"', out);
}

static void print_text(FILE *out, const struct rk_reply *reply)
{
	fwrite(reply->text, 1, reply->bytes, out);
}

static const char *boolean_text(const struct rk_reply *reply)
{
	return reply->integer ? "true" : "false";
}

static void print_people(FILE *out, const struct rk_reply *reply,
			 unsigned indent);

static unsigned decimal_width(size_t value)
{
	unsigned width = 1;

	while (value /= 10)
		width++;
	return width;
}

/* Will it be printed on more than one line? */
static bool takes_lines(const struct rk_reply *reply)
{
	size_t step = reply->type == RK_REPLY_MAP ? 2 : 1;

	while (reply->element_count == step) {
		reply = reply->elements[step - 1];
		step = reply->type == RK_REPLY_MAP ? 2 : 1;
	}
	return reply->element_count > step;
}

/* "1) ", "1# key => value", "1~ "; nested ones begin on the same line. */
static void print_elements(FILE *out, const struct rk_reply *reply,
			   unsigned indent)
{
	size_t step = reply->type == RK_REPLY_MAP ? 2 : 1;
	unsigned width = decimal_width(reply->element_count / step);
	char mark = reply->type == RK_REPLY_MAP	  ? '#'
		    : reply->type == RK_REPLY_SET ? '~'
						  : ')';

	for (size_t i = 0; i < reply->element_count; i += step) {
		if (i)
			fprintf(out, "\n%*s", (int)indent, "");
		fprintf(out, "%*zu%c ", (int)width, i / step + 1, mark);
		print_people(out, reply->elements[i], indent + width + 2);
		if (step == 1)
			continue;
		fputs(" => ", out);
		if (takes_lines(reply->elements[i + 1]))
			fprintf(out, "\n%*s", (int)(indent + width + 2), "");
		print_people(out, reply->elements[i + 1], indent + width + 2);
	}
}

static void print_aggregate(FILE *out, const struct rk_reply *reply,
			    unsigned indent)
{
	if (reply->element_count)
		print_elements(out, reply, indent);
	else if (reply->type == RK_REPLY_MAP)
		fputs("(empty hash)", out);
	else if (reply->type == RK_REPLY_SET)
		fputs("(empty set)", out);
	else if (reply->type == RK_REPLY_PUSH)
		fputs("(empty push)", out);
	else
		fputs("(empty array)", out);
}

static void print_people(FILE *out, const struct rk_reply *reply,
			 unsigned indent)
{
	switch (reply->type) {
	case RK_REPLY_STRING:
		print_quoted(out, reply->text, reply->bytes, false);
		break;
	case RK_REPLY_ERROR:
		fputs("(error) ", out);
		print_text(out, reply);
		break;
	case RK_REPLY_INTEGER:
		fprintf(out, "(integer) %lld", (long long)reply->integer);
		break;
	case RK_REPLY_NIL:
		fputs("(nil)", out);
		break;
	case RK_REPLY_DOUBLE:
		fputs("(double) ", out);
		print_text(out, reply);
		break;
	case RK_REPLY_BOOLEAN:
		fprintf(out, "(%s)", boolean_text(reply));
		break;
	case RK_REPLY_BIGNUMBER:
		fputs("(big number) ", out);
		print_text(out, reply);
		break;
	case RK_REPLY_STATUS:
	case RK_REPLY_VERBATIM:
		print_text(out, reply);
		break;
	case RK_REPLY_ARRAY:
	case RK_REPLY_MAP:
	case RK_REPLY_SET:
	case RK_REPLY_PUSH:
		print_aggregate(out, reply, indent);
		break;
	}
}

static void print_raw(FILE *out, const struct rk_reply *reply)
{
	switch (reply->type) {
	case RK_REPLY_NIL:
		break;
	case RK_REPLY_INTEGER:
		fprintf(out, "%lld", (long long)reply->integer);
		break;
	case RK_REPLY_BOOLEAN:
		fprintf(out, "(%s)", boolean_text(reply));
		break;
	case RK_REPLY_ERROR:
		print_text(out, reply);
		putc('\n', out);
		break;
	case RK_REPLY_STRING:
	case RK_REPLY_STATUS:
	case RK_REPLY_DOUBLE:
	case RK_REPLY_BIGNUMBER:
	case RK_REPLY_VERBATIM:
		print_text(out, reply);
		break;
	case RK_REPLY_ARRAY:
	case RK_REPLY_SET:
	case RK_REPLY_PUSH:
	case RK_REPLY_MAP:
		for (size_t i = 0; i < reply->element_count; i++) {
			if (i)
				putc(reply->type == RK_REPLY_MAP && i % 2
					     ? ' '
					     : '\n',
				     out);
			print_raw(out, reply->elements[i]);
		}
		break;
	}
}

static void print_csv(FILE *out, const struct rk_reply *reply)
{
	switch (reply->type) {
	case RK_REPLY_NIL:
		fputs("NULL", out);
		break;
	case RK_REPLY_INTEGER:
		fprintf(out, "%lld", (long long)reply->integer);
		break;
	case RK_REPLY_BOOLEAN:
		fputs(boolean_text(reply), out);
		break;
	case RK_REPLY_DOUBLE:
	case RK_REPLY_BIGNUMBER:
		print_text(out, reply);
		break;
	case RK_REPLY_ERROR:
		fputs("ERROR,", out);
		print_quoted(out, reply->text, reply->bytes, false);
		break;
	case RK_REPLY_STRING:
	case RK_REPLY_STATUS:
	case RK_REPLY_VERBATIM:
		print_quoted(out, reply->text, reply->bytes, false);
		break;
	case RK_REPLY_ARRAY:
	case RK_REPLY_SET:
	case RK_REPLY_PUSH:
	case RK_REPLY_MAP:
		for (size_t i = 0; i < reply->element_count; i++) {
			if (i)
				putc(',', out);
			print_csv(out, reply->elements[i]);
		}
		break;
	}
}

static void print_json(FILE *out, const struct rk_reply *reply);

/* JSON's keys are strings, whatever RESP's are. */
static void print_json_key(FILE *out, const struct rk_reply *key)
{
	bool bare = !key->text;

	if (bare)
		putc('"', out);
	if (key->text)
		print_quoted(out, key->text, key->bytes, true);
	else if (key->element_count == 0)
		print_json(out, key);
	if (bare)
		putc('"', out);
}

static void print_json_elements(FILE *out, const struct rk_reply *reply)
{
	bool map = reply->type == RK_REPLY_MAP;

	putc(map ? '{' : '[', out);
	for (size_t i = 0; i < reply->element_count; i++) {
		if (i && !(map && i % 2))
			putc(',', out);
		if (map && i % 2 == 0) {
			print_json_key(out, reply->elements[i]);
			putc(':', out);
		} else {
			print_json(out, reply->elements[i]);
		}
	}
	putc(map ? '}' : ']', out);
}

static void print_json(FILE *out, const struct rk_reply *reply)
{
	switch (reply->type) {
	case RK_REPLY_NIL:
		fputs("null", out);
		break;
	case RK_REPLY_INTEGER:
		fprintf(out, "%lld", (long long)reply->integer);
		break;
	case RK_REPLY_BOOLEAN:
		fputs(boolean_text(reply), out);
		break;
	case RK_REPLY_DOUBLE:
		if (strpbrk(reply->text, "nN")) /* inf, nan */
			print_quoted(out, reply->text, reply->bytes, true);
		else
			print_text(out, reply);
		break;
	case RK_REPLY_BIGNUMBER:
		print_text(out, reply);
		break;
	case RK_REPLY_ERROR:
		fputs("{\"error\":", out);
		print_quoted(out, reply->text, reply->bytes, true);
		putc('}', out);
		break;
	case RK_REPLY_STRING:
	case RK_REPLY_STATUS:
	case RK_REPLY_VERBATIM:
		print_quoted(out, reply->text, reply->bytes, true);
		break;
	case RK_REPLY_ARRAY:
	case RK_REPLY_SET:
	case RK_REPLY_PUSH:
	case RK_REPLY_MAP:
		print_json_elements(out, reply);
		break;
	}
}

void cli_print(FILE *out, const struct rk_reply *reply, enum cli_format format)
{
	switch (format) {
	case CLI_FORMAT_PEOPLE:
		print_people(out, reply, 0);
		break;
	case CLI_FORMAT_RAW:
		print_raw(out, reply);
		break;
	case CLI_FORMAT_CSV:
		print_csv(out, reply);
		break;
	case CLI_FORMAT_JSON:
		print_json(out, reply);
		break;
	}
}
