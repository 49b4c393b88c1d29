/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that the peer granted to us: mapped when the grant arrives, with the
 * rights it names, after the checks that make a copy into it safe (it cannot
 * shrink, it is plain memory).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "softverbs/wire_internal.h"

static int regions_reach(struct wire_link *link, unsigned number)
{
	struct peer_region *regions;
	unsigned count = link->region_count ? link->region_count : 4;

	if (number < link->region_count)
		return 0;
	while (count <= number)
		count *= 2;
	regions = rk_realloc(link->regions, count * sizeof(*regions));
	if (!regions)
		return -ENOMEM;
	memset(&regions[link->region_count], 0,
	       (count - link->region_count) * sizeof(*regions));
	link->regions = regions;
	link->region_count = count;
	return 0;
}

int region_granted(struct wire_link *link, unsigned number, uint64_t bytes,
		   bool writable, int fd)
{
	struct peer_region *region;
	char *map;
	int ret;

	ret = box_check_fd(fd, bytes, F_SEAL_SHRINK | F_SEAL_GROW);
	if (ret)
		return ret;
	ret = regions_reach(link, number);
	if (ret)
		return ret;
	region = &link->regions[number];
	if (region->map)
		return -EPROTO;
	map = mmap(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0),
		   MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	if (madvise(map, bytes, MADV_DONTFORK)) {
		ret = -errno;
		munmap(map, bytes);
		return ret;
	}
	*region = (struct peer_region){ .map = map,
					.bytes = bytes,
					.writable = writable };
	return 0;
}

int region_withdrawn(struct wire_link *link, unsigned number)
{
	struct peer_region *region;

	if (number >= link->region_count || !link->regions[number].map)
		return -EPROTO;
	region = &link->regions[number];
	munmap(region->map, region->bytes);
	*region = (struct peer_region){ .map = NULL };
	return 0;
}

void region_unmap_peer(struct wire_link *link)
{
	for (unsigned i = 0; i < link->region_count; i++)
		if (link->regions[i].map)
			munmap(link->regions[i].map, link->regions[i].bytes);
	rk_free(link->regions);
	link->regions = NULL;
	link->region_count = 0;
}
