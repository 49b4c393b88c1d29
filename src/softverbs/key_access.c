/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided access as the initiator: the target's table and epoch are read
 * and obeyed here, then the bytes are copied, by memcpy where the target
 * granted the memory, by process_vm_writev where it is the target's own.
 *
 * The hazard word is odd from before the first check until after the last
 * byte.  Between it and the checks stands a full fence, as between the
 * target's closing of an epoch or key and its look at the hazard: so either we
 * see the closing, or the target sees the hazard and waits.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "softverbs/wire_internal.h"

struct target {
	char *map;	  /* NULL: the peer's private memory */
	uint64_t address; /* there, then */
};

enum { TARGET_NO_REGION = 1 }; /* its grant has not been read yet */

static void hazard_begin(struct wire_link *link)
{
	rk_store(&link->box->hazard, ++link->hazard);
	rk_fence();
}

static void hazard_end(struct wire_link *link)
{
	rk_store_release(&link->box->hazard, ++link->hazard);
}

/*
 * The one place where the peer's key table is judged.  0, TARGET_NO_REGION or
 * -EACCES.
 */
static int target_check(const struct wire_lane *lane, uint64_t addr,
			uint32_t key, uint64_t bytes, uint32_t right,
			struct target *out)
{
	const struct wire_link *link = lane->link;
	const struct peer_region *granted;
	const struct key_entry *entry;
	struct key_entry copy;
	uint64_t offset;

	if (key >> 8 >= BOX_KEYS)
		return -EACCES;
	entry = &link->peer->key[key >> 8];
	if (!key || rk_load_acquire(&entry->key) != key)
		return -EACCES;
	copy.addr = rk_load(&entry->addr);
	copy.bytes = rk_load(&entry->bytes);
	copy.region_at = rk_load(&entry->region_at);
	copy.region = rk_load(&entry->region);
	copy.access = rk_load(&entry->access);
	copy.pd = rk_load(&entry->pd);
	/* not another region's words: the key is still the one we found */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (rk_load(&entry->key) != key)
		return -EACCES;

	offset = addr - copy.addr;
	if (!(copy.access & right) || addr < copy.addr ||
	    offset > copy.bytes || bytes > copy.bytes - offset ||
	    copy.pd != rk_load(&link->peer->lane[lane->number].pd))
		return -EACCES;
	*out = (struct target){ .address = addr };
	if (!copy.region)
		return 0;
	if (copy.region > LINK_REGIONS_MAX)
		return -EACCES;
	if (copy.region > link->region_count ||
	    !link->regions[copy.region - 1].map)
		return TARGET_NO_REGION;
	granted = &link->regions[copy.region - 1];
	if (copy.region_at > granted->bytes ||
	    offset > granted->bytes - copy.region_at ||
	    bytes > granted->bytes - copy.region_at - offset)
		return -EACCES;
	if (right == IBV_ACCESS_REMOTE_WRITE && !granted->writable)
		return -EACCES;
	out->map = granted->map + copy.region_at + offset;
	return 0;
}

/* ---- copying ----------------------------------------------------------- */

static void copy_mapped(char *map, const struct iovec *iov,
			unsigned iov_count, bool write)
{
	for (unsigned i = 0; i < iov_count; i++) {
		size_t bytes = iov[i].iov_len;

		if (!bytes)
			continue;
		if (write)
			memcpy(map, iov[i].iov_base, bytes);
		else
			memcpy(iov[i].iov_base, map, bytes);
		map += bytes;
	}
}

static int vm_error(struct wire_link *link, int error)
{
	switch (error) {
	case EFAULT:
		return -EACCES; /* it has unmapped what it registered */
	case ESRCH:
		return link_is_hung_up(link) ? -EHOSTDOWN : -EOPNOTSUPP;
	case EPERM:
	case ENOSYS:
		link->no_vm = true;
		return -EOPNOTSUPP;
	case ENOMEM:
		return -ENOMEM;
	}
	return -EACCES;
}

/*
 * Peers of the same user only: who opened the link may have become another
 * program by execve(), and the kernel judges that one by our rights, not by
 * those of the one that asked.  The pid is the peer's while its pidfd is quiet.
 */
static int copy_vm(struct wire_link *link, uint64_t addr,
		   const struct iovec *iov, unsigned iov_count, bool write)
{
	if (link->no_vm || link->pid <= 0 || link->uid != geteuid())
		return -EOPNOTSUPP;
	if (link_is_hung_up(link))
		return -EHOSTDOWN;
	for (unsigned i = 0; i < iov_count; i++) {
		struct iovec local = iov[i];

		while (local.iov_len) {
			struct iovec remote = {
				.iov_base = (void *)(uintptr_t)addr,
				.iov_len = local.iov_len,
			};
			ssize_t done;

			if (write)
				done = process_vm_writev(link->pid, &local, 1,
							 &remote, 1, 0);
			else
				done = process_vm_readv(link->pid, &local, 1,
							&remote, 1, 0);
			if (done <= 0)
				return vm_error(link, done ? errno : EFAULT);
			local.iov_base = (char *)local.iov_base + done;
			local.iov_len -= (size_t)done;
			addr += (uint64_t)done;
		}
	}
	return 0;
}

/* ---- the access -------------------------------------------------------- */

/* With the hazard word odd. */
static int access_try(struct wire_lane *lane, uint64_t addr, uint32_t key,
		      const struct iovec *iov, unsigned iov_count,
		      uint64_t bytes, bool write)
{
	uint32_t right = write ? IBV_ACCESS_REMOTE_WRITE :
				 IBV_ACCESS_REMOTE_READ;
	struct target target;
	int ret;

	if (!lane_peer_admits(lane))
		return -ESHUTDOWN;
	if (!bytes)
		return 0; /* as on a device: the key does not matter */
	ret = target_check(lane, addr, key, bytes, right, &target);
	if (ret)
		return ret;
	if (rk_unlikely(!target.map))
		return copy_vm(lane->link, target.address, iov, iov_count,
			       write);
	copy_mapped(target.map, iov, iov_count, write);
	return 0;
}

static int one_sided(struct wire_lane *lane, uint64_t addr, uint32_t key,
		     const struct iovec *iov, unsigned iov_count,
		     uint64_t bytes, bool write)
{
	struct wire_link *link = lane->link;
	int ret;

	if (!wire_link_is_alive(link))
		return -EHOSTDOWN;
	hazard_begin(link);
	ret = access_try(lane, addr, key, iov, iov_count, bytes, write);
	hazard_end(link);
	if (rk_likely(ret != TARGET_NO_REGION))
		return ret;
	/* the grant was sent before the key: it is in the socket, or in the
	 * peer's queue if the socket was full */
	if (link_receive(link, LINK_INBOX_MAX, false) < 0) {
		link_break(link);
		return -EHOSTDOWN;
	}
	hazard_begin(link);
	ret = access_try(lane, addr, key, iov, iov_count, bytes, write);
	hazard_end(link);
	return ret == TARGET_NO_REGION ? -EAGAIN : ret;
}

int wire_write(struct wire_lane *lane, uint64_t remote_addr, uint32_t key,
	       const struct iovec *iov, unsigned iov_count, uint64_t bytes)
{
	return one_sided(lane, remote_addr, key, iov, iov_count, bytes, true);
}

int wire_read(struct wire_lane *lane, uint64_t remote_addr, uint32_t key,
	      const struct iovec *iov, unsigned iov_count, uint64_t bytes)
{
	return one_sided(lane, remote_addr, key, iov, iov_count, bytes, false);
}
