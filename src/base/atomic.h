/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The few orderings that shared words need, under names short enough to keep
 * a protocol readable.  A shared word is always loaded once into a local.
 */
#ifndef RK_BASE_ATOMIC_H
#define RK_BASE_ATOMIC_H

#define rk_load(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define rk_load_acquire(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define rk_store(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define rk_store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)

/* Store-load barrier: what is before is seen before what follows is read. */
#define rk_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)

#endif
