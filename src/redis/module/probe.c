/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The last layer of the guard: a forked child uses the assumed layout in
 * earnest, first on a TCP connection object of the server's own, then on an
 * object of ours that the server drives through one whole command.  A wrong
 * offset or slot shows as a wrong value or as a crash of the child, never of
 * the server.  The child says what it is doing, and what it found, in a page
 * shared with the parent.
 *
 * The type used here is the probe's own, but it is laid out by the same
 * function and the same tables as the real one.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dlfcn.h>

#include "guard.h"
#include "server.h"

enum { PROBE_SECONDS = 5 };

struct probe_page {
	char step[96];
	char why[RK_GUARD_WHY_BYTES - 200];
	bool passed;
};

static struct probe_page *page;

static _Noreturn void fail(const char *expected, long found)
{
	snprintf(page->why, sizeof(page->why), "%s was expected, found %ld",
		 expected, found);
	_exit(1);
}

static void expect(long found, long expected, const char *what)
{
	if (found == expected)
		return;
	snprintf(page->why, sizeof(page->why),
		 "%s should be %ld, and is %ld", what, expected, found);
	_exit(1);
}

static void expect_true(bool good, const char *what)
{
	if (good)
		return;
	snprintf(page->why, sizeof(page->why),
		 "%s was expected, and is not there", what);
	_exit(1);
}

static void step(const char *what)
{
	snprintf(page->step, sizeof(page->step), "%s", what);
}

/* -------------------------------------------- 1. an object of the server */

static void **tcp_type(void)
{
	return rk_server.type_tcp ? rk_server.type_tcp() :
				    rk_server.type_tcp_symbol;
}

static void *slot(void **type, enum rk_method method)
{
	return type[rk_layout_slot(rk_server.layout, method)];
}

static void *make_tcp(int fd)
{
	void *(*make_loop)(int size);
	void *loop, *conn;

	if (rk_server.layout->is_redis_7_0)
		return rk_server.create_accepted(fd);
	if (!rk_server.layout->create_takes_loop) {
		void *(*make)(int, void *) =
			slot(tcp_type(), RK_METHOD_CREATE_ACCEPTED);

		return make(fd, NULL);
	} else {
		void *(*make)(void *, int, void *) =
			slot(tcp_type(), RK_METHOD_CREATE_ACCEPTED);

		*(void **)&make_loop = dlsym(RTLD_DEFAULT, "aeCreateEventLoop");
		expect_true(make_loop, "an exported aeCreateEventLoop");
		loop = make_loop(1024);
		conn = make(loop, fd, NULL);
		expect_true(*rk_conn_loop(conn) == loop,
			    "the event loop in the connection");
		return conn;
	}
}

static void check_fields(void *conn, int fd)
{
	step("reading the fields of a tcp connection");
	expect_true(conn && *(void ***)conn == tcp_type(),
		    "the tcp type first in its connection");
	expect(*rk_conn_state(conn), RK_CONN_ACCEPTING, "conn->state");
	expect(*rk_conn_fd(conn), fd, "conn->fd");
	expect(*rk_conn_flags(conn), 0, "conn->flags");
	expect(*rk_conn_refs(conn), 0, "conn->refs");
	expect(*rk_conn_last_errno(conn), 0, "conn->last_errno");
	if (rk_server.at.iovcnt >= 0)
		expect(*rk_conn_iovcnt(conn), IOV_MAX, "conn->iovcnt");
	expect_true(!*rk_conn_private_data(conn), "no conn->private_data");
	expect_true(!*rk_conn_read_handler(conn), "no conn->read_handler");
	expect_true(!*rk_conn_write_handler(conn), "no conn->write_handler");
	expect_true(!*rk_conn_conn_handler(conn), "no conn->conn_handler");
}

static void check_bytes(void *conn, int peer)
{
	void **type = tcp_type();
	int (*write_call)(void *, const void *, size_t) =
		slot(type, RK_METHOD_WRITE);
	int (*writev_call)(void *, const struct iovec *, int) =
		slot(type, RK_METHOD_WRITEV);
	int (*read_call)(void *, void *, size_t) = slot(type, RK_METHOD_READ);
	struct iovec pieces[2] = { { (char *)"c", 1 }, { (char *)"d", 1 } };
	char got[8] = "";

	*rk_conn_state(conn) = RK_CONN_CONNECTED;
	step("calling write of the tcp type");
	expect(write_call(conn, "ab", 2), 2, "the result of write");
	expect(read(peer, got, sizeof(got)), 2, "the bytes written");
	expect_true(!memcmp(got, "ab", 2), "what was written");
	step("calling writev of the tcp type");
	expect(writev_call(conn, pieces, 2), 2, "the result of writev");
	expect(read(peer, got, sizeof(got)), 2, "the bytes written");
	expect_true(!memcmp(got, "cd", 2), "what was written");
	step("calling read of the tcp type");
	expect(write(peer, "xy", 2), 2, "the bytes sent to it");
	expect(read_call(conn, got, sizeof(got)), 2, "the result of read");
	expect_true(!memcmp(got, "xy", 2), "what was sent");
}

/* Two that are not one: the compiler may not merge them. */
static int marked;

static void read_marker(void *conn)
{
	marked = 1;
}

static void write_marker(void *conn)
{
	marked = 2;
}

static void check_handlers(void *conn, int peer)
{
	void **type = tcp_type();
	int (*set_read)(void *, rk_conn_callback *) =
		slot(type, RK_METHOD_SET_READ_HANDLER);
	int (*set_write)(void *, rk_conn_callback *, int) =
		slot(type, RK_METHOD_SET_WRITE_HANDLER);
	const char *(*last_error)(void *) = slot(type, RK_METHOD_LAST_ERROR);
	void (*close_call)(void *) = slot(type, RK_METHOD_CLOSE);
	char byte;

	step("calling get_last_error of the tcp type");
	*rk_conn_last_errno(conn) = ENOENT;
	expect_true(!strcmp(last_error(conn), strerror(ENOENT)),
		    "the text of conn->last_errno");
	step("calling set_read_handler of the tcp type");
	expect(set_read(conn, read_marker), 0,
	       "the result of set_read_handler");
	expect_true(*rk_conn_read_handler(conn) == read_marker &&
			    !*rk_conn_write_handler(conn),
		    "the handler in conn->read_handler alone");
	step("calling set_write_handler of the tcp type");
	expect(set_write(conn, write_marker, 1), 0,
	       "the result of set_write_handler");
	expect_true(*rk_conn_write_handler(conn) == write_marker &&
			    *rk_conn_read_handler(conn) == read_marker,
		    "the handler in conn->write_handler alone");
	expect(*rk_conn_flags(conn) & RK_CONN_WRITE_BARRIER,
	       RK_CONN_WRITE_BARRIER, "the barrier bit of conn->flags");
	step("calling close of the tcp type");
	close_call(conn);
	expect(read(peer, &byte, 1), 0, "the bytes read after close");
}

/* ----------------------------------------------------- 2. an object of ours */

static const char request[] = "*1\r\n$4\r\nPING\r\n";

static struct {
	unsigned reads, closes, command_handlers;
	char reply[256];
	size_t reply_bytes;
} seen;

static int probe_read(void *conn, void *data, size_t bytes)
{
	if (seen.reads++) {
		errno = EAGAIN;
		return -1;
	}
	if (bytes < sizeof(request) - 1)
		fail("a read of at least 14 bytes", (long)bytes);
	memcpy(data, request, sizeof(request) - 1);
	return sizeof(request) - 1;
}

static int probe_write(void *conn, const void *data, size_t bytes)
{
	if (bytes > sizeof(seen.reply) - seen.reply_bytes)
		fail("a reply of one line", (long)bytes);
	memcpy(seen.reply + seen.reply_bytes, data, bytes);
	seen.reply_bytes += bytes;
	return (int)bytes;
}

static int probe_writev(void *conn, const struct iovec *iov, int count)
{
	int i, total = 0;

	for (i = 0; i < count; i++)
		total += probe_write(conn, iov[i].iov_base, iov[i].iov_len);
	return total;
}

static int probe_set_read(void *conn, rk_conn_callback *handler)
{
	*rk_conn_read_handler(conn) = handler;
	if (handler == rk_server.client_read)
		seen.command_handlers++;
	return 0;
}

static int probe_set_write(void *conn, rk_conn_callback *handler, int barrier)
{
	*rk_conn_write_handler(conn) = handler;
	return 0;
}

static void probe_close(void *conn)
{
	seen.closes++;
}

static const char *probe_last_error(void *conn)
{
	return "none";
}

static int probe_type_number(void *conn)
{
	return 1;
}

static const char *probe_type_name(void *conn)
{
	return "probe";
}

static void check_ours(int fd)
{
	static const struct rk_methods methods = { .of = {
		[RK_METHOD_READ] = probe_read,
		[RK_METHOD_WRITE] = probe_write,
		[RK_METHOD_WRITEV] = probe_writev,
		[RK_METHOD_SET_READ_HANDLER] = probe_set_read,
		[RK_METHOD_SET_WRITE_HANDLER] = probe_set_write,
		[RK_METHOD_CLOSE] = probe_close,
		[RK_METHOD_LAST_ERROR] = probe_last_error,
	} };
	struct rk_methods mine = methods;
	static char conn[RK_CONN_BYTES] __attribute__((aligned(16)));
	void *type[RK_SLOTS_MAX], *client;

	mine.of[RK_METHOD_GET_TYPE] = rk_server.layout->type_is_number ?
					      (void *)probe_type_number :
					      (void *)probe_type_name;
	/* This copy of the server has no I/O threads to hand a read to. */
	if (rk_server.blocked_loop)
		*rk_server.blocked_loop = 1;
	rk_server_type_build(type, &mine);
	rk_conn_init(conn, type, NULL);
	*rk_conn_fd(conn) = fd;
	*rk_conn_state(conn) = RK_CONN_ACCEPTING;

	step("createClient() on a connection of ours");
	client = rk_server.client_create(conn);
	expect_true(client, "a client");
	expect(seen.command_handlers, 1,
	       "the calls of our set_read_handler with readQueryFromClient");
	expect_true(*rk_conn_private_data(conn) == client,
		    "the client in conn->private_data");
	*rk_conn_state(conn) = RK_CONN_CONNECTED;
	step("readQueryFromClient() on a connection of ours");
	rk_server.client_read(conn);
	expect(seen.reads, 1, "the calls of our read");
	step("writeToClient() on a connection of ours");
	rk_server.client_write(client, 0);
	/* With I/O threads running the reply may be queued for one of them;
	 * such a client must not be freed here. */
	if (!seen.reply_bytes && rk_server.layout->io_threads != RK_IO_FORK_JOIN)
		return;
	/* While the server starts it is an error reply. */
	expect_true(seen.reply_bytes >= 3 &&
			    (seen.reply[0] == '+' || seen.reply[0] == '-') &&
			    seen.reply[seen.reply_bytes - 1] == '\n',
		    "one reply line to PING");
	step("freeClient() on a connection of ours");
	rk_server.client_free(client);
	expect_true(seen.closes >= 1, "a call of our close");
}

static _Noreturn void child(void)
{
	static const int fatal[] = { SIGSEGV, SIGBUS,  SIGILL, SIGFPE,
				     SIGABRT, SIGALRM, SIGTRAP };
	int pair[2], spare[2];
	void *conn;
	size_t i;

	for (i = 0; i < RK_ARRAY_SIZE(fatal); i++)
		signal(fatal[i], SIG_DFL);
	alarm(PROBE_SECONDS);
	step("making sockets");
	expect(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0, "socketpair");
	expect(socketpair(AF_UNIX, SOCK_STREAM, 0, spare), 0, "socketpair");
	step("making a tcp connection");
	conn = make_tcp(pair[0]);
	check_fields(conn, pair[0]);
	check_bytes(conn, pair[1]);
	check_handlers(conn, pair[1]);
	check_ours(spare[0]);
	page->passed = true;
	_exit(0);
}

int rk_guard_probe(char why[RK_GUARD_WHY_BYTES])
{
	int status = 0, ret = -ENOTSUP;
	pid_t pid;

	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED) {
		snprintf(why, RK_GUARD_WHY_BYTES,
			 "no memory for the layout probe: %s",
			 strerror(errno));
		return -ENOTSUP;
	}
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		child();
	if (pid < 0) {
		snprintf(why, RK_GUARD_WHY_BYTES,
			 "cannot fork for the layout probe: %s",
			 strerror(errno));
		goto out;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	page->step[sizeof(page->step) - 1] = 0;
	page->why[sizeof(page->why) - 1] = 0;
	if (WIFSIGNALED(status))
		snprintf(why, RK_GUARD_WHY_BYTES,
			 "layout %s does not fit: the probe died of signal %d "
			 "while %s",
			 rk_server.layout->name, WTERMSIG(status), page->step);
	else if (!page->passed)
		snprintf(why, RK_GUARD_WHY_BYTES,
			 "layout %s does not fit: %s, while %s",
			 rk_server.layout->name, page->why, page->step);
	else
		ret = 0;
out:
	munmap(page, sizeof(*page));
	page = NULL;
	return ret;
}
