/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a link: it arrives, becomes a client of the server, is called
 * when it is due, and ends.  Owner only, but for `out`.
 */
#include "link.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "loop.h"
#include "remote.h"
#include "socket.h"

enum { ACCEPTS_PER_PASS = 64 };

struct rk_links rk_links;

void rk_links_init(void)
{
	size_t i;

	memset(&rk_links, 0, sizeof(rk_links));
	for (i = 0; i < RK_ARRAY_SIZE(rk_links.of); i++)
		rk_list_init(&rk_links.of[i]);
}

static void enter(struct rk_link *link, enum rk_link_state state,
		  uint64_t deadline_ns)
{
	rk_links.count[link->state]--;
	rk_list_remove(&link->all);
	link->state = state;
	link->deadline_ns = deadline_ns;
	rk_links.count[state]++;
	rk_list_add_tail(&rk_links.of[state], &link->all);
}

static void destroy(struct rk_link *link)
{
	rk_loop_unmark(link);
	rk_links.count[link->state]--;
	rk_list_remove(&link->all);
	rk_stream_close(link->stream);
	rk_buffer_free(&link->out);
	pthread_mutex_destroy(&link->lock);
	rk_free(link);
	rk_loop_touched();
}

static void on_event(struct rk_stream *stream, void *user, unsigned events)
{
	struct rk_link *link = user;

	if (events & RK_STREAM_CLOSED)
		rk_store_release(&link->ended, true);
	if (rk_load_acquire(&link->remote_loop)) {
		rk_link_flush(link);
		rk_remote_signal(link);
	} else {
		rk_loop_mark(link);
	}
}

/* ---------------------------------------------------------------- arriving */

void rk_link_accepted(struct rk_stream *stream, void *user)
{
	struct rk_link *link;

	if (rk_links.count[RK_LINK_ARRIVING] >= RK_LINK_ARRIVING_MAX)
		goto refuse;
	link = rk_zalloc(sizeof(*link));
	if (!link)
		goto refuse;
	link->stream = stream;
	link->id = ++rk_links.last_id;
	link->remote_fd = -1;
	pthread_mutex_init(&link->lock, NULL);
	rk_list_init(&link->ready);
	rk_list_init(&link->all);
	rk_links.count[RK_LINK_ARRIVING]++;
	enter(link, RK_LINK_ARRIVING,
	      rk_now_ns() + RK_LINK_ARRIVING_MS * RK_NS_PER_MS);
	rk_stream_set_callback(stream, on_event, link);
	rk_loop_mark(link); /* what it has already is not told again */
	return;

refuse:
	rk_core.rejected++;
	rk_stream_abort(stream);
}

/* 7.0 keeps its function for this to itself: the same in our words. */
static bool server_is_full(void)
{
	static const char *const used_fields[] = { "connected_clients",
						   "cluster_connections" };
	struct rk_server_info *info;
	unsigned long long used = 0, most;
	int error = 0, bad = 0;
	size_t i;

	info = rk_api.info_get(rk_core.ctx, "clients");
	most = rk_api.info_number(info, "maxclients", &error);
	for (i = 0; i < RK_ARRAY_SIZE(used_fields); i++) {
		used += rk_api.info_number(info, used_fields[i], &bad);
		error |= bad;
	}
	rk_api.info_free(rk_core.ctx, info);
	info = rk_api.info_get(rk_core.ctx, "replication");
	used += rk_api.info_number(info, "connected_slaves", &bad);
	rk_api.info_free(rk_core.ctx, info);
	return !error && used >= most;
}

static void become_client_7_0(struct rk_link *link)
{
	static const char full[] = "-ERR max number of clients reached\r\n";

	if (server_is_full()) {
		rk_stream_write(link->stream, full, sizeof(full) - 1, 0);
		rk_link_close(link);
		return;
	}
	if (!rk_server.client_create(link)) {
		rk_link_close(link);
		return;
	}
	*rk_conn_state(link) = RK_CONN_CONNECTED;
	rk_server.client_accepted(link);
}

static void become_client(struct rk_link *link)
{
	rk_conn_init(link->conn, rk_core.type, rk_loop_main());
	*rk_conn_state(link) = RK_CONN_ACCEPTING;
	rk_socket_describe(link);
	*rk_conn_fd(link) = rk_socket_stand_in(link);
	enter(link, RK_LINK_SERVED, 0);

	/* Held, so that it can be looked at afterwards. */
	(*rk_conn_refs(link))++;
	if (rk_server.accept_common)
		rk_server.accept_common(link, 0, 0, 0);
	else
		become_client_7_0(link);
	(*rk_conn_refs(link))--;

	if (*rk_conn_private_data(link))
		rk_core.accepted++;
	else
		rk_core.rejected++;
	if (*rk_conn_flags(link) & RK_CONN_CLOSE_SCHEDULED)
		rk_link_close(link);
	else if (!rk_load_acquire(&link->remote_loop) && rk_link_due(link))
		rk_loop_mark(link);
}

static void arrive(struct rk_link *link)
{
	static uint64_t pass;
	static unsigned accepts;
	unsigned ready = rk_stream_ready(link->stream);

	if (!(ready & RK_STREAM_WRITABLE)) {
		if (ready & RK_STREAM_CLOSED)
			destroy(link);
		return;
	}
	if (pass != link->pass) {
		pass = link->pass;
		accepts = 0;
	}
	if (accepts++ < ACCEPTS_PER_PASS)
		become_client(link);
	else
		rk_loop_mark(link);
}

/* ------------------------------------------------------------------ served */

unsigned rk_link_due(struct rk_link *link)
{
	unsigned ready = rk_stream_ready(link->stream), due = 0;

	if (*rk_conn_read_handler(link) &&
	    ready & (RK_STREAM_READABLE | RK_STREAM_CLOSED))
		due |= RK_STREAM_READABLE;
	if (*rk_conn_write_handler(link) &&
	    (ready & RK_STREAM_CLOSED ||
	     (ready & RK_STREAM_WRITABLE && !rk_load(&link->out.bytes))))
		due |= RK_STREAM_WRITABLE;
	return due;
}

bool rk_link_call(struct rk_link *link, rk_conn_callback *handler)
{
	short *refs = rk_conn_refs(link);

	(*refs)++;
	handler(link);
	(*refs)--;
	if (!(*rk_conn_flags(link) & RK_CONN_CLOSE_SCHEDULED))
		return true;
	if (!*refs)
		rk_link_close(link);
	return false;
}

static void serve(struct rk_link *link)
{
	bool write_first = *rk_conn_flags(link) & RK_CONN_WRITE_BARRIER;
	unsigned due;

	if (rk_load_acquire(&link->remote_loop)) {
		rk_remote_signal(link); /* moved since it was marked */
		return;
	}
	rk_link_flush(link);
	due = rk_link_due(link);
	if (!write_first && due & RK_STREAM_READABLE &&
	    !rk_link_call(link, *rk_conn_read_handler(link)))
		return;
	if (rk_link_due(link) & RK_STREAM_WRITABLE &&
	    !rk_link_call(link, *rk_conn_write_handler(link)))
		return;
	if (write_first && due & RK_STREAM_READABLE &&
	    *rk_conn_read_handler(link) &&
	    !rk_link_call(link, *rk_conn_read_handler(link)))
		return;
	/* Once per pass; what is left comes again. */
	if (rk_link_due(link))
		rk_loop_mark(link);
}

void rk_link_serve(struct rk_link *link)
{
	switch (link->state) {
	case RK_LINK_ARRIVING:
		arrive(link);
		break;
	case RK_LINK_SERVED:
		serve(link);
		break;
	case RK_LINK_LINGERING:
		if (rk_link_flush(link))
			destroy(link);
		break;
	}
}

bool rk_link_flush(struct rk_link *link)
{
	ssize_t taken = 1;
	bool empty;

	if (!rk_load(&link->out.bytes))
		return true;
	pthread_mutex_lock(&link->lock);
	while (link->out.bytes && taken > 0) {
		taken = rk_stream_write(link->stream,
					link->out.data + link->out.start,
					link->out.bytes, 0);
		if (taken > 0)
			rk_buffer_drop(&link->out, (size_t)taken);
		else if (taken != -EAGAIN) /* nobody is there to read it */
			rk_buffer_drop(&link->out, link->out.bytes);
	}
	empty = !link->out.bytes;
	pthread_mutex_unlock(&link->lock);
	return empty;
}

void rk_link_take_over(struct rk_link *link)
{
	if (link->state != RK_LINK_SERVED)
		return;
	rk_link_flush(link);
	if (rk_stream_due(link->stream))
		rk_stream_service(link->stream);
	if (rk_load_acquire(&link->remote_loop))
		rk_remote_signal(link);
	else if (rk_link_due(link))
		rk_loop_mark(link);
}

/* --------------------------------------------------------------------- end */

void rk_link_close(struct rk_link *link)
{
	int *fd = rk_conn_fd(link);

	*rk_conn_read_handler(link) = NULL;
	*rk_conn_write_handler(link) = NULL;
	*rk_conn_conn_handler(link) = NULL;
	*rk_conn_state(link) = RK_CONN_CLOSED;
	rk_remote_drop(link);
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	if (*rk_conn_refs(link)) {
		*rk_conn_flags(link) |= RK_CONN_CLOSE_SCHEDULED;
		return;
	}
	if (rk_core.in_child || !link->stream)
		return; /* not ours to end; the process is about to exit */
	if (rk_load(&link->handed))
		rk_loop_take_over();
	if (rk_link_flush(link)) {
		destroy(link);
		return;
	}
	enter(link, RK_LINK_LINGERING,
	      rk_now_ns() + RK_LINK_LINGERING_MS * RK_NS_PER_MS);
	rk_loop_mark(link);
}

uint64_t rk_links_expire(uint64_t now_ns)
{
	static const enum rk_link_state mortal[] = { RK_LINK_ARRIVING,
						     RK_LINK_LINGERING };
	uint64_t next_ns = RK_NEVER;
	struct rk_link *link;
	size_t i;

	for (i = 0; i < RK_ARRAY_SIZE(mortal); i++) {
		struct rk_list *list = &rk_links.of[mortal[i]];

		while (!rk_list_empty(list)) {
			link = rk_list_first(list, struct rk_link, all);
			if (link->deadline_ns > now_ns) {
				next_ns = rk_min(next_ns, link->deadline_ns);
				break;
			}
			destroy(link);
		}
	}
	return next_ns;
}

void rk_links_shut(void)
{
	struct rk_list *node, *next;
	size_t i;

	for (i = 0; i < RK_ARRAY_SIZE(rk_links.of); i++) {
		rk_list_for_each_safe(node, next, &rk_links.of[i]) {
			struct rk_link *link =
				rk_list_entry(node, struct rk_link, all);

			rk_link_flush(link);
			rk_loop_unmark(link);
			rk_stream_close(link->stream);
			link->stream = NULL;
		}
	}
}
