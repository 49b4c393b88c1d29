/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software device as a table of calls.  Filled once, never changed, never
 * freed; any thread.
 */
#include <pthread.h>

#include "softverbs/objects.h"

static struct rk_verbs_table the_table;

static void fill(void)
{
	the_table = (struct rk_verbs_table){
		.name = "soft",
		.get_device_list = device_list_get,
		.free_device_list = device_list_free,
		.get_device_name = device_name,
		.open_device = context_open,
		.close_device = context_close,
		.query_device = device_query,
		.query_port = device_query_port,
		.alloc_pd = pd_alloc,
		.dealloc_pd = pd_dealloc,
		.reg_mr = mr_reg,
		.dereg_mr = mr_dereg,
		.create_comp_channel = channel_create,
		.destroy_comp_channel = channel_destroy,
		.create_cq = cq_create,
		.destroy_cq = cq_destroy,
		.get_cq_event = channel_get_event,
		.ack_cq_events = cq_ack_events,
		.create_qp = qp_create,
		.modify_qp = qp_modify,
		.query_qp = qp_query,
		.destroy_qp = qp_destroy,
		.get_async_event = async_get,
		.ack_async_event = async_ack,
	};
	soft_cm_fill_table(&the_table);
}

const struct rk_verbs_table *softverbs_table(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, fill);
	return &the_table;
}
