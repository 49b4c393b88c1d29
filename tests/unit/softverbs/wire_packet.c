/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Malformed packets and descriptors that are not what they are said to be.
 * The link they come on ends; an honest link beside it goes on.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire_ends.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { BOX_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE };

/* ---- a peer made by hand ----------------------------------------------- */

static int raw_connect(const struct ends *ends)
{
	struct sockaddr_storage addr =
		ends_addr("127.0.0.1", wire_listener_port(ends->listener));
	struct port_address address;
	struct sockaddr_un name;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (port_parse((struct sockaddr *)&addr, &address) ||
	    connect(fd, (struct sockaddr *)&name,
		    port_name(&address, false, &name)))
		ok_or_die(false, "a raw connection");
	return fd;
}

static void raw_send(int fd, const void *packet, size_t bytes, const int *fds,
		     unsigned count)
{
	struct iovec iov = { .iov_base = (void *)packet, .iov_len = bytes };
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(64 * sizeof(int))];
	} control = { .space = { 0 } };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (count) {
		struct cmsghdr *cmsg = &control.align;

		msg.msg_control = control.space;
		msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, count * sizeof(int));
	}
	sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int make_memory(size_t bytes, int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, seals))
		ok_or_die(false, "a memfd");
	return fd;
}

static int make_box(void)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct box *box;

	if (ftruncate(fd, sizeof(*box)))
		ok_or_die(false, "a box");
	box = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	box->version = BOX_VERSION;
	box->box_bytes = sizeof(*box);
	munmap(box, 4096);
	fcntl(fd, F_ADD_SEALS, BOX_SEALS);
	return fd;
}

static void raw_hello(int fd)
{
	struct packet hello = { .kind = PACKET_HELLO,
				.number = BOX_VERSION,
				.value = sizeof(struct box) };
	int box = make_box();

	raw_send(fd, &hello, sizeof(hello), &box, 1);
	close(box);
}

static bool is_hung_up(int fd)
{
	char bytes[1024];
	ssize_t ret;

	do
		ret = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	while (ret > 0);
	return ret == 0;
}

static unsigned count_fds(void)
{
	unsigned count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* ---- packets ----------------------------------------------------------- */

enum bad_fd { FD_NONE, FD_GOOD, FD_TWO, FD_MANY, FD_NULL, FD_UNSEALED,
	      FD_SHRINKABLE, FD_SHORT, FD_FILE, FD_PLAIN_SHM, FD_CLAIMED };

static unsigned make_fds(enum bad_fd what, uint64_t bytes, bool box, int *fds)
{
	char path[] = "/tmp/rdmakit-hostile-XXXXXX";
	int seals = F_SEAL_SHRINK | F_SEAL_GROW;

	if (box)
		seals = BOX_SEALS;
	if (bytes > 1 << 30)
		bytes = 4096;
	switch (what) {
	case FD_NONE:
		return 0;
	case FD_GOOD:
		fds[0] = box ? make_box() : make_memory(bytes, seals);
		return 1;
	case FD_TWO:
		fds[0] = box ? make_box() : make_memory(bytes, seals);
		fds[1] = dup(fds[0]);
		return 2;
	case FD_MANY:
		for (int i = 0; i < 60; i++)
			fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		return 60;
	case FD_NULL:
		fds[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
		return 1;
	case FD_UNSEALED:
		fds[0] = make_memory(bytes, 0);
		return 1;
	case FD_SHRINKABLE:
		fds[0] = make_memory(bytes, seals & ~F_SEAL_SHRINK);
		return 1;
	case FD_SHORT:
		fds[0] = make_memory(bytes - 4096, seals);
		return 1;
	case FD_CLAIMED: /* the right size and seals, but no box inside */
		fds[0] = make_memory(bytes, seals);
		return 1;
	case FD_FILE:
		fds[0] = mkstemp(path);
		unlink(path);
		break;
	case FD_PLAIN_SHM:
		snprintf(path, sizeof(path), "/rk-%d", (int)getpid());
		fds[0] = shm_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
		shm_unlink(path);
		break;
	}
	if (fds[0] >= 0 && ftruncate(fds[0], (off_t)bytes))
		ok_or_die(false, "a file");
	return fds[0] >= 0;
}

static const struct bad_packet {
	const char *what;
	bool greeted; /* after a proper HELLO */
	struct packet head;
	size_t bytes; /* 0: the head alone */
	enum bad_fd fd;
} bad_packets[] = {
	{ "nothing but a byte", 0, { 0 }, 1, FD_NONE },
	{ "a short head", 0, { PACKET_HELLO, 1, sizeof(struct box), 0 }, 20,
	  FD_GOOD },
	{ "a message before HELLO", 0, { PACKET_MESSAGE, 0, 0, 0 }, 0,
	  FD_NONE },
	{ "a grant before HELLO", 0, { PACKET_GRANT, 0, 4096, 0 }, 0,
	  FD_GOOD },
	{ "HELLO of another version", 0,
	  { PACKET_HELLO, 2, sizeof(struct box), 0 }, 0, FD_GOOD },
	{ "HELLO with another size", 0, { PACKET_HELLO, 1, 4096, 0 }, 0,
	  FD_GOOD },
	{ "HELLO without a box", 0,
	  { PACKET_HELLO, 1, sizeof(struct box), 0 }, 0, FD_NONE },
	{ "HELLO with two", 0, { PACKET_HELLO, 1, sizeof(struct box), 0 }, 0,
	  FD_TWO },
	{ "HELLO with sixty", 0, { PACKET_HELLO, 1, sizeof(struct box), 0 },
	  0, FD_MANY },
	{ "a device as a box", 0, { PACKET_HELLO, 1, sizeof(struct box), 0 },
	  0, FD_NULL },
	{ "a box without seals", 0,
	  { PACKET_HELLO, 1, sizeof(struct box), 0 }, 0, FD_UNSEALED },
	{ "a box that may shrink", 0,
	  { PACKET_HELLO, 1, sizeof(struct box), 0 }, 0, FD_SHRINKABLE },
	{ "a box that is too short", 0,
	  { PACKET_HELLO, 1, sizeof(struct box), 0 }, 0, FD_SHORT },
	{ "a file as a box", 0, { PACKET_HELLO, 1, sizeof(struct box), 0 }, 0,
	  FD_FILE },
	{ "a file of a tmpfs as a box", 0,
	  { PACKET_HELLO, 1, sizeof(struct box), 0 }, 0, FD_PLAIN_SHM },
	{ "an empty box", 0, { PACKET_HELLO, 1, sizeof(struct box), 0 }, 0,
	  FD_CLAIMED },
	{ "a second HELLO", 1, { PACKET_HELLO, 1, sizeof(struct box), 0 }, 0,
	  FD_GOOD },
	{ "an unknown kind", 1, { 6, 0, 0, 0 }, 0, FD_NONE },
	{ "kind 0", 1, { 0, 0, 0, 0 }, 0, FD_NONE },
	{ "a huge kind", 1, { 0xffffffff, 0, 0, 0 }, 0, FD_NONE },
	{ "a token with a body", 1, { PACKET_TOKEN, 0, 1, 0 }, 25, FD_NONE },
	{ "a token with a descriptor", 1, { PACKET_TOKEN, 0, 1, 0 }, 0,
	  FD_NULL },
	{ "a token with sixty", 1, { PACKET_TOKEN, 0, 1, 0 }, 0, FD_MANY },
	{ "a message of a wrong length", 1, { PACKET_MESSAGE, 0, 9, 0 }, 32,
	  FD_NONE },
	{ "a message with a number", 1, { PACKET_MESSAGE, 1, 8, 0 }, 32,
	  FD_NONE },
	{ "a message that is too long", 1, { PACKET_MESSAGE, 0, 513, 0 },
	  24 + 513, FD_NONE },
	{ "a message with a descriptor", 1, { PACKET_MESSAGE, 0, 8, 0 }, 32,
	  FD_NULL },
	{ "a grant without memory", 1, { PACKET_GRANT, 0, 4096, 1 }, 0,
	  FD_NONE },
	{ "a grant of nothing", 1, { PACKET_GRANT, 0, 0, 1 }, 0, FD_GOOD },
	{ "a grant of half a page", 1, { PACKET_GRANT, 0, 6000, 1 }, 0,
	  FD_GOOD },
	{ "a grant of the address space", 1,
	  { PACKET_GRANT, 0, ~4095ull, 1 }, 0, FD_GOOD },
	{ "a grant with a number out of range", 1,
	  { PACKET_GRANT, LINK_REGIONS_MAX, 4096, 1 }, 0, FD_GOOD },
	{ "a grant with odd rights", 1, { PACKET_GRANT, 0, 4096, 2 }, 0,
	  FD_GOOD },
	{ "a grant that may shrink", 1, { PACKET_GRANT, 0, 8192, 1 }, 0,
	  FD_SHRINKABLE },
	{ "a grant without seals", 1, { PACKET_GRANT, 0, 8192, 1 }, 0,
	  FD_UNSEALED },
	{ "a grant that is too short", 1, { PACKET_GRANT, 0, 8192, 1 }, 0,
	  FD_SHORT },
	{ "a device as a grant", 1, { PACKET_GRANT, 0, 8192, 1 }, 0,
	  FD_NULL },
	{ "a file as a grant", 1, { PACKET_GRANT, 0, 8192, 0 }, 0, FD_FILE },
	{ "a file of a tmpfs as a grant", 1, { PACKET_GRANT, 0, 8192, 0 }, 0,
	  FD_PLAIN_SHM },
	{ "the withdrawal of what was not granted", 1,
	  { PACKET_WITHDRAW, 3, 0, 0 }, 0, FD_NONE },
	{ "a withdrawal out of range", 1,
	  { PACKET_WITHDRAW, LINK_REGIONS_MAX, 0, 0 }, 0, FD_NONE },
	{ "a withdrawal with a size", 1, { PACKET_WITHDRAW, 0, 1, 0 }, 0,
	  FD_NONE },
};

static void a_bad_packet_ends_its_link_alone(void)
{
	uint8_t packet[1024] = { 0 };
	unsigned before;
	struct ends ends;
	int fds[64], fd;

	ends_open(&ends);
	ends_open_lane(&ends);
	before = count_fds();
	for (unsigned i = 0; i < RK_ARRAY_SIZE(bad_packets); i++) {
		const struct bad_packet *bad = &bad_packets[i];
		unsigned count, gone = ends.gone;
		bool known;

		fd = raw_connect(&ends);
		if (bad->greeted) {
			raw_hello(fd);
			ends_settle(&ends);
		}
		memcpy(packet, &bad->head, sizeof(bad->head));
		count = make_fds(bad->fd, bad->head.value,
				 bad->head.kind == PACKET_HELLO, fds);
		raw_send(fd, packet, bad->bytes ? bad->bytes :
						  sizeof(bad->head),
			 fds, count);
		while (count)
			close(fds[--count]);
		ends_settle(&ends);
		known = ends.gone == gone + 1;
		ok(is_hung_up(fd) && known == bad->greeted &&
			   ends_go_on(&ends),
		   "%s", bad->what);
		close(fd);
		ends_settle(&ends);
	}
	ok(count_fds() == before, "no descriptor is left open");

	fd = raw_connect(&ends);
	raw_hello(fd);
	ends_settle(&ends);
	ok(!is_hung_up(fd), "while a proper one keeps its link");
	close(fd);
	ends_settle(&ends);
	ends_close(&ends);
}

int main(void)
{
	rk_log_set_level(RK_LOG_ERROR);
	a_bad_packet_ends_its_link_alone();
	ok(rk_alloc_live() == 0, "nothing is left allocated");
	return ok_done();
}
