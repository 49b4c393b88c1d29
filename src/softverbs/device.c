/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software device of this process: its lock, its wire, its contexts, what
 * it says of itself, and what becomes of it in a forked child.
 *
 * The device starts with its first use and lives as long as the process.  A
 * child has the parent's memory but not its place on the wire: the fork
 * handler makes it inert, every later call answers ENODEV and frees nothing.
 * Any thread.
 */
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "softverbs/objects.h"

struct engine soft_engine = {
	.base.lock = PTHREAD_MUTEX_INITIALIZER,
	.acked = PTHREAD_COND_INITIALIZER,
	.ibv = {
		.node_type = IBV_NODE_CA,
		.transport_type = IBV_TRANSPORT_IB,
		.name = "rdmakit0",
		.dev_name = "rdmakit0",
	},
};

/* ---- what the wire tells us ------------------------------------------- */

static void on_message(void *user, struct wire_link *link, const void *message,
		       size_t bytes)
{
	soft_cm_message(&soft_engine.base, link, message, bytes);
}

static void on_lane(void *user, struct wire_lane *lane)
{
	qp_visit(rk_container_of(lane, struct soft_qp, lane));
}

static void on_gone(void *user, struct wire_link *link)
{
	struct rk_list *pos, *tmp;

	rk_list_for_each_safe(pos, tmp, &soft_engine.qps) {
		struct soft_qp *qp = rk_list_entry(pos, struct soft_qp, node);

		if (qp->lane.link == link)
			qp_peer_gone(qp);
	}
	soft_cm_gone(&soft_engine.base, link);
}

static const struct wire_handler wire_events = {
	.message = on_message,
	.lane = on_lane,
	.gone = on_gone,
};

/* ---- start and fork --------------------------------------------------- */

static void in_forked_child(void)
{
	static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;

	/* a thread that exists no more may have held it */
	soft_engine.base.lock = unlocked;
	soft_engine.base.inert = true;
	if (soft_engine.base.wire)
		wire_abandon(soft_engine.base.wire);
	soft_cm_abandon();
}

static void visit_revisits(void)
{
	while (!rk_list_empty(&soft_engine.revisit)) {
		struct soft_qp *qp = rk_list_first(&soft_engine.revisit,
						   struct soft_qp, revisit);

		rk_list_remove(&qp->revisit);
		qp_visit(qp);
	}
}

static void on_revisit_timer(struct wire_timer *timer)
{
	visit_revisits();
}

static int start(void)
{
	static bool fork_handler_set;
	int err;

	if (!fork_handler_set) {
		err = -pthread_atfork(NULL, NULL, in_forked_child);
		if (err)
			return err;
		fork_handler_set = true;
	}
	rk_list_init(&soft_engine.qps);
	rk_list_init(&soft_engine.revisit);
	rk_list_init(&soft_engine.revisit_timer.node);
	soft_engine.revisit_timer.fire = on_revisit_timer;
	/* numbers differ between processes, which helps to read a trace */
	soft_engine.last_qpn = ((uint32_t)getpid() & 0xfff) << 12;
	return wire_open(&soft_engine.base.wire, &wire_events, NULL);
}

struct soft_device *soft_enter(void)
{
	int err = 0;

	if (!engine_lock()) {
		errno = ENODEV;
		return NULL;
	}
	if (rk_unlikely(!soft_engine.base.wire))
		err = start();
	if (err) {
		pthread_mutex_unlock(&soft_engine.base.lock);
		errno = -err;
		return NULL;
	}
	return &soft_engine.base;
}

void soft_unlock(struct soft_device *device)
{
	engine_unlock();
}

/* ---- pumping and sleeping --------------------------------------------- */

void engine_pump(bool thorough)
{
	if (rk_unlikely(!rk_list_empty(&soft_engine.revisit)))
		visit_revisits();
	wire_pump(soft_engine.base.wire, thorough);
}

bool engine_promise(void)
{
	return wire_sleep(soft_engine.base.wire);
}

void engine_release_promise(void)
{
	if (!soft_engine.armed && !soft_engine.sleepers)
		wire_wake(soft_engine.base.wire);
}

void qp_revisit(struct soft_qp *qp)
{
	rk_list_remove(&qp->revisit);
	rk_list_add_tail(&soft_engine.revisit, &qp->revisit);
	wire_timer_set(soft_engine.base.wire, &soft_engine.revisit_timer, 1);
}

/* ---- contexts --------------------------------------------------------- */

struct ibv_device **device_list_get(int *count)
{
	struct soft_device *device = soft_enter();
	struct ibv_device **list;

	if (!device)
		return NULL;
	soft_unlock(device);
	list = rk_calloc(2, sizeof(*list));
	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	list[0] = &soft_engine.ibv;
	if (count)
		*count = 1;
	return list;
}

void device_list_free(struct ibv_device **list)
{
	rk_free(list);
}

const char *device_name(struct ibv_device *device)
{
	return device->name;
}

static struct soft_context *context_new(void)
{
	struct soft_context *context = rk_zalloc(sizeof(*context));

	if (!context)
		goto err_errno;
	/* The program may set O_NONBLOCK on it; drained only when signalled. */
	context->ibv.async_fd = eventfd(0, EFD_CLOEXEC);
	if (context->ibv.async_fd < 0)
		goto err_free;
	context->ibv.cmd_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (context->ibv.cmd_fd < 0)
		goto err_async_fd;
	context->ibv.device = &soft_engine.ibv;
	context->ibv.num_comp_vectors = 1;
	context->ibv.ops.poll_cq = cq_poll;
	context->ibv.ops.req_notify_cq = cq_req_notify;
	context->ibv.ops.post_send = qp_post_send;
	context->ibv.ops.post_recv = qp_post_recv;
	pthread_mutex_init(&context->ibv.mutex, NULL);
	rk_list_init(&context->events);
	return context;

err_async_fd:
	close(context->ibv.async_fd);
err_free:
	rk_free(context);
	return NULL;
err_errno:
	errno = ENOMEM;
	return NULL;
}

struct ibv_context *context_open(struct ibv_device *ibv)
{
	struct soft_device *device = soft_enter();
	struct soft_context *context;

	if (!device)
		return NULL;
	context = context_new();
	soft_unlock(device);
	return context ? &context->ibv : NULL;
}

struct ibv_context *soft_context(struct soft_device *device)
{
	if (!soft_engine.cm_context)
		soft_engine.cm_context = context_new();
	return soft_engine.cm_context ? &soft_engine.cm_context->ibv : NULL;
}

/* EBUSY while something made from it lives. */
int context_close(struct ibv_context *ibv)
{
	struct soft_context *context = context_of(ibv);

	if (!engine_lock())
		return ENODEV;
	if (context->users || context == soft_engine.cm_context) {
		engine_unlock();
		return EBUSY;
	}
	engine_unlock();
	close(context->ibv.async_fd);
	close(context->ibv.cmd_fd);
	pthread_mutex_destroy(&context->ibv.mutex);
	rk_free(context);
	return 0;
}

/* ---- what it says of itself ------------------------------------------- */

int device_query(struct ibv_context *context, struct ibv_device_attr *attr)
{
	if (!engine_lock())
		return ENODEV;
	engine_unlock();
	*attr = (struct ibv_device_attr){
		.fw_ver = "1",
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 4096,
		.max_qp = MAX_QP,
		.max_qp_wr = MAX_QP_WR,
		.max_sge = MAX_SGE,
		.max_sge_rd = MAX_SGE,
		.max_cq = MAX_CQ,
		.max_cqe = MAX_CQE,
		.max_mr = MAX_MR,
		.max_pd = MAX_PD,
		.max_qp_rd_atom = MAX_RD_ATOMIC,
		.max_res_rd_atom = MAX_QP * MAX_RD_ATOMIC,
		.max_qp_init_rd_atom = MAX_RD_ATOMIC,
		.atomic_cap = IBV_ATOMIC_NONE,
		.max_pkeys = 1,
		.phys_port_cnt = 1,
	};
	return 0;
}

int device_query_port(struct ibv_context *context, uint8_t port,
		      struct ibv_port_attr *attr)
{
	if (!engine_lock())
		return ENODEV;
	engine_unlock();
	if (port != 1)
		return EINVAL;
	*attr = (struct ibv_port_attr){
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = 1,
		.max_msg_sz = MAX_MESSAGE_BYTES,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = 2,  /* 4 lanes */
		.active_speed = 64, /* HDR */
		.phys_state = 5,    /* link up */
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};
	return 0;
}
