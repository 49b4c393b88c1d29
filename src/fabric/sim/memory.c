/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory.  Keys are unique in the whole net and a freed one is not
 * given out again soon, so that a stale key is found.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/sim/internal.h"

enum { PAGE_BYTES = 4096 };

static bool is_refused(struct sim_context *context, size_t bytes)
{
	struct sim_knobs *knobs = &context->net->knobs;

	if (knobs->memory_fail_at >= 0 && knobs->memory_fail_at-- == 0)
		return true;
	if (sim_chance(context->net, knobs->memory_chance))
		return true;
	return knobs->memory_cap_bytes &&
	       (bytes > knobs->memory_cap_bytes ||
		context->bytes_registered > knobs->memory_cap_bytes - bytes);
}

static unsigned region_new(struct sim_net *net)
{
	struct region *grown;
	unsigned i;

	for (i = 0; i < net->region_count; i++) {
		if (!net->regions[i].owner)
			return i;
	}
	if (i == net->region_room) {
		net->region_room = i ? i * 2 : 16;
		grown = sim_must_calloc(net->region_room, sizeof(*grown));
		if (i)
			memcpy(grown, net->regions, i * sizeof(*grown));
		free(net->regions);
		net->regions = grown;
	}
	net->region_count++;
	return i;
}

static bool knows_peer(const struct sim_conn *conn)
{
	return conn->state == REQUESTED || conn->state == ACCEPTED ||
	       conn->state == UP;
}

int sim_memory_alloc(struct rk_context *base, struct rk_conn *conn,
		     size_t bytes, unsigned access, struct rk_mem *out)
{
	struct sim_context *context = sim_context_of(base);
	struct sim_net *net = context->net;
	struct pair *pair = conn ? sim_conn_of(conn)->pair : NULL;
	struct region *region;
	unsigned index;
	void *addr;

	memset(out, 0, sizeof(*out));
	if (!bytes || bytes > SIZE_MAX - PAGE_BYTES || (access && !conn))
		return -EINVAL;
	bytes = rk_round_up(bytes, PAGE_BYTES);
	if (access && !knows_peer(sim_conn_of(conn)))
		return -ENOTCONN;
	if (is_refused(context, bytes) ||
	    posix_memalign(&addr, PAGE_BYTES, bytes))
		return -ENOMEM;
	memset(addr, 0, bytes);

	index = region_new(net);
	region = &net->regions[index];
	*region = (struct region){
		.addr = addr,
		.bytes = bytes,
		.access = access,
		.generation = region->generation + 1,
		.owner = context,
		.pair = pair,
		.side = conn ? sim_conn_of(conn)->side : ACTIVE,
	};
	if (pair)
		pair->references++;
	context->bytes_registered += bytes;
	net->memory_bytes += bytes;
	*out = (struct rk_mem){
		.addr = addr,
		.bytes = bytes,
		.lkey = index << 8 | region->generation,
		.rkey = index << 8 | region->generation,
	};
	return 0;
}

static void region_free(struct sim_net *net, struct region *region)
{
	region->owner->bytes_registered -= region->bytes;
	net->memory_bytes -= region->bytes;
	sim_pair_put(region->pair);
	free(region->addr);
	region->owner = NULL;
	region->pair = NULL;
	region->addr = NULL;
}

void sim_memory_free(struct rk_context *base, struct rk_mem *mem)
{
	struct sim_context *context = sim_context_of(base);
	unsigned index = mem->lkey >> 8;

	if (index >= context->net->region_count ||
	    context->net->regions[index].owner != context ||
	    context->net->regions[index].addr != mem->addr) {
		sim_mistake(context->net, NULL,
			    "memory freed that is not there");
		return;
	}
	region_free(context->net, &context->net->regions[index]);
	memset(mem, 0, sizeof(*mem));
}

void sim_memory_free_all(struct sim_context *context)
{
	struct sim_net *net = context->net;

	for (unsigned i = 0; i < net->region_count; i++) {
		if (net->regions[i].owner == context)
			region_free(net, &net->regions[i]);
	}
}

void *sim_memory_find(struct sim_context *owner, const struct pair *pair,
		      enum side side, uint32_t key, uint64_t addr,
		      uint64_t bytes)
{
	const struct sim_net *net = owner->net;
	const struct region *region;
	uint64_t offset;

	if (key >> 8 >= net->region_count)
		return NULL;
	region = &net->regions[key >> 8];
	if (region->owner != owner || region->generation != (key & 0xff))
		return NULL;
	if (pair && (!(region->access & RK_REMOTE_WRITE) ||
		     region->pair != pair || region->side != side))
		return NULL;
	if (addr < (uint64_t)(uintptr_t)region->addr)
		return NULL;
	offset = addr - (uint64_t)(uintptr_t)region->addr;
	if (offset > region->bytes || bytes > region->bytes - offset)
		return NULL;
	return region->addr + offset;
}
