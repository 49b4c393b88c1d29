/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rest of the connection manager's half of the table: options, names of
 * events, ports, devices.  Any thread of the program.
 */
#include <errno.h>

#include "base/alloc.h"
#include "softverbs/cm_internal.h"

/* ---- options ---------------------------------------------------------- */

static int option_byte(const void *value, size_t bytes, uint8_t *out)
{
	if (bytes != sizeof(*out))
		return -EINVAL;
	*out = *(const uint8_t *)value;
	return 0;
}

static int option_flag(const void *value, size_t bytes, bool *out)
{
	if (bytes != sizeof(int))
		return -EINVAL;
	*out = *(const int *)value != 0;
	return 0;
}

static int set_option(struct cm_id *id, int name, const void *value,
		      size_t bytes)
{
	uint8_t timeout;
	int ret;

	switch (name) {
	case RDMA_OPTION_ID_TOS:
		return option_byte(value, bytes, &id->tos);
	case RDMA_OPTION_ID_REUSEADDR:
		if (id->state != CM_IDLE)
			return -EINVAL;
		return option_flag(value, bytes, &id->reuse);
	case RDMA_OPTION_ID_AFONLY:
		if (id->state != CM_IDLE)
			return -EINVAL;
		return option_flag(value, bytes, &id->v6_only);
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		ret = option_byte(value, bytes, &timeout);
		if (ret)
			return ret;
		if (timeout > 31)
			return -EINVAL;
		id->ack_timeout = timeout;
		return 0;
	}
	return -ENOSYS;
}

/*
 * REUSEADDR: several ids of this process may bind the same port as long as
 * none listens.  AFONLY: "::" does not cover IPv4.  Both before bind, else
 * EINVAL.  TOS and ACK_TIMEOUT are taken and mean nothing inside a host.
 * Anything else, RDMA_OPTION_IB too, is ENOSYS.
 */
static int soft_rdma_set_option(struct rdma_cm_id *id, int level, int name,
				void *value, size_t bytes)
{
	struct soft_device *device = soft_enter();
	int ret = -ENOSYS;

	if (!device)
		return -1;
	if (level == RDMA_OPTION_ID)
		ret = set_option(cm_id_of(id), name, value, bytes);
	soft_unlock(device);
	return cm_result(ret);
}

/* ---- names and numbers ------------------------------------------------ */

static const char *soft_rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const names[] = {
		[RDMA_CM_EVENT_ADDR_RESOLVED] = "RDMA_CM_EVENT_ADDR_RESOLVED",
		[RDMA_CM_EVENT_ADDR_ERROR] = "RDMA_CM_EVENT_ADDR_ERROR",
		[RDMA_CM_EVENT_ROUTE_RESOLVED] = "RDMA_CM_EVENT_ROUTE_RESOLVED",
		[RDMA_CM_EVENT_ROUTE_ERROR] = "RDMA_CM_EVENT_ROUTE_ERROR",
		[RDMA_CM_EVENT_CONNECT_REQUEST] =
			"RDMA_CM_EVENT_CONNECT_REQUEST",
		[RDMA_CM_EVENT_CONNECT_RESPONSE] =
			"RDMA_CM_EVENT_CONNECT_RESPONSE",
		[RDMA_CM_EVENT_CONNECT_ERROR] = "RDMA_CM_EVENT_CONNECT_ERROR",
		[RDMA_CM_EVENT_UNREACHABLE] = "RDMA_CM_EVENT_UNREACHABLE",
		[RDMA_CM_EVENT_REJECTED] = "RDMA_CM_EVENT_REJECTED",
		[RDMA_CM_EVENT_ESTABLISHED] = "RDMA_CM_EVENT_ESTABLISHED",
		[RDMA_CM_EVENT_DISCONNECTED] = "RDMA_CM_EVENT_DISCONNECTED",
		[RDMA_CM_EVENT_DEVICE_REMOVAL] = "RDMA_CM_EVENT_DEVICE_REMOVAL",
		[RDMA_CM_EVENT_MULTICAST_JOIN] = "RDMA_CM_EVENT_MULTICAST_JOIN",
		[RDMA_CM_EVENT_MULTICAST_ERROR] =
			"RDMA_CM_EVENT_MULTICAST_ERROR",
		[RDMA_CM_EVENT_ADDR_CHANGE] = "RDMA_CM_EVENT_ADDR_CHANGE",
		[RDMA_CM_EVENT_TIMEWAIT_EXIT] = "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	};

	if ((unsigned)event >= RK_ARRAY_SIZE(names))
		return "UNKNOWN EVENT";
	return names[event];
}

static __be16 soft_rdma_get_src_port(struct rdma_cm_id *id)
{
	return cm_addr_port(&id->route.addr.src_addr);
}

static __be16 soft_rdma_get_dst_port(struct rdma_cm_id *id)
{
	return cm_addr_port(&id->route.addr.dst_addr);
}

/* ---- devices ---------------------------------------------------------- */

static struct ibv_context **soft_rdma_get_devices(int *count)
{
	struct soft_device *device = soft_enter();
	struct ibv_context **list;

	if (!device)
		return NULL;
	list = rk_calloc(2, sizeof(*list));
	if (!list) {
		errno = ENOMEM;
	} else {
		list[0] = soft_context(device);
		if (!list[0]) {
			rk_free(list);
			list = NULL;
		}
	}
	soft_unlock(device);
	if (count)
		*count = list ? 1 : 0;
	return list;
}

static void soft_rdma_free_devices(struct ibv_context **list)
{
	rk_free(list);
}

/* ---- the table -------------------------------------------------------- */

void soft_cm_fill_table(struct rk_verbs_table *table)
{
	table->cm_create_event_channel = soft_rdma_create_event_channel;
	table->cm_destroy_event_channel = soft_rdma_destroy_event_channel;
	table->cm_create_id = soft_rdma_create_id;
	table->cm_destroy_id = soft_rdma_destroy_id;
	table->cm_bind_addr = soft_rdma_bind_addr;
	table->cm_resolve_addr = soft_rdma_resolve_addr;
	table->cm_resolve_route = soft_rdma_resolve_route;
	table->cm_create_qp = soft_rdma_create_qp;
	table->cm_destroy_qp = soft_rdma_destroy_qp;
	table->cm_connect = soft_rdma_connect;
	table->cm_listen = soft_rdma_listen;
	table->cm_accept = soft_rdma_accept;
	table->cm_reject = soft_rdma_reject;
	table->cm_disconnect = soft_rdma_disconnect;
	table->cm_get_event = soft_rdma_get_cm_event;
	table->cm_ack_event = soft_rdma_ack_cm_event;
	table->cm_event_str = soft_rdma_event_str;
	table->cm_set_option = soft_rdma_set_option;
	table->cm_get_src_port = soft_rdma_get_src_port;
	table->cm_get_dst_port = soft_rdma_get_dst_port;
	table->cm_get_devices = soft_rdma_get_devices;
	table->cm_free_devices = soft_rdma_free_devices;
	table->mem_alloc = soft_mem_alloc;
	table->mem_free = soft_mem_free;
}
