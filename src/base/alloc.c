/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See alloc.h.  The counters are relaxed atomics: they order nothing.
 */
#include "base/alloc.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static long live_count;
static long fail_in = -1;

static bool may_allocate(void)
{
	if (rk_likely(__atomic_load_n(&fail_in, __ATOMIC_RELAXED) < 0))
		return true;
	return __atomic_fetch_sub(&fail_in, 1, __ATOMIC_RELAXED) != 0;
}

static void *counted(void *p)
{
	if (p)
		__atomic_fetch_add(&live_count, 1, __ATOMIC_RELAXED);
	return p;
}

void *rk_zalloc(size_t bytes)
{
	return rk_calloc(1, bytes);
}

void *rk_calloc(size_t count, size_t bytes)
{
	size_t sum;

	/* calloc() sees this too, but a sanitizer takes it for a mistake */
	if (__builtin_mul_overflow(count, bytes, &sum) || !may_allocate())
		return NULL;
	return counted(calloc(1, sum ? sum : 1));
}

void *rk_realloc(void *p, size_t bytes)
{
	void *grown;

	if (!may_allocate())
		return NULL;
	grown = realloc(p, bytes ? bytes : 1);
	return p ? grown : counted(grown);
}

/* Not strdup(): a program that opens us with RTLD_DEEPBIND and has a malloc of
 * its own would have that one allocate, and the C library's free() it. */
char *rk_strdup(const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = rk_calloc(1, bytes);

	return copy ? memcpy(copy, text, bytes) : NULL;
}

void rk_free(void *p)
{
	if (!p)
		return;
	__atomic_fetch_sub(&live_count, 1, __ATOMIC_RELAXED);
	free(p);
}

void rk_alloc_fail_at(long n)
{
	__atomic_store_n(&fail_in, n, __ATOMIC_RELAXED);
}

long rk_alloc_live(void)
{
	return __atomic_load_n(&live_count, __ATOMIC_RELAXED);
}
