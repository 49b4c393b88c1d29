/* SPDX-License-Identifier: BSD-3-Clause */
/* The RESP reader: every vector, cut at every byte; what it refuses. */
#include "redis/client/resp_reader.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "redis/client/reply.h"

#include "ok.h"

/* A reply as text, so that a test can say what it expects. */
static void describe(const struct rk_reply *reply, char *out, size_t bytes)
{
	static const char marks[] = "$+-:_*%~>,#(=";
	size_t used = strlen(out);

	snprintf(out + used, bytes - used, "%c", marks[reply->type]);
	used++;
	if (reply->type == RK_REPLY_INTEGER || reply->type == RK_REPLY_BOOLEAN)
		snprintf(out + used, bytes - used, "%lld",
			 (long long)reply->integer);
	else if (reply->text)
		snprintf(out + used, bytes - used, "%zu:%s%s", reply->bytes,
			 reply->format, reply->text);
	if (reply->type < RK_REPLY_ARRAY || reply->type > RK_REPLY_PUSH)
		return;
	strcat(out, "[");
	for (size_t i = 0; i < reply->element_count; i++) {
		if (i)
			strcat(out, " ");
		describe(reply->elements[i], out, bytes);
	}
	strcat(out, "]");
}

static const struct vector {
	const char *wire, *expected; /* expected: replies, ';' after each */
} vectors[] = {
	{ "+OK\r\n", "+2:OK;" },
	{ "+\r\n", "+0:;" },
	{ "-ERR no such thing\r\n", "-17:ERR no such thing;" },
	{ ":0\r\n:-1\r\n:+7\r\n", ":0;:-1;:7;" },
	{ ":9223372036854775807\r\n:-9223372036854775808\r\n",
	  ":9223372036854775807;:-9223372036854775808;" },
	{ "$-1\r\n", "_;" },
	{ "$0\r\n\r\n", "$0:;" },
	{ "$5\r\na\r\nbc\r\n", "$5:a\r\nbc;" },
	{ "*-1\r\n", "_;" },
	{ "*0\r\n", "*[];" },
	{ "*2\r\n*1\r\n:1\r\n*2\r\n$1\r\nx\r\n*0\r\n",
	  "*[*[:1] *[$1:x *[]]];" },
	{ "_\r\n#t\r\n#f\r\n", "_;#1;#0;" },
	{ ",3.25\r\n,inf\r\n,-inf\r\n,nan\r\n,1e3\r\n",
	  ",4:3.25;,3:inf;,4:-inf;,3:nan;,3:1e3;" },
	{ "(123456789012345678901234567890\r\n",
	  "(30:123456789012345678901234567890;" },
	{ "!5\r\nE x\ny\r\n", "-5:E x\ny;" },
	{ "=8\r\ntxt:a\nbc\r\n=4\r\nmkd:\r\n", "=4:txta\nbc;=0:mkd;" },
	{ "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n", "%[+1:a :1 +1:b *[_]];" },
	{ "~2\r\n:1\r\n:2\r\n", "~[:1 :2];" },
	{ ">2\r\n+message\r\n$1\r\nm\r\n:5\r\n", ">[+7:message $1:m];:5;" },
	{ "|1\r\n+ttl\r\n:3\r\n*2\r\n|1\r\n+k\r\n*1\r\n:9\r\n:1\r\n:2\r\n",
	  "*[:1 :2];" },
	{ "|0\r\n:1\r\n", ":1;" },
};

/* All replies of wire, fed in two pieces. */
static bool gives(const char *wire, size_t cut, const char *expected)
{
	struct rk_resp_reader reader = { 0 };
	size_t bytes = strlen(wire);
	char got[512] = "";
	bool idle;

	for (int piece = 0; piece < 2; piece++) {
		const char *at = piece ? wire + cut : wire;
		size_t left = piece ? bytes - cut : cut;
		struct rk_reply *reply;

		if (rk_resp_reader_feed(&reader, at, left))
			break;
		while (rk_resp_reader_next(&reader, &reply) == 1) {
			describe(reply, got, sizeof(got) - 2);
			strcat(got, ";");
			rk_reply_free(reply);
		}
	}
	idle = rk_resp_reader_idle(&reader);
	rk_resp_reader_free(&reader);
	if (strcmp(got, expected) != 0)
		printf("# cut at %zu: got %s, expected %s\n", cut, got,
		       expected);
	return idle && !strcmp(got, expected);
}

static void vectors_cut_anywhere(void)
{
	for (size_t i = 0; i < RK_ARRAY_SIZE(vectors); i++) {
		const struct vector *v = &vectors[i];
		bool good = true;

		for (size_t cut = 0; cut <= strlen(v->wire); cut++)
			good &= gives(v->wire, cut, v->expected);
		ok(good, "vector %zu gives %s wherever it is cut", i,
		   strchr(v->expected, '\n') ? "its replies" : v->expected);
	}
}

static void values_are_numbers(void)
{
	struct rk_resp_reader reader = { 0 };
	struct rk_reply *reply;

	ok_or_die(!rk_resp_reader_feed(&reader, ",-2.5e-3\r\n,inf\r\n", 16) &&
			  rk_resp_reader_next(&reader, &reply) == 1,
		  "a double is read");
	ok(fabs(reply->number + 0.0025) < 1e-12, "and has its value");
	rk_reply_free(reply);
	ok_or_die(rk_resp_reader_next(&reader, &reply) == 1 &&
			  isinf(reply->number),
		  "infinity too");
	rk_reply_free(reply);
	rk_resp_reader_free(&reader);
}

static int result_of(const char *wire, size_t bytes, char *error)
{
	struct rk_resp_reader reader = { 0 };
	struct rk_reply *reply = NULL;
	int ret = rk_resp_reader_feed(&reader, wire, bytes);

	while (!ret) {
		ret = rk_resp_reader_next(&reader, &reply);
		rk_reply_free(reply);
		if (ret <= 0)
			break;
		ret = 0;
	}
	if (ret < 0 && rk_resp_reader_next(&reader, &reply) != ret)
		ret = 1000; /* an error must stay */
	snprintf(error, 128, "%s", reader.error);
	rk_resp_reader_free(&reader);
	return ret;
}

static void bad_input_is_refused(void)
{
	static const char *const bad[] = {
		"hello\r\n", "\r\n", "+OK\rX", ":\r\n", ":12x\r\n",
		":9223372036854775808\r\n", ":99999999999999999999\r\n",
		":-9223372036854775809\r\n", "$-2\r\n", "$x\r\n",
		"$536870913\r\n", "$99999999999999999999\r\n", "$3\r\nabcd\r\n",
		"*-2\r\n", "*4294967296\r\n", "%-1\r\n", "~-1\r\n", "#x\r\n",
		"#\r\n", "_x\r\n", ",abc\r\n", ",\r\n", ",1.5x\r\n",
		"=3\r\nabc\r\n", "=5\r\nabcde\r\n", "!-1\r\n", "$?\r\n",
		"*?\r\n", ".\r\n", "*1\r\n&\r\n",
	};
	char error[128];

	for (size_t i = 0; i < RK_ARRAY_SIZE(bad); i++) {
		int ret = result_of(bad[i], strlen(bad[i]), error);

		ok(ret == -EPROTO && error[0], "bad input %zu: %s", i, error);
	}
}

static void depth_is_bounded(void)
{
	char wire[4 * (RK_RESP_DEPTH_MAX + 1) + 5] = "";
	char error[128];

	for (int i = 0; i < RK_RESP_DEPTH_MAX; i++)
		strcat(wire, "*1\r\n");
	strcat(wire, ":1\r\n");
	ok(result_of(wire, strlen(wire), error) == 0, "%d levels are read",
	   RK_RESP_DEPTH_MAX);
	wire[strlen(wire) - 4] = '\0';
	strcat(wire, "*1\r\n:1\r\n");
	ok(result_of(wire, strlen(wire), error) == -EPROTO, "one more is not");
}

/* Promises alone must not cost memory, lines must end. */
static void memory_follows_what_arrives(void)
{
	struct rk_resp_reader reader = { 0 };
	struct rk_reply *reply;
	char *line = rk_zalloc(RK_RESP_LINE_MAX + 8);
	char error[128];

	ok_or_die(line && !rk_resp_reader_feed(&reader,
					       "*4294967295\r\n$536870912\r\n"
					       "x", 26) &&
			  rk_resp_reader_next(&reader, &reply) == 0,
		  "huge announcements are waited for");
	ok(reader.bulk_capacity <= 65536 && reader.stack[0].capacity == 0,
	   "and reserve next to nothing");
	rk_resp_reader_free(&reader);
	memset(line, 'x', RK_RESP_LINE_MAX + 7);
	line[0] = '+';
	ok(result_of(line, RK_RESP_LINE_MAX + 7, error) == -EPROTO,
	   "a line without an end is refused: %s", error);
	rk_free(line);
}

/* A million bytes in pieces of ten must not take a million times ten. */
static void pieces_cost_what_they_weigh(void)
{
	enum { VALUE = 1 << 20 };
	struct rk_resp_reader reader = { 0 };
	struct rk_reply *reply = NULL;
	char piece[10];
	size_t largest = 0;
	int ret = rk_resp_reader_feed(&reader, "$1048576\r\n", 10);

	memset(piece, 'v', sizeof(piece));
	for (size_t sent = 0; sent < VALUE && !ret; sent += 8) {
		ret = rk_resp_reader_feed(&reader, piece, 8);
		if (!ret)
			ret = rk_resp_reader_next(&reader, &reply);
		largest = rk_max(largest, reader.in.capacity);
	}
	ret = rk_resp_reader_feed(&reader, "\r\n", 2);
	ok(!ret && rk_resp_reader_next(&reader, &reply) == 1 &&
		   reply->bytes == VALUE && reply->text[VALUE - 1] == 'v',
	   "a value in small pieces is whole");
	ok(largest <= 65536, "and was not gathered twice (%zu bytes)",
	   largest);
	rk_reply_free(reply);
	rk_resp_reader_free(&reader);
}

static void every_allocation_may_fail(void)
{
	static const char wire[] = "%1\r\n+k\r\n*3\r\n$3\r\nabc\r\n:1\r\n"
				   "=5\r\ntxt:x\r\n|1\r\n+a\r\n_\r\n+z\r\n";
	long before = rk_alloc_live();
	int n = 0, ret;

	for (;; n++) {
		struct rk_resp_reader reader = { 0 };
		struct rk_reply *reply = NULL;

		rk_alloc_fail_at(n);
		ret = rk_resp_reader_feed(&reader, wire, sizeof(wire) - 1);
		if (!ret)
			ret = rk_resp_reader_next(&reader, &reply);
		rk_alloc_fail_at(-1);
		rk_reply_free(reply);
		rk_resp_reader_free(&reader);
		if (ret == 1)
			break;
		if (ret != -ENOMEM || rk_alloc_live() != before)
			break;
	}
	ok(ret == 1 && n > 8 && rk_alloc_live() == before,
	   "each of %d allocations may fail, nothing leaks", n);
}

static uint32_t dice(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

/* Vectors with bytes changed: any outcome but a crash, a leak or a lie. */
static void changed_bytes_do_no_harm(void)
{
	static const char likely[] = "$*:+-%~>|_#,(!=0123456789\r\n";
	uint32_t state = 1;
	long before = rk_alloc_live();
	bool good = true;

	for (int round = 0; round < 40000 && good; round++) {
		char wire[64], error[128];
		size_t bytes;
		int ret;

		snprintf(wire, sizeof(wire), "%s",
			 vectors[dice(&state) % RK_ARRAY_SIZE(vectors)].wire);
		bytes = strlen(wire);
		for (unsigned n = dice(&state) % 4 + 1; n; n--)
			wire[dice(&state) % bytes] =
				likely[dice(&state) % (sizeof(likely) - 1)];
		ret = result_of(wire, bytes, error);
		good = !ret || ret == -EPROTO;
	}
	ok(good, "40000 changed inputs are read, waited for or refused");
	ok(rk_alloc_live() == before, "and nothing leaks");
}

int main(void)
{
	vectors_cut_anywhere();
	values_are_numbers();
	bad_input_is_refused();
	depth_is_bounded();
	memory_follows_what_arrives();
	pieces_cost_what_they_weigh();
	every_allocation_may_fail();
	changed_bytes_do_no_harm();
	return ok_done();
}
