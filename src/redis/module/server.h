/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The running server as the guard proved it: its functions, and the fields of
 * its connection object.  Filled once at load by guard.c, constant afterwards.
 */
#ifndef RK_MODULE_SERVER_H
#define RK_MODULE_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "layout.h"

/* The server's enum of connection states. */
enum rk_conn_state {
	RK_CONN_NONE,
	RK_CONN_CONNECTING,
	RK_CONN_ACCEPTING,
	RK_CONN_CONNECTED,
	RK_CONN_CLOSED,
	RK_CONN_ERROR,
};

enum { RK_CONN_CLOSE_SCHEDULED = 1, RK_CONN_WRITE_BARRIER = 2 };
enum { RK_LOOP_READABLE = 1, RK_LOOP_WRITABLE = 2 };

typedef void rk_conn_callback(void *conn);
typedef void rk_loop_callback(void *loop, int fd, void *data, int mask);

/* The common beginning of what every version takes as a set of listeners. */
struct rk_fd_set {
	int fd[16];
	int count;
	char room[256]; /* a newer server's struct is longer */
};

struct rk_server {
	/* In every version. */
	int (*loop_add)(void *loop, int fd, int mask, rk_loop_callback *call,
			void *data);
	void (*loop_remove)(void *loop, int fd, int mask);
	int (*watch)(struct rk_fd_set *fds, rk_loop_callback *call);
	void *(*client_create)(void *conn);
	void (*client_free)(void *client);
	void (*client_accepted)(void *conn);
	void (*client_read)(void *conn);
	int (*client_write)(void *client, int handler_installed);
	int *blocked_loop; /* set while a script's loop is re-entered */

	/* From 7.2 on.  The last arguments are passed as zeros: their size
	 * differs between versions, their value is the same. */
	void (*accept_common)(void *conn, uint64_t, uint64_t, uint64_t);
	void **(*type_tcp)(void);
	void **(*type_tls)(void);

	/* 7.0 only. */
	void *(*create_accepted)(int fd);
	void **type_tcp_symbol;

	const struct rk_layout *layout;
	struct rk_conn_offsets at; /* a copy: one load less on the hot path */
};

extern struct rk_server rk_server;

/* The server's functions for one type of connection: NULL where the version
 * has no such slot or the method is left empty. */
struct rk_methods {
	void *of[RK_METHOD_COUNT];
};

/* Lay methods out as the proven server wants its table. */
void rk_server_type_build(void *type[RK_SLOTS_MAX],
			  const struct rk_methods *methods);

/* The fields of a connection object. */
#define RK_CONN_FIELD(name, type)                                       \
	static inline type *rk_conn_##name(void *conn)                  \
	{                                                               \
		return (type *)((char *)conn + rk_server.at.name);      \
	}

RK_CONN_FIELD(state, int)
RK_CONN_FIELD(last_errno, int)
RK_CONN_FIELD(fd, int)
RK_CONN_FIELD(flags, short)
RK_CONN_FIELD(refs, short)
RK_CONN_FIELD(iovcnt, unsigned short)
RK_CONN_FIELD(private_data, void *)
RK_CONN_FIELD(loop, void *)
RK_CONN_FIELD(conn_handler, rk_conn_callback *)
RK_CONN_FIELD(write_handler, rk_conn_callback *)
RK_CONN_FIELD(read_handler, rk_conn_callback *)

/* Make zeroed memory a connection object of this type. */
void rk_conn_init(void *conn, void **type, void *loop);

#endif
