/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two contexts of one process on the software device, a listener on the second
 * and a connection between them; what its callbacks said is counted.
 *
 * world_step() runs both and sleeps on their descriptors when there is nothing
 * to do, as a program would.  An event that only turns up because the sleep
 * ended by itself is a lost wake-up, and counted.
 */
#ifndef RK_TESTS_FABRIC_WORLD_H
#define RK_TESTS_FABRIC_WORLD_H

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "fabric/verbs/internal.h"
#include "ok.h"

enum { WORLD_TARGET_BYTES = 65536, WORLD_SLEEP_MS = 300 };

/* The callback in which an end destroys its connection. */
enum world_callback {
	IN_NONE,
	IN_ESTABLISHED,
	IN_RECEIVED,
	IN_WRITTEN,
	IN_SENT,
	IN_WRITABLE,
	IN_CLOSED,
	IN_CALLBACKS
};

struct end {
	struct rk_conn *conn;
	struct rk_mem target, source;
	unsigned established, received, written, sent, writable, closed;
	unsigned private_bytes;
	char private_data[200];
	enum rk_close_reason reason;
	int status;
	uint64_t last_token;
	uint32_t next_immediate, next_message;
	bool out_of_order, torn, destroyed;
	enum world_callback destroy_in;
};

enum world_answer { ACCEPT, REJECT, NO_ANSWER };

struct world {
	struct rk_context *context[2];
	struct rk_listener *listener;
	struct rk_conn_params params[2];
	struct end a, b;
	struct sockaddr_in addr;
	enum world_answer answer;
	struct rk_conn *unanswered;
	int accept_result, memory_result;
	unsigned requests, lost_wakeups;
	char request_data[64];
};

/* One port for all worlds of a process: the device keeps what it has set up
 * towards a port for some seconds, and this way it is the same each time. */
static in_port_t world_port;

static inline void world_destroyed(struct end *end, enum world_callback now)
{
	if (end->destroy_in != now)
		return;
	rk_conn_destroy(end->conn);
	end->conn = NULL;
	end->destroyed = true;
}

static void on_established(struct rk_conn *conn, const void *data, size_t bytes)
{
	struct end *end = conn->user;

	end->established++;
	end->private_bytes = (unsigned)bytes;
	if (bytes)
		memcpy(end->private_data, data,
		       rk_min(bytes, sizeof(end->private_data)));
	world_destroyed(end, IN_ESTABLISHED);
}

static void on_received(struct rk_conn *conn, const void *message,
			uint32_t bytes)
{
	struct end *end = conn->user;
	uint32_t number = 0;

	memcpy(&number, message, rk_min((size_t)bytes, sizeof(number)));
	if (number != end->next_message++)
		end->out_of_order = true;
	end->received++;
	world_destroyed(end, IN_RECEIVED);
}

static void on_written(struct rk_conn *conn, uint32_t immediate, uint32_t bytes)
{
	struct end *end = conn->user;
	const uint32_t *word = end->target.addr;

	if (immediate != end->next_immediate)
		end->out_of_order = true;
	/* the plain write before this immediate is to be visible */
	if (word && word[immediate % 1024] < immediate)
		end->torn = true;
	end->next_immediate = immediate + 1;
	end->written++;
	world_destroyed(end, IN_WRITTEN);
}

static void on_sent(struct rk_conn *conn, uint64_t token)
{
	struct end *end = conn->user;

	if (end->sent && token <= end->last_token)
		end->out_of_order = true;
	end->last_token = token;
	end->sent++;
	world_destroyed(end, IN_SENT);
}

static void on_writable(struct rk_conn *conn)
{
	struct end *end = conn->user;

	end->writable++;
	world_destroyed(end, IN_WRITABLE);
}

static void on_closed(struct rk_conn *conn, enum rk_close_reason reason,
		      int status)
{
	struct end *end = conn->user;

	end->closed++;
	end->reason = reason;
	end->status = status;
	world_destroyed(end, IN_CLOSED);
}

static const struct rk_conn_handler world_handler = {
	.established = on_established,
	.received = on_received,
	.written = on_written,
	.sent = on_sent,
	.writable = on_writable,
	.closed = on_closed,
};

static void on_request(void *user, struct rk_conn *conn, const void *data,
		       size_t bytes)
{
	struct world *w = user;

	w->requests++;
	memcpy(w->request_data, data,
	       rk_min(bytes, sizeof(w->request_data) - 1));
	switch (w->answer) {
	case ACCEPT:
		break;
	case REJECT:
		rk_conn_reject(conn, "not today", 9);
		rk_conn_destroy(conn);
		return;
	case NO_ANSWER:
		w->unanswered = conn;
		return;
	}
	w->memory_result = rk_mem_alloc(w->context[1], conn, WORLD_TARGET_BYTES,
					RK_REMOTE_WRITE, &w->b.target);
	w->accept_result = rk_conn_accept(conn, &w->params[1], "welcome", 8,
					  &world_handler, &w->b);
	if (w->accept_result) {
		rk_conn_destroy(conn);
		return;
	}
	w->b.conn = conn;
}

static const struct rk_listen_handler world_listen_handler = { on_request };

static inline void world_init(struct world *w)
{
	memset(w, 0, sizeof(*w));
	w->params[0] = (struct rk_conn_params){ .send_depth = 64,
						.receive_depth = 32,
						.receive_bytes = 32,
						.inline_bytes = 64,
						.retry_count = 7,
						.rnr_retry_count = 7 };
	w->params[1] = w->params[0];
	w->addr.sin_family = AF_INET;
	w->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	w->addr.sin_port = world_port;
}

static inline int world_listen(struct world *w)
{
	int ret = rk_fabric_listen(w->context[1], (struct sockaddr *)&w->addr,
				   0, &world_listen_handler, w, &w->listener);

	if (!ret)
		world_port = w->addr.sin_port =
			htons(rk_listener_port(w->listener));
	return ret;
}

static inline int world_connect(struct world *w, int timeout_ms)
{
	return rk_fabric_connect(w->context[0], (struct sockaddr *)&w->addr,
				 NULL, &w->params[0], "hello", 6, timeout_ms,
				 &world_handler, &w->a, &w->a.conn);
}

static inline void world_close(struct world *w)
{
	rk_conn_destroy(w->a.conn);
	rk_conn_destroy(w->b.conn);
	rk_conn_destroy(w->unanswered);
	rk_mem_free(w->context[0], &w->a.target);
	rk_mem_free(w->context[0], &w->a.source);
	rk_mem_free(w->context[1], &w->b.target);
	rk_mem_free(w->context[1], &w->b.source);
	rk_listener_destroy(w->listener);
	rk_context_close(w->context[0]);
	rk_context_close(w->context[1]);
}

static inline unsigned world_run(struct world *w)
{
	return rk_context_process(w->context[0], 0) +
	       rk_context_process(w->context[1], 0);
}

static inline int world_sleep_ms(struct world *w)
{
	uint64_t now_ns = rk_now_ns(), at_ns;
	int ms = WORLD_SLEEP_MS;

	for (unsigned i = 0; i < 2; i++) {
		at_ns = rk_context_deadline_ns(w->context[i]);
		if (at_ns <= now_ns)
			return 0;
		if ((at_ns - now_ns) / RK_NS_PER_MS + 1 < (uint64_t)ms)
			ms = (int)((at_ns - now_ns) / RK_NS_PER_MS + 1);
	}
	return ms;
}

static inline void world_step(struct world *w)
{
	struct pollfd fds[2];
	int ms;

	if (world_run(w))
		return;
	for (unsigned i = 0; i < 2; i++) {
		fds[i].fd = rk_context_fd(w->context[i]);
		fds[i].events = POLLIN;
		if (rk_context_arm(w->context[i]))
			return;
	}
	ms = world_sleep_ms(w);
	if (poll(fds, 2, ms) == 0 && ms == WORLD_SLEEP_MS && world_run(w))
		w->lost_wakeups++;
}

/* Until cond holds, or a while has passed. */
#define world_until(w, cond)                                                   \
	({                                                                     \
		uint64_t end_ns_ = rk_now_ns() + 8 * RK_NS_PER_S;              \
		while (!(cond) && rk_now_ns() < end_ns_)                       \
			world_step(w);                                         \
		(cond);                                                        \
	})

static inline void world_open(struct world *w)
{
	static const struct rk_context_params params = {
		.device = "soft",
		.completion_vector = -1,
	};

	world_init(w);
	for (unsigned i = 0; i < 2; i++)
		ok_or_die(rk_context_open(&w->context[i], &params) == 0,
			  "a context opens on the software device");
	ok_or_die(world_listen(w) == 0, "it listens");
}

static inline void world_up(struct world *w)
{
	world_open(w);
	ok_or_die(world_connect(w, 0) == 0, "connecting starts");
	ok_or_die(world_until(w, w->a.established && w->b.established),
		  "both sides are up");
	ok_or_die(!w->memory_result &&
			  !rk_mem_alloc(w->context[0], w->a.conn,
					WORLD_TARGET_BYTES, RK_REMOTE_WRITE,
					&w->a.target),
		  "both have memory for the other");
}

/* A plain write of one word, then an immediate without bytes. */
static inline int world_write(struct end *from, const struct rk_mem *target,
			      uint32_t number, unsigned flags)
{
	struct rk_piece piece = { &number, sizeof(number), 0 };
	uint64_t at = (uint64_t)(uintptr_t)target->addr +
		      number % 1024 * sizeof(number);
	int ret;

	ret = rk_conn_write(from->conn, &piece, 1, at, target->rkey, 0,
			    RK_INLINE, 0);
	if (ret)
		return ret;
	return rk_conn_write(from->conn, NULL, 0, 0, 0, number,
			     RK_WITH_IMM | flags, number);
}

static inline int world_send(struct end *from, uint32_t number)
{
	struct rk_piece piece = { &number, sizeof(number), 0 };

	return rk_conn_send(from->conn, &piece, 1, RK_INLINE | RK_SIGNALLED,
			    number);
}

#endif
