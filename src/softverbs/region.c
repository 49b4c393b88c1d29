/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of this process that a peer may map, and private memory next to it.
 *
 * A slab is one memfd of one link and one rights class (may the peer write or
 * not), announced by GRANT when it is made, so before any key to it can be
 * used.  Small allocations share slabs of 2 MiB in pages; a large one has its
 * own.  A slab is never handed to another process: when it is empty it is
 * given back to the system, except that a link keeps one of each class.
 *
 * Pages are zero when handed out.  Those that a stopped peer may still be
 * writing (key_hazard_wait() gave up) are held until its hazard word moves.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "softverbs/wire_internal.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum {
	ACCESS_REMOTE = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_ATOMIC,
	ACCESS_MODIFY = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	PUNCH_BYTES = 256 << 10, /* from here, freed pages go to the system */
};

/* ---- the table of slabs, by address ------------------------------------ */

/* How many slabs begin at or below addr. */
static unsigned slabs_below(const struct wire *wire, uint64_t addr)
{
	unsigned low = 0, high = wire->slab_count;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;

		if ((uint64_t)(uintptr_t)wire->slabs[middle]->base <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int slab_enter(struct wire *wire, struct slab *slab)
{
	unsigned at;

	if (wire->slab_count == wire->slab_room) {
		unsigned room = wire->slab_room ? 2 * wire->slab_room : 16;
		struct slab **slabs = rk_realloc(wire->slabs,
						 room * sizeof(*slabs));

		if (!slabs)
			return -ENOMEM;
		wire->slabs = slabs;
		wire->slab_room = room;
	}
	at = slabs_below(wire, (uint64_t)(uintptr_t)slab->base);
	memmove(&wire->slabs[at + 1], &wire->slabs[at],
		(wire->slab_count - at) * sizeof(*wire->slabs));
	wire->slabs[at] = slab;
	wire->slab_count++;
	return 0;
}

static void slab_leave(struct wire *wire, const struct slab *slab)
{
	unsigned at = slabs_below(wire, (uint64_t)(uintptr_t)slab->base) - 1;

	assert(wire->slabs[at] == slab);
	wire->slab_count--;
	memmove(&wire->slabs[at], &wire->slabs[at + 1],
		(wire->slab_count - at) * sizeof(*wire->slabs));
}

struct slab *region_find(struct wire *wire, uint64_t addr, unsigned *first)
{
	unsigned below = slabs_below(wire, addr), unit;
	struct slab *slab;
	uint64_t offset;

	if (!below)
		return NULL;
	slab = wire->slabs[below - 1];
	offset = addr - (uint64_t)(uintptr_t)slab->base;
	if (offset >= slab->bytes)
		return NULL;
	unit = (unsigned)(offset / slab->unit_bytes);
	while (unit && !slab->block[unit].units)
		unit--;
	*first = unit;
	return slab;
}

/* ---- making and releasing slabs ---------------------------------------- */

static int region_number_take(struct wire_link *link)
{
	const unsigned words = LINK_REGIONS_MAX / 64;

	if (!link->region_used)
		link->region_used = rk_calloc(words, sizeof(uint64_t));
	if (!link->region_used)
		return -ENOMEM;
	for (unsigned i = 0; i < words; i++) {
		uint64_t *used = &link->region_used[i];
		unsigned bit;

		if (*used == UINT64_MAX)
			continue;
		bit = (unsigned)__builtin_ctzll(~*used);
		*used |= 1ull << bit;
		return (int)(i * 64 + bit);
	}
	return -ENOBUFS;
}

static void region_number_give(struct wire_link *link, unsigned number)
{
	link->region_used[number / 64] &= ~(1ull << (number % 64));
}

/* Map the memory of a slab; *fd is for the peer, -1 if there is none. */
static int slab_map(struct slab *slab, int *out_fd)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS, seals, fd = -1, ret;

	if (slab->link) {
		fd = box_memfd("rdmakit-memory", slab->bytes);
		if (fd < 0)
			return fd;
		flags = MAP_SHARED;
	}
	slab->base = mmap(NULL, slab->bytes, PROT_READ | PROT_WRITE,
			  flags | MAP_NORESERVE, fd, 0);
	if (slab->base == MAP_FAILED) {
		ret = -errno;
		goto err_fd;
	}
	*out_fd = fd;
	if (!slab->link)
		return 0;
	seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	if (!slab->writable)
		seals |= F_SEAL_FUTURE_WRITE;
	if (!fcntl(fd, F_ADD_SEALS, seals) &&
	    !madvise(slab->base, slab->bytes, MADV_DONTFORK))
		return 0;
	ret = -errno;
	munmap(slab->base, slab->bytes);
err_fd:
	if (fd >= 0)
		close(fd);
	return ret;
}

static int slab_grant(struct slab *slab, int fd)
{
	struct packet grant = { .kind = PACKET_GRANT,
				.value = slab->bytes,
				.writable = slab->writable };
	int number, ret;

	number = region_number_take(slab->link);
	if (number < 0) {
		close(fd);
		return number;
	}
	slab->region = grant.number = (unsigned)number;
	ret = link_post(slab->link, &grant, NULL, 0, fd);
	if (ret)
		region_number_give(slab->link, slab->region);
	return ret;
}

static int slab_new(struct wire *wire, struct wire_link *link, bool writable,
		    uint64_t bytes, bool shared, struct slab **out)
{
	unsigned units = shared ? (unsigned)(bytes / PAGE_BYTES) : 1;
	struct slab *slab;
	int fd = -1, ret;

	slab = rk_zalloc(sizeof(*slab) + units * sizeof(slab->block[0]));
	if (!slab)
		return -ENOMEM;
	slab->link = link;
	slab->writable = writable;
	slab->bytes = bytes;
	slab->units = slab->units_free = units;
	slab->unit_bytes = bytes / units;
	rk_list_init(&slab->node);
	ret = slab_map(slab, &fd);
	if (ret)
		goto err_free;
	ret = slab_enter(wire, slab);
	if (ret) {
		if (fd >= 0)
			close(fd);
		goto err_map;
	}
	if (link) {
		ret = slab_grant(slab, fd);
		if (ret)
			goto err_table;
		rk_list_add_tail(&link->slabs, &slab->node);
		wire->stats.bytes_shared += bytes;
	}
	*out = slab;
	return 0;

err_table:
	slab_leave(wire, slab);
err_map:
	munmap(slab->base, slab->bytes);
err_free:
	rk_free(slab);
	return ret;
}

static void slab_release(struct wire *wire, struct slab *slab)
{
	struct wire_link *link = slab->link;

	if (link) {
		struct packet withdraw = { .kind = PACKET_WITHDRAW,
					   .number = slab->region };

		/* a peer that keeps its map keeps no memory by it */
		if (slab->writable)
			madvise(slab->base, slab->bytes, MADV_REMOVE);
		/* where the words do not reach it, it holds an empty map and
		 * the number must not be used again */
		if (!link_post(link, &withdraw, NULL, 0, -1))
			region_number_give(link, slab->region);
		wire->stats.bytes_shared -= slab->bytes;
		rk_list_remove(&slab->node);
	}
	slab_leave(wire, slab);
	munmap(slab->base, slab->bytes);
	rk_free(slab);
}

/* ---- allocations ------------------------------------------------------- */

/* First unit of a run of free ones; slab->units: none. */
static unsigned slab_search(const struct slab *slab, unsigned units)
{
	unsigned start = 0, at = 0;

	if (slab->units_free < units)
		return slab->units;
	while (at < slab->units) {
		if (slab->block[at].units) {
			at += slab->block[at].units;
			start = at;
		} else if (++at - start == units) {
			return start;
		}
	}
	return slab->units;
}

static void *slab_take(struct slab *slab, unsigned first, unsigned units,
		       unsigned access)
{
	char *addr = slab->base + first * slab->unit_bytes;

	for (unsigned i = first; i < first + units; i++) {
		if (slab->block[i].dirty)
			memset(slab->base + i * slab->unit_bytes, 0,
			       slab->unit_bytes);
		slab->block[i].dirty = 1;
	}
	slab->block[first].units = units;
	slab->block[first].access = (uint8_t)(access & ACCESS_REMOTE);
	slab->units_free -= units;
	return addr;
}

/* Is this the only slab of its class that could serve the next allocation? */
static bool slab_is_spare(const struct slab *slab)
{
	struct rk_list *pos, *tmp;

	if (!slab->link || slab->units == 1 || !wire_link_is_alive(slab->link))
		return false;
	rk_list_for_each_safe(pos, tmp, &slab->link->slabs) {
		const struct slab *other =
			rk_list_entry(pos, struct slab, node);

		if (other != slab && other->units > 1 &&
		    other->writable == slab->writable &&
		    other->units_free * 2 >= other->units)
			return false;
	}
	return true;
}

/* The block's pages may be handed out again. */
static void slab_give(struct wire *wire, struct slab *slab, unsigned first)
{
	struct slab_block *block = &slab->block[first];
	uint64_t bytes = block->units * slab->unit_bytes;

	slab->units_free += block->units;
	if (slab->units > 1 && slab->writable && bytes >= PUNCH_BYTES &&
	    !madvise(slab->base + first * slab->unit_bytes, bytes,
		     MADV_REMOVE)) {
		for (unsigned i = 0; i < block->units; i++)
			block[i].dirty = 0;
	}
	block->units = 0;
	block->held = 0;
	if (slab->units_free == slab->units && !slab_is_spare(slab))
		slab_release(wire, slab);
}

static void *alloc_shared(struct wire *wire, struct wire_link *link,
			  size_t bytes, unsigned access)
{
	unsigned units = (unsigned)((bytes + PAGE_BYTES - 1) / PAGE_BYTES);
	bool writable = access & ACCESS_MODIFY;
	struct rk_list *pos, *tmp;
	struct slab *slab;
	int ret;

	rk_list_for_each_safe(pos, tmp, &link->slabs) {
		unsigned first;

		slab = rk_list_entry(pos, struct slab, node);
		if (slab->units == 1 || slab->writable != writable)
			continue;
		first = slab_search(slab, units);
		if (first < slab->units)
			return slab_take(slab, first, units, access);
	}
	ret = slab_new(wire, link, writable, REGION_SLAB_BYTES, true, &slab);
	if (ret) {
		errno = -ret;
		return NULL;
	}
	return slab_take(slab, 0, units, access);
}

static void *alloc_alone(struct wire *wire, struct wire_link *link,
			 size_t bytes, unsigned access)
{
	struct slab *slab;
	int ret;

	ret = slab_new(wire, link, access & ACCESS_MODIFY,
		       rk_round_up(bytes, PAGE_BYTES), false, &slab);
	if (ret) {
		errno = -ret;
		return NULL;
	}
	return slab_take(slab, 0, 1, access);
}

void *wire_mem_alloc(struct wire *wire, struct wire_link *link, size_t bytes,
		     unsigned access)
{
	void *addr;

	if (!bytes || bytes > REGION_BYTES_MAX || wire->abandoned) {
		errno = wire->abandoned ? ENODEV : EINVAL;
		return NULL;
	}
	if (!(access & ACCESS_REMOTE))
		link = NULL;
	if (!link)
		return alloc_alone(wire, NULL, bytes, access);
	if (!wire_link_is_alive(link)) {
		errno = EPIPE;
		return NULL;
	}
	region_sweep(link);
	if (bytes <= REGION_SLAB_BYTES / 2)
		addr = alloc_shared(wire, link, bytes, access);
	else
		addr = alloc_alone(wire, link, bytes, access);
	if (addr)
		wire_get(link); /* until it is freed */
	return addr;
}

void wire_mem_free(struct wire *wire, void *addr)
{
	struct wire_link *link;
	struct slab *slab;
	unsigned first;

	if (!addr || wire->abandoned)
		return;
	slab = region_find(wire, (uint64_t)(uintptr_t)addr, &first);
	assert(slab && slab->block[first].units && !slab->block[first].held &&
	       slab->base + first * slab->unit_bytes == addr);
	link = slab->link;
	if (!link) {
		slab_give(wire, slab, first);
		return;
	}
	region_sweep(link);
	if (slab->units > 1 && key_hazard_is_stuck(link)) {
		slab->block[first].held = 1;
		link->bytes_held +=
			slab->block[first].units * slab->unit_bytes;
		return; /* region_sweep() drops the reference */
	}
	slab_give(wire, slab, first);
	wire_put(link);
}

static void slab_sweep(struct wire_link *link, struct slab *slab)
{
	unsigned unit = 0, units = slab->units;

	while (unit < units) {
		struct slab_block *block = &slab->block[unit];
		unsigned step = block->units ? block->units : 1;

		if (block->held) {
			bool last = slab->units_free + step == units;

			link->bytes_held -= step * slab->unit_bytes;
			slab_give(link->wire, slab, unit);
			wire_put(link);
			if (last)
				return; /* it may be gone */
		}
		unit += step;
	}
}

void region_sweep(struct wire_link *link)
{
	struct rk_list *pos, *tmp;

	if (!link->bytes_held || key_hazard_is_stuck(link))
		return;
	wire_get(link);
	rk_list_for_each_safe(pos, tmp, &link->slabs)
		slab_sweep(link, rk_list_entry(pos, struct slab, node));
	wire_put(link);
}

void region_link_closed(struct wire_link *link)
{
	struct rk_list *pos, *tmp;

	region_sweep(link);
	rk_list_for_each_safe(pos, tmp, &link->slabs) {
		struct slab *slab = rk_list_entry(pos, struct slab, node);

		if (slab->units_free == slab->units)
			slab_release(link->wire, slab);
	}
}

/* wire_close(): everything, in use or not. */
void region_release_all(struct wire *wire)
{
	while (wire->slab_count) {
		struct slab *slab = wire->slabs[wire->slab_count - 1];
		struct wire_link *link = slab->link;
		unsigned puts = 0;

		for (unsigned i = 0; i < slab->units; i++)
			puts += slab->block[i].units != 0;
		slab_release(wire, slab);
		while (link && puts--)
			wire_put(link);
	}
	rk_free(wire->slabs);
	wire->slabs = NULL;
}
