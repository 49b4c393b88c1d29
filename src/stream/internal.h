/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the stream share.  A stream is three parts that know
 * little of each other - receiving (rx.c), sending (tx.c, write.c, credit.c),
 * control messages (control.c) - and stream.c, which gives them the fabric's
 * events and owns the stream's life.
 *
 * Always true:
 *  - bytes are counted per window, from 0 to its length: announced <= posted
 *    <= filled <= length for the peer's, filled <= length for ours;
 *  - a window of ours is announced only when it is empty, read to its end, and
 *    the one before it is full;
 *  - no callback of the user runs inside a call of the user.
 *
 * Threads: the context's owner, but for what rx says of the reader.
 */
#ifndef RK_STREAM_INTERNAL_H
#define RK_STREAM_INTERNAL_H

#include "base/log.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/list.h"
#include "fabric/fabric.h"
#include "rdmakit/stream.h"
#include "stream/wire_format.h"

enum {
	STREAM_SEND_DEPTH = 256,    /* work requests outstanding */
	STREAM_CONTROL_SLOTS = 4,   /* of them only for control messages */
	STREAM_CHUNK_BYTES = 65536, /* most that one immediate tells, if it may
				     * be sent at once */
	STREAM_SOURCE_BYTES = 262144,
	STREAM_INLINE_BYTES = 256, /* asked of a card: a slot of its send queue
				    * grows with it */
	STREAM_SIGNAL_EVERY = 32,
	STREAM_DEPTH_DEFAULT = 1024,
	STREAM_DEPTH_MIN = 64,
	STREAM_DEPTH_MAX = 8192,
	STREAM_DEPTH_MARGIN = 24, /* of the peer's receives, never counted on */
	STREAM_LINGER_MS = 1000,
	STREAM_PART_MS = 500,	    /* until the peer answers a disconnect */
	STREAM_ACCEPT_MS = 5000,    /* until an accepted one is established */
	STREAM_KEEPALIVE_MS = 3000,
	STREAM_PROBE_MS = 100,	    /* until an immediate goes without credit */
	STREAM_PROBE_LAST_MS = 1000, /* the same, without reserve */
};

enum stream_role { STREAM_CLIENT, STREAM_SERVER };

/*
 *   CONNECTING --established--> OPEN --peer's end, error--> ENDED
 *   ACCEPTING  --established-->  |                            |
 *       |                     rk_stream_close()        rk_stream_close()
 *     failed                     v                            v
 *       v                    LINGERING --all sent--> PARTING --> (freed)
 *    (freed; a CONNECTING one is ENDED and told so)
 *
 * rk_stream_abort() frees in any state, rk_stream_close() also before OPEN.
 */
enum stream_state {
	STREAM_CONNECTING, /* the user has it, nothing can be sent */
	STREAM_ACCEPTING,  /* only its listener knows it; messages may come */
	STREAM_OPEN,
	STREAM_ENDED,	  /* what has arrived can be read; events are ignored */
	STREAM_LINGERING, /* the user is gone; last words are being sent */
	STREAM_PARTING,	  /* disconnecting; waits for closed() */
	STREAM_STATES,
};

/*
 * Receiving.  The stream's bytes go into windows of one length, one after the
 * other; the n-th filled is in slot n % 2, and window_of says which memory
 * that is: the two take turns, or it is one and the same while the second is
 * not needed or was refused.  The owner writes, and one reader, on whatever
 * thread, follows: it looks at a slot only after `arrived` says that bytes are
 * there, and the owner changes a slot only after `consumed` says that its
 * bytes are read.
 */
struct stream_rx {
	struct rk_mem window[2];
	uint64_t arrived;      /* shared: the owner adds */
	uint64_t announced_ns; /* when the window being filled was announced */
	uint64_t retry_ns;     /* a second window is not asked for until then */
	uint32_t length;       /* of each window; never changes */
	uint32_t filled;       /* arrived in the window being filled */
	uint8_t window_of[2];
	uint8_t fill_slot;
	uint8_t announced; /* the peer knows the window being filled */
	uint8_t windows;   /* shared: 1 or 2 are allocated */
	uint8_t starved;   /* shared: full, the next waits for the reader */
	uint8_t ended;	   /* shared: nothing arrives any more */

	/* the reader's */
	uint8_t read_slot;
	uint32_t read_offset;
	uint64_t consumed; /* shared: the reader adds */
};

/* At time us, count of the work that uses receives had completed. */
struct stream_mark {
	uint32_t count, us;
};

enum { STREAM_MARKS = 4 };

/*
 * Sending, into the peer's window.  Bytes that cannot go inline are copied
 * into the source, a ring of a power of two; its positions wrap at 2^32.  Work
 * requests are numbered from 1; wr_done is the last known to be complete.
 * "Used" counts those that take a receive of the peer; see credit.c.
 */
struct stream_tx {
	uint64_t addr;
	uint32_t key;
	uint32_t length; /* 0: not known yet */
	uint32_t filled; /* taken from the user */
	uint32_t posted;
	uint32_t announced;

	uint32_t source_bytes; /* 0: none yet */
	uint32_t source_head;  /* where the next byte goes */
	uint32_t source_tail;  /* the oldest that may still be in use */
	uint32_t source_signalled;
	struct rk_mem source;

	uint32_t wr_posted, wr_signalled, wr_done;
	uint32_t wr_limit;
	uint32_t used_posted, used_done, used_known;
	uint32_t used_at_full; /* with the immediate that filled the window */
	uint32_t used_soft, used_hard;
	struct stream_mark mark[STREAM_MARKS];
	uint64_t probe_ns; /* 0: nothing is held back */
	uint64_t stall_ns; /* since when the window is full; 0: it is not */

	uint32_t inline_bytes;
	uint16_t pieces_max;
	bool rnr_waits; /* the device itself waits for the peer's receives */
	bool push;	/* what is filled is to be announced */
	bool blocked;	/* the user waits for WRITABLE */
	bool probing;	/* this once an immediate may go without credit */
};

enum stream_due {
	STREAM_DUE_MEMORY = 1,
	STREAM_DUE_FEATURE = 2,
	STREAM_DUE_KEEPALIVE = 4,
};

struct stream_control {
	struct rk_mem source;			  /* if it cannot go inline */
	uint32_t slot_wr[STREAM_CONTROL_SLOTS]; /* what uses it, its number */
	uint8_t slot_kind[STREAM_CONTROL_SLOTS];
	uint8_t oldest; /* slot in use, if any is */
	uint8_t busy;	/* so many in use */
	uint8_t due;	/* mask of enum stream_due */
	uint8_t out;	/* the same, outstanding */
	uint16_t select;
};

struct rk_stream {
	struct rk_conn *conn;
	struct rk_context *context;
	struct stream_slot *slot;
	struct rk_list node; /* in slot->streams */
	struct rk_stream_listener *listener; /* while ACCEPTING */

	rk_stream_callback *callback;
	void *user;
	bool *gone; /* set when freed: somebody up the stack asks */

	struct rk_timer timer; /* for the earlier of limit_ns and probe_ns */
	uint64_t limit_ns;     /* of accepting, lingering, parting; 0: none */

	struct rk_list alive;	 /* in slot->alive, while OPEN or LINGERING */
	uint64_t keepalive_ns;	 /* when it is looked at next */
	uint32_t keepalive_wr;	 /* the last empty write's number */
	uint32_t keepalive_seen; /* wr_posted when we looked last */
	bool keepalive_out;	 /* that write is outstanding */

	uint8_t state; /* enum stream_state; stream_state_set() writes it */
	uint8_t role;
	int error;
	char *error_text;
	int broken; /* a post failed inside a call; reported by the timer */
	unsigned linger_ms;
	unsigned receive_depth;

	struct stream_rx rx;
	struct stream_tx tx;
	struct stream_control control;
	struct rk_stream_stats stats;
};
_Static_assert(sizeof(struct rk_stream) < 1024, "ten thousand of them");

struct rk_stream_listener {
	struct rk_listener *listener;
	struct stream_slot *slot;
	struct rk_list node; /* in slot->listeners */
	struct rk_stream_params params;
	rk_stream_accepted *accepted;
	void *user;
	struct rk_log_limit refusals_said;
};

/* What the streams of one context share. */
struct stream_slot {
	struct rk_context_slot base;
	struct rk_context *context;
	struct rk_list streams;
	struct rk_list listeners;
	struct rk_list alive; /* in the order of keepalive_ns */
	struct rk_timer keepalive;
	struct rk_stream_stats past; /* of streams that are gone */
	uint32_t inline_bytes;	     /* to ask for */
};

/* slot.c */
struct stream_slot *stream_slot_get(struct rk_context *context);
void stream_stats_add(struct rk_stream_stats *to,
		      const struct rk_stream_stats *from);
void stream_listener_free(struct rk_stream_listener *listener);

/* stream.c; those that return bool say whether the stream is still there */
int stream_new(struct rk_context *context,
	       const struct rk_stream_params *params, enum stream_role role,
	       struct rk_stream **out);
void stream_free(struct rk_stream *s);
void stream_conn_params(const struct rk_stream *s, struct rk_conn_params *out);
void stream_state_set(struct rk_stream *s, enum stream_state next);
bool stream_tell(struct rk_stream *s, unsigned events);
bool stream_end(struct rk_stream *s, int error, const char *words);
bool stream_refuse(struct rk_stream *s, int error, const char *words);
void stream_broken(struct rk_stream *s, int error);
int stream_params_check(const struct rk_stream_params *params);
extern const struct rk_conn_handler stream_conn_handler;

/* life.c: timers, the way from close to freed */
void stream_timer_update(struct rk_stream *s);
void stream_timer_fire(struct rk_timer *timer);
bool stream_wind_down(struct rk_stream *s);
void stream_keepalive_start(struct rk_stream *s);
void stream_keepalive_fire(struct rk_timer *timer);

/* error.c */
int stream_close_error(enum rk_close_reason reason, int status);
void stream_close_words(enum rk_close_reason reason, int status,
			char words[WIRE_WORDS_BYTES]);

/* rx.c */
int rx_start(struct rk_stream *s);
void rx_stop(struct rk_stream *s);
void rx_arrived(struct rk_stream *s, uint32_t bytes);
void rx_discard(struct rk_stream *s);
void rx_service(struct rk_stream *s, bool may_allocate);
bool rx_filled_fast(const struct rk_stream *s);

/* The window being filled is full and no other was announced yet. */
static inline bool rx_full(const struct rk_stream *s)
{
	return s->rx.filled == s->rx.length;
}

static inline uint32_t rx_room(const struct rk_stream *s)
{
	return s->rx.announced ? s->rx.length - s->rx.filled : 0;
}

/* tx.c */
void tx_start(struct rk_stream *s);
void tx_stop(struct rk_stream *s);
int tx_window(struct rk_stream *s, const struct wire_message *m,
	      char words[WIRE_WORDS_BYTES]);
void tx_sent(struct rk_stream *s, uint64_t token);
void tx_pump(struct rk_stream *s);
bool tx_writable(const struct rk_stream *s);
int tx_post(struct rk_stream *s, const struct rk_piece *pieces, unsigned count,
	    uint32_t bytes, bool tell, unsigned flags);
int tx_post_staged(struct rk_stream *s, bool tell);
int tx_post_empty(struct rk_stream *s);

/* Bytes of the source that may still be read by work that is outstanding. */
static inline uint32_t tx_source_used(const struct stream_tx *tx)
{
	return tx->source_head - tx->source_tail;
}

static inline bool tx_queue_has_room(const struct stream_tx *tx)
{
	return tx->wr_posted - tx->wr_done < tx->wr_limit;
}

/* A work request about to be posted: its number, what is used up with it, the
 * end of what it reads of the source; flags 0 or RK_SIGNALLED. */
struct tx_work {
	uint32_t number, used, source;
	unsigned flags;
};
struct tx_work tx_prepare(const struct rk_stream *s, uint32_t bytes,
			  bool uses_receive, bool signal);
uint64_t tx_token(const struct tx_work *w);
void tx_commit(struct rk_stream *s, const struct tx_work *w);

/* Everything was posted and announced. */
static inline bool tx_told(const struct rk_stream *s)
{
	return s->tx.announced == s->tx.filled;
}

/* credit.c */
void credit_start(struct rk_stream *s);
bool credit_allows(const struct rk_stream *s, uint32_t posted);
bool credit_is_low(const struct rk_stream *s);
void credit_wait(struct rk_stream *s);
void credit_completed(struct rk_stream *s);
void credit_answered(struct rk_stream *s);
void credit_refilled(struct rk_stream *s);
void credit_timeout(struct rk_stream *s, uint64_t now_ns);

/* control.c */
int control_start(struct rk_stream *s);
void control_post(struct rk_stream *s);
void control_sent(struct rk_stream *s);
int control_received(struct rk_stream *s, const struct wire_message *m,
		     char words[WIRE_WORDS_BYTES]);

#endif
