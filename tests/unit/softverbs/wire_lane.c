/* SPDX-License-Identifier: BSD-3-Clause */
/* Lanes: order, wrap-around, full rings, staging, want and ring. */
#include "wire_ends.h"

static uint8_t pattern(unsigned number, unsigned at)
{
	return (uint8_t)(number * 31 + at * 7 + (at >> 8));
}

static void fill(uint8_t *bytes, unsigned number, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		bytes[i] = pattern(number, i);
}

static bool matches(const uint8_t *bytes, unsigned number, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (bytes[i] != pattern(number, i))
			return false;
	return true;
}

static void records_arrive_whole_and_in_order(void)
{
	static const unsigned sizes[] = { 0,	1,    31,   32,	   33,
					  95,	96,   97,   500,   991,
					  992,	993,  4096, 16383, 16384,
					  64,	200 };
	uint8_t out[STAGE_CHUNK_BYTES], in[STAGE_CHUNK_BYTES];
	unsigned sent = 0, taken = 0, wrong = 0, full = 0;
	struct ends ends;

	ends_open(&ends);
	ends_open_lane(&ends);
	while (taken < 2000) {
		unsigned size = sizes[sent % RK_ARRAY_SIZE(sizes)];
		int ret = -EAGAIN;

		fill(out, sent, size);
		if (sent < 2000)
			ret = ends_push(&ends.a, out, size);
		if (!ret) {
			sent++;
			continue;
		}
		full++;
		lane_flush(&ends.a);
		/* leave some behind, so that the ring wraps at every place */
		for (unsigned i = 0; i < 5 && taken < sent; i++, taken++) {
			size = sizes[taken % RK_ARRAY_SIZE(sizes)];
			ret = ends_pop(&ends.b, in, sizeof(in));
			if (ret != (int)size || !matches(in, taken, size))
				wrong++;
		}
		lane_answer(&ends.b);
	}
	ok(wrong == 0, "2000 records of 17 sizes arrive whole and in order");
	ok(full > 50, "the ring was full %u times on the way", full);
	ok(!lane_refresh(&ends.a) && ends.a.peer_acked == 2000,
	   "all of them are acknowledged");
	ends_close(&ends);
}

static void nothing_is_seen_before_the_flush(void)
{
	struct record record;
	struct ends ends;

	ends_open(&ends);
	ends_open_lane(&ends);
	ok(!ends_push(&ends.a, "x", 1), "a record is written");
	ok(lane_peek(&ends.b, &record) == 0, "and not seen before the flush");
	ends.lanes = 0;
	wire_pump(ends.wire, false);
	ok(ends.lanes == 0, "nor announced");
	lane_flush(&ends.a);
	wire_pump(ends.wire, false);
	ok(ends.lanes == 1 && ends.last_lane == &ends.b,
	   "the flush announces it on the peer's lane, once");
	ok(lane_peek(&ends.b, &record) == 1 && record.bytes == 1 &&
		   record.sequence == 0,
	   "and then it is there");
	wire_pump(ends.wire, false);
	ok(ends.lanes == 1, "a pump without news calls nobody");
	ends_close(&ends);
}

static void scatter_and_gather_take_any_pieces(void)
{
	uint8_t out[900], in[900];
	struct record record = { .op = RECORD_SEND,
				 .flags = RECORD_LAST | RECORD_SOLICITED,
				 .imm = 0x01020304,
				 .length = 900 };
	struct iovec from[4], to[3];
	struct record got;
	struct ends ends;

	ends_open(&ends);
	ends_open_lane(&ends);
	fill(out, 1, sizeof(out));
	from[0] = (struct iovec){ out, 10 };
	from[1] = (struct iovec){ NULL, 0 };
	from[2] = (struct iovec){ out + 10, 500 };
	from[3] = (struct iovec){ out + 510, 390 };
	to[0] = (struct iovec){ in, 33 };
	to[1] = (struct iovec){ in + 33, 600 };
	to[2] = (struct iovec){ in + 633, 267 };
	/* so that the payload wraps */
	for (int i = 0; i < 60; i++) {
		(void)!ends_push(&ends.a, "", 0);
		lane_flush(&ends.a);
		(void)!ends_pop(&ends.b, in, 1);
	}
	lane_answer(&ends.b);
	ok(!lane_push(&ends.a, &record, from, 4), "four pieces go in");
	lane_flush(&ends.a);
	ok(lane_peek(&ends.b, &got) == 1 && got.bytes == 900 &&
		   got.imm == 0x01020304 && got.flags == record.flags,
	   "the head arrives as it was");
	lane_copy(&ends.b, &got, to, 3);
	ok(matches(in, 1, sizeof(in)), "and three pieces come out");
	ends_close(&ends);
}

static void too_long_is_refused(void)
{
	static uint8_t out[STAGE_CHUNK_BYTES + 1];
	struct ends ends;

	ends_open(&ends);
	ends_open_lane(&ends);
	ok(ends_push(&ends.a, out, sizeof(out)) == -EMSGSIZE,
	   "more than a chunk is EMSGSIZE");
	ok(ends.a.tail == 0 && ends.a.sequence == 0,
	   "and nothing was written");
	ends_close(&ends);
}

static void a_full_ring_says_so_until_the_head_moves(void)
{
	unsigned count = 0;
	struct ends ends;
	uint8_t in[4];

	ends_open(&ends);
	ends_open_lane(&ends);
	while (!ends_push(&ends.a, "abc", 3))
		count++;
	ok(count == RING_SLOTS, "%u one-slot records fit", count);
	lane_flush(&ends.a);
	lane_want(&ends.a, true);
	ok(!lane_refresh(&ends.a) && ends_push(&ends.a, "x", 1) == -EAGAIN,
	   "the next is EAGAIN");
	ends_settle(&ends);
	ends.last_lane = NULL;
	(void)!ends_pop(&ends.b, in, sizeof(in));
	wire_pump(ends.wire, false);
	ok(ends.last_lane == NULL, "taking alone rings nobody");
	lane_answer(&ends.b);
	wire_pump(ends.wire, false);
	ok(ends.last_lane == &ends.a, "the answer rings who wants it");
	ok(!ends_push(&ends.a, "x", 1), "and there is room");
	lane_want(&ends.a, false);
	ends.last_lane = NULL;
	(void)!ends_pop(&ends.b, in, sizeof(in));
	lane_answer(&ends.b);
	wire_pump(ends.wire, false);
	ok(ends.last_lane == NULL, "the answer rings nobody who does not");
	ends_close(&ends);
}

static void chunks_come_back_even_from_closed_lanes(void)
{
	static uint8_t out[STAGE_CHUNK_BYTES], in[STAGE_CHUNK_BYTES];
	struct wire_lane a[8], b[8];
	unsigned pushed = 0, wrong = 0;
	struct ends ends;

	ends_open(&ends);
	for (unsigned i = 0; i < 8; i++) {
		unsigned number;

		if (lane_reserve(ends.active, &number) ||
		    lane_open(&a[i], ends.active, number, 7) ||
		    lane_open(&b[i], ends.passive, number, 7))
			ok_or_die(false, "eight lanes");
	}
	for (unsigned i = 0; i < 4 * RING_SLOTS; i++) {
		fill(out, i, 2000);
		pushed += !ends_push(&a[i / RING_SLOTS], out, 2000);
	}
	ok(pushed == BOX_STAGE_CHUNKS, "%u chunks can be filled", pushed);
	ok(ends_push(&a[4], out, 2000) == -EAGAIN, "the next is EAGAIN");
	for (unsigned i = 0; i < 4; i++) {
		lane_flush(&a[i]);
		lane_close(&a[i]); /* the peer has read nothing yet */
	}
	ok(ends_push(&a[4], out, 2000) == -EAGAIN,
	   "closing lanes frees none of them");
	for (unsigned i = 0; i < 4 * RING_SLOTS; i++) {
		int ret = ends_pop(&b[i / RING_SLOTS], in, sizeof(in));

		wrong += ret != 2000 || !matches(in, i, 2000);
	}
	ok(wrong == 0, "what was published before the close is read whole");
	for (unsigned i = 0; i < 3; i++)
		lane_answer(&b[i]);
	for (pushed = 0; !ends_push(&a[4 + pushed / RING_SLOTS], out, 2000);)
		pushed++;
	ok(pushed == 3 * RING_SLOTS,
	   "%u chunks are free again once the peer has taken them", pushed);
	for (unsigned i = 0; i < 4; i++)
		lane_close(&b[i]);
	for (unsigned i = 4; i < 8; i++) {
		lane_close(&a[i]);
		lane_close(&b[i]);
	}
	ends_close(&ends);
}

static void a_lane_number_is_used_again_with_fresh_words(void)
{
	struct record record;
	unsigned number;
	struct ends ends;
	uint8_t in[8];

	ends_open(&ends);
	ends_open_lane(&ends);
	for (int i = 0; i < 10; i++)
		(void)!ends_push(&ends.a, "abc", 3);
	lane_flush(&ends.a);
	while (ends_pop(&ends.b, in, sizeof(in)) >= 0)
		(void)!ends_push(&ends.b, "d", 1);
	ends.b.credit = 99;
	lane_answer(&ends.b);
	lane_flush(&ends.b);
	lane_nak(&ends.b, NAK_ACCESS, 3);
	lane_close(&ends.a);
	lane_close(&ends.b);
	lane_unreserve(ends.active, 0);

	ok(!lane_reserve(ends.active, &number) && number == 0,
	   "a number that was given back is given out again");
	ok(!lane_open(&ends.a, ends.active, number, 7), "and opens");
	ok(!lane_refresh(&ends.a) && ends.a.peer_credit == 0 &&
		   ends.a.peer_acked == 0 && ends.a.peer_nak == 0,
	   "the words of its last use do not count");
	ok(lane_peek(&ends.a, &record) == 0, "nor do its records");
	ok(!lane_peer_admits(&ends.a), "nor does its epoch");
	ok(!lane_open(&ends.b, ends.passive, number, 7), "the peer opens it");
	ends.b.credit = 5;
	lane_answer(&ends.b);
	ok(!lane_refresh(&ends.a) && ends.a.peer_credit == 5,
	   "and its new words do");
	ok(!lane_peer_admits(&ends.a), "not admitted yet");
	lane_admit(&ends.b);
	ok(lane_peer_admits(&ends.a), "admitted");
	ok(!lane_revoke(&ends.b) && !lane_peer_admits(&ends.a), "revoked");
	ends_close(&ends);
}

static void numbers_from_the_peer_are_checked(void)
{
	struct wire_lane lane;
	struct ends ends;
	unsigned number;

	ends_open(&ends);
	ends_open_lane(&ends);
	ok(lane_open(&lane, ends.passive, BOX_LANES, 1) == -EINVAL,
	   "a lane number out of range is EINVAL");
	ok(lane_open(&lane, ends.passive, 0, 1) == -EINVAL,
	   "one in use is EINVAL");
	ok(lane_reserve(ends.passive, &number) == -EINVAL,
	   "the accepting side hands out none");
	for (unsigned i = 1; i < BOX_LANES; i++)
		if (lane_reserve(ends.active, &number))
			ok_or_die(false, "lane %u of %u", i, BOX_LANES);
	ok(number == BOX_LANES - 1, "16384 lanes can be reserved");
	ok(lane_reserve(ends.active, &number) == -EMFILE, "and no more");
	ends_close(&ends);
}

static void words_carry_refusals_and_credits(void)
{
	struct ends ends;

	ends_open(&ends);
	ends_open_lane(&ends);
	ends.b.credit = 3;
	ends.b.rqmin = 4096;
	lane_answer(&ends.b);
	ok(!lane_refresh(&ends.a) && ends.a.peer_credit == 3 &&
		   ends.a.peer_rqmin == 4096,
	   "credit and the smallest receive arrive");
	(void)!ends_push(&ends.a, "x", 1);
	lane_flush(&ends.a);
	ends_settle(&ends);
	ends.last_lane = NULL;
	lane_nak(&ends.b, NAK_INVALID_REQUEST, 0);
	wire_pump(ends.wire, false);
	ok(ends.last_lane == &ends.a, "a refusal rings");
	ok(!lane_refresh(&ends.a) &&
		   ends.a.peer_nak >> 56 == NAK_INVALID_REQUEST &&
		   (ends.a.peer_nak & 0xffffffff) == 0,
	   "and names the record");
	ends_close(&ends);
}

static void a_busy_lane_does_not_starve_another(void)
{
	struct wire_lane a, b;
	unsigned number, pumps = 0;
	struct ends ends;
	uint8_t in[8];

	ends_open(&ends);
	ends_open_lane(&ends);
	if (lane_reserve(ends.active, &number) ||
	    lane_open(&a, ends.active, number, 7) ||
	    lane_open(&b, ends.passive, number, 7))
		ok_or_die(false, "a second lane");
	ends_settle(&ends);
	for (unsigned i = 0; i < 20; i++)
		(void)ends_go_on(&ends);
	(void)!ends_push(&a, "x", 1);
	lane_flush(&a);
	do {
		pumps++;
		(void)!ends_push(&ends.a, "y", 1);
		lane_flush(&ends.a);
		wire_pump(ends.wire, false);
		(void)!ends_pop(&ends.b, in, sizeof(in));
		lane_answer(&ends.b);
	} while (ends.last_lane != &b && pumps < 20);
	ok(ends.last_lane == &b && pumps <= 2,
	   "a record on another lane is seen within %u pumps", pumps);
	lane_close(&ends.b);
	ends.last_lane = NULL;
	(void)!ends_push(&ends.a, "z", 1);
	lane_flush(&ends.a);
	ends_settle(&ends);
	ok(ends.last_lane != &ends.b, "a closed lane is not visited");
	lane_close(&a);
	lane_close(&b);
	ends_close(&ends);
}

int main(void)
{
	records_arrive_whole_and_in_order();
	nothing_is_seen_before_the_flush();
	scatter_and_gather_take_any_pieces();
	too_long_is_refused();
	a_full_ring_says_so_until_the_head_moves();
	chunks_come_back_even_from_closed_lanes();
	a_lane_number_is_used_again_with_fresh_words();
	numbers_from_the_peer_are_checked();
	words_carry_refusals_and_credits();
	a_busy_lane_does_not_starve_another();
	ok(rk_alloc_live() == 0, "nothing is left allocated");
	return ok_done();
}
