/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits: queues are as long as was asked for, a slot is free when its
 * completion was polled, what does not fit is refused and named, a completion
 * queue that overruns takes its queue pairs along.
 */
#include "softverbs/objects.h"

#include "verbs_pair.h"

static const struct rk_verbs_table *v;

static struct ibv_send_wr *chain(struct ibv_send_wr *wr, unsigned count,
				 unsigned flags)
{
	for (unsigned i = 0; i < count; i++)
		wr[i] = (struct ibv_send_wr){
			.wr_id = i, .opcode = IBV_WR_RDMA_WRITE,
			.send_flags = flags,
			.next = i + 1 < count ? &wr[i + 1] : NULL,
		};
	return wr;
}

static void a_slot_is_free_when_polled(void)
{
	struct pair p;
	struct ibv_send_wr wr[6], *bad = NULL;
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ .send_wr = 4 });
	ok(ibv_post_send(p.a.qp, chain(wr, 6, IBV_SEND_SIGNALED), &bad) ==
			   ENOMEM && bad == &wr[4],
	   "the fifth request is refused and named");
	ok(send_at(&p.a, 9, 0, 8, 0) == ENOMEM,
	   "although all have completed, nothing goes before a poll");
	ok(ibv_poll_cq(p.a.send_cq, 1, &wc) == 1 && wc.wr_id == 0,
	   "one is polled");
	ok(!ibv_post_send(p.a.qp, chain(wr, 1, 0), &bad) &&
		   ibv_post_send(p.a.qp, chain(wr, 1, 0), &bad) == ENOMEM,
	   "one more goes");
	for (int i = 0; i < 3; i++)
		ibv_poll_cq(p.a.send_cq, 1, &wc);
	ok(ibv_post_send(p.a.qp, chain(wr, 4, 0), &bad) == ENOMEM &&
		   bad == &wr[3], "an unsignalled one holds its slot");
	pair_close(&p);

	pair_open(&p, &(struct pair_options){ .send_wr = 4 });
	ibv_post_send(p.a.qp, chain(wr, 3, 0), &bad);
	ibv_post_send(p.a.qp, chain(wr, 1, IBV_SEND_SIGNALED), &bad);
	ok(ibv_post_send(p.a.qp, chain(wr, 1, 0), &bad) == ENOMEM,
	   "three unsignalled and a signalled one fill the queue");
	ok(ibv_poll_cq(p.a.send_cq, 1, &wc) == 1 &&
		   !ibv_post_send(p.a.qp, chain(wr, 4, 0), &bad),
	   "polling the last frees all four");
	pair_close(&p);
}

static void receives_are_limited(void)
{
	struct pair p;
	struct ibv_recv_wr wr[4], *bad = NULL;

	pair_open(&p, &(struct pair_options){ .recv_wr = 3 });
	for (int i = 0; i < 4; i++)
		wr[i] = (struct ibv_recv_wr){
			.next = i < 3 ? &wr[i + 1] : NULL };
	ok(ibv_post_recv(p.a.qp, wr, &bad) == ENOMEM && bad == &wr[3],
	   "the fourth receive is refused and named");
	pair_close(&p);
}

static void what_is_given_is_written_back(void)
{
	struct pair p;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC }, asked;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;
	struct ibv_device_attr device;

	pair_open(&p, &(struct pair_options){ 0 });
	init.send_cq = init.recv_cq = p.a.send_cq;
	qp = v->create_qp(p.a.pd, &init);
	ok(qp && init.cap.max_send_wr == 1 && init.cap.max_recv_sge == 1,
	   "at least one of each");
	v->destroy_qp(qp);
	v->query_device(p.a.context, &device);
	init.cap = (struct ibv_qp_cap){
		.max_send_wr = 100, .max_recv_wr = 50, .max_send_sge = 3,
		.max_recv_sge = 2, .max_inline_data = 65536 };
	qp = v->create_qp(p.a.pd, &init);
	ok(qp && !v->query_qp(qp, &attr, IBV_QP_CAP, &asked) &&
		   asked.cap.max_send_wr == 100 &&
		   asked.cap.max_recv_wr == 50 &&
		   attr.cap.max_send_sge == 3 &&
		   attr.cap.max_inline_data == 65536,
	   "a query tells what was given");
	v->destroy_qp(qp);
	init.cap.max_send_wr = (uint32_t)device.max_qp_wr + 1;
	ok(!v->create_qp(p.a.pd, &init) && errno == EINVAL,
	   "more requests than the device reports");
	init.cap.max_send_wr = 1;
	init.cap.max_recv_sge = (uint32_t)device.max_sge + 1;
	ok(!v->create_qp(p.a.pd, &init) && errno == EINVAL, "more pieces");
	init.cap.max_recv_sge = 1;
	init.cap.max_inline_data = 65537;
	ok(!v->create_qp(p.a.pd, &init) && errno == EINVAL, "more inline");
	init.cap.max_inline_data = 0;
	init.qp_type = IBV_QPT_UD;
	ok(!v->create_qp(p.a.pd, &init) && errno == EOPNOTSUPP, "datagrams");
	ok(!v->create_cq(p.a.context, device.max_cqe + 1, NULL, NULL, 0) &&
		   errno == EINVAL, "a longer completion queue");
	ok(!v->create_cq(p.a.context, 0, NULL, NULL, 0) && errno == EINVAL,
	   "an empty one");
	ok(!v->create_cq(p.a.context, 8, NULL, NULL,
			 p.a.context->num_comp_vectors) && errno == EINVAL,
	   "on a vector that is not there: all refused");
	pair_close(&p);
}

static void an_overrun_is_fatal(void)
{
	struct pair p;
	struct ibv_async_event event;
	struct ibv_send_wr wr[5], *bad;
	struct ibv_wc wc;
	int got = 0, ret;

	pair_open(&p, &(struct pair_options){ .send_cqe = 3 });
	receive(&p.a, 7, 0, 8);
	ibv_post_send(p.a.qp, chain(wr, 5, IBV_SEND_SIGNALED), &bad);
	ok(!v->get_async_event(p.a.context, &event) &&
		   event.event_type == IBV_EVENT_CQ_ERR &&
		   event.element.cq == p.a.send_cq, "IBV_EVENT_CQ_ERR");
	v->ack_async_event(&event);
	ok(p.a.qp->state == IBV_QPS_ERR, "its queue pair goes to error");
	wc = poll_one(p.a.recv_cq);
	ok(wc.wr_id == 7 && wc.status == IBV_WC_WR_FLUSH_ERR,
	   "and flushes into the queue that is well");
	while ((ret = ibv_poll_cq(p.a.send_cq, 1, &wc)) == 1)
		got++;
	ok(got == 3 && ret < 0, "what had fitted is polled, then an error");
	pair_close(&p);
}

static void a_queue_pair_takes_its_completions_along(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_recv_wr recv = { .wr_id = 70 }, *bad;
	struct ibv_qp *qp;
	struct ibv_wc wc;
	struct pair p;

	pair_open(&p, &(struct pair_options){ 0 });
	init.send_cq = init.recv_cq = p.a.recv_cq;
	qp = v->create_qp(p.a.pd, &init);
	v->modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	receive(&p.a, 1, 0, 8);
	receive(&p.a, 2, 0, 8);
	ibv_post_recv(qp, &recv, &bad);
	device_pump(true);
	send_at(&p.b, 1, 0, 8, 0);
	device_pump(true);
	modify_state(qp, IBV_QPS_ERR);
	send_at(&p.b, 1, 0, 8, 0);
	device_pump(true);
	v->destroy_qp(qp);
	ok(ibv_poll_cq(p.a.recv_cq, 1, &wc) == 1 && wc.wr_id == 1 &&
		   ibv_poll_cq(p.a.recv_cq, 1, &wc) == 1 && wc.wr_id == 2 &&
		   ibv_poll_cq(p.a.recv_cq, 1, &wc) == 0,
	   "a destroyed queue pair leaves those of others, in order");
	pair_close(&p);
}

static void nothing_in_use_is_destroyed(void)
{
	struct pair p;
	struct ibv_context *context;
	struct ibv_device **list;
	struct ibv_pd *pd;
	int count;

	pair_open(&p, &(struct pair_options){ 0 });
	ok(v->dealloc_pd(p.a.pd) == EBUSY, "a domain with queue pairs");
	ok(v->destroy_cq(p.a.send_cq) == EBUSY, "a queue with queue pairs");
	ok(v->destroy_comp_channel(p.a.channel) == EBUSY,
	   "a channel with queues");
	list = v->get_device_list(&count);
	context = v->open_device(list[0]);
	pd = v->alloc_pd(context);
	ok(count == 1 && !list[1] && !strcmp(v->get_device_name(list[0]),
					     "rdmakit0"), "the one device");
	v->free_device_list(list);
	ok(v->close_device(context) == EBUSY, "a context with a domain");
	v->dealloc_pd(pd);
	ok(!v->close_device(context), "and empty it closes");
	pair_close(&p);
}

static void regions(void)
{
	struct pair p;
	struct ibv_mr *mr;
	uint32_t lkey;
	unsigned wrong = 0;

	pair_open(&p, &(struct pair_options){ 0 });
	ok(!v->reg_mr(p.a.pd, p.a.mem, 64, IBV_ACCESS_REMOTE_WRITE) &&
		   errno == EINVAL, "remote write needs local write");
	ok(!v->reg_mr(p.a.pd, p.a.mem, 0, 0) && errno == EINVAL, "no bytes");
	ok(!v->reg_mr(p.a.pd, (void *)(UINTPTR_MAX - 10), 64, 0) &&
		   errno == EINVAL, "bytes beyond the address space");
	ok(!v->reg_mr(p.a.pd, (void *)4096, 64, 0) && errno == EFAULT,
	   "bytes that are not mapped");
	ok(!v->reg_mr(p.a.pd, p.a.mem, 64, IBV_ACCESS_ZERO_BASED) &&
		   errno == EOPNOTSUPP, "zero based: all refused");
	ok(!v->reg_mr(p.a.pd, p.a.mem + p.a.mem_bytes - 64, 1 << 30,
		      PAIR_ACCESS) && errno, "beyond granted memory");
	mr = v->reg_mr(p.a.pd, p.a.mem, 64, IBV_ACCESS_LOCAL_WRITE);
	lkey = mr->lkey;
	ok(mr->rkey == mr->lkey, "no remote rights, no remote key");
	v->dereg_mr(mr);
	mr = v->reg_mr(p.a.pd, p.a.mem, 64, PAIR_ACCESS);
	ok(mr->lkey != lkey && mr->rkey != mr->lkey, "keys are not reused");
	v->dereg_mr(mr);
	pair_close(&p);

	pair_open(&p, &(struct pair_options){ 0 });
	for (int i = 0; i < 500; i++) {
		mr = v->reg_mr(p.a.pd, p.a.mem, 64, 0);
		if (!mr)
			break;
		wrong += !mr_allows(p.a.pd, mr->lkey, (uintptr_t)p.a.mem, 64,
				    0);
		lkey = mr->lkey;
		v->dereg_mr(mr);
		wrong += mr_allows(p.a.pd, lkey, (uintptr_t)p.a.mem, 64, 0);
	}
	ok(mr && !wrong, "a key is good until it is gone, 500 times");
	pair_close(&p);
}

static void inline_copies_are_limited(void)
{
	enum { BYTES = 65536, MORE = MAX_COPY_BYTES / BYTES + 1 };
	struct pair p;
	struct ibv_sge sge = { 0, BYTES, 0 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_INLINE };
	char *mine = calloc(1, BYTES);
	unsigned kept = 0;
	int err = 0;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7,
					      .send_wr = 2 * MORE,
					      .send_cqe = 2 * MORE,
					      .inline_bytes = BYTES });
	sge.addr = (uintptr_t)mine;
	while (kept < MORE && !(err = post(&p.a, &wr)))
		kept++;
	ok(kept == MORE - 1 && err == ENOMEM,
	   "64 MiB of inline data may wait, then ENOMEM");
	modify_state(p.a.qp, IBV_QPS_ERR);
	ok(!soft_engine.copy_bytes, "a flush gives all of it back");
	free(mine);
	pair_close(&p);
}

/* Every allocation of every create fails in turn. */
static void nothing_leaks_when_memory_runs_out(void)
{
	struct pair p;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 4, 4, 2, 2, 0 } };
	bool done = false;

	pair_open(&p, &(struct pair_options){ 0 });
	init.send_cq = init.recv_cq = p.a.send_cq;
	for (int n = 0; !done && n < 64; n++) {
		long live = rk_alloc_live();
		struct ibv_comp_channel *channel;
		struct ibv_cq *cq;
		struct ibv_pd *pd;
		struct ibv_mr *mr;
		struct ibv_qp *qp;

		rk_alloc_fail_at(n);
		channel = v->create_comp_channel(p.a.context);
		cq = v->create_cq(p.a.context, 8, NULL, channel, 0);
		pd = v->alloc_pd(p.a.context);
		mr = pd ? v->reg_mr(pd, p.a.mem, 64, 0) : NULL;
		qp = v->create_qp(p.a.pd, &init);
		rk_alloc_fail_at(-1);
		done = channel && cq && pd && mr && qp;
		ok(done || errno == ENOMEM, "allocation %d fails", n);
		if (qp)
			v->destroy_qp(qp);
		if (mr)
			v->dereg_mr(mr);
		if (pd)
			v->dealloc_pd(pd);
		if (cq)
			v->destroy_cq(cq);
		if (channel)
			v->destroy_comp_channel(channel);
		ok(rk_alloc_live() == live, "and nothing leaks");
	}
	pair_close(&p);
}

int main(void)
{
	v = softverbs_table();
	a_slot_is_free_when_polled();
	receives_are_limited();
	what_is_given_is_written_back();
	an_overrun_is_fatal();
	a_queue_pair_takes_its_completions_along();
	nothing_in_use_is_destroyed();
	regions();
	inline_copies_are_limited();
	nothing_leaks_when_memory_runs_out();
	return ok_done();
}
