/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the connection manager's tests share: both ends in one process, events
 * waited for with a deadline, copied and acknowledged.
 */
#ifndef RK_TESTS_CM_HELP_H
#define RK_TESTS_CM_HELP_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "softverbs/cm_internal.h"

#include "ok.h"

enum { NO_EVENT = -1 };

static int patience_ms = 5000;

/* An event, copied; the original is acknowledged. */
struct seen {
	int type; /* enum rdma_cm_event_type, or NO_EVENT */
	int status;
	struct rdma_cm_id *id, *listen_id;
	struct rdma_conn_param conn;
	uint8_t private_data[256];
};

static const struct rk_verbs_table *v;

RK_UNUSED static struct rdma_event_channel *channel_new(void)
{
	struct rdma_event_channel *channel = v->cm_create_event_channel();

	if (channel)
		fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	return channel;
}

RK_UNUSED static struct seen see_within(struct rdma_event_channel *channel,
					int wait_ms)
{
	uint64_t deadline = rk_now_ns() + (uint64_t)wait_ms * RK_NS_PER_MS;
	struct seen seen = { .type = NO_EVENT };
	struct rdma_cm_event *event;

	while (v->cm_get_event(channel, &event)) {
		struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
		uint64_t now = rk_now_ns();

		if (errno != EAGAIN && errno != EINTR) {
			printf("# get_event: %s\n", strerror(errno));
			return seen;
		}
		if (now >= deadline)
			return seen;
		poll(&fd, 1, (int)((deadline - now) / RK_NS_PER_MS) + 1);
	}
	seen.type = (int)event->event;
	seen.status = event->status;
	seen.id = event->id;
	seen.listen_id = event->listen_id;
	seen.conn = event->param.conn;
	if (seen.conn.private_data_len)
		memcpy(seen.private_data, seen.conn.private_data,
		       seen.conn.private_data_len);
	v->cm_ack_event(event);
	return seen;
}

RK_UNUSED static struct seen see(struct rdma_event_channel *channel)
{
	return see_within(channel, patience_ms);
}

/* The next event is of this type; silent when it is, for use in loops. */
RK_UNUSED static bool got(struct rdma_event_channel *channel,
			  enum rdma_cm_event_type type, struct seen *seen)
{
	*seen = see(channel);
	if (seen->type == (int)type)
		return true;
	printf("# expected %s, got %s (status %d)\n", v->cm_event_str(type),
	       seen->type == NO_EVENT ?
		       "nothing" :
		       v->cm_event_str((enum rdma_cm_event_type)seen->type),
	       seen->status);
	return false;
}

RK_UNUSED static struct sockaddr_in ipv4(const char *text, uint16_t port)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_port = port };

	inet_pton(AF_INET, text, &addr.sin_addr);
	return addr;
}

RK_UNUSED static struct sockaddr_in6 ipv6(const char *text, uint16_t port)
{
	struct sockaddr_in6 addr = { .sin6_family = AF_INET6,
				     .sin6_port = port };

	inet_pton(AF_INET6, text, &addr.sin6_addr);
	return addr;
}

/* A listener at 127.0.0.1 and a port of its own. */
RK_UNUSED static struct rdma_cm_id *
listener_new(struct rdma_event_channel *channel, int backlog)
{
	struct sockaddr_in addr = ipv4("127.0.0.1", 0);
	struct rdma_cm_id *id;

	if (v->cm_create_id(channel, &id, NULL, RDMA_PS_TCP))
		return NULL;
	if (v->cm_bind_addr(id, (struct sockaddr *)&addr) ||
	    v->cm_listen(id, backlog)) {
		v->cm_destroy_id(id);
		return NULL;
	}
	return id;
}

/* An id that only needs to connect; NULL if any step failed. */
RK_UNUSED static struct rdma_cm_id *
resolved_to(struct rdma_event_channel *channel, const void *addr)
{
	struct rdma_cm_id *id;
	struct seen seen;

	if (v->cm_create_id(channel, &id, NULL, RDMA_PS_TCP))
		return NULL;
	if (!v->cm_resolve_addr(id, NULL, (struct sockaddr *)(uintptr_t)addr,
				100) &&
	    got(channel, RDMA_CM_EVENT_ADDR_RESOLVED, &seen) &&
	    !v->cm_resolve_route(id, 100) &&
	    got(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, &seen))
		return id;
	v->cm_destroy_id(id);
	return NULL;
}

RK_UNUSED static struct rdma_cm_id *
resolved(struct rdma_event_channel *channel, struct rdma_cm_id *listener)
{
	struct sockaddr_in addr =
		ipv4("127.0.0.1", v->cm_get_src_port(listener));

	return resolved_to(channel, &addr);
}

/* With queues of its own; 0 or -1. */
RK_UNUSED static int qp_new_deep(struct rdma_cm_id *id, unsigned depth)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = depth, .max_recv_wr = depth,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	return v->cm_create_qp(id, NULL, &attr);
}

RK_UNUSED static int qp_new(struct rdma_cm_id *id)
{
	return qp_new_deep(id, 8);
}

RK_UNUSED static void id_end(struct rdma_cm_id *id)
{
	if (!id)
		return;
	if (id->qp)
		v->cm_destroy_qp(id);
	v->cm_destroy_id(id);
}

struct pair {
	struct rdma_event_channel *passive_channel, *active_channel;
	struct rdma_cm_id *listener, *passive, *active;
};

/* Both ends established, with queue pairs. */
RK_UNUSED static bool pair_connect(struct pair *pair,
				   struct rdma_conn_param *param)
{
	struct seen seen;

	pair->active = resolved(pair->active_channel, pair->listener);
	if (!pair->active || qp_new(pair->active) ||
	    v->cm_connect(pair->active, param) ||
	    !got(pair->passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST, &seen))
		return false;
	pair->passive = seen.id;
	return !qp_new(pair->passive) && !v->cm_accept(pair->passive, param) &&
	       got(pair->active_channel, RDMA_CM_EVENT_ESTABLISHED, &seen) &&
	       got(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED, &seen);
}

RK_UNUSED static bool pair_open(struct pair *pair)
{
	*pair = (struct pair){
		.passive_channel = channel_new(),
		.active_channel = channel_new(),
	};
	if (!pair->passive_channel || !pair->active_channel)
		return false;
	pair->listener = listener_new(pair->passive_channel, 0);
	return pair->listener != NULL;
}

RK_UNUSED static void pair_close(struct pair *pair)
{
	id_end(pair->active);
	id_end(pair->passive);
	id_end(pair->listener);
	v->cm_destroy_event_channel(pair->active_channel);
	v->cm_destroy_event_channel(pair->passive_channel);
}

/* Let everything that is on its way arrive. */
RK_UNUSED static void settle(void)
{
	struct rdma_event_channel *channel = channel_new();
	struct seen seen = see_within(channel, 0);

	for (int i = 0; i < 6 && seen.type == NO_EVENT; i++)
		seen = see_within(channel, 0);
	v->cm_destroy_event_channel(channel);
}

RK_UNUSED static int open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

RK_UNUSED static uint64_t lanes_in_use(void)
{
	struct soft_device *device = soft_enter();
	struct wire_stats stats;

	wire_stats_get(device->wire, &stats);
	soft_unlock(device);
	return stats.lanes;
}

#endif
