/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The methods of the type `rdma`, as the server calls them.  They follow what
 * the server's tcp type does: read and write are like read(2) and write(2)
 * with -1 for "later" while the state stays CONNECTED, and a handler that is
 * set while there is something for it is called soon.
 *
 * Threads: the owner; read, write and writev also an I/O thread of the
 * server.  In a forked child and after the end of the device all of them
 * answer as a closed connection does.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "link.h"
#include "loop.h"
#include "remote.h"

/* ---------------------------------------------------------- read and write */

static int broken(struct rk_link *link, int error)
{
	int *state = rk_conn_state(link);

	*rk_conn_last_errno(link) = errno = error;
	/* One that is only being accepted is closed by whoever does that. */
	if (*state == RK_CONN_CONNECTED)
		*state = RK_CONN_ERROR;
	return -1;
}

static int later(void)
{
	errno = EAGAIN;
	return -1;
}

static bool usable(const struct rk_link *link)
{
	return rk_likely(!rk_core.in_child && link->stream);
}

static int method_read(void *conn, void *data, size_t bytes)
{
	struct rk_link *link = conn;
	ssize_t got;

	if (!usable(link))
		return broken(link, EPIPE);
	bytes = rk_min(bytes, (size_t)INT_MAX);
	if (!bytes)
		return 0;
	if (rk_on_owner()) {
		got = rk_stream_read(link->stream, data, bytes);
	} else {
		got = rk_stream_read_offthread(link->stream, data, bytes);
		if (rk_stream_due(link->stream))
			rk_loop_hand_over(link);
	}
	if (got > 0)
		return (int)got;
	if (got == -EAGAIN)
		return later();
	if (got < 0)
		return broken(link, (int)-got);
	if (*rk_conn_state(link) == RK_CONN_CONNECTED)
		*rk_conn_state(link) = RK_CONN_CLOSED;
	return 0;
}

/* What an I/O thread writes is kept until the owner comes by. */
static int write_aside(struct rk_link *link, const struct iovec *iov,
		       int count)
{
	ssize_t put = 0;
	int i, total = 0;

	pthread_mutex_lock(&link->lock);
	for (i = 0; i < count; i++) {
		put = rk_buffer_put(&link->out, iov[i].iov_base,
				    iov[i].iov_len);
		if (put > 0)
			total += (int)put;
		if (put < 0 || (size_t)put < iov[i].iov_len)
			break;
	}
	pthread_mutex_unlock(&link->lock);
	if (total || put == 0)
		rk_loop_hand_over(link);
	if (total)
		return total;
	return put < 0 ? broken(link, (int)-put) : later();
}

static int write_pieces(struct rk_link *link, const struct iovec *iov,
			int count)
{
	ssize_t put;
	int error;

	if (!usable(link))
		return broken(link, EPIPE);
	if (!rk_on_owner())
		return write_aside(link, iov, count);
	if (!rk_link_flush(link)) /* what an I/O thread wrote goes first */
		return later();
	put = rk_stream_writev(link->stream, iov, count, 0);
	rk_loop_touched();
	if (put >= 0)
		return (int)put;
	if (put == -EAGAIN)
		return later();
	error = -rk_stream_error(link->stream);
	return broken(link, error > 0 ? error : (int)-put);
}

static int method_write(void *conn, const void *data, size_t bytes)
{
	struct iovec piece = { (void *)data, rk_min(bytes, (size_t)INT_MAX) };

	return write_pieces(conn, &piece, 1);
}

static int method_writev(void *conn, const struct iovec *iov, int count)
{
	return write_pieces(conn, iov, count);
}

/* ---------------------------------------------------------------- handlers */

static int changed(struct rk_link *link)
{
	if (!usable(link))
		return 0;
	if (link->remote_loop)
		return rk_remote_changed(link);
	if (rk_link_due(link))
		rk_loop_mark(link);
	return 0;
}

static int method_set_read_handler(void *conn, rk_conn_callback *handler)
{
	*rk_conn_read_handler(conn) = handler;
	return changed(conn);
}

static int method_set_write_handler(void *conn, rk_conn_callback *handler,
				    int barrier)
{
	short *flags = rk_conn_flags(conn);

	*rk_conn_write_handler(conn) = handler;
	if (barrier)
		*flags |= RK_CONN_WRITE_BARRIER;
	else
		*flags &= (short)~RK_CONN_WRITE_BARRIER;
	return changed(conn);
}

/* Links are called from loop.c; a table without this entry would not be one. */
static void method_event_handler(void *server_loop, int fd, void *data,
				 int mask)
{
}

/* ------------------------------------------------------- accept and the end */

static int method_accept(void *conn, rk_conn_callback *handler)
{
	if (*rk_conn_state(conn) != RK_CONN_ACCEPTING)
		return -1;
	*rk_conn_state(conn) = RK_CONN_CONNECTED;
	/* If the handler closed it, the server's client is gone already: what
	 * the server does after a failure would free that once more. */
	rk_link_call(conn, handler);
	return 0;
}

static void method_close(void *conn)
{
	rk_link_close(conn);
}

/* Called when a forked child is alive and shares a socket with the server; it
 * shares no queue pair, and the last reply may still be on its way. */
static void method_shutdown(void *conn)
{
}

/* Connections are made by the listener alone. */
static void *method_create(void *server_loop)
{
	return NULL;
}

static void *method_create_accepted(void *first, void *second, void *third)
{
	return NULL;
}

static int refuse_connect(void *conn)
{
	*rk_conn_last_errno(conn) = errno = EOPNOTSUPP;
	*rk_conn_state(conn) = RK_CONN_ERROR;
	return -1;
}

static int method_connect(void *conn, const char *addr, int port,
			  const char *source, void *a, void *b)
{
	return refuse_connect(conn);
}

static int method_blocking_connect(void *conn, const char *addr, int port,
				   long long timeout_ms)
{
	return refuse_connect(conn);
}

/* ------------------------------------------------------------ blocking calls */

static uint64_t end_of(long long timeout_ms)
{
	return rk_now_ns() + (uint64_t)rk_max(timeout_ms, 0LL) * RK_NS_PER_MS;
}

/* After a call said "later": wait for the device; false if time is up. */
static bool wait_for_more(struct rk_link *link, uint64_t end_ns)
{
	if (!rk_on_owner() || rk_now_ns() >= end_ns) {
		*rk_conn_last_errno(link) = errno = ETIMEDOUT;
		return false;
	}
	rk_loop_wait(end_ns);
	return true;
}

static ssize_t method_sync_write(void *conn, char *data, ssize_t bytes,
				 long long timeout_ms)
{
	uint64_t end_ns = end_of(timeout_ms);
	ssize_t done = 0;
	int put;

	while (done < bytes) {
		put = method_write(conn, data + done, (size_t)(bytes - done));
		if (put > 0)
			done += put;
		else if (errno != EAGAIN || !wait_for_more(conn, end_ns))
			return -1;
	}
	return done;
}

static ssize_t method_sync_read(void *conn, char *data, ssize_t bytes,
				long long timeout_ms)
{
	uint64_t end_ns = end_of(timeout_ms);
	ssize_t done = 0;
	int got;

	while (done < bytes) {
		got = method_read(conn, data + done, (size_t)(bytes - done));
		if (got > 0)
			done += got;
		else if (got == 0 || errno != EAGAIN ||
			 !wait_for_more(conn, end_ns))
			return -1;
	}
	changed(conn);
	return done;
}

/* A line without its end, which becomes a NUL. */
static ssize_t method_sync_readline(void *conn, char *line, ssize_t bytes,
				    long long timeout_ms)
{
	uint64_t end_ns = end_of(timeout_ms);
	ssize_t done = 0;
	int got;

	while (done < bytes - 1) {
		got = method_read(conn, line + done, 1);
		if (got == 0 || (got < 0 && errno != EAGAIN))
			return -1;
		if (got < 0) {
			if (!wait_for_more(conn, end_ns))
				return -1;
			continue;
		}
		if (line[done] == '\n') {
			if (done && line[done - 1] == '\r')
				done--;
			break;
		}
		done++;
	}
	line[done] = 0;
	changed(conn);
	return done;
}

/* ------------------------------------------------------------ what it is */

static const char *method_last_error(void *conn)
{
	return strerror(*rk_conn_last_errno(conn));
}

static const char *method_type_name(void *conn)
{
	return "rdma";
}

/* 7.0 compares this with the number of TLS and else takes it for a socket;
 * Valkey 9 has a number for RDMA. */
static int method_type_number(void *conn)
{
	return rk_server.layout->is_redis_7_0 ? 1 : 3;
}

static int method_address(void *conn, char *ip, size_t bytes, int *port,
			  int remote)
{
	const struct rk_link *link = conn;

	if (ip)
		snprintf(ip, bytes, "%s", link->ip[!!remote]);
	if (port)
		*port = link->port[!!remote];
	return 0;
}

/* For protected mode.  There is no loopback device: who comes from the
 * address that he connects to is on this host. */
static int method_is_local(void *conn)
{
	const struct rk_link *link = conn;

	return !strcmp(link->ip[0], link->ip[1]);
}

static int method_listen(void *listener)
{
	return -1;
}

static void method_close_listener(void *listener)
{
}

static void method_accept_handler(void *server_loop, int fd, void *data,
				  int mask)
{
}

static int method_rebind_loop(void *conn, void *server_loop)
{
	*rk_conn_loop(conn) = server_loop;
	return rk_remote_bind(conn, server_loop);
}

static int method_has_pending(void *server_loop)
{
	return 0; /* the kick keeps the loop awake instead */
}

static int method_process_pending(void *server_loop)
{
	return 0;
}

void rk_methods_fill(struct rk_methods *methods)
{
	*methods = (struct rk_methods){ .of = {
		[RK_METHOD_GET_TYPE] = rk_server.layout->type_is_number ?
					       (void *)method_type_number :
					       (void *)method_type_name,
		[RK_METHOD_EVENT_HANDLER] = method_event_handler,
		[RK_METHOD_ACCEPT_HANDLER] = method_accept_handler,
		[RK_METHOD_ADDRESS] = method_address,
		[RK_METHOD_IS_LOCAL] = method_is_local,
		[RK_METHOD_LISTEN] = method_listen,
		[RK_METHOD_CLOSE_LISTENER] = method_close_listener,
		[RK_METHOD_CREATE] = method_create,
		[RK_METHOD_CREATE_ACCEPTED] = method_create_accepted,
		[RK_METHOD_SHUTDOWN] = method_shutdown,
		[RK_METHOD_CLOSE] = method_close,
		[RK_METHOD_CONNECT] = method_connect,
		[RK_METHOD_BLOCKING_CONNECT] = method_blocking_connect,
		[RK_METHOD_ACCEPT] = method_accept,
		[RK_METHOD_WRITE] = method_write,
		[RK_METHOD_WRITEV] = method_writev,
		[RK_METHOD_READ] = method_read,
		[RK_METHOD_SET_WRITE_HANDLER] = method_set_write_handler,
		[RK_METHOD_SET_READ_HANDLER] = method_set_read_handler,
		[RK_METHOD_LAST_ERROR] = method_last_error,
		[RK_METHOD_SYNC_WRITE] = method_sync_write,
		[RK_METHOD_SYNC_READ] = method_sync_read,
		[RK_METHOD_SYNC_READLINE] = method_sync_readline,
		[RK_METHOD_REBIND_LOOP] = method_rebind_loop,
		[RK_METHOD_HAS_PENDING] = method_has_pending,
		[RK_METHOD_PROCESS_PENDING] = method_process_pending,
	} };
}
