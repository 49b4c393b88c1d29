/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program of the shared library: talks to the server at argv[1], says
 * "ready", and after a line on standard input (by then the server is stopped)
 * sends a command that must time out.  Prints the errno and the milliseconds.
 */
#include <rdmakit/redis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

static void fail(const struct rk_redis *redis)
{
	printf("failed: %s\n", redis ? rk_redis_error(redis) : "no memory");
	exit(1);
}

int main(int argc, char **argv)
{
	const struct rk_redis_params params = {
		.connect_timeout_ms = 10000,
		.command_timeout_ms = 400,
	};
	const char *const ping[] = { "PING" };
	struct rk_redis *redis;
	struct rk_reply *reply;
	long long start_ms;
	char line[16];
	int ret;

	if (argc != 2 || rk_redis_open(&redis, argv[1], &params))
		fail(argc == 2 ? redis : NULL);
	for (int i = 0; i < 3; i++) {
		if (rk_redis_command(redis, 1, ping, NULL, &reply))
			fail(redis);
		if (strcmp(reply->text, "PONG") != 0)
			fail(redis);
		rk_reply_free(reply);
	}
	printf("ready\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	start_ms = now_ms();
	ret = rk_redis_command(redis, 1, ping, NULL, &reply);
	printf("%d %lld\n", -ret, now_ms() - start_ms);
	rk_redis_close(redis);
	printf("closed %lld\n", now_ms() - start_ms);
	return 0;
}
