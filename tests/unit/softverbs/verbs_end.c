/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How connections end: a disconnect comes after all that was sent before it
 * and is told once, from whatever state; a peer that talks nonsense loses it.
 */
#include "verbs_fate.h"

static void disconnect(struct end *end, const char *word)
{
	struct soft_device *device = soft_enter();

	soft_qp_disconnect(soft_qp_of(end->qp), word, strlen(word) + 1);
	soft_unlock(device);
}

static void a_refusal_is_told_before_a_disconnect(void)
{
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	receive(&p.b, 1, 0, 63);
	send_at(&p.a, 10, 0, 64, 0);
	ibv_poll_cq(p.b.recv_cq, 0, &wc);
	disconnect(&p.b, "it was too long");
	wc = poll_one(p.a.send_cq);
	ok(wc.status == IBV_WC_REM_INV_REQ_ERR && p.a.disconnects == 1,
	   "a refusal and a disconnect seen together: the refusal counts");
	pair_close(&p);
}

static void last_words_arrive(void)
{
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	receive(&p.b, 1, 0, 64);
	receive(&p.b, 2, 0, 64);
	receive(&p.a, 3, 0, 64);
	device_pump(true);
	strcpy(p.a.mem, "bye");
	send_at(&p.a, 1, 0, 4, IBV_SEND_SIGNALED);
	disconnect(&p.a, "because");
	ok(state_of(&p.a) == IBV_QPS_ERR && flushed(p.a.recv_cq, 3),
	   "who disconnects is in error at once");
	wc = poll_one(p.b.recv_cq);
	ok(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS &&
		   !strcmp(p.b.mem, "bye"), "what it had sent arrives");
	ok(flushed(p.b.recv_cq, 2), "then the rest is flushed");
	ok(p.b.disconnects == 1 && !strcmp(p.b.farewell, "because"),
	   "and its reason is told, once");
	disconnect(&p.a, "again");
	device_pump(true);
	ok(p.b.disconnects == 1 && p.a.disconnects == 0, "and only once");
	pair_close(&p);
}

static void a_disconnect_finds_its_way_through_a_full_ring(void)
{
	struct pair p;
	struct ibv_wc wc;
	unsigned got = 0;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7, .recv_wr = 64,
					      .send_wr = 64 });
	for (unsigned i = 0; i < 64; i++)
		receive(&p.b, i, 0, 64);
	for (unsigned i = 0; i < 64; i++)
		send_at(&p.a, i, 0, 8, 0);
	disconnect(&p.a, "full");
	ok(qp_of(p.a.qp)->owed == OWES_DISCONNECT, "64 records fill the ring");
	while (got < 64 && poll_one(p.b.recv_cq).status == IBV_WC_SUCCESS)
		got++;
	ok(got == 64, "all are received");
	ok(until(p.b.disconnects == 1) && !strcmp(p.b.farewell, "full"),
	   "then the disconnect");
	while (ibv_poll_cq(p.b.recv_cq, 1, &wc) == 1)
		got++;
	ok(got == 64, "and nothing after it");
	pair_close(&p);
}

static void both_disconnect(void)
{
	struct pair p;

	pair_open(&p, &(struct pair_options){ 0 });
	disconnect(&p.a, "a");
	disconnect(&p.b, "b");
	device_pump(true);
	device_pump(true);
	ok(p.a.disconnects == 1 && p.b.disconnects == 1,
	   "each learns of the other's disconnect, though in error");
	pair_close(&p);
}

/* As librdmacm does it: to error first, then the disconnect. */
static void a_disconnect_after_an_error_is_told(void)
{
	struct pair p;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	modify_state(p.a.qp, IBV_QPS_ERR);
	disconnect(&p.a, "late");
	device_pump(true);
	ok(p.b.disconnects == 1 && !strcmp(p.b.farewell, "late") &&
		   state_of(&p.b) == IBV_QPS_ERR, "to an idle peer");
	pair_close(&p);

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	modify_state(p.a.qp, IBV_QPS_ERR);
	send_at(&p.b, 1, 0, 8, 0);
	ok(poll_one(p.b.send_cq).status == IBV_WC_RETRY_EXC_ERR,
	   "a peer that noticed by itself");
	disconnect(&p.a, "later");
	device_pump(true);
	ok(p.b.disconnects == 1 && !strcmp(p.b.farewell, "later"),
	   "is told as well");
	pair_close(&p);

	pair_open(&p, &(struct pair_options){ .rnr_retry = 0 });
	send_at(&p.a, 1, 0, 8, 0);
	ok(poll_one(p.a.send_cq).status == IBV_WC_RNR_RETRY_EXC_ERR,
	   "after an error of its own");
	disconnect(&p.a, "mine");
	device_pump(true);
	ok(p.b.disconnects == 1 && !strcmp(p.b.farewell, "mine"),
	   "it is told too");
	pair_close(&p);
}

/* ---- what a peer may say ---------------------------------------------- */

/* Push a raw record from a's lane and see b's queue pair fail. */
static void nonsense(const char *name, struct record record, size_t bytes,
		     unsigned receives)
{
	struct pair p;
	struct soft_device *device;
	struct iovec iov;
	bool good;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	for (unsigned i = 0; i < receives; i++)
		receive(&p.b, i, 0, 4096);
	device = soft_enter();
	iov = (struct iovec){ p.a.mem, bytes };
	good = !lane_push(&qp_of(p.a.qp)->lane, &record, &iov, 1);
	lane_flush(&qp_of(p.a.qp)->lane);
	soft_unlock(device);
	device_pump(true);
	good &= state_of(&p.b) == IBV_QPS_ERR;
	good &= async_is(&p.b, IBV_EVENT_QP_REQ_ERR);
	for (unsigned i = 0; i < receives; i++)
		good &= flushed(p.b.recv_cq, i);
	device_pump(true);
	good &= state_of(&p.a) == IBV_QPS_ERR;
	ok(good, "%s costs the sender the connection", name);
	while (async_is(&p.a, IBV_EVENT_QP_FATAL))
		;
	pair_close(&p);
}

static void nonsense_is_refused(void)
{
	nonsense("a send without a credit",
		 (struct record){ .op = RECORD_SEND, .flags = RECORD_LAST,
				  .length = 8 }, 8, 0);
	nonsense("a write with immediate without a credit",
		 (struct record){ .op = RECORD_WRITE_IMM,
				  .flags = RECORD_LAST | RECORD_HAS_IMM }, 0,
		 0);
	nonsense("a fragment out of place",
		 (struct record){ .op = RECORD_SEND, .flags = RECORD_LAST,
				  .length = 16, .offset = 8 }, 8, 1);
	nonsense("a last fragment that is not the last",
		 (struct record){ .op = RECORD_SEND, .flags = RECORD_LAST,
				  .length = 16 }, 8, 1);
	nonsense("a whole message that is not the last",
		 (struct record){ .op = RECORD_SEND, .length = 8 }, 8, 1);
	nonsense("a fragment beyond its message",
		 (struct record){ .op = RECORD_SEND, .flags = RECORD_LAST,
				  .length = 4 }, 8, 1);
	nonsense("an empty fragment",
		 (struct record){ .op = RECORD_SEND, .length = 8 }, 0, 1);
	nonsense("a write with immediate that has none",
		 (struct record){ .op = RECORD_WRITE_IMM,
				  .flags = RECORD_LAST }, 0, 1);
	nonsense("a disconnect with too much to say",
		 (struct record){ .op = RECORD_DISCONNECT,
				  .flags = RECORD_LAST }, 225, 1);
}

static void another_message_inside_one(void)
{
	struct pair p;
	struct soft_device *device;
	struct iovec iov;
	struct record first = { .op = RECORD_SEND, .length = 16 },
		      second = { .op = RECORD_SEND, .length = 17, .offset = 8,
				 .flags = RECORD_LAST };
	int err;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	receive(&p.b, 1, 0, 4096);
	device = soft_enter();
	iov = (struct iovec){ p.a.mem, 8 };
	err = lane_push(&qp_of(p.a.qp)->lane, &first, &iov, 1);
	iov.iov_len = 9;
	err |= lane_push(&qp_of(p.a.qp)->lane, &second, &iov, 1);
	lane_flush(&qp_of(p.a.qp)->lane);
	soft_unlock(device);
	device_pump(true);
	ok(!err && state_of(&p.b) == IBV_QPS_ERR &&
		   async_is(&p.b, IBV_EVENT_QP_REQ_ERR),
	   "a length that changes inside a message is refused");
	until(state_of(&p.a) == IBV_QPS_ERR);
	async_is(&p.a, IBV_EVENT_QP_FATAL);
	pair_close(&p);
}

int main(void)
{
	a_refusal_is_told_before_a_disconnect();
	last_words_arrive();
	a_disconnect_finds_its_way_through_a_full_ring();
	both_disconnect();
	a_disconnect_after_an_error_is_told();
	nonsense_is_refused();
	another_message_inside_one();
	return ok_done();
}
