/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stream as an object: made, told of the fabric's events, ended.  What
 * follows after the user has closed it is in life.c.
 *
 * Thread: the context's owner.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "stream/internal.h"

static const uint8_t next_states[STREAM_STATES] = {
	[STREAM_CONNECTING] = 1 << STREAM_OPEN | 1 << STREAM_ENDED,
	[STREAM_ACCEPTING] = 1 << STREAM_OPEN,
	[STREAM_OPEN] = 1 << STREAM_ENDED | 1 << STREAM_LINGERING,
	[STREAM_LINGERING] = 1 << STREAM_PARTING,
};

/* The only function that writes the state. */
void stream_state_set(struct rk_stream *s, enum stream_state next)
{
	assert(next_states[s->state] & 1 << next);
	s->state = (uint8_t)next;
}

int stream_params_check(const struct rk_stream_params *p)
{
	if (!p)
		return 0;
	if (p->window_bytes && (p->window_bytes < RK_STREAM_WINDOW_MIN ||
				p->window_bytes > RK_STREAM_WINDOW_MAX))
		return -EINVAL;
	if (p->receive_depth && (p->receive_depth < STREAM_DEPTH_MIN ||
				 p->receive_depth > STREAM_DEPTH_MAX))
		return -EINVAL;
	return 0;
}

int stream_new(struct rk_context *context,
	       const struct rk_stream_params *params, enum stream_role role,
	       struct rk_stream **out)
{
	static const struct rk_stream_params none;
	struct stream_slot *slot = stream_slot_get(context);
	struct rk_stream *s = slot ? rk_zalloc(sizeof(*s)) : NULL;

	*out = s;
	if (!s)
		return -ENOMEM;
	if (!params)
		params = &none;
	s->context = context;
	s->slot = slot;
	s->role = (uint8_t)role;
	s->state = role == STREAM_CLIENT ? STREAM_CONNECTING : STREAM_ACCEPTING;
	s->rx.length = params->window_bytes ? params->window_bytes :
					      RK_STREAM_WINDOW_DEFAULT;
	s->receive_depth = params->receive_depth ? params->receive_depth :
						   STREAM_DEPTH_DEFAULT;
	s->linger_ms = params->linger_ms ? params->linger_ms : STREAM_LINGER_MS;
	s->timer.fire = stream_timer_fire;
	rk_list_init(&s->alive);
	rk_list_add_tail(&slot->streams, &s->node);
	return 0;
}

/* In any state. */
void stream_free(struct rk_stream *s)
{
	struct rk_stream_stats stats;

	if (s->gone)
		*s->gone = true;
	rk_stream_stats_get(s, &stats);
	stream_stats_add(&s->slot->past, &stats);
	rk_list_remove(&s->node);
	rk_list_remove(&s->alive);
	rk_timer_cancel(&s->timer);
	rk_conn_destroy(s->conn);
	rx_stop(s);
	tx_stop(s);
	rk_mem_free(s->context, &s->control.source);
	rk_free(s->error_text);
	rk_free(s);
}

void stream_conn_params(const struct rk_stream *s, struct rk_conn_params *out)
{
	*out = (struct rk_conn_params){
		.send_depth = STREAM_SEND_DEPTH,
		.receive_depth = s->receive_depth,
		.receive_bytes = WIRE_CONTROL_BYTES,
		.inline_bytes = s->slot->inline_bytes,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
}

RK_API int rk_stream_connect(struct rk_context *context,
			     const struct sockaddr *addr,
			     const struct sockaddr *source, int timeout_ms,
			     const struct rk_stream_params *params,
			     rk_stream_callback *callback, void *user,
			     struct rk_stream **out)
{
	struct rk_conn_params conn_params;
	struct rk_stream *s;
	int ret;

	*out = NULL;
	ret = stream_params_check(params);
	if (ret)
		return ret;
	ret = stream_new(context, params, STREAM_CLIENT, &s);
	if (ret)
		return ret;
	s->callback = callback;
	s->user = user;
	stream_conn_params(s, &conn_params);
	ret = rk_fabric_connect(context, addr, source, &conn_params, NULL, 0,
				timeout_ms, &stream_conn_handler, s, &s->conn);
	if (ret) {
		stream_free(s);
		return ret;
	}
	*out = s;
	return 0;
}

/* --- what the user is told --------- */

RK_API unsigned rk_stream_ready(const struct rk_stream *s)
{
	unsigned events = 0;

	if (s->state == STREAM_OPEN)
		events |= RK_STREAM_OPEN;
	if (s->state == STREAM_ENDED)
		events |= RK_STREAM_CLOSED | RK_STREAM_READABLE;
	if (rk_stream_pending(s))
		events |= RK_STREAM_READABLE;
	if (tx_writable(s))
		events |= RK_STREAM_WRITABLE;
	return events;
}

/* false: the stream is gone. */
bool stream_tell(struct rk_stream *s, unsigned events)
{
	bool gone = false, *outer = s->gone;

	if (!s->callback || !events)
		return true;
	s->gone = &gone;
	s->callback(s, s->user, events);
	if (!gone) {
		s->gone = outer;
		return true;
	}
	if (outer)
		*outer = true;
	return false;
}

static bool tell_writable(struct rk_stream *s)
{
	bool was_blocked = s->tx.blocked;

	/* our own work may have taken the last of the room, unseen */
	s->tx.blocked = !tx_writable(s);
	if (!was_blocked || s->tx.blocked)
		return true;
	return stream_tell(s, RK_STREAM_WRITABLE);
}

/*
 * It is over: for an open one, what has arrived can still be read.  words are
 * not needed after it.  false: the stream is gone.
 */
bool stream_end(struct rk_stream *s, int error, const char *words)
{
	switch ((enum stream_state)s->state) {
	case STREAM_CONNECTING:
	case STREAM_OPEN:
		break;
	case STREAM_ACCEPTING:
	case STREAM_LINGERING:
	case STREAM_PARTING:
		stream_free(s);
		return false;
	case STREAM_ENDED:
	case STREAM_STATES:
		return true;
	}
	s->error = error;
	s->error_text = rk_strdup(words);
	rk_timer_cancel(&s->timer);
	rk_list_remove(&s->alive);
	if (s->tx.stall_ns)
		s->stats.stall_ns +=
			rk_context_now_ns(s->context) - s->tx.stall_ns;
	s->tx.stall_ns = 0;
	stream_state_set(s, STREAM_ENDED);
	rk_store_release(&s->rx.ended, 1);
	return stream_tell(s, RK_STREAM_CLOSED | RK_STREAM_READABLE);
}

/* We end it, mostly for what the peer sent. */
bool stream_refuse(struct rk_stream *s, int error, const char *words)
{
	if (s->state == STREAM_OPEN)
		rk_conn_disconnect(s->conn);
	return stream_end(s, error, words);
}

/* A post failed inside a call of the user, who must not be called from there.
 * What the fabric itself reports is not ours to tell. */
void stream_broken(struct rk_stream *s, int error)
{
	if (rk_likely(error == -EAGAIN || error == -ENOTCONN || s->broken))
		return;
	s->broken = error;
	stream_timer_update(s);
}

/* --- the fabric's events --------- */

/* Give the user a stream that a listener accepted. */
static bool hand_over(struct rk_stream *s)
{
	struct rk_stream_listener *l = s->listener;
	bool gone = false;

	s->listener = NULL;
	s->gone = &gone;
	l->accepted(s, l->user);
	if (gone)
		return false;
	s->gone = NULL;
	return true;
}

static void on_established(struct rk_conn *conn, const void *private_data,
			   size_t bytes)
{
	struct rk_stream *s = conn->user;
	unsigned events = 0;
	int ret;

	if (s->state != STREAM_CONNECTING && s->state != STREAM_ACCEPTING)
		return;
	tx_start(s);
	ret = control_start(s);
	if (!ret && s->role == STREAM_CLIENT)
		ret = rx_start(s); /* a server had to before it accepted */
	if (ret) {
		rk_conn_disconnect(s->conn);
		stream_end(s, ret, "no registered memory for the connection");
		return;
	}
	s->limit_ns = 0;
	stream_state_set(s, STREAM_OPEN);
	stream_keepalive_start(s);
	stream_timer_update(s);
	s->control.due |= STREAM_DUE_MEMORY;
	control_post(s);
	if (s->role == STREAM_CLIENT)
		events = RK_STREAM_OPEN;
	else if (!hand_over(s))
		return;
	/* a window may have come before we knew that we are established */
	if (s->tx.blocked && tx_writable(s)) {
		s->tx.blocked = false;
		events |= RK_STREAM_WRITABLE;
	}
	stream_tell(s, events);
}

static void on_received(struct rk_conn *conn, const void *message,
			uint32_t bytes)
{
	struct rk_stream *s = conn->user;
	char words[WIRE_WORDS_BYTES];
	struct wire_message m;

	if (s->state == STREAM_ENDED || s->state == STREAM_PARTING)
		return;
	if (wire_check_control(message, bytes, &m, words) ||
	    control_received(s, &m, words)) {
		stream_refuse(s, -EPROTO, words);
		return;
	}
	if (m.opcode != WIRE_REGISTER_XFER_MEMORY)
		return;
	tx_pump(s);
	if (s->state == STREAM_LINGERING)
		stream_wind_down(s);
	else
		tell_writable(s);
}

static void on_written(struct rk_conn *conn, uint32_t immediate, uint32_t bytes)
{
	struct rk_stream *s = conn->user;
	char words[WIRE_WORDS_BYTES];

	if (s->state == STREAM_ENDED || s->state == STREAM_PARTING)
		return;
	if (wire_check_immediate(immediate, rx_room(s), words)) {
		stream_refuse(s, -EPROTO, words);
		return;
	}
	s->stats.immediates_received++;
	if (!immediate)
		return;
	rx_arrived(s, immediate);
	credit_answered(s);
	if (s->state == STREAM_LINGERING) {
		rx_discard(s);
		return;
	}
	if (rx_full(s))
		rx_service(s, rx_filled_fast(s));
	if (!stream_tell(s, RK_STREAM_READABLE))
		return;
	if (rx_full(s))
		rx_service(s, true);
}

static void on_sent(struct rk_conn *conn, uint64_t token)
{
	struct rk_stream *s = conn->user;

	tx_sent(s, token);
	control_sent(s);
	tx_pump(s);
	if (s->state == STREAM_LINGERING)
		stream_wind_down(s);
	else
		tell_writable(s);
}

static void on_writable(struct rk_conn *conn)
{
	struct rk_stream *s = conn->user;

	control_post(s);
	tx_pump(s);
	if (s->state == STREAM_LINGERING)
		stream_wind_down(s);
	else
		tell_writable(s);
}

static void on_closed(struct rk_conn *conn, enum rk_close_reason reason,
		      int status)
{
	struct rk_stream *s = conn->user;
	char words[WIRE_WORDS_BYTES];

	stream_close_words(reason, status, words);
	stream_end(s, stream_close_error(reason, status), words);
}

const struct rk_conn_handler stream_conn_handler = {
	.established = on_established,
	.received = on_received,
	.written = on_written,
	.sent = on_sent,
	.writable = on_writable,
	.closed = on_closed,
};

/* --- small calls --------- */

RK_API void rk_stream_set_callback(struct rk_stream *s,
				   rk_stream_callback *callback, void *user)
{
	s->callback = callback;
	s->user = user;
}

RK_API void *rk_stream_user(const struct rk_stream *s)
{
	return s->user;
}

RK_API int rk_stream_error(const struct rk_stream *s)
{
	return s->error;
}

RK_API const char *rk_stream_error_text(const struct rk_stream *s)
{
	if (s->state != STREAM_ENDED)
		return "";
	return s->error_text ? s->error_text : strerror(-s->error);
}

RK_API int rk_stream_address(const struct rk_stream *s, bool remote,
			     struct sockaddr_storage *out)
{
	return rk_conn_address(s->conn, remote, out);
}
