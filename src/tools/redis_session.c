/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection as `rdmakit redis` uses it: what was selected and begun on it,
 * commands that change how replies come (SUBSCRIBE, MONITOR), reconnecting.
 *
 * Waiting is done in slices, so that Ctrl-C ends it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/redis_cli.h"

enum { SLICE_MS = 100 };

volatile sig_atomic_t cli_interrupted;

/* What a command does to the session when it succeeds. */
enum effect {
	EFFECT_NONE,
	EFFECT_SELECT,
	EFFECT_AUTH,
	EFFECT_HELLO,
	EFFECT_MULTI,
	EFFECT_END_MULTI,
	EFFECT_RESET,
	EFFECT_SUBSCRIBE, /* messages until Ctrl-C */
	EFFECT_MONITOR,
	EFFECT_REPLICA, /* refused: the reply is no RESP */
	EFFECT_GOODBYE, /* the server closes */
};

static const struct {
	const char *name;
	enum effect effect;
} effects[] = {
	{ "select", EFFECT_SELECT },	   { "auth", EFFECT_AUTH },
	{ "hello", EFFECT_HELLO },	   { "multi", EFFECT_MULTI },
	{ "exec", EFFECT_END_MULTI },	   { "discard", EFFECT_END_MULTI },
	{ "reset", EFFECT_RESET },	   { "subscribe", EFFECT_SUBSCRIBE },
	{ "psubscribe", EFFECT_SUBSCRIBE }, { "ssubscribe", EFFECT_SUBSCRIBE },
	{ "monitor", EFFECT_MONITOR },	   { "sync", EFFECT_REPLICA },
	{ "psync", EFFECT_REPLICA },	   { "quit", EFFECT_GOODBYE },
	{ "shutdown", EFFECT_GOODBYE },
};

/* Texts for people that redis-cli prints as they are. */
static const char *const texts_for_people[][2] = {
	{ "info", NULL },	     { "lolwut", NULL },
	{ "client", "list" },	     { "client", "info" },
	{ "cluster", "info" },	     { "cluster", "nodes" },
	{ "memory", "doctor" },	     { "memory", "malloc-stats" },
	{ "latency", "doctor" },     { "latency", "graph" },
	{ "debug", "htstats" },	     { "debug", "htstats-key" },
};

static enum effect effect_of(const struct cli_args *args)
{
	for (size_t i = 0; i < RK_ARRAY_SIZE(effects); i++)
		if (!strcasecmp(effects[i].name, args->argv[0]))
			return effects[i].effect;
	return EFFECT_NONE;
}

static bool is_text_for_people(const struct cli_args *args)
{
	for (size_t i = 0; i < RK_ARRAY_SIZE(texts_for_people); i++) {
		const char *const *words = texts_for_people[i];

		if (strcasecmp(words[0], args->argv[0]) != 0)
			continue;
		if (!words[1] || (args->argc > 1 &&
				  !strcasecmp(words[1], args->argv[1])))
			return true;
	}
	return false;
}

static void print_line(const struct cli_session *session,
		       const struct rk_reply *reply)
{
	cli_print(stdout, reply, session->options->format);
	putchar('\n');
	fflush(stdout);
}

/* Whatever the format, and with the newline that the text has or not. */
static void print_text(const struct rk_reply *reply)
{
	cli_print(stdout, reply, CLI_FORMAT_RAW);
	fflush(stdout);
}

void cli_session_close(struct cli_session *session)
{
	rk_redis_close(session->redis);
	session->redis = NULL;
	session->in_transaction = false;
}

static int lost(struct cli_session *session, int error)
{
	fflush(stdout);
	fprintf(stderr, "Error: %s\n", rk_redis_error(session->redis));
	cli_session_close(session);
	return error;
}

static int say_hello(struct cli_session *session)
{
	static const char *const hello[] = { "HELLO", "3" };
	struct rk_reply *reply;
	int ret = rk_redis_command(session->redis, 2, hello, NULL, &reply);

	if (ret)
		return lost(session, ret);
	if (reply->type == RK_REPLY_ERROR)
		fprintf(stderr, "HELLO 3: %s\n", reply->text);
	rk_reply_free(reply);
	return 0;
}

int cli_session_connect(struct cli_session *session)
{
	const struct rk_redis_params params = {
		.device = session->options->device,
	};
	struct rk_uri uri = session->options->uri;
	char text[RK_URI_FULL_MAX];
	int ret;

	if (session->redis)
		return 0;
	uri.db = session->db;
	rk_uri_compose(&uri, text, sizeof(text));
	ret = rk_redis_open(&session->redis, text, &params);
	memset(text, 0, sizeof(text));
	if (ret) {
		fprintf(stderr, "rdmakit redis: %s\n",
			session->redis ? rk_redis_error(session->redis)
				       : "out of memory");
		cli_session_close(session);
		return ret;
	}
	return session->resp3 ? say_hello(session) : 0;
}

/* The next thing that comes; -EINTR: Ctrl-C. */
static int next_reply(struct cli_session *session, struct rk_reply **reply)
{
	int ret;

	do {
		if (cli_interrupted)
			return -EINTR;
		ret = rk_redis_read_timeout(session->redis, SLICE_MS, reply);
	} while (ret == -ETIMEDOUT);
	return ret;
}

static void print_push(const struct cli_session *session,
		       const struct rk_reply *push)
{
	const struct rk_reply *key;

	if (!session->options->show_pushes)
		return;
	if (push->element_count == 2 &&
	    push->elements[0]->type == RK_REPLY_STRING &&
	    !strcmp(push->elements[0]->text, "invalidate") &&
	    push->elements[1]->type == RK_REPLY_ARRAY) {
		for (size_t i = 0; i < push->elements[1]->element_count; i++) {
			key = push->elements[1]->elements[i];
			if (key->text)
				printf("-> invalidate: '%s'\n", key->text);
		}
		fflush(stdout);
		return;
	}
	print_line(session, push);
}

void cli_session_check(struct cli_session *session)
{
	struct rk_reply *reply;
	int ret = 0;

	while (session->redis && !ret) {
		ret = rk_redis_read_timeout(session->redis, 1, &reply);
		if (!ret) {
			print_push(session, reply);
			rk_reply_free(reply);
		} else if (ret != -ETIMEDOUT) {
			lost(session, ret);
		}
	}
}

/* Everything that comes, until Ctrl-C or the end. */
static int print_stream(struct cli_session *session)
{
	struct rk_reply *reply;
	bool refused;
	int ret;

	if (session->options->format != CLI_FORMAT_RAW) {
		puts("Reading messages... (press Ctrl-C to quit)");
		fflush(stdout);
	}
	for (;;) {
		ret = next_reply(session, &reply);
		if (ret == -EINTR) {
			/* There is no other way out of this mode. */
			cli_session_close(session);
			return 0;
		}
		if (ret)
			return lost(session, ret);
		print_line(session, reply);
		refused = reply->type == RK_REPLY_ERROR;
		rk_reply_free(reply);
		if (refused)
			return 0;
	}
}

/* After AUTH [USER] PASSWORD: reconnecting needs it. */
static void remember_login(struct cli_session *session,
			   const struct cli_args *args)
{
	struct rk_uri *uri = &session->options->uri;

	if (args->argc == 2)
		uri->user[0] = '\0';
	else if (args->argc == 3)
		snprintf(uri->user, sizeof(uri->user), "%s", args->argv[1]);
	else
		return;
	snprintf(uri->password, sizeof(uri->password), "%s",
		 args->argv[args->argc - 1]);
}

static void apply(struct cli_session *session, enum effect effect,
		  const struct cli_args *args, const struct rk_reply *reply)
{
	bool queued = session->in_transaction && effect != EFFECT_END_MULTI;

	if (effect == EFFECT_END_MULTI)
		session->in_transaction = false;
	if (reply->type == RK_REPLY_ERROR || queued)
		return;
	switch (effect) {
	case EFFECT_SELECT:
		if (args->argc == 2)
			session->db = (unsigned)strtoul(args->argv[1], NULL,
							10);
		break;
	case EFFECT_AUTH:
		remember_login(session, args);
		break;
	case EFFECT_HELLO:
		session->resp3 = reply->type == RK_REPLY_MAP;
		break;
	case EFFECT_MULTI:
		session->in_transaction = true;
		break;
	case EFFECT_RESET:
		session->db = 0;
		session->resp3 = false;
		break;
	case EFFECT_NONE:
	case EFFECT_END_MULTI:
	case EFFECT_SUBSCRIBE:
	case EFFECT_MONITOR:
	case EFFECT_REPLICA:
	case EFFECT_GOODBYE:
		break;
	}
}

/* The answer; pushes that come before it are shown. */
static int take_answer(struct cli_session *session, enum effect effect,
		       const struct cli_args *args)
{
	struct rk_reply *reply;
	int ret;

	for (;;) {
		ret = next_reply(session, &reply);
		if (ret == -EINTR) {
			/* The answer would be taken for the next one. */
			cli_session_close(session);
			return 0;
		}
		if (ret && effect == EFFECT_GOODBYE) {
			cli_session_close(session);
			return 0;
		}
		if (ret)
			return lost(session, ret);
		if (reply->type != RK_REPLY_PUSH)
			break;
		print_push(session, reply);
		rk_reply_free(reply);
	}
	if (effect == EFFECT_RESET)
		session->in_transaction = false;
	apply(session, effect, args, reply);
	if (reply->type == RK_REPLY_ERROR && session->options->fail_on_error) {
		session->failed = true;
		fprintf(stderr, "%s\n", reply->text);
	} else if (is_text_for_people(args)) {
		print_text(reply);
	} else {
		print_line(session, reply);
	}
	ret = reply->type == RK_REPLY_ERROR;
	rk_reply_free(reply);
	if (!ret && effect == EFFECT_MONITOR && !session->in_transaction)
		return print_stream(session);
	return 0;
}

int cli_session_run(struct cli_session *session, const struct cli_args *args)
{
	enum effect effect = effect_of(args);
	int ret;

	if (effect == EFFECT_REPLICA) {
		fprintf(stderr, "%s makes the connection a replica's, which "
			"this program cannot be\n", args->argv[0]);
		return 0;
	}
	ret = rk_redis_append(session->redis, args->argc,
			      (const char *const *)args->argv, args->lengths);
	if (ret)
		return lost(session, ret);
	if (effect == EFFECT_SUBSCRIBE && !session->in_transaction)
		return print_stream(session);
	return take_answer(session, effect, args);
}
