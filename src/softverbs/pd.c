/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Protection domains: a number that queue pairs and memory regions share.
 * Numbers are not used again before all others were, so a key of a domain
 * that is gone does not fit a new one by accident.  Any thread.
 */
#include "base/alloc.h"
#include "softverbs/objects.h"

struct ibv_pd *pd_alloc(struct ibv_context *context)
{
	struct soft_pd *pd = NULL;
	int err = ENOMEM;

	if (!engine_lock()) {
		errno = ENODEV;
		return NULL;
	}
	if (soft_engine.pd_count < MAX_PD)
		pd = rk_zalloc(sizeof(*pd));
	if (pd) {
		if (!++soft_engine.last_pd)
			soft_engine.last_pd = 1;
		pd->number = soft_engine.last_pd;
		pd->ibv.context = context;
		pd->ibv.handle = pd->number;
		context_of(context)->users++;
		soft_engine.pd_count++;
		err = 0;
	}
	engine_unlock();
	if (err) {
		errno = err;
		return NULL;
	}
	return &pd->ibv;
}

int pd_dealloc(struct ibv_pd *ibv)
{
	struct soft_pd *pd = rk_container_of(ibv, struct soft_pd, ibv);

	if (!engine_lock())
		return ENODEV;
	if (pd->users) {
		engine_unlock();
		return EBUSY;
	}
	context_of(ibv->context)->users--;
	soft_engine.pd_count--;
	engine_unlock();
	rk_free(pd);
	return 0;
}
