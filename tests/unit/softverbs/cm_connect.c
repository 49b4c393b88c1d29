/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection from nothing to established and back, as programs see it. */
#include "cm_help.h"

static bool is_fill(const uint8_t *bytes, size_t count, uint8_t value)
{
	for (size_t i = 0; i < count; i++)
		if (bytes[i] != value)
			return false;
	return true;
}

static void events_come_in_order(void)
{
	struct pair pair;
	struct seen seen;
	struct rdma_conn_param param = { .retry_count = 7,
					 .rnr_retry_count = 7 };
	int context = 0;

	ok_or_die(pair_open(&pair), "two channels and a listener");
	pair.listener->context = &context;
	pair.active = resolved(pair.active_channel, pair.listener);
	ok_or_die(pair.active, "address and route resolve");
	ok(pair.active->verbs && pair.active->pd && pair.active->port_num == 1,
	   "a resolved id has a device, a domain and a port");
	ok_or_die(!qp_new(pair.active), "the active id takes a queue pair");
	ok(pair.active->send_cq && pair.active->recv_cq_channel,
	   "without completion queues given it has its own");
	ok_or_die(!v->cm_connect(pair.active, &param), "connect starts");

	ok_or_die(got(pair.passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST,
		      &seen),
		  "the listener's channel has a request");
	pair.passive = seen.id;
	ok(seen.listen_id == pair.listener && seen.id != pair.listener,
	   "with a new id and the listener's");
	ok(pair.passive->context == &context && pair.passive->verbs &&
		   pair.passive->pd &&
		   pair.passive->channel == pair.passive_channel,
	   "which inherits context, device, domain and channel");
	ok(v->cm_get_src_port(pair.passive) ==
			   v->cm_get_src_port(pair.listener) &&
		   v->cm_get_dst_port(pair.passive) ==
			   v->cm_get_src_port(pair.active) &&
		   v->cm_get_src_port(pair.active) != 0,
	   "and knows both ports");
	ok(seen.conn.qp_num == pair.active->qp->qp_num,
	   "and the peer's queue pair");
	ok(see_within(pair.active_channel, 0).type == NO_EVENT,
	   "the active side hears nothing before the answer");

	ok_or_die(!qp_new(pair.passive) && !v->cm_accept(pair.passive, &param),
		  "accepted");
	ok(pair.passive->qp->state == IBV_QPS_RTS,
	   "the passive queue pair is ready inside accept");
	settle();
	ok(see_within(pair.passive_channel, 0).type == NO_EVENT &&
		   pair.active->qp->state == IBV_QPS_INIT,
	   "nothing is established before the active side fetches");
	ok(got(pair.active_channel, RDMA_CM_EVENT_ESTABLISHED, &seen) &&
		   seen.status == 0 && seen.id == pair.active,
	   "active side established");
	ok(pair.active->qp->state == IBV_QPS_RTS &&
		   seen.conn.qp_num == pair.passive->qp->qp_num,
	   "its queue pair became ready by fetching that");
	ok(got(pair.passive_channel, RDMA_CM_EVENT_ESTABLISHED, &seen) &&
		   seen.id == pair.passive && !seen.conn.private_data_len,
	   "passive side established");
	pair_close(&pair);
}

static void both_sides_are_disconnected_once(void)
{
	struct pair pair;
	struct seen seen;
	struct rdma_conn_param param = { .retry_count = 7 };
	struct rdma_cm_id *first, *second;

	cm_times.timewait_ns = 20 * RK_NS_PER_MS;
	for (int passive = 0; passive < 2; passive++) {
		ok_or_die(pair_open(&pair) && pair_connect(&pair, &param),
			  "connected");
		first = passive ? pair.passive : pair.active;
		second = passive ? pair.active : pair.passive;
		ok(!v->cm_disconnect(first), "%s side disconnects",
		   passive ? "passive" : "active");
		ok(first->qp->state == IBV_QPS_ERR,
		   "its queue pair is in error at once");
		ok(got(first->channel, RDMA_CM_EVENT_DISCONNECTED, &seen) &&
			   seen.id == first && seen.status == 0,
		   "it is told");
		ok(got(second->channel, RDMA_CM_EVENT_DISCONNECTED, &seen) &&
			   seen.id == second && seen.status == 0,
		   "the other is told");
		ok(!v->cm_disconnect(second) && !v->cm_disconnect(first),
		   "disconnecting again is no error");
		ok(got(first->channel, RDMA_CM_EVENT_TIMEWAIT_EXIT, &seen) &&
			   got(second->channel, RDMA_CM_EVENT_TIMEWAIT_EXIT,
			       &seen),
		   "the end of the time wait follows");
		settle();
		ok(see_within(first->channel, 0).type == NO_EVENT &&
			   see_within(second->channel, 0).type == NO_EVENT,
		   "and nothing else");
		pair_close(&pair);
	}
	ok_or_die(pair_open(&pair) && pair_connect(&pair, &param),
		  "connected");
	ok(!v->cm_disconnect(pair.active) && !v->cm_disconnect(pair.passive),
	   "both disconnect at the same time");
	ok(got(pair.active_channel, RDMA_CM_EVENT_DISCONNECTED, &seen) &&
		   got(pair.passive_channel, RDMA_CM_EVENT_DISCONNECTED,
		       &seen),
	   "both are told");
	ok(got(pair.active_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT, &seen) &&
		   got(pair.passive_channel, RDMA_CM_EVENT_TIMEWAIT_EXIT,
		       &seen),
	   "once");
	pair_close(&pair);
	cm_times.timewait_ns = RK_NS_PER_S;
}

static void destroying_one_end_disconnects_the_other(void)
{
	struct pair pair;
	struct seen seen;
	struct rdma_conn_param param = { .retry_count = 7 };

	ok_or_die(pair_open(&pair) && pair_connect(&pair, &param),
		  "connected");
	id_end(pair.active);
	pair.active = NULL;
	ok(got(pair.passive_channel, RDMA_CM_EVENT_DISCONNECTED, &seen) &&
		   seen.id == pair.passive,
	   "queue pair and id destroyed: the peer is disconnected");
	pair_close(&pair);

	ok_or_die(pair_open(&pair) && pair_connect(&pair, &param),
		  "connected");
	/* in the wrong order: the queue pair outlives its id */
	struct ibv_qp *qp = pair.passive->qp;
	struct ibv_cq *cqs[] = { qp->send_cq, qp->recv_cq };
	struct ibv_comp_channel *channels[] = { cqs[0]->channel,
						cqs[1]->channel };

	v->cm_destroy_id(pair.passive);
	pair.passive = NULL;
	ok(got(pair.active_channel, RDMA_CM_EVENT_DISCONNECTED, &seen),
	   "id destroyed under its queue pair: the peer is disconnected");
	ok(!v->destroy_qp(qp) && !v->destroy_cq(cqs[0]) &&
		   !v->destroy_cq(cqs[1]) &&
		   !v->destroy_comp_channel(channels[0]) &&
		   !v->destroy_comp_channel(channels[1]),
	   "and the queue pair can be destroyed after it");
	pair_close(&pair);
}

static void private_data_is_padded_to_full_size(void)
{
	struct pair pair;
	struct seen seen;
	uint8_t bytes[256];
	struct rdma_conn_param param = { .private_data = bytes,
					 .retry_count = 7 };

	memset(bytes, 0x5a, sizeof(bytes));
	ok_or_die(pair_open(&pair), "a listener");
	pair.active = resolved(pair.active_channel, pair.listener);
	ok_or_die(pair.active && !qp_new(pair.active), "resolved");
	param.private_data_len = 57;
	ok(v->cm_connect(pair.active, &param) && errno == EINVAL,
	   "a request takes no 57 bytes");
	param.private_data_len = 56;
	ok_or_die(!v->cm_connect(pair.active, &param) &&
			  got(pair.passive_channel,
			      RDMA_CM_EVENT_CONNECT_REQUEST, &seen),
		  "a request with 56 bytes");
	pair.passive = seen.id;
	ok(seen.conn.private_data_len == 56 &&
		   is_fill(seen.private_data, 56, 0x5a),
	   "arrives whole");
	ok_or_die(!qp_new(pair.passive), "a queue pair");
	param.private_data_len = 197;
	ok(v->cm_accept(pair.passive, &param) && errno == EINVAL,
	   "a reply takes no 197 bytes");
	param.private_data_len = 196;
	ok(!v->cm_accept(pair.passive, &param) &&
		   got(pair.active_channel, RDMA_CM_EVENT_ESTABLISHED, &seen),
	   "a reply with 196 bytes");
	ok(seen.conn.private_data_len == 196 &&
		   is_fill(seen.private_data, 196, 0x5a),
	   "arrives whole");
	id_end(pair.active);
	id_end(pair.passive);
	pair.active = pair.passive = NULL;
	while (see_within(pair.passive_channel, 0).type != NO_EVENT)
		;

	param.private_data_len = 3;
	pair.active = resolved(pair.active_channel, pair.listener);
	ok_or_die(pair.active && !qp_new(pair.active) &&
			  !v->cm_connect(pair.active, &param) &&
			  got(pair.passive_channel,
			      RDMA_CM_EVENT_CONNECT_REQUEST, &seen),
		  "a request with 3 bytes");
	pair.passive = seen.id;
	ok(seen.conn.private_data_len == 56 &&
		   is_fill(seen.private_data, 3, 0x5a) &&
		   is_fill(seen.private_data + 3, 53, 0),
	   "arrives as 56, zero padded");
	param.private_data_len = 0;
	ok(!qp_new(pair.passive) && !v->cm_accept(pair.passive, &param) &&
		   got(pair.active_channel, RDMA_CM_EVENT_ESTABLISHED, &seen) &&
		   seen.conn.private_data_len == 196 &&
		   is_fill(seen.private_data, 196, 0),
	   "a reply without is 196 zeroes");
	pair_close(&pair);
}

static void rejection_carries_reason_and_data(void)
{
	struct pair pair;
	struct seen seen;
	struct rdma_conn_param param = { .retry_count = 7 };
	uint8_t bytes[256];

	memset(bytes, 0xa5, sizeof(bytes));
	for (unsigned size = 0; size <= 148; size += 148) {
		ok_or_die(pair_open(&pair), "a listener");
		pair.active = resolved(pair.active_channel, pair.listener);
		ok_or_die(pair.active && !qp_new(pair.active) &&
				  !v->cm_connect(pair.active, &param) &&
				  got(pair.passive_channel,
				      RDMA_CM_EVENT_CONNECT_REQUEST, &seen),
			  "a request");
		pair.passive = seen.id;
		ok(v->cm_reject(pair.passive, bytes, 149) && errno == EINVAL,
		   "149 bytes are too many");
		ok(!v->cm_reject(pair.passive, bytes, (uint8_t)size),
		   "rejected with %u bytes", size);
		ok(got(pair.active_channel, RDMA_CM_EVENT_REJECTED, &seen) &&
			   seen.status == 28,
		   "status 28, by the program");
		ok(seen.conn.private_data_len == 148 &&
			   is_fill(seen.private_data, size, 0xa5) &&
			   is_fill(seen.private_data + size, 148 - size, 0),
		   "with its bytes, zero padded to 148");
		ok(pair.active->qp->state == IBV_QPS_ERR,
		   "the active queue pair is in error");
		ok(v->cm_accept(pair.passive, &param) && errno == EINVAL,
		   "what was rejected cannot be accepted");
		pair_close(&pair);
	}
}

static void destroying_the_child_rejects(void)
{
	struct pair pair;
	struct seen seen;
	struct rdma_conn_param param = { .retry_count = 7 };

	ok_or_die(pair_open(&pair), "a listener");
	pair.active = resolved(pair.active_channel, pair.listener);
	ok_or_die(pair.active && !qp_new(pair.active) &&
			  !v->cm_connect(pair.active, &param) &&
			  got(pair.passive_channel,
			      RDMA_CM_EVENT_CONNECT_REQUEST, &seen),
		  "a request");
	ok(!v->cm_destroy_id(seen.id) &&
		   got(pair.active_channel, RDMA_CM_EVENT_REJECTED, &seen) &&
		   seen.status == 28,
	   "its id destroyed: rejected");
	pair_close(&pair);
}

static void nobody_listens(void)
{
	struct pair pair;
	struct seen seen;
	struct rdma_conn_param param = { .retry_count = 7 };
	struct sockaddr_in addr;

	ok_or_die(pair_open(&pair), "a listener");
	addr = ipv4("127.0.0.1", v->cm_get_src_port(pair.listener));
	id_end(pair.listener);
	pair.listener = NULL;
	pair.active = resolved_to(pair.active_channel, &addr);
	ok_or_die(pair.active, "resolves though nobody listens");
	ok(!qp_new(pair.active) && !v->cm_connect(pair.active, &param) &&
		   got(pair.active_channel, RDMA_CM_EVENT_REJECTED, &seen) &&
		   seen.status == 8 && seen.conn.private_data_len == 148,
	   "and is rejected with status 8");
	id_end(pair.active);

	/* a listener that comes between resolving and connecting is found */
	pair.active = resolved_to(pair.active_channel, &addr);
	ok_or_die(pair.active && !qp_new(pair.active), "resolved");
	ok_or_die(!v->cm_create_id(pair.passive_channel, &pair.listener, NULL,
				   RDMA_PS_TCP) &&
			  !v->cm_bind_addr(pair.listener,
					   (struct sockaddr *)&addr) &&
			  !v->cm_listen(pair.listener, 0),
		  "a late listener");
	ok(!v->cm_connect(pair.active, &param) &&
		   got(pair.passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST,
		       &seen),
	   "is asked");
	v->cm_destroy_id(seen.id);
	pair_close(&pair);

	/* the process listens, but on another port */
	ok_or_die(pair_open(&pair), "a listener");
	pair.active = resolved(pair.active_channel, pair.listener);
	ok_or_die(pair.active && !qp_new(pair.active), "resolved");
	id_end(pair.listener);
	pair.listener = NULL;
	ok(!v->cm_connect(pair.active, &param) &&
		   got(pair.active_channel, RDMA_CM_EVENT_REJECTED, &seen) &&
		   seen.status == 8,
	   "a listener that went away between: status 8");
	pair_close(&pair);
}

static void parameters_swap_meaning(void)
{
	struct pair pair;
	struct seen seen;
	struct rdma_conn_param request = { .responder_resources = 3,
					   .initiator_depth = 2,
					   .retry_count = 6,
					   .rnr_retry_count = 5,
					   .flow_control = 1 };
	struct rdma_conn_param reply = { .responder_resources = 2,
					 .initiator_depth = 1,
					 .retry_count = 1, /* ignored */
					 .rnr_retry_count = 4 };
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	ok_or_die(pair_open(&pair), "a listener");
	pair.active = resolved(pair.active_channel, pair.listener);
	ok_or_die(pair.active && !qp_new(pair.active) &&
			  !v->cm_connect(pair.active, &request) &&
			  got(pair.passive_channel,
			      RDMA_CM_EVENT_CONNECT_REQUEST, &seen),
		  "a request");
	pair.passive = seen.id;
	ok(seen.conn.responder_resources == 2 &&
		   seen.conn.initiator_depth == 3 &&
		   seen.conn.retry_count == 6 &&
		   seen.conn.rnr_retry_count == 5 &&
		   seen.conn.flow_control == 1 && !seen.conn.srq,
	   "says what the passive side must answer and may start");
	ok_or_die(!qp_new(pair.passive) && !v->cm_accept(pair.passive, &reply) &&
			  got(pair.active_channel, RDMA_CM_EVENT_ESTABLISHED,
			      &seen),
		  "accepted");
	ok(seen.conn.responder_resources == 1 &&
		   seen.conn.initiator_depth == 2 &&
		   seen.conn.rnr_retry_count == 4 &&
		   seen.conn.flow_control == 0,
	   "the reply the same way round");
	v->query_qp(pair.active->qp, &attr, 0, &init);
	ok(attr.max_rd_atomic == 2 && attr.max_dest_rd_atomic == 1,
	   "active queue pair: starts 2 reads, answers 1");
	ok(attr.rnr_retry == 4 && attr.retry_cnt == 6,
	   "retries as often as the reply says for RNR, else the request");
	v->query_qp(pair.passive->qp, &attr, 0, &init);
	ok(attr.max_rd_atomic == 1 && attr.max_dest_rd_atomic == 2,
	   "passive queue pair: starts 1 read, answers 2");
	ok(attr.rnr_retry == 5 && attr.retry_cnt == 6,
	   "retries as often as the request says");
	id_end(pair.active);
	pair.active = resolved(pair.active_channel, pair.listener);
	request.responder_resources = 250;
	ok(pair.active && !qp_new(pair.active) &&
		   v->cm_connect(pair.active, &request) && errno == EINVAL,
	   "more reads than the device has are refused");
	pair_close(&pair);
}

static void an_id_without_a_queue_pair(void)
{
	struct pair pair;
	struct seen seen;
	struct rdma_conn_param param = { .retry_count = 7, .qp_num = 77 };

	ok_or_die(pair_open(&pair), "a listener");
	pair.active = resolved(pair.active_channel, pair.listener);
	ok_or_die(pair.active, "resolved");
	ok(v->cm_connect(pair.active, NULL) && errno == EINVAL,
	   "needs parameters");
	ok_or_die(!v->cm_connect(pair.active, &param) &&
			  got(pair.passive_channel,
			      RDMA_CM_EVENT_CONNECT_REQUEST, &seen),
		  "a request");
	pair.passive = seen.id;
	ok(seen.conn.qp_num == 77, "names the program's own queue pair");
	ok(!v->cm_accept(pair.passive, &param) &&
		   got(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE,
		       &seen) &&
		   seen.conn.private_data_len == 196 && seen.conn.qp_num == 77,
	   "the active side gets the response");
	id_end(pair.active);
	pair.active = NULL;
	ok(got(pair.passive_channel, RDMA_CM_EVENT_REJECTED, &seen) &&
		   seen.status == 28,
	   "and its end is a rejection");
	pair_close(&pair);
}

static void memory_of_a_connection(void)
{
	struct pair pair;
	struct rdma_conn_param param = { .retry_count = 7 };
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	uint8_t *shared, *private_bytes;

	ok_or_die(pair_open(&pair) && pair_connect(&pair, &param),
		  "connected");
	shared = v->mem_alloc(pair.passive, 10000, access);
	private_bytes = v->mem_alloc(NULL, 10000, access);
	ok(shared && !((uintptr_t)shared & 4095) && is_fill(shared, 10000, 0),
	   "memory for the peer is page aligned and zero");
	ok(private_bytes && is_fill(private_bytes, 10000, 0),
	   "so is private memory");
	pair_close(&pair);
	memset(shared, 1, 10000);
	v->mem_free(shared, 10000);
	v->mem_free(private_bytes, 10000);
	ok(1, "memory can be freed after its id");
}

int main(void)
{
	v = softverbs_table();
	events_come_in_order();
	both_sides_are_disconnected_once();
	destroying_one_end_disconnects_the_other();
	private_data_is_padded_to_full_size();
	rejection_carries_reason_and_data();
	destroying_the_child_rejects();
	nobody_listens();
	parameters_swap_meaning();
	an_id_without_a_queue_pair();
	memory_of_a_connection();
	return ok_done();
}
