/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Boxes: making ours, mapping the peer's.
 *
 * What is always true: a box is written through one map only, made before the
 * seals that forbid another.  Nothing is mapped that could shrink under us or
 * is not plain memory (a file system of the peer's could stop us in a page
 * fault).  A forked child has none of these maps.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "softverbs/wire_internal.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

int box_memfd(const char *name, uint64_t bytes)
{
	struct rlimit limit;
	int fd, ret;

	/* beyond the limit ftruncate() would send a deadly signal */
	if (!getrlimit(RLIMIT_FSIZE, &limit) &&
	    limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes)
		return -EFBIG;
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING |
					MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL) /* older than Linux 6.3 */
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes)) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd;
}

int box_create(struct box **out, int *out_fd)
{
	struct box *box;
	int fd, ret;

	fd = box_memfd("rdmakit-box", sizeof(*box));
	if (fd < 0)
		return fd;
	box = mmap(NULL, sizeof(*box), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (box == MAP_FAILED) {
		ret = -errno;
		goto err_fd;
	}
	if (fcntl(fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE |
			  F_SEAL_SEAL) ||
	    madvise(box, sizeof(*box), MADV_DONTFORK)) {
		ret = -errno;
		goto err_map;
	}
	box->version = BOX_VERSION;
	box->box_bytes = sizeof(*box);
	*out = box;
	*out_fd = fd;
	return 0;

err_map:
	munmap(box, sizeof(*box));
err_fd:
	close(fd);
	return ret;
}

int box_check_fd(int fd, uint64_t bytes, int seals)
{
	struct statfs fs;
	struct stat st;
	int has;

	has = fcntl(fd, F_GET_SEALS);
	if (has < 0 || (has & seals) != seals)
		return -EPROTO;
	if (fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC)
		return -EPROTO;
	if (fstat(fd, &st) || st.st_size < 0 || (uint64_t)st.st_size != bytes)
		return -EPROTO;
	return 0;
}

int box_map_peer(int fd, const struct box **out)
{
	const struct box *box;
	int ret;

	ret = box_check_fd(fd, sizeof(*box),
			   F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
	if (ret)
		return ret;
	box = mmap(NULL, sizeof(*box), PROT_READ, MAP_SHARED | MAP_NORESERVE,
		   fd, 0);
	if (box == MAP_FAILED)
		return -errno;
	if (madvise((void *)box, sizeof(*box), MADV_DONTFORK)) {
		ret = -errno;
		goto err_map;
	}
	if (rk_load_acquire(&box->version) != BOX_VERSION ||
	    rk_load(&box->box_bytes) != sizeof(*box)) {
		ret = -EPROTO;
		goto err_map;
	}
	*out = box;
	return 0;

err_map:
	munmap((void *)box, sizeof(*box));
	return ret;
}

void box_unmap(const struct box *box)
{
	if (box)
		munmap((void *)box, sizeof(*box));
}
