/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the supervisor of the torture test shares with the processes it starts:
 * memory that all of them see, and their entry points.
 */
#ifndef RK_TESTS_WIRE_TORTURE_H
#define RK_TESTS_WIRE_TORTURE_H

#include <stdint.h>

enum {
	LANES = 200, /* at most, of one session */
	QUIET_S = 10, /* longer without progress is a hang */
};

enum { PRODUCER, CONSUMER, HOSTILE, ROLES };

struct torture {
	volatile uint16_t port;
	volatile uint64_t progress[ROLES];
	volatile uint64_t rejects, failures, done;
	volatile uint64_t published[LANES], received[LANES];
};

extern struct torture *shared;
extern uint64_t seed;

static inline uint64_t next_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed * 0x2545f4914f6cdd1dull >> 11;
}

/* In a process of their own; the exit status. */
int torture_producer(void);
int torture_consumer(void);
int torture_hostile(void);

#endif
