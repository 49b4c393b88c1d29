/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keys: which memory of this process peers may address.
 *
 * The table here is the truth; boxes hold copies.  A key to granted memory is
 * in the box of its link alone; a key to private memory is in every box, under
 * the same number, so numbers belong to the process.  A key that no peer may
 * use (no remote access) is in none.
 *
 * Nothing lands after a removal: key 0, fence, then the peer's hazard word is
 * even or has moved, else -EBUSY (see key_access.c for the other side).
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>

#include <infiniband/verbs.h>

#include "softverbs/wire_internal.h"

enum {
	KEY_REMOTE = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_ATOMIC,
	KEY_GENERATIONS = 255, /* 1..255, so that no key is 0 */
	HAZARD_SPINS = 256,    /* looks before the processor is given away */
};

struct key_record {
	uint64_t addr, bytes;
	uint64_t region_at;
	struct wire_link *link; /* whose peer may use it; NULL: every one */
	uint32_t region;	/* as in the box */
	uint32_t access;	/* remote rights only */
	uint32_t pd;
	uint32_t next_free; /* index + 1 */
	uint8_t generation;
	bool busy;
};

/* ---- copies in boxes --------------------------------------------------- */

static uint32_t key_of(const struct wire *wire, unsigned index)
{
	return (uint32_t)index << 8 | wire->keys[index].generation;
}

static void key_show(struct wire_link *link, unsigned index)
{
	const struct key_record *record = &link->wire->keys[index];
	struct key_entry *entry = &link->box->key[index];

	rk_store(&entry->addr, record->addr);
	rk_store(&entry->bytes, record->bytes);
	rk_store(&entry->region_at, record->region_at);
	rk_store(&entry->region, record->region);
	rk_store(&entry->access, record->access);
	rk_store(&entry->pd, record->pd);
	rk_store_release(&entry->key, key_of(link->wire, index));
}

/* Every link that shows a key: box made, not dead. */
#define for_each_shown(wire, pos, tmp, record, link)                         \
	rk_list_for_each_safe(pos, tmp, &(wire)->links)                      \
		if ((link = rk_list_entry(pos, struct wire_link, node),      \
		     link->state == LINK_UP &&                               \
			     (!(record)->link || (record)->link == link)))

void key_publish_private(struct wire_link *link)
{
	const struct wire *wire = link->wire;

	for (unsigned i = 0; i < wire->key_count; i++) {
		const struct key_record *record = &wire->keys[i];

		if (record->busy && !record->link && record->access)
			key_show(link, i);
	}
}

/* ---- numbers ----------------------------------------------------------- */

static int key_take(struct wire *wire)
{
	unsigned index;

	if (wire->key_free) {
		index = wire->key_free - 1;
		wire->key_free = wire->keys[index].next_free;
		return (int)index;
	}
	if (wire->key_count == BOX_KEYS)
		return -ENOSPC;
	if (wire->key_count == wire->key_room) {
		unsigned room = wire->key_room ? 2 * wire->key_room : 64;
		struct key_record *keys = rk_realloc(wire->keys,
						     room * sizeof(*keys));

		if (!keys)
			return -ENOMEM;
		wire->keys = keys;
		wire->key_room = room;
	}
	index = wire->key_count++;
	wire->keys[index] = (struct key_record){ .generation = 1 };
	return (int)index;
}

static void key_give(struct wire *wire, unsigned index)
{
	struct key_record *record = &wire->keys[index];
	uint8_t next = (uint8_t)(record->generation % KEY_GENERATIONS + 1);

	*record = (struct key_record){ .generation = next,
				       .next_free = wire->key_free };
	wire->key_free = index + 1;
}

/* ---- adding and removing ----------------------------------------------- */

/* Which memory is it, and may it be given those rights? */
static int key_place(struct wire *wire, struct key_record *record)
{
	const struct slab_block *block;
	uint64_t begin, end;
	struct slab *slab;
	unsigned first;

	if (record->bytes > UINT64_MAX - record->addr)
		return -EINVAL;
	slab = region_find(wire, record->addr, &first);
	if (!slab)
		return 0; /* the program's own */
	block = &slab->block[first];
	begin = (uint64_t)(uintptr_t)slab->base + first * slab->unit_bytes;
	end = begin + block->units * slab->unit_bytes;
	if (!block->units || block->held || record->addr >= end ||
	    record->bytes > end - record->addr)
		return -EINVAL;
	if (!slab->link)
		return 0;
	if (record->access & ~block->access)
		return -EACCES;
	record->link = slab->link;
	record->region = slab->region + 1;
	record->region_at =
		record->addr - (uint64_t)(uintptr_t)slab->base;
	return 0;
}

int wire_key_add(struct wire *wire, void *addr, uint64_t bytes,
		 unsigned access, uint32_t pd, uint32_t *key)
{
	struct key_record record = { .addr = (uint64_t)(uintptr_t)addr,
				     .bytes = bytes,
				     .access = access & KEY_REMOTE,
				     .pd = pd,
				     .busy = true };
	struct rk_list *pos, *tmp;
	struct wire_link *link;
	int index, ret;

	ret = key_place(wire, &record);
	if (ret)
		return ret;
	index = key_take(wire);
	if (index < 0)
		return index;
	record.generation = wire->keys[index].generation;
	wire->keys[index] = record;
	*key = key_of(wire, (unsigned)index);
	if (!record.access)
		return 0;
	for_each_shown(wire, pos, tmp, &record, link)
		key_show(link, (unsigned)index);
	return 0;
}

int wire_key_remove(struct wire *wire, uint32_t key)
{
	unsigned index = key >> 8;
	struct key_record record;
	struct rk_list *pos, *tmp;
	struct wire_link *link;
	int ret = 0;

	if (wire->abandoned)
		return 0;
	assert(index < wire->key_count && wire->keys[index].busy &&
	       key_of(wire, index) == key);
	record = wire->keys[index];
	key_give(wire, index);
	if (!record.access)
		return 0;
	for_each_shown(wire, pos, tmp, &record, link)
		rk_store_release(&link->box->key[index].key, 0);
	rk_fence();
	for_each_shown(wire, pos, tmp, &record, link)
		if (key_hazard_wait(link))
			ret = -EBUSY;
	return ret;
}

void key_release_all(struct wire *wire)
{
	rk_free(wire->keys);
	wire->keys = NULL;
	wire->key_count = wire->key_room = wire->key_free = 0;
}

/* ---- the peer's hazard word -------------------------------------------- */

/* Is a copy that we gave up waiting for still possible? */
bool key_hazard_is_stuck(struct wire_link *link)
{
	if (link->stuck && (link->state != LINK_UP ||
			    rk_load_acquire(&link->peer->hazard) !=
				    link->stuck))
		link->stuck = 0;
	return link->stuck != 0;
}

/*
 * Bounded: a peer that was stopped inside a copy costs its neighbours 1 ms
 * once, not for every key and lane.
 */
int key_hazard_wait(struct wire_link *link)
{
	uint64_t hazard, until_ns;

	if (!link->peer || link->state != LINK_UP)
		return 0;
	hazard = rk_load_acquire(&link->peer->hazard);
	if (!(hazard & 1))
		return 0;
	if (key_hazard_is_stuck(link))
		return -EBUSY;
	until_ns = rk_now_ns() + HAZARD_WAIT_NS;
	do {
		for (unsigned i = 0; i < HAZARD_SPINS; i++) {
			if (rk_load_acquire(&link->peer->hazard) != hazard)
				return 0;
			rk_pause();
		}
		sched_yield();
	} while (rk_now_ns() < until_ns);
	if (link_is_hung_up(link))
		return 0;
	link->stuck = hazard;
	return -EBUSY;
}
