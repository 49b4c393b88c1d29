/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The synchronous library of rdmakit/redis.h, on any transport: a link, a
 * buffer of commands that have not left, a reader of what has come.
 *
 * After an error other than -EINVAL, and -ETIMEDOUT of
 * rk_redis_read_timeout(), the connection is broken: it is not known any more
 * which answer belongs to which command, so every later call fails.
 *
 * Threads: as the header, one at a time per connection.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "rdmakit/redis.h"
#include "redis/client/buffer.h"
#include "redis/client/push_queue.h"
#include "redis/client/resp_format.h"
#include "redis/client/resp_reader.h"
#include "redis/client/transport.h"

enum {
	CONNECT_TIMEOUT_MS = 5000,
	SEND_AT_BYTES = 64 << 10,
	READ_BYTES = 64 << 10,
};

struct rk_redis {
	struct rk_link_context *context;
	struct rk_link *link;
	const struct rk_transport *transport;
	struct rk_buffer out;
	struct rk_resp_reader reader;
	int command_timeout_ms;
	int broken; /* negative errno: no call works any more */

	struct rk_push_queue pushes; /* came while a command waited */
	char error[256];
};

static RK_PRINTF(3, 4) int set_error(struct rk_redis *redis, int error,
				     const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(redis->error, sizeof(redis->error), format, args);
	va_end(args);
	return error;
}

/* Words are set already. */
static int break_connection(struct rk_redis *redis, int error)
{
	redis->broken = error;
	return error;
}

static int out_of_memory(struct rk_redis *redis)
{
	return set_error(redis, -ENOMEM, "out of memory");
}

static uint64_t deadline_after_ms(int timeout_ms)
{
	return rk_now_ns() + (uint64_t)timeout_ms * RK_NS_PER_MS;
}

static uint64_t command_deadline(const struct rk_redis *redis)
{
	return redis->command_timeout_ms > 0
		       ? deadline_after_ms(redis->command_timeout_ms)
		       : RK_NEVER;
}

/* Events of the link, or -ETIMEDOUT once the deadline has passed. */
static int wait_for_events(struct rk_redis *redis, uint64_t deadline_ns)
{
	struct rk_link_ready ready;
	int64_t timeout_us = -1;
	uint64_t now_ns;
	int ret;

	for (;;) {
		if (deadline_ns != RK_NEVER) {
			now_ns = rk_now_ns();
			if (now_ns >= deadline_ns)
				return -ETIMEDOUT;
			timeout_us = (int64_t)((deadline_ns - now_ns) /
					       RK_NS_PER_US) + 1;
		}
		ret = redis->transport->wait(redis->context, &ready, 1,
					     timeout_us);
		if (ret > 0)
			return (int)ready.events;
		if (ret < 0 && ret != -EINTR)
			return set_error(redis, ret, "waiting: %s",
					 strerror(-ret));
	}
}

/* Everything that is there goes into the reader. */
static int take_input(struct rk_redis *redis)
{
	struct rk_buffer *in = &redis->reader.in;
	ssize_t got;

	do {
		if (rk_buffer_reserve(in, READ_BYTES))
			return break_connection(redis, out_of_memory(redis));
		got = redis->transport->read(redis->link, rk_buffer_tail(in),
					     READ_BYTES);
		if (got > 0)
			rk_buffer_commit(in, (size_t)got);
	} while (got == READ_BYTES);
	if (got > 0 || got == -EAGAIN)
		return 0;
	if (!got)
		return break_connection(
			redis, set_error(redis, -ECONNRESET,
					 "the server closed the connection"));
	return break_connection(redis, set_error(redis, (int)got,
						 "connection lost: %s",
						 redis->link->error));
}

/*
 * Send all of the buffer.  Answers that come meanwhile are taken in, so that
 * neither side waits for the other with full buffers.
 */
static int send_all(struct rk_redis *redis, uint64_t deadline_ns)
{
	struct rk_buffer *out = &redis->out;
	struct iovec iov;
	ssize_t sent;
	int ret;

	for (;;) {
		iov.iov_base = rk_buffer_head(out);
		iov.iov_len = rk_buffer_bytes(out);
		if (!iov.iov_len)
			return 0;
		sent = redis->transport->writev(redis->link, &iov, 1);
		if (sent > 0)
			rk_buffer_consume(out, (size_t)sent);
		if (sent == (ssize_t)iov.iov_len)
			return 0;
		if (sent < 0 && sent != -EAGAIN) {
			set_error(redis, (int)sent, "connection lost: %s",
				  redis->link->error);
			return break_connection(redis, (int)sent);
		}
		ret = wait_for_events(redis, deadline_ns);
		if (ret == -ETIMEDOUT)
			set_error(redis, ret, "the server takes no data");
		if (ret < 0)
			return break_connection(redis, ret);
		if (ret & (RK_LINK_READABLE | RK_LINK_CLOSED)) {
			ret = take_input(redis);
			if (ret)
				return ret;
		}
	}
}

/* The next reply from the wire. */
static int read_reply(struct rk_redis *redis, uint64_t deadline_ns,
		      struct rk_reply **reply)
{
	int ret;

	for (;;) {
		ret = rk_resp_reader_next(&redis->reader, reply);
		if (ret > 0)
			return 0;
		if (ret < 0) {
			set_error(redis, ret, "%s%s",
				  ret == -EPROTO ? "bad reply: " : "",
				  redis->reader.error);
			return break_connection(redis, ret);
		}
		if (redis->broken)
			return redis->broken;
		ret = wait_for_events(redis, deadline_ns);
		if (ret == -ETIMEDOUT)
			return set_error(redis, ret, "no answer in time");
		if (ret < 0)
			return break_connection(redis, ret);
		/* What came before the end is answered before the end is. */
		take_input(redis);
	}
}

/* In RESP3 a SUBSCRIBE is answered by a push of that name. */
static bool answers(const struct rk_reply *push, const char *command,
		    size_t bytes)
{
	static const char *const names[] = {
		"subscribe",	"unsubscribe",	"psubscribe",
		"punsubscribe", "ssubscribe",	"sunsubscribe",
	};
	const struct rk_reply *kind;

	if (!push->element_count)
		return false;
	kind = push->elements[0];
	if (kind->type != RK_REPLY_STRING || kind->bytes != bytes ||
	    strncasecmp(kind->text, command, bytes) != 0)
		return false;
	for (size_t i = 0; i < RK_ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == bytes &&
		    !strncasecmp(names[i], command, bytes))
			return true;
	return false;
}

static int run_command(struct rk_redis *redis, uint64_t deadline_ns, int argc,
		       const char *const *argv, const size_t *lengths,
		       struct rk_reply **reply)
{
	int ret = rk_resp_format(&redis->out, argc, argv, lengths);

	if (ret == -ENOMEM)
		return out_of_memory(redis);
	if (ret)
		return set_error(redis, ret, "a command needs a name");
	ret = send_all(redis, deadline_ns);
	while (!ret) {
		ret = read_reply(redis, deadline_ns, reply);
		if (ret || (*reply)->type != RK_REPLY_PUSH ||
		    answers(*reply, argv[0],
			    lengths ? lengths[0] : strlen(argv[0])))
			break;
		ret = rk_push_queue_put(&redis->pushes, *reply);
		if (!ret)
			continue;
		set_error(redis, ret, "pushes came and nobody read them: %s",
			  strerror(-ret));
		rk_reply_free(*reply);
		*reply = NULL;
	}
	/* The answer may still come, and would be taken for the next one. */
	return ret ? break_connection(redis, ret) : 0;
}

/* AUTH or SELECT: anything but OK fails. */
static int run_setup(struct rk_redis *redis, uint64_t deadline_ns, int argc,
		     const char *const *argv, int error)
{
	struct rk_reply *reply;
	int ret = run_command(redis, deadline_ns, argc, argv, NULL, &reply);

	if (ret)
		return ret;
	if (reply->type == RK_REPLY_ERROR)
		ret = break_connection(redis, set_error(redis, error, "%s: %s",
							argv[0], reply->text));
	rk_reply_free(reply);
	return ret;
}

static int log_in(struct rk_redis *redis, const struct rk_uri *uri,
		  uint64_t deadline_ns)
{
	const char *auth[3] = { "AUTH" };
	char db[12];
	const char *select[2] = { "SELECT", db };
	int argc = 1, ret = 0;

	if (uri->password[0]) {
		if (uri->user[0])
			auth[argc++] = uri->user;
		auth[argc++] = uri->password;
		ret = run_setup(redis, deadline_ns, argc, auth, -EACCES);
	}
	if (!ret && uri->db) {
		snprintf(db, sizeof(db), "%u", uri->db);
		ret = run_setup(redis, deadline_ns, 2, select, -EINVAL);
	}
	return ret;
}

static int connect_link(struct rk_redis *redis, const struct rk_uri *uri,
			int timeout_ms, uint64_t deadline_ns)
{
	char text[RK_URI_TEXT_MAX], why[160];
	int ret;

	rk_uri_text(uri, text, sizeof(text));
	ret = redis->transport->connect(redis->context, uri, timeout_ms, redis,
					&redis->link, why, sizeof(why));
	if (ret)
		return set_error(redis, ret, "cannot connect to %s: %s", text,
				 why);
	do
		ret = wait_for_events(redis, deadline_ns);
	while (ret >= 0 && !(ret & (RK_LINK_OPEN | RK_LINK_CLOSED)));
	if (ret == -ETIMEDOUT)
		return set_error(redis, ret, "no connection to %s in %d ms",
				 text, timeout_ms);
	if (ret < 0)
		return ret;
	if (ret & RK_LINK_CLOSED)
		return set_error(redis, -ECONNREFUSED,
				 "cannot connect to %s: %s", text,
				 redis->link->error);
	return 0;
}

static int start(struct rk_redis *redis, const struct rk_uri *uri,
		 const struct rk_redis_params *params)
{
	int timeout_ms = params->connect_timeout_ms > 0
				 ? params->connect_timeout_ms
				 : CONNECT_TIMEOUT_MS;
	uint64_t deadline_ns = deadline_after_ms(timeout_ms);
	struct rk_link_options options = {
		.device = uri->device[0] ? uri->device : params->device,
		.spin_us = params->spin_us ? (int)params->spin_us : -1,
		.uri = uri,
	};
	int ret;

	redis->command_timeout_ms = params->command_timeout_ms;
	redis->transport = rk_transport_find(uri->scheme, redis->error,
					     sizeof(redis->error));
	if (!redis->transport)
		return -EPROTONOSUPPORT;
	ret = redis->transport->open(&redis->context, &options, redis->error,
				     sizeof(redis->error));
	if (!ret)
		ret = connect_link(redis, uri, timeout_ms, deadline_ns);
	if (!ret)
		ret = log_in(redis, uri, deadline_ns);
	return ret;
}

int rk_redis_open(struct rk_redis **out, const char *uri,
		  const struct rk_redis_params *params)
{
	static const struct rk_redis_params defaults;
	struct rk_redis *redis = rk_zalloc(sizeof(*redis));
	struct rk_uri where;
	int ret;

	*out = redis;
	if (!redis)
		return -ENOMEM;
	ret = rk_uri_parse(&where, uri, redis->error, sizeof(redis->error));
	if (!ret)
		ret = start(redis, &where, params ? params : &defaults);
	return ret ? break_connection(redis, ret) : 0;
}

void rk_redis_close(struct rk_redis *redis)
{
	if (!redis)
		return;
	if (redis->link)
		redis->transport->disconnect(redis->link);
	if (redis->context)
		redis->transport->close(redis->context);
	rk_push_queue_free(&redis->pushes);
	rk_resp_reader_free(&redis->reader);
	rk_buffer_free(&redis->out);
	rk_free(redis);
}

int rk_redis_command(struct rk_redis *redis, int argc, const char *const *argv,
		     const size_t *lengths, struct rk_reply **reply)
{
	*reply = NULL;
	if (redis->broken)
		return redis->broken;
	return run_command(redis, command_deadline(redis), argc, argv, lengths,
			   reply);
}

static int send_if_much(struct rk_redis *redis)
{
	if (rk_buffer_bytes(&redis->out) < SEND_AT_BYTES)
		return 0;
	return send_all(redis, command_deadline(redis));
}

int rk_redis_append(struct rk_redis *redis, int argc, const char *const *argv,
		    const size_t *lengths)
{
	int ret;

	if (redis->broken)
		return redis->broken;
	ret = rk_resp_format(&redis->out, argc, argv, lengths);
	if (ret == -ENOMEM)
		return out_of_memory(redis);
	if (ret)
		return set_error(redis, ret, "a command needs a name");
	return send_if_much(redis);
}

int rk_redis_append_raw(struct rk_redis *redis, const void *data, size_t bytes)
{
	if (redis->broken)
		return redis->broken;
	if (rk_buffer_append(&redis->out, data, bytes))
		return out_of_memory(redis);
	return send_if_much(redis);
}

int rk_redis_read(struct rk_redis *redis, struct rk_reply **reply)
{
	uint64_t deadline_ns = command_deadline(redis);
	int ret;

	*reply = rk_push_queue_take(&redis->pushes);
	if (*reply)
		return 0;
	if (redis->broken)
		return redis->broken;
	ret = send_all(redis, deadline_ns);
	if (!ret)
		ret = read_reply(redis, deadline_ns, reply);
	return ret ? break_connection(redis, ret) : 0;
}

int rk_redis_read_timeout(struct rk_redis *redis, int timeout_ms,
			  struct rk_reply **reply)
{
	int ret;

	*reply = rk_push_queue_take(&redis->pushes);
	if (*reply)
		return 0;
	if (redis->broken)
		return redis->broken;
	ret = send_all(redis, command_deadline(redis));
	if (!ret)
		ret = read_reply(redis, deadline_after_ms(timeout_ms), reply);
	return ret;
}

const char *rk_redis_error(const struct rk_redis *redis)
{
	return redis->error;
}

const char *rk_redis_transport(const struct rk_redis *redis)
{
	return redis->transport ? redis->transport->scheme : "";
}

const char *rk_redis_device(const struct rk_redis *redis)
{
	return redis->context ? redis->transport->device(redis->context)
			      : NULL;
}
