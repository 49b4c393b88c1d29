/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory two processes share, word by word.
 *
 * Each process of a link owns one box: a memfd that it alone may write and the
 * peer maps read-only (sealed against shrinking, growing and new writers).  So
 * every word below has exactly one writing process.  Whatever a process acts
 * upon it keeps in private memory; the box only publishes copies, and nothing
 * is ever read back from it.
 *
 * Fields marked "peer" are read by the other process: loaded once, atomically,
 * into a local, checked, and only then used.  doc/design.md has the argument
 * why no wake-up is lost and what happens when either side stops at any step.
 */
#ifndef RK_SOFTVERBS_LAYOUT_H
#define RK_SOFTVERBS_LAYOUT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

enum {
	BOX_VERSION = 1,
	BOX_LANES = 16384,	    /* queue pairs one link can carry */
	BOX_LEAVES = BOX_LANES / 64, /* dirty words, one bit per lane */
	BOX_SUMS = BOX_LEAVES / 64,  /* one bit per leaf */
	BOX_KEYS = 32768,	    /* memory regions the peer may address */
	BOX_STAGE_CHUNKS = 256,
	STAGE_CHUNK_BYTES = 16384,   /* the longest fragment of a SEND */
	RING_SLOTS = 64,	    /* per lane, a power of two */
	SLOT_BYTES = 64,
	RECORD_SLOTS_MAX = 16,
	RECORD_HEAD_BYTES = 32,
	/* payload that travels in the ring itself */
	RECORD_INLINE_MAX =
		RECORD_HEAD_BYTES + (RECORD_SLOTS_MAX - 1) * SLOT_BYTES,
};

/*
 * | bytes | record head                                             |
 * |-------|---------------------------------------------------------|
 * | 0     | op (enum record_op)                                     |
 * | 1     | flags (enum record_flag)                                |
 * | 2-3   | slots this record takes in the ring, 1..16              |
 * | 4-7   | payload bytes carried by this record                    |
 * | 8-11  | immediate, as the verbs program gave it (network order) |
 * | 12-15 | WRITE_IMM: byte count; SEND: whole message length       |
 * | 16-19 | SEND: offset of this fragment in the message            |
 * | 20-23 | stage chunk + 1, or 0: the payload is in the ring       |
 * | 24-31 | number of this record on its lane, from 0; acked and nak |
 * | 32-63 | first 32 bytes of the payload; more slots follow        |
 */
enum record_op {
	RECORD_SEND = 1,
	RECORD_WRITE_IMM = 2,
	RECORD_DISCONNECT = 3, /* payload: private data of the disconnect */
	RECORD_FATAL = 4,      /* immediate: syndrome; target QP to error */
};

enum record_flag {
	RECORD_SOLICITED = 1,
	RECORD_HAS_IMM = 2,
	RECORD_LAST = 4, /* last fragment: completes the receive */
};

struct record {
	uint8_t op;
	uint8_t flags;
	uint16_t slots;
	uint32_t bytes;
	uint32_t imm;
	uint32_t length;
	uint32_t offset;
	uint32_t chunk;
	uint64_t sequence;
};
static_assert(sizeof(struct record) == RECORD_HEAD_BYTES, "record head");

struct slot {
	uint64_t word[SLOT_BYTES / 8];
};
static_assert(sizeof(struct slot) == SLOT_BYTES, "slot");

/*
 * The words of one lane, one cache line: a record, an acknowledgement and a
 * credit arrive together.  Acknowledgements and credits are words, not
 * records: a word always has room and is cumulative.
 */
struct lane_words {
	uint64_t tail;	 /* slots published; release, after the slots */
	uint64_t head;	 /* peer slots I am done with; after copying out */
	uint64_t acked;	 /* peer records completed here, in order */
	uint64_t credit; /* receives ever posted here */
	uint32_t rqmin;	 /* smallest receive ever posted, bytes */
	uint32_t pd;	 /* protection domain of this side's queue pair */
	uint64_t nak;	 /* 0, or enum nak_code << 56 | sequence */
	uint64_t want;	 /* odd: ring me when head, acked or credit move */
	uint64_t epoch;	 /* odd: my queue pair takes no one-sided access */
} RK_ALIGNED_LINE;
static_assert(sizeof(struct lane_words) == 64, "one line per lane");

enum nak_code {
	NAK_NONE = 0,
	NAK_INVALID_REQUEST = 1, /* too long for the receive, malformed */
	NAK_ACCESS = 2,
	NAK_OPERATION = 3, /* the target could not do it */
	NAK_GONE = 4,	   /* its queue pair takes no requests any more */
};

/*
 * A memory region the peer may address.  key is stored last (release) when it
 * is added and first (0) when it is removed.
 */
struct key_entry {
	uint64_t addr;	    /* first byte, in the owner's address space */
	uint64_t bytes;
	uint64_t region_at; /* offset of addr in the granted region */
	uint32_t region;    /* granted region + 1; 0: owner's private memory */
	uint32_t access;    /* IBV_ACCESS_REMOTE_READ, _WRITE, _ATOMIC */
	uint32_t pd;
	uint32_t key;	    /* index << 8 | generation; 0: not in use */
	uint64_t reserved[3];
} RK_ALIGNED_LINE;
static_assert(sizeof(struct key_entry) == 64, "one line per key");

/*
 * One bit per lane and one per word of those.  A process toggles its own bits
 * and shows which of the peer's it has seen; a bit is dirty while the two
 * differ.  The words of the first 256 lanes share a line with the summary.
 */
struct dirty_words {
	uint64_t sum[BOX_SUMS];
	uint64_t leaf[BOX_LEAVES];
} RK_ALIGNED_LINE;
static_assert(offsetof(struct dirty_words, leaf) == BOX_SUMS * 8, "one line");

struct box {
	/* read once, when the peer has mapped it */
	uint64_t version;
	uint64_t box_bytes;
	uint64_t head_reserved[6];

	/* peer; 0 awake, else the number of this sleep: send one token */
	uint64_t sleeping RK_ALIGNED_LINE;

	/* peer; odd while a one-sided copy of mine is running */
	uint64_t hazard RK_ALIGNED_LINE;

	/* peer; dirty bits: mine, toggled; and what I last saw of his */
	struct dirty_words mark;
	struct dirty_words seen;

	struct lane_words lane[BOX_LANES] __attribute__((aligned(4096)));
	struct key_entry key[BOX_KEYS];
	struct slot ring[BOX_LANES][RING_SLOTS];
	uint8_t stage[BOX_STAGE_CHUNKS][STAGE_CHUNK_BYTES];
} __attribute__((aligned(4096)));

#endif
