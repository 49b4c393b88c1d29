/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the verbs objects (queue pairs, completion queues, memory regions) and
 * the connection manager know of each other inside the software device.
 *
 * There is one device per process and one lock for all of it.  Functions named
 * soft_* below are called with the lock held, unless they say otherwise.  The
 * verbs side runs the wire: its wire_handler forwards messages to the
 * connection manager and lanes to the queue pairs.
 */
#ifndef RK_SOFTVERBS_ENGINE_H
#define RK_SOFTVERBS_ENGINE_H

#include <pthread.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "softverbs/table.h"
#include "softverbs/wire.h"

/* ---- device.c (verbs side) -------------------------------------------- */

struct soft_device {
	pthread_mutex_t lock;
	struct wire *wire;
	bool inert; /* a forked child: every call answers ENODEV */
	/* device.c has the rest in a struct that embeds this one */
};

/* The device of this process, started at first use; NULL and errno. Takes the
 * lock on success: end with soft_unlock(). */
struct soft_device *soft_enter(void);
void soft_unlock(struct soft_device *device);

/* The one context that every id's ->verbs points at; NULL and errno. */
struct ibv_context *soft_context(struct soft_device *device);

/*
 * A descriptor for a channel: an epoll over the wire and over one eventfd of
 * the channel.  Event queues of both kinds of channels (completion, connection
 * manager) are built on this.
 */
struct soft_channel {
	int fd;	      /* what the program polls */
	int event_fd; /* readable: an event is queued */
};
RK_MUST_CHECK int soft_channel_open(struct soft_device *device,
				    struct soft_channel *channel);
void soft_channel_close(struct soft_device *device,
			struct soft_channel *channel);
void soft_channel_signal(struct soft_channel *channel);
void soft_channel_drain(struct soft_channel *channel);

/*
 * The program found no event: pump the wire; then, if nothing_yet() still says
 * so, give EAGAIN where the program made channel->fd non-blocking, else sleep
 * on it with the lock released and look again.  0 or -1 with errno.
 */
int soft_channel_wait(struct soft_device *device, struct soft_channel *channel,
		      bool (*nothing_yet)(void *arg), void *arg);

/* ---- queue pairs, as the connection manager drives them ---------------- */

struct soft_qp;
struct soft_qp *soft_qp_of(struct ibv_qp *qp);

struct soft_path {
	struct wire_link *link;
	unsigned lane;
	uint32_t dest_qpn;
	uint8_t retry_count;	 /* 0..7 */
	uint8_t rnr_retry_count; /* 0..7, 7 for ever */
	uint8_t max_rd_atomic, max_dest_rd_atomic;
};

/* What happens on a connected queue pair; called under the lock.  cm is the
 * pointer given to soft_qp_connect(). */
struct soft_cm_events {
	/* first record on a queue pair that is not yet ready to send */
	void (*first_record)(void *cm);
	/* DISCONNECT record, after everything before it was delivered */
	void (*disconnected)(void *cm, const void *private_data, size_t bytes);
	/* the peer process is gone, after what it sent was delivered */
	void (*gone)(void *cm);
};

/* RESET -> INIT with the access rights that rdma_cm gives (remote read, write
 * and local write). */
int soft_qp_init(struct soft_qp *qp);

/* Open the lane on this side, before the message that tells the peer; the
 * queue pair holds a reference to the link from here until it is destroyed. */
RK_MUST_CHECK int soft_qp_open_lane(struct soft_qp *qp,
				    struct wire_link *link, unsigned lane);

/* -> RTR: receive from now on.  -> RTS: send too. */
RK_MUST_CHECK int soft_qp_connect(struct soft_qp *qp,
				  const struct soft_path *path,
				  const struct soft_cm_events *events,
				  void *cm);
RK_MUST_CHECK int soft_qp_ready(struct soft_qp *qp);

/* Publish a DISCONNECT record behind everything sent (private data up to 224
 * bytes), then -> ERROR with flush.  Also fine on a queue pair in ERROR. */
void soft_qp_disconnect(struct soft_qp *qp, const void *private_data,
			size_t bytes);

/* -> ERROR: everything outstanding completes as flushed, in order. */
void soft_qp_fail(struct soft_qp *qp);

/* Called by the verbs side when a queue pair's lane is closed for good
 * (destroyed): the connection manager tells the peer, so that the number can
 * be used again.  Implemented in the connection manager. */
void soft_cm_lane_closed(struct wire_link *link, unsigned lane);

/* ---- connection manager entry points for the verbs side ---------------- */

void soft_cm_message(struct soft_device *device, struct wire_link *link,
		     const void *message, size_t bytes);
void soft_cm_gone(struct soft_device *device, struct wire_link *link);
/* in a forked child */
void soft_cm_abandon(void);

/* the connection manager's half of the table (cm_* members and mem_*) */
void soft_cm_fill_table(struct rk_verbs_table *table);

#endif
