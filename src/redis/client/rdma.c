/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rdma://: one device context, a stream per link.
 *
 * The context calls back when something happens on a stream; the link then
 * stands in the list of those that are due, once.  wait() hands the due ones
 * out, all of a turn together, and remembers which it handed out: those that
 * were not read to the end are due again next time.
 *
 * An idle wait() spins for a while before it arms the descriptor and sleeps,
 * since a wake-up costs several round trips.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "rdmakit/stream.h"
#include "redis/client/resolve.h"
#include "redis/client/transport.h"

enum {
	SPIN_US = 50,
	TURNS_PER_YIELD = 16, /* some 2 us */
	GOODBYE_MS = 200, /* for the last words of all links at the end */
};

struct rdma_context {
	struct rk_link_context base;
	struct rk_context *device;
	uint64_t spin_ns;
	uint32_t window_bytes;
	struct rk_list due;    /* links with something to tell */
	struct rk_list handed; /* links of the last wait() */
	struct rk_context_info info;
};

/*
 *   CONNECTING --writable--> OPEN --closed--> ENDED
 *     |    ^                                   ^
 *   closed |next address                       |
 *     +----+-------- no address is left -------+
 */
enum rdma_state { CONNECTING, OPEN, ENDED };

struct rdma_link {
	struct rk_link base;
	struct rdma_context *context;
	struct rk_stream *stream;
	enum rdma_state state;
	struct rk_list node; /* due, handed or in none */
	unsigned events;     /* of the stream, not yet handed out */
	bool unread;	     /* not read to the end */
	bool wants_write;
	int timeout_ms;
	struct rk_addresses addresses;
};

/* The address that decides on the device, if nothing else does: the first that
 * will be tried.  A name that is not known is connect()'s to report. */
static const struct sockaddr *
first_address(const struct rk_link_options *options,
	      struct rk_addresses *addresses)
{
	char error[160];

	if (!options->uri ||
	    (options->device && strcmp(options->device, "auto")) ||
	    rk_resolve(addresses, options->uri, error, sizeof(error)))
		return NULL;
	return (const struct sockaddr *)&addresses->list[0];
}

static int rdma_open(struct rk_link_context **out,
		     const struct rk_link_options *options, char *error,
		     size_t error_bytes)
{
	struct rk_addresses addresses;
	const struct rk_context_params params = {
		.device = options->device,
		.completion_vector = -1,
		.address = first_address(options, &addresses),
		.address_is_remote = true,
	};
	struct rdma_context *context = rk_zalloc(sizeof(*context));
	int spin_us = options->spin_us < 0 ? SPIN_US : options->spin_us;
	int ret;

	*out = NULL;
	if (!context) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	context->base.transport = &rk_transport_rdma;
	context->window_bytes = options->window_bytes;
	/* With one processor whoever spins keeps the peer from running. */
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		context->spin_ns = (uint64_t)spin_us * RK_NS_PER_US;
	rk_list_init(&context->due);
	rk_list_init(&context->handed);
	ret = rk_context_open(&context->device, &params);
	if (ret) {
		snprintf(error, error_bytes, "cannot open RDMA device %s: %s",
			 options->device ? options->device : "auto",
			 strerror(-ret));
		rk_free(context);
		return ret;
	}
	rk_context_info_get(context->device, &context->info);
	*out = &context->base;
	return 0;
}

/* Sleep until the device has something, at most until end_ns. */
static int sleep_until(struct rdma_context *context, uint64_t end_ns)
{
	struct pollfd fd = { .fd = rk_context_fd(context->device),
			     .events = POLLIN };
	uint64_t now_ns, wake_ns, pause_ns;
	int timeout_ms = -1;

	if (rk_context_arm(context->device))
		return 0;
	wake_ns = rk_min(end_ns, rk_context_deadline_ns(context->device));
	if (wake_ns != RK_NEVER) {
		now_ns = rk_now_ns();
		pause_ns = wake_ns > now_ns ? wake_ns - now_ns : 0;
		timeout_ms = (int)rk_min((pause_ns + RK_NS_PER_MS - 1) /
						 RK_NS_PER_MS,
					 (uint64_t)INT32_MAX);
	}
	return poll(&fd, 1, timeout_ms) < 0 ? -errno : 0;
}

/* Streams that were closed still have last words to deliver. */
static void say_goodbye(struct rdma_context *context)
{
	uint64_t end_ns = rk_now_ns() + GOODBYE_MS * RK_NS_PER_MS;
	struct rk_context_info info;

	for (;;) {
		while (rk_context_process(context->device, 0))
			;
		rk_context_info_get(context->device, &info);
		if (!info.connections || rk_now_ns() >= end_ns)
			return;
		if (sleep_until(context, end_ns))
			return;
	}
}

static void rdma_close(struct rk_link_context *base)
{
	struct rdma_context *context = (struct rdma_context *)base;

	say_goodbye(context);
	rk_context_close(context->device);
	rk_free(context);
}

static void on_event(struct rk_stream *stream, void *user, unsigned events)
{
	struct rdma_link *link = user;

	link->events |= events;
	rk_list_remove(&link->node);
	rk_list_add_tail(&link->context->due, &link->node);
}

/* Try addresses until one does not fail at once. */
static int next_address(struct rdma_link *link)
{
	const struct rk_stream_params params = {
		.window_bytes = link->context->window_bytes,
	};
	struct rk_addresses *addresses = &link->addresses;
	int ret = -ECONNREFUSED;

	while (addresses->next < addresses->count) {
		const struct sockaddr_storage *addr =
			&addresses->list[addresses->next++];

		ret = rk_stream_connect(link->context->device,
					(const struct sockaddr *)addr, NULL,
					link->timeout_ms, &params, on_event,
					link, &link->stream);
		if (!ret)
			return 0;
	}
	return ret;
}

static int rdma_connect(struct rk_link_context *base, const struct rk_uri *uri,
			int timeout_ms, void *user, struct rk_link **out,
			char *error, size_t error_bytes)
{
	struct rdma_link *link = rk_zalloc(sizeof(*link));
	int ret;

	*out = NULL;
	if (!link) {
		snprintf(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	link->base.user = user;
	link->context = (struct rdma_context *)base;
	link->timeout_ms = timeout_ms;
	rk_list_init(&link->node);
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

static void rdma_disconnect(struct rk_link *base)
{
	struct rdma_link *link = (struct rdma_link *)base;

	rk_list_remove(&link->node);
	rk_stream_close(link->stream);
	rk_free(link);
}

static void take_error(struct rdma_link *link)
{
	const char *text = rk_stream_error_text(link->stream);

	snprintf(link->base.error, sizeof(link->base.error), "%s",
		 text && *text ? text : "closed by the server");
}

static ssize_t rdma_read(struct rk_link *base, void *data, size_t bytes)
{
	struct rdma_link *link = (struct rdma_link *)base;
	ssize_t got;

	if (link->state != OPEN && !link->stream)
		return -ENOTCONN;
	got = rk_stream_read(link->stream, data, bytes);
	if (got < (ssize_t)bytes)
		link->unread = false;
	if (got < 0 && got != -EAGAIN)
		take_error(link);
	return got;
}

static ssize_t rdma_writev(struct rk_link *base, const struct iovec *iov,
			   int count)
{
	struct rdma_link *link = (struct rdma_link *)base;
	size_t total = 0;
	ssize_t sent;

	if (link->state != OPEN) {
		take_error(link);
		return -EPIPE;
	}
	for (int i = 0; i < count; i++)
		total += iov[i].iov_len;
	sent = rk_stream_writev(link->stream, iov, count, 0);
	if (sent < 0 && sent != -EAGAIN)
		take_error(link);
	if (sent < (ssize_t)total)
		link->wants_write = true;
	return sent;
}

/* The connection never opened: another address, or the end. */
static unsigned connecting_failed(struct rdma_link *link)
{
	struct rk_stream *failed = link->stream;

	take_error(link);
	link->stream = NULL;
	if (!next_address(link)) {
		rk_stream_close(failed);
		return 0;
	}
	link->stream = failed;
	link->state = ENDED;
	return RK_LINK_CLOSED;
}

/* What a due link tells its user. */
static unsigned take_events(struct rdma_link *link)
{
	unsigned events = link->events;
	unsigned result = 0;

	link->events = 0;
	if (link->state == CONNECTING) {
		if (events & RK_STREAM_CLOSED)
			return connecting_failed(link);
		if (!(events & RK_STREAM_WRITABLE))
			return 0;
		link->state = OPEN;
		result |= RK_LINK_OPEN;
	}
	if (link->state == ENDED)
		return RK_LINK_CLOSED | (link->unread ? RK_LINK_READABLE : 0);
	if (events & (RK_STREAM_READABLE | RK_STREAM_CLOSED))
		link->unread = true;
	if (events & RK_STREAM_CLOSED) {
		link->state = ENDED;
		take_error(link);
		return result | RK_LINK_READABLE | RK_LINK_CLOSED;
	}
	if (link->unread)
		result |= RK_LINK_READABLE;
	if (events & RK_STREAM_WRITABLE && link->wants_write) {
		link->wants_write = false;
		result |= RK_LINK_WRITABLE;
	}
	return result;
}

/* Those of the last turn that still have something are due again. */
static void review_handed(struct rdma_context *context)
{
	struct rk_list *pos, *tmp;

	rk_list_for_each_safe(pos, tmp, &context->handed) {
		struct rdma_link *link =
			rk_list_entry(pos, struct rdma_link, node);

		rk_list_remove(pos);
		if (link->unread || link->state == ENDED)
			rk_list_add_tail(&context->due, pos);
	}
}

static int hand_out(struct rdma_context *context, struct rk_link_ready *ready,
		    unsigned max)
{
	unsigned filled = 0;

	while (filled < max && !rk_list_empty(&context->due)) {
		struct rdma_link *link = rk_list_first(
			&context->due, struct rdma_link, node);
		unsigned events = take_events(link);

		rk_list_remove(&link->node);
		if (!events)
			continue;
		rk_list_add_tail(&context->handed, &link->node);
		ready[filled++] =
			(struct rk_link_ready){ &link->base, events };
	}
	return (int)filled;
}

/*
 * Until something is due, the spin budget is used up, or it is end_ns.  The
 * server may be waiting for this very processor, so it is offered now and then.
 */
static void spin(struct rdma_context *context, uint64_t end_ns)
{
	uint64_t now_ns, spin_end_ns = 0;

	for (unsigned turn = 1;; turn++) {
		rk_context_process(context->device, 0);
		if (!rk_list_empty(&context->due) || !context->spin_ns)
			return;
		now_ns = rk_now_ns();
		if (!spin_end_ns)
			spin_end_ns = rk_min(now_ns + context->spin_ns,
					     end_ns);
		if (now_ns >= spin_end_ns)
			return;
		if (turn % TURNS_PER_YIELD)
			rk_pause();
		else
			sched_yield();
	}
}

static int rdma_wait(struct rk_link_context *base, struct rk_link_ready *ready,
		     unsigned max, int64_t timeout_us)
{
	struct rdma_context *context = (struct rdma_context *)base;
	uint64_t end_ns = RK_NEVER;
	int filled, ret;

	review_handed(context);
	/* What arrived meanwhile belongs to the same turn. */
	rk_context_process(context->device, 0);
	filled = hand_out(context, ready, max);
	if (filled || !timeout_us)
		return filled;
	if (timeout_us > 0)
		end_ns = rk_now_ns() + (uint64_t)timeout_us * RK_NS_PER_US;
	for (;;) {
		spin(context, end_ns);
		filled = hand_out(context, ready, max);
		if (filled || (end_ns != RK_NEVER && rk_now_ns() >= end_ns))
			return filled;
		ret = sleep_until(context, end_ns);
		if (ret)
			return ret;
	}
}

static const char *rdma_device(const struct rk_link_context *base)
{
	return ((const struct rdma_context *)base)->info.device;
}

static void rdma_messages(const struct rk_link_context *base, uint64_t *sent,
			  uint64_t *received)
{
	const struct rdma_context *context = (const struct rdma_context *)base;
	struct rk_stream_stats stats;

	rk_context_stream_stats(context->device, &stats);
	*sent = stats.immediates_sent;
	*received = stats.immediates_received;
}

const struct rk_transport rk_transport_rdma = {
	.scheme = "rdma",
	.open = rdma_open,
	.close = rdma_close,
	.connect = rdma_connect,
	.disconnect = rdma_disconnect,
	.read = rdma_read,
	.writev = rdma_writev,
	.wait = rdma_wait,
	.device = rdma_device,
	.messages = rdma_messages,
};
