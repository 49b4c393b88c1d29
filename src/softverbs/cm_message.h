/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What two connection managers of one host say to each other over a link.
 * Each message is one datagram, in the order it was sent, in host byte order;
 * its size is fixed by its type.  Everything here was written by another
 * process: cm_message.c copies it and checks every field before use.
 *
 *	active				passive
 *	REQUEST  ------------------->
 *		 <-------------------	LATER (no room, ask again), or
 *		 <-------------------	REPLY, or REJECT
 *	READY    ------------------->
 *	(records of the lane, the last of them a DISCONNECT)
 *		 <--- DISCONNECT --->	only where there is no queue pair
 *		 <--- CLOSED ------->	the lane is not used any more here
 */
#ifndef RK_SOFTVERBS_CM_MESSAGE_H
#define RK_SOFTVERBS_CM_MESSAGE_H

#include <assert.h>
#include <stdint.h>

#include "softverbs/wire.h"

enum {
	CM_VERSION = 1,
	/* sizes of the InfiniBand messages, less the header that rdma_cm puts
	 * before the program's bytes of a request */
	CM_REQUEST_PRIVATE = 56,
	CM_REPLY_PRIVATE = 196,
	CM_REJECT_PRIVATE = 148,
};

enum cm_message_type {
	CM_REQUEST = 1,
	CM_LATER = 2,
	CM_REPLY = 3,
	CM_READY = 4,
	CM_REJECT = 5,
	CM_DISCONNECT = 6,
	CM_CLOSED = 7,
	CM_TYPES /* how many, and one */
};

/* Reasons of a REJECT, as InfiniBand numbers them. */
enum cm_reason {
	CM_REASON_NO_RESOURCES = 3,
	CM_REASON_TIMEOUT = 4,
	CM_REASON_UNSUPPORTED = 5,
	CM_REASON_INVALID_ID = 6,
	CM_REASON_INVALID_SERVICE = 8, /* nobody listens there */
	CM_REASON_CONSUMER = 28,       /* the program said no */
};

struct cm_head {
	uint8_t version;
	uint8_t type;	/* enum cm_message_type */
	uint16_t bytes; /* of the whole message */
	uint32_t to;	/* the receiver's id; 0 in REQUEST and CLOSED */
	uint32_t from;	/* the sender's id; 0 where it has none */
};
static_assert(sizeof(struct cm_head) == 12, "head");

/* An address as it travels: 4 or 16 bytes of ip are meant. */
struct cm_address {
	uint16_t family; /* AF_INET or AF_INET6 */
	uint16_t port;	 /* network order */
	uint32_t scope;	 /* IPv6: interface of a link-local address */
	uint8_t ip[16];
};
static_assert(sizeof(struct cm_address) == 24, "address");

/* What each side says of its queue pair. */
struct cm_offer {
	uint32_t lane; /* the active side's choice */
	uint32_t qpn;
	uint8_t responder_resources; /* reads the sender will answer */
	uint8_t initiator_depth;     /* reads the sender will start */
	uint8_t retry_count;	     /* for both sides; of the request only */
	uint8_t rnr_retry_count;     /* for the receiver's queue pair */
	uint8_t flow_control;
	uint8_t srq;
	uint8_t reserved[2];
};
static_assert(sizeof(struct cm_offer) == 16, "offer");

struct cm_request {
	struct cm_head head;
	struct cm_offer offer;
	struct cm_address source;
	struct cm_address target;
	uint8_t private_data[CM_REQUEST_PRIVATE];
};
static_assert(sizeof(struct cm_request) == 132, "request");

struct cm_reply {
	struct cm_head head;
	struct cm_offer offer;
	uint8_t private_data[CM_REPLY_PRIVATE];
};
static_assert(sizeof(struct cm_reply) == 224, "reply");

struct cm_reject {
	struct cm_head head;
	uint32_t reason; /* enum cm_reason, or another InfiniBand number */
	uint8_t private_data[CM_REJECT_PRIVATE];
};
static_assert(sizeof(struct cm_reject) == 164, "reject");

struct cm_closed {
	struct cm_head head;
	uint32_t lane;
};
static_assert(sizeof(struct cm_closed) == 16, "closed");

/* LATER, READY and DISCONNECT are a head alone. */

union cm_message {
	struct cm_head head;
	struct cm_request request;
	struct cm_reply reply;
	struct cm_reject reject;
	struct cm_closed closed;
};
static_assert(sizeof(union cm_message) <= WIRE_MESSAGE_MAX, "one datagram");

#endif
