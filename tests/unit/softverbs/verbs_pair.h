/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two connected queue pairs, without the connection manager: this file is the
 * connection manager, as little of it as the verbs side needs.  Both ends are
 * in this process (a link to itself); verbs_peer.h has those of two processes.
 * Included once per test program.
 */
#ifndef RK_TESTS_VERBS_PAIR_H
#define RK_TESTS_VERBS_PAIR_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "softverbs/engine.h"

#include "ok.h"

enum { DEADLINE_MS = 5000 };

struct end {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *mem;
	size_t mem_bytes;
	struct wire_link *link;
	/* what the queue pair told its connection manager */
	unsigned first_records, disconnects, gone;
	char farewell[256];
	size_t farewell_bytes;
};

struct pair {
	struct end a, b;
	unsigned lane;
};

/* 0 means the default in the comment. */
struct pair_options {
	unsigned send_wr, recv_wr; /* 16 */
	unsigned sge;		   /* 1 */
	unsigned inline_bytes;
	unsigned send_cqe, recv_cqe; /* 256 */
	size_t mem_bytes;	     /* 1 MiB */
	int access;		     /* all but atomic */
	unsigned rnr_retry;	     /* 0; 7 for ever */
	bool no_reads;		     /* no read may be outstanding */
	bool sig_all;
	bool no_channel;
	bool not_ready; /* leave both in INIT, lanes open */
	bool private_memory;
};

enum {
	PAIR_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		      IBV_ACCESS_REMOTE_READ,
};

/* ---- the connection manager ------------------------------------------- */

static struct wire_link *cm_passive; /* the last link a message came over */
static char cm_word[64];
static unsigned cm_words, cm_links_gone, cm_abandoned;
static unsigned cm_lane_closed[BOX_LANES];

void soft_cm_message(struct soft_device *device, struct wire_link *link,
		     const void *message, size_t bytes)
{
	if (cm_passive)
		wire_put(cm_passive);
	cm_passive = wire_get(link);
	memcpy(cm_word, message, rk_min(bytes, sizeof(cm_word)));
	cm_words++;
}

void soft_cm_gone(struct soft_device *device, struct wire_link *link)
{
	cm_links_gone++;
}

void soft_cm_abandon(void)
{
	cm_abandoned++;
}

void soft_cm_fill_table(struct rk_verbs_table *table)
{
}

void soft_cm_lane_closed(struct wire_link *link, unsigned lane)
{
	cm_lane_closed[lane]++;
}

static void end_first_record(void *cm)
{
	((struct end *)cm)->first_records++;
}

static void end_disconnected(void *cm, const void *private_data, size_t bytes)
{
	struct end *end = cm;

	end->disconnects++;
	end->farewell_bytes = bytes;
	memcpy(end->farewell, private_data, bytes);
}

static void end_gone(void *cm)
{
	((struct end *)cm)->gone++;
}

static const struct soft_cm_events end_events = {
	.first_record = end_first_record,
	.disconnected = end_disconnected,
	.gone = end_gone,
};

/* ---- small things ----------------------------------------------------- */

static void device_pump(bool thorough)
{
	struct soft_device *device = soft_enter();

	if (!device)
		return;
	wire_pump(device->wire, thorough);
	soft_unlock(device);
}

#define until(cond)                                                     \
	({                                                              \
		uint64_t until_ = rk_now_ns() + DEADLINE_MS * RK_NS_PER_MS; \
		while (!(cond) && rk_now_ns() < until_)                 \
			device_pump(true);                              \
		!!(cond);                                               \
	})

/* One completion, or a status that no completion has. */
static struct ibv_wc poll_one(struct ibv_cq *cq)
{
	uint64_t deadline = rk_now_ns() + DEADLINE_MS * RK_NS_PER_MS;
	struct ibv_wc wc = { .status = (enum ibv_wc_status)1000 };

	while (!ibv_poll_cq(cq, 1, &wc) && rk_now_ns() < deadline)
		device_pump(true);
	return wc;
}

static bool cq_is_empty(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	device_pump(true);
	return !ibv_poll_cq(cq, 1, &wc);
}

static int modify_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return softverbs_table()->modify_qp(qp, &attr, IBV_QP_STATE);
}

/* ---- ends ------------------------------------------------------------- */

static struct wire_listener *listener;

/* Listen on a port of our choosing; the child of a fork gets it by memory. */
static uint16_t pair_listen(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct soft_device *device = soft_enter();
	int err;

	ok_or_die(device, "the device starts");
	err = wire_bind(device->wire, (struct sockaddr *)&addr, false,
			&listener);
	if (!err)
		err = wire_listen(listener, 0);
	soft_unlock(device);
	ok_or_die(!err, "a port is bound (%d)", err);
	return wire_listener_port(listener);
}

static struct wire_link *pair_connect(uint16_t port)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct soft_device *device = soft_enter();
	struct wire_link *link = NULL;

	if (wire_connect(device->wire, (struct sockaddr *)&addr, &link))
		link = NULL;
	soft_unlock(device);
	return link;
}

static void say(struct wire_link *link, const char *word)
{
	struct soft_device *device = soft_enter();

	if (wire_send(link, word, strlen(word) + 1))
		printf("# nothing could be said\n");
	soft_unlock(device);
}

static char *end_alloc(struct end *end, size_t bytes, bool private_memory)
{
	struct soft_device *device = soft_enter();
	char *mem = wire_mem_alloc(device->wire,
				   private_memory ? NULL : end->link, bytes,
				   IBV_ACCESS_REMOTE_WRITE |
					   IBV_ACCESS_REMOTE_READ);

	soft_unlock(device);
	return mem;
}

static void end_free(char *mem)
{
	struct soft_device *device = soft_enter();

	wire_mem_free(device->wire, mem);
	soft_unlock(device);
}

static void end_open(struct end *end, struct wire_link *link,
		     const struct pair_options *o)
{
	const struct rk_verbs_table *v = softverbs_table();
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct soft_device *device;

	end->link = link;
	device = soft_enter();
	end->context = soft_context(device);
	soft_unlock(device);
	if (!o->no_channel)
		end->channel = v->create_comp_channel(end->context);
	end->pd = v->alloc_pd(end->context);
	end->send_cq = v->create_cq(end->context,
				    (int)(o->send_cqe ? o->send_cqe : 256),
				    end, end->channel, 0);
	end->recv_cq = v->create_cq(end->context,
				    (int)(o->recv_cqe ? o->recv_cqe : 256),
				    end, end->channel, 0);
	init.send_cq = end->send_cq;
	init.recv_cq = end->recv_cq;
	init.sq_sig_all = o->sig_all;
	init.cap = (struct ibv_qp_cap){
		.max_send_wr = o->send_wr ? o->send_wr : 16,
		.max_recv_wr = o->recv_wr ? o->recv_wr : 16,
		.max_send_sge = o->sge ? o->sge : 1,
		.max_recv_sge = o->sge ? o->sge : 1,
		.max_inline_data = o->inline_bytes,
	};
	end->qp = v->create_qp(end->pd, &init);
	end->mem_bytes = o->mem_bytes ? o->mem_bytes : 1 << 20;
	end->mem = end_alloc(end, end->mem_bytes, o->private_memory);
	if (end->mem)
		end->mr = v->reg_mr(end->pd, end->mem, end->mem_bytes,
				    o->access ? o->access : PAIR_ACCESS);
	if (!end->qp || !end->mr) {
		printf("Bail out! an end could not be made: %s\n",
		       strerror(errno));
		exit(1);
	}
}

static int end_open_lane(struct end *end, unsigned lane)
{
	struct soft_device *device = soft_enter();
	struct soft_qp *qp = soft_qp_of(end->qp);
	int err = soft_qp_init(qp);

	if (!err)
		err = soft_qp_open_lane(qp, end->link, lane);
	soft_unlock(device);
	return err;
}

static int end_connect(struct end *end, unsigned lane, uint32_t dest_qpn,
		       const struct pair_options *o)
{
	struct soft_path path = {
		.link = end->link,
		.lane = lane,
		.dest_qpn = dest_qpn,
		.retry_count = 7,
		.rnr_retry_count = (uint8_t)o->rnr_retry,
		.max_rd_atomic = !o->no_reads,
		.max_dest_rd_atomic = !o->no_reads,
	};
	struct soft_device *device = soft_enter();
	int err = soft_qp_connect(soft_qp_of(end->qp), &path, &end_events, end);

	soft_unlock(device);
	return err;
}

static int end_ready(struct end *end)
{
	struct soft_device *device = soft_enter();
	int err = soft_qp_ready(soft_qp_of(end->qp));

	soft_unlock(device);
	return err;
}

static void end_close(struct end *end)
{
	const struct rk_verbs_table *v = softverbs_table();

	if (end->qp)
		v->destroy_qp(end->qp);
	v->destroy_cq(end->send_cq);
	v->destroy_cq(end->recv_cq);
	if (end->channel)
		v->destroy_comp_channel(end->channel);
	v->dereg_mr(end->mr);
	end_free(end->mem);
	v->dealloc_pd(end->pd);
	memset(end, 0, sizeof(*end));
}

/* ---- pairs ------------------------------------------------------------ */

static struct wire_link *self_active, *self_passive;

/* Both ends in this process. */
static void pair_open(struct pair *pair, const struct pair_options *o)
{
	struct soft_device *device;
	int err;

	memset(pair, 0, sizeof(*pair));
	if (!self_active) {
		self_active = pair_connect(pair_listen());
		ok_or_die(self_active, "a link to itself");
		say(self_active, "hello");
		ok_or_die(until(cm_passive), "and its other end");
		self_passive = cm_passive;
	}
	device = soft_enter();
	err = lane_reserve(self_active, &pair->lane);
	soft_unlock(device);
	end_open(&pair->a, self_active, o);
	end_open(&pair->b, self_passive, o);
	err = err ? err : end_open_lane(&pair->a, pair->lane);
	err = err ? err : end_open_lane(&pair->b, pair->lane);
	if (!o->not_ready) {
		err = err ? err : end_connect(&pair->b, pair->lane,
					      pair->a.qp->qp_num, o);
		err = err ? err : end_connect(&pair->a, pair->lane,
					      pair->b.qp->qp_num, o);
		err = err ? err : end_ready(&pair->a);
		err = err ? err : end_ready(&pair->b);
	}
	device_pump(true);
	if (err) {
		printf("Bail out! no pair: %s\n", strerror(-err));
		exit(1);
	}
}

static void pair_close(struct pair *pair)
{
	struct soft_device *device;

	end_close(&pair->a);
	end_close(&pair->b);
	device = soft_enter();
	lane_unreserve(self_active, pair->lane);
	soft_unlock(device);
}

/* ---- requests --------------------------------------------------------- */

static struct ibv_sge piece(const struct end *end, size_t offset, size_t bytes)
{
	return (struct ibv_sge){ (uintptr_t)end->mem + offset, (uint32_t)bytes,
				 end->mr->lkey };
}

static int receive(struct end *end, uint64_t wr_id, size_t offset, size_t bytes)
{
	struct ibv_sge sge = piece(end, offset, bytes);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge,
				  .num_sge = 1 }, *bad;

	return ibv_post_recv(end->qp, &wr, &bad);
}

static int post(struct end *end, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;

	return ibv_post_send(end->qp, wr, &bad);
}

static int send_at(struct end *end, uint64_t wr_id, size_t offset, size_t bytes,
		   unsigned flags)
{
	struct ibv_sge sge = piece(end, offset, bytes);
	struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge,
				  .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = flags };

	return post(end, &wr);
}

/* One-sided, between the same offsets of both memories. */
static int access_at(struct end *end, const struct end *peer,
		     enum ibv_wr_opcode opcode, uint64_t wr_id, size_t offset,
		     size_t bytes, unsigned flags)
{
	struct ibv_sge sge = piece(end, offset, bytes);
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = 1,
		.opcode = opcode, .send_flags = flags,
		.imm_data = htonl((uint32_t)wr_id),
		.wr.rdma = { (uintptr_t)peer->mem + offset, peer->mr->rkey },
	};

	return post(end, &wr);
}

static inline void pair_unused(void)
{
	(void)poll_one, (void)cq_is_empty, (void)modify_state, (void)receive;
	(void)send_at, (void)access_at, (void)pair_open, (void)pair_close;
	(void)cm_links_gone, (void)cm_abandoned;
}

#endif
