/* SPDX-License-Identifier: BSD-3-Clause */
/* Thousands of connections, each with a last word, leave nothing behind. */
#include "softverbs/wire_internal.h"

#include "cm_help.h"

enum { CYCLES = 2000, MESSAGE_BYTES = 32 };

static struct pair pair;
static uint8_t *words;
static struct ibv_mr *mr;

static int post_receive(struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)words + MESSAGE_BYTES,
			       MESSAGE_BYTES, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static int post_send(struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)words, MESSAGE_BYTES, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND }, *bad;

	return ibv_post_send(qp, &wr, &bad);
}

/* The passive side gets what was sent before the disconnect. */
static bool cycle(unsigned n)
{
	struct rdma_conn_param param = { .retry_count = 7,
					 .rnr_retry_count = 7 };
	struct seen seen;
	struct ibv_wc wc;
	bool good;

	pair.active = resolved(pair.active_channel, pair.listener);
	if (!pair.active || qp_new(pair.active) ||
	    v->cm_connect(pair.active, &param) ||
	    !got(pair.passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST, &seen))
		return false;
	pair.passive = seen.id;
	memcpy(words, &n, sizeof(n));
	good = !qp_new(pair.passive) && !post_receive(pair.passive->qp) &&
	       !v->cm_accept(pair.passive, &param) &&
	       got(pair.active_channel, RDMA_CM_EVENT_ESTABLISHED, &seen) &&
	       !post_send(pair.active->qp) &&
	       !v->cm_disconnect(pair.active) &&
	       got(pair.active_channel, RDMA_CM_EVENT_DISCONNECTED, &seen) &&
	       got(pair.passive_channel, RDMA_CM_EVENT_ESTABLISHED, &seen) &&
	       got(pair.passive_channel, RDMA_CM_EVENT_DISCONNECTED, &seen) &&
	       ibv_poll_cq(pair.passive->recv_cq, 1, &wc) == 1 &&
	       wc.status == IBV_WC_SUCCESS && wc.byte_len == MESSAGE_BYTES &&
	       !memcmp(words + MESSAGE_BYTES, &n, sizeof(n));
	id_end(pair.active);
	id_end(pair.passive);
	pair.active = pair.passive = NULL;
	return good;
}

static void one_listener(void)
{
	unsigned good = 0;
	uint64_t start;
	long live;
	int fds;

	ok_or_die(cycle(0), "the first connection");
	settle();
	live = rk_alloc_live();
	fds = open_fds();
	start = rk_now_ns();
	while (good < CYCLES && cycle(good + 1))
		good++;
	printf("# %u connections, %.0f us each\n", good,
	       (double)(rk_now_ns() - start) / 1e3 / CYCLES);
	settle();
	ok(good == CYCLES, "%u of %d connections delivered their last word",
	   good, CYCLES);
	ok(rk_alloc_live() == live, "no memory is left (%ld)",
	   rk_alloc_live() - live);
	ok(open_fds() == fds, "no descriptor is left (%d)", open_fds() - fds);
	ok(!lanes_in_use(), "no lane is in use");
	ok(cm.id_count == 1, "no id but the listener");
}

/* Links come and go too. */
static void many_listeners(void)
{
	struct rdma_conn_param param = { .retry_count = 7 };
	unsigned good = 0;
	long live;
	int fds;

	cm.device->wire->linger_ns = 1;
	settle();
	live = rk_alloc_live();
	fds = open_fds();
	for (int i = 0; i < 100; i++) {
		struct pair own;

		good += pair_open(&own) && pair_connect(&own, &param);
		pair_close(&own);
	}
	settle();
	ok(good == 100, "100 listeners with a link each");
	ok(rk_alloc_live() <= live && open_fds() <= fds && !lanes_in_use(),
	   "nothing is left (%ld allocations, %d descriptors)",
	   rk_alloc_live() - live, open_fds() - fds);
}

/* As many at a time as a program may have. */
static void many_at_once(void)
{
	enum { COUNT = 500 };
	static struct rdma_cm_id *active[COUNT], *passive[COUNT];
	struct rdma_conn_param param = { .retry_count = 7, .qp_num = 1 };
	unsigned good = 0;
	struct seen seen;

	for (int i = 0; i < COUNT; i++) {
		active[i] = resolved(pair.active_channel, pair.listener);
		good += active[i] && !v->cm_connect(active[i], &param);
	}
	for (int i = 0; i < COUNT; i++) {
		if (!got(pair.passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST,
			 &seen))
			break;
		passive[i] = seen.id;
		good += !v->cm_accept(passive[i], &param);
	}
	for (int i = 0; i < COUNT; i++)
		good += got(pair.active_channel,
			    RDMA_CM_EVENT_CONNECT_RESPONSE, &seen);
	ok(good == 3 * COUNT, "%d requests at once are answered", COUNT);
	for (int i = 0; i < COUNT; i++) {
		id_end(active[i]);
		id_end(passive[i]);
	}
	settle();
	ok(!lanes_in_use() && cm.id_count == 1, "and end");
}

int main(void)
{
	v = softverbs_table();
	ok_or_die(pair_open(&pair), "a listener");
	words = v->mem_alloc(NULL, 4096, 0);
	mr = v->reg_mr(pair.listener->pd, words, 4096, IBV_ACCESS_LOCAL_WRITE);
	ok_or_die(words && mr, "memory");
	one_listener();
	many_at_once();
	many_listeners();
	v->dereg_mr(mr);
	v->mem_free(words, 4096);
	pair_close(&pair);
	ok(!cm.pd && !cm.id_count, "the domain goes with the last id");
	return ok_done();
}
