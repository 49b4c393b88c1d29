/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data arrives: every operation between two queue pairs, every size at which
 * the way it travels changes, in order across the wrap of all rings.
 */
#include "verbs_pair.h"

static void fill(char *mem, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		mem[i] = (char)(seed = seed * 1103515245 + 12345) >> 4;
}

static void sends_of_every_size(void)
{
	static const size_t sizes[] = { 0,    1,     31,    32,	   33,	 96,
					97,   991,   992,   993,   4096, 16383,
					16384, 16385, 49152, 100000, 400000 };
	struct pair p;
	struct ibv_wc wc;
	bool good = true;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	for (size_t i = 0; i < RK_ARRAY_SIZE(sizes); i++) {
		size_t n = sizes[i];

		fill(p.a.mem, n, (unsigned)i);
		memset(p.b.mem, 0x55, n + 1);
		good &= !receive(&p.b, 100 + i, 0, 500000);
		good &= !send_at(&p.a, i, 0, n, IBV_SEND_SIGNALED);
		wc = poll_one(p.b.recv_cq);
		good &= wc.status == IBV_WC_SUCCESS && wc.wr_id == 100 + i &&
			wc.opcode == IBV_WC_RECV && wc.byte_len == n &&
			wc.qp_num == p.b.qp->qp_num && !wc.wc_flags;
		good &= !memcmp(p.a.mem, p.b.mem, n) && p.b.mem[n] == 0x55;
		wc = poll_one(p.a.send_cq);
		good &= wc.status == IBV_WC_SUCCESS && wc.wr_id == i &&
			wc.opcode == IBV_WC_SEND;
		ok(good, "a send of %zu bytes", n);
	}
	pair_close(&p);
}

static void send_with_immediate(void)
{
	struct pair p;
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND_WITH_IMM,
				  .imm_data = htonl(0x01020304) };
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ 0 });
	sge = piece(&p.a, 0, 5);
	receive(&p.b, 1, 0, 64);
	ok(!post(&p.a, &wr), "a send with immediate is posted");
	wc = poll_one(p.b.recv_cq);
	ok(wc.wc_flags == IBV_WC_WITH_IMM && wc.imm_data == htonl(0x01020304) &&
		   wc.byte_len == 5, "and arrives with it, in network order");
	ok(cq_is_empty(p.a.send_cq), "unsignalled, it completes silently");
	pair_close(&p);
}

static void write_with_immediate(void)
{
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ 0 });
	strcpy(p.a.mem + 64, "placed");
	receive(&p.b, 5, 0, 16);
	ok(!access_at(&p.a, &p.b, IBV_WR_RDMA_WRITE_WITH_IMM, 77, 64, 7,
		      IBV_SEND_SIGNALED), "a write with immediate is posted");
	wc = poll_one(p.b.recv_cq);
	ok(wc.status == IBV_WC_SUCCESS && wc.wr_id == 5 &&
		   wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM, "takes a receive");
	ok(wc.byte_len == 7 && wc.wc_flags == IBV_WC_WITH_IMM &&
		   wc.imm_data == htonl(77), "tells its length and immediate");
	ok(!strcmp(p.b.mem + 64, "placed"), "its data is there");
	ok(!p.b.mem[0], "the receive's own buffer is untouched");
	wc = poll_one(p.a.send_cq);
	ok(wc.opcode == IBV_WC_RDMA_WRITE && wc.wr_id == 77,
	   "the initiator's completion is that of a write");

	receive(&p.b, 6, 0, 16);
	access_at(&p.a, &p.b, IBV_WR_RDMA_WRITE_WITH_IMM, 78, 0, 0, 0);
	wc = poll_one(p.b.recv_cq);
	ok(wc.wr_id == 6 && wc.byte_len == 0, "also with no data at all");
	pair_close(&p);
}

static void write_and_read(bool private_memory)
{
	struct pair p;
	struct ibv_wc wc;
	const char *kind = private_memory ? "private" : "granted";

	pair_open(&p, &(struct pair_options){ .private_memory =
						      private_memory });
	fill(p.a.mem, 300000, 3);
	ok(!access_at(&p.a, &p.b, IBV_WR_RDMA_WRITE, 1, 0, 300000,
		      IBV_SEND_SIGNALED), "a write to %s memory", kind);
	wc = poll_one(p.a.send_cq);
	ok(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE,
	   "completes");
	ok(!memcmp(p.a.mem, p.b.mem, 300000), "with the bytes in place");
	ok(cq_is_empty(p.b.recv_cq), "the target notices nothing");

	fill(p.b.mem, 300000, 4);
	ok(!access_at(&p.a, &p.b, IBV_WR_RDMA_READ, 2, 0, 300000,
		      IBV_SEND_SIGNALED), "a read of %s memory", kind);
	wc = poll_one(p.a.send_cq);
	ok(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_READ &&
		   wc.byte_len == 300000, "completes with its length");
	ok(!memcmp(p.a.mem, p.b.mem, 300000), "with the bytes in place");
	pair_close(&p);
}

/* All of mixed sizes; the receiver lags, so that everything fills up. */
static void order_across_every_wrap(void)
{
	enum { COUNT = 5000, SLOT = 40000, DEPTH = 8 };
	struct pair p;
	struct ibv_wc wc;
	unsigned sent = 0, posted = 0, got = 0, retired = 0;
	unsigned out_of_order = 0, damaged = 0;
	uint64_t deadline = rk_now_ns() + 20 * RK_NS_PER_S;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7, .send_wr = 16,
					      .recv_wr = DEPTH,
					      .sig_all = true });
	while (got < COUNT && rk_now_ns() < deadline) {
		while (posted < COUNT && posted < got + DEPTH - got % 3) {
			receive(&p.b, posted, posted % DEPTH * SLOT, SLOT);
			posted++;
		}
		while (sent < COUNT && sent < retired + 16) {
			size_t n = sent % 50 == 49 ? 17000 + sent :
						     sent * 7 % 2000 + 4;
			char *at = p.a.mem + sent % 16 * SLOT;

			memcpy(at, &sent, 4);
			at[n - 1] = (char)(n == 4 ? at[3] : (char)sent);
			if (send_at(&p.a, sent, sent % 16 * SLOT, n, 0))
				break;
			sent++;
		}
		while (ibv_poll_cq(p.a.send_cq, 1, &wc) == 1) {
			out_of_order += wc.wr_id != retired ||
					wc.status != IBV_WC_SUCCESS;
			retired++;
		}
		for (int i = 0; i < 3 && ibv_poll_cq(p.b.recv_cq, 1, &wc) == 1;
		     i++) {
			const char *at = p.b.mem + wc.wr_id % DEPTH * SLOT;
			size_t n = got % 50 == 49 ? 17000 + got :
						    got * 7 % 2000 + 4;

			out_of_order += wc.wr_id != got ||
					wc.status != IBV_WC_SUCCESS;
			damaged += memcmp(at, &got, 4) || wc.byte_len != n ||
				   (n > 4 && at[n - 1] != (char)got);
			got++;
		}
	}
	ok(got == COUNT && !out_of_order && !damaged,
	   "%u sends of mixed sizes, in order and whole (%u, %u)", got,
	   out_of_order, damaged);
	while (retired < COUNT && poll_one(p.a.send_cq).wr_id == retired)
		retired++;
	ok(retired == COUNT, "all completed in order (%u)", retired);
	pair_close(&p);
}

static void writes_land_before_what_follows(void)
{
	enum { COUNT = 3000 };
	struct pair p;
	struct ibv_wc wc;
	unsigned late = 0;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	for (uint32_t i = 0; i < COUNT; i++) {
		memcpy(p.a.mem, &i, 4);
		receive(&p.b, i, 4096, 64);
		late += !!access_at(&p.a, &p.b, IBV_WR_RDMA_WRITE, i, 0, 4,
				    i % 8 ? 0 : IBV_SEND_SIGNALED);
		late += !!send_at(&p.a, i, 4096, 8,
				  i % 8 ? 0 : IBV_SEND_SIGNALED);
		wc = poll_one(p.b.recv_cq);
		late += wc.wr_id != i || memcmp(p.b.mem, &i, 4);
		while (ibv_poll_cq(p.a.send_cq, 1, &wc) == 1)
			late += wc.status != IBV_WC_SUCCESS;
	}
	ok(!late, "a write's data is there when the send behind it arrives");
	pair_close(&p);
}

static void scatter_and_gather(void)
{
	struct pair p;
	struct ibv_sge from[4], to[4];
	struct ibv_send_wr wr = { .sg_list = from, .num_sge = 4,
				  .opcode = IBV_WR_SEND };
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = to, .num_sge = 4 };
	struct ibv_recv_wr *bad;
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ .sge = 4 });
	fill(p.a.mem, 60000, 9);
	/* 20000 bytes, cut in different places on the two sides */
	from[0] = piece(&p.a, 0, 5);
	from[1] = piece(&p.a, 5, 0);
	from[2] = piece(&p.a, 5, 16384);
	from[3] = piece(&p.a, 16389, 3611);
	to[0] = piece(&p.b, 0, 17000);
	to[1] = piece(&p.b, 17000, 1);
	to[2] = piece(&p.b, 17001, 0);
	to[3] = piece(&p.b, 17001, 9000);
	ok(!ibv_post_recv(p.b.qp, &recv, &bad), "a receive of four pieces");
	ok(!post(&p.a, &wr), "a send of four pieces");
	wc = poll_one(p.b.recv_cq);
	ok(wc.status == IBV_WC_SUCCESS && wc.byte_len == 20000 &&
		   !memcmp(p.a.mem, p.b.mem, 20000), "arrives whole");
	wr.num_sge = 5;
	ok(post(&p.a, &wr) == EINVAL, "a fifth piece is refused");
	recv.num_sge = 5;
	ok(ibv_post_recv(p.b.qp, &recv, &bad) == EINVAL && bad == &recv,
	   "in a receive too");
	pair_close(&p);
}

static void inline_data_is_free_at_once(void)
{
	enum { BYTES = 65536 };
	struct pair p;
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_INLINE };
	char *mine = malloc(BYTES), *copy = malloc(BYTES);
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ .inline_bytes = BYTES,
					      .rnr_retry = 7,
					      .mem_bytes = 1 << 20 });
	fill(mine, BYTES, 5);
	memcpy(copy, mine, BYTES);
	sge = (struct ibv_sge){ (uintptr_t)mine, BYTES, 0 };
	ok(!post(&p.a, &wr), "64 KiB inline, without a key, with no receive");
	memset(mine, 0, BYTES);
	receive(&p.b, 1, 0, BYTES);
	wc = poll_one(p.b.recv_cq);
	ok(wc.status == IBV_WC_SUCCESS && !memcmp(p.b.mem, copy, BYTES),
	   "its bytes are those at the time of posting");
	sge.length = BYTES + 1;
	ok(post(&p.a, &wr) == EINVAL, "more than was granted is refused");
	free(mine);
	free(copy);
	pair_close(&p);
}

static void a_list_is_one_batch(void)
{
	enum { COUNT = 8 };
	struct pair p;
	struct ibv_sge sge[COUNT];
	struct ibv_send_wr wr[COUNT], *bad;
	struct ibv_recv_wr recv[COUNT], *bad_recv;
	struct ibv_wc wc[COUNT];
	int got;

	pair_open(&p, &(struct pair_options){ 0 });
	for (int i = 0; i < COUNT; i++) {
		recv[i] = (struct ibv_recv_wr){
			.wr_id = (uint64_t)i,
			.next = i + 1 < COUNT ? &recv[i + 1] : NULL,
		};
		sge[i] = piece(&p.a, (size_t)i * 8, 8);
		wr[i] = (struct ibv_send_wr){
			.wr_id = (uint64_t)i, .sg_list = &sge[i], .num_sge = 1,
			.next = i + 1 < COUNT ? &wr[i + 1] : NULL,
			.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
			.send_flags = i + 1 < COUNT ? 0 : IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)p.b.mem, p.b.mr->rkey },
		};
	}
	ok(!ibv_post_recv(p.b.qp, recv, &bad_recv), "eight receives at once");
	ok(!ibv_post_send(p.a.qp, wr, &bad), "eight writes at once");
	got = ibv_poll_cq(p.b.recv_cq, COUNT, wc);
	ok(got == COUNT && wc[0].wr_id == 0 && wc[COUNT - 1].wr_id == COUNT - 1,
	   "one poll finds all eight, in order");
	got = ibv_poll_cq(p.a.send_cq, COUNT, wc);
	ok(got == 1 && wc[0].wr_id == COUNT - 1, "one signalled completion");
	pair_close(&p);
}

/* Without it, two programs that wait for their own sends first would stop. */
static void a_send_completes_before_the_target_polls(void)
{
	struct pair p;
	struct ibv_wc wc;
	int got;

	pair_open(&p, &(struct pair_options){ 0 });
	receive(&p.b, 1, 0, 64);
	device_pump(true);
	send_at(&p.a, 2, 0, 64, IBV_SEND_SIGNALED);
	got = ibv_poll_cq(p.a.send_cq, 1, &wc);
	ok(got == 1 && wc.wr_id == 2, "a send that fits completes at once");
	pair_close(&p);
}

static void a_write_waits_behind_an_unsure_send(void)
{
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	/* the first receive is shorter than the send that will take the
	 * second one: nobody can be sure before the target looked */
	receive(&p.b, 1, 0, 8);
	receive(&p.b, 2, 1024, 64);
	send_at(&p.a, 1, 0, 8, 0);
	strcpy(p.a.mem + 4096, "behind");
	send_at(&p.a, 2, 0, 64, IBV_SEND_SIGNALED);
	access_at(&p.a, &p.b, IBV_WR_RDMA_WRITE, 3, 4096, 7,
		  IBV_SEND_SIGNALED);
	ok(!p.b.mem[4096], "the write has not landed");
	ok(poll_one(p.b.recv_cq).wr_id == 1 && poll_one(p.b.recv_cq).wr_id == 2,
	   "both sends arrive");
	wc = poll_one(p.a.send_cq);
	ok(wc.wr_id == 2 && wc.status == IBV_WC_SUCCESS, "the send is done");
	wc = poll_one(p.a.send_cq);
	ok(wc.wr_id == 3 && wc.status == IBV_WC_SUCCESS &&
		   !strcmp(p.b.mem + 4096, "behind"), "then the write");
	pair_close(&p);
}

static void a_fenced_send_carries_what_was_read(void)
{
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	receive(&p.b, 1, 0, 8);
	receive(&p.b, 2, 1024, 64);
	strcpy(p.b.mem + 4096, "read first");
	/* an unsure send holds the read back, and the read the fenced send */
	send_at(&p.a, 1, 0, 8, 0);
	send_at(&p.a, 2, 0, 64, 0);
	access_at(&p.a, &p.b, IBV_WR_RDMA_READ, 3, 4096, 16,
		  IBV_SEND_SIGNALED);
	receive(&p.b, 3, 8192, 64);
	send_at(&p.a, 4, 4096, 16, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
	for (int i = 1; i <= 3; i++)
		wc = poll_one(p.b.recv_cq);
	ok(wc.wr_id == 3 && !strcmp(p.b.mem + 8192, "read first"),
	   "a fenced send behind a read");
	ok(poll_one(p.a.send_cq).wr_id == 3 && poll_one(p.a.send_cq).wr_id == 4,
	   "they complete in order");
	pair_close(&p);
}

static void both_ways_at_once(void)
{
	enum { COUNT = 2000 };
	struct pair p;
	struct ibv_wc wc;
	unsigned got_a = 0, got_b = 0, sent_a = 0, sent_b = 0;
	uint64_t deadline = rk_now_ns() + DEADLINE_MS * RK_NS_PER_MS;

	pair_open(&p, &(struct pair_options){ .rnr_retry = 7 });
	for (int i = 0; i < 16; i++) {
		receive(&p.a, 0, 0, 2048);
		receive(&p.b, 0, 0, 2048);
	}
	while ((got_a < COUNT || got_b < COUNT) && rk_now_ns() < deadline) {
		if (sent_a < COUNT)
			sent_a += !send_at(&p.a, 0, 4096, 1500,
					   IBV_SEND_SIGNALED);
		if (sent_b < COUNT)
			sent_b += !send_at(&p.b, 0, 4096, 1500,
					   IBV_SEND_SIGNALED);
		if (ibv_poll_cq(p.a.recv_cq, 1, &wc) == 1 && ++got_a)
			receive(&p.a, 0, 0, 2048);
		if (ibv_poll_cq(p.b.recv_cq, 1, &wc) == 1 && ++got_b)
			receive(&p.b, 0, 0, 2048);
		ibv_poll_cq(p.a.send_cq, 1, &wc);
		ibv_poll_cq(p.b.send_cq, 1, &wc);
	}
	ok(got_a == COUNT && got_b == COUNT, "%u and %u messages crossed",
	   got_a, got_b);
	pair_close(&p);
}

int main(void)
{
	sends_of_every_size();
	send_with_immediate();
	write_with_immediate();
	write_and_read(false);
	write_and_read(true);
	scatter_and_gather();
	inline_data_is_free_at_once();
	a_list_is_one_batch();
	a_send_completes_before_the_target_polls();
	a_write_waits_behind_an_unsure_send();
	writes_land_before_what_follows();
	a_fenced_send_carries_what_was_read();
	both_ways_at_once();
	order_across_every_wrap();
	return ok_done();
}
