/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The eventfd of a moved link and what happens when it is readable.  Runs in
 * the thread of the loop that the link was moved to, unless said otherwise.
 */
#include "remote.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "loop.h"

/* What this thread may look at: the waiting bytes, the queue, the end. */
static unsigned due(struct rk_link *link)
{
	bool ended = rk_load_acquire(&link->ended);
	unsigned events = 0;

	if (*rk_conn_read_handler(link) &&
	    (ended || rk_stream_pending(link->stream)))
		events |= RK_STREAM_READABLE;
	if (*rk_conn_write_handler(link) &&
	    (ended || rk_load(&link->out.bytes) < RK_BUFFER_MAX_BYTES))
		events |= RK_STREAM_WRITABLE;
	return events;
}

void rk_remote_signal(struct rk_link *link)
{
	static const uint64_t one = 1;

	while (write(link->remote_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void on_signal(void *server_loop, int fd, void *data, int mask)
{
	struct rk_link *link = data;
	bool write_first = *rk_conn_flags(link) & RK_CONN_WRITE_BARRIER;
	uint64_t value;
	unsigned now;

	while (read(fd, &value, sizeof(value)) < 0 && errno == EINTR)
		;
	now = due(link);
	if (!write_first && now & RK_STREAM_READABLE &&
	    !rk_link_call(link, *rk_conn_read_handler(link)))
		return;
	if (due(link) & RK_STREAM_WRITABLE &&
	    !rk_link_call(link, *rk_conn_write_handler(link)))
		return;
	if (write_first && due(link) & RK_STREAM_READABLE &&
	    !rk_link_call(link, *rk_conn_read_handler(link)))
		return;
	/* Once per event; what is left comes again. */
	if (link->remote_loop && due(link))
		rk_remote_signal(link);
}

static void unwatch(struct rk_link *link)
{
	if (link->remote_watched)
		rk_server.loop_remove(link->remote_loop, link->remote_fd,
				      RK_LOOP_READABLE);
	link->remote_watched = false;
}

int rk_remote_changed(struct rk_link *link)
{
	if (!*rk_conn_read_handler(link) && !*rk_conn_write_handler(link)) {
		unwatch(link);
		return 0;
	}
	if (!link->remote_watched) {
		if (rk_server.loop_add(link->remote_loop, link->remote_fd,
				       RK_LOOP_READABLE, on_signal, link)) {
			*rk_conn_last_errno(link) = errno;
			return -1;
		}
		link->remote_watched = true;
	}
	if (due(link))
		rk_remote_signal(link);
	return 0;
}

int rk_remote_bind(struct rk_link *link, void *server_loop)
{
	unwatch(link);
	if (server_loop == rk_loop_main()) {
		rk_store_release(&link->remote_loop, NULL);
		return 0;
	}
	if (link->remote_fd < 0)
		link->remote_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (link->remote_fd < 0) {
		*rk_conn_last_errno(link) = errno;
		return -1;
	}
	/* The owner sees the descriptor with the loop. */
	rk_store_release(&link->remote_loop, server_loop);
	return 0;
}

void rk_remote_drop(struct rk_link *link)
{
	unwatch(link);
	link->remote_loop = NULL;
	if (link->remote_fd >= 0)
		close(link->remote_fd);
	link->remote_fd = -1;
}
