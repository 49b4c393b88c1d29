/* SPDX-License-Identifier: BSD-3-Clause */
/* Granted memory and keys: what a peer may reach, and each refusal. */
#include <sys/mman.h>
#include <unistd.h>

#include "wire_ends.h"

enum { RIGHTS_WRITE = IBV_ACCESS_REMOTE_WRITE,
       RIGHTS_READ = IBV_ACCESS_REMOTE_READ };

static int put(struct ends *ends, void *addr, uint32_t key, const char *text)
{
	struct iovec iov = { .iov_base = (void *)text,
			     .iov_len = strlen(text) };

	return wire_write(&ends->a, (uint64_t)(uintptr_t)addr, key, &iov, 1,
			  iov.iov_len);
}

static int get(struct ends *ends, void *addr, uint32_t key, char *into,
	       size_t bytes)
{
	struct iovec iov = { .iov_base = into, .iov_len = bytes };

	return wire_read(&ends->a, (uint64_t)(uintptr_t)addr, key, &iov, 1,
			 bytes);
}

static bool is_zero(const char *memory, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (memory[i])
			return false;
	return true;
}

static void granted_memory_is_written_and_read(size_t bytes)
{
	char into[32] = "";
	struct iovec three[3];
	struct ends ends;
	uint32_t key;
	char *memory;

	ends_open(&ends);
	ends_open_lane(&ends);
	memory = wire_mem_alloc(ends.wire, ends.passive, bytes, ENDS_ALL);
	ok_or_die(memory != NULL, "%zu bytes for the peer", bytes);
	ok((uintptr_t)memory % 4096 == 0 && is_zero(memory, bytes),
	   "page aligned and zero");
	ok(!wire_key_add(ends.wire, memory, bytes, ENDS_ALL, 7, &key),
	   "a key to it");
	ok(!put(&ends, memory + bytes - 5, key, "hello"),
	   "the peer writes up to the end");
	ok(!memcmp(memory + bytes - 5, "hello", 5), "it is there");
	ok(!get(&ends, memory + bytes - 4, key, into, 4) &&
		   !memcmp(into, "ello", 4),
	   "the peer reads it");
	three[0] = (struct iovec){ "ab", 2 };
	three[1] = (struct iovec){ NULL, 0 };
	three[2] = (struct iovec){ "cde", 3 };
	ok(!wire_write(&ends.a, (uint64_t)(uintptr_t)memory, key, three, 3, 5),
	   "in pieces");
	ok(!memcmp(memory, "abcde", 5), "that arrive in order");
	ok(!wire_key_remove(ends.wire, key), "the key is removed");
	ok(put(&ends, memory, key, "x") == -EACCES, "and does not work");
	wire_mem_free(ends.wire, memory);
	wire_mem_free(ends.wire, NULL);
	ends_close(&ends);
}

static void each_check_refuses(void)
{
	const size_t bytes = 8192;
	uint32_t key, read_key, write_key, other, again = 0;
	char into[8];
	char *memory;
	struct ends ends;

	ends_open(&ends);
	ends_open_lane(&ends);
	memory = wire_mem_alloc(ends.wire, ends.passive, 3 * bytes, ENDS_ALL);
	memset(memory, 'm', 3 * bytes);
	memory += bytes;
	if (wire_key_add(ends.wire, memory, bytes, ENDS_ALL, 7, &key) ||
	    wire_key_add(ends.wire, memory, bytes, RIGHTS_READ, 7,
			 &read_key) ||
	    wire_key_add(ends.wire, memory, bytes, RIGHTS_WRITE, 7,
			 &write_key) ||
	    wire_key_add(ends.wire, memory, bytes, ENDS_ALL, 8, &other))
		ok_or_die(false, "keys");
	ok(put(&ends, memory - 1, key, "x") == -EACCES, "before the range");
	ok(put(&ends, memory + bytes, key, "x") == -EACCES, "behind it");
	ok(put(&ends, memory + bytes - 3, key, "four") == -EACCES,
	   "across its end");
	ok(put(&ends, memory - 2, key, "four") == -EACCES,
	   "across its beginning");
	ok(put(&ends, (void *)(UINTPTR_MAX - 1), key, "four") == -EACCES,
	   "across the end of the address space");
	ok(put(&ends, memory, read_key, "x") == -EACCES,
	   "a write with a key for reading");
	ok(get(&ends, memory, write_key, into, 1) == -EACCES,
	   "a read with a key for writing");
	ok(!get(&ends, memory, read_key, into, 1), "but a read with it works");
	ok(put(&ends, memory, other, "x") == -EACCES,
	   "another protection domain");
	ok(put(&ends, memory, 0, "x") == -EACCES, "key 0");
	ok(put(&ends, memory, 0xffffffff, "x") == -EACCES,
	   "a key out of range");
	ok(put(&ends, memory, key + 1, "x") == -EACCES,
	   "a key of another generation");
	ok(!wire_write(&ends.a, 0, 0, NULL, 0, 0),
	   "nothing may be written anywhere");
	ok(is_zero(memory - bytes, 0) && memory[0] == 'm' &&
		   memory[-1] == 'm' && memory[bytes] == 'm',
	   "no refused byte arrived");

	ok(!wire_key_remove(ends.wire, other) &&
		   !wire_key_add(ends.wire, memory, 1, ENDS_ALL, 7, &again),
	   "a key is removed and another added");
	ok(again >> 8 == other >> 8 && again != other,
	   "the place is used again under another generation");
	lane_revoke(&ends.b);
	ok(put(&ends, memory, key, "x") == -ESHUTDOWN,
	   "a revoked lane takes nothing");
	ok(wire_write(&ends.a, 0, 0, NULL, 0, 0) == -ESHUTDOWN,
	   "not even nothing");
	lane_admit(&ends.b);
	ok(!put(&ends, memory, key, "x"), "until it is admitted again");
	ends_close(&ends);
}

static void rights_are_those_of_the_allocation(void)
{
	char *memory, *first;
	struct ends ends;
	uint32_t key;

	ends_open(&ends);
	ends_open_lane(&ends);
	memory = wire_mem_alloc(ends.wire, ends.passive, 4096, RIGHTS_READ);
	first = memory;
	ok(wire_key_add(ends.wire, memory, 4096, ENDS_ALL, 7, &key) ==
		   -EACCES,
	   "memory granted for reading gets no key for writing");
	ok(wire_key_add(ends.wire, memory, 4097, RIGHTS_READ, 7, &key) ==
		   -EINVAL,
	   "nor one that reaches over its end");
	ok(wire_key_add(ends.wire, memory + 4096, 1, RIGHTS_READ, 7, &key) ==
		   -EINVAL,
	   "nor one behind it");
	ok(wire_key_add(ends.wire, memory, UINT64_MAX, RIGHTS_READ, 7,
			&key) == -EINVAL,
	   "nor one that wraps");
	ok(!wire_key_add(ends.wire, memory, 4096, RIGHTS_READ, 7, &key),
	   "but one for reading");
	memcpy(memory, "seen", 4);
	ends_settle(&ends);
	ok(ends.active->region_count > 0 && ends.active->regions[0].map &&
		   !ends.active->regions[0].writable,
	   "the peer's map is read-only");
	/* a liar in the key table does not make it writable */
	ends.passive->box->key[key >> 8].access = ENDS_ALL;
	ok(put(&ends, memory, key, "x") == -EACCES,
	   "whatever the key table says");
	memory = wire_mem_alloc(ends.wire, ends.passive, 4096, RIGHTS_READ);
	ok(memory == first + 4096, "the next page comes from the same slab");
	wire_mem_free(ends.wire, first);
	wire_mem_free(ends.wire, memory);
	memory = wire_mem_alloc(ends.wire, ends.passive, 8192, RIGHTS_READ);
	ok(memory == first && is_zero(memory, 8192),
	   "freed pages are used again, and are zero");
	wire_mem_free(ends.wire, memory);
	memory = wire_mem_alloc(ends.wire, ends.passive, 1 << 20, ENDS_ALL);
	memset(memory, 1, 1 << 20);
	wire_mem_free(ends.wire, memory);
	first = wire_mem_alloc(ends.wire, ends.passive, 1 << 20, ENDS_ALL);
	ok(memory == first && is_zero(first, 1 << 20), "also large ones");
	ends_close(&ends);
}

static void slabs_are_granted_and_withdrawn(void)
{
	struct wire_stats stats;
	char *memory[600];
	unsigned wrong = 0, peak, left = 0;
	uint64_t before;
	struct ends ends;

	ends_open(&ends);
	ends_settle(&ends);
	wire_stats_get(ends.wire, &stats);
	before = stats.bytes_shared;
	for (unsigned i = 0; i < RK_ARRAY_SIZE(memory); i++) {
		memory[i] = wire_mem_alloc(ends.wire, ends.passive,
					   4096 * (1 + i % 5), ENDS_ALL);
		wrong += !memory[i];
		memset(memory[i], (int)i, 4096 * (1 + i % 5));
	}
	for (unsigned i = 0; i < RK_ARRAY_SIZE(memory); i++)
		wrong += memory[i][0] != (char)i ||
			 memory[i][4096 * (1 + i % 5) - 1] != (char)i;
	ok(wrong == 0, "600 allocations do not overlap");
	ends_settle(&ends);
	peak = 0;
	for (unsigned i = 0; i < ends.active->region_count; i++)
		peak += ends.active->regions[i].map != NULL;
	ok(peak == 4, "they are %u regions at the peer", peak);
	wire_stats_get(ends.wire, &stats);
	ok(stats.bytes_shared == before + peak * REGION_SLAB_BYTES,
	   "counted as shared");
	for (unsigned i = 0; i < RK_ARRAY_SIZE(memory); i++)
		wire_mem_free(ends.wire, memory[(i * 7) % 600]);
	ends_settle(&ends);
	for (unsigned i = 0; i < ends.active->region_count; i++)
		left += ends.active->regions[i].map != NULL;
	ok(left == 1, "after freeing all, one is kept for the next");
	memory[0] = wire_mem_alloc(ends.wire, ends.passive, 5 << 20, ENDS_ALL);
	ends_settle(&ends);
	wire_mem_free(ends.wire, memory[0]);
	ends_settle(&ends);
	left = 0;
	for (unsigned i = 0; i < ends.active->region_count; i++)
		left += ends.active->regions[i].map != NULL;
	ok(left == 1 && wire_link_is_alive(ends.active),
	   "a large one goes when it is freed");
	ends_close(&ends);
}

static void private_memory_is_reached_by_vm_calls(void)
{
	char *memory = malloc(5000), *page;
	char into[8] = "";
	uint32_t key, local, gone;
	struct ends ends;
	int ret;

	ends_open(&ends);
	ends_open_lane(&ends);
	memset(memory, 0, 5000);
	if (wire_key_add(ends.wire, memory, 5000, ENDS_ALL, 7, &key) ||
	    wire_key_add(ends.wire, memory, 5000, IBV_ACCESS_LOCAL_WRITE, 7,
			 &local))
		ok_or_die(false, "keys to malloc memory");
	ret = put(&ends, memory + 4996, key, "four");
	if (ret == -EOPNOTSUPP) {
		ok(true, "# SKIP the kernel allows no process_vm_writev");
		ends_close(&ends);
		free(memory);
		return;
	}
	ok(!ret && !memcmp(memory + 4996, "four", 4), "written");
	ok(!get(&ends, memory + 4996, key, into, 4) &&
		   !memcmp(into, "four", 4),
	   "read");
	ok(put(&ends, memory + 4997, key, "four") == -EACCES,
	   "not over its end");
	ok(put(&ends, memory, local, "x") == -EACCES,
	   "a key without remote rights is nobody's");
	ok(local != key, "though it is a key");

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (wire_key_add(ends.wire, page, 4096, ENDS_ALL, 7, &gone))
		ok_or_die(false, "a key");
	munmap(page, 4096);
	ok(put(&ends, page, gone, "x") == -EACCES,
	   "memory that was unmapped under its key is EACCES");

	page = wire_mem_alloc(ends.wire, NULL, 100, ENDS_ALL);
	ok(page && is_zero(page, 100), "private memory from the wire");
	ok(wire_key_add(ends.wire, page, 4097, ENDS_ALL, 7, &gone) == -EINVAL,
	   "has an end");
	ok(!wire_key_add(ends.wire, page, 100, ENDS_ALL, 7, &gone) &&
		   !put(&ends, page, gone, "yes") && !memcmp(page, "yes", 3),
	   "and is reached too");
	wire_mem_free(ends.wire, page);
	ends_close(&ends);
	free(memory);
}

static void private_keys_are_shown_to_later_links(void)
{
	struct wire_listener *listener;
	struct sockaddr_storage addr;
	struct wire *other;
	struct wire_link *link;
	char memory[64];
	struct ends ends;
	uint32_t key;

	ends_open(&ends);
	if (wire_key_add(ends.wire, memory, 64, ENDS_ALL, 7, &key) ||
	    ends_bind(&ends, "127.0.0.1", 0, false, &listener) ||
	    wire_listen(listener, 1) ||
	    wire_open(&other, &ends_handler, &ends))
		ok_or_die(false, "set up");
	addr = ends_addr("127.0.0.1", wire_listener_port(listener));
	if (wire_connect(other, (struct sockaddr *)&addr, &link))
		ok_or_die(false, "connect");
	ends_settle(&ends);
	wire_pump(other, true);
	ok(link->peer && link->peer->key[key >> 8].key == key,
	   "a link made later has the key");
	ok(ends.active->peer->key[key >> 8].key == key,
	   "as has the earlier one");
	ok(!wire_key_remove(ends.wire, key), "remove");
	ok(link->peer->key[key >> 8].key == 0 &&
		   ends.active->peer->key[key >> 8].key == 0,
	   "it is removed from both");
	wire_put(link);
	wire_close(other);
	ends_close(&ends);
}

static void all_keys_can_be_used(void)
{
	uint32_t *keys = calloc(BOX_KEYS, sizeof(*keys)), key;
	unsigned wrong = 0;
	struct ends ends;
	char byte;

	ends_open(&ends);
	for (unsigned i = 0; i < BOX_KEYS; i++) {
		wrong += wire_key_add(ends.wire, &byte, 1, ENDS_ALL, 7,
				      &keys[i]) != 0;
		wrong += keys[i] >> 8 != i || !(keys[i] & 0xff);
	}
	ok(wrong == 0, "32768 keys, all different");
	ok(wire_key_add(ends.wire, &byte, 1, ENDS_ALL, 7, &key) == -ENOSPC,
	   "then ENOSPC");
	for (unsigned i = 0; i < 1000; i++) {
		uint32_t before = keys[5];

		wrong += wire_key_remove(ends.wire, keys[5]) != 0 ||
			 wire_key_add(ends.wire, &byte, 1, ENDS_ALL, 7,
				      &keys[5]) ||
			 keys[5] == before || !(keys[5] & 0xff);
	}
	ok(wrong == 0, "1000 generations of one place");
	ends_close(&ends);
	free(keys);
}

/* The peer is stopped inside a copy: its hazard word stays odd. */
static void memory_a_stopped_peer_may_write_is_withheld(void)
{
	char *memory, *next;
	struct wire_stats stats;
	uint64_t start_ns;
	struct ends ends;
	uint32_t key, second;

	ends_open(&ends);
	ends_open_lane(&ends);
	memory = wire_mem_alloc(ends.wire, ends.passive, 8192, ENDS_ALL);
	if (!memory ||
	    wire_key_add(ends.wire, memory, 8192, ENDS_ALL, 7, &key) ||
	    wire_key_add(ends.wire, memory, 4096, ENDS_ALL, 7, &second))
		ok_or_die(false, "memory");
	ends.active->box->hazard = 1;
	start_ns = rk_now_ns();
	ok(wire_key_remove(ends.wire, key) == -EBUSY,
	   "removing the key says EBUSY");
	ok(rk_now_ns() - start_ns >= HAZARD_WAIT_NS, "after a wait of 1 ms");
	start_ns = rk_now_ns();
	ok(wire_key_remove(ends.wire, second) == -EBUSY &&
		   lane_revoke(&ends.b) == -EBUSY,
	   "so do the next key and the lane");
	wire_mem_free(ends.wire, memory);
	wire_stats_get(ends.wire, &stats);
	ok(stats.bytes_quarantined == 8192, "8192 bytes are withheld");
	next = wire_mem_alloc(ends.wire, ends.passive, 4096, ENDS_ALL);
	ok(next == memory + 8192, "and not handed out again");
	ends.active->box->hazard = 2;
	wire_mem_free(ends.wire, next);
	wire_stats_get(ends.wire, &stats);
	ok(stats.bytes_quarantined == 0, "until the copy is over");
	next = wire_mem_alloc(ends.wire, ends.passive, 4096, ENDS_ALL);
	ok(next == memory, "then they are");
	lane_admit(&ends.b);
	ok(lane_revoke(&ends.b) == 0, "the lane is clean too");
	wire_mem_free(ends.wire, next);
	ends_close(&ends);
}

/* The grant lies unread in the socket when the key is used. */
static void a_key_works_before_its_grant_was_pumped(void)
{
	char *memory;
	struct ends ends;
	uint32_t key;

	ends_open(&ends);
	ends_open_lane(&ends);
	if (wire_send(ends.passive, "behind", 6))
		ok_or_die(false, "a message");
	memory = wire_mem_alloc(ends.wire, ends.passive, 4096, ENDS_ALL);
	if (!memory ||
	    wire_key_add(ends.wire, memory, 4096, ENDS_ALL, 7, &key))
		ok_or_die(false, "memory");
	ends.messages = 0;
	ok(!put(&ends, memory, key, "early") && !memcmp(memory, "early", 5),
	   "the grant is fetched when it is needed");
	ok(ends.messages == 0, "the message before it is not lost in between");
	ok(wire_sleep(ends.wire), "it forbids to sleep");
	wire_wake(ends.wire);
	wire_pump(ends.wire, false);
	ok(ends.messages == 1 && !memcmp(ends.last, "behind", 6),
	   "and comes with the next pump");
	wire_mem_free(ends.wire, memory);
	ends_close(&ends);
}

/* A handler that writes reads ahead; the order of messages must survive it,
 * also when it cannot read all. */
static struct ahead {
	struct ends ends;
	char *memory;
	uint32_t key;
	uint16_t expected, wrong;
} ahead;

enum { AHEAD_MESSAGES = LINK_INBOX_MAX + 8 };

static void ahead_message(void *user, struct wire_link *link,
			  const void *message, size_t bytes)
{
	uint16_t number;

	if (bytes != sizeof(number))
		return;
	memcpy(&number, message, sizeof(number));
	ahead.wrong += number != ahead.expected++;
	(void)!put(&ahead.ends, ahead.memory, ahead.key, "x");
}

static void reading_ahead_keeps_the_order_of_messages(void)
{
	static const struct wire_handler handler = { ahead_message, ends_lane,
						     ends_gone };
	unsigned failed = 0;

	ends_open(&ahead.ends);
	ends_open_lane(&ahead.ends);
	ahead.ends.wire->handler = &handler;
	for (uint16_t i = 0; i < AHEAD_MESSAGES; i++) {
		failed += wire_send(ahead.ends.passive, &i, sizeof(i)) != 0;
		if (i) /* the grant lies behind the first */
			continue;
		ahead.memory = wire_mem_alloc(ahead.ends.wire,
					      ahead.ends.passive, 1, ENDS_ALL);
		failed += !ahead.memory ||
			  wire_key_add(ahead.ends.wire, ahead.memory, 1,
				       ENDS_ALL, 7, &ahead.key) != 0;
	}
	ok(!failed && !ahead.ends.passive->queue_count,
	   "%d messages and a grant lie in the socket", AHEAD_MESSAGES);
	ends_settle(&ahead.ends);
	ok(ahead.expected == AHEAD_MESSAGES && !ahead.wrong,
	   "messages read ahead inside a handler come in order");
	ok(*ahead.memory == 'x', "and the write was done");
	ends_close(&ahead.ends);
}

int main(void)
{
	granted_memory_is_written_and_read(5);
	granted_memory_is_written_and_read(10000);
	granted_memory_is_written_and_read(3 << 20);
	each_check_refuses();
	rights_are_those_of_the_allocation();
	slabs_are_granted_and_withdrawn();
	private_memory_is_reached_by_vm_calls();
	private_keys_are_shown_to_later_links();
	all_keys_can_be_used();
	memory_a_stopped_peer_may_write_is_withheld();
	a_key_works_before_its_grant_was_pumped();
	reading_ahead_keeps_the_order_of_messages();
	ok(rk_alloc_live() == 0, "nothing is left allocated");
	return ok_done();
}
