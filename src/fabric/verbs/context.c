/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context on a device: one protection domain, one completion channel, one
 * event channel, one descriptor over both.
 *
 * process() looks at the completion queues each time, which is no system call;
 * at the event channel, which is one, after a sleep, while a connection comes
 * or goes, and else now and then.
 *
 * Thread: the context's owner.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/atomic.h"
#include "base/log.h"
#include "fabric/verbs/internal.h"

enum {
	COMPLETION_ENTRIES = 65536,
	PROCESS_MAX = 1024,  /* events of one call without a budget */
	CM_EVENTS_MAX = 64,  /* of one call */
	CM_EVERY_CALLS = 64, /* looks at the event channel, when busy */
	CM_EVERY_IDLE = 512, /* and when nothing comes */
	CM_EVERY_UNSETTLED = 8, /* the same, while connections are made */
	TAKE_EVERY_ARMS = 16,
};

static const struct rk_fabric_ops fabric_ops;

/* ---- open, close ------------------------------------------------------- */

int fabric_set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

static int watch(struct fabric_context *context, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };
	int ret = fabric_set_nonblocking(fd);

	if (!ret && epoll_ctl(context->epoll_fd, EPOLL_CTL_ADD, fd, &event))
		ret = -errno;
	return ret;
}

static int pick_vector(const struct fabric_context *context, int wanted)
{
	static unsigned next;
	int count = rk_max(context->verbs->num_comp_vectors, 1);

	if (wanted < 0)
		return (int)(__atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) %
			     (unsigned)count);
	return wanted < count ? wanted : -1;
}

static int open_channels(struct fabric_context *context)
{
	const struct rk_verbs_table *table = context->table;
	int ret;

	context->channel = table->create_comp_channel(context->verbs);
	if (!context->channel)
		return -errno;
	context->events = table->cm_create_event_channel();
	if (!context->events) {
		ret = -errno;
		goto err_channel;
	}
	context->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (context->epoll_fd < 0) {
		ret = -errno;
		goto err_events;
	}
	ret = watch(context, context->channel->fd);
	if (!ret)
		ret = watch(context, context->events->fd);
	if (ret)
		goto err_epoll;
	return 0;

err_epoll:
	close(context->epoll_fd);
err_events:
	table->cm_destroy_event_channel(context->events);
err_channel:
	table->destroy_comp_channel(context->channel);
	return ret;
}

static void close_channels(struct fabric_context *context)
{
	close(context->epoll_fd);
	context->table->cm_destroy_event_channel(context->events);
	context->table->destroy_comp_channel(context->channel);
}

static struct fabric_context *
context_new(const struct fabric_choice *choice,
	    const struct rk_context_params *params)
{
	struct fabric_context *context = rk_zalloc(sizeof(*context));

	if (!context)
		return NULL;
	rk_context_base_init(&context->base, &fabric_ops);
	context->choice = *choice;
	context->table = choice->table;
	context->verbs = choice->verbs;
	context->cap_bytes = params->memory_cap_bytes;
	rk_list_init(&context->conns);
	rk_list_init(&context->listeners);
	rk_list_init(&context->closing);
	rk_list_init(&context->graves);
	fabric_memory_init(context);
	return context;
}

static int open_objects(struct fabric_context *context,
			const struct rk_context_params *params)
{
	const struct rk_verbs_table *table = context->table;
	unsigned entries = params->completion_entries;
	int ret;

	context->completion_vector =
		pick_vector(context, params->completion_vector);
	if (context->completion_vector < 0)
		return -EINVAL;
	ret = -table->query_device(context->verbs, &context->attr);
	if (ret)
		return ret;
	context->pd = table->alloc_pd(context->verbs);
	if (!context->pd)
		return -errno;
	ret = open_channels(context);
	if (ret)
		goto err_pd;
	ret = fabric_cq_open(context, entries ? entries : COMPLETION_ENTRIES);
	if (ret)
		goto err_channels;
	return 0;

err_channels:
	close_channels(context);
err_pd:
	table->dealloc_pd(context->pd);
	return ret;
}

int fabric_context_open(struct rk_context **out,
			const struct rk_context_params *params,
			const struct fabric_choice *choice)
{
	static const struct rk_context_params defaults = {
		.completion_vector = -1,
	};
	struct fabric_context *context;
	int ret = -ENOMEM;

	*out = NULL;
	if (!params)
		params = &defaults;
	context = context_new(choice, params);
	if (context)
		ret = open_objects(context, params);
	if (ret) {
		rk_log(RK_LOG_ERROR, "device %s cannot be used: %s",
		       choice->name, strerror(-ret));
		rk_free(context);
		return ret;
	}
	*out = &context->base;
	return 0;
}

int rk_context_open(struct rk_context **out,
		    const struct rk_context_params *params)
{
	struct fabric_choice choice;
	int ret;

	*out = NULL;
	ret = fabric_choose(params, &choice);
	if (ret)
		return ret;
	return fabric_context_open(out, params, &choice);
}

/* Queue pairs before completion queues before channels: in any other order the
 * device answers EBUSY and keeps them. */
static void context_close(struct rk_context *base)
{
	struct fabric_context *context = fabric_context_of(base);
	struct rk_list *pos, *tmp;

	rk_list_for_each_safe (pos, tmp, &context->listeners)
		fabric_listen_close(
			&rk_list_entry(pos, struct fabric_listener, node)
				 ->base);
	rk_list_for_each_safe (pos, tmp, &context->closing)
		fabric_conn_destroy(
			&rk_list_entry(pos, struct fabric_conn, node)->base);
	rk_list_for_each_safe (pos, tmp, &context->conns)
		fabric_conn_destroy(
			&rk_list_entry(pos, struct fabric_conn, node)->base);
	fabric_cq_sweep_graves(context, true);
	fabric_cq_close_all(context);
	close_channels(context);
	fabric_memory_close(context);
	context->table->dealloc_pd(context->pd);
	rk_free(context);
}

/* ---- process, arm ------------------------------------------------------ */

/* What ended the sleep: most often a completion.  If there is something of the
 * connection manager too, the descriptor stays readable. */
static void wake(struct fabric_context *context)
{
	context->armed = false;
	if (!fabric_cq_take_events(context))
		context->cm_due = true;
}

static bool cm_is_due(struct fabric_context *context, unsigned found)
{
	if (context->cm_due)
		return true;
	if (found) {
		context->idle = 0;
		return ++context->calls % CM_EVERY_CALLS == 0;
	}
	return ++context->idle % (context->unsettled ? CM_EVERY_UNSETTLED :
						       CM_EVERY_IDLE) == 0;
}

static unsigned context_process(struct rk_context *base, unsigned budget)
{
	struct fabric_context *context = fabric_context_of(base);
	unsigned limit = budget ? budget : PROCESS_MAX;
	unsigned count;
	bool look_around;

	if (context->processing)
		return 0;
	context->processing = true;
	if (context->armed)
		wake(context);
	count = fabric_cq_process(context, limit);
	look_around = cm_is_due(context, count);
	if (look_around && count < limit)
		count += fabric_cm_process(context,
					   rk_min(limit - count,
						  (unsigned)CM_EVENTS_MAX));
	if (rk_unlikely(!rk_list_empty(&context->closing)))
		count += fabric_conn_tell_closed(context);
	if (!count || look_around)
		count += rk_context_run_timers(base);
	if (rk_unlikely(!rk_list_empty(&context->closing)))
		count += fabric_conn_tell_closed(context);
	if (rk_unlikely(!rk_list_empty(&context->graves)))
		fabric_cq_sweep_graves(context, false);
	context->processing = false;
	return count;
}

/* Who is told not to sleep leaves the event that arming may have made for
 * later; not for ever, since the device keeps them all. */
static int context_arm(struct rk_context *base)
{
	struct fabric_context *context = fabric_context_of(base);
	int ret = 1;

	if (rk_list_empty(&context->closing) && !context->cm_due)
		ret = fabric_cq_arm(context);
	if (!ret || ++context->arms % TAKE_EVERY_ARMS == 0)
		context->armed = true;
	return ret;
}

/* ---- the rest ---------------------------------------------------------- */

static int context_fd(const struct rk_context *base)
{
	return fabric_context_of(base)->epoll_fd;
}

static uint64_t context_now_ns(const struct rk_context *base)
{
	return rk_now_ns();
}

static void context_info(const struct rk_context *base,
			 struct rk_context_info *out)
{
	const struct fabric_context *context = fabric_context_of(base);

	*out = (struct rk_context_info){
		.device = context->choice.name,
		.reason = context->choice.reason,
		.software = context->choice.software,
		.connections = context->connections,
		.bytes_registered = context->bytes_registered,
		.receiver_not_ready = context->receiver_not_ready,
		.errors = context->errors,
	};
}

static unsigned conn_inline_bytes(const struct rk_conn *base)
{
	return fabric_conn_of(base)->inline_bytes;
}

static unsigned conn_pieces_max(const struct rk_conn *base)
{
	return fabric_conn_of(base)->pieces_max;
}

static int conn_peer_rnr_retry(const struct rk_conn *base)
{
	return fabric_conn_of(base)->peer_rnr_retry;
}

static int conn_address(const struct rk_conn *base, bool remote,
			struct sockaddr_storage *out)
{
	const struct rdma_addr *addr = &fabric_conn_of(base)->id->route.addr;

	memcpy(out, remote ? &addr->dst_storage : &addr->src_storage,
	       sizeof(*out));
	return out->ss_family ? 0 : -ENOTCONN;
}

static const struct rk_fabric_ops fabric_ops = {
	.close = context_close,
	.fd = context_fd,
	.process = context_process,
	.arm = context_arm,
	.now_ns = context_now_ns,
	.info = context_info,
	.listen = fabric_listen_open,
	.listener_port = fabric_listen_port,
	.unlisten = fabric_listen_close,
	.connect = fabric_conn_connect,
	.accept = fabric_conn_accept,
	.reject = fabric_conn_reject,
	.disconnect = fabric_conn_disconnect,
	.destroy = fabric_conn_destroy,
	.send = fabric_queue_send,
	.write = fabric_queue_write,
	.mem_alloc = fabric_memory_alloc,
	.mem_free = fabric_memory_free,
	.inline_bytes = conn_inline_bytes,
	.pieces_max = conn_pieces_max,
	.peer_rnr_retry = conn_peer_rnr_retry,
	.address = conn_address,
};
