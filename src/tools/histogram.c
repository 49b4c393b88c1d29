/* SPDX-License-Identifier: BSD-3-Clause */
/* See histogram.h. */
#include "tools/histogram.h"

#include "base/compiler.h"

/* The largest value of a slot. */
static uint64_t slot_end(unsigned slot)
{
	unsigned parts = 1u << RK_HISTOGRAM_PART_BITS;
	unsigned shift;

	if (slot < parts)
		return slot;
	shift = (slot >> RK_HISTOGRAM_PART_BITS) - 1;
	return (((uint64_t)(slot & (parts - 1)) + parts) << shift) +
	       ((1ull << shift) - 1);
}

uint64_t rk_histogram_value_at(const struct rk_histogram *histogram,
			       double part)
{
	double wanted = part * (double)histogram->count;
	uint64_t seen = 0;

	if (!histogram->count)
		return 0;
	for (unsigned slot = 0; slot < RK_HISTOGRAM_SLOTS; slot++) {
		seen += histogram->slots[slot];
		if (seen && (double)seen >= wanted)
			return rk_min(slot_end(slot), histogram->max);
	}
	return histogram->max;
}
