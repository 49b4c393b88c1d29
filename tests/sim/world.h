/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two contexts on a simulated network, a listener on the second, a connection
 * between them; what its callbacks said is counted.
 */
#ifndef RK_TESTS_SIM_WORLD_H
#define RK_TESTS_SIM_WORLD_H

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "fabric/sim.h"
#include "ok.h"

enum { TARGET_BYTES = 65536 };

struct end {
	struct rk_conn *conn;
	struct rk_mem target, source;
	unsigned established, received, written, sent, writable, closed;
	unsigned reason, private_bytes;
	uint64_t last_token;
	uint32_t next_immediate;
	bool out_of_order, torn, refuse, destroy_in_callback;
	int status;
};

struct world {
	struct sim_net *net;
	struct rk_context *context[2];
	struct rk_listener *listener;
	struct rk_conn_params params;
	struct end a, b;
	struct sockaddr_in addr;
};

static inline struct end *end_of(struct rk_conn *conn)
{
	return conn->user;
}

static inline void maybe_destroy(struct end *end)
{
	if (!end->destroy_in_callback)
		return;
	rk_conn_destroy(end->conn);
	end->conn = NULL;
}

static inline void on_established(struct rk_conn *conn, const void *data,
				  size_t bytes)
{
	end_of(conn)->established++;
	end_of(conn)->private_bytes = (unsigned)bytes;
	maybe_destroy(end_of(conn));
}

static inline void on_received(struct rk_conn *conn, const void *message,
			       uint32_t bytes)
{
	uint32_t number;

	memcpy(&number, message, sizeof(number));
	if (number != end_of(conn)->received)
		end_of(conn)->out_of_order = true;
	end_of(conn)->received++;
	maybe_destroy(end_of(conn));
}

static inline void on_written(struct rk_conn *conn, uint32_t immediate,
			      uint32_t bytes)
{
	struct end *end = end_of(conn);
	const uint32_t *word = end->target.addr;

	if (immediate != end->next_immediate)
		end->out_of_order = true;
	/* the plain write before this immediate is to be visible */
	if (word[immediate % 1024] != immediate)
		end->torn = true;
	end->next_immediate = immediate + 1;
	end->written++;
	maybe_destroy(end);
}

static inline void on_sent(struct rk_conn *conn, uint64_t token)
{
	struct end *end = end_of(conn);

	if (token <= end->last_token && end->sent)
		end->out_of_order = true;
	end->last_token = token;
	end->sent++;
	maybe_destroy(end);
}

static inline void on_writable(struct rk_conn *conn)
{
	end_of(conn)->writable++;
}

static inline void on_closed(struct rk_conn *conn, enum rk_close_reason reason,
			     int status)
{
	end_of(conn)->closed++;
	end_of(conn)->reason = reason;
	end_of(conn)->status = status;
	maybe_destroy(end_of(conn));
}

static const struct rk_conn_handler handler = {
	.established = on_established,
	.received = on_received,
	.written = on_written,
	.sent = on_sent,
	.writable = on_writable,
	.closed = on_closed,
};

static inline void on_request(void *user, struct rk_conn *conn,
			      const void *data, size_t bytes)
{
	struct world *w = user;
	const char *text = data;

	w->b.private_bytes = (unsigned)bytes;
	if (w->b.refuse || text[0] != 'h') {
		rk_conn_reject(conn, NULL, 0);
		rk_conn_destroy(conn);
		return;
	}
	if (rk_conn_accept(conn, &w->params, "reply", 5, &handler, &w->b) ||
	    rk_mem_alloc(w->context[1], conn, TARGET_BYTES, RK_REMOTE_WRITE,
			 &w->b.target)) {
		rk_conn_destroy(conn);
		return;
	}
	w->b.conn = conn;
}

static const struct rk_listen_handler listen_handler = { on_request };

static inline void world_open(struct world *w, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->net = sim_open(seed);
	w->context[0] = sim_context(w->net);
	w->context[1] = sim_context(w->net);
	w->params = (struct rk_conn_params){ .send_depth = 64,
					     .receive_depth = 16,
					     .receive_bytes = 32,
					     .inline_bytes = 64,
					     .retry_count = 7,
					     .rnr_retry_count = 7 };
	w->addr.sin_family = AF_INET;
	w->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (rk_fabric_listen(w->context[1], (struct sockaddr *)&w->addr, 0,
			     &listen_handler, w, &w->listener))
		abort();
	w->addr.sin_port = htons(rk_listener_port(w->listener));
}

static inline int world_connect(struct world *w)
{
	return rk_fabric_connect(w->context[0], (struct sockaddr *)&w->addr,
				 NULL, &w->params, "hello", 5, 100, &handler,
				 &w->a, &w->a.conn);
}

static inline void world_up(struct world *w, uint64_t seed)
{
	world_open(w, seed);
	if (world_connect(w) ||
	    rk_mem_alloc(w->context[0], w->a.conn, TARGET_BYTES,
			 RK_REMOTE_WRITE, &w->a.target) != -ENOTCONN ||
	    rk_mem_alloc(w->context[0], NULL, TARGET_BYTES, 0, &w->a.source))
		abort();
	sim_settle(w->net);
	if (!w->a.established || !w->b.established ||
	    rk_mem_alloc(w->context[0], w->a.conn, TARGET_BYTES,
			 RK_REMOTE_WRITE, &w->a.target))
		abort();
}

static inline void world_close(struct world *w)
{
	rk_conn_destroy(w->a.conn);
	rk_conn_destroy(w->b.conn);
	rk_mem_free(w->context[0], &w->a.target);
	rk_mem_free(w->context[0], &w->a.source);
	rk_mem_free(w->context[1], &w->b.target);
	rk_listener_destroy(w->listener);
	sim_close(w->net);
}

/* A plain write of one word, then an immediate without bytes. */
static inline int write_number(struct world *w, uint32_t number, unsigned flags)
{
	struct rk_piece piece = { &number, sizeof(number), 0 };
	uint64_t at = (uint64_t)(uintptr_t)w->b.target.addr +
		      number % 1024 * sizeof(number);
	int ret;

	ret = rk_conn_write(w->a.conn, &piece, 1, at, w->b.target.rkey, 0,
			    RK_INLINE, 0);
	return ret ? ret
		   : rk_conn_write(w->a.conn, NULL, 0, 0, 0, number,
				   RK_WITH_IMM | flags, number);
}

static inline int send_number(struct world *w, uint32_t number)
{
	struct rk_piece piece = { &number, sizeof(number), 0 };

	return rk_conn_send(w->a.conn, &piece, 1, RK_INLINE | RK_SIGNALLED,
			    number);
}

#endif
