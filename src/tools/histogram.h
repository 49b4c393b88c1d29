/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How values of 64 bits are spread, in fixed memory: every power of two is
 * cut into 128 equal parts, so that a percentile is at most 1/128 too high.
 * No allocation after it exists; one thread.
 */
#ifndef RK_TOOLS_HISTOGRAM_H
#define RK_TOOLS_HISTOGRAM_H

#include <stdint.h>

enum {
	RK_HISTOGRAM_PART_BITS = 7,
	RK_HISTOGRAM_SLOTS = (64 - RK_HISTOGRAM_PART_BITS + 1)
			     << RK_HISTOGRAM_PART_BITS,
};

/* All zero is empty. */
struct rk_histogram {
	uint64_t slots[RK_HISTOGRAM_SLOTS];
	uint64_t count, max;
};

/* Small values have a slot each; above, a slot's width grows with them. */
static inline unsigned rk_histogram_slot(uint64_t value)
{
	unsigned shift;

	if (value < 1u << RK_HISTOGRAM_PART_BITS)
		return (unsigned)value;
	shift = 63 - RK_HISTOGRAM_PART_BITS -
		(unsigned)__builtin_clzll(value);
	return (shift << RK_HISTOGRAM_PART_BITS) + (unsigned)(value >> shift);
}

static inline void rk_histogram_add(struct rk_histogram *histogram,
				    uint64_t value, uint64_t times)
{
	histogram->slots[rk_histogram_slot(value)] += times;
	histogram->count += times;
	if (value > histogram->max)
		histogram->max = value;
}

/*
 * The smallest value of which at least part (0..1) of all values are no
 * larger, rounded up to the end of its slot and never above the maximum;
 * 0 when empty.
 */
uint64_t rk_histogram_value_at(const struct rk_histogram *histogram,
			       double part);

#endif
