/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One process on the wire: its epoll descriptor, the pump that finds what has
 * news, and the promise that lets it sleep.
 *
 * No wake-up is lost: a sleeper stores its sleep number, fences, and looks for
 * dirty bits; a producer stores its dirty bit, fences, and looks for a sleep
 * number.  One of the two sees the other.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "softverbs/wire_internal.h"

int wire_watch(struct wire *wire, int fd, struct wire_source *source,
	       uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	if (epoll_ctl(wire->epoll_fd, EPOLL_CTL_ADD, fd, &event))
		return -errno;
	return 0;
}

static void wire_init_lists(struct wire *wire)
{
	rk_list_init(&wire->awake);
	rk_list_init(&wire->pending);
	rk_list_init(&wire->links);
	rk_list_init(&wire->listeners);
	rk_list_init(&wire->buried_links);
	rk_list_init(&wire->buried_listeners);
	rk_list_init(&wire->timers);
}

int wire_open(struct wire **out, const struct wire_handler *handler,
	      void *user)
{
	struct wire *wire;
	int ret;

	*out = NULL;
	wire = rk_zalloc(sizeof(*wire));
	if (!wire)
		return -ENOMEM;
	wire->handler = handler;
	wire->user = user;
	wire->linger_ns = LINK_LINGER_NS;
	wire->hello_ns = LINK_HELLO_NS;
	wire_init_lists(wire);

	wire->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (wire->epoll_fd < 0) {
		ret = -errno;
		goto err_free;
	}
	wire->timer_fd = timerfd_create(CLOCK_MONOTONIC,
					TFD_CLOEXEC | TFD_NONBLOCK);
	if (wire->timer_fd < 0) {
		ret = -errno;
		goto err_epoll;
	}
	wire->timer_source.ready = wire_timers_ready;
	ret = wire_watch(wire, wire->timer_fd, &wire->timer_source, EPOLLIN);
	if (ret)
		goto err_timer;
	*out = wire;
	return 0;

err_timer:
	close(wire->timer_fd);
err_epoll:
	close(wire->epoll_fd);
err_free:
	rk_free(wire);
	return ret;
}

void wire_close(struct wire *wire)
{
	struct rk_list *pos, *tmp;

	if (!wire || wire->abandoned)
		return;
	assert(!wire->pumping);
	rk_list_for_each_safe(pos, tmp, &wire->listeners)
		wire_unbind(rk_container_of(pos, struct wire_listener, node));
	rk_list_for_each_safe(pos, tmp, &wire->links)
		link_close(rk_list_entry(pos, struct wire_link, node));
	region_release_all(wire);
	key_release_all(wire);
	rk_list_for_each_safe(pos, tmp, &wire->links)
		link_detach(rk_list_entry(pos, struct wire_link, node));
	rk_list_for_each_safe(pos, tmp, &wire->timers)
		rk_list_remove(pos);
	close(wire->timer_fd);
	close(wire->epoll_fd);
	rk_free(wire);
}

/*
 * The child shares open descriptors with its parent but not the maps (they are
 * MADV_DONTFORK): it closes the former and must not unmap addresses that may
 * be something else's by now.  The structs are left as they are, so that every
 * pointer the program holds stays valid.
 */
void wire_abandon(struct wire *wire)
{
	struct rk_list *pos, *tmp;

	if (!wire || wire->abandoned)
		return;
	wire->abandoned = true;
	rk_list_for_each_safe(pos, tmp, &wire->listeners) {
		struct wire_listener *listener =
			rk_list_entry(pos, struct wire_listener, node);

		close(listener->socket);
		listener->socket = -1;
	}
	rk_list_for_each_safe(pos, tmp, &wire->links) {
		struct wire_link *link =
			rk_list_entry(pos, struct wire_link, node);

		if (link->socket >= 0)
			close(link->socket);
		if (link->pid_fd >= 0)
			close(link->pid_fd);
		link->socket = link->pid_fd = -1;
		link->state = LINK_DEAD;
	}
	close(wire->timer_fd);
	close(wire->epoll_fd);
}

int wire_fd(const struct wire *wire)
{
	return wire->epoll_fd;
}

/* ---- the pump ---------------------------------------------------------- */

static unsigned wire_poll(struct wire *wire)
{
	struct epoll_event events[64];
	int count;

	count = epoll_wait(wire->epoll_fd, events, RK_ARRAY_SIZE(events), 0);
	for (int i = 0; i < count; i++) {
		struct wire_source *source = events[i].data.ptr;

		source->ready(source, events[i].events);
	}
	return count > 0 ? (unsigned)count : 0;
}

static unsigned wire_serve_pending(struct wire *wire)
{
	struct rk_list now, *pos, *tmp;
	unsigned news = 0;

	/* What is added meanwhile waits for the next pump. */
	rk_list_init(&now);
	rk_list_for_each_safe(pos, tmp, &wire->pending) {
		rk_list_remove(pos);
		rk_list_add_tail(&now, pos);
	}
	while (!rk_list_empty(&now)) {
		struct wire_link *link = rk_list_first(&now, struct wire_link,
						       pending_node);

		rk_list_remove(&link->pending_node);
		news += link_serve(link);
	}
	return news;
}

static unsigned wire_visit(struct wire *wire)
{
	struct rk_list *pos, *tmp;
	unsigned news = 0;

	rk_list_for_each_safe(pos, tmp, &wire->awake) {
		struct wire_link *link =
			rk_list_entry(pos, struct wire_link, awake_node);
		unsigned found = lane_visit(link);

		news += found;
		if (found)
			link->idle_pumps = 0;
		else if (rk_unlikely(wire->awake_count > AWAKE_LINKS_FREE) &&
			 ++link->idle_pumps > IDLE_PUMPS_MAX)
			link_doze(link);
	}
	return news;
}

unsigned wire_pump(struct wire *wire, bool thorough)
{
	unsigned news = 0, found;

	if (rk_unlikely(wire->pumping || wire->abandoned))
		return 0;
	wire->pumping = true;
	if (rk_unlikely(thorough || wire->poll_spent >= POLL_CREDIT)) {
		wire->poll_spent = 0;
		news += wire_poll(wire);
	}
	if (rk_unlikely(!rk_list_empty(&wire->pending)))
		news += wire_serve_pending(wire);
	if (rk_unlikely(wire->promise_moved)) {
		/* new sleep numbers before the look at the dirty bits */
		wire->promise_moved = false;
		rk_fence();
	}
	found = wire_visit(wire);
	wire->poll_spent += found ? POLL_COST_BUSY : POLL_COST_IDLE;
	news += found;
	wire->pumping = false;
	if (rk_unlikely(!rk_list_empty(&wire->buried_links)))
		link_bury(wire);
	if (rk_unlikely(!rk_list_empty(&wire->buried_listeners)))
		port_bury(wire);
	return news;
}

/* ---- sleeping ---------------------------------------------------------- */

bool wire_sleep(struct wire *wire)
{
	struct rk_list *pos, *tmp;
	uint64_t number;

	if (wire->abandoned)
		return false;
	wire->asleep = true;
	number = ++wire->sleep_number;
	rk_list_for_each_safe(pos, tmp, &wire->awake) {
		struct wire_link *link =
			rk_list_entry(pos, struct wire_link, awake_node);

		rk_store_release(&link->box->sleeping, number);
	}
	rk_fence();
	wire->promise_moved = false;
	if (!rk_list_empty(&wire->pending))
		return true;
	rk_list_for_each_safe(pos, tmp, &wire->awake) {
		struct wire_link *link =
			rk_list_entry(pos, struct wire_link, awake_node);

		if (lane_is_dirty(link))
			return true;
	}
	return false;
}

void wire_wake(struct wire *wire)
{
	struct rk_list *pos, *tmp;

	if (!wire->asleep || wire->abandoned)
		return;
	wire->asleep = false;
	wire->promise_moved = false;
	/* Links put to sleep one by one are not in the list: they stay so. */
	rk_list_for_each_safe(pos, tmp, &wire->awake) {
		struct wire_link *link =
			rk_list_entry(pos, struct wire_link, awake_node);

		rk_store_release(&link->box->sleeping, 0);
	}
}

/* ---- figures ----------------------------------------------------------- */

/* An estimate: what this side has written of its box. */
static uint64_t box_touched(const struct wire_link *link)
{
	uint64_t bytes = 3 * PAGE_BYTES; /* dirty words */

	bytes += (uint64_t)link->lanes_touched *
		 (sizeof(struct lane_words) + RING_SLOTS * SLOT_BYTES);
	bytes += (uint64_t)link->chunks_touched * STAGE_CHUNK_BYTES;
	return bytes;
}

void wire_stats_get(const struct wire *wire, struct wire_stats *out)
{
	struct rk_list *pos, *tmp;

	*out = wire->stats;
	out->links = out->lanes = 0;
	out->bytes_quarantined = 0;
	rk_list_for_each_safe(pos, tmp, &wire->links) {
		const struct wire_link *link =
			rk_list_entry(pos, struct wire_link, node);

		out->links += link->state == LINK_UP;
		out->lanes += link->lane_count;
		out->bytes_quarantined += link->bytes_held;
		if (link->box)
			out->bytes_shared += box_touched(link);
	}
}
