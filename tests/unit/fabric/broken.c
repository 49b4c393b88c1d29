/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device whose data path fails: posting that is refused, polling that breaks.
 * The operations are exchanged below the feet of both contexts.
 */
#include "world.h"

static unsigned lines;
static int send_error, receive_error, poll_error;
static struct ibv_context_ops real;

static void count_lines(enum rk_log_level level, const char *line)
{
	lines += level >= RK_LOG_WARNING;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	return send_error ? send_error : real.post_send(qp, wr, bad);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	return receive_error ? receive_error : real.post_recv(qp, wr, bad);
}

static int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	return poll_error ? poll_error : real.poll_cq(cq, count, wc);
}

static void exchange_operations(struct world *w)
{
	struct ibv_context *verbs = fabric_context_of(w->context[0])->verbs;

	if (!real.poll_cq)
		real = verbs->ops;
	verbs->ops.post_send = post_send;
	verbs->ops.post_recv = post_recv;
	verbs->ops.poll_cq = poll_cq;
}

static void a_full_device_is_waited_for(void)
{
	struct world w;

	world_up(&w);
	exchange_operations(&w);
	ok(world_send(&w.a, 0) == 0, "one is on its way");
	send_error = ENOMEM;
	ok(world_send(&w.a, 1) == -EAGAIN && !w.a.writable,
	   "no room although the count says so");
	send_error = 0;
	ok(world_until(&w, w.a.writable) && world_send(&w.a, 1) == 0,
	   "writable follows");
	ok(world_until(&w, w.b.received == 2), "and it goes on");
	send_error = ENOMEM;
	ok(world_until(&w, w.a.sent == 2) && world_send(&w.a, 2) == -ENOTCONN,
	   "no room with nothing on its way is an error");
	send_error = 0;
	ok(world_until(&w, w.a.closed) && w.a.reason == RK_CLOSE_ERROR,
	   "that ends the connection");
	world_close(&w);
}

static void a_refused_post_ends_the_connection(void)
{
	struct world w;

	world_up(&w);
	exchange_operations(&w);
	send_error = EINVAL;
	ok(world_send(&w.a, 0) == -ENOTCONN && !w.a.closed,
	   "a post the device refuses");
	send_error = 0;
	ok(world_until(&w, w.a.closed) && w.a.reason == RK_CLOSE_ERROR,
	   "ends the connection, from process()");
	world_close(&w);
}

static void receives_that_cannot_be_posted(void)
{
	struct world w;

	world_up(&w);
	exchange_operations(&w);
	receive_error = ENOMEM;
	for (uint32_t number = 0; number < 40; number++)
		if (world_send(&w.a, number))
			break;
	ok(world_until(&w, w.b.closed) && w.b.reason == RK_CLOSE_ERROR,
	   "receives that cannot be posted again end the connection");
	ok(!w.b.out_of_order && w.b.received >= 4,
	   "after what they brought: %u", w.b.received);
	rk_conn_destroy(w.a.conn);
	w.a.conn = NULL;
	memset(&w.a, 0, sizeof(w.a));
	ok(world_connect(&w, 500) == 0 && world_until(&w, w.a.closed) &&
		   w.a.reason == RK_CLOSE_UNREACHABLE,
	   "nor can one be made: %s", strerror(-w.a.status));
	receive_error = 0;
	world_close(&w);
}

static void a_broken_completion_queue(void)
{
	struct world w;

	world_up(&w);
	exchange_operations(&w);
	lines = 0;
	poll_error = -EIO;
	ok(world_until(&w, w.a.closed && w.b.closed) &&
		   w.a.reason == RK_CLOSE_ERROR && w.b.reason == RK_CLOSE_ERROR,
	   "a broken completion queue ends its connections");
	for (unsigned n = 0; n < 100; n++)
		world_run(&w);
	ok(lines == 2, "one line from each context: %u", lines);
	rk_conn_destroy(w.a.conn);
	rk_conn_destroy(w.b.conn);
	w.a.conn = w.b.conn = NULL;
	rk_mem_free(w.context[1], &w.b.target);
	world_run(&w);
	poll_error = 0;
	memset(&w.b, 0, sizeof(w.b));
	rk_mem_free(w.context[0], &w.a.target);
	memset(&w.a, 0, sizeof(w.a));
	ok(world_connect(&w, 0) == 0 &&
		   world_until(&w, w.a.established && w.b.established),
	   "later ones get another");
	world_close(&w);
}

int main(void)
{
	long live;

	rk_log_set_sink(count_lines);
	a_full_device_is_waited_for();
	live = rk_alloc_live();
	a_refused_post_ends_the_connection();
	receives_that_cannot_be_posted();
	a_broken_completion_queue();
	ok(rk_alloc_live() <= live, "nothing is left: %ld, before %ld",
	   rk_alloc_live(), live);
	return ok_done();
}
