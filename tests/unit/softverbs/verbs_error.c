/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every way a request can fail, by its name: who gets which status, what
 * becomes of the two queue pairs, what is flushed and in which order.
 */
#include "verbs_fate.h"

static void too_long_for_the_receive(void)
{
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	receive(&p.b, 1, 0, 63);
	receive(&p.b, 2, 0, 64);
	send_at(&p.a, 10, 0, 64, 0);
	send_at(&p.a, 11, 0, 8, IBV_SEND_SIGNALED);
	
	wc = poll_one(p.b.recv_cq);
	ok(wc.status == IBV_WC_LOC_LEN_ERR && wc.wr_id == 1,
	   "LOC_LEN_ERR at the target");
	ok(flushed(p.b.recv_cq, 2), "its other receive is flushed");
	ok(state_of(&p.b) == IBV_QPS_ERR, "it is in error");
	pair_close(&p);

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	receive(&p.b, 1, 0, 63);
	receive(&p.b, 2, 0, 64);
	send_at(&p.a, 10, 0, 64, 0);
	send_at(&p.a, 11, 0, 8, IBV_SEND_SIGNALED);
	until(state_of(&p.a) == IBV_QPS_ERR);
	wc = poll_one(p.a.send_cq);
	ok(wc.status == IBV_WC_REM_INV_REQ_ERR && wc.wr_id == 10,
	   "REM_INV_REQ_ERR at the initiator, though unsignalled");
	ok(flushed(p.a.send_cq, 11), "what it had published after is flushed");
	ok(cq_is_empty(p.a.send_cq), "and that is all");
	pair_close(&p);
}

enum wrong { KEY, BEYOND, BEFORE, WRAP, RIGHT, DOMAIN, STALE };

static void wrong_access(enum wrong how, enum ibv_wr_opcode opcode,
			 const char *name)
{
	const struct rk_verbs_table *v = softverbs_table();
	struct pair p;
	int access = PAIR_ACCESS;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1,
				  .opcode = opcode };
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	pd = v->alloc_pd(p.b.context);
	if (how == RIGHT)
		access &= opcode == IBV_WR_RDMA_READ ? ~IBV_ACCESS_REMOTE_READ :
						       ~IBV_ACCESS_REMOTE_WRITE;
	mr = v->reg_mr(how == DOMAIN ? pd : p.b.pd, p.b.mem, 4096, access);
	sge = piece(&p.a, 0, 64);
	memset(p.a.mem, 'x', 64);
	receive(&p.b, 7, 0, 8);
	wr.wr.rdma.rkey = mr->rkey + (how == KEY ? 0x100 * 77 : 0);
	wr.wr.rdma.remote_addr = (uintptr_t)p.b.mem +
				 (how == BEYOND ? 4096 - 63 : 0) -
				 (how == BEFORE ? 1 : 0);
	if (how == WRAP)
		wr.wr.rdma.remote_addr = UINT64_MAX - 31;
	if (how == STALE) {
		v->dereg_mr(mr);
		mr = v->reg_mr(p.b.pd, p.b.mem, 4096, PAIR_ACCESS);
	}
	ok(!post(&p.a, &wr), "an access with %s", name);
	wc = poll_one(p.a.send_cq);
	ok(wc.status == IBV_WC_REM_ACCESS_ERR && wc.wr_id == 1 &&
		   state_of(&p.a) == IBV_QPS_ERR,
	   "REM_ACCESS_ERR, initiator in error");
	ok(flushed(p.b.recv_cq, 7) && state_of(&p.b) == IBV_QPS_ERR,
	   "target in error too, its receive flushed");
	ok(async_is(&p.b, IBV_EVENT_QP_ACCESS_ERR), "and told why");
	ok(!p.b.mem[0] && !p.b.mem[4095], "not a byte was written");
	v->dereg_mr(mr);
	v->dealloc_pd(pd);
	pair_close(&p);
}

static void wrong_local_key(void)
{
	const struct rk_verbs_table *v = softverbs_table();
	struct pair p;
	struct ibv_pd *pd;
	struct ibv_mr *other, *read_only;
	const char *names[] = { "no such key", "a key that is gone",
				"bytes beyond the region",
				"a key of another domain",
				"a remote key" };
	struct ibv_wc wc;

	for (int i = 0; i < 5; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge,
					  .num_sge = 1, .opcode = IBV_WR_SEND };

		pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
		pd = v->alloc_pd(p.a.context);
		other = v->reg_mr(i == 3 ? pd : p.a.pd, p.a.mem, 4096,
				  PAIR_ACCESS);
		sge = (struct ibv_sge){ (uintptr_t)p.a.mem, 64, other->lkey };
		sge.lkey ^= i == 0 ? 0xffff00 : 0;
		sge.length += i == 2 ? 4033 : 0;
		sge.lkey = i == 4 ? other->rkey : sge.lkey;
		if (i == 1) {
			v->dereg_mr(other);
			other = NULL;
		}
		receive(&p.b, 1, 0, 8192);
		ok(!post(&p.a, &wr), "a send with %s", names[i]);
		wc = poll_one(p.a.send_cq);
		ok(wc.status == IBV_WC_LOC_PROT_ERR &&
			   state_of(&p.a) == IBV_QPS_ERR, "LOC_PROT_ERR");
		ok(cq_is_empty(p.b.recv_cq) && state_of(&p.b) == IBV_QPS_RTS,
		   "the peer saw nothing");
		if (other)
			v->dereg_mr(other);
		v->dealloc_pd(pd);
		pair_close(&p);
	}

	pair_open(&p, &(struct pair_options){ 0 });
	read_only = v->reg_mr(p.a.pd, p.a.mem, 4096, 0);
	{
		struct ibv_sge sge = { (uintptr_t)p.a.mem, 64,
				       read_only->lkey };
		struct ibv_send_wr wr = {
			.sg_list = &sge, .num_sge = 1,
			.opcode = IBV_WR_RDMA_READ,
			.wr.rdma = { (uintptr_t)p.b.mem, p.b.mr->rkey },
		};

		post(&p.a, &wr);
	}
	ok(poll_one(p.a.send_cq).status == IBV_WC_LOC_PROT_ERR,
	   "a read into memory without local write: LOC_PROT_ERR");
	v->dereg_mr(read_only);
	pair_close(&p);
}

static void a_receive_with_a_bad_key(void)
{
	struct pair p;
	struct ibv_sge sge;
	struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	receive(&p.b, 1, 0, 8); /* so that the next send is unsure */
	sge = piece(&p.b, 0, 64);
	sge.lkey++;
	ibv_post_recv(p.b.qp, &wr, &bad);
	send_at(&p.a, 1, 0, 8, 0);
	send_at(&p.a, 2, 0, 64, 0);
	ok(poll_one(p.b.recv_cq).wr_id == 1, "a good receive");
	wc = poll_one(p.b.recv_cq);
	ok(wc.status == IBV_WC_LOC_PROT_ERR && wc.wr_id == 2,
	   "a bad one: LOC_PROT_ERR at the target");
	wc = poll_one(p.a.send_cq);
	ok(wc.status == IBV_WC_REM_OP_ERR && wc.wr_id == 2,
	   "REM_OP_ERR at the initiator");
	pair_close(&p);

	pair_open(&p, &(struct pair_options){ 0 });
	sge = piece(&p.b, 0, 64);
	sge.lkey++;
	ibv_post_recv(p.b.qp, &wr, &bad);
	device_pump(true);
	send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED);
	ok(poll_one(p.a.send_cq).status == IBV_WC_SUCCESS,
	   "a send that completed early stays completed");
	ok(until(state_of(&p.a) == IBV_QPS_ERR) &&
		   async_is(&p.a, IBV_EVENT_QP_FATAL),
	   "its queue pair fails with an event");
	pair_close(&p);
}

static void receiver_not_ready(void)
{
	struct ibv_qp_attr attr = { .min_rnr_timer = 14 }; /* 1.28 ms */
	struct pair p;
	struct ibv_wc wc;
	uint64_t began;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 0 });
	send_at(&p.a, 1, 0, 8, 0);
	send_at(&p.a, 2, 0, 8, 0);
	wc = poll_one(p.a.send_cq);
	ok(wc.status == IBV_WC_RNR_RETRY_EXC_ERR && wc.wr_id == 1,
	   "no retry: RNR_RETRY_EXC_ERR at once");
	ok(flushed(p.a.send_cq, 2), "the next is flushed");
	pair_close(&p);

	pair_open(&p, &(struct pair_options){ .rnr_retry = 3 });
	softverbs_table()->modify_qp(p.a.qp, &attr, IBV_QP_MIN_RNR_TIMER);
	began = rk_now_ns();
	access_at(&p.a, &p.b, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 8, 0);
	wc = poll_one(p.a.send_cq);
	ok(wc.status == IBV_WC_RNR_RETRY_EXC_ERR, "three retries: the same");
	ok(rk_now_ns() - began >= 3 * 1280 * RK_NS_PER_US,
	   "after three times the timer");
	pair_close(&p);

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	softverbs_table()->modify_qp(p.a.qp, &attr, IBV_QP_MIN_RNR_TIMER);
	send_at(&p.a, 1, 0, 8, IBV_SEND_SIGNALED);
	began = rk_now_ns();
	while (rk_now_ns() - began < 20 * RK_NS_PER_MS)
		device_pump(true);
	ok(cq_is_empty(p.a.send_cq) && state_of(&p.a) == IBV_QPS_RTS,
	   "seven means for ever");
	receive(&p.b, 1, 0, 8);
	ok(poll_one(p.b.recv_cq).status == IBV_WC_SUCCESS &&
		   poll_one(p.a.send_cq).status == IBV_WC_SUCCESS,
	   "until the receive is there");
	pair_close(&p);
}

static void the_peer_went_to_error(bool destroyed)
{
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	receive(&p.b, 1, 0, 64);
	receive(&p.b, 2, 0, 64);
	device_pump(true);
	send_at(&p.a, 10, 0, 8, IBV_SEND_SIGNALED);
	if (destroyed) {
		softverbs_table()->destroy_qp(p.b.qp);
		p.b.qp = NULL;
	} else {
		modify_state(p.b.qp, IBV_QPS_ERR);
		wc = poll_one(p.b.recv_cq);
		ok(wc.status == IBV_WC_SUCCESS && wc.wr_id == 1,
		   "what had completed at the sender is delivered first");
		ok(flushed(p.b.recv_cq, 2), "then the receives are flushed");
	}
	ok(poll_one(p.a.send_cq).status == IBV_WC_SUCCESS, "the first send");
	ok(state_of(&p.a) == IBV_QPS_RTS, "an idle queue pair stays");
	/* it still holds a credit, and must not be fooled by that */
	send_at(&p.a, 11, 0, 8, IBV_SEND_SIGNALED);
	send_at(&p.a, 12, 0, 8, IBV_SEND_SIGNALED);
	wc = poll_one(p.a.send_cq);
	ok(wc.status == IBV_WC_RETRY_EXC_ERR && wc.wr_id == 11,
	   "to a queue pair %s: RETRY_EXC_ERR",
	   destroyed ? "that is gone" : "in error");
	ok(flushed(p.a.send_cq, 12), "then flushes");
	pair_close(&p);

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	if (destroyed) {
		softverbs_table()->destroy_qp(p.b.qp);
		p.b.qp = NULL;
	} else {
		modify_state(p.b.qp, IBV_QPS_ERR);
	}
	access_at(&p.a, &p.b, IBV_WR_RDMA_WRITE, 1, 0, 64, 0);
	ok(poll_one(p.a.send_cq).status == IBV_WC_RETRY_EXC_ERR,
	   "a write too");
	pair_close(&p);
}

static void everything_is_flushed_in_order(void)
{
	struct pair p;
	unsigned wrong = 0;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7,
					      .inline_bytes = 64 });
	for (unsigned i = 0; i < 10; i++) {
		receive(&p.a, 100 + i, 0, 64);
		send_at(&p.a, 200 + i, 0, 8, i % 3 ? 0 : IBV_SEND_INLINE);
	}
	modify_state(p.a.qp, IBV_QPS_ERR);
	for (unsigned i = 0; i < 10; i++)
		wrong += !flushed(p.a.recv_cq, 100 + i) +
			 !flushed(p.a.send_cq, 200 + i);
	ok(!wrong, "both queues, in order, unsignalled ones too");
	ok(!receive(&p.a, 110, 0, 64) && flushed(p.a.recv_cq, 110),
	   "a receive posted later is taken and flushed");
	ok(!send_at(&p.a, 210, 0, 8, 0) && flushed(p.a.send_cq, 210),
	   "a send too");
	ok(soft_engine.copy_bytes == 0, "copies of inline data are gone");
	pair_close(&p);
}

static void a_read_without_the_depth_for_one(void)
{
	struct pair p;

	pair_open(&p, &(struct pair_options){ .no_reads = true });
	access_at(&p.a, &p.b, IBV_WR_RDMA_READ, 1, 0, 8, 0);
	ok(poll_one(p.a.send_cq).status == IBV_WC_REM_INV_REQ_ERR,
	   "a read where none was negotiated: REM_INV_REQ_ERR");
	pair_close(&p);
}

static void longer_than_a_message_can_be(void)
{
	struct pair p;
	struct ibv_sge sge[2];
	struct ibv_send_wr wr = { .sg_list = sge, .num_sge = 2,
				  .opcode = IBV_WR_SEND };

	pair_open(&p, &(struct pair_options){ .sge = 2, .rnr_retry = 7 });
	sge[0] = sge[1] = piece(&p.a, 0, 0xffffffff);
	ok(!post(&p.a, &wr) &&
		   poll_one(p.a.send_cq).status == IBV_WC_LOC_LEN_ERR,
	   "over 1 GiB: LOC_LEN_ERR");
	pair_close(&p);
}

int main(void)
{
	too_long_for_the_receive();
	wrong_access(KEY, IBV_WR_RDMA_WRITE, "no such key");
	wrong_access(BEYOND, IBV_WR_RDMA_WRITE, "a byte beyond the region");
	wrong_access(BEFORE, IBV_WR_RDMA_WRITE, "a byte before the region");
	wrong_access(WRAP, IBV_WR_RDMA_WRITE, "a range that wraps");
	wrong_access(RIGHT, IBV_WR_RDMA_WRITE, "no right to write");
	wrong_access(RIGHT, IBV_WR_RDMA_READ, "no right to read");
	wrong_access(DOMAIN, IBV_WR_RDMA_WRITE, "a key of another domain");
	wrong_access(STALE, IBV_WR_RDMA_WRITE, "a key that is gone");
	wrong_access(KEY, IBV_WR_RDMA_WRITE_WITH_IMM, "immediate and no key");
	wrong_local_key();
	a_receive_with_a_bad_key();
	receiver_not_ready();
	the_peer_went_to_error(false);
	the_peer_went_to_error(true);
	everything_is_flushed_in_order();
	a_read_without_the_depth_for_one();
	longer_than_a_message_can_be();
	return ok_done();
}
