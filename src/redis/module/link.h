/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A link: one connection over RDMA as the server sees it, and the stream it
 * stands for.
 *
 *   accepted()         the peer's window          close()
 *   ----------> ARRIVING ----------> SERVED ----------------> (freed)
 *                  |                    |                        ^
 *                  | timeout, gone      | replies still queued   |
 *                  +-----> (freed)      +------> LINGERING ------+
 *
 * ARRIVING: no client of the server exists yet; a client is made only when it
 * can be answered, so that a refusal reaches it.  SERVED: the server owns it
 * and ends it through close().  LINGERING: the server has forgotten it.
 *
 * Threads: the owner, except that read() and write() of a SERVED link may run
 * on one I/O thread at a time.  They touch: the receiving side of the stream
 * (rk_stream_*_offthread), `out` under `lock`, and the hand-over list of
 * loop.h.
 *
 * Lifetime: whoever calls a handler of the server holds refs for the call; a
 * close() inside only marks, and the last ref frees.
 */
#ifndef RK_MODULE_LINK_H
#define RK_MODULE_LINK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/list.h"
#include "buffer.h"
#include "core.h"

enum rk_link_state { RK_LINK_ARRIVING, RK_LINK_SERVED, RK_LINK_LINGERING };

enum {
	RK_LINK_ARRIVING_MAX = 1024, /* more are cut at once */
	RK_LINK_ARRIVING_MS = 10000, /* to announce a window */
	RK_LINK_LINGERING_MS = 1000,
	RK_LINK_TEXT_BYTES = 64,
};

struct rk_link {
	/* The server's struct connection: first, so that the server's pointer
	 * and ours are the same. */
	char conn[RK_CONN_BYTES] __attribute__((aligned(16)));

	struct rk_stream *stream;
	enum rk_link_state state;
	uint64_t id;
	uint64_t pass;	       /* the last pass of the loop that called it */
	uint64_t deadline_ns;  /* ARRIVING, LINGERING */
	struct rk_list all;    /* rk_links.of[state] */
	struct rk_list ready;  /* loop.c: to be called */

	/* Written by an I/O thread, not given to the stream yet. */
	pthread_mutex_t lock;
	struct rk_buffer out;

	/* loop.c: on the list of hand-overs from I/O threads. */
	struct rk_link *handed_next;
	bool handed;

	/* remote.c: the event loop of a server thread it was moved to; `ended`
	 * is the owner's word to that thread. */
	bool ended;
	void *remote_loop;
	int remote_fd;
	bool remote_watched;

	int port[2]; /* [remote] */
	char ip[2][RK_LINK_TEXT_BYTES];
};

struct rk_links {
	struct rk_list of[3]; /* by enum rk_link_state, oldest first */
	unsigned count[3];
	uint64_t last_id;
};

extern struct rk_links rk_links;

void rk_links_init(void);

/* The listener's callback: a stream was established. */
void rk_link_accepted(struct rk_stream *stream, void *user);

/* Do what is due, each handler at most once; the link may be gone afterwards.
 * Only in the server's loop. */
void rk_link_serve(struct rk_link *link);

/* An I/O thread handed it over: give its bytes to the stream. */
void rk_link_take_over(struct rk_link *link);

/* End those whose time is over; returns when the next one's is. */
uint64_t rk_links_expire(uint64_t now_ns);

/* Everything at once, at the end of the process.  The server's objects stay,
 * answer as closed, and are never freed. */
void rk_links_shut(void);

/* Handlers that could be called now: a mask of enum rk_stream_event. */
unsigned rk_link_due(struct rk_link *link);

/* methods.c: the functions of the type `rdma`, and its use for new links. */
void rk_methods_fill(struct rk_methods *methods);

/* Call a handler of the server with the link held; false: it is gone. */
bool rk_link_call(struct rk_link *link, rk_conn_callback *handler);

/* Give `out` to the stream as far as it goes; true: nothing is left. */
bool rk_link_flush(struct rk_link *link);

/* The server is done with it. */
void rk_link_close(struct rk_link *link);

#endif
