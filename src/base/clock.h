/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The monotonic clock.  Protocol code is handed the time and never calls
 * this; only owners of a real device and the tools do.
 */
#ifndef RK_BASE_CLOCK_H
#define RK_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define RK_NS_PER_US 1000ull
#define RK_NS_PER_MS 1000000ull
#define RK_NS_PER_S 1000000000ull
#define RK_NEVER UINT64_MAX /* a deadline that does not come */

static inline uint64_t rk_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * RK_NS_PER_S + (uint64_t)t.tv_nsec;
}

#endif
