/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tcp:// and unix://: non-blocking sockets and one epoll, level triggered.
 *
 *   CONNECTING --writable, no error--> OPEN
 *     |    ^
 *   error  |next address
 *     +----+--no address is left--> FAILED
 *
 * The socket of a failed link stays in the epoll, which goes on reporting it.
 * An open link always waits for input; it waits for output only after a write
 * was cut short.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "redis/client/resolve.h"
#include "redis/client/transport.h"

enum { EVENTS_MAX = 256 };

struct socket_context {
	struct rk_link_context base;
	int epoll_fd;
	uint64_t spin_ns;
	uint64_t sends, receives; /* system calls that moved bytes */
	struct epoll_event events[EVENTS_MAX];
};

enum socket_state { CONNECTING, OPEN, FAILED };

struct socket_link {
	struct rk_link base;
	struct socket_context *context;
	enum socket_state state;
	int fd;
	bool wants_write;
	struct rk_addresses addresses;
};

static int socket_open(const struct rk_transport *transport,
		       struct rk_link_context **out,
		       const struct rk_link_options *options, char *error,
		       size_t error_bytes)
{
	struct socket_context *context = rk_zalloc(sizeof(*context));
	int ret;

	*out = NULL;
	if (!context) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	context->base.transport = transport;
	if (options->spin_us > 0)
		context->spin_ns = (uint64_t)options->spin_us * RK_NS_PER_US;
	context->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (context->epoll_fd < 0) {
		ret = -errno;
		snprintf(error, error_bytes, "epoll_create1: %s",
			 strerror(-ret));
		rk_free(context);
		return ret;
	}
	*out = &context->base;
	return 0;
}

static int tcp_open(struct rk_link_context **out,
		    const struct rk_link_options *options, char *error,
		    size_t error_bytes)
{
	return socket_open(&rk_transport_tcp, out, options, error,
			   error_bytes);
}

static int unix_open(struct rk_link_context **out,
		     const struct rk_link_options *options, char *error,
		     size_t error_bytes)
{
	return socket_open(&rk_transport_unix, out, options, error,
			   error_bytes);
}

static void socket_close(struct rk_link_context *base)
{
	struct socket_context *context = (struct socket_context *)base;

	close(context->epoll_fd);
	rk_free(context);
}

/* Watch for what the state needs. */
static int watch(struct socket_link *link, int operation)
{
	struct epoll_event event = { .data.ptr = link };

	if (link->state == CONNECTING)
		event.events = EPOLLOUT;
	else
		event.events = EPOLLIN | (link->wants_write ? EPOLLOUT : 0);
	if (epoll_ctl(link->context->epoll_fd, operation, link->fd, &event))
		return -errno;
	return 0;
}

/* A socket on its way to addr, watched. */
static int start_connecting(struct socket_link *link,
			    const struct sockaddr *addr, socklen_t bytes)
{
	int yes = 1, ret;

	link->fd = socket(addr->sa_family,
			  SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (link->fd < 0)
		return -errno;
	if (addr->sa_family != AF_UNIX)
		setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &yes,
			   sizeof(yes));
	ret = connect(link->fd, addr, bytes) ? -errno : 0;
	if (!ret || ret == -EINPROGRESS)
		ret = watch(link, EPOLL_CTL_ADD);
	if (!ret)
		return 0;
	close(link->fd);
	link->fd = -1;
	return ret;
}

/* Try addresses until one does not fail at once. */
static int next_address(struct socket_link *link)
{
	struct rk_addresses *addresses = &link->addresses;
	int ret = -ECONNREFUSED;

	while (addresses->next < addresses->count) {
		struct sockaddr_storage *addr =
			&addresses->list[addresses->next++];

		ret = start_connecting(link, (struct sockaddr *)addr,
				       rk_address_bytes(addr));
		if (!ret)
			return 0;
	}
	return ret;
}

static struct socket_link *new_link(struct rk_link_context *base, void *user)
{
	struct socket_link *link = rk_zalloc(sizeof(*link));

	if (!link)
		return NULL;
	link->base.user = user;
	link->context = (struct socket_context *)base;
	link->fd = -1;
	return link;
}

static int tcp_connect(struct rk_link_context *base, const struct rk_uri *uri,
		       int timeout_ms, void *user, struct rk_link **out,
		       char *error, size_t error_bytes)
{
	struct socket_link *link = new_link(base, user);
	int ret;

	*out = NULL;
	if (!link) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	ret = rk_resolve(&link->addresses, uri, error, error_bytes);
	if (ret)
		goto err_link;
	ret = next_address(link);
	if (ret) {
		snprintf(error, error_bytes, "%s", strerror(-ret));
		goto err_link;
	}
	*out = &link->base;
	return 0;

err_link:
	rk_free(link);
	return ret;
}

/*
 * Connecting to a unix socket is over at once, except when the server's
 * backlog is full: then a non-blocking connect fails, so this one blocks.
 */
static int unix_connect(struct rk_link_context *base, const struct rk_uri *uri,
			int timeout_ms, void *user, struct rk_link **out,
			char *error, size_t error_bytes)
{
	struct socket_link *link = new_link(base, user);
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct timeval limit = { timeout_ms / 1000,
				 timeout_ms % 1000 * 1000 };
	int ret;

	*out = NULL;
	if (!link) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	memcpy(addr.sun_path, uri->path, sizeof(addr.sun_path));
	link->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (link->fd < 0) {
		ret = -errno;
		goto err_link;
	}
	setsockopt(link->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(link->fd, (struct sockaddr *)&addr, sizeof(addr))) {
		ret = errno == EAGAIN ? -ETIMEDOUT : -errno;
		goto err_fd;
	}
	if (fcntl(link->fd, F_SETFL, O_NONBLOCK)) {
		ret = -errno;
		goto err_fd;
	}
	ret = watch(link, EPOLL_CTL_ADD);
	if (ret)
		goto err_fd;
	*out = &link->base;
	return 0;

err_fd:
	close(link->fd);
err_link:
	snprintf(error, error_bytes, "%s", strerror(-ret));
	rk_free(link);
	return ret;
}

static void socket_disconnect(struct rk_link *base)
{
	struct socket_link *link = (struct socket_link *)base;

	close(link->fd); /* which takes it out of the epoll */
	rk_free(link);
}

static int broken(struct socket_link *link, int error)
{
	snprintf(link->base.error, sizeof(link->base.error), "%s",
		 strerror(error));
	return -error;
}

static ssize_t socket_read(struct rk_link *base, void *data, size_t bytes)
{
	struct socket_link *link = (struct socket_link *)base;
	ssize_t got;

	if (link->state == FAILED)
		return -ENOTCONN;
	do
		got = recv(link->fd, data, bytes, 0);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return errno == EAGAIN ? -EAGAIN : broken(link, errno);
	link->context->receives += got > 0;
	return got;
}

static ssize_t socket_writev(struct rk_link *base, const struct iovec *iov,
			     int count)
{
	struct socket_link *link = (struct socket_link *)base;
	struct msghdr message = { .msg_iov = (struct iovec *)iov,
				  .msg_iovlen = (size_t)count };
	size_t total = 0;
	ssize_t sent;
	int ret;

	if (link->state == FAILED)
		return -ENOTCONN;
	for (int i = 0; i < count; i++)
		total += iov[i].iov_len;
	do
		sent = sendmsg(link->fd, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0 && errno != EAGAIN)
		return broken(link, errno);
	link->context->sends += sent > 0;
	if (sent == (ssize_t)total)
		return sent;
	if (!link->wants_write) {
		link->wants_write = true;
		ret = watch(link, EPOLL_CTL_MOD);
		if (ret)
			return broken(link, -ret);
	}
	return sent < 0 ? -EAGAIN : sent;
}

/* The outcome of connecting, or the next address. */
static unsigned connecting_event(struct socket_link *link)
{
	int old_fd = link->fd;
	int error = 0, ret;
	socklen_t bytes = sizeof(error);

	getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
	if (!error) {
		link->state = OPEN;
		ret = watch(link, EPOLL_CTL_MOD);
		if (!ret)
			return RK_LINK_OPEN;
		error = -ret;
	} else if (!next_address(link)) {
		close(old_fd);
		return 0;
	}
	link->fd = old_fd;
	link->state = FAILED;
	broken(link, error);
	return RK_LINK_CLOSED;
}

static unsigned link_event(struct socket_link *link, uint32_t events)
{
	unsigned result = 0;

	if (link->state == CONNECTING)
		return connecting_event(link);
	if (link->state == FAILED)
		return RK_LINK_CLOSED;
	if (events & EPOLLIN)
		result |= RK_LINK_READABLE;
	if (events & (EPOLLHUP | EPOLLERR))
		result |= RK_LINK_READABLE | RK_LINK_CLOSED;
	if (events & EPOLLOUT && link->wants_write) {
		link->wants_write = false;
		if (watch(link, EPOLL_CTL_MOD))
			return RK_LINK_CLOSED;
		result |= RK_LINK_WRITABLE;
	}
	return result;
}

static int epoll_wait_us(struct socket_context *context, int max,
			 int64_t timeout_us)
{
	uint64_t start_ns;
	int found;

	if (context->spin_ns && timeout_us) {
		start_ns = rk_now_ns();
		do {
			found = epoll_wait(context->epoll_fd, context->events,
					   max, 0);
			if (found)
				return found < 0 ? -errno : found;
		} while (rk_now_ns() - start_ns < context->spin_ns);
	}
	if (timeout_us > 0)
		timeout_us = rk_min((timeout_us + 999) / 1000,
				    (int64_t)INT32_MAX);
	found = epoll_wait(context->epoll_fd, context->events, max,
			   (int)timeout_us);
	return found < 0 ? -errno : found;
}

static int socket_wait(struct rk_link_context *base,
		       struct rk_link_ready *ready, unsigned max,
		       int64_t timeout_us)
{
	struct socket_context *context = (struct socket_context *)base;
	int found, filled = 0;

	found = epoll_wait_us(context, (int)rk_min(max, (unsigned)EVENTS_MAX),
			      timeout_us);
	for (int i = 0; i < found; i++) {
		struct socket_link *link = context->events[i].data.ptr;
		unsigned events = link_event(link, context->events[i].events);

		if (events)
			ready[filled++] =
				(struct rk_link_ready){ &link->base, events };
	}
	return found < 0 ? found : filled;
}

static const char *socket_device(const struct rk_link_context *context)
{
	return NULL;
}

static void socket_messages(const struct rk_link_context *base, uint64_t *sent,
			    uint64_t *received)
{
	const struct socket_context *context =
		(const struct socket_context *)base;

	*sent = context->sends;
	*received = context->receives;
}

const struct rk_transport rk_transport_tcp = {
	.scheme = "tcp",
	.open = tcp_open,
	.close = socket_close,
	.connect = tcp_connect,
	.disconnect = socket_disconnect,
	.read = socket_read,
	.writev = socket_writev,
	.wait = socket_wait,
	.device = socket_device,
	.messages = socket_messages,
};

const struct rk_transport rk_transport_unix = {
	.scheme = "unix",
	.open = unix_open,
	.close = socket_close,
	.connect = unix_connect,
	.disconnect = socket_disconnect,
	.read = socket_read,
	.writev = socket_writev,
	.wait = socket_wait,
	.device = socket_device,
	.messages = socket_messages,
};
