/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables.  x86-64; other 64-bit systems with the same type sizes agree.
 * What is written here is believed only after guard.c has compared it with
 * the running server.  Constant data, any thread.
 *
 * The order of a type's methods is written as the server's own struct has it.
 * What stands behind the pending-data methods differs between patch releases,
 * is optional in all of them, and stays empty.
 */
#include "layout.h"

#include <stddef.h>

#include "base/compiler.h"

/* ------------------------------------------------------ struct connection */

static const struct rk_conn_offsets at_redis_7_0 = {
	.state = 8,
	.flags = 12,
	.refs = 14,
	.last_errno = 16,
	.private_data = 24,
	.conn_handler = 32,
	.write_handler = 40,
	.read_handler = 48,
	.fd = 56,
	.iovcnt = -1,
	.loop = -1,
	.bytes = 64,
};

static const struct rk_conn_offsets at_redis_7_2 = {
	.state = 8,
	.last_errno = 12,
	.fd = 16,
	.flags = 20,
	.refs = 22,
	.iovcnt = 24,
	.private_data = 32,
	.conn_handler = 40,
	.write_handler = 48,
	.read_handler = 56,
	.loop = -1,
	.bytes = 64,
};

static const struct rk_conn_offsets at_redis_8_0 = {
	.state = 8,
	.last_errno = 12,
	.fd = 16,
	.flags = 20,
	.refs = 22,
	.iovcnt = 24,
	.private_data = 32,
	.loop = 40,
	.conn_handler = 48,
	.write_handler = 56,
	.read_handler = 64,
	.bytes = 72,
};

/* ---------------------------------------------------------- ConnectionType */

#define HEAD                                                             \
	RK_METHOD_GET_TYPE, RK_METHOD_INIT, RK_METHOD_CLEANUP,           \
		RK_METHOD_CONFIGURE, RK_METHOD_EVENT_HANDLER,            \
		RK_METHOD_ACCEPT_HANDLER, RK_METHOD_ADDRESS,             \
		RK_METHOD_IS_LOCAL, RK_METHOD_LISTEN

#define BODY                                                             \
	RK_METHOD_CREATE, RK_METHOD_CREATE_ACCEPTED, RK_METHOD_SHUTDOWN, \
		RK_METHOD_CLOSE, RK_METHOD_CONNECT,                      \
		RK_METHOD_BLOCKING_CONNECT, RK_METHOD_ACCEPT,            \
		RK_METHOD_WRITE, RK_METHOD_WRITEV, RK_METHOD_READ,       \
		RK_METHOD_SET_WRITE_HANDLER, RK_METHOD_SET_READ_HANDLER, \
		RK_METHOD_LAST_ERROR, RK_METHOD_SYNC_WRITE,              \
		RK_METHOD_SYNC_READ, RK_METHOD_SYNC_READLINE

#define PENDING RK_METHOD_HAS_PENDING, RK_METHOD_PROCESS_PENDING

static const uint8_t order_redis_7_0[] = {
	RK_METHOD_EVENT_HANDLER,
	RK_METHOD_CONNECT,
	RK_METHOD_WRITE,
	RK_METHOD_WRITEV,
	RK_METHOD_READ,
	RK_METHOD_CLOSE,
	RK_METHOD_ACCEPT,
	RK_METHOD_SET_WRITE_HANDLER,
	RK_METHOD_SET_READ_HANDLER,
	RK_METHOD_LAST_ERROR,
	RK_METHOD_BLOCKING_CONNECT,
	RK_METHOD_SYNC_WRITE,
	RK_METHOD_SYNC_READ,
	RK_METHOD_SYNC_READLINE,
	RK_METHOD_GET_TYPE,
};

static const uint8_t order_redis_7_2[] = { HEAD, BODY, PENDING };

static const uint8_t order_redis_8_0[] = { HEAD, BODY, RK_METHOD_UNBIND_LOOP,
					   RK_METHOD_REBIND_LOOP, PENDING };

static const uint8_t order_valkey_8_1[] = { HEAD, RK_METHOD_CLOSE_LISTENER,
					    BODY, PENDING };

#define ORDER(array) .order = array, .order_count = RK_ARRAY_SIZE(array)

/* ----------------------------------------------------------------- layouts */

static const struct rk_layout redis_7_0 = {
	.name = "redis-7.0",
	.at = &at_redis_7_0,
	ORDER(order_redis_7_0),
	.slots = 15,
	.is_redis_7_0 = true,
	.type_is_number = true,
	.io_threads = RK_IO_FORK_JOIN,
};

static const struct rk_layout redis_7_2 = {
	.name = "redis-7.2",
	.at = &at_redis_7_2,
	ORDER(order_redis_7_2),
	.io_threads = RK_IO_FORK_JOIN,
};

static const struct rk_layout valkey_8_0 = {
	.name = "valkey-8.0",
	.at = &at_redis_7_2,
	ORDER(order_redis_7_2),
	.io_threads = RK_IO_JOBS,
};

static const struct rk_layout valkey_8_1 = {
	.name = "valkey-8.1",
	.at = &at_redis_7_2,
	ORDER(order_valkey_8_1),
	.io_threads = RK_IO_JOBS,
};

static const struct rk_layout valkey_9_0 = {
	.name = "valkey-9.0",
	.at = &at_redis_7_2,
	ORDER(order_valkey_8_1),
	.type_is_number = true,
	.io_threads = RK_IO_JOBS,
};

static const struct rk_layout redis_8_0 = {
	.name = "redis-8.0",
	.at = &at_redis_8_0,
	ORDER(order_redis_8_0),
	.create_takes_loop = true,
	.io_threads = RK_IO_LOOPS,
};

/* Closed at the top: a version that is not here is not guessed at. */
static const struct {
	bool valkey;
	int major, minor_first, minor_last;
	const struct rk_layout *layout;
} versions[] = {
	{ false, 7, 0, 0, &redis_7_0 },
	{ false, 7, 2, 2, &redis_7_2 },
	{ false, 7, 4, 4, &redis_7_2 },
	{ false, 8, 0, 6, &redis_8_0 },
	{ true, 7, 2, 2, &redis_7_2 },
	{ true, 8, 0, 0, &valkey_8_0 },
	{ true, 8, 1, 1, &valkey_8_1 },
	{ true, 9, 0, 1, &valkey_9_0 },
};

const struct rk_layout *rk_layout_find(bool valkey, int major, int minor)
{
	size_t i;

	for (i = 0; i < RK_ARRAY_SIZE(versions); i++) {
		if (versions[i].valkey == valkey &&
		    versions[i].major == major &&
		    versions[i].minor_first <= minor &&
		    versions[i].minor_last >= minor)
			return versions[i].layout;
	}
	return NULL;
}

int rk_layout_slot(const struct rk_layout *layout, enum rk_method method)
{
	unsigned slot;

	for (slot = 0; slot < layout->order_count; slot++) {
		if (layout->order[slot] == method)
			return (int)slot;
	}
	return -1;
}

const char *rk_layout_versions(void)
{
	return "redis 7.0, 7.2, 7.4, 8.0 to 8.6, "
	       "valkey 7.2, 8.0, 8.1, 9.0, 9.1";
}
