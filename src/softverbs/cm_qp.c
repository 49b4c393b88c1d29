/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs and memory of an id, and the protection domain that ids share.
 * These calls use the table of the device, which takes the lock itself: so it
 * is not held where a comment does not say otherwise.  Any thread of the
 * program; as with librdmacm, one id is used by one thread at a time.
 */
#include <errno.h>

#include "softverbs/cm_internal.h"

/* ---- the protection domain -------------------------------------------- */

static int pd_make(struct soft_device *device)
{
	const struct rk_verbs_table *verbs = softverbs_table();
	struct ibv_context *context = soft_context(device);
	struct ibv_device_attr attr;
	struct ibv_pd *pd;
	int ret = context ? 0 : -errno;

	soft_unlock(device);
	if (ret)
		return ret;
	ret = -verbs->query_device(context, &attr);
	if (ret)
		return ret;
	pd = verbs->alloc_pd(context);
	if (!pd)
		return -errno;
	device = soft_enter();
	if (!device)
		return -errno;
	cm.max_responder_resources = (uint8_t)rk_min(attr.max_qp_rd_atom, 254);
	cm.max_initiator_depth =
		(uint8_t)rk_min(attr.max_qp_init_rd_atom, 254);
	if (!cm.pd) { /* no other thread was faster */
		cm.pd = pd;
		pd = NULL;
	}
	cm.pd_users++;
	soft_unlock(device);
	if (pd)
		verbs->dealloc_pd(pd);
	return 0;
}

int cm_pd_get(void)
{
	struct soft_device *device = soft_enter();

	if (!device)
		return -errno;
	if (!cm.pd)
		return pd_make(device);
	cm.pd_users++;
	soft_unlock(device);
	return 0;
}

/* With something of the program's still on it, it stays for the next id. */
void cm_pd_put(void)
{
	struct soft_device *device = soft_enter();
	struct ibv_pd *pd = NULL;

	if (!device)
		return;
	if (!--cm.pd_users) {
		pd = cm.pd;
		cm.pd = NULL;
	}
	soft_unlock(device);
	if (!pd || !softverbs_table()->dealloc_pd(pd))
		return;
	device = soft_enter();
	if (!device)
		return;
	if (!cm.pd)
		cm.pd = pd;
	soft_unlock(device);
}

/* ---- queue pairs ------------------------------------------------------ */

static struct ibv_cq *make_cq(struct rdma_cm_id *id, int entries,
			      struct ibv_comp_channel **channel)
{
	const struct rk_verbs_table *verbs = softverbs_table();
	struct ibv_cq *cq;
	int saved;

	*channel = verbs->create_comp_channel(id->verbs);
	if (!*channel)
		return NULL;
	cq = verbs->create_cq(id->verbs, entries, id, *channel, 0);
	if (cq)
		return cq;
	saved = errno;
	verbs->destroy_comp_channel(*channel);
	*channel = NULL;
	errno = saved;
	return NULL;
}

static void drop_cq(struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	const struct rk_verbs_table *verbs = softverbs_table();

	if (*cq)
		verbs->destroy_cq(*cq);
	if (*channel)
		verbs->destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

static void drop_cqs(struct rdma_cm_id *id)
{
	drop_cq(&id->recv_cq, &id->recv_cq_channel);
	drop_cq(&id->send_cq, &id->send_cq_channel);
}

/* Where the program gives none, an id gets its own. */
static int make_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr *attr)
{
	if (!attr->recv_cq) {
		id->recv_cq = make_cq(id, (int)rk_max(attr->cap.max_recv_wr, 1u),
				      &id->recv_cq_channel);
		if (!id->recv_cq)
			return -errno;
	}
	if (!attr->send_cq) {
		id->send_cq = make_cq(id, (int)rk_max(attr->cap.max_send_wr, 1u),
				      &id->send_cq_channel);
		if (!id->send_cq)
			return -errno;
	}
	return 0;
}

static int init_qp(struct ibv_qp *qp)
{
	struct soft_device *device = soft_enter();
	int ret;

	if (!device)
		return -errno;
	ret = soft_qp_init(soft_qp_of(qp));
	soft_unlock(device);
	return ret;
}

static int create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		     struct ibv_qp_init_attr *attr)
{
	const struct rk_verbs_table *verbs = softverbs_table();
	struct ibv_qp_init_attr wanted = *attr;
	struct ibv_qp *qp;
	int ret;

	ret = make_cqs(id, &wanted);
	if (ret)
		goto err_cqs;
	if (!wanted.recv_cq)
		wanted.recv_cq = id->recv_cq;
	if (!wanted.send_cq)
		wanted.send_cq = id->send_cq;
	qp = verbs->create_qp(pd, &wanted);
	if (!qp) {
		ret = -errno;
		goto err_cqs;
	}
	ret = init_qp(qp);
	if (ret)
		goto err_qp;
	*attr = wanted;
	id->pd = pd;
	id->srq = attr->srq;
	id->qp = qp;
	return 0;

err_qp:
	verbs->destroy_qp(qp);
err_cqs:
	drop_cqs(id);
	return ret;
}

/*
 * pd NULL means the id's own.  EINVAL: no device yet (before ADDR_RESOLVED),
 * a queue pair already, not a reliable connected one, or a pd of another
 * context.  Posting receives is possible from here on.
 */
int soft_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
			struct ibv_qp_init_attr *attr)
{
	if (!id->verbs || id->qp || attr->qp_type != id->qp_type)
		return cm_result(-EINVAL);
	if (!pd)
		pd = id->pd;
	if (pd->context != id->verbs)
		return cm_result(-EINVAL);
	return cm_result(create_qp(id, pd, attr));
}

/* The peer of an established connection is told, after what was sent. */
void soft_rdma_destroy_qp(struct rdma_cm_id *id)
{
	struct soft_device *device = soft_enter();
	struct cm_id *cm_id = cm_id_of(id);
	struct ibv_qp *qp = id->qp;

	if (!device)
		return;
	if (qp && (cm_id->state == CM_ESTABLISHED ||
		   cm_id->state == CM_ACCEPTED))
		cm_end_tell_disconnect(cm_id);
	id->qp = NULL;
	soft_unlock(device);
	if (qp)
		softverbs_table()->destroy_qp(qp);
	drop_cqs(id);
}

/* ---- memory ----------------------------------------------------------- */

void *soft_mem_alloc(struct rdma_cm_id *rdma_id, size_t bytes, int access)
{
	const unsigned remote = IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_ATOMIC;
	struct soft_device *device = soft_enter();
	struct cm_id *id = rdma_id ? cm_id_of(rdma_id) : NULL;
	struct wire_link *wire = NULL;
	void *memory;

	if (!device)
		return NULL;
	if (id && id->link && (unsigned)access & remote)
		wire = id->link->wire;
	memory = wire_mem_alloc(device->wire, wire, bytes,
				(unsigned)access & remote);
	if (memory && wire)
		id->link_memory = true;
	soft_unlock(device);
	return memory;
}

void soft_mem_free(void *addr, size_t bytes)
{
	struct soft_device *device = soft_enter();

	if (!device)
		return;
	wire_mem_free(device->wire, addr);
	soft_unlock(device);
}
