/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stand-in sockets.  They are not polled, so they are moved behind the
 * descriptors that the server's loop can take: those stay for clients over
 * TCP.  Owner only.
 */
#include "socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LOOP_RESERVE = 128 + 32 }; /* the loop's size is maxclients + 128 */

static int first_fd;

void rk_socket_prepare(struct rk_server_context *ctx)
{
	struct rlimit limit;
	char text[32];
	long most;

	if (rk_api_config(ctx, "maxclients", text, sizeof(text)))
		return;
	most = strtol(text, NULL, 10);
	if (most <= 0 || most > 10000000 ||
	    getrlimit(RLIMIT_NOFILE, &limit))
		return;
	if (limit.rlim_cur < 2 * (rlim_t)most + 2 * LOOP_RESERVE) {
		limit.rlim_cur = rk_min(limit.rlim_max,
					2 * (rlim_t)most + 2 * LOOP_RESERVE);
		if (setrlimit(RLIMIT_NOFILE, &limit))
			return;
	}
	first_fd = (int)most + LOOP_RESERVE;
}

static int port_of(const struct sockaddr_storage *addr)
{
	if (addr->ss_family == AF_INET)
		return ntohs(((const struct sockaddr_in *)addr)->sin_port);
	if (addr->ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)addr)->sin6_port);
	return 0;
}

static void set_port(struct sockaddr_storage *addr, int port)
{
	if (addr->ss_family == AF_INET)
		((struct sockaddr_in *)addr)->sin_port = htons(port);
	else if (addr->ss_family == AF_INET6)
		((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
}

static void ip_of(const struct sockaddr_storage *addr, char *text, size_t bytes)
{
	const void *ip = NULL;

	if (addr->ss_family == AF_INET)
		ip = &((const struct sockaddr_in *)addr)->sin_addr;
	else if (addr->ss_family == AF_INET6)
		ip = &((const struct sockaddr_in6 *)addr)->sin6_addr;
	if (!ip || !inet_ntop(addr->ss_family, ip, text, (socklen_t)bytes))
		snprintf(text, bytes, "?");
}

void rk_socket_describe(struct rk_link *link)
{
	struct sockaddr_storage addr;
	int remote;

	for (remote = 0; remote < 2; remote++) {
		memset(&addr, 0, sizeof(addr));
		rk_stream_address(link->stream, remote, &addr);
		ip_of(&addr, link->ip[remote], sizeof(link->ip[remote]));
		link->port[remote] = port_of(&addr);
	}
}

/* Behind the server's range if there is room, else where it is. */
static int move_up(int fd)
{
	int higher;

	if (!first_fd)
		return fd;
	higher = fcntl(fd, F_DUPFD_CLOEXEC, first_fd);
	if (higher < 0)
		return fd;
	close(fd);
	return higher;
}

int rk_socket_stand_in(struct rk_link *link)
{
	struct sockaddr_storage local, remote;
	const int on = 1, least = 1;
	socklen_t bytes;
	int fd;

	if (rk_stream_address(link->stream, false, &local) ||
	    rk_stream_address(link->stream, true, &remote))
		local.ss_family = remote.ss_family = AF_INET;
	bytes = remote.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
					       sizeof(struct sockaddr_in);
	fd = socket(remote.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
		    0);
	if (fd < 0)
		return -1;
	/* Many share the listener's port, and nobody reads them: let what a
	 * stranger sends there be dropped. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least));
	if (bind(fd, (struct sockaddr *)&local, bytes)) {
		set_port(&local, 0);
		if (bind(fd, (struct sockaddr *)&local, bytes))
			goto out; /* not an address of the IP stack */
	}
	if (!link->port[1])
		set_port(&remote, (int)(link->id % 65535) + 1);
	if (connect(fd, (struct sockaddr *)&remote, bytes))
		rk_log(RK_LOG_DEBUG, "no stand-in address for a client: %s",
		       strerror(errno));
out:
	return move_up(fd);
}
