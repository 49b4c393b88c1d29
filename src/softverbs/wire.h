/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes of one host: how they find each other, what they share, how
 * one wakes the other, how one learns that the other died.  Knows nothing of
 * queue pairs: it moves records along lanes, places bytes into granted memory
 * and carries messages of the connection manager.
 *
 *   wire      this process: one epoll fd over everything below
 *   listener  a bound RDMA port (an abstract unix socket; takes no TCP port)
 *   link      a pair of processes, opened by the connecting one; two boxes
 *             (layout.h), one SOCK_SEQPACKET socket, one pidfd of the peer
 *   lane      a queue pair's place in both boxes, same number in both
 *   memory    what this process granted to the peer of one link (a memfd)
 *
 * Threads: every call is made under the device lock, which the caller holds;
 * handlers are called under it.  A handler may call anything here but
 * wire_close().  Errors are negative errno.  Nothing here blocks.
 */
#ifndef RK_SOFTVERBS_WIRE_H
#define RK_SOFTVERBS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/compiler.h"
#include "base/list.h"
#include "softverbs/layout.h"

struct wire;
struct wire_link;
struct wire_listener;
struct wire_lane;

enum { WIRE_MESSAGE_MAX = 512 }; /* bytes of one connection manager message */

struct wire_handler {
	/* A message the peer sent with wire_send(), in order. */
	void (*message)(void *user, struct wire_link *link, const void *message,
			size_t bytes);

	/* Lane, open on this side, has news: records, or words that moved.
	 * Called at most once per lane and pump; may be called without
	 * cause. */
	void (*lane)(void *user, struct wire_lane *lane);

	/* The peer process is gone.  Every open lane has been offered to
	 * lane() once more before.  The link stays valid until its last
	 * wire_put(), but carries nothing any more. */
	void (*gone)(void *user, struct wire_link *link);
};

/* ---- the process ------------------------------------------------------ */

RK_MUST_CHECK int wire_open(struct wire **out,
			    const struct wire_handler *handler, void *user);
/* Closes all links and listeners without calling the handler, and unmaps all
 * memory from wire_mem_alloc().  Afterwards only lane_close() and wire_put()
 * may be called on links still held.  NULL is fine. */
void wire_close(struct wire *wire);

/* An epoll descriptor, readable when wire_pump(wire, true) has work: listener,
 * message, token, death or timer.  Owned by the wire. */
int wire_fd(const struct wire *wire);

/*
 * Visit what has news: dirty lanes of the links that are awake always (no
 * system call), sockets, deaths and timers when thorough, else now and then.
 * Returns the number of lanes and messages handled.
 */
unsigned wire_pump(struct wire *wire, bool thorough);

/*
 * Before the process may sleep on wire_fd(): tell every peer to send a token
 * on its next record.  True: news has come meanwhile, pump again first.
 * Stays in force until wire_wake(); a token that is taken while it is in force
 * renews the promise.
 */
bool wire_sleep(struct wire *wire);
void wire_wake(struct wire *wire);

/* In a forked child: close nothing of the parent's, touch nothing shared. */
void wire_abandon(struct wire *wire);

/* ---- timers ----------------------------------------------------------- */

struct wire_timer {
	struct rk_list node;
	uint64_t at_ns; /* CLOCK_MONOTONIC; 0: not set */
	void (*fire)(struct wire_timer *timer); /* under the lock, once */
};

void wire_timer_set(struct wire *wire, struct wire_timer *timer,
		    uint64_t at_ns);
void wire_timer_cancel(struct wire *wire, struct wire_timer *timer);

/* ---- ports and links -------------------------------------------------- */

/*
 * Reserve an address and port.  Port 0: an unused one of 49152..65535.  The
 * wildcard address covers every address of the host; "::" also IPv4 unless
 * v6_only.  -EADDRINUSE, -EADDRNOTAVAIL (no such address here), -EAFNOSUPPORT.
 */
RK_MUST_CHECK int wire_bind(struct wire *wire, const struct sockaddr *addr,
			    bool v6_only, struct wire_listener **out);
uint16_t wire_listener_port(const struct wire_listener *listener);
RK_MUST_CHECK int wire_listen(struct wire_listener *listener, int backlog);
void wire_unbind(struct wire_listener *listener); /* NULL is fine */

/*
 * A link to the process that listens on addr, an address of this host: the one
 * we opened before, or a new one, usable at once (what is sent waits for the
 * peer).  One that the peer opened is not used: only the opener chooses lanes.
 * Takes a reference.  -EHOSTUNREACH: not an address of this host;
 * -ECONNREFUSED: nobody listens there; -EAGAIN: its backlog is full.
 */
RK_MUST_CHECK int wire_connect(struct wire *wire, const struct sockaddr *addr,
			       struct wire_link **out);
struct wire_link *wire_get(struct wire_link *link);
void wire_put(struct wire_link *link);
bool wire_link_is_alive(const struct wire_link *link);
bool wire_link_is_ours(const struct wire_link *link); /* we opened it */
pid_t wire_link_pid(const struct wire_link *link);

/* Queue a message.  -EPIPE: the peer is gone; -ENOBUFS: it has not read
 * thousands of earlier ones. */
RK_MUST_CHECK int wire_send(struct wire_link *link, const void *message,
			    size_t bytes);

/* ---- lanes ------------------------------------------------------------ */

/* This side's private truth about one lane; embedded in the queue pair. */
struct wire_lane {
	struct wire_link *link; /* NULL: not open */
	unsigned number;
	/* producing */
	uint64_t tail;	      /* slots written */
	uint64_t published;   /* slots the peer may see */
	uint64_t sequence;    /* records written, the next one's number */
	uint64_t peer_head;   /* last checked copies of the peer's words */
	uint64_t peer_acked;
	uint64_t peer_credit;
	uint32_t peer_rqmin;
	uint64_t peer_nak;
	/* consuming */
	uint64_t head;		/* peer slots taken */
	uint64_t peer_tail;	/* last checked copy: slots that may be taken */
	uint64_t peer_sequence; /* number of the peer's next record */
	/* words for the peer, published by lane_answer() */
	uint64_t acked;	      /* records completed: n is, once acked > n */
	uint64_t credit;
	uint32_t rqmin;
	uint64_t epoch;
	bool want;
	/* the wire's own */
	bool ready;	/* the peer's words belong to this use of the lane */
	bool urgent;	/* what is not flushed yet must wake the peer */
	uint64_t stale_epoch; /* ready when the peer's epoch is another one */
	uint64_t shown_head, shown_acked, shown_credit; /* as published */
	uint32_t shown_rqmin;
	uint16_t stage_first, stage_last; /* chunks the peer still needs */
};

/* The side that opened the link hands out lane numbers; the other side is
 * told by message.  -EMFILE: all 16384 in use.  A number may be given back
 * when both sides have closed the lane. */
RK_MUST_CHECK int lane_reserve(struct wire_link *link, unsigned *number);
void lane_unreserve(struct wire_link *link, unsigned number);

/*
 * Begin and end the use of a lane on this side.  lane_open() zeroes this
 * side's words, so it comes before the message that tells the peer.  pd is
 * published for the peer's check.  The lane's epoch starts odd (closed to
 * one-sided access) until lane_admit().  -EINVAL: number out of range or in
 * use (the number came from a peer).
 */
RK_MUST_CHECK int lane_open(struct wire_lane *lane, struct wire_link *link,
			    unsigned number, uint32_t pd);
void lane_close(struct wire_lane *lane); /* revokes first */

/*
 * Append one record; the payload is copied now, gathered from iov: into the
 * ring if it fits RECORD_INLINE_MAX, else into one stage chunk.  Not visible
 * before lane_flush().  bytes (the sum of iov), slots, chunk and sequence are
 * filled in.  -EAGAIN: no slots or no chunk now (lane_want() to be told);
 * -EPROTO: the peer's words are nonsense; -EMSGSIZE: more than
 * STAGE_CHUNK_BYTES.
 */
RK_MUST_CHECK int lane_push(struct wire_lane *lane, struct record *record,
			    const struct iovec *iov, unsigned iov_count);
void lane_flush(struct wire_lane *lane); /* publish, mark dirty, wake */

/* Re-read and check the peer's head, acked, credit, rqmin and nak. */
RK_MUST_CHECK int lane_refresh(struct wire_lane *lane);

/* Ask to be rung when the peer's words move.  After lane_want(true) call
 * lane_refresh() once more before giving up. */
void lane_want(struct wire_lane *lane, bool want);

/* The peer's queue pair takes requests (its epoch is even).  Asked after
 * lane_flush(): true means that the peer takes what was published before it
 * flushes its receives. */
bool lane_peer_admits(const struct wire_lane *lane);

/*
 * Look at the peer's next record: 1 and a private, checked copy; 0 none;
 * -EPROTO nonsense.  The payload stays in the peer's memory.  Checked: op,
 * flags, slots, chunk, bytes, that a SEND's fragment lies within its length
 * (not that fragments follow each other) and that the sequence is the next.
 */
RK_MUST_CHECK int lane_peek(struct wire_lane *lane, struct record *record);

/* Scatter that record's payload, record->bytes of it, into iov (which is at
 * least as long). */
void lane_copy(struct wire_lane *lane, const struct record *record,
	       const struct iovec *iov, unsigned iov_count);
void lane_pop(struct wire_lane *lane, const struct record *record);

/* Publish head, acked, credit, rqmin; ring the peer only if it wants that, and
 * not if something is pushed but not flushed: that flush must follow. */
void lane_answer(struct wire_lane *lane);

/* Publish the nak word and ring the peer. */
void lane_nak(struct wire_lane *lane, enum nak_code code, uint64_t sequence);

/* Open this side to one-sided access by the peer, and close it again.
 * lane_revoke() returns 0 when no copy can be running any more, -EBUSY when
 * one still may after 1 ms (a stopped peer): memory is quarantined then. */
void lane_admit(struct wire_lane *lane);
int lane_revoke(struct wire_lane *lane);

/* ---- memory ----------------------------------------------------------- */

/*
 * Zeroed memory that the peer of link may map (link NULL: private memory of
 * this process).  access has the IBV_ACCESS_REMOTE_* bits it may ever be
 * registered with; without REMOTE_WRITE the peer's map is read-only.  Page
 * aligned.  Never handed to another process afterwards.  NULL and errno on
 * failure: ENOMEM, EPIPE (the peer is gone), ENOBUFS, EMFILE.
 */
void *wire_mem_alloc(struct wire *wire, struct wire_link *link, size_t bytes,
		     unsigned access);
void wire_mem_free(struct wire *wire, void *addr); /* NULL is fine */

/*
 * Make bytes at addr addressable: by the peer of the link whose memory it is,
 * or, where it is private memory, by every peer that may use
 * process_vm_writev on this process.  -ENOSPC: BOX_KEYS in use; -EINVAL:
 * reaches over the end of its memory; -EACCES: more rights than allocated.
 */
RK_MUST_CHECK int wire_key_add(struct wire *wire, void *addr, uint64_t bytes,
			       unsigned access, uint32_t pd, uint32_t *key);
/* 0: no peer touches it any more; -EBUSY: one still may (see lane_revoke). */
int wire_key_remove(struct wire *wire, uint32_t key);

/*
 * Execute a one-sided access as the initiator: check the key, rights, range
 * and protection domain against the target's table and its lane's epoch, then
 * copy.  bytes is the sum of iov.
 *   -EACCES      the target does not allow it
 *   -EHOSTDOWN   the peer process is gone
 *   -ESHUTDOWN   the peer's queue pair takes no access any more
 *   -EOPNOTSUPP  private memory of the peer, and the kernel does not allow
 *                process_vm_writev on it, or the peer is another user
 *   -EAGAIN      the peer's grant of that memory is still on its way (it
 *                arrives as a socket event): try again after a pump
 */
RK_MUST_CHECK int wire_write(struct wire_lane *lane, uint64_t remote_addr,
			     uint32_t key, const struct iovec *iov,
			     unsigned iov_count, uint64_t bytes);
RK_MUST_CHECK int wire_read(struct wire_lane *lane, uint64_t remote_addr,
			    uint32_t key, const struct iovec *iov,
			    unsigned iov_count, uint64_t bytes);

/* ---- figures ---------------------------------------------------------- */

struct wire_stats {
	uint64_t links, lanes;
	uint64_t records_sent, records_received, tokens_sent, tokens_received;
	uint64_t bytes_shared; /* boxes as touched, and granted memory */
	uint64_t bytes_quarantined;
};
void wire_stats_get(const struct wire *wire, struct wire_stats *out);

#endif
