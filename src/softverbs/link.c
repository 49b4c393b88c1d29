/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A link from its first connect() to its last reference (states: see
 * wire_internal.h).  Who opened it hands out lane numbers and keeps it open
 * some seconds after its last user, for the next one.
 *
 * Death is seen on the pidfd or as a hang-up of the socket.  Then, once: what
 * the peer still sent is delivered, every lane is offered to the handler, the
 * handler is told that the peer is gone.
 */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softverbs/wire_internal.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static void link_end(struct wire_link *link);

/* ---- making one -------------------------------------------------------- */

struct wire_link *link_new(struct wire *wire, int fd, bool ours)
{
	struct wire_link *link = rk_zalloc(sizeof(*link));

	if (!link)
		return NULL;
	link->wire = wire;
	link->socket = fd;
	link->pid_fd = -1;
	link->ours = ours;
	link->references = 1;
	link->state = LINK_NEW;
	rk_list_init(&link->awake_node);
	rk_list_init(&link->pending_node);
	rk_list_init(&link->queue);
	rk_list_init(&link->inbox);
	rk_list_init(&link->slabs);
	rk_list_add_tail(&wire->links, &link->node);
	stage_init(link);
	return link;
}

static void link_free(struct wire_link *link)
{
	rk_list_remove(&link->node);
	rk_list_remove(&link->pending_node);
	link_drop_queues(link);
	region_unmap_peer(link);
	lane_free_blocks(link);
	rk_free(link->region_used);
	box_unmap(link->peer);
	box_unmap(link->box);
	rk_free(link);
}

bool link_is_hung_up(const struct wire_link *link)
{
	struct pollfd fds[2] = {
		{ .fd = link->socket, .events = POLLRDHUP },
		{ .fd = link->pid_fd, .events = POLLIN },
	};

	return poll(fds, 2, 0) > 0 && (fds[0].revents || fds[1].revents);
}

/* A descriptor of the process behind the socket.  The kernel gives it (6.5);
 * before, a recycled pid is ruled out by the socket still being connected. */
int link_find_peer(struct wire_link *link)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);
	int pid_fd;

	if (getsockopt(link->socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes))
		return -errno;
	link->pid = peer.pid;
	link->uid = peer.uid;
	bytes = sizeof(pid_fd);
	if (!getsockopt(link->socket, SOL_SOCKET, SO_PEERPIDFD, &pid_fd,
			&bytes)) {
		link->pid_fd = pid_fd;
		return 0;
	}
	if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
		return -errno;
	if (peer.pid <= 0)
		return 0; /* another pid namespace: the socket must do */
	pid_fd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	if (pid_fd < 0)
		return errno == ENOSYS ? 0 : -errno;
	link->pid_fd = pid_fd;
	return link_is_hung_up(link) ? -ESRCH : 0;
}

static void link_socket_ready(struct wire_source *source, uint32_t events);
static void link_pid_ready(struct wire_source *source, uint32_t events);

int link_watch(struct wire_link *link)
{
	struct wire *wire = link->wire;
	int ret;

	link->socket_source.ready = link_socket_ready;
	link->pid_source.ready = link_pid_ready;
	ret = wire_watch(wire, link->socket, &link->socket_source,
			 EPOLLIN | EPOLLRDHUP);
	if (!ret && link->pid_fd >= 0)
		ret = wire_watch(wire, link->pid_fd, &link->pid_source,
				 EPOLLIN);
	return ret;
}

/* Our box, and the words that introduce it to the peer. */
int link_hello(struct wire_link *link)
{
	struct packet hello = { .kind = PACKET_HELLO,
				.number = BOX_VERSION,
				.value = sizeof(struct box) };
	int fd, ret;

	ret = box_create(&link->box, &fd);
	if (ret)
		return ret;
	key_publish_private(link);
	link->state = LINK_UP;
	link_rouse(link);
	return link_post(link, &hello, NULL, 0, fd);
}

static void link_hello_late(struct wire_timer *timer)
{
	link_close(rk_container_of(timer, struct wire_link, timer));
}

/* One other user may not take all the links there can be. */
static int link_check_share(const struct wire_link *link)
{
	unsigned count = 0;
	struct rk_list *pos, *tmp;

	if (link->uid == geteuid())
		return 0;
	rk_list_for_each_safe(pos, tmp, &link->wire->links)
		count += rk_list_entry(pos, struct wire_link, node)->uid ==
			 link->uid;
	return count > LINKS_PER_USER ? -EMFILE : 0;
}

int link_accept(struct wire *wire, int fd)
{
	struct wire_link *link;
	int ret;

	if (wire->stats.links >= LINKS_MAX) {
		close(fd);
		return -EMFILE;
	}
	link = link_new(wire, fd, false);
	if (!link) {
		close(fd);
		return -ENOMEM;
	}
	wire->stats.links++;
	ret = link_find_peer(link);
	if (!ret)
		ret = link_check_share(link);
	if (!ret)
		ret = link_watch(link);
	if (ret) {
		link_close(link);
		return ret == -ESRCH ? 0 : ret;
	}
	link->timer.fire = link_hello_late;
	wire_timer_set(wire, &link->timer, rk_now_ns() + wire->hello_ns);
	return 0;
}

int link_greeted(struct wire_link *link, int box_fd)
{
	int ret;

	if (link->peer)
		return -EPROTO;
	ret = box_map_peer(box_fd, &link->peer);
	if (ret)
		return ret;
	if (link->state == LINK_NEW) {
		wire_timer_cancel(link->wire, &link->timer);
		return link_hello(link);
	}
	lane_ring_all(link);
	return 0;
}

/* ---- references -------------------------------------------------------- */

struct wire_link *wire_get(struct wire_link *link)
{
	link->references++;
	if (link->wire && link->ours)
		wire_timer_cancel(link->wire, &link->timer);
	return link;
}

static void link_linger_over(struct wire_timer *timer)
{
	struct wire_link *link =
		rk_container_of(timer, struct wire_link, timer);

	if (link->queue_count) /* the peer shall read our last words */
		wire_timer_set(link->wire, timer,
			       rk_now_ns() + link->wire->linger_ns);
	else
		link_close(link);
}

void wire_put(struct wire_link *link)
{
	struct wire *wire = link->wire;

	if (wire && wire->abandoned)
		return;
	assert(link->references > 0);
	link->references--;
	if (link->references > 1)
		return;
	if (link->references == 1) {
		if (link->ours && link->state == LINK_UP) {
			link->timer.fire = link_linger_over;
			wire_timer_set(wire, &link->timer,
				       rk_now_ns() + wire->linger_ns);
		}
		return;
	}
	if (wire && wire->pumping) {
		rk_list_remove(&link->node);
		rk_list_add_tail(&wire->buried_links, &link->node);
	} else {
		link_free(link);
	}
}

void link_bury(struct wire *wire)
{
	while (!rk_list_empty(&wire->buried_links))
		link_free(rk_list_first(&wire->buried_links, struct wire_link,
					node));
}

void link_detach(struct wire_link *link)
{
	rk_list_remove(&link->node);
	link->wire = NULL;
}

bool wire_link_is_alive(const struct wire_link *link)
{
	return link->state == LINK_UP && !link->broken;
}

bool wire_link_is_ours(const struct wire_link *link)
{
	return link->ours;
}

pid_t wire_link_pid(const struct wire_link *link)
{
	return link->pid;
}

/* ---- awake, asleep, pending -------------------------------------------- */

/* Into the list of links that every pump looks at. */
void link_rouse(struct wire_link *link)
{
	struct wire *wire = link->wire;

	link->idle_pumps = 0;
	if (wire->asleep) {
		rk_store_release(&link->box->sleeping, ++wire->sleep_number);
		wire->promise_moved = true;
	} else if (!link->awake) {
		rk_store_release(&link->box->sleeping, 0);
	}
	if (!link->awake) {
		link->awake = true;
		wire->awake_count++;
		rk_list_add_tail(&wire->awake, &link->awake_node);
	}
}

static void link_unlist(struct wire_link *link)
{
	if (link->awake) {
		link->awake = false;
		link->wire->awake_count--;
		rk_list_remove(&link->awake_node);
	}
	rk_list_remove(&link->pending_node);
}

/* Out of that list: this peer sends a token from now on. */
void link_doze(struct wire_link *link)
{
	struct wire *wire = link->wire;

	link->idle_pumps = 0;
	rk_store_release(&link->box->sleeping, ++wire->sleep_number);
	rk_fence();
	if (lane_is_dirty(link)) {
		if (!wire->asleep)
			rk_store_release(&link->box->sleeping, 0);
		return;
	}
	link->awake = false;
	wire->awake_count--;
	rk_list_remove(&link->awake_node);
}

void link_pend(struct wire_link *link)
{
	if (rk_list_empty(&link->pending_node))
		rk_list_add_tail(&link->wire->pending, &link->pending_node);
}

void link_break(struct wire_link *link)
{
	link->broken = true;
	link_pend(link);
}

unsigned link_serve(struct wire_link *link)
{
	unsigned news = link_deliver_inbox(link);

	if (link->broken) {
		link_end(link);
		return news + 1;
	}
	if (link->scan) {
		link->scan = false;
		news += lane_scan(link);
	}
	return news;
}

/* ---- events and the end ------------------------------------------------ */

static void link_socket_ready(struct wire_source *source, uint32_t events)
{
	struct wire_link *link =
		rk_container_of(source, struct wire_link, socket_source);
	int ret;

	if (link->state == LINK_DEAD)
		return;
	if (events & EPOLLOUT)
		link_flush(link);
	if (link->state == LINK_UP)
		link_rouse(link); /* before reading: a token is renewed so */
	ret = link_receive(link, LINK_RECEIVE_BUDGET, true);
	if (ret < 0 && link->state != LINK_DEAD)
		link_end(link);
}

static void link_pid_ready(struct wire_source *source, uint32_t events)
{
	struct wire_link *link =
		rk_container_of(source, struct wire_link, pid_source);

	if (link->state == LINK_DEAD)
		return;
	/* what it sent before; a bound, as a forked child may go on */
	for (unsigned i = 0; i < 16; i++)
		if (link_receive(link, LINK_RECEIVE_BUDGET, true) <= 0)
			break;
	if (link->state != LINK_DEAD)
		link_end(link);
}

void link_close(struct wire_link *link)
{
	struct wire *wire = link->wire;

	if (link->state == LINK_DEAD)
		return;
	wire_timer_cancel(wire, &link->timer);
	link_unlist(link);
	link->state = LINK_DEAD;
	link->stuck = 0;
	epoll_ctl(wire->epoll_fd, EPOLL_CTL_DEL, link->socket, NULL);
	close(link->socket);
	link->socket = -1;
	if (link->pid_fd >= 0) {
		epoll_ctl(wire->epoll_fd, EPOLL_CTL_DEL, link->pid_fd, NULL);
		close(link->pid_fd);
		link->pid_fd = -1;
	}
	link_drop_queues(link);
	region_link_closed(link);
	wire->stats.links--;
	wire_put(link);
}

/* The peer died, hung up or sent nonsense. */
static void link_end(struct wire_link *link)
{
	struct wire *wire = link->wire;
	bool known = link->state == LINK_UP;

	wire_get(link);
	if (known) {
		link_deliver_inbox(link);
		lane_scan(link);
	}
	link_close(link);
	if (known)
		wire->handler->gone(wire->user, link);
	wire_put(link);
}
