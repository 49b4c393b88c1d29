/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The module in the server's event loop: one polled descriptor for all of its
 * connections.
 *
 * Behind the descriptor are the device, a timer, and a "kick" that is kept
 * readable while there is something to do, or may be soon: so the server
 * comes back without sleeping and serves its other clients in between.
 *
 * Always: while a link is on the ready list, the kick is readable.  So also an
 * event loop that is re-entered from inside a handler (a script that runs too
 * long) finds the links that are still waiting.
 *
 * Threads: the owner; rk_loop_hand_over() any.
 */
#ifndef RK_MODULE_LOOP_H
#define RK_MODULE_LOOP_H

#include <stdint.h>

struct rk_link;

/* After the device is open.  0 or negative errno; the last step of loading,
 * for what the server's loop was told it is not asked to forget. */
int rk_loop_start(void);

/* The server's main event loop; NULL until it has run once. */
void *rk_loop_main(void);

/* Call this link's handlers in the loop's next pass (at once, not within this
 * call).  Once per pass, however often it is marked. */
void rk_loop_mark(struct rk_link *link);
void rk_loop_unmark(struct rk_link *link);

/* From an I/O thread: the owner has something to do for this link. */
void rk_loop_hand_over(struct rk_link *link);
/* Take over whatever was handed; afterwards none is on that list. */
void rk_loop_take_over(void);

/* For the blocking methods: let the device work until something happened or
 * until the time given.  Marks links, calls no handler of the server. */
void rk_loop_wait(uint64_t until_ns);

/* Something was posted or closed outside a pass: its deadline counts too. */
void rk_loop_touched(void);

struct rk_loop_counts {
	uint64_t passes, sleeps, kicks;
};
extern struct rk_loop_counts rk_loop_counts;

#endif
