/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that breaks the rules loses its own connection and nothing else.
 * The peer is a second wire in this process, without a connection manager:
 * the test writes its messages byte by byte.
 */
#include "softverbs/wire_internal.h"

#include "cm_help.h"

static struct pair pair; /* of well-behaved ends, there all along */
static struct wire *evil;
static struct wire_link *evil_link; /* to pair's listener */
static struct wire_link *evil_from; /* on which the last message came */
static union cm_message last;
static unsigned messages;

static void evil_message(void *user, struct wire_link *link,
			 const void *message, size_t bytes)
{
	memset(&last, 0, sizeof(last));
	memcpy(&last, message, rk_min(bytes, sizeof(last)));
	evil_from = link;
	messages++;
}

static void evil_lane(void *user, struct wire_lane *lane)
{
}

static void evil_gone(void *user, struct wire_link *link)
{
}

/* Both sides until neither has anything to do. */
static void both(void)
{
	for (int i = 0; i < 4; i++) {
		wire_pump(evil, true);
		settle();
	}
}

static void say(struct wire_link *link, const void *message, size_t bytes)
{
	(void)!wire_send(link, message, bytes);
	both();
}

static struct cm_request a_request(uint32_t from, uint32_t lane)
{
	struct cm_request request = {
		.head = { CM_VERSION, CM_REQUEST, sizeof(request), 0, from },
		.offer = { .lane = lane, .qpn = 5, .retry_count = 7 },
	};
	struct sockaddr_in own = ipv4("127.0.0.1", htons(1111));

	cm_addr_pack(&request.source, (struct sockaddr *)&own);
	cm_addr_pack(&request.target, &pair.listener->route.addr.src_addr);
	return request;
}

static void say_head(struct wire_link *link, int type, uint32_t to,
		     uint32_t from)
{
	struct cm_head head = { CM_VERSION, (uint8_t)type, sizeof(head), to,
				from };

	say(link, &head, sizeof(head));
}

/* The next event of the listener's channel, which must be there already. */
static struct seen now(void)
{
	return see_within(pair.passive_channel, 0);
}

static bool is_innocent_well(void)
{
	return cm_id_of(pair.active)->state == CM_ESTABLISHED &&
	       cm_id_of(pair.passive)->state == CM_ESTABLISHED &&
	       pair.active->qp->state == IBV_QPS_RTS &&
	       see_within(pair.active_channel, 0).type == NO_EVENT;
}

static struct rdma_cm_id *requested(uint32_t from, uint32_t lane)
{
	struct cm_request request = a_request(from, lane);
	struct seen seen;

	say(evil_link, &request, sizeof(request));
	seen = now();
	return seen.type == RDMA_CM_EVENT_CONNECT_REQUEST ? seen.id : NULL;
}

static bool is_refused(const struct cm_request *request)
{
	unsigned before = messages;

	say(evil_link, request, sizeof(*request));
	return now().type == NO_EVENT && messages == before + 1 &&
	       last.head.type == CM_REJECT && last.reject.reason == 5;
}

static void requests_are_checked(void)
{
	struct sockaddr_in abroad = ipv4("192.0.2.1", 0);
	struct cm_request request;
	struct rdma_cm_id *id = requested(100, 3);

	ok_or_die(id, "a sound request is heard");
	request = a_request(101, 3);
	ok(is_refused(&request), "its lane again: refused");
	request = a_request(101, BOX_LANES);
	ok(is_refused(&request), "a lane that is none");
	request = a_request(101, UINT32_MAX);
	ok(is_refused(&request), "nor this");
	request = a_request(0, 4);
	ok(is_refused(&request), "no number");
	request = a_request(101, 4);
	request.offer.retry_count = 8;
	ok(is_refused(&request), "retry count 8");
	request = a_request(101, 4);
	request.offer.rnr_retry_count = 8;
	ok(is_refused(&request), "RNR retry count 8");
	request = a_request(101, 4);
	request.offer.qpn = 1 << 24;
	ok(is_refused(&request), "a queue pair number of 25 bits");
	request = a_request(101, 4);
	request.source.family = AF_UNIX;
	ok(is_refused(&request), "a family that is none");
	request = a_request(101, 4);
	request.source.family = AF_INET6;
	ok(is_refused(&request), "two families");
	request = a_request(101, 4);
	cm_addr_pack(&request.source, (struct sockaddr *)&abroad);
	ok(is_refused(&request), "an address of another host");
	v->cm_destroy_id(id);
	both();
	ok(last.head.type == CM_CLOSED && last.closed.lane == 3,
	   "the lane is given back once");
	id = requested(100, 3);
	ok(id, "and can be used again");
	if (id)
		v->cm_destroy_id(id);
	both();
	ok(is_innocent_well(), "nobody else noticed");
}

static void shapes_are_checked(void)
{
	struct cm_request request = a_request(200, 9);
	uint8_t bytes[WIRE_MESSAGE_MAX] = { 0 };

	memcpy(bytes, &request, sizeof(request));
	for (size_t size = 0; size <= sizeof(bytes); size++)
		if (size != sizeof(request))
			say(evil_link, bytes, size);
	ok(now().type == NO_EVENT, "no wrong length is a request");
	for (int type = 0; type < 256; type++) {
		bytes[1] = (uint8_t)type;
		if (type != CM_REQUEST)
			say(evil_link, bytes, sizeof(request));
	}
	ok(now().type == NO_EVENT, "nor another type");
	request.head.version = CM_VERSION + 1;
	say(evil_link, &request, sizeof(request));
	ok(now().type == NO_EVENT, "nor another version");
	ok(is_innocent_well(), "nobody else noticed");
}

static struct rdma_cm_id *accepted(uint32_t from, uint32_t lane)
{
	struct rdma_conn_param param = { .retry_count = 7 };
	struct rdma_cm_id *id = requested(from, lane);

	if (!id || qp_new(id) || v->cm_accept(id, &param))
		return NULL;
	both();
	return id;
}

static void states_are_checked(void)
{
	static const struct {
		uint8_t type;
		uint32_t from;
		const char *what;
	} wrong[] = {
		{ CM_READY, 999, "READY under another number" },
		{ CM_LATER, 300, "LATER to what it asked for itself" },
		{ CM_DISCONNECT, 999, "DISCONNECT under another number" },
	};
	struct rdma_cm_id *id;
	struct seen seen;

	for (unsigned i = 0; i < RK_ARRAY_SIZE(wrong); i++) {
		id = accepted(300, 10);
		ok_or_die(id, "accepted");
		say_head(evil_link, wrong[i].type, cm_id_of(id)->number,
			 wrong[i].from);
		seen = now();
		ok(seen.type == RDMA_CM_EVENT_REJECTED && seen.id == id &&
			   seen.status == 5,
		   "%s: the connection is lost", wrong[i].what);
		id_end(id);
		both();
	}
	id = accepted(300, 10);
	ok_or_die(id, "accepted");
	say_head(evil_link, CM_READY, cm_id_of(id)->number, 300);
	ok(now().type == RDMA_CM_EVENT_ESTABLISHED, "established");
	say_head(evil_link, CM_READY, cm_id_of(id)->number, 300);
	ok(now().type == NO_EVENT, "READY twice is once");
	struct cm_reply reply = {
		.head = { CM_VERSION, CM_REPLY, sizeof(reply),
			  cm_id_of(id)->number, 300 },
		.offer = { .lane = 10 },
	};

	say(evil_link, &reply, sizeof(reply));
	ok(now().type == RDMA_CM_EVENT_DISCONNECTED,
	   "a reply to an established one: disconnected");
	id_end(id);
	both();

	/* the innocent's numbers, on the wrong link */
	for (int type = CM_LATER; type < CM_TYPES; type++) {
		say_head(evil_link, type, cm_id_of(pair.active)->number,
			 cm_id_of(pair.passive)->number);
		say_head(evil_link, type, cm_id_of(pair.passive)->number,
			 cm_id_of(pair.active)->number);
	}
	for (uint32_t lane = 0; lane < BOX_LANES + 10; lane += 97) {
		struct cm_closed closed = {
			.head = { CM_VERSION, CM_CLOSED, sizeof(closed), 0, 0 },
			.lane = lane,
		};

		(void)!wire_send(evil_link, &closed, sizeof(closed));
	}
	both();
	ok(now().type == NO_EVENT && is_innocent_well(),
	   "the numbers of other connections do nothing");
}

static struct rdma_cm_id *connect_to_evil(const void *addr)
{
	struct rdma_conn_param param = { .retry_count = 7 };
	struct rdma_cm_id *id = resolved_to(pair.active_channel, addr);

	if (!id || qp_new(id) || v->cm_connect(id, &param))
		return NULL;
	both();
	return last.head.type == CM_REQUEST ? id : NULL;
}

static void answers_are_checked(void)
{
	struct sockaddr_in addr = ipv4("127.0.0.1", 0);
	struct wire_listener *listener;
	struct cm_reject reject = {
		.head = { CM_VERSION, CM_REJECT, sizeof(reject), 0, 0 },
	};
	struct cm_reply reply = {
		.head = { CM_VERSION, CM_REPLY, sizeof(reply), 0, 0 },
	};
	struct rdma_cm_id *id;
	struct seen seen;

	if (wire_bind(evil, (struct sockaddr *)&addr, false, &listener) ||
	    wire_listen(listener, 8))
		exit(1);
	addr.sin_port = htons(wire_listener_port(listener));
	for (int i = 0; i < 4; i++) {
		static const char *const what[] = {
			"another lane", "no number", "retry count 200",
			"a reason that is none",
		};

		id = connect_to_evil(&addr);
		ok_or_die(id, "asks a peer that will lie");
		reply.head.to = reject.head.to = last.head.from;
		reply.head.from = i == 1 ? 0 : 1;
		reply.offer = (struct cm_offer){ .lane =
							 last.request.offer
								 .lane };
		reply.offer.lane += i == 0;
		reply.offer.retry_count = i == 2 ? 200 : 0;
		if (i < 3)
			say(evil_from, &reply, sizeof(reply));
		else
			say(evil_from, &reject, sizeof(reject));
		seen = see_within(pair.active_channel, 0);
		ok(seen.type == RDMA_CM_EVENT_REJECTED && seen.id == id &&
			   seen.status == 5,
		   "%s: refused", what[i]);
		id_end(id);
		both();
	}
	/* lanes it never says CLOSED for stay out of use, and no more */
	ok(is_innocent_well(), "nobody else noticed");
	id = connect_to_evil(&addr);
	ok_or_die(id, "asks once more");
	reply.head.to = last.head.from;
	reply.head.from = 1;
	reply.offer = (struct cm_offer){ .lane = last.request.offer.lane };
	say_head(evil_from, CM_LATER, reply.head.to, 0);
	say_head(evil_from, CM_LATER, reply.head.to, 0);
	say(evil_from, &reply, sizeof(reply));
	seen = see_within(pair.active_channel, 0);
	ok(seen.type == RDMA_CM_EVENT_ESTABLISHED,
	   "LATER twice and then a reply after all: established");
	say(evil_from, &reply, sizeof(reply));
	seen = see_within(pair.active_channel, 0);
	ok(seen.type == RDMA_CM_EVENT_DISCONNECTED,
	   "a second reply: disconnected");
	id_end(id);
	wire_unbind(listener);
	both();
}

static void unanswered_requests_are_bounded(void)
{
	struct seen seen;
	static struct rdma_cm_id *ids[CM_UNANSWERED_MAX + 1];
	struct cm_request request;
	unsigned count = 0;

	for (uint32_t i = 0; i <= CM_UNANSWERED_MAX; i++) {
		request = a_request(1000 + i, i);
		(void)!wire_send(evil_link, &request, sizeof(request));
		if (i % 64 && i < CM_UNANSWERED_MAX)
			continue;
		settle();
		wire_pump(evil, true);
		while ((seen = now()).type != NO_EVENT)
			if (count < RK_ARRAY_SIZE(ids))
				ids[count++] = seen.id;
	}
	both();
	ok(count == CM_UNANSWERED_MAX && last.head.type == CM_LATER,
	   "%u requests wait for an answer, the next comes later", count);
	while (count)
		v->cm_destroy_id(ids[--count]);
	both();
	ok(is_innocent_well(), "nobody else noticed");
}

static uint32_t seed = 12345;
static uint32_t a_number, a_peer; /* of an id of this peer */

static uint32_t next_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed >> 4;
}

/* Plausible nonsense: sound shapes, values near the true ones. */
static void say_nonsense(void)
{
	static const uint16_t sizes[CM_TYPES] = { 12,  132, 12, 224,
						  12, 164, 12, 16 };
	union cm_message m;
	uint32_t *words = (uint32_t *)(void *)&m;

	for (size_t w = 0; w < sizeof(m) / 4; w++)
		words[w] = next_random() & 0xf;
	m.head.type = (uint8_t)(next_random() % CM_TYPES);
	if (next_random() & 1)
		m.request = a_request(0, next_random() & 7);
	m.head.version = CM_VERSION;
	m.head.bytes = sizes[m.head.type];
	m.head.from = next_random() & 1 ? a_peer : next_random() & 7;
	m.head.to = 0;
	if (next_random() & 3)
		m.head.to = a_number;
	else if (next_random() & 1) /* a number that is or was */
		m.head.to = (uint32_t)(cm.generation - (next_random() & 7))
				    << 16 |
			    (next_random() & 7);
	(void)!wire_send(evil_link, &m, m.head.bytes);
}

static unsigned kinds; /* of events seen, a bit each */

/* Some requests are accepted; all ids end at some time. */
static void answer(const struct seen *seen)
{
	struct rdma_conn_param param = { .retry_count = 7 };
	struct seen more;

	kinds |= 1u << seen->type;
	if (seen->type != RDMA_CM_EVENT_CONNECT_REQUEST)
		return;
	a_number = cm_id_of(seen->id)->number;
	a_peer = cm_id_of(seen->id)->peer;
	if (next_random() & 1 && !qp_new(seen->id))
		(void)!v->cm_accept(seen->id, &param);
	for (int i = next_random() & 7; i; i--)
		say_nonsense();
	settle();
	while ((more = now()).type != NO_EVENT) {
		kinds |= 1u << more.type;
		if (more.type == RDMA_CM_EVENT_CONNECT_REQUEST)
			id_end(more.id);
	}
	id_end(seen->id);
}

static void nonsense(void)
{
	struct seen seen;

	for (int i = 0; i < 2500; i++) {
		say_nonsense();
		if (i % 4)
			continue;
		settle();
		wire_pump(evil, true);
		while ((seen = now()).type != NO_EVENT)
			answer(&seen);
	}
	both();
	while ((seen = now()).type != NO_EVENT)
		answer(&seen);
	ok(kinds & 1u << RDMA_CM_EVENT_CONNECT_REQUEST &&
		   kinds & 1u << RDMA_CM_EVENT_REJECTED &&
		   kinds & 1u << RDMA_CM_EVENT_ESTABLISHED &&
		   kinds & 1u << RDMA_CM_EVENT_DISCONNECTED,
	   "thousands of messages lead to every kind of event (%x)", kinds);
	ok(is_innocent_well(), "nobody else noticed");
}

int main(void)
{
	static const struct wire_handler handler = { evil_message, evil_lane,
						     evil_gone };
	struct rdma_conn_param param = { .retry_count = 7 };

	v = softverbs_table();
	ok_or_die(pair_open(&pair) && pair_connect(&pair, &param),
		  "an innocent connection");
	ok_or_die(!wire_open(&evil, &handler, NULL) &&
			  !wire_connect(evil,
					&pair.listener->route.addr.src_addr,
					&evil_link),
		  "and a link of the other kind");
	requests_are_checked();
	shapes_are_checked();
	states_are_checked();
	answers_are_checked();
	unanswered_requests_are_bounded();
	nonsense();
	wire_put(evil_link);
	wire_close(evil);
	settle();
	ok(is_innocent_well() && now().type == NO_EVENT,
	   "the innocent connection outlives it all");
	pair_close(&pair);
	settle();
	ok(!cm.id_count && !cm.pd && !lanes_in_use(), "nothing is left");
	return ok_done();
}
