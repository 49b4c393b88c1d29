/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory.  What a peer may touch is a region of its own.  What only
 * this process touches is cut, in pages, from chunks that are registered once;
 * only what is large is a region of its own too.
 *
 * A region that the device does not let go yet (a peer may be inside a copy)
 * is quarantined: it stays registered and counted, and is tried again.
 *
 * Thread: the context's owner.
 */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/log.h"
#include "fabric/verbs/internal.h"

enum {
	PAGE_BYTES = 4096,
	CHUNK_MIN_BYTES = 64 << 10,
	CHUNK_MAX_BYTES = 2 << 20,
	CHUNK_PAGES = CHUNK_MAX_BYTES / PAGE_BYTES,
	POOLED_MAX_BYTES = CHUNK_MAX_BYTES / 2,
};

static const uint64_t retry_ns = 100 * RK_NS_PER_MS;

struct region {
	struct rk_list node; /* context's regions, chunks or quarantine */
	struct ibv_mr *mr;
	uint8_t *addr;
	size_t bytes;
	bool is_chunk;
	/* a chunk's pages */
	unsigned pages, pages_used;
	unsigned pages_fresh; /* from here on never used, so still zero */
	uint64_t used[CHUNK_PAGES / 64];
};

static bool page_is_used(const struct region *chunk, unsigned page)
{
	return chunk->used[page / 64] >> page % 64 & 1;
}

static void mark_pages(struct region *chunk, unsigned first, unsigned count)
{
	for (unsigned page = first; page < first + count; page++)
		chunk->used[page / 64] ^= 1ull << page % 64;
}

/* ---- regions ----------------------------------------------------------- */

static void log_refusal(const struct fabric_context *context, size_t bytes,
			int error)
{
	unsigned long long registered = context->bytes_registered;
	struct rlimit limit;

	if (!context->choice.software && !getrlimit(RLIMIT_MEMLOCK, &limit) &&
	    limit.rlim_cur != RLIM_INFINITY)
		rk_log(RK_LOG_WARNING,
		       "cannot register %zu bytes more than the %llu there are "
		       "(%s): RLIMIT_MEMLOCK is %llu bytes; raise it "
		       "(ulimit -l, LimitMEMLOCK=)",
		       bytes, registered, strerror(error),
		       (unsigned long long)limit.rlim_cur);
	else
		rk_log(RK_LOG_WARNING,
		       "cannot register %zu bytes more than the %llu there "
		       "are: %s",
		       bytes, registered, strerror(error));
}

static bool is_over_cap(const struct fabric_context *context, size_t bytes)
{
	return context->cap_bytes &&
	       (bytes > context->cap_bytes ||
		context->bytes_registered > context->cap_bytes - bytes);
}

static int region_new(struct fabric_context *context, struct rdma_cm_id *id,
		      size_t bytes, unsigned access, struct region **out)
{
	const struct rk_verbs_table *table = context->table;
	int ibv_access = IBV_ACCESS_LOCAL_WRITE;
	struct region *region = rk_zalloc(sizeof(*region));
	int error = ENOMEM;

	if (access & RK_REMOTE_READ)
		ibv_access |= IBV_ACCESS_REMOTE_READ;
	if (access & RK_REMOTE_WRITE)
		ibv_access |= IBV_ACCESS_REMOTE_WRITE;
	if (!region)
		goto err_log;
	region->addr = table->mem_alloc(id, bytes, ibv_access);
	if (!region->addr) {
		error = errno;
		goto err_free;
	}
	region->mr =
		table->reg_mr(context->pd, region->addr, bytes, ibv_access);
	if (!region->mr) {
		error = errno;
		goto err_memory;
	}
	region->bytes = bytes;
	context->bytes_registered += bytes;
	*out = region;
	return 0;

err_memory:
	table->mem_free(region->addr, bytes);
err_free:
	rk_free(region);
err_log:
	log_refusal(context, bytes, error);
	return error == ENOTCONN ? -ENOTCONN : -ENOMEM;
}

/* false: the device still uses it. */
static bool region_try_free(struct fabric_context *context,
			    struct region *region)
{
	if (context->table->dereg_mr(region->mr))
		return false;
	context->table->mem_free(region->addr, region->bytes);
	context->bytes_registered -= region->bytes;
	rk_list_remove(&region->node);
	rk_free(region);
	return true;
}

static void region_free(struct fabric_context *context, struct region *region)
{
	if (region_try_free(context, region))
		return;
	rk_log(RK_LOG_WARNING,
	       "%zu bytes of registered memory are still in use by a peer; "
	       "kept until it lets go",
	       region->bytes);
	rk_list_remove(&region->node);
	rk_list_add_tail(&context->quarantine, &region->node);
	if (!context->quarantine_timer.at_ns)
		rk_timer_set(&context->base, &context->quarantine_timer,
			     rk_now_ns() + retry_ns);
}

static void retry_quarantine(struct rk_timer *timer)
{
	struct fabric_context *context =
		rk_container_of(timer, struct fabric_context, quarantine_timer);
	struct rk_list *pos, *tmp;

	rk_list_for_each_safe (pos, tmp, &context->quarantine)
		region_try_free(context,
				rk_list_entry(pos, struct region, node));
	if (!rk_list_empty(&context->quarantine))
		rk_timer_set(&context->base, timer, rk_now_ns() + retry_ns);
}

/* ---- the pool ---------------------------------------------------------- */

static uint8_t *chunk_take(struct region *chunk, unsigned pages)
{
	unsigned run = 0, first, fresh;

	if (chunk->pages - chunk->pages_used < pages)
		return NULL;
	for (unsigned page = 0; page < chunk->pages; page++) {
		run = page_is_used(chunk, page) ? 0 : run + 1;
		if (run < pages)
			continue;
		first = page + 1 - pages;
		mark_pages(chunk, first, pages);
		chunk->pages_used += pages;
		fresh = chunk->pages_fresh;
		if (first < fresh)
			memset(chunk->addr + (size_t)first * PAGE_BYTES, 0,
			       (size_t)(rk_min(fresh, page + 1) - first) *
				       PAGE_BYTES);
		chunk->pages_fresh = rk_max(fresh, page + 1);
		return chunk->addr + (size_t)first * PAGE_BYTES;
	}
	return NULL;
}

/* Chunks grow with what is there already, if the cap lets them. */
static int chunk_new(struct fabric_context *context, size_t bytes)
{
	size_t wanted = CHUNK_MIN_BYTES;
	struct region *chunk;
	int ret;

	while (wanted < CHUNK_MAX_BYTES &&
	       (wanted < bytes || wanted < context->bytes_registered))
		wanted *= 2;
	if (is_over_cap(context, wanted))
		wanted = bytes;
	ret = region_new(context, NULL, wanted, 0, &chunk);
	if (ret)
		return ret;
	chunk->is_chunk = true;
	chunk->pages = (unsigned)(wanted / PAGE_BYTES);
	rk_list_add_tail(&context->chunks, &chunk->node);
	return 0;
}

static bool pool_take(struct fabric_context *context, size_t bytes,
		      struct rk_mem *out)
{
	struct rk_list *pos, *tmp;
	struct region *chunk;
	uint8_t *addr;

	rk_list_for_each_safe (pos, tmp, &context->chunks) {
		chunk = rk_list_entry(pos, struct region, node);
		addr = chunk_take(chunk, (unsigned)(bytes / PAGE_BYTES));
		if (!addr)
			continue;
		*out = (struct rk_mem){ .addr = addr,
					.bytes = bytes,
					.lkey = chunk->mr->lkey,
					.private_handle = chunk };
		return true;
	}
	return false;
}

static void pool_give(struct fabric_context *context, struct region *chunk,
		      const struct rk_mem *mem)
{
	size_t offset = (size_t)((uint8_t *)mem->addr - chunk->addr);
	struct rk_list *pos, *tmp;
	struct region *other;

	mark_pages(chunk, (unsigned)(offset / PAGE_BYTES),
		   (unsigned)(mem->bytes / PAGE_BYTES));
	chunk->pages_used -= (unsigned)(mem->bytes / PAGE_BYTES);
	if (chunk->pages_used)
		return;
	/* one empty chunk is kept, not two */
	rk_list_for_each_safe (pos, tmp, &context->chunks) {
		other = rk_list_entry(pos, struct region, node);
		if (other != chunk && !other->pages_used) {
			region_free(context, other);
			return;
		}
	}
}

/* An empty chunk may be all that is in the way of the cap. */
static void drop_empty_chunks(struct fabric_context *context)
{
	struct rk_list *pos, *tmp;
	struct region *chunk;

	rk_list_for_each_safe (pos, tmp, &context->chunks) {
		chunk = rk_list_entry(pos, struct region, node);
		if (!chunk->pages_used)
			region_free(context, chunk);
	}
}

/* ---- the calls --------------------------------------------------------- */

static int region_take(struct fabric_context *context, struct fabric_conn *conn,
		       size_t bytes, unsigned access, struct rk_mem *out)
{
	struct region *region;
	int ret;

	/* an active id has no peer before it is connected */
	if (conn && conn->state != CONN_REQUESTED &&
	    conn->state != CONN_ACCEPTED && conn->state != CONN_UP)
		return -ENOTCONN;
	ret = region_new(context, conn ? conn->id : NULL, bytes, access,
			 &region);
	if (ret)
		return ret;
	rk_list_add_tail(&context->regions, &region->node);
	*out = (struct rk_mem){ .addr = region->addr,
				.bytes = bytes,
				.lkey = region->mr->lkey,
				.rkey = region->mr->rkey,
				.private_handle = region };
	return 0;
}

int fabric_memory_alloc(struct rk_context *base, struct rk_conn *conn,
			size_t bytes, unsigned access, struct rk_mem *out)
{
	struct fabric_context *context = fabric_context_of(base);
	bool pooled;
	int ret;

	memset(out, 0, sizeof(*out));
	if (!bytes || bytes > SIZE_MAX / 2 || (access && !conn))
		return -EINVAL;
	bytes = rk_round_up(bytes, PAGE_BYTES);
	pooled = !access && bytes <= POOLED_MAX_BYTES;
	if (pooled && pool_take(context, bytes, out))
		return 0;
	if (is_over_cap(context, bytes))
		drop_empty_chunks(context);
	if (is_over_cap(context, bytes)) {
		rk_log(RK_LOG_WARNING,
		       "cannot register %zu bytes more than the %llu there "
		       "are: the cap of registered memory is %llu bytes; "
		       "raise it",
		       bytes, (unsigned long long)context->bytes_registered,
		       (unsigned long long)context->cap_bytes);
		return -ENOMEM;
	}
	if (!pooled)
		return region_take(context,
				   access ? fabric_conn_of(conn) : NULL, bytes,
				   access, out);
	ret = chunk_new(context, bytes);
	if (!ret && !pool_take(context, bytes, out))
		ret = -ENOMEM;
	return ret;
}

void fabric_memory_free(struct rk_context *base, struct rk_mem *mem)
{
	struct fabric_context *context = fabric_context_of(base);
	struct region *region = mem->private_handle;

	if (region->is_chunk)
		pool_give(context, region, mem);
	else
		region_free(context, region);
	memset(mem, 0, sizeof(*mem));
}

void fabric_memory_init(struct fabric_context *context)
{
	rk_list_init(&context->chunks);
	rk_list_init(&context->regions);
	rk_list_init(&context->quarantine);
	context->quarantine_timer.fire = retry_quarantine;
}

static void free_list(struct fabric_context *context, struct rk_list *list)
{
	struct rk_list *pos, *tmp;

	rk_list_for_each_safe (pos, tmp, list) {
		struct region *region = rk_list_entry(pos, struct region, node);

		if (region_try_free(context, region))
			continue;
		/* the pages must outlive whoever still writes to them */
		rk_log(RK_LOG_WARNING,
		       "%zu bytes of registered memory stay in use by a peer",
		       region->bytes);
		rk_list_remove(pos);
		rk_free(region);
	}
}

void fabric_memory_close(struct fabric_context *context)
{
	rk_timer_cancel(&context->quarantine_timer);
	free_list(context, &context->regions);
	free_list(context, &context->chunks);
	free_list(context, &context->quarantine);
}
