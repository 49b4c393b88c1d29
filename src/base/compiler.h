/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small helpers about the language and the machine.  Everything here is a
 * pure expression: no state, any thread.
 */
#ifndef RK_BASE_COMPILER_H
#define RK_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

#define RK_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define RK_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define RK_MUST_CHECK __attribute__((warn_unused_result))
#define RK_UNUSED __attribute__((unused))
#define RK_CACHE_LINE 64
#define RK_ALIGNED_LINE __attribute__((aligned(RK_CACHE_LINE)))

#define rk_likely(x) __builtin_expect(!!(x), 1)
#define rk_unlikely(x) __builtin_expect(!!(x), 0)

#define rk_container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))

#define rk_min(a, b)                        \
	({                                  \
		__typeof__(a) rk_a_ = (a);  \
		__typeof__(b) rk_b_ = (b);  \
		rk_a_ < rk_b_ ? rk_a_ : rk_b_; \
	})
#define rk_max(a, b)                        \
	({                                  \
		__typeof__(a) rk_a_ = (a);  \
		__typeof__(b) rk_b_ = (b);  \
		rk_a_ > rk_b_ ? rk_a_ : rk_b_; \
	})

/* Tell the processor that this is a spin loop. */
static inline void rk_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline uint64_t rk_round_up(uint64_t value, uint64_t power_of_two)
{
	return (value + power_of_two - 1) & ~(power_of_two - 1);
}

#endif
