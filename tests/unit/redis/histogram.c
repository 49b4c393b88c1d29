/* SPDX-License-Identifier: BSD-3-Clause */
/* The histogram: exact where it is said to be, close everywhere. */
#include "tools/histogram.h"

#include "base/compiler.h"

#include "ok.h"

static struct rk_histogram histogram;

static void clear(void)
{
	histogram = (struct rk_histogram){ 0 };
}

static void slots_follow_each_other(void)
{
	bool good = true;
	unsigned last = 0;

	for (uint64_t value = 0; value < 1 << 20; value++) {
		unsigned slot = rk_histogram_slot(value);

		good &= slot == last || slot == last + 1;
		last = slot;
	}
	ok(good, "no slot is skipped and none comes twice");
	ok(rk_histogram_slot(UINT64_MAX) == RK_HISTOGRAM_SLOTS - 1,
	   "the largest value has the last slot");
}

static void small_values_are_exact(void)
{
	clear();
	for (uint64_t value = 1; value <= 100; value++)
		rk_histogram_add(&histogram, value, 1);
	ok(rk_histogram_value_at(&histogram, 0.5) == 50 &&
		   rk_histogram_value_at(&histogram, 0.99) == 99 &&
		   rk_histogram_value_at(&histogram, 0.999) == 100 &&
		   rk_histogram_value_at(&histogram, 1) == 100 &&
		   rk_histogram_value_at(&histogram, 0) == 1,
	   "percentiles of 1 to 100");
}

static void large_values_are_close(void)
{
	bool good = true;

	for (uint64_t value = 1; value < UINT64_MAX / 3; value = value * 3 + 1) {
		uint64_t got;

		clear();
		rk_histogram_add(&histogram, value, 1);
		rk_histogram_add(&histogram, UINT64_MAX, 1);
		got = rk_histogram_value_at(&histogram, 0.5);
		good &= got >= value && got - value <= value / 128;
	}
	ok(good, "a percentile is never too low and at most 1/128 too high");
}

static void weights_and_maximum(void)
{
	clear();
	ok(rk_histogram_value_at(&histogram, 0.5) == 0, "empty is 0");
	rk_histogram_add(&histogram, 10, 999);
	rk_histogram_add(&histogram, 1000003, 1);
	ok(histogram.count == 1000 && histogram.max == 1000003,
	   "counts and the exact maximum are kept");
	ok(rk_histogram_value_at(&histogram, 0.999) == 10 &&
		   rk_histogram_value_at(&histogram, 0.9991) == 1000003,
	   "one in a thousand is seen above p99.9 and not below");
}

int main(void)
{
	slots_follow_each_other();
	small_values_are_exact();
	large_values_are_close();
	weights_and_maximum();
	return ok_done();
}
