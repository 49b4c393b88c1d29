/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hostile clients of our server: each loses its connection, its neighbour's
 * lives on.
 */
#include "stream_bare.h"

enum attack {
	SHORT_SEND,
	UNKNOWN_OPCODE,
	EMPTY_WINDOW,
	HUGE_WINDOW,
	WRAPPING_WINDOW,
	LONG_IMMEDIATE,
	HUGE_IMMEDIATE,
	TWICE_THE_WINDOW,
	FOREIGN_WINDOW,
	QUESTIONS,
	ATTACKS,
};

static const char *const attack_names[ATTACKS] = {
	"a SEND of 7 bytes",
	"opcode 65535",
	"a window of 0 bytes",
	"a window of 4 GiB",
	"a window past the end of memory",
	"an immediate beyond the window",
	"an immediate of 4294967295",
	"immediates that add up to more than the window",
	"a window it does not have",
	"1000 questions for features",
};

static void attack(struct peer *p, enum attack how)
{
	union wire_control c = { .bytes = { 0 } };

	switch (how) {
	case SHORT_SEND:
		peer_send(p, "1234567", 7);
		return;
	case UNKNOWN_OPCODE:
		memset(&c, 0xff, sizeof(c));
		peer_send(p, &c, sizeof(c));
		return;
	case EMPTY_WINDOW:
		peer_announce(p, 0);
		return;
	case HUGE_WINDOW:
		peer_announce(p, UINT32_MAX);
		return;
	case WRAPPING_WINDOW:
		wire_make_memory(&c, UINT64_MAX - 5, 6000, 1);
		peer_send(p, &c, sizeof(c));
		return;
	case LONG_IMMEDIATE:
		peer_write(p, "x", 1, LENGTH + 1);
		return;
	case HUGE_IMMEDIATE:
		peer_write(p, "x", 1, UINT32_MAX);
		return;
	case TWICE_THE_WINDOW:
		peer_write(p, "x", 1, LENGTH);
		peer_write(p, "x", 1, 2);
		peer_write(p, "x", 1, LENGTH);
		return;
	case FOREIGN_WINDOW:
		wire_make_memory(&c, 0x123000, LENGTH, 0xdead);
		peer_send(p, &c, sizeof(c));
		peer_write(p, "x", 1, 1);
		return;
	case QUESTIONS:
		for (unsigned i = 0; i < 1000; i++)
			peer_send(p, &c, sizeof(c));
		return;
	case ATTACKS:
		return;
	}
}

static void one_attack(enum attack how)
{
	struct sockaddr_in addr = address();
	struct world w;
	uint8_t answer[100];
	bool survives;

	world_open(&w, 20 + how);
	sim_knobs(w.net)->tolerate_mistakes = true;
	if (!peer_connects(&w) ||
	    rk_stream_connect(w.context[1], (struct sockaddr *)&addr, NULL, 0,
			      NULL, NULL, NULL, &w.good))
		return;
	sim_run(w.net, 100 * RK_NS_PER_MS);
	attack(&w.peer, how);
	sim_run(w.net, 100 * RK_NS_PER_MS);
	if (how == FOREIGN_WINDOW) {
		w.to_write = 10;
		write_on(&w);
		sim_run(w.net, 100 * RK_NS_PER_MS);
	}
	survives = how == QUESTIONS;
	ok(!(rk_stream_ready(w.stream) & RK_STREAM_CLOSED) == survives,
	   "%s: %s", attack_names[how], rk_stream_error_text(w.stream));
	ok(rk_stream_write(w.good, "hello", 5, 0) == 5, "a neighbour asks");
	sim_run(w.net, 10 * RK_NS_PER_MS);
	ok(rk_stream_read(w.good, answer, sizeof(answer)) == 5 &&
		   !memcmp(answer, "hello", 5),
	   "and is answered");
	rk_stream_close(w.good);
	sim_run(w.net, RK_NS_PER_S);
	rk_stream_close(w.neighbour);
	ok(world_is_clean(&w), "nothing is left");
}

int main(void)
{
	rk_log_set_sink(quiet);
	for (unsigned how = 0; how < ATTACKS; how++)
		one_attack((enum attack)how);
	return ok_done();
}
