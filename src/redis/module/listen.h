/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where clients come in: one RDMA listener per address.  Owner only.
 */
#ifndef RK_MODULE_LISTEN_H
#define RK_MODULE_LISTEN_H

#include <stddef.h>

enum { RK_LISTEN_TEXT_BYTES = 1024, RK_LISTEN_BACKLOG = 511 };

/* Listen on all addresses of the settings.  0, or negative errno when one that
 * is not optional failed, with a sentence in why. */
int rk_listen_start(char *why, size_t why_bytes);
void rk_listen_stop(void);

/* "0.0.0.0:6379 [::]:6379" */
const char *rk_listen_text(void);

#endif
