/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fabric of one connection that does nothing by itself: what a stream posts
 * is noted and can be looked at, what the peer does is said by the test.  So a
 * test sees every work request with its bytes, and the peer can do anything.
 */
#ifndef RK_TESTS_STREAM_SCRIPT_H
#define RK_TESTS_STREAM_SCRIPT_H

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "fabric/fabric.h"
#include "ok.h"
#include "rdmakit/stream.h"
#include "stream/internal.h"

enum { SCRIPT_OPS = 32768, SCRIPT_HEAD = 64, SCRIPT_WINDOW = 4 << 20 };

struct op {
	bool send; /* or a write */
	bool with_imm, signalled, was_inline;
	uint32_t bytes, pieces, immediate, key;
	uint64_t addr, token;
	uint8_t head[SCRIPT_HEAD]; /* the first bytes */
};

struct script {
	struct rk_context context; /* first */
	struct rk_conn conn;
	struct rk_listener listener;
	const struct rk_listen_handler *listen_handler;
	void *listen_user;
	struct rk_stream_listener *stream_listener;
	struct rk_stream *stream;

	/* how the device is */
	uint64_t now_ns;
	unsigned inline_bytes, pieces_max;
	int peer_rnr;
	bool software;
	bool full;	    /* every post is -EAGAIN */
	int post_error;	    /* or this */
	unsigned mem_fails; /* so many rk_mem_alloc() fail */

	/* what has happened */
	struct op op[SCRIPT_OPS];
	unsigned ops, completed;
	unsigned disconnects, destroys, mems;
	size_t mem_bytes;
	unsigned events, told; /* events told, and how often */
	unsigned told_writable, told_readable;
	struct rk_conn_params params;

	struct wire_message our_window; /* announced last */

	/* the peer's window, written as its device would */
	uint64_t window_addr;
	uint8_t window[SCRIPT_WINDOW];
};

static struct script *script_of(const struct rk_context *context)
{
	return rk_container_of(context, struct script, context);
}

static uint64_t script_now_ns(const struct rk_context *context)
{
	return script_of(context)->now_ns;
}

static void script_info(const struct rk_context *context,
			struct rk_context_info *out)
{
	*out = (struct rk_context_info){
		.software = script_of(context)->software,
	};
}

static int script_listen(struct rk_context *context,
			 const struct sockaddr *addr, int backlog,
			 const struct rk_listen_handler *handler, void *user,
			 struct rk_listener **out)
{
	struct script *sc = script_of(context);

	sc->listen_handler = handler;
	sc->listen_user = user;
	sc->listener.context = context;
	*out = &sc->listener;
	return 0;
}

static void script_unlisten(struct rk_listener *listener)
{
}

static int script_connect(struct rk_context *context,
			  const struct sockaddr *addr,
			  const struct sockaddr *source,
			  const struct rk_conn_params *params,
			  const void *data, size_t bytes, int timeout_ms,
			  const struct rk_conn_handler *handler, void *user,
			  struct rk_conn **out)
{
	struct script *sc = script_of(context);

	sc->params = *params;
	sc->conn = (struct rk_conn){ .context = context,
				     .handler = handler,
				     .user = user };
	*out = &sc->conn;
	return 0;
}

static int script_accept(struct rk_conn *conn,
			 const struct rk_conn_params *params, const void *data,
			 size_t bytes, const struct rk_conn_handler *handler,
			 void *user)
{
	script_of(conn->context)->params = *params;
	conn->handler = handler;
	conn->user = user;
	return 0;
}

static int script_reject(struct rk_conn *conn, const void *data, size_t bytes)
{
	return 0;
}

static int script_disconnect(struct rk_conn *conn)
{
	script_of(conn->context)->disconnects++;
	return 0;
}

static void script_destroy(struct rk_conn *conn)
{
	script_of(conn->context)->destroys++;
}

static struct op *script_note(struct rk_conn *conn,
			      const struct rk_piece *pieces, unsigned count,
			      unsigned flags, uint64_t token)
{
	struct script *sc = script_of(conn->context);
	struct op *op = &sc->op[sc->ops];

	memset(op, 0, sizeof(*op));
	for (unsigned i = 0; i < count; i++) {
		size_t room = SCRIPT_HEAD - rk_min(op->bytes,
						   (uint32_t)SCRIPT_HEAD);

		memcpy(op->head + SCRIPT_HEAD - room, pieces[i].addr,
		       rk_min((size_t)pieces[i].bytes, room));
		op->bytes += pieces[i].bytes;
	}
	op->pieces = count;
	op->token = token;
	op->signalled = flags & RK_SIGNALLED;
	op->was_inline = flags & RK_INLINE;
	sc->ops++;
	if (sc->ops == SCRIPT_OPS) {
		printf("Bail out! too many work requests\n");
		exit(1);
	}
	return op;
}

static int script_send(struct rk_conn *conn, const struct rk_piece *pieces,
		       unsigned count, unsigned flags, uint64_t token)
{
	struct script *sc = script_of(conn->context);
	char words[WIRE_WORDS_BYTES];
	struct wire_message m;
	struct op *op;

	if (sc->full || sc->post_error)
		return sc->full ? -EAGAIN : sc->post_error;
	op = script_note(conn, pieces, count, flags, token);
	op->send = true;
	if (!wire_check_control(op->head, op->bytes, &m, words) &&
	    m.opcode == WIRE_REGISTER_XFER_MEMORY)
		sc->our_window = m;
	return 0;
}

static int script_write(struct rk_conn *conn, const struct rk_piece *pieces,
			unsigned count, uint64_t remote_addr, uint32_t rkey,
			uint32_t immediate, unsigned flags, uint64_t token)
{
	struct script *sc = script_of(conn->context);
	uint64_t at = remote_addr - sc->window_addr;
	struct op *op;

	if (sc->full || sc->post_error)
		return sc->full ? -EAGAIN : sc->post_error;
	op = script_note(conn, pieces, count, flags, token);
	op->with_imm = flags & RK_WITH_IMM;
	op->immediate = immediate;
	op->addr = remote_addr;
	op->key = rkey;
	for (unsigned i = 0; i < count; i++) {
		if (at + pieces[i].bytes > SCRIPT_WINDOW) {
			printf("Bail out! a write outside of the window\n");
			exit(1);
		}
		memcpy(sc->window + at, pieces[i].addr, pieces[i].bytes);
		at += pieces[i].bytes;
	}
	return 0;
}

static int script_mem_alloc(struct rk_context *context, struct rk_conn *conn,
			    size_t bytes, unsigned access, struct rk_mem *out)
{
	struct script *sc = script_of(context);

	if (sc->mem_fails) {
		sc->mem_fails--;
		return -ENOMEM;
	}
	out->addr = rk_zalloc(bytes);
	if (!out->addr)
		return -ENOMEM;
	out->bytes = bytes;
	out->lkey = 1000 + ++sc->mems;
	out->rkey = 2000 + sc->mems;
	sc->mem_bytes += bytes;
	return 0;
}

static void script_mem_free(struct rk_context *context, struct rk_mem *mem)
{
	script_of(context)->mem_bytes -= mem->bytes;
	rk_free(mem->addr);
	memset(mem, 0, sizeof(*mem));
}

static unsigned script_inline(const struct rk_conn *conn)
{
	return script_of(conn->context)->inline_bytes;
}

static unsigned script_pieces(const struct rk_conn *conn)
{
	return script_of(conn->context)->pieces_max;
}

static int script_peer_rnr(const struct rk_conn *conn)
{
	return script_of(conn->context)->peer_rnr;
}

static const struct rk_fabric_ops script_ops = {
	.now_ns = script_now_ns,
	.info = script_info,
	.listen = script_listen,
	.unlisten = script_unlisten,
	.connect = script_connect,
	.accept = script_accept,
	.reject = script_reject,
	.disconnect = script_disconnect,
	.destroy = script_destroy,
	.send = script_send,
	.write = script_write,
	.mem_alloc = script_mem_alloc,
	.mem_free = script_mem_free,
	.inline_bytes = script_inline,
	.pieces_max = script_pieces,
	.peer_rnr_retry = script_peer_rnr,
};

/* --- what a test says --------- */

static void script_told(struct rk_stream *s, void *user, unsigned events)
{
	struct script *sc = user;

	sc->told++;
	sc->events |= events;
	sc->told_writable += !!(events & RK_STREAM_WRITABLE);
	sc->told_readable += !!(events & RK_STREAM_READABLE);
}

static void script_accepted(struct rk_stream *s, void *user)
{
	struct script *sc = user;

	sc->stream = s;
	rk_stream_set_callback(s, script_told, sc);
}

/* A device like the software one; change the fields before script_up(). */
static struct script *script_new(void)
{
	struct script *sc = calloc(1, sizeof(*sc));

	rk_context_base_init(&sc->context, &script_ops);
	sc->now_ns = RK_NS_PER_S;
	sc->inline_bytes = 65536;
	sc->pieces_max = 16;
	sc->peer_rnr = 7;
	sc->software = true;
	sc->window_addr = 0x7ffff74a1bc0;
	return sc;
}

/* A stream, established. */
static void script_up(struct script *sc, enum stream_role role,
		      const struct rk_stream_params *params)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	int ret;

	if (role == STREAM_SERVER) {
		ret = rk_stream_listen(&sc->context, (struct sockaddr *)&addr,
				       0, params, script_accepted, sc,
				       &sc->stream_listener);
		sc->conn.context = &sc->context;
		if (!ret)
			sc->listen_handler->request(sc->listen_user, &sc->conn,
						    NULL, 0);
	} else {
		ret = rk_stream_connect(&sc->context, (struct sockaddr *)&addr,
					NULL, 0, params, script_told, sc,
					&sc->stream);
	}
	ok_or_die(!ret, "set up");
	sc->conn.handler->established(&sc->conn, NULL, 0);
}

RK_UNUSED static void script_receive(struct script *sc, const void *message,
				     uint32_t bytes)
{
	sc->conn.handler->received(&sc->conn, message, bytes);
}

RK_UNUSED static void script_peer_window(struct script *sc, uint32_t length,
					 uint32_t key)
{
	union wire_control c;

	wire_make_memory(&c, sc->window_addr, length, key);
	script_receive(sc, &c, sizeof(c));
}

/* The window that the stream announced last, as its peer would see it. */
RK_UNUSED static struct wire_message script_our_window(struct script *sc)
{
	return sc->our_window;
}

/* The peer writes into our window at an offset and says so. */
RK_UNUSED static void script_peer_writes(struct script *sc, uint32_t offset,
					 const void *data, uint32_t bytes)
{
	struct wire_message m = script_our_window(sc);

	memcpy((void *)(uintptr_t)(m.address + offset), data, bytes);
	sc->conn.handler->written(&sc->conn, bytes, bytes);
}

/* Completions of everything posted. */
RK_UNUSED static void script_complete(struct script *sc)
{
	while (sc->completed < sc->ops) {
		struct op *op = &sc->op[sc->completed++];

		if (op->signalled)
			sc->conn.handler->sent(&sc->conn, op->token);
	}
}

RK_UNUSED static void script_pass_ms(struct script *sc, unsigned ms)
{
	sc->now_ns += ms * RK_NS_PER_MS;
	rk_context_run_timers(&sc->context);
}

/* Forget what was posted until now. */
RK_UNUSED static void script_forget(struct script *sc)
{
	script_complete(sc);
	sc->ops = 0;
	sc->completed = 0;
	sc->events = 0;
	sc->told = 0;
	sc->told_readable = 0;
	sc->told_writable = 0;
}

RK_UNUSED static unsigned script_immediates(const struct script *sc)
{
	unsigned count = 0;

	for (unsigned i = 0; i < sc->ops; i++)
		count += sc->op[i].with_imm;
	return count;
}

/* Sum of the immediates: what the peer knows of. */
RK_UNUSED static uint64_t script_announced(const struct script *sc)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < sc->ops; i++)
		if (sc->op[i].with_imm)
			sum += sc->op[i].immediate;
	return sum;
}

/* The stream and all it had is gone, or the test fails. */
static void script_end(struct script *sc)
{
	struct rk_context_slot *slot = sc->context.slots[RK_PROTOCOL_STREAM];

	if (slot)
		slot->close(slot);
	ok(rk_alloc_live() == 0 && sc->mem_bytes == 0, "nothing is left");
	free(sc);
}

#endif
