/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/alloc.h"

#include "ok.h"

static void counts_what_is_live(void)
{
	long before = rk_alloc_live();
	void *a = rk_zalloc(10), *b = rk_zalloc(0);

	ok(a && b && rk_alloc_live() == before + 2, "two allocations count");
	b = rk_realloc(b, 100);
	ok(b && rk_alloc_live() == before + 2, "growing counts nothing new");
	rk_free(a);
	rk_free(b);
	rk_free(NULL);
	ok(rk_alloc_live() == before, "freeing brings the count back");
}

static void fails_where_told(void)
{
	void *a, *b, *c;

	rk_alloc_fail_at(1);
	a = rk_zalloc(1);
	b = rk_zalloc(1);
	c = rk_zalloc(1);
	rk_alloc_fail_at(-1);
	ok(a && !b && c, "the second of three fails, once");
	rk_free(a);
	rk_free(c);
	ok(!rk_calloc(SIZE_MAX / 2, 4), "a product that wraps is refused");
}

int main(void)
{
	counts_what_is_live();
	fails_where_told();
	return ok_done();
}
