/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that scribbles over its own box: words and records that make no
 * sense.  It loses its lanes; an honest link beside it goes on.
 */
#include <unistd.h>

#include "wire_ends.h"

static uint64_t seed = 20261130;

static uint64_t next_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed * 0x2545f4914f6cdd1dull >> 11;
}

static uint64_t odd_value(void)
{
	switch (next_random() % 5) {
	case 0:
		return next_random() << 11 ^ next_random();
	case 1:
		return next_random() % 130;
	case 2:
		return 1ull << next_random() % 64;
	case 3:
		return -(next_random() % 100);
	}
	return 0;
}

struct liar {
	struct wire *wire;
	struct wire_link *link;
};

static void liar_open(struct liar *liar, struct ends *ends,
		      struct wire_lane *lanes, unsigned count)
{
	struct sockaddr_storage addr =
		ends_addr("127.0.0.1", wire_listener_port(ends->listener));

	wire_put(ends->passive);
	ends->passive = NULL;
	if (wire_open(&liar->wire, &ends_handler, ends) ||
	    wire_connect(liar->wire, (struct sockaddr *)&addr, &liar->link) ||
	    wire_send(liar->link, "liar", 4))
		ok_or_die(false, "a liar");
	ends_settle(ends);
	wire_pump(liar->wire, true);
	for (unsigned i = 0; i < count; i++)
		if (lane_open(&lanes[i], ends->passive, i, 7))
			ok_or_die(false, "a lane for him");
}

/* What a hostile owner may write in his own box, at random. */
static void scribble(struct box *box, unsigned lanes)
{
	unsigned lane = (unsigned)(next_random() % lanes);
	struct lane_words *words = &box->lane[lane];
	struct slot *slot = &box->ring[lane][next_random() % RING_SLOTS];
	struct record record = {
		.op = (uint8_t)(next_random() % 6),
		.flags = (uint8_t)(next_random() % 9),
		.slots = (uint16_t)(next_random() % 18),
		.bytes = (uint32_t)(next_random() % 1100),
		.length = (uint32_t)odd_value(),
		.offset = (uint32_t)odd_value(),
		.chunk = next_random() % 2 ? 0 : (uint32_t)odd_value(),
		.sequence = next_random() % 4,
	};

	switch (next_random() % 8) {
	case 0:
		words->tail += next_random() % 70;
		break;
	case 1:
		(&words->tail)[next_random() % 8] = odd_value();
		break;
	case 2:
		memcpy(slot, &record, sizeof(record));
		break;
	case 3:
		slot->word[next_random() % 8] = odd_value();
		break;
	case 4:
		box->mark.sum[next_random() % BOX_SUMS] = odd_value();
		box->mark.leaf[next_random() % BOX_LEAVES] = odd_value();
		break;
	case 5:
		box->seen.sum[next_random() % BOX_SUMS] = odd_value();
		box->seen.leaf[next_random() % BOX_LEAVES] = odd_value();
		break;
	case 6:
		box->sleeping = odd_value();
		box->hazard = odd_value() & ~1ull;
		break;
	case 7:
		box->key[next_random() % 4] = (struct key_entry){
			.addr = odd_value(),
			.bytes = odd_value(),
			.region_at = odd_value(),
			.region = (uint32_t)odd_value(),
			.access = ENDS_ALL,
			.pd = 7,
			.key = (uint32_t)(next_random() % 4) << 8 | 1,
		};
		words->epoch = 2;
		words->pd = 7;
		break;
	}
}

/* A record that is right, but for its payload. */
static void plausible(struct box *box, const struct wire_lane *lane)
{
	struct record record = {
		.op = RECORD_SEND,
		.flags = RECORD_LAST,
		.slots = 1,
		.bytes = (uint32_t)(next_random() % 33),
		.length = 32,
		.sequence = lane->peer_sequence,
	};

	if (next_random() % 2) {
		record.chunk = 1 + (uint32_t)(next_random() % BOX_STAGE_CHUNKS);
		record.bytes = (uint32_t)(next_random() % STAGE_CHUNK_BYTES);
		record.length = STAGE_CHUNK_BYTES;
	}
	memcpy(&box->ring[lane->number][lane->head % RING_SLOTS], &record,
	       sizeof(record));
	box->lane[lane->number].tail = lane->head + 1;
}

static void words_and_records_without_sense_are_refused(void)
{
	uint8_t in[STAGE_CHUNK_BYTES + 64];
	unsigned refused = 0, taken = 0, wrong = 0, odd = 0, denied = 0;
	struct wire_lane lanes[64];
	struct liar liar;
	struct ends ends;

	ends_open(&ends);
	ends_open_lane(&ends);
	liar_open(&liar, &ends, lanes, 64);
	for (unsigned i = 0; i < 200000; i++) {
		struct wire_lane *lane = &lanes[next_random() % 64];
		struct iovec iov = { .iov_base = in, .iov_len = 16 };
		int ret;

		scribble(liar.link->box, 64);
		if (i % 4)
			continue;
		if (i % 16 == 0)
			plausible(liar.link->box, lane);
		ret = ends_pop(lane, in, STAGE_CHUNK_BYTES);
		taken += ret >= 0;
		refused += ret == -EPROTO;
		/* EMSGSIZE would be a length that was not checked */
		wrong += ret < 0 && ret != -EPROTO && ret != -EAGAIN;
		odd += lane_refresh(lane) == -EPROTO;
		if (lane->tail - lane->peer_head > RING_SLOTS)
			wrong++;
		(void)!ends_push(lane, in, next_random() % 3000);
		lane_flush(lane);
		lane_answer(lane);
		ret = wire_write(lane, odd_value(),
				 (uint32_t)(next_random() % 4) << 8 | 1, &iov,
				 1, 16);
		/* his own process is ours: never let it get that far */
		denied += ret == -EACCES || ret == -EAGAIN;
		wire_pump(ends.wire, i % 256 == 0);
		if (i % 64 == 0) { /* start over, as a queue pair would */
			unsigned number = lane->number;

			lane_close(lane);
			memset(&liar.link->box->lane[number], 0,
			       sizeof(struct lane_words));
			wrong += lane_open(lane, ends.passive, number, 7) != 0;
		}
		if (i % 1024 == 0)
			wrong += !ends_go_on(&ends);
	}
	ok(wrong == 0, "200000 random words: nothing out of bounds");
	ok(taken > 100 && refused > 1000 && odd > 100 && denied > 1000,
	   "%u records taken, %u refused, %u odd words, %u denied writes",
	   taken, refused, odd, denied);
	ok(wire_link_is_alive(ends.passive), "words do not cost the link");
	for (unsigned i = 0; i < 64; i++)
		lane_close(&lanes[i]);
	wire_put(liar.link);
	wire_close(liar.wire);
	ends_settle(&ends);
	ok(ends_go_on(&ends), "the honest link goes on");
	ends_close(&ends);
}

/* Our pump is bounded, whatever he toggles. */
static void toggling_all_bits_costs_only_open_lanes(void)
{
	struct wire_lane lanes[3];
	struct liar liar;
	struct ends ends;

	ends_open(&ends);
	liar_open(&liar, &ends, lanes, 3);
	ends_settle(&ends);
	ends.lanes = 0;
	for (unsigned i = 0; i < BOX_LEAVES; i++)
		liar.link->box->mark.leaf[i] = ~liar.link->box->mark.leaf[i];
	for (unsigned i = 0; i < BOX_SUMS; i++)
		liar.link->box->mark.sum[i] = ~liar.link->box->mark.sum[i];
	ok(wire_pump(ends.wire, false) == 3 && ends.lanes == 3,
	   "all bits dirty: three open lanes are visited, once");
	ok(wire_pump(ends.wire, false) == 0, "then none");
	wire_put(liar.link);
	wire_close(liar.wire);
	for (unsigned i = 0; i < 3; i++)
		lane_close(&lanes[i]);
	ends_close(&ends);
}

int main(void)
{
	words_and_records_without_sense_are_refused();
	toggling_all_bits_costs_only_open_lanes();
	ok(rk_alloc_live() == 0, "nothing is left allocated");
	return ok_done();
}
