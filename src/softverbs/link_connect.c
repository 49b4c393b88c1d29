/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening a link: who listens on an address of this host, and is there a link
 * to that process already?
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "softverbs/wire_internal.h"

static int connect_any(const struct port_address *address,
		       struct sockaddr_un *name)
{
	struct sockaddr_un names[PORT_NAMES_MAX];
	socklen_t bytes[PORT_NAMES_MAX];
	int count, fd;

	count = port_names(address, names, bytes);
	if (count < 0)
		return count;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	for (int i = 0; i < count; i++) {
		if (!connect(fd, (struct sockaddr *)&names[i], bytes[i])) {
			*name = names[i];
			return fd;
		}
		if (errno != ECONNREFUSED) {
			int ret = -errno;

			close(fd);
			return ret;
		}
	}
	close(fd);
	return -ECONNREFUSED;
}

/*
 * The link we already have to that process.  Two devices inside our own
 * process cannot be told apart by pid, so there the port must be the same.
 */
static struct wire_link *link_find(struct wire *wire, pid_t pid,
				   const struct sockaddr_un *name)
{
	struct rk_list *pos, *tmp;

	if (pid <= 0)
		return NULL;
	rk_list_for_each_safe(pos, tmp, &wire->links) {
		struct wire_link *link =
			rk_list_entry(pos, struct wire_link, node);

		if (!link->ours || link->pid != pid ||
		    !wire_link_is_alive(link) || link_is_hung_up(link))
			continue;
		if (pid != getpid() ||
		    !memcmp(&link->peer_name, name, sizeof(*name)))
			return link;
	}
	return NULL;
}

static int link_open(struct wire *wire, int fd, const struct sockaddr_un *name,
		     struct wire_link **out)
{
	struct wire_link *link;
	int ret;

	if (wire->stats.links >= LINKS_MAX) {
		close(fd);
		return -EMFILE;
	}
	link = link_new(wire, fd, true);
	if (!link) {
		close(fd);
		return -ENOMEM;
	}
	wire->stats.links++;
	link->peer_name = *name;
	ret = link_find_peer(link);
	if (!ret)
		ret = link_watch(link);
	if (!ret)
		ret = link_hello(link);
	if (ret) {
		link_close(link);
		return ret == -ESRCH || ret == -EPIPE ? -ECONNREFUSED : ret;
	}
	*out = wire_get(link);
	return 0;
}

int wire_connect(struct wire *wire, const struct sockaddr *addr,
		 struct wire_link **out)
{
	struct port_address address;
	struct sockaddr_un name;
	struct wire_link *link;
	struct ucred peer = { .pid = 0 };
	socklen_t bytes = sizeof(peer);
	int fd;

	*out = NULL;
	if (wire->abandoned)
		return -ENODEV;
	fd = port_parse(addr, &address);
	if (fd)
		return fd;
	fd = connect_any(&address, &name);
	if (fd < 0)
		return fd;
	if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes)) {
		link = link_find(wire, peer.pid, &name);
		if (link) {
			close(fd); /* the acceptor takes no notice */
			*out = wire_get(link);
			return 0;
		}
	}
	return link_open(wire, fd, &name, out);
}
