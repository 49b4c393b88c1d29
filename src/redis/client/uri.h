/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a server is, as a URI; rdmakit/redis.h has the forms.  Pure functions,
 * no allocation, any thread.
 */
#ifndef RK_REDIS_CLIENT_URI_H
#define RK_REDIS_CLIENT_URI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include "base/compiler.h"

enum {
	RK_URI_HOST_MAX = 256,
	RK_URI_SECRET_MAX = 1024,
	RK_URI_TEXT_MAX = 320, /* enough for what rk_uri_text() writes */
	RK_URI_FULL_MAX = 8192, /* and for rk_uri_compose() */
	RK_REDIS_PORT = 6379,
};

struct rk_uri {
	char scheme[16];	    /* of the transport: "redis" is "tcp" */
	char host[RK_URI_HOST_MAX]; /* without brackets; unix: empty */
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* unix */
	uint16_t port;
	unsigned db;
	char user[RK_URI_SECRET_MAX]; /* empty: none */
	char password[RK_URI_SECRET_MAX];
	char device[64]; /* empty: not said */
};

/*
 * -EINVAL: text is no such URI, and error says what is wrong with it.  Whether
 * the scheme has a transport is not looked at here.
 */
RK_MUST_CHECK int rk_uri_parse(struct rk_uri *out, const char *text,
			       char *error, size_t error_bytes);

/* The whole URI, secrets too, so that parsing it gives uri again. */
void rk_uri_compose(const struct rk_uri *uri, char *out, size_t out_bytes);

/* The URI without its secrets, for people. */
void rk_uri_text(const struct rk_uri *uri, char *out, size_t out_bytes);

#endif
