/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that breaks the rules loses its connection and is told so in words;
 * and the ends of a stream: close, abort, linger, failed posts, listeners.
 */
#include "script.h"

enum { MIB = 1048576 };

static struct script *up(enum stream_role role)
{
	struct script *sc = script_new();

	script_up(sc, role, NULL);
	script_peer_window(sc, MIB, 7);
	script_forget(sc);
	return sc;
}

static void is_refused(struct script *sc, const char *word)
{
	char byte;

	ok(sc->disconnects == 1 && (sc->events & RK_STREAM_CLOSED) &&
		   rk_stream_error(sc->stream) == -EPROTO &&
		   rk_stream_read(sc->stream, &byte, 1) == -EPROTO &&
		   rk_stream_write(sc->stream, "x", 1, 0) == -EPIPE &&
		   strstr(rk_stream_error_text(sc->stream), word),
	   "%s", rk_stream_error_text(sc->stream));
	/* what still comes is ignored */
	sc->told = 0;
	sc->conn.handler->written(&sc->conn, UINT32_MAX, 0);
	script_peer_window(sc, MIB, 7);
	script_receive(sc, "x", 1);
	script_complete(sc);
	sc->conn.handler->closed(&sc->conn, RK_CLOSE_LOCAL, 0);
	ok(sc->told == 0, "it is told once");
	rk_stream_close(sc->stream);
	script_end(sc);
}

static void bad_messages(enum stream_role role)
{
	struct script *sc = up(role);
	union wire_control c = { .bytes = { 0, 4 } };

	script_receive(sc, &c, 32);
	is_refused(sc, "opcode 4");

	sc = up(role);
	wire_make_keepalive(&c);
	script_receive(sc, &c, 31);
	is_refused(sc, "31");

	sc = up(role);
	script_peer_window(sc, 0, 7);
	is_refused(sc, " 0 bytes");

	sc = up(role);
	script_peer_window(sc, UINT32_MAX, 7);
	is_refused(sc, "4294967295");

	sc = up(role);
	rk_stream_write(sc->stream, "0123456789", 10, RK_STREAM_MORE);
	script_peer_window(sc, MIB, 7);
	is_refused(sc, "10 bytes");
}

static void bad_immediates(uint32_t first, uint32_t second, const char *word)
{
	struct script *sc = up(STREAM_SERVER);

	sc->conn.handler->written(&sc->conn, first, 0);
	if (second)
		sc->conn.handler->written(&sc->conn, second, 0);
	rk_stream_consume(sc->stream, rk_stream_pending(sc->stream));
	is_refused(sc, word);
}

static void immediate_before_the_next_window(void)
{
	struct script *sc = up(STREAM_SERVER);

	sc->full = true; /* so the next window is not announced yet */
	sc->conn.handler->written(&sc->conn, MIB, 0);
	sc->conn.handler->written(&sc->conn, 1, 0);
	rk_stream_consume(sc->stream, MIB);
	is_refused(sc, "room for 0");
}

static void client_ignores_feature_messages(void)
{
	struct script *sc = up(STREAM_CLIENT);
	union wire_control c;

	wire_make_feature(&c, 0, 1);
	script_receive(sc, &c, 32);
	c.bytes[1] = 1;
	script_receive(sc, &c, 32);
	ok(!rk_stream_error(sc->stream) && sc->ops == 0 && sc->told == 0,
	   "a client survives 0 and 1, and does not answer");
	script_end(sc);
}

/* Upstream senders start anew whenever a window is announced. */
static void early_window_starts_anew(void)
{
	struct script *sc = up(STREAM_CLIENT);

	rk_stream_write(sc->stream, "0123456789", 10, 0);
	script_peer_window(sc, MIB / 2, 8);
	rk_stream_write(sc->stream, "abc", 3, 0);
	ok(sc->ops == 2 && sc->op[1].addr == sc->window_addr &&
		   sc->op[1].key == 8 && sc->op[1].immediate == 3,
	   "a new window before the old one is full is used from its start");
	script_end(sc);
}

static void close_waits_for_the_last_completion(void)
{
	struct script *sc = up(STREAM_SERVER);

	rk_stream_write(sc->stream, "bye", 3, RK_STREAM_MORE);
	rk_stream_close(sc->stream);
	ok(script_announced(sc) == 3 && sc->disconnects == 0,
	   "what waited is announced");
	ok(sc->op[sc->ops - 1].signalled, "the last work is signalled");
	sc->conn.handler->written(&sc->conn, 100, 0);
	script_complete(sc);
	ok(sc->disconnects == 1 && sc->destroys == 0, "then it disconnects");
	sc->conn.handler->closed(&sc->conn, RK_CLOSE_LOCAL, 0);
	ok(sc->destroys == 1 && sc->told == 0, "nobody is told");
	script_end(sc);
}

static void linger_is_bounded(void)
{
	struct script *sc = up(STREAM_SERVER);

	rk_stream_write(sc->stream, "bye", 3, 0);
	rk_stream_close(sc->stream);
	script_pass_ms(sc, 999);
	ok(sc->destroys == 0, "the completion does not come");
	script_pass_ms(sc, 1);
	ok(sc->destroys == 1 && sc->disconnects == 0, "freed after 1 s");
	script_end(sc);

	sc = up(STREAM_SERVER);
	rk_stream_close(sc->stream);
	ok(sc->disconnects == 1, "nothing to say: disconnects at once");
	script_pass_ms(sc, 500);
	ok(sc->destroys == 1, "the peer's answer is not waited for for ever");
	script_end(sc);
}

static void lingering_reads_on(void)
{
	struct script *sc = up(STREAM_SERVER);
	static uint8_t big[MIB];
	struct wire_message before = script_our_window(sc);

	ok(rk_stream_write(sc->stream, big, MIB, 0) == MIB, "a full window");
	rk_stream_close(sc->stream);
	before.length = MIB;
	sc->conn.handler->written(&sc->conn, before.length, 0);
	ok(script_our_window(sc).length == MIB,
	   "a peer that must finish writing before it reads is let finish");
	script_complete(sc);
	ok(sc->disconnects == 1, "and then it disconnects");
	script_end(sc);
}

static void failed_post_is_told_later(void)
{
	struct script *sc = up(STREAM_CLIENT);

	sc->post_error = -EIO;
	ok(rk_stream_write(sc->stream, "x", 1, 0) == -EIO && sc->told == 0,
	   "the write fails, nobody is called");
	script_pass_ms(sc, 0);
	ok((sc->events & RK_STREAM_CLOSED) &&
		   rk_stream_error(sc->stream) == -EIO &&
		   sc->disconnects == 1,
	   "%s", rk_stream_error_text(sc->stream));
	script_end(sc);
}

static void accepted_but_never_established(void)
{
	struct script *sc = script_new();
	struct sockaddr_in addr = { .sin_family = AF_INET };
	int ret;

	ret = rk_stream_listen(&sc->context, (struct sockaddr *)&addr, 0, NULL,
			       script_accepted, sc, &sc->stream_listener);
	sc->conn.context = &sc->context;
	ok(!ret, "listening");
	sc->listen_handler->request(sc->listen_user, &sc->conn, NULL, 0);
	ok(sc->mem_bytes == MIB, "a window is there");
	script_pass_ms(sc, 5000);
	ok(sc->destroys == 1 && sc->mem_bytes == 0 && !sc->stream,
	   "and is given back after 5 s");
	sc->listen_handler->request(sc->listen_user, &sc->conn, NULL, 0);
	script_peer_window(sc, MIB, 7); /* before we are established */
	rk_stream_listener_close(sc->stream_listener);
	ok(sc->destroys == 2 && !sc->stream, "closing a listener refuses");
	script_end(sc);
}

static void window_before_established(void)
{
	struct script *sc = script_new();
	struct sockaddr_in addr = { .sin_family = AF_INET };
	union wire_control c;
	int ret;

	ret = rk_stream_listen(&sc->context, (struct sockaddr *)&addr, 0, NULL,
			       script_accepted, sc, &sc->stream_listener);
	sc->conn.context = &sc->context;
	ok(!ret, "listening");
	sc->listen_handler->request(sc->listen_user, &sc->conn, NULL, 0);
	wire_make_feature(&c, 0, 0);
	script_receive(sc, &c, 32);
	script_peer_window(sc, MIB, 7);
	ok(!sc->stream && sc->ops == 0, "nothing is sent yet");
	sc->conn.handler->established(&sc->conn, NULL, 0);
	ok(sc->stream && sc->told_writable == 1 && sc->ops == 2,
	   "messages that came early are not lost");
	ok(rk_stream_write(sc->stream, "x", 1, 0) == 1, "the window is known");
	script_end(sc);
}

static void parameters_are_checked(void)
{
	static const struct rk_stream_params bad[] = {
		{ .window_bytes = RK_STREAM_WINDOW_MIN - 1 },
		{ .window_bytes = RK_STREAM_WINDOW_MAX + 1 },
		{ .receive_depth = 63 },
		{ .receive_depth = 8193 },
	};
	struct script *sc = script_new();
	struct sockaddr_in addr = { .sin_family = AF_INET };
	struct rk_stream_listener *l = (void *)sc;
	struct rk_stream *s = (void *)sc;

	for (unsigned i = 0; i < RK_ARRAY_SIZE(bad); i++) {
		ok(rk_stream_connect(&sc->context, (struct sockaddr *)&addr,
				     NULL, 0, &bad[i], script_told, sc,
				     &s) == -EINVAL &&
			   !s,
		   "connect refuses parameters %u", i);
		ok(rk_stream_listen(&sc->context, (struct sockaddr *)&addr, 0,
				    &bad[i], script_accepted, sc,
				    &l) == -EINVAL &&
			   !l,
		   "and so does listen");
	}
	rk_stream_close(NULL);
	rk_stream_abort(NULL);
	rk_stream_listener_close(NULL);
	script_end(sc);
}

int main(void)
{
	bad_messages(STREAM_SERVER);
	bad_messages(STREAM_CLIENT);
	bad_immediates(MIB + 1, 0, "1048577");
	bad_immediates(UINT32_MAX, 0, "4294967295");
	bad_immediates(MIB - 1, 2, "room for 1");
	immediate_before_the_next_window();
	client_ignores_feature_messages();
	early_window_starts_anew();
	close_waits_for_the_last_completion();
	linger_is_bounded();
	lingering_reads_on();
	failed_post_is_told_later();
	accepted_but_never_established();
	window_before_established();
	parameters_are_checked();
	return ok_done();
}
