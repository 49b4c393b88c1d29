/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context: one RDMA device as one thread uses it.  It has a protection
 * domain, a completion queue, its connections, one pollable descriptor.
 *
 * Threads: the thread that opened a context owns it.  Every call on it and on
 * its connections and streams comes from that thread, and every callback runs
 * inside rk_context_process() on that thread, unless a call says otherwise.
 * More cores are used by opening more contexts.
 *
 * Errors are 0 or negative errno.
 */
#ifndef RDMAKIT_DEVICE_H
#define RDMAKIT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RK_API __attribute__((visibility("default")))

struct rk_context;

struct rk_context_params {
	/*
	 * "auto": the RDMA device of the system's rdma-core that suits address,
	 * else the software device; "soft": the software device; else the name
	 * of one of the system's devices.  NULL means "auto".
	 */
	const char *device;
	int completion_vector;	     /* -1: spread over the device's */
	unsigned completion_entries; /* of the shared queue; 0 means 65536 */
	uint64_t memory_cap_bytes;   /* registered memory; 0 means no cap */
	/*
	 * For "auto": an address that this context will listen on or, if it
	 * is remote, connect to; IPv4 or IPv6, read by open only.  The device
	 * is the one that owns it, or reaches it, or else the software device.
	 * NULL, or a wildcard: the first that is usable.  A loopback address
	 * is nobody's but the software device's, remote or not.
	 */
	const struct sockaddr *address;
	bool address_is_remote; /* then opening may block, for 2 s at most */
};

/*
 * Open a device.  params may be NULL.  *out is NULL on failure and what was
 * wrong has been logged in one line.
 *   -ENODEV  no such device (the line names those there are)
 *   -EINVAL  no such completion vector, or address is no IP address
 *   -ENOMEM, -EMFILE
 */
RK_API int rk_context_open(struct rk_context **out,
			   const struct rk_context_params *params);

/* Everything on it is gone afterwards; NULL is fine.  No callback runs, and it
 * is not called from one. */
RK_API void rk_context_close(struct rk_context *context);

/* For poll or epoll: readable when rk_context_process() may have work.  Only
 * to be slept on after rk_context_arm() said 0. */
RK_API int rk_context_fd(const struct rk_context *context);

/*
 * Take at most budget events (0: no limit, but bounded work) and run their
 * callbacks.  Returns how many; 0 means nothing was there.  Never blocks.
 */
RK_API unsigned rk_context_process(struct rk_context *context,
				   unsigned budget);

/*
 * Prepare to sleep: 0, the descriptor will become readable for the next
 * event; 1, something is there already, process first.
 */
RK_API int rk_context_arm(struct rk_context *context);

/* When rk_context_process() must be called although nothing came:
 * CLOCK_MONOTONIC nanoseconds, UINT64_MAX for never. */
RK_API uint64_t rk_context_deadline_ns(const struct rk_context *context);

struct rk_context_info {
	const char *device;  /* "soft", or the system's name */
	const char *reason;  /* why this one, for a log line */
	bool software;
	unsigned connections;
	uint64_t bytes_registered;
	uint64_t receiver_not_ready; /* sends that met a peer without a receive,
				      * as far as the device tells: a real one
				      * only if its retries ran out */
	uint64_t errors;	     /* connections that ended with one */
};
RK_API void rk_context_info_get(const struct rk_context *context,
				struct rk_context_info *out);

#ifdef __cplusplus
}
#endif
#endif
