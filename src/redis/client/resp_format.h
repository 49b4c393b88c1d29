/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commands to bytes: an array of strings, which RESP2 and RESP3 share.  One
 * thread per buffer.
 */
#ifndef RK_REDIS_CLIENT_RESP_FORMAT_H
#define RK_REDIS_CLIENT_RESP_FORMAT_H

#include "base/compiler.h"
#include "redis/client/buffer.h"

/*
 * Append one command; lengths NULL: the arguments are C strings.
 *   -EINVAL  no argument
 *   -ENOMEM  nothing was appended
 */
RK_MUST_CHECK int rk_resp_format(struct rk_buffer *out, int argc,
				 const char *const *argv,
				 const size_t *lengths);

#endif
