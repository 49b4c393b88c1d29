/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The socket of a link: packets out, packets in.
 *
 * What is always true: a packet is either in the socket or in the queue, in
 * order; tokens alone are sent past the queue, or not at all when the socket
 * is full, since a peer with a full socket has something to wake up for.
 * Every packet is checked whole, in packet_check(), before any of it is used;
 * descriptors nobody asked for are closed.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "softverbs/wire_internal.h"

/* ---- out --------------------------------------------------------------- */

struct queued_packet {
	struct rk_list node;
	struct packet head;
	int fd;
	size_t bytes;
	uint8_t body[];
};

static int socket_send(int fd, const struct packet *head, const void *body,
		       size_t bytes, int passed_fd)
{
	struct iovec iov[2] = {
		{ .iov_base = (void *)head, .iov_len = sizeof(*head) },
		{ .iov_base = (void *)body, .iov_len = bytes },
	};
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { .space = { 0 } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = bytes ? 2 : 1 };

	if (passed_fd >= 0) {
		struct cmsghdr *cmsg;

		msg.msg_control = control.space;
		msg.msg_controllen = sizeof(control.space);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cmsg), &passed_fd, sizeof(int));
	}
	if (sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	return 0;
}

static bool error_is_full(int error)
{
	return error == -EAGAIN || error == -EINTR || error == -ENOBUFS ||
	       error == -ENOMEM;
}

static void link_ask_out(struct wire_link *link, bool want)
{
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLRDHUP | (want ? EPOLLOUT : 0),
		.data.ptr = &link->socket_source,
	};

	if (link->wants_out == want)
		return;
	if (!epoll_ctl(link->wire->epoll_fd, EPOLL_CTL_MOD, link->socket,
		       &event))
		link->wants_out = want;
}

static int link_enqueue(struct wire_link *link, const struct packet *head,
			const void *body, size_t bytes, int fd)
{
	unsigned limit = head->kind == PACKET_MESSAGE ? LINK_MESSAGES_MAX :
							LINK_PACKETS_MAX;
	struct queued_packet *queued;

	if (link->queue_count >= limit)
		return -ENOBUFS;
	queued = rk_zalloc(sizeof(*queued) + bytes);
	if (!queued)
		return -ENOMEM;
	queued->head = *head;
	queued->fd = fd;
	queued->bytes = bytes;
	if (bytes)
		memcpy(queued->body, body, bytes);
	rk_list_add_tail(&link->queue, &queued->node);
	link->queue_count++;
	link_ask_out(link, true);
	return 0;
}

int link_post(struct wire_link *link, const struct packet *head,
	      const void *body, size_t bytes, int fd)
{
	int ret = -EAGAIN;

	if (!wire_link_is_alive(link))
		ret = -EPIPE;
	else if (!link->queue_count)
		ret = socket_send(link->socket, head, body, bytes, fd);
	if (error_is_full(ret)) {
		ret = link_enqueue(link, head, body, bytes, fd);
		if (!ret)
			return 0;
	}
	if (fd >= 0)
		close(fd);
	/* the hang-up itself is found on the socket, by the pump */
	return ret == -ECONNRESET || ret == -ENOTCONN ? -EPIPE : ret;
}

static void queued_free(struct wire_link *link, struct queued_packet *queued)
{
	rk_list_remove(&queued->node);
	link->queue_count--;
	if (queued->fd >= 0)
		close(queued->fd);
	rk_free(queued);
}

void link_flush(struct wire_link *link)
{
	while (link->queue_count) {
		struct queued_packet *queued =
			rk_list_first(&link->queue, struct queued_packet, node);
		int ret = socket_send(link->socket, &queued->head,
				      queued->body, queued->bytes, queued->fd);

		if (error_is_full(ret))
			return;
		queued_free(link, queued);
		if (ret) {
			/* a hole in the order: worth less than no link */
			link_break(link);
			return;
		}
	}
	link_ask_out(link, false);
}

int wire_send(struct wire_link *link, const void *message, size_t bytes)
{
	struct packet head = { .kind = PACKET_MESSAGE, .value = bytes };

	if (bytes > WIRE_MESSAGE_MAX)
		return -EMSGSIZE;
	return link_post(link, &head, message, bytes, -1);
}

void link_token(struct wire_link *link, uint64_t sleep_number)
{
	struct packet head = { .kind = PACKET_TOKEN, .value = sleep_number };

	if (link->socket < 0)
		return;
	link->token_for = sleep_number;
	link->wire->stats.tokens_sent++;
	/* full: it has something to read.  Gone: nobody to wake. */
	socket_send(link->socket, &head, NULL, 0, -1);
}

/* ---- in ---------------------------------------------------------------- */

struct incoming {
	struct packet head;
	uint8_t body[WIRE_MESSAGE_MAX];
	size_t body_bytes;
	int fd; /* -1: none */
};

struct inbox_message {
	struct rk_list node;
	size_t bytes;
	uint8_t body[];
};

/* The one place where a packet is judged. */
static int packet_check(const struct wire_link *link,
			const struct incoming *in)
{
	const struct packet *head = &in->head;
	bool has_fd = in->fd >= 0;
	bool wants_fd = head->kind == PACKET_HELLO ||
			head->kind == PACKET_GRANT;

	if ((head->kind == PACKET_HELLO) == (link->peer != NULL))
		return -EPROTO; /* HELLO is the first, and only that */
	if (has_fd != wants_fd)
		return -EPROTO;
	if (head->kind != PACKET_MESSAGE && in->body_bytes)
		return -EPROTO;
	if (head->writable > (head->kind == PACKET_GRANT))
		return -EPROTO;
	switch (head->kind) {
	case PACKET_HELLO:
		if (head->number != BOX_VERSION ||
		    head->value != sizeof(struct box))
			return -EPROTO;
		return 0;
	case PACKET_GRANT:
		if (head->number >= LINK_REGIONS_MAX || !head->value ||
		    head->value > REGION_BYTES_MAX ||
		    head->value % PAGE_BYTES)
			return -EPROTO;
		return 0;
	case PACKET_WITHDRAW:
		if (head->number >= LINK_REGIONS_MAX || head->value)
			return -EPROTO;
		return 0;
	case PACKET_TOKEN:
		return head->number ? -EPROTO : 0;
	case PACKET_MESSAGE:
		if (head->number || head->value != in->body_bytes)
			return -EPROTO;
		return 0;
	}
	return -EPROTO;
}

/* Keep the first descriptor, close the others; how many there were. */
static unsigned take_descriptors(struct msghdr *msg, int *keep)
{
	unsigned total = 0;

	*keep = -1;
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg;
	     cmsg = CMSG_NXTHDR(msg, cmsg)) {
		size_t count;

		if (cmsg->cmsg_level != SOL_SOCKET ||
		    cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int),
			       sizeof(int));
			if (total++ == 0)
				*keep = fd;
			else
				close(fd);
		}
	}
	return total;
}

/* 1: a packet; 0: none now; negative: hung up (-EPIPE) or malformed. */
static int socket_receive(int fd, struct incoming *in)
{
	struct iovec iov[2] = {
		{ .iov_base = &in->head, .iov_len = sizeof(in->head) },
		{ .iov_base = in->body, .iov_len = sizeof(in->body) },
	};
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct msghdr msg = {
		.msg_iov = iov,
		.msg_iovlen = 2,
		.msg_control = control.space,
		.msg_controllen = sizeof(control.space),
	};
	unsigned fds;
	ssize_t bytes;

	in->fd = -1;
	bytes = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (bytes < 0)
		return -EPIPE;
	fds = take_descriptors(&msg, &in->fd);
	if (fds == 0 && bytes == 0)
		return -EPIPE; /* also what an empty packet looks like */
	if (fds > 1 || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
	    (size_t)bytes < sizeof(in->head)) {
		if (in->fd >= 0)
			close(in->fd);
		return -EPROTO;
	}
	in->body_bytes = (size_t)bytes - sizeof(in->head);
	return 1;
}

static int inbox_add(struct wire_link *link, const struct incoming *in)
{
	struct inbox_message *kept;

	kept = rk_zalloc(sizeof(*kept) + in->body_bytes);
	if (!kept)
		return -ENOMEM;
	kept->bytes = in->body_bytes;
	memcpy(kept->body, in->body, in->body_bytes);
	rk_list_add_tail(&link->inbox, &kept->node);
	link->inbox_count++;
	link_pend(link);
	return 0;
}

unsigned link_deliver_inbox(struct wire_link *link)
{
	struct wire *wire = link->wire;
	unsigned news = 0;

	while (link->inbox_count) {
		struct inbox_message *kept =
			rk_list_first(&link->inbox, struct inbox_message, node);

		rk_list_remove(&kept->node);
		link->inbox_count--;
		wire->handler->message(wire->user, link, kept->body,
				       kept->bytes);
		rk_free(kept);
		news++;
	}
	return news;
}

static int packet_handle(struct wire_link *link, const struct incoming *in,
			 bool deliver)
{
	const struct packet *head = &in->head;
	struct wire *wire = link->wire;

	switch ((enum packet_kind)head->kind) {
	case PACKET_HELLO:
		return link_greeted(link, in->fd);
	case PACKET_GRANT:
		return region_granted(link, head->number, head->value,
				      head->writable, in->fd);
	case PACKET_WITHDRAW:
		return region_withdrawn(link, head->number);
	case PACKET_TOKEN:
		wire->stats.tokens_received++;
		return 0;
	case PACKET_MESSAGE:
		if (!deliver)
			return inbox_add(link, in);
		wire->handler->message(wire->user, link, in->body,
				       in->body_bytes);
		return 0;
	}
	return -EPROTO;
}

int link_receive(struct wire_link *link, unsigned budget, bool deliver)
{
	struct incoming in;
	unsigned count;
	int ret = 0;

	for (count = 0; count < budget; count++) {
		/* also what a handler read ahead: it came before the next */
		if (deliver)
			link_deliver_inbox(link);
		if (link->inbox_count >= LINK_INBOX_MAX)
			break;
		ret = socket_receive(link->socket, &in);
		if (ret <= 0)
			break;
		ret = packet_check(link, &in);
		if (!ret)
			ret = packet_handle(link, &in, deliver);
		if (in.fd >= 0)
			close(in.fd); /* what is needed of it is mapped */
		if (ret)
			break;
	}
	if (ret < 0 && ret != -EPIPE && rk_log_may(&link->wire->complaints))
		rk_log(RK_LOG_WARNING,
		       "link to process %d ended: its packet was refused: %s",
		       (int)link->pid, strerror(-ret));
	return ret < 0 ? ret : (int)count;
}

void link_drop_queues(struct wire_link *link)
{
	while (link->queue_count)
		queued_free(link, rk_list_first(&link->queue,
						struct queued_packet, node));
	while (link->inbox_count) {
		struct inbox_message *kept =
			rk_list_first(&link->inbox, struct inbox_message, node);

		rk_list_remove(&kept->node);
		link->inbox_count--;
		rk_free(kept);
	}
}
