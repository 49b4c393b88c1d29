/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channels: what a program sleeps on.  The descriptor is an epoll over the
 * wire, which is readable when a peer woke us, and over an eventfd, which is
 * readable while an event is queued.  So a sleeping program is woken without
 * any thread of ours; the call that it then makes to fetch the event pumps.
 *
 * Because of that the descriptor may be readable although no event follows (a
 * peer woke us for something else): spurious, as verbs allows, never lost.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "softverbs/objects.h"

enum { PUMPS_MAX = 8 }; /* before a waiting thread lets others have the lock */

int soft_channel_open(struct soft_device *device, struct soft_channel *channel)
{
	struct epoll_event readable = { .events = EPOLLIN };
	int err;

	channel->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (channel->event_fd < 0)
		return -errno;
	channel->fd = epoll_create1(EPOLL_CLOEXEC);
	if (channel->fd < 0) {
		err = -errno;
		goto err_event_fd;
	}
	if (epoll_ctl(channel->fd, EPOLL_CTL_ADD, channel->event_fd,
		      &readable) ||
	    epoll_ctl(channel->fd, EPOLL_CTL_ADD, wire_fd(device->wire),
		      &readable)) {
		err = -errno;
		goto err_fd;
	}
	return 0;

err_fd:
	close(channel->fd);
err_event_fd:
	close(channel->event_fd);
	return err;
}

void soft_channel_close(struct soft_device *device,
			struct soft_channel *channel)
{
	close(channel->fd);
	close(channel->event_fd);
}

void soft_channel_signal(struct soft_channel *channel)
{
	uint64_t one = 1;

	/* EAGAIN: the counter is full, and so readable */
	if (write(channel->event_fd, &one, sizeof(one)) < 0)
		return;
}

void soft_channel_drain(struct soft_channel *channel)
{
	uint64_t count;

	if (read(channel->event_fd, &count, sizeof(count)) < 0)
		return; /* was empty */
}

/*
 * A program that polls the descriptor itself, with no completion queue armed,
 * is woken by messages and by the end of connections without a promise.
 */
static int leave(int error)
{
	engine_release_promise();
	if (!error)
		return 0;
	errno = error;
	return -1;
}

/* Pump until nothing is left or something came.  True: it came. */
static bool pump_for(bool (*nothing_yet)(void *arg), void *arg, bool *calm)
{
	*calm = false;
	for (int i = 0; i < PUMPS_MAX && !*calm; i++) {
		engine_pump(true);
		if (!nothing_yet(arg))
			return true;
		*calm = !engine_promise();
	}
	return false;
}

int soft_channel_wait(struct soft_device *device, struct soft_channel *channel,
		      bool (*nothing_yet)(void *arg), void *arg)
{
	struct pollfd waited = { .fd = channel->fd, .events = POLLIN };
	bool calm;
	int got;

	for (;;) {
		if (pump_for(nothing_yet, arg, &calm))
			return leave(0);
		/* only a thread that holds the lock signals: nothing is lost */
		soft_channel_drain(channel);
		if (!calm)
			soft_channel_signal(channel); /* come again soon */
		if (fcntl(channel->fd, F_GETFL) & O_NONBLOCK)
			return leave(EAGAIN);
		soft_engine.sleepers++;
		engine_unlock();
		got = poll(&waited, 1, -1);
		pthread_mutex_lock(&device->lock);
		soft_engine.sleepers--;
		if (got < 0)
			return leave(EINTR);
	}
}

/* ---- completion channels ---------------------------------------------- */

static struct soft_comp_channel *channel_of(struct ibv_comp_channel *channel)
{
	return rk_container_of(channel, struct soft_comp_channel, ibv);
}

struct ibv_comp_channel *channel_create(struct ibv_context *context)
{
	struct soft_comp_channel *channel = rk_zalloc(sizeof(*channel));
	int err = -ENODEV;

	if (!channel) {
		errno = ENOMEM;
		return NULL;
	}
	rk_list_init(&channel->ready);
	channel->ibv.context = context;
	if (engine_lock()) {
		err = soft_channel_open(&soft_engine.base, &channel->channel);
		if (!err)
			context_of(context)->users++;
		engine_unlock();
	}
	if (err) {
		rk_free(channel);
		errno = -err;
		return NULL;
	}
	channel->ibv.fd = channel->channel.fd;
	return &channel->ibv;
}

/* EBUSY while a completion queue reports to it. */
int channel_destroy(struct ibv_comp_channel *ibv)
{
	struct soft_comp_channel *channel = channel_of(ibv);

	if (!engine_lock())
		return ENODEV;
	if (ibv->refcnt) {
		engine_unlock();
		return EBUSY;
	}
	soft_channel_close(&soft_engine.base, &channel->channel);
	context_of(ibv->context)->users--;
	engine_unlock();
	rk_free(channel);
	return 0;
}

static bool no_cq_event(void *arg)
{
	struct soft_comp_channel *channel = arg;

	return rk_list_empty(&channel->ready);
}

/* -1 and EAGAIN where the program made fd non-blocking; EINTR. */
int channel_get_event(struct ibv_comp_channel *ibv, struct ibv_cq **out,
		      void **cq_context)
{
	struct soft_comp_channel *channel = channel_of(ibv);
	struct soft_cq *cq;

	if (!engine_lock()) {
		errno = ENODEV;
		return -1;
	}
	if (rk_list_empty(&channel->ready) &&
	    soft_channel_wait(&soft_engine.base, &channel->channel,
			      no_cq_event, channel)) {
		engine_unlock();
		return -1;
	}
	cq = rk_list_first(&channel->ready, struct soft_cq, ready);
	rk_list_remove(&cq->ready);
	if (--cq->events_waiting)
		rk_list_add_tail(&channel->ready, &cq->ready);
	if (rk_list_empty(&channel->ready))
		soft_channel_drain(&channel->channel);
	cq->events_taken++;
	*out = &cq->ibv;
	*cq_context = cq->ibv.cq_context;
	engine_unlock();
	return 0;
}
