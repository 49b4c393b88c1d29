/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state machine as a program sees it: which transitions there are, which
 * attributes each requires and allows, what may be posted in which state.
 */
#include "verbs_pair.h"

static const struct rk_verbs_table *v;

enum {
	INIT_MASK = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	RTR_MASK = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		   IBV_QP_MIN_RNR_TIMER,
	RTS_MASK = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
	ALL_BITS = IBV_QP_DEST_QPN | (IBV_QP_DEST_QPN - 1),
};

static int modify(struct ibv_qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1,
				    .cur_qp_state = qp->state };

	attr.qp_access_flags = PAIR_ACCESS;
	return v->modify_qp(qp, &attr, mask | IBV_QP_STATE);
}

/* Each required bit missing, each other bit too many. */
static void masks(struct ibv_qp *qp, enum ibv_qp_state state, int required,
		  int optional, const char *name)
{
	unsigned wrong = 0;

	for (int bit = IBV_QP_STATE << 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
		int err;

		if (bit & required)
			err = modify(qp, state, required & ~bit);
		else if (!(bit & optional))
			err = modify(qp, state, required | bit);
		else
			continue;
		wrong += err != EINVAL;
	}
	ok(!wrong, "%s: each attribute missing or too many is EINVAL", name);
}

static void the_way_up(void)
{
	struct pair p;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 2 };
	struct ibv_qp *qp;

	pair_open(&p, &(struct pair_options){ 0 });
	init.send_cq = init.recv_cq = p.a.send_cq;
	qp = v->create_qp(p.a.pd, &init);
	ok(qp->state == IBV_QPS_RESET && modify(qp, IBV_QPS_RTR, RTR_MASK) ==
						 EINVAL &&
		   modify(qp, IBV_QPS_RTS, RTS_MASK) == EINVAL,
	   "no state is skipped");
	masks(qp, IBV_QPS_INIT, INIT_MASK, 0, "RESET to INIT");
	ok(v->modify_qp(qp, &attr, INIT_MASK | IBV_QP_STATE) == EINVAL,
	   "a port that is not there");
	ok(!modify(qp, IBV_QPS_INIT, INIT_MASK) && qp->state == IBV_QPS_INIT,
	   "INIT");
	ok(!modify(qp, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS), "INIT to INIT");
	masks(qp, IBV_QPS_RTR, RTR_MASK,
	      IBV_QP_ALT_PATH | INIT_MASK, "INIT to RTR");
	ok(modify(qp, IBV_QPS_RTR, RTR_MASK) == EOPNOTSUPP &&
		   qp->state == IBV_QPS_INIT,
	   "RTR without the connection manager is not supported");
	ok(modify(qp, IBV_QPS_SQD, 0) == EINVAL, "INIT to SQD is none");
	ok(!modify(qp, IBV_QPS_ERR, 0) && qp->state == IBV_QPS_ERR, "ERR");
	ok(modify(qp, IBV_QPS_INIT, INIT_MASK) == EINVAL, "a dead end");
	masks(qp, IBV_QPS_RESET, 0, 0, "ERR to RESET");
	ok(!modify(qp, IBV_QPS_RESET, 0) &&
		   !modify(qp, IBV_QPS_INIT, INIT_MASK), "and round again");
	v->destroy_qp(qp);

	masks(p.a.qp, IBV_QPS_RTS, 0,
	      IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH |
		      IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER,
	      "RTS to RTS");
	attr = (struct ibv_qp_attr){ .min_rnr_timer = 32 };
	ok(v->modify_qp(p.a.qp, &attr, IBV_QP_MIN_RNR_TIMER) == EINVAL,
	   "a timer code that is not one");
	attr = (struct ibv_qp_attr){ .qp_access_flags = 0 };
	ok(v->modify_qp(p.a.qp, &attr, IBV_QP_ACCESS_FLAGS) == EOPNOTSUPP,
	   "fewer rights than a connection has are not silently ignored");
	ok(modify(p.a.qp, IBV_QPS_SQD, 0) == EOPNOTSUPP, "SQD");
	ok(p.a.qp->state == IBV_QPS_RTS, "it is still ready to send");
	pair_close(&p);
}

static void rtr_to_rts(void)
{
	struct pair p;
	struct ibv_wc wc;
	const struct pair_options o = { .not_ready = true, .rnr_retry = 7 };

	pair_open(&p, &o);
	end_connect(&p.b, p.lane, p.a.qp->qp_num, &o);
	end_connect(&p.a, p.lane, p.b.qp->qp_num, &o);
	ok(p.a.qp->state == IBV_QPS_RTR && send_at(&p.a, 1, 0, 8, 0) == EINVAL,
	   "nothing is sent in RTR");
	masks(p.a.qp, IBV_QPS_RTS, RTS_MASK,
	      IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
		      IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE,
	      "RTR to RTS");
	ok(!modify(p.a.qp, IBV_QPS_RTS, RTS_MASK), "RTS by the program");
	receive(&p.b, 1, 0, 8);
	ok(!send_at(&p.a, 1, 0, 8, 0), "and it sends");
	wc = poll_one(p.b.recv_cq);
	ok(wc.status == IBV_WC_SUCCESS && p.b.first_records == 1,
	   "a target in RTR receives, and says so");
	pair_close(&p);
}

static void posting_by_state(void)
{
	struct pair p;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_recv_wr recv = { 0 }, *bad_recv = NULL;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_qp *qp;

	pair_open(&p, &(struct pair_options){ 0 });
	init.send_cq = init.recv_cq = p.a.send_cq;
	qp = v->create_qp(p.a.pd, &init);
	ok(ibv_post_recv(qp, &recv, &bad_recv) == EINVAL && bad_recv == &recv,
	   "no receive in RESET");
	ok(ibv_post_send(qp, &send, &bad) == EINVAL && bad == &send,
	   "no send in RESET");
	modify(qp, IBV_QPS_INIT, INIT_MASK);
	ok(!ibv_post_recv(qp, &recv, &bad_recv), "a receive in INIT");
	ok(ibv_post_send(qp, &send, &bad) == EINVAL, "no send in INIT");
	modify(qp, IBV_QPS_RESET, 0);
	modify(qp, IBV_QPS_ERR, 0);
	ok(cq_is_empty(p.a.send_cq), "RESET forgets without a completion");
	v->destroy_qp(qp);
	send.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	ok(ibv_post_send(p.a.qp, &send, &bad) == EOPNOTSUPP, "no atomics");
	send = (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_READ,
				     .send_flags = IBV_SEND_INLINE };
	ok(ibv_post_send(p.a.qp, &send, &bad) == EINVAL, "no inline read");
	pair_close(&p);
}

static void receives_before_the_connection_survive(void)
{
	const struct pair_options o = { .not_ready = true };
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, &o);
	receive(&p.b, 5, 0, 64);
	end_connect(&p.b, p.lane, p.a.qp->qp_num, &o);
	end_connect(&p.a, p.lane, p.b.qp->qp_num, &o);
	end_ready(&p.a);
	send_at(&p.a, 1, 0, 8, IBV_SEND_SIGNALED);
	wc = poll_one(p.b.recv_cq);
	ok(wc.wr_id == 5 && wc.status == IBV_WC_SUCCESS,
	   "a receive posted in INIT takes the first send, without a retry");
	pair_close(&p);
}

/* The passive side is ready as soon as it accepts. */
static void a_peer_that_is_not_ready_yet_is_waited_for(void)
{
	const struct pair_options o = { .not_ready = true, .rnr_retry = 7 };
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, &o);
	receive(&p.a, 5, 0, 64);
	end_connect(&p.b, p.lane, p.a.qp->qp_num, &o);
	end_ready(&p.b);
	strcpy(p.b.mem, "early");
	send_at(&p.b, 1, 0, 8, IBV_SEND_SIGNALED);
	access_at(&p.b, &p.a, IBV_WR_RDMA_WRITE, 2, 4096, 8,
		  IBV_SEND_SIGNALED);
	ok(cq_is_empty(p.b.send_cq), "not done while the peer is in INIT");
	end_connect(&p.a, p.lane, p.b.qp->qp_num, &o);
	end_ready(&p.a);
	wc = poll_one(p.a.recv_cq);
	ok(wc.wr_id == 5 && !strcmp(p.a.mem, "early"), "it arrives later");
	ok(poll_one(p.b.send_cq).wr_id == 1 && poll_one(p.b.send_cq).wr_id == 2,
	   "and both complete");
	pair_close(&p);

	/* a write alone: nothing moves at the peer but that it admits */
	pair_open(&p, &o);
	end_connect(&p.b, p.lane, p.a.qp->qp_num, &o);
	end_ready(&p.b);
	access_at(&p.b, &p.a, IBV_WR_RDMA_WRITE, 2, 0, 8, IBV_SEND_SIGNALED);
	ok(cq_is_empty(p.b.send_cq), "a write alone waits too");
	end_connect(&p.a, p.lane, p.b.qp->qp_num, &o);
	ok(poll_one(p.b.send_cq).wr_id == 2, "and goes when it may");
	pair_close(&p);
}

static void a_lane_is_used_again(void)
{
	struct pair p;
	unsigned lane = BOX_LANES, wrong = 0;

	for (int i = 0; i < 50; i++) {
		pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
		wrong += lane != BOX_LANES && lane != p.lane;
		lane = p.lane;
		receive(&p.b, 1, 0, 64);
		send_at(&p.a, 1, 0, 8, 0);
		wrong += poll_one(p.b.recv_cq).status != IBV_WC_SUCCESS;
		if (i % 2) /* something is left in the lane */
			send_at(&p.a, 1, 0, 8, 0);
		pair_close(&p);
	}
	ok(!wrong, "fifty connections one after the other over one lane");
	ok(cm_lane_closed[lane] >= 100, "each end said that it closed it");
}

int main(void)
{
	v = softverbs_table();
	the_way_up();
	rtr_to_rts();
	posting_by_state();
	receives_before_the_connection_survive();
	a_peer_that_is_not_ready_yet_is_waited_for();
	a_lane_is_used_again();
	return ok_done();
}
