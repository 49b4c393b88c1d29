/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator: a network of contexts in one process on a virtual clock.  The
 * same seed, the same knobs and the same calls give the same run, event by
 * event.  Nothing here sleeps or looks at the real time.
 *
 * It behaves as a device may, not as one usually does: every delay is drawn at
 * random, and what verbs leaves open is decided by the seed.
 *  - Order is kept within a connection and nowhere else.
 *  - Source memory is read when the data arrives, unless RK_INLINE; if it
 *    changed since it was posted, that is recorded as a mistake.
 *  - Data is placed into the target's memory when it arrives.  An rkey, range,
 *    right or connection that is wrong is recorded as a mistake and ends the
 *    connection at both sides with RK_CLOSE_ERROR.
 *  - A SEND or a WRITE WITH IMMEDIATE takes a receive; with none posted it
 *    waits (RNR) and holds up what is behind it, and fails when the count of
 *    retries that the receiver announced is used up.  Receives come back only
 *    when the receiving context runs.
 *  - What was posted and not completed before a disconnect arrives up to a
 *    random point and is lost from there.
 *  - Send queue slots come back as on a device: with signalled completions.
 *
 * The simulator's own bookkeeping does not count as allocations (base/alloc.h);
 * a connection does, and its failure is -ENOMEM or a rejected request.
 *
 * Thread: one for the whole net.
 */
#ifndef RK_FABRIC_SIM_H
#define RK_FABRIC_SIM_H

#include <stdio.h>

#include "fabric/fabric.h"

struct sim_net;

/* Conditions; change them at any time.  Chances are out of 1000 and drawn per
 * event.  The comment has what sim_open() sets. */
struct sim_knobs {
	uint64_t delay_min_ns;	    /* one way; 1000 */
	uint64_t delay_max_ns;	    /* 20000 */
	uint64_t completion_max_ns; /* more until sent(); 5000 */
	uint64_t process_max_ns;    /* until an owner runs; 2000 */
	uint64_t rnr_wait_ns;	    /* pause after each RNR; 100000 */
	uint64_t retry_ns;	    /* until a silent peer is noticed; 500 ms */
	unsigned process_budget;    /* events per process(); 0: no limit */

	unsigned cut_chance;	/* a delivery finds it cut; 0 */
	unsigned full_chance;	/* -EAGAIN without cause; 0 */
	unsigned reject_chance; /* a connect request is rejected; 0 */
	unsigned lost_chance;	/* a connect request gets no answer; 0 */
	unsigned memory_chance; /* rk_mem_alloc() is refused; 0 */
	long memory_fail_at;	/* the n-th from now (0: next), once; -1 */
	uint64_t memory_cap_bytes; /* of each context; 0: none */

	unsigned inline_bytes;	/* most a connection gets; 256 */
	unsigned pieces;	/* per work request; 16 */
	bool tolerate_mistakes; /* close, but do not count; for peers that are
				 * meant to misbehave; false */
};

struct sim_net *sim_open(uint64_t seed);
/* Closes the contexts that are still there. */
void sim_close(struct sim_net *net);

struct sim_knobs *sim_knobs(struct sim_net *net);

/* A new context: one host with one device.  rk_context_close() as always;
 * rk_context_fd() is -1. */
struct rk_context *sim_context(struct sim_net *net);

/*
 * Run events in order of time until none is left or for_ns have passed (the
 * clock then stands at the end of them).  Contexts run by themselves.  Returns
 * the number of events.  More than 50 million in one call is recorded as a
 * mistake (it does not settle) and ends the call.
 */
uint64_t sim_run(struct sim_net *net, uint64_t for_ns);

/* The same, until the network is quiet: what is left are timers of contexts and
 * time-outs of connecting. */
uint64_t sim_settle(struct sim_net *net);

/* One event; false when none is left. */
bool sim_step(struct sim_net *net);

uint64_t sim_now_ns(const struct sim_net *net);

/* A number below limit, from the run's own seed. */
uint64_t sim_random(struct sim_net *net, uint64_t limit);

/* Nothing more arrives from now on, in either direction; both sides get
 * RK_CLOSE_ERROR, each after a delay of its own. */
void sim_cut(struct rk_conn *conn);

/* The same, but nobody is told: a side notices when it has something
 * outstanding for retry_ns, as with a peer whose host is off. */
void sim_silence(struct rk_conn *conn);

/* Every connection of this context is cut, and it never runs again: a killed
 * process. Only rk_context_close() is left to call on it. */
void sim_crash(struct rk_context *context);

/* While held, a context does not run: a busy or stopped owner. */
void sim_hold(struct rk_context *context, bool hold);

/* Mistakes of the protocol under test; 0 is what a run must end with.  The
 * text is the first one's. */
unsigned sim_errors(const struct sim_net *net);
const char *sim_error_text(const struct sim_net *net);

/* What is still there, over all contexts. */
unsigned sim_connections_live(const struct sim_net *net);
uint64_t sim_memory_live(const struct sim_net *net);

/* A number that every event so far went into; and a line per event, for
 * reading (NULL: off). */
uint64_t sim_trace_hash(const struct sim_net *net);
void sim_trace_to(struct sim_net *net, FILE *file);

#endif
