/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The processes of the torture test: a producer and a consumer that check each
 * other, and a hostile one that scribbles.  They are killed at any moment.
 */
#include <poll.h>
#include <unistd.h>

#include "wire_ends.h"
#include "wire_torture.h"

enum {
	HOSTILE_LANES = 64,
	RECEIVES = 32, /* credit ahead of what was taken */
	AREA = 256,    /* bytes of granted memory of each lane */
	BATCH = 4,
};

#define check(cond, ...)                                               \
	do {                                                           \
		if (!(cond)) {                                         \
			printf("# line %d: ", __LINE__);               \
			printf(__VA_ARGS__);                           \
			printf("\n");                                  \
			fflush(stdout);                                \
			shared->failures++;                            \
			_exit(9);                                      \
		}                                                      \
	} while (0)

static uint8_t pattern(unsigned lane, uint64_t number, unsigned at)
{
	return (uint8_t)(lane * 31 + number * 7 + at * 13 + (at >> 8));
}

/* One end; every role uses what it needs of it. */
static struct end {
	struct wire *wire;
	struct wire_link *link, *hostile_link;
	struct wire_lane lane[LANES], hostile[HOSTILE_LANES];
	unsigned lanes;
	uint64_t area;		  /* the consumer's memory, there */
	uint32_t key;
	bool ready, gone;
	bool late[LANES];	  /* credit is withheld for a while */
	unsigned late_count;
	uint8_t buffer[STAGE_CHUNK_BYTES];
} end;

struct setup { /* message of the producer */
	char kind;
	uint16_t count;
	uint16_t number[LANES];
};

struct answer { /* and of the consumer */
	uint64_t area;
	uint32_t key;
};

/* Without a time-out: a lost wake-up is a hang that the supervisor sees. */
static void doze(void)
{
	struct pollfd poller = { .fd = wire_fd(end.wire), .events = POLLIN };

	if (!wire_sleep(end.wire))
		while (poll(&poller, 1, -1) < 0)
			;
	wire_wake(end.wire);
	wire_pump(end.wire, true);
}

/* ---- producer ---------------------------------------------------------- */

static void producer_message(void *user, struct wire_link *link,
			     const void *message, size_t bytes)
{
	struct answer answer;

	check(bytes == sizeof(answer), "answer of %zu bytes", bytes);
	memcpy(&answer, message, sizeof(answer));
	end.area = answer.area;
	end.key = answer.key;
	end.ready = true;
}

static void producer_lane(void *user, struct wire_lane *lane)
{
	check(!lane_refresh(lane), "the consumer's words are odd");
}

static void end_gone(void *user, struct wire_link *link)
{
	end.gone = true;
}

static void producer_setup(void)
{
	struct sockaddr_storage addr = ends_addr("127.0.0.1", shared->port);
	struct setup setup = { .kind = 'P' };
	unsigned number;

	check(!wire_connect(end.wire, (struct sockaddr *)&addr, &end.link),
	      "connect");
	end.lanes = 1 + (unsigned)(next_random() % LANES);
	while (setup.count < end.lanes) {
		check(!lane_reserve(end.link, &number), "a lane number");
		if (next_random() % 40)
			continue; /* spread over leaves and summaries */
		check(!lane_open(&end.lane[setup.count], end.link, number, 7),
		      "a lane");
		setup.number[setup.count++] = (uint16_t)number;
	}
	check(!wire_send(end.link, &setup, sizeof(setup)), "the set-up");
	while (!end.ready && !end.gone)
		doze();
}

/* A one-sided write of the number, then the record with that number. */
static bool produce_one(unsigned at)
{
	struct wire_lane *lane = &end.lane[at];
	uint64_t number = lane->sequence, kind = next_random() % 16;
	uint64_t words[AREA / 8];
	struct iovec iov = { .iov_base = words, .iov_len = AREA };
	size_t bytes = next_random() % (kind < 7  ? 33 :
					kind < 14 ? RECORD_INLINE_MAX + 1 :
						    STAGE_CHUNK_BYTES + 1);
	int ret;

	if (lane->peer_credit == number)
		return false;
	for (unsigned i = 0; i < AREA / 8; i++)
		words[i] = number + 1;
	ret = wire_write(lane, end.area + at * AREA, end.key, &iov, 1, AREA);
	if (ret == -EHOSTDOWN)
		return false;
	check(!ret, "one-sided write: %d", ret);
	for (size_t i = 0; i < bytes; i++)
		end.buffer[i] = pattern(at, number, (unsigned)i);
	ret = ends_push(lane, end.buffer, bytes);
	check(!ret || ret == -EAGAIN, "push: %d", ret);
	return !ret;
}

static bool produce(unsigned at)
{
	struct wire_lane *lane = &end.lane[at];
	unsigned count = 1 + (unsigned)(next_random() % BATCH), done = 0;

	lane_want(lane, false);
	while (done < count && produce_one(at))
		done++;
	if (!done) {
		lane_want(lane, true);
		check(!lane_refresh(lane), "the consumer's words are odd");
		done = produce_one(at);
	}
	lane_flush(lane);
	shared->published[at] = lane->sequence;
	shared->progress[PRODUCER] += done;
	return done;
}

int torture_producer(void)
{
	static const struct wire_handler handler = { producer_message,
						     producer_lane, end_gone };
	uint64_t total = 2000 + next_random() % 40000;
	unsigned failed = 0;

	check(!wire_open(&end.wire, &handler, NULL), "a wire");
	producer_setup();
	while (!end.gone && shared->progress[PRODUCER] < total) {
		if (produce((unsigned)(next_random() % end.lanes))) {
			failed = 0;
		} else if (++failed > 20) {
			if (!wire_pump(end.wire, false))
				doze();
			failed = 0;
		}
		if (next_random() % 4096 == 0)
			usleep((useconds_t)(next_random() % 128));
	}
	for (unsigned i = 0; i < end.lanes; i++) {
		struct wire_lane *lane = &end.lane[i];

		lane_want(lane, true);
		check(!lane_refresh(lane), "the consumer's words are odd");
		while (!end.gone && lane->peer_acked != lane->sequence)
			doze();
	}
	shared->done = !end.gone;
	return 0;
}

/* ---- consumer ---------------------------------------------------------- */

static void credit(unsigned at)
{
	end.lane[at].credit = end.lane[at].acked + RECEIVES;
}

static void consume(unsigned at)
{
	struct wire_lane *lane = &end.lane[at];
	const volatile uint64_t *area =
		(const uint64_t *)(uintptr_t)(end.area + at * AREA);
	unsigned taken = 0;
	int ret;

	for (;; taken++) {
		uint64_t number = lane->acked;

		ret = ends_pop(lane, end.buffer, sizeof(end.buffer));
		if (ret < 0)
			break;
		for (int i = 0; i < ret; i += 1 + ret / 64)
			check(end.buffer[i] ==
				      pattern(at, number, (unsigned)i),
			      "payload of lane %u", at);
		for (unsigned i = 0; i < AREA / 8; i++)
			check(area[i] > number,
			      "one-sided bytes are older than the record");
		shared->received[at] = number + 1;
		shared->progress[CONSUMER]++;
	}
	check(ret == -EAGAIN, "an honest record was refused: %d", ret);
	if (!taken)
		return;
	if (next_random() % 8 == 0) {
		end.late_count += !end.late[at];
		end.late[at] = true;
	}
	if (!end.late[at])
		credit(at);
	lane_answer(lane);
}

static void consume_hostile(struct wire_lane *lane)
{
	struct iovec iov = { .iov_base = end.buffer, .iov_len = 64 };
	uint64_t at = next_random();
	int ret;

	do
		ret = ends_pop(lane, end.buffer, sizeof(end.buffer));
	while (ret >= 0);
	check(ret == -EAGAIN || ret == -EPROTO, "a length unchecked: %d", ret);
	if (lane_refresh(lane) || ret == -EPROTO) {
		struct wire_link *link = lane->link;
		unsigned number = lane->number;

		shared->rejects++;
		lane_close(lane);
		check(!lane_open(lane, link, number, 7), "again");
		return;
	}
	lane_answer(lane);
	(void)!ends_push(lane, end.buffer, at % 2000);
	(void)!wire_write(lane, at, at % 4 << 8 | 1, &iov, 1, 64);
	lane_flush(lane);
}

static void consumer_lane(void *user, struct wire_lane *lane)
{
	if (lane->link == end.link)
		consume((unsigned)(lane - end.lane));
	else
		consume_hostile(lane);
}

static void consumer_message(void *user, struct wire_link *link,
			     const void *message, size_t bytes)
{
	struct setup setup;
	struct answer answer;
	void *area;

	if (bytes != sizeof(setup) || *(const char *)message != 'P') {
		if (end.hostile_link || link == end.link)
			return;
		end.hostile_link = wire_get(link);
		for (unsigned i = 0; i < HOSTILE_LANES; i++)
			check(!lane_open(&end.hostile[i], link, i, 7),
			      "a lane for the hostile one");
		return;
	}
	memcpy(&setup, message, sizeof(setup));
	end.link = wire_get(link);
	end.lanes = setup.count;
	area = wire_mem_alloc(end.wire, link, LANES * AREA, ENDS_ALL);
	check(area && !wire_key_add(end.wire, area, LANES * AREA, ENDS_ALL, 7,
				    &answer.key),
	      "memory");
	answer.area = end.area = (uint64_t)(uintptr_t)area;
	for (unsigned i = 0; i < end.lanes; i++) {
		check(!lane_open(&end.lane[i], link, setup.number[i], 7),
		      "lane %u", setup.number[i]);
		lane_admit(&end.lane[i]);
		credit(i);
		lane_answer(&end.lane[i]);
	}
	check(!wire_send(link, &answer, sizeof(answer)), "the answer");
}

static void consumer_gone(void *user, struct wire_link *link)
{
	if (link == end.link) {
		end.gone = true;
		return;
	}
	if (link != end.hostile_link)
		return;
	for (unsigned i = 0; i < HOSTILE_LANES; i++)
		lane_close(&end.hostile[i]);
	end.hostile_link = NULL;
	wire_put(link);
}

static void give_late_credit(void)
{
	for (unsigned i = 0; i < end.lanes && end.late_count; i++) {
		if (!end.late[i])
			continue;
		end.late[i] = false;
		end.late_count--;
		credit(i);
		lane_answer(&end.lane[i]);
	}
}

int torture_consumer(void)
{
	static const struct wire_handler handler = { consumer_message,
						     consumer_lane,
						     consumer_gone };
	struct sockaddr_storage addr = ends_addr("127.0.0.1", 0);
	struct wire_listener *listener;

	check(!wire_open(&end.wire, &handler, NULL) &&
		      !wire_bind(end.wire, (struct sockaddr *)&addr, false,
				 &listener) &&
		      !wire_listen(listener, 8),
	      "listen");
	shared->port = wire_listener_port(listener);
	while (!end.gone) {
		unsigned found = wire_pump(end.wire, false);

		if (end.late_count && (!found || next_random() % 16 == 0))
			give_late_credit();
		else if (!found && next_random() % 4 == 0)
			doze();
	}
	for (unsigned i = 0; i < end.lanes; i++) {
		uint64_t sent = shared->published[i];

		check(shared->received[i] >= sent &&
			      shared->received[i] <= sent + BATCH,
		      "lane %u: %lu of %lu", i, shared->received[i], sent);
	}
	return 0;
}

/* ---- hostile ----------------------------------------------------------- */

/* Records whose length changes while they are read. */
static void flip(struct box *box, const struct box *peer, unsigned lane)
{
	struct record good = { .op = RECORD_SEND, .flags = RECORD_LAST,
			       .slots = 1, .bytes = 8, .length = 8 };
	struct record evil = good;
	uint64_t head = rk_load(&peer->lane[lane].head);
	struct slot *slot = &box->ring[lane][head % RING_SLOTS];

	good.sequence = evil.sequence = rk_load(&peer->lane[lane].acked);
	evil.bytes = (uint32_t)next_random();
	evil.chunk = (uint32_t)(next_random() % 300);
	memcpy(slot, &good, sizeof(good));
	rk_store_release(&box->lane[lane].tail, head + 1);
	lane_ring(end.link, lane, false);
	for (unsigned i = 0; i < 200; i++) {
		memcpy(slot, &evil, sizeof(evil));
		memcpy(slot, &good, sizeof(good));
	}
}

static void scribble(struct box *box, unsigned lane)
{
	uint64_t value = next_random() % 3 ? next_random() % 130 :
					     next_random() << 11;

	switch (next_random() % 6) {
	case 0:
		(&box->lane[lane].tail)[next_random() % 8] = value;
		break;
	case 1:
		box->ring[lane][value % RING_SLOTS].word[next_random() % 8] =
			value;
		break;
	case 2:
		box->mark.leaf[0] ^= 1ull << next_random() % 64;
		box->mark.sum[0] ^= 1;
		break;
	case 3:
		box->seen.leaf[0] = value;
		box->sleeping = value;
		break;
	case 4:
		memset(&box->lane[lane], 0, sizeof(box->lane[lane]));
		break;
	case 5:
		box->hazard = value;
		box->key[next_random() % 4].key =
			(uint32_t)(next_random() % 4) << 8 | 1;
		box->key[next_random() % 4].bytes = next_random() << 11;
		box->key[next_random() % 4].region = (uint32_t)value;
		break;
	}
}

int torture_hostile(void)
{
	static const struct wire_handler handler = { producer_message,
						     producer_lane, end_gone };
	struct sockaddr_storage addr = ends_addr("127.0.0.1", shared->port);
	char garbage[600] = "garbage";

	for (;;) {
		end.gone = false;
		check(!wire_open(&end.wire, &handler, NULL), "a wire");
		if (wire_connect(end.wire, (struct sockaddr *)&addr,
				 &end.link))
			return 0; /* the consumer is dead */
		(void)!wire_send(end.link, "hostile", 7);
		while (!end.link->peer && !end.gone)
			doze();
		for (unsigned i = 0; i < 30000 && !end.gone; i++) {
			unsigned lane = (unsigned)(next_random() %
						   HOSTILE_LANES);

			if (i % 16)
				scribble(end.link->box, lane);
			else
				flip(end.link->box, end.link->peer, lane);
			if (i % 4096 == 0)
				wire_pump(end.wire, true);
			shared->progress[HOSTILE]++;
		}
		send(end.link->socket, garbage, next_random() % 600,
		     MSG_DONTWAIT | MSG_NOSIGNAL);
		wire_put(end.link);
		wire_close(end.wire);
	}
}
