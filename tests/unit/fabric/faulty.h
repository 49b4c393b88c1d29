/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A verbs table over the software device whose n-th call fails.  Calls that
 * only give back (destroy, dealloc, ack) are not counted: there is nothing a
 * program could do about it; dereg_mr has a switch.
 */
#ifndef RK_TESTS_FABRIC_FAULTY_H
#define RK_TESTS_FABRIC_FAULTY_H

#include <errno.h>
#include <stdbool.h>

#include "softverbs/table.h"

static const struct rk_verbs_table *faulty_real;
static long faulty_in = -1;	/* calls until one fails; -1: none will */
static const char *faulty_name; /* the one that failed */
static bool faulty_dereg_busy;

static bool faulty_now(const char *name)
{
	if (faulty_in < 0 || faulty_in-- > 0)
		return false;
	faulty_name = name;
	errno = ENOMEM;
	return true;
}

#define FAULTY(result, name, failure, params, args)                            \
	static result faulty_##name params                                     \
	{                                                                      \
		if (faulty_now(#name))                                         \
			return failure;                                        \
		return faulty_real->name args;                                 \
	}

FAULTY(int, query_device, ENOMEM,
       (struct ibv_context * c, struct ibv_device_attr *a), (c, a))
FAULTY(struct ibv_pd *, alloc_pd, NULL, (struct ibv_context * c), (c))
FAULTY(struct ibv_mr *, reg_mr, NULL,
       (struct ibv_pd * p, void *a, size_t n, int f), (p, a, n, f))
FAULTY(struct ibv_comp_channel *, create_comp_channel, NULL,
       (struct ibv_context * c), (c))
FAULTY(struct ibv_cq *, create_cq, NULL,
       (struct ibv_context * c, int n, void *x, struct ibv_comp_channel *h,
	int v),
       (c, n, x, h, v))
FAULTY(int, modify_qp, ENOMEM,
       (struct ibv_qp * q, struct ibv_qp_attr *a, int m), (q, a, m))
FAULTY(struct rdma_event_channel *, cm_create_event_channel, NULL, (void), ())
FAULTY(int, cm_create_id, -1,
       (struct rdma_event_channel * h, struct rdma_cm_id **i, void *x,
	enum rdma_port_space s),
       (h, i, x, s))
FAULTY(int, cm_bind_addr, -1, (struct rdma_cm_id * i, struct sockaddr *a),
       (i, a))
FAULTY(int, cm_resolve_addr, -1,
       (struct rdma_cm_id * i, struct sockaddr *s, struct sockaddr *d, int t),
       (i, s, d, t))
FAULTY(int, cm_resolve_route, -1, (struct rdma_cm_id * i, int t), (i, t))
FAULTY(int, cm_create_qp, -1,
       (struct rdma_cm_id * i, struct ibv_pd *p, struct ibv_qp_init_attr *a),
       (i, p, a))
FAULTY(int, cm_connect, -1, (struct rdma_cm_id * i, struct rdma_conn_param *p),
       (i, p))
FAULTY(int, cm_listen, -1, (struct rdma_cm_id * i, int b), (i, b))
FAULTY(int, cm_accept, -1, (struct rdma_cm_id * i, struct rdma_conn_param *p),
       (i, p))
FAULTY(int, cm_reject, -1, (struct rdma_cm_id * i, const void *d, uint8_t n),
       (i, d, n))
FAULTY(int, cm_disconnect, -1, (struct rdma_cm_id * i), (i))
FAULTY(int, cm_set_option, -1,
       (struct rdma_cm_id * i, int l, int o, void *v, size_t n),
       (i, l, o, v, n))
FAULTY(void *, mem_alloc, NULL, (struct rdma_cm_id * i, size_t n, int a),
       (i, n, a))

static int faulty_dereg_mr(struct ibv_mr *mr)
{
	return faulty_dereg_busy ? EBUSY : faulty_real->dereg_mr(mr);
}

static const struct rk_verbs_table *faulty_table(void)
{
	static struct rk_verbs_table table;

	faulty_real = softverbs_table();
	table = *faulty_real;
	table.query_device = faulty_query_device;
	table.alloc_pd = faulty_alloc_pd;
	table.reg_mr = faulty_reg_mr;
	table.dereg_mr = faulty_dereg_mr;
	table.create_comp_channel = faulty_create_comp_channel;
	table.create_cq = faulty_create_cq;
	table.modify_qp = faulty_modify_qp;
	table.cm_create_event_channel = faulty_cm_create_event_channel;
	table.cm_create_id = faulty_cm_create_id;
	table.cm_bind_addr = faulty_cm_bind_addr;
	table.cm_resolve_addr = faulty_cm_resolve_addr;
	table.cm_resolve_route = faulty_cm_resolve_route;
	table.cm_create_qp = faulty_cm_create_qp;
	table.cm_connect = faulty_cm_connect;
	table.cm_listen = faulty_cm_listen;
	table.cm_accept = faulty_cm_accept;
	table.cm_reject = faulty_cm_reject;
	table.cm_disconnect = faulty_cm_disconnect;
	table.cm_set_option = faulty_cm_set_option;
	table.mem_alloc = faulty_mem_alloc;
	return &table;
}

#endif
