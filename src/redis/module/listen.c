/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The listeners.  They are ours, not entries of the server's own list: so the
 * module can be loaded while the server runs.  Owner only.
 */
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "link.h"

static struct {
	struct rk_stream_listener *of[RK_BIND_MAX];
	unsigned count;
	char text[RK_LISTEN_TEXT_BYTES];
} listeners;

static void describe(const struct sockaddr_storage *addr, uint16_t port)
{
	size_t used = strlen(listeners.text);
	char ip[INET6_ADDRSTRLEN] = "?";
	bool v6 = addr->ss_family == AF_INET6;

	inet_ntop(addr->ss_family,
		  v6 ? (const void *)&((const struct sockaddr_in6 *)addr)
				  ->sin6_addr :
		       (const void *)&((const struct sockaddr_in *)addr)
				  ->sin_addr,
		  ip, sizeof(ip));
	snprintf(listeners.text + used, sizeof(listeners.text) - used,
		 "%s%s%s%s:%u", used ? " " : "", v6 ? "[" : "", ip,
		 v6 ? "]" : "", port);
}

static int listen_on(const struct rk_bind *bind)
{
	struct rk_stream_params params = {
		.window_bytes = rk_core.settings.rx_bytes,
	};
	struct sockaddr_storage addr = bind->addr;
	struct rk_stream_listener *listener;
	int ret;

	if (addr.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&addr)->sin6_port =
			htons(rk_core.settings.port);
	else
		((struct sockaddr_in *)&addr)->sin_port =
			htons(rk_core.settings.port);
	ret = rk_stream_listen(rk_core.device, (struct sockaddr *)&addr,
			       RK_LISTEN_BACKLOG, &params, rk_link_accepted,
			       NULL, &listener);
	if (ret)
		return ret;
	listeners.of[listeners.count++] = listener;
	describe(&addr, rk_stream_listener_port(listener));
	return 0;
}

int rk_listen_start(char *why, size_t why_bytes)
{
	const struct rk_settings *settings = &rk_core.settings;
	unsigned i;
	int ret = -EADDRNOTAVAIL;

	memset(&listeners, 0, sizeof(listeners));
	for (i = 0; i < settings->bind_count; i++) {
		const struct rk_bind *bind = &settings->bind[i];

		ret = listen_on(bind);
		if (!ret)
			continue;
		if (bind->optional) {
			rk_log(RK_LOG_DEBUG, "not listening on %s: %s",
			       bind->text, strerror(-ret));
			continue;
		}
		snprintf(why, why_bytes,
			 "cannot listen on %s port %u over RDMA: %s",
			 bind->text, settings->port, strerror(-ret));
		rk_listen_stop();
		return ret;
	}
	if (listeners.count)
		return 0;
	snprintf(why, why_bytes, "cannot listen on any of the addresses over "
				 "RDMA: %s",
		 strerror(-ret));
	return ret;
}

void rk_listen_stop(void)
{
	while (listeners.count)
		rk_stream_listener_close(listeners.of[--listeners.count]);
}

const char *rk_listen_text(void)
{
	return listeners.text;
}
