/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allocation with a count of what is live and a way to make the n-th fail, so
 * that tests can walk every error path.  Any thread.  Memory from here goes
 * back through rk_free() only.
 */
#ifndef RK_BASE_ALLOC_H
#define RK_BASE_ALLOC_H

#include <stddef.h>

#include "base/compiler.h"

/* Zeroed memory, or NULL.  bytes may be 0. */
RK_MUST_CHECK void *rk_zalloc(size_t bytes);

/* Zeroed array; NULL also when count * bytes does not fit in size_t. */
RK_MUST_CHECK void *rk_calloc(size_t count, size_t bytes);

/* As realloc(); the tail is not zeroed. */
RK_MUST_CHECK void *rk_realloc(void *p, size_t bytes);

RK_MUST_CHECK char *rk_strdup(const char *text);

void rk_free(void *p); /* NULL is fine */

/* Tests: the n-th allocation from now (0 is the next) fails, once; -1: none. */
void rk_alloc_fail_at(long n);

/* Tests: allocations not freed yet. */
long rk_alloc_live(void);

#endif
