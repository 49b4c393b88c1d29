/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the loadmodule line says, as name and value pairs:
 *
 *   rdma-port NUMBER              the server's own port
 *   rdma-bind ADDRESS...          the server's own addresses; - before one:
 *                                 go on without it; * and ::* : all of them
 *   rdma-rx-size BYTES            1048576; 65536 to 16777216
 *   rdma-completion-vector NUMBER -1: spread
 *   rdma-device NAME              auto (by the first address), soft, or a
 *                                 device of the system
 *   rdma-spin MICROSECONDS        30 on more than one core; 0: off
 *   rdma-memory-cap BYTES         registered memory; 0: no cap
 *
 * Bytes take k, m, g and kb, mb, gb as the server's own settings do.
 * Main thread, once, at load.
 */
#ifndef RK_MODULE_SETTINGS_H
#define RK_MODULE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "api.h"

enum {
	RK_BIND_MAX = 16,
	RK_SPIN_DEFAULT_US = 30,
	RK_SPIN_MAX_US = 1000000,
	RK_SETTINGS_WHY_BYTES = 256,
};

struct rk_bind {
	struct sockaddr_storage addr;
	char text[64]; /* as given, for log lines */
	bool optional;
};

struct rk_settings {
	uint16_t port;
	struct rk_bind bind[RK_BIND_MAX];
	unsigned bind_count;
	uint32_t rx_bytes; /* 0: what suits the device */
	int completion_vector;
	char device[64];
	uint32_t spin_us;
	uint64_t memory_cap_bytes;
};

/* 0, or -EINVAL with a sentence in why. */
RK_MUST_CHECK int rk_settings_read(struct rk_settings *settings,
				   struct rk_server_context *ctx,
				   struct rk_server_string **argv, int argc,
				   char why[RK_SETTINGS_WHY_BYTES]);

#endif
