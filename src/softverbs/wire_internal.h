/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the wire share with each other.  Everything here is under
 * the device lock (see wire.h).
 *
 * What is always true: a process acts only upon its private truth, which is
 * in these structs; boxes are written from it and never read back.  What the
 * peer wrote is loaded once, checked, and then used.
 */
#ifndef RK_SOFTVERBS_WIRE_INTERNAL_H
#define RK_SOFTVERBS_WIRE_INTERNAL_H

#include <netinet/in.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "softverbs/wire.h"

enum {
	LINKS_MAX = 4096,
	LINKS_PER_USER = 1024,	   /* of another user than ours */
	LINK_MESSAGES_MAX = 4096,  /* queued to a peer that does not read */
	LINK_PACKETS_MAX = 8192,   /* the same with grants and withdrawals */
	LINK_INBOX_MAX = 256,	   /* read ahead, not delivered yet */
	LINK_REGIONS_MAX = 4096,   /* granted by one peer */
	LINK_RECEIVE_BUDGET = 64,  /* packets of one link in one pump */
	POLL_CREDIT = 256,	   /* spent between looks at the sockets: */
	POLL_COST_IDLE = 1,	   /* by a pump that found nothing */
	POLL_COST_BUSY = 8,	   /* and by one that took its time */
	AWAKE_LINKS_FREE = 16,	   /* with so few, none is put to sleep */
	IDLE_PUMPS_MAX = 4096,
	CHUNK_NONE = 0xffff,
	PAGE_BYTES = 4096,
};

#define LINK_HELLO_NS (10 * RK_NS_PER_S)
#define LINK_LINGER_NS (5 * RK_NS_PER_S)
#define HAZARD_WAIT_NS RK_NS_PER_MS
#define REGION_SLAB_BYTES (2ull << 20)
#define REGION_BYTES_MAX (1ull << 40)

/* Something the epoll descriptor watches. */
struct wire_source {
	void (*ready)(struct wire_source *source, uint32_t events);
};

struct key_record;
struct slab;

struct wire {
	const struct wire_handler *handler;
	void *user;
	int epoll_fd;
	int timer_fd;
	bool abandoned;
	bool pumping;
	bool asleep;	    /* between wire_sleep() and wire_wake() */
	bool promise_moved; /* a sleep number was published, no fence yet */
	unsigned poll_spent;
	unsigned awake_count;
	uint64_t sleep_number; /* the last one published, on any link */
	uint64_t linger_ns;
	uint64_t hello_ns;
	struct rk_log_limit complaints; /* lines logged about peers */

	struct rk_list awake;	/* links whose lanes every pump looks at */
	struct rk_list pending; /* links with work that no event announces */
	struct rk_list links;
	struct rk_list listeners;
	struct rk_list buried_links, buried_listeners; /* freed after a pump */
	struct rk_list timers; /* earliest first */
	struct wire_source timer_source;
	uint64_t timer_armed_ns; /* 0: not armed */

	struct slab **slabs; /* sorted by address */
	unsigned slab_count, slab_room;
	struct key_record *keys;
	unsigned key_count, key_room; /* entries ever used, allocated */
	unsigned key_free;	      /* index + 1 of the first free one */

	struct wire_stats stats;
};

/*
 *   NEW --HELLO--> UP --peer died, closed, sent nonsense--> DEAD
 *    |                                                       ^
 *    +--10 s, hang-up, nonsense------------------------------+
 *
 * An accepted link is NEW until the peer's HELLO: it has no box yet and nobody
 * has heard of it.  A link we open is UP at once.  DEAD links live until their
 * last reference is dropped and keep their maps until then.
 */
enum link_state { LINK_NEW, LINK_UP, LINK_DEAD };

struct lane_block {
	struct wire_lane *lane[64];
};

/* A chunk of the staging area: free, or waiting for the peer to copy it. */
struct stage_chunk {
	struct wire_lane *lane; /* NULL: free, or its lane was closed */
	uint64_t needed_head;	/* free when the peer's head is here */
	uint16_t number;	/* of the lane */
	uint16_t next;		/* of the same lane; or in the free list */
	bool busy;
};

struct peer_region {
	char *map; /* NULL: not granted */
	uint64_t bytes;
	bool writable;
};

struct wire_link {
	/* looked at by every pump */
	const struct box *peer; /* NULL until the peer's HELLO */
	struct box *box;	/* ours; NULL while NEW */
	struct wire *wire;	/* NULL after wire_close() */
	struct rk_list awake_node;
	unsigned idle_pumps;
	bool awake;		  /* in wire->awake */
	struct dirty_words seen; /* the private truth of the box's words */
	struct dirty_words mark;
	struct wire_lane *hot; /* the lane that had news last */
	uint64_t hot_tail;     /* its tail when it was last looked at */
	bool hot_was;	       /* the last visit was for it alone */

	enum link_state state;
	bool ours;
	bool broken;	  /* to be ended by the next pump */
	bool scan;	  /* offer every lane once */
	bool wants_out;	  /* EPOLLOUT is asked for */
	bool no_vm;	  /* process_vm_* is not allowed */
	unsigned references; /* one is the wire's while not DEAD */
	struct rk_list node;
	struct rk_list pending_node;

	struct wire_source socket_source, pid_source;
	int socket, pid_fd; /* pid_fd -1: a peer we cannot name */
	pid_t pid;
	uid_t uid;
	struct sockaddr_un peer_name; /* of a link of ours */
	struct wire_timer timer;      /* HELLO is due, or lingering */

	struct rk_list queue; /* packets the socket did not take */
	unsigned queue_count;
	struct rk_list inbox; /* messages read ahead */
	unsigned inbox_count;

	uint64_t token_for; /* the sleep number we sent a token for */
	uint64_t hazard;    /* ours: odd while copying */
	uint64_t stuck;	    /* the peer's odd hazard we gave up on; 0 */
	uint64_t opens;	    /* lanes ever opened, makes epochs differ */

	struct lane_block *block[BOX_LEAVES];
	uint64_t reserved[BOX_LEAVES]; /* lane numbers handed out, by bit */
	unsigned lane_count;
	unsigned lanes_touched; /* one more than the highest ever opened */

	struct stage_chunk chunk[BOX_STAGE_CHUNKS];
	uint16_t chunk_free;
	unsigned chunks_busy, chunks_touched;

	struct rk_list slabs;	 /* granted to the peer */
	uint64_t *region_used;	 /* numbers in use, by bit */
	uint64_t bytes_held;	 /* freed, but a copy may still land */
	struct peer_region *regions; /* granted by the peer */
	unsigned region_count;
};

/* ---- wire.c ------------------------------------------------------------ */

RK_MUST_CHECK int wire_watch(struct wire *wire, int fd,
			     struct wire_source *source, uint32_t events);

/* ---- wire_timer.c ------------------------------------------------------ */

void wire_timers_ready(struct wire_source *source, uint32_t events);

/* ---- box.c ------------------------------------------------------------- */

/* A sealable memfd of that size. */
RK_MUST_CHECK int box_memfd(const char *name, uint64_t bytes);
/* Ours: mapped, sealed; *fd is for the peer. */
RK_MUST_CHECK int box_create(struct box **out, int *fd);
/* Is fd memory that cannot shrink under us?  -EPROTO if not. */
RK_MUST_CHECK int box_check_fd(int fd, uint64_t bytes, int seals);
RK_MUST_CHECK int box_map_peer(int fd, const struct box **out);
void box_unmap(const struct box *box);

/* ---- port.c ------------------------------------------------------------ */

enum { PORT_NAMES_MAX = 3 };

/* IPv4 as itself or mapped, IPv6; -EAFNOSUPPORT otherwise. */
struct port_address {
	int family; /* AF_INET or AF_INET6 */
	uint16_t port;
	uint32_t scope;
	union {
		struct in_addr v4;
		struct in6_addr v6;
	};
};
RK_MUST_CHECK int port_parse(const struct sockaddr *addr,
			     struct port_address *out);
bool port_is_wildcard(const struct port_address *address);
/* 0; -EADDRNOTAVAIL: no such address on this host; -EAFNOSUPPORT. */
RK_MUST_CHECK int port_check_local(const struct port_address *address);
socklen_t port_name(const struct port_address *address, bool v6_only,
		    struct sockaddr_un *out);

/* The names a connector tries, best first; their number or negative errno. */
RK_MUST_CHECK int port_names(const struct port_address *address,
			     struct sockaddr_un names[PORT_NAMES_MAX],
			     socklen_t bytes[PORT_NAMES_MAX]);
/* ---- port_listen.c ----------------------------------------------------- */

struct wire_listener {
	struct wire *wire;
	struct rk_list node;
	struct wire_source source;
	struct wire_timer retry; /* out of descriptors: accept again later */
	int socket;
	uint16_t port;
	bool listening;
};

void port_bury(struct wire *wire);

/* ---- link.c ------------------------------------------------------------ */

/* Owns the socket on success; its steps are link_find_peer(), link_watch() and
 * link_hello() (our box, and the words that introduce it to the peer). */
struct wire_link *link_new(struct wire *wire, int socket, bool ours);
RK_MUST_CHECK int link_find_peer(struct wire_link *link);
RK_MUST_CHECK int link_watch(struct wire_link *link);
RK_MUST_CHECK int link_hello(struct wire_link *link);
RK_MUST_CHECK int link_accept(struct wire *wire, int socket);
/* The peer's HELLO came with this box. */
RK_MUST_CHECK int link_greeted(struct wire_link *link, int box_fd);
void link_break(struct wire_link *link); /* the next pump ends it */
void link_pend(struct wire_link *link);
void link_rouse(struct wire_link *link);
void link_doze(struct wire_link *link);
/* Work that no event announces: read-ahead messages, scans, broken links. */
unsigned link_serve(struct wire_link *link);
void link_close(struct wire_link *link); /* without a word to the handler */
void link_bury(struct wire *wire);
bool link_is_hung_up(const struct wire_link *link);
void link_detach(struct wire_link *link); /* wire_close() */

/* ---- link_socket.c ----------------------------------------------------- */

/*
 * | bytes | one packet on the socket of a link                        |
 * |-------|-----------------------------------------------------------|
 * | 0-3   | kind                                                      |
 * | 4-7   | GRANT, WITHDRAW: region; HELLO: BOX_VERSION; else 0       |
 * | 8-15  | HELLO: size of the box; GRANT: of the region; MESSAGE:    |
 * |       | bytes that follow; TOKEN: the sleep number it is for      |
 * | 16-23 | GRANT: 1 if the peer may write, else 0                    |
 */
enum packet_kind {
	PACKET_HELLO = 1,    /* one descriptor: the box */
	PACKET_GRANT = 2,    /* one descriptor: the region */
	PACKET_WITHDRAW = 3, /* unmap it */
	PACKET_TOKEN = 4,    /* wake up */
	PACKET_MESSAGE = 5,  /* for the connection manager */
};

struct packet {
	uint32_t kind;
	uint32_t number;
	uint64_t value;
	uint64_t writable;
};

/* Send or queue; owns fd (-1: none) from here in every case. */
RK_MUST_CHECK int link_post(struct wire_link *link, const struct packet *head,
			    const void *body, size_t bytes, int fd);
void link_token(struct wire_link *link, uint64_t sleep_number);
void link_flush(struct wire_link *link);
void link_drop_queues(struct wire_link *link);
/*
 * Read at most budget packets; messages go to the handler if deliver, else to
 * the inbox.  Returns how many, or negative errno: the link is finished.
 */
RK_MUST_CHECK int link_receive(struct wire_link *link, unsigned budget,
			       bool deliver);
unsigned link_deliver_inbox(struct wire_link *link);

/* ---- lane.c, lane_*.c -------------------------------------------------- */

static inline struct wire_lane *lane_find(const struct wire_link *link,
					  unsigned number)
{
	const struct lane_block *block = link->block[number / 64];

	return block ? block->lane[number % 64] : NULL;
}

/* Are the peer's words those of this use of the lane? */
bool lane_check_ready(struct wire_lane *lane);
static inline bool lane_is_ready(struct wire_lane *lane)
{
	return rk_likely(lane->ready) || lane_check_ready(lane);
}

void lane_ring(struct wire_link *link, unsigned number, bool urgent);
void lane_ring_all(struct wire_link *link); /* the peer's box just came */
unsigned lane_visit(struct wire_link *link);
unsigned lane_scan(struct wire_link *link);
bool lane_is_dirty(const struct wire_link *link);
void lane_free_blocks(struct wire_link *link);

void stage_init(struct wire_link *link);
void stage_orphan(struct wire_lane *lane);
void stage_reset(struct wire_link *link, unsigned number);

/* ---- region.c: what we grant; region_peer.c: what we were granted ------ */

struct slab_block {
	uint32_t units;	 /* of the allocation that starts here; 0: none */
	uint8_t access;	 /* as allocated */
	uint8_t held;	 /* freed, waits for a copy that may be running */
	uint8_t dirty;	 /* this unit was used before */
};

struct slab {
	struct wire_link *link; /* NULL: private memory of this process */
	struct rk_list node;	/* link->slabs */
	char *base;
	uint64_t bytes, unit_bytes;
	unsigned units, units_free;
	unsigned region; /* its number on the link */
	bool writable;	 /* by the peer */
	struct slab_block block[];
};

/* The slab that addr lies in, and its block's first unit; NULL: neither. */
struct slab *region_find(struct wire *wire, uint64_t addr, unsigned *first);
void region_sweep(struct wire_link *link); /* let go what was held */
void region_link_closed(struct wire_link *link); /* and what is not in use */
void region_release_all(struct wire *wire);

RK_MUST_CHECK int region_granted(struct wire_link *link, unsigned number,
				 uint64_t bytes, bool writable, int fd);
RK_MUST_CHECK int region_withdrawn(struct wire_link *link, unsigned number);
void region_unmap_peer(struct wire_link *link);

/* ---- key.c ------------------------------------------------------------- */

/* Wait, at most 1 ms, until no copy by the peer can be running: 0 or -EBUSY */
RK_MUST_CHECK int key_hazard_wait(struct wire_link *link);
bool key_hazard_is_stuck(struct wire_link *link);
void key_publish_private(struct wire_link *link);
void key_release_all(struct wire *wire);

#endif
