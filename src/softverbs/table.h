/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs and connection manager calls that rdmakit uses, as one table.
 * Two of them exist: the system's rdma-core, opened at run time, and the
 * software device of this folder.  Signatures, errors and threads are
 * rdma-core's own (its manual pages): ibv_create_* set errno, ibv_post_* and
 * ibv_modify_* return +errno, rdma_* return -1 and set errno.
 *
 * Calls that verbs.h defines inline (ibv_poll_cq, ibv_req_notify_cq,
 * ibv_post_send, ibv_post_recv) go through the context's own operations and
 * need no entry here.
 */
#ifndef RK_SOFTVERBS_TABLE_H
#define RK_SOFTVERBS_TABLE_H

#include <stddef.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

struct rk_verbs_table {
	const char *name; /* "system" or "soft" */

	struct ibv_device **(*get_device_list)(int *count);
	void (*free_device_list)(struct ibv_device **list);
	const char *(*get_device_name)(struct ibv_device *device);
	struct ibv_context *(*open_device)(struct ibv_device *device);
	int (*close_device)(struct ibv_context *context);
	int (*query_device)(struct ibv_context *context,
			    struct ibv_device_attr *attr);
	int (*query_port)(struct ibv_context *context, uint8_t port,
			  struct ibv_port_attr *attr);

	struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t bytes,
				 int access);
	int (*dereg_mr)(struct ibv_mr *mr);

	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *);
	int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int cqe,
				    void *cq_context,
				    struct ibv_comp_channel *channel,
				    int comp_vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(struct ibv_comp_channel *channel,
			    struct ibv_cq **cq, void **cq_context);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned int count);

	struct ibv_qp *(*create_qp)(struct ibv_pd *pd,
				    struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr,
			 int attr_mask);
	int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr,
			int attr_mask, struct ibv_qp_init_attr *init_attr);
	int (*destroy_qp)(struct ibv_qp *qp);

	int (*get_async_event)(struct ibv_context *context,
			       struct ibv_async_event *event);
	void (*ack_async_event)(struct ibv_async_event *event);

	/* The contexts that ids' ->verbs point at; a queue pair of an id takes a
	 * domain and completion queues of these only.  NULL terminated. */
	struct ibv_context **(*cm_get_devices)(int *count);
	void (*cm_free_devices)(struct ibv_context **list);

	struct rdma_event_channel *(*cm_create_event_channel)(void);
	void (*cm_destroy_event_channel)(struct rdma_event_channel *channel);
	int (*cm_create_id)(struct rdma_event_channel *channel,
			    struct rdma_cm_id **id, void *context,
			    enum rdma_port_space ps);
	int (*cm_destroy_id)(struct rdma_cm_id *id);
	int (*cm_bind_addr)(struct rdma_cm_id *id, struct sockaddr *addr);
	int (*cm_resolve_addr)(struct rdma_cm_id *id, struct sockaddr *src,
			       struct sockaddr *dst, int timeout_ms);
	int (*cm_resolve_route)(struct rdma_cm_id *id, int timeout_ms);
	int (*cm_create_qp)(struct rdma_cm_id *id, struct ibv_pd *pd,
			    struct ibv_qp_init_attr *attr);
	void (*cm_destroy_qp)(struct rdma_cm_id *id);
	int (*cm_connect)(struct rdma_cm_id *id, struct rdma_conn_param *param);
	int (*cm_listen)(struct rdma_cm_id *id, int backlog);
	int (*cm_accept)(struct rdma_cm_id *id, struct rdma_conn_param *param);
	int (*cm_reject)(struct rdma_cm_id *id, const void *private_data,
			 uint8_t private_data_len);
	int (*cm_disconnect)(struct rdma_cm_id *id);
	int (*cm_get_event)(struct rdma_event_channel *channel,
			    struct rdma_cm_event **event);
	int (*cm_ack_event)(struct rdma_cm_event *event);
	const char *(*cm_event_str)(enum rdma_cm_event_type event);
	int (*cm_set_option)(struct rdma_cm_id *id, int level, int optname,
			     void *optval, size_t optlen);
	__be16 (*cm_get_src_port)(struct rdma_cm_id *id);
	__be16 (*cm_get_dst_port)(struct rdma_cm_id *id);

	/*
	 * Page aligned, zeroed memory for registration.  On the software device
	 * it can be mapped by the peer of id, which makes one-sided access one
	 * copy; so it must not be used for another peer, and it comes back
	 * through mem_free before the id is destroyed or after.  id NULL, or no
	 * IBV_ACCESS_REMOTE_* in access: memory of this process alone.  An
	 * active id has a peer from ADDR_RESOLVED on, a passive one from
	 * CONNECT_REQUEST on.  NULL and errno on failure.
	 */
	void *(*mem_alloc)(struct rdma_cm_id *id, size_t bytes, int access);
	void (*mem_free)(void *addr, size_t bytes);
};

/* The software device.  Never fails; the device starts with first use. */
const struct rk_verbs_table *softverbs_table(void);

#endif
