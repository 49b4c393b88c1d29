/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory regions.  The local key is an index into a table of this process and
 * is looked up for every piece of every request; the remote key is an entry in
 * the boxes that peers read, and only exists where the region has remote
 * rights.  Any thread.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "softverbs/objects.h"

enum {
	REMOTE_RIGHTS = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC,
	/* hints are taken and not needed */
	HINTS = IBV_ACCESS_HUGETLB | IBV_ACCESS_RELAXED_ORDERING,
};

/* Is it mapped at all?  A device would fail to pin it. */
static bool is_mapped(uintptr_t addr, size_t bytes)
{
	enum { PAGES = 4096 };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = addr & ~(page - 1), end = addr + bytes;
	unsigned char resident[PAGES];

	for (; at < end; at += PAGES * page)
		if (mincore((void *)at, rk_min(end - at, PAGES * page),
			    resident))
			return false;
	return true;
}

static int check(uintptr_t addr, size_t bytes, int access)
{
	if (access & ~(REMOTE_RIGHTS | HINTS | IBV_ACCESS_LOCAL_WRITE))
		return EOPNOTSUPP;
	if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if (!bytes || bytes > UINTPTR_MAX - addr)
		return EINVAL;
	return is_mapped(addr, bytes) ? 0 : EFAULT;
}

static int table_grow(void)
{
	uint32_t slots = soft_engine.mr_slots ? soft_engine.mr_slots * 2 : 64;
	struct soft_mr **mr;
	uint8_t *generation;

	if (slots > MAX_MR)
		return ENOMEM;
	mr = rk_calloc(slots, sizeof(struct soft_mr *));
	if (!mr)
		return ENOMEM;
	generation = rk_calloc(slots, 1);
	if (!generation) {
		rk_free(mr);
		return ENOMEM;
	}
	if (soft_engine.mr_slots) {
		memcpy(mr, soft_engine.mr, soft_engine.mr_slots * sizeof(*mr));
		memcpy(generation, soft_engine.mr_generation,
		       soft_engine.mr_slots);
	}
	rk_free(soft_engine.mr);
	rk_free(soft_engine.mr_generation);
	soft_engine.mr = mr;
	soft_engine.mr_generation = generation;
	soft_engine.mr_free_hint = soft_engine.mr_slots;
	soft_engine.mr_slots = slots;
	return 0;
}

/* Round robin over the table, so that an old key stays invalid long. */
static int table_add(struct soft_mr *mr)
{
	uint32_t index = soft_engine.mr_free_hint;
	int err;

	if (soft_engine.mr_count == soft_engine.mr_slots) {
		err = table_grow();
		if (err)
			return err;
		index = soft_engine.mr_free_hint;
	}
	while (soft_engine.mr[index])
		index = (index + 1) & (soft_engine.mr_slots - 1);
	soft_engine.mr_free_hint = (index + 1) & (soft_engine.mr_slots - 1);
	soft_engine.mr[index] = mr;
	soft_engine.mr_count++;
	mr->ibv.lkey = LKEY_MARK | index << LKEY_GENERATION_BITS |
		       ++soft_engine.mr_generation[index];
	return 0;
}

static void table_remove(struct soft_mr *mr)
{
	soft_engine.mr[(mr->ibv.lkey & ~LKEY_MARK) >> LKEY_GENERATION_BITS] =
		NULL;
	soft_engine.mr_count--;
}

static int reg(struct soft_mr *mr)
{
	struct soft_pd *pd = rk_container_of(mr->ibv.pd, struct soft_pd, ibv);
	int err = table_add(mr);

	if (err)
		return err;
	mr->ibv.rkey = mr->ibv.lkey;
	if (mr->access & REMOTE_RIGHTS) {
		err = wire_key_add(soft_engine.base.wire, mr->ibv.addr,
				   mr->ibv.length, mr->access & REMOTE_RIGHTS,
				   pd->number, &mr->ibv.rkey);
		if (err) {
			table_remove(mr);
			return err == -ENOSPC ? ENOMEM : -err;
		}
		mr->has_key = true;
	}
	mr->ibv.handle = mr->ibv.lkey;
	pd->users++;
	return 0;
}

/*
 * EFAULT: not mapped memory.  EOPNOTSUPP: zero based, memory windows, on
 * demand.  ENOMEM: MAX_MR regions, or BOX_KEYS with remote rights.  EINVAL and
 * EACCES for memory of mem_alloc as in wire_key_add().
 */
struct ibv_mr *mr_reg(struct ibv_pd *pd, void *addr, size_t bytes, int access)
{
	int err = check((uintptr_t)addr, bytes, access);
	struct soft_mr *mr;

	if (err)
		goto err_errno;
	err = ENOMEM;
	mr = rk_zalloc(sizeof(*mr));
	if (!mr)
		goto err_errno;
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->ibv.addr = addr;
	mr->ibv.length = bytes;
	mr->access = access & ~HINTS;
	err = ENODEV;
	if (!engine_lock())
		goto err_free;
	err = reg(mr);
	engine_unlock();
	if (err)
		goto err_free;
	return &mr->ibv;

err_free:
	rk_free(mr);
err_errno:
	errno = err;
	return NULL;
}

/*
 * Is the last access over that a removed key allowed?  A key that allows not a
 * byte is added and removed: removing it waits for what runs now.
 */
static int linger(struct soft_mr *mr)
{
	struct wire *wire = soft_engine.base.wire;
	uint32_t key;
	int err;

	err = wire_key_add(wire, mr->ibv.addr, 0, mr->access & REMOTE_RIGHTS,
			   0, &key);
	return err ? err : wire_key_remove(wire, key);
}

static int unshow(struct soft_mr *mr)
{
	int err = 0;

	if (mr->has_key)
		err = wire_key_remove(soft_engine.base.wire, mr->ibv.rkey);
	else if (mr->lingers)
		err = linger(mr);
	mr->has_key = false;
	mr->lingers = err != 0;
	return err ? EBUSY : 0;
}

/*
 * EBUSY: a peer that was stopped in the middle of an access may still touch
 * the memory.  No new access is possible; the region exists until a later call
 * succeeds, and the memory must not be used for anything else before.
 */
int mr_dereg(struct ibv_mr *ibv)
{
	struct soft_mr *mr = rk_container_of(ibv, struct soft_mr, ibv);
	int err;

	if (!engine_lock())
		return ENODEV;
	err = unshow(mr);
	if (!err) {
		table_remove(mr);
		rk_container_of(ibv->pd, struct soft_pd, ibv)->users--;
	}
	engine_unlock();
	if (!err)
		rk_free(mr);
	return err;
}

/* ---- pieces ----------------------------------------------------------- */

int sge_gather(const struct ibv_pd *pd, const struct ibv_sge *sge,
	       unsigned count, unsigned access, uint32_t skip, uint32_t bytes,
	       struct iovec *iov)
{
	int used = 0;

	for (unsigned i = 0; i < count; i++) {
		uint32_t length = sge[i].length, take;

		if (!length)
			continue;
		if (pd && rk_unlikely(!mr_allows(pd, sge[i].lkey, sge[i].addr,
						 length, access)))
			return -EINVAL;
		if (skip >= length) {
			skip -= length;
			continue;
		}
		take = rk_min(length - skip, bytes);
		if (!take)
			continue;
		iov[used].iov_base = (void *)(uintptr_t)(sge[i].addr + skip);
		iov[used++].iov_len = take;
		bytes -= take;
		skip = 0;
	}
	return bytes ? -EINVAL : used;
}
