/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Valkey-over-RDMA version 1 as it is on the wire, and the two functions that
 * judge what a peer sent.  Everything behind them trusts it.
 *
 * Control messages are SENDs of exactly 32 bytes, big-endian, reserved bytes
 * zero when sent and ignored when received.  Payload is a byte stream written
 * into the window that the other side announced, in order and without gaps; a
 * WRITE WITH IMMEDIATE says in its immediate how many new bytes there are.
 * Pure functions, any thread.
 */
#ifndef RK_STREAM_WIRE_FORMAT_H
#define RK_STREAM_WIRE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* Big-endian numbers of any alignment. */
struct wire_be16 {
	uint8_t byte[2];
};
struct wire_be32 {
	uint8_t byte[4];
};
struct wire_be64 {
	uint8_t byte[8];
};

static inline uint16_t wire_get16(struct wire_be16 n)
{
	return (uint16_t)(n.byte[0] << 8 | n.byte[1]);
}

static inline uint32_t wire_get32(struct wire_be32 n)
{
	return (uint32_t)n.byte[0] << 24 | (uint32_t)n.byte[1] << 16 |
	       (uint32_t)n.byte[2] << 8 | n.byte[3];
}

static inline uint64_t wire_get64(struct wire_be64 n)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < sizeof(n); i++)
		value = value << 8 | n.byte[i];
	return value;
}

static inline struct wire_be16 wire_put16(uint16_t v)
{
	return (struct wire_be16){ { (uint8_t)(v >> 8), (uint8_t)v } };
}

static inline struct wire_be32 wire_put32(uint32_t v)
{
	return (struct wire_be32){ { (uint8_t)(v >> 24), (uint8_t)(v >> 16),
				     (uint8_t)(v >> 8), (uint8_t)v } };
}

static inline struct wire_be64 wire_put64(uint64_t v)
{
	struct wire_be64 n;

	for (unsigned i = 0; i < sizeof(n); i++)
		n.byte[i] = (uint8_t)(v >> (56 - 8 * i));
	return n;
}

enum wire_opcode {
	WIRE_GET_SERVER_FEATURE = 0,  /* client asks; the answer has it too */
	WIRE_SET_CLIENT_FEATURE = 1,  /* client tells, no answer */
	WIRE_KEEPALIVE = 2,	      /* no answer */
	WIRE_REGISTER_XFER_MEMORY = 3 /* "write into this window" */
};

/*
 * GetServerFeature, SetClientFeature
 *
 *   offset  bytes
 *        0      2  opcode 0 or 1
 *        2      2  select: which 64 features are meant; echoed in the answer
 *        4     20  reserved
 *       24      8  features, one bit each; none is defined
 */
struct wire_feature {
	struct wire_be16 opcode;
	struct wire_be16 select;
	uint8_t reserved[20];
	struct wire_be64 features;
};
_Static_assert(sizeof(struct wire_feature) == 32, "32 bytes on the wire");
_Static_assert(offsetof(struct wire_feature, features) == 24, "layout");

/*
 * Keepalive
 *
 *   offset  bytes
 *        0      2  opcode 2
 *        2     30  reserved
 */
struct wire_keepalive {
	struct wire_be16 opcode;
	uint8_t reserved[30];
};
_Static_assert(sizeof(struct wire_keepalive) == 32, "32 bytes on the wire");

/*
 * RegisterXferMemory
 *
 *   offset  bytes
 *        0      2  opcode 3
 *        2     14  reserved
 *       16      8  address of the window in the sender's memory
 *       24      4  length of the window
 *       28      4  remote key
 */
struct wire_memory {
	struct wire_be16 opcode;
	uint8_t reserved[14];
	struct wire_be64 address;
	struct wire_be32 length;
	struct wire_be32 key;
};
_Static_assert(sizeof(struct wire_memory) == 32, "32 bytes on the wire");
_Static_assert(offsetof(struct wire_memory, address) == 16, "layout");
_Static_assert(offsetof(struct wire_memory, length) == 24, "layout");
_Static_assert(offsetof(struct wire_memory, key) == 28, "layout");

union wire_control {
	struct wire_be16 opcode;
	struct wire_feature feature;
	struct wire_keepalive keepalive;
	struct wire_memory memory;
	uint8_t bytes[32];
};
_Static_assert(sizeof(union wire_control) == 32, "32 bytes on the wire");

enum {
	WIRE_CONTROL_BYTES = 32,
	/* An announced window longer than this is not taken for real. */
	WIRE_WINDOW_BYTES_MAX = 1 << 30,
};

/* A control message after it was checked; what its opcode has no use for is
 * zero. */
struct wire_message {
	enum wire_opcode opcode;
	uint16_t select;
	uint64_t features;
	uint64_t address;
	uint32_t length;
	uint32_t key;
};

enum { WIRE_WORDS_BYTES = 128 };

/* 0 and *out, or -EPROTO and in words what was wrong with which value. */
RK_MUST_CHECK int wire_check_control(const void *message, uint32_t bytes,
				     struct wire_message *out,
				     char words[WIRE_WORDS_BYTES]);

/* May the peer say that so many new bytes are in a window with room for
 * room_bytes more?  0, or -EPROTO and words. */
RK_MUST_CHECK int wire_check_immediate(uint32_t immediate, uint32_t room_bytes,
				       char words[WIRE_WORDS_BYTES]);

void wire_make_feature(union wire_control *out, uint16_t select,
		       uint64_t features);
void wire_make_keepalive(union wire_control *out);
void wire_make_memory(union wire_control *out, uint64_t address,
		      uint32_t length, uint32_t key);

#endif
