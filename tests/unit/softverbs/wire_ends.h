/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Both ends of a link in one process, on one wire: the process connects to its
 * own listener.  Nothing here sleeps: the sockets of one process are ready as
 * soon as they were written.
 */
#ifndef RK_TESTS_WIRE_ENDS_H
#define RK_TESTS_WIRE_ENDS_H

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "ok.h"
#include "softverbs/wire_internal.h"

enum { ENDS_ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
		  IBV_ACCESS_REMOTE_WRITE };

struct ends {
	struct wire *wire;
	struct wire_listener *listener;
	struct wire_link *active, *passive;
	struct wire_lane a, b; /* lane 0, when ends_open_lane() was called */
	unsigned messages, lanes, gone;
	char last[WIRE_MESSAGE_MAX];
	size_t last_bytes;
	struct wire_lane *last_lane;
	struct wire_link *last_gone;
};

static void ends_message(void *user, struct wire_link *link,
			 const void *message, size_t bytes)
{
	struct ends *ends = user;

	if (!wire_link_is_ours(link) && !ends->passive)
		ends->passive = wire_get(link);
	ends->messages++;
	ends->last_bytes = bytes;
	memcpy(ends->last, message, bytes);
}

static void ends_lane(void *user, struct wire_lane *lane)
{
	struct ends *ends = user;

	ends->lanes++;
	ends->last_lane = lane;
}

static void ends_gone(void *user, struct wire_link *link)
{
	struct ends *ends = user;

	ends->gone++;
	ends->last_gone = link;
}

static const struct wire_handler ends_handler = {
	.message = ends_message,
	.lane = ends_lane,
	.gone = ends_gone,
};

static inline struct sockaddr_storage ends_addr(const char *text,
						uint16_t port)
{
	struct sockaddr_storage addr = { .ss_family = AF_INET };
	struct sockaddr_in *v4 = (struct sockaddr_in *)&addr;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&addr;

	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_port = htons(port);
		return addr;
	}
	addr.ss_family = AF_INET6;
	if (inet_pton(AF_INET6, text, &v6->sin6_addr) != 1)
		abort();
	v6->sin6_port = htons(port);
	return addr;
}

static inline int ends_bind(struct ends *ends, const char *text, uint16_t port,
			    bool v6_only, struct wire_listener **out)
{
	struct sockaddr_storage addr = ends_addr(text, port);

	return wire_bind(ends->wire, (struct sockaddr *)&addr, v6_only, out);
}

static inline int ends_connect(struct ends *ends, const char *text,
			       uint16_t port, struct wire_link **out)
{
	struct sockaddr_storage addr = ends_addr(text, port);

	return wire_connect(ends->wire, (struct sockaddr *)&addr, out);
}

static inline void ends_settle(struct ends *ends)
{
	while (wire_pump(ends->wire, true))
		;
}

static inline void ends_open(struct ends *ends)
{
	memset(ends, 0, sizeof(*ends));
	if (wire_open(&ends->wire, &ends_handler, ends) ||
	    ends_bind(ends, "127.0.0.1", 0, false, &ends->listener) ||
	    wire_listen(ends->listener, 16) ||
	    ends_connect(ends, "127.0.0.1", wire_listener_port(ends->listener),
			 &ends->active) ||
	    wire_send(ends->active, "hello", 5)) {
		printf("Bail out! no wire\n");
		exit(1);
	}
	ends_settle(ends);
	if (!ends->passive) {
		printf("Bail out! the acceptor saw no link\n");
		exit(1);
	}
}

static inline void ends_open_lane(struct ends *ends)
{
	unsigned number;

	if (lane_reserve(ends->active, &number) ||
	    lane_open(&ends->a, ends->active, number, 7) ||
	    lane_open(&ends->b, ends->passive, number, 7)) {
		printf("Bail out! no lane\n");
		exit(1);
	}
	lane_admit(&ends->a);
	lane_admit(&ends->b);
	ends_settle(ends);
}

static inline void ends_close(struct ends *ends)
{
	lane_close(&ends->a);
	lane_close(&ends->b);
	wire_close(ends->wire);
	if (ends->active)
		wire_put(ends->active);
	if (ends->passive)
		wire_put(ends->passive);
}

/* One SEND of that payload; 0 or what lane_push() said. */
static inline int ends_push(struct wire_lane *lane, const void *payload,
			    size_t bytes)
{
	struct record record = { .op = RECORD_SEND,
				 .flags = RECORD_LAST,
				 .length = (uint32_t)bytes };
	struct iovec iov = { .iov_base = (void *)payload, .iov_len = bytes };

	return lane_push(lane, &record, &iov, 1);
}

/* Take one record; its payload's length, or what lane_peek() said if that is
 * not 1 (0 becomes -EAGAIN). */
static inline int ends_pop(struct wire_lane *lane, void *payload, size_t room)
{
	struct iovec iov = { .iov_base = payload, .iov_len = room };
	struct record record;
	int ret = lane_peek(lane, &record);

	if (ret != 1)
		return ret ? ret : -EAGAIN;
	if (record.bytes > room)
		return -EMSGSIZE;
	lane_copy(lane, &record, &iov, 1);
	lane_pop(lane, &record);
	lane->acked++;
	return (int)record.bytes;
}

/* An honest record crosses lane 0 and is acknowledged. */
static inline bool ends_go_on(struct ends *ends)
{
	uint8_t in[8];

	if (ends_push(&ends->a, "honest", 6))
		return false;
	lane_flush(&ends->a);
	ends->last_lane = NULL;
	wire_pump(ends->wire, true);
	if (ends->last_lane != &ends->b || ends_pop(&ends->b, in, 8) != 6)
		return false;
	lane_answer(&ends->b);
	return !lane_refresh(&ends->a) &&
	       ends->a.peer_acked == ends->a.sequence;
}

#endif
