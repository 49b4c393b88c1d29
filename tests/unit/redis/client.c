/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The synchronous library against a server of a few lines: a thread that
 * answers each line it is sent from a script.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "rdmakit/redis.h"

#include "ok.h"

/*
 * What the server says for a command whose name begins so; the connection is
 * closed after an answer of "".
 */
static const struct {
	const char *name, *answer;
} script[] = {
	{ "PING", "+PONG\r\n" },
	{ "PUSHED", ">2\r\n+note\r\n:1\r\n>2\r\n+note\r\n:2\r\n+done\r\n" },
	{ "SUBSCRIBE", ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n" },
	{ "AUTH", "-WRONGPASS no\r\n" },
	{ "SELECT", "+OK\r\n" },
	{ "HALF", "+lo" },
	{ "JUNK", "what?\r\n" },
	{ "LAST", "+bye\r\n" },
	{ "LEAVE", "" },
};

static int listener;
static char uri[64];

static bool answer(int fd, const char *name)
{
	for (size_t i = 0; i < RK_ARRAY_SIZE(script); i++) {
		const char *text = script[i].answer;

		if (strncmp(script[i].name, name, strlen(script[i].name)) != 0)
			continue;
		if (!*text || write(fd, text, strlen(text)) < 0)
			return false;
		return strcmp(script[i].name, "LAST") != 0;
	}
	return true; /* SILENCE and others: no answer */
}

/* Command names are the only lines that begin with a capital letter. */
static void serve(int fd)
{
	char line[4096];
	FILE *in = fdopen(dup(fd), "r");

	while (in && fgets(line, sizeof(line), in))
		if (line[0] >= 'A' && line[0] <= 'Z' && !answer(fd, line))
			break;
	if (in)
		fclose(in);
	close(fd);
}

static void *serve_all(void *unused)
{
	int fd;

	while ((fd = accept(listener, NULL, NULL)) >= 0)
		serve(fd);
	return NULL;
}

static void start_server(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	socklen_t bytes = sizeof(addr);
	pthread_t thread;

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	ok_or_die(!bind(listener, (struct sockaddr *)&addr, bytes) &&
			  !listen(listener, 16) &&
			  !getsockname(listener, (struct sockaddr *)&addr,
				       &bytes) &&
			  !pthread_create(&thread, NULL, serve_all, NULL),
		  "a server listens");
	pthread_detach(thread);
	snprintf(uri, sizeof(uri), "tcp://127.0.0.1:%u",
		 ntohs(addr.sin_port));
}

static struct rk_redis *open_with(int command_timeout_ms)
{
	const struct rk_redis_params params = {
		.command_timeout_ms = command_timeout_ms,
	};
	struct rk_redis *redis;
	int ret = rk_redis_open(&redis, uri, &params);

	ok_or_die(!ret, "connected");
	return redis;
}

static int command(struct rk_redis *redis, const char *name,
		   struct rk_reply **reply)
{
	return rk_redis_command(redis, 1, &name, NULL, reply);
}

static bool is_text(struct rk_reply *reply, const char *text)
{
	bool same = reply && reply->text && !strcmp(reply->text, text);

	rk_reply_free(reply);
	return same;
}

static void commands_are_answered(void)
{
	struct rk_redis *redis = open_with(5000);
	const char *const ping[] = { "PING" };
	struct rk_reply *reply;
	bool good = true;

	ok(!command(redis, "PING", &reply) && is_text(reply, "PONG"),
	   "an answer");
	ok(!strcmp(rk_redis_transport(redis), "tcp") &&
		   !rk_redis_device(redis),
	   "over tcp, which has no device");
	for (int i = 0; i < 20000; i++)
		good &= !rk_redis_append(redis, 1, ping, NULL);
	for (int i = 0; i < 20000; i++)
		good &= !rk_redis_read(redis, &reply) && is_text(reply, "PONG");
	ok(good, "20000 commands in a pipeline");
	ok(!rk_redis_append_raw(redis, "PING\r\n", 6) &&
		   !rk_redis_read(redis, &reply) && is_text(reply, "PONG"),
	   "bytes as they are");
	ok(rk_redis_command(redis, 0, NULL, NULL, &reply) == -EINVAL &&
		   !command(redis, "PING", &reply) && is_text(reply, "PONG"),
	   "a command without a name harms nothing");
	rk_redis_close(redis);
}

static void pushes_wait_their_turn(void)
{
	struct rk_redis *redis = open_with(5000);
	struct rk_reply *reply;
	bool good = true;

	ok(!command(redis, "PUSHED", &reply) && is_text(reply, "done"),
	   "pushes do not stand in for the answer");
	for (int i = 1; i <= 2; i++) {
		good &= !rk_redis_read_timeout(redis, 1000, &reply) &&
			reply->type == RK_REPLY_PUSH &&
			reply->elements[1]->integer == i;
		rk_reply_free(reply);
	}
	ok(good, "they are read afterwards, in order");
	ok(!command(redis, "SUBSCRIBE", &reply) &&
		   reply->type == RK_REPLY_PUSH,
	   "but one that answers SUBSCRIBE does");
	rk_reply_free(reply);
	rk_redis_close(redis);
}

static void time_runs_out(void)
{
	struct rk_redis *redis = open_with(100);
	struct rk_reply *reply;
	uint64_t start_ns = rk_now_ns(), spent_ns;
	int ret;

	ok(rk_redis_read_timeout(redis, 30, &reply) == -ETIMEDOUT &&
		   !command(redis, "PING", &reply) && is_text(reply, "PONG"),
	   "a read that found nothing leaves the connection usable");
	start_ns = rk_now_ns();
	ret = command(redis, "SILENCE", &reply);
	spent_ns = rk_now_ns() - start_ns;
	ok(ret == -ETIMEDOUT && spent_ns >= 100 * RK_NS_PER_MS &&
		   spent_ns < 2000 * RK_NS_PER_MS,
	   "a command without an answer: %s", rk_redis_error(redis));
	ok(command(redis, "PING", &reply) == -ETIMEDOUT && !reply,
	   "after it the connection is of no use");
	rk_redis_close(redis);
}

static void the_end_is_told(void)
{
	struct rk_redis *redis = open_with(5000);
	struct rk_reply *reply;

	ok(!command(redis, "LAST", &reply) && is_text(reply, "bye"),
	   "what came before the end is read");
	ok(command(redis, "PING", &reply) < 0 && rk_redis_error(redis)[0],
	   "then: %s", rk_redis_error(redis));
	rk_redis_close(redis);

	redis = open_with(5000);
	ok(command(redis, "LEAVE", &reply) == -ECONNRESET,
	   "closed instead of an answer: %s", rk_redis_error(redis));
	rk_redis_close(redis);

	redis = open_with(200);
	ok(command(redis, "HALF", &reply) == -ETIMEDOUT,
	   "half an answer is none: %s", rk_redis_error(redis));
	rk_redis_close(redis);

	redis = open_with(5000);
	ok(command(redis, "JUNK", &reply) == -EPROTO,
	   "no RESP: %s", rk_redis_error(redis));
	rk_redis_close(redis);
}

static int open_error(const char *where)
{
	const struct rk_redis_params params = { .connect_timeout_ms = 2000 };
	struct rk_redis *redis;
	int ret = rk_redis_open(&redis, where, &params);

	ok(redis && rk_redis_error(redis)[0] && ret, "%s: %s", where,
	   redis ? rk_redis_error(redis) : "?");
	rk_redis_close(redis);
	return ret;
}

static void opening_fails_with_words(void)
{
	char text[128];

	ok(open_error("tcp://127.0.0.1:1") == -ECONNREFUSED, "refused");
	ok(open_error("unix:///nowhere/at/all") == -ENOENT, "no such socket");
	ok(open_error("tls://127.0.0.1") == -EPROTONOSUPPORT, "no transport");
	ok(open_error("what") == -EINVAL, "no URI");
	snprintf(text, sizeof(text), "tcp://:secret@%s", uri + 6);
	ok(open_error(text) == -EACCES, "a wrong password");
}

static void every_allocation_may_fail(void)
{
	long before = rk_alloc_live();
	char text[128];
	int n = 0, ret;

	snprintf(text, sizeof(text), "%s/1", uri);
	for (;; n++) {
		struct rk_redis *redis;
		struct rk_reply *reply = NULL;

		rk_alloc_fail_at(n);
		ret = rk_redis_open(&redis, text, NULL);
		if (!ret)
			ret = command(redis, "PUSHED", &reply);
		rk_alloc_fail_at(-1);
		rk_reply_free(reply);
		rk_redis_close(redis);
		if (ret != -ENOMEM || rk_alloc_live() != before)
			break;
	}
	ok(!ret && n > 10 && rk_alloc_live() == before,
	   "each of %d allocations may fail, nothing leaks", n);
}

int main(void)
{
	start_server();
	commands_are_answered();
	pushes_wait_their_turn();
	time_runs_out();
	the_end_is_told();
	opening_fails_with_words();
	every_allocation_may_fail();
	return ok_done();
}
