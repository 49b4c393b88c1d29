/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the inside of a server looks like, version by version: where the
 * fields of its connection object are, and in which order its table of
 * connection methods holds them.  Nothing else of the server's inside is
 * used.  Constant data, any thread.
 */
#ifndef RK_MODULE_LAYOUT_H
#define RK_MODULE_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

/* The methods of a connection type that we fill or look at. */
enum rk_method {
	RK_METHOD_GET_TYPE,
	RK_METHOD_INIT,
	RK_METHOD_CLEANUP,
	RK_METHOD_CONFIGURE,
	RK_METHOD_EVENT_HANDLER,
	RK_METHOD_ACCEPT_HANDLER,
	RK_METHOD_ADDRESS,
	RK_METHOD_IS_LOCAL,
	RK_METHOD_LISTEN,
	RK_METHOD_CLOSE_LISTENER,
	RK_METHOD_CREATE,
	RK_METHOD_CREATE_ACCEPTED,
	RK_METHOD_SHUTDOWN,
	RK_METHOD_CLOSE,
	RK_METHOD_CONNECT,
	RK_METHOD_BLOCKING_CONNECT,
	RK_METHOD_ACCEPT,
	RK_METHOD_WRITE,
	RK_METHOD_WRITEV,
	RK_METHOD_READ,
	RK_METHOD_SET_WRITE_HANDLER,
	RK_METHOD_SET_READ_HANDLER,
	RK_METHOD_LAST_ERROR,
	RK_METHOD_SYNC_WRITE,
	RK_METHOD_SYNC_READ,
	RK_METHOD_SYNC_READLINE,
	RK_METHOD_UNBIND_LOOP,
	RK_METHOD_REBIND_LOOP,
	RK_METHOD_HAS_PENDING,
	RK_METHOD_PROCESS_PENDING,
	RK_METHOD_COUNT,
};

/* How the server's I/O threads use a connection. */
enum rk_io_threads {
	RK_IO_FORK_JOIN, /* the main thread waits while they read and write */
	RK_IO_JOBS,	 /* they read or write while the main thread goes on */
	RK_IO_LOOPS,	 /* a connection lives in one thread's event loop */
};

/* Offsets in the server's struct connection; -1: the field is not there. The
 * pointer to the type is always first. */
struct rk_conn_offsets {
	int state, last_errno, fd, flags, refs, iovcnt, private_data, loop;
	int conn_handler, write_handler, read_handler;
	int bytes;
};

enum {
	RK_SLOTS_MAX = 64,    /* more than any version's table has */
	RK_CONN_BYTES = 128,  /* more than any version's struct connection */
};

struct rk_layout {
	const char *name;
	const struct rk_conn_offsets *at;
	const uint8_t *order;  /* enum rk_method, slot 0 first */
	unsigned order_count;  /* slots behind it are optional: left empty */
	unsigned slots;	       /* the whole table, 0: not compared */
	bool is_redis_7_0;     /* static types, no common accept function */
	bool type_is_number;   /* get_type answers an int, not a name */
	bool create_takes_loop; /* the create methods have it first */
	enum rk_io_threads io_threads;
};

/* The layout for a server, or NULL if none is known. */
const struct rk_layout *rk_layout_find(bool valkey, int major, int minor);

/* The slot of a method in this layout, or -1. */
int rk_layout_slot(const struct rk_layout *layout, enum rk_method method);

/* "redis 7.0, 7.2 ..., valkey ...": for the sentence of a refusal. */
const char *rk_layout_versions(void);

#endif
