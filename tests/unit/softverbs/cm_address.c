/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses, ports, options and what of them is refused. */
#include <sys/socket.h>

#include "cm_help.h"

static struct rdma_event_channel *channel, *other;

static struct rdma_cm_id *id_new(void)
{
	struct rdma_cm_id *id;

	return v->cm_create_id(channel, &id, NULL, RDMA_PS_TCP) ? NULL : id;
}

static int bind_to(struct rdma_cm_id *id, const void *addr)
{
	return v->cm_bind_addr(id, (struct sockaddr *)(uintptr_t)addr);
}

static void set_flag(struct rdma_cm_id *id, int name, int value)
{
	ok(!v->cm_set_option(id, RDMA_OPTION_ID, name, &value, sizeof(value)),
	   "option %d is taken", name);
}

/* Connect to addr; does the listener hear of it? */
static bool is_heard(struct rdma_cm_id *listener, const void *addr)
{
	struct rdma_conn_param param = { .retry_count = 7, .qp_num = 1 };
	struct rdma_cm_id *id = resolved_to(other, addr);
	struct seen seen;
	bool heard;

	if (!id)
		return false;
	heard = !v->cm_connect(id, &param) &&
		got(channel, RDMA_CM_EVENT_CONNECT_REQUEST, &seen) &&
		seen.listen_id == listener;
	if (heard)
		v->cm_destroy_id(seen.id);
	v->cm_destroy_id(id);
	return heard;
}

static bool is_refused(const void *addr)
{
	struct rdma_conn_param param = { .retry_count = 7, .qp_num = 1 };
	struct rdma_cm_id *id = resolved_to(other, addr);
	struct seen seen;
	bool refused = id && !v->cm_connect(id, &param) &&
		       got(other, RDMA_CM_EVENT_REJECTED, &seen) &&
		       seen.status == 8;

	if (id)
		v->cm_destroy_id(id);
	return refused;
}

static void binding(void)
{
	struct sockaddr_in own = ipv4("127.0.0.1", 0);
	struct sockaddr_in all = ipv4("0.0.0.0", 0);
	struct sockaddr_in foreign = ipv4("192.0.2.77", 0);
	struct rdma_cm_id *id = id_new(), *second = id_new();
	uint16_t port;

	ok(!id->verbs && !id->pd, "a new id has no device");
	ok(!v->cm_get_src_port(id), "and no port");
	ok(!bind_to(id, &own) && id->verbs && id->pd && id->port_num == 1,
	   "bound to an address it has a device");
	port = v->cm_get_src_port(id);
	ok(ntohs(port) >= 49152 && id->route.addr.src_sin.sin_port == port,
	   "port 0 became one");
	ok(bind_to(id, &own) && errno == EINVAL, "it is bound once");
	own.sin_port = port;
	ok(bind_to(second, &own) && errno == EADDRINUSE,
	   "its port is in use");
	all.sin_port = port;
	ok(bind_to(second, &all) && errno == EADDRINUSE,
	   "for the wildcard address too");
	ok(bind_to(second, &foreign) && errno == EADDRNOTAVAIL,
	   "an address of another host is refused");
	own.sin_family = AF_UNIX;
	ok(bind_to(second, &own) && errno == EAFNOSUPPORT,
	   "and another family");
	id_end(id);
	all.sin_port = port;
	ok(!bind_to(second, &all) && v->cm_get_src_port(second) == port,
	   "a destroyed id gives its port back");
	ok(!second->verbs, "bound to every address it has no device yet");
	id_end(second);
}

static void no_tcp_port_is_taken(void)
{
	struct sockaddr_in addr = ipv4("127.0.0.1", 0);
	struct rdma_cm_id *id = listener_new(channel, 0);
	int tcp = socket(AF_INET, SOCK_STREAM, 0);

	addr.sin_port = v->cm_get_src_port(id);
	ok(!bind(tcp, (struct sockaddr *)&addr, sizeof(addr)) &&
		   !listen(tcp, 1),
	   "TCP listens on the same address and port");
	close(tcp);
	id_end(id);
}

static void listening(void)
{
	struct sockaddr_in all = ipv4("0.0.0.0", 0), to;
	struct rdma_cm_id *id = id_new();
	struct seen seen;

	ok(!bind_to(id, &all) && !v->cm_listen(id, 0), "wildcard, port 0");
	to = ipv4("127.0.0.1", v->cm_get_src_port(id));
	ok(is_heard(id, &to), "hears 127.0.0.1");
	to = ipv4("127.1.2.3", v->cm_get_src_port(id));
	ok(is_heard(id, &to), "and any loopback address");
	to = ipv4("0.0.0.0", v->cm_get_src_port(id));
	ok(is_heard(id, &to), "and the wildcard, which means this host");
	ok(v->cm_listen(id, 0) && errno == EINVAL, "listens once");
	id_end(id);

	id = listener_new(channel, 0);
	to = ipv4("127.0.0.2", v->cm_get_src_port(id));
	ok(is_refused(&to), "a specific address hears no other");
	id_end(id);

	id = id_new();
	ok(!v->cm_listen(id, 0) && v->cm_get_src_port(id),
	   "listening without bind takes a port");
	id_end(id);

	id = id_new();
	to = ipv4("192.0.2.77", htons(7471));
	ok(!v->cm_resolve_addr(id, NULL, (struct sockaddr *)&to, 100) &&
		   got(channel, RDMA_CM_EVENT_ADDR_ERROR, &seen) &&
		   seen.status == -EHOSTUNREACH,
	   "another host cannot be reached");
	to = ipv4("127.0.0.1", htons(7471));
	ok(!v->cm_resolve_addr(id, NULL, (struct sockaddr *)&to, 100) &&
		   got(channel, RDMA_CM_EVENT_ADDR_RESOLVED, &seen),
	   "after which the id may try this one");
	ok(v->cm_resolve_addr(id, NULL, (struct sockaddr *)&to, 100) &&
		   errno == EINVAL,
	   "but not twice");
	id_end(id);
}

static void ipv6_addresses(void)
{
	struct sockaddr_in6 all = ipv6("::", 0), own = ipv6("::1", 0);
	struct sockaddr_in6 mapped;
	struct sockaddr_in to;
	struct rdma_cm_id *id = id_new();
	int probe = socket(AF_INET6, SOCK_DGRAM, 0);
	int no_ipv6 = probe < 0 ||
		      bind(probe, (struct sockaddr *)&own, sizeof(own));

	if (probe >= 0)
		close(probe);
	if (no_ipv6) {
		printf("# no IPv6 here\n");
		id_end(id);
		return;
	}
	ok(!bind_to(id, &all) && !v->cm_listen(id, 0), "listens on ::");
	own.sin6_port = v->cm_get_src_port(id);
	to = ipv4("127.0.0.1", own.sin6_port);
	mapped = ipv6("::ffff:127.0.0.1", own.sin6_port);
	ok(is_heard(id, &own), "hears ::1");
	ok(is_heard(id, &to), "and IPv4");
	ok(is_heard(id, &mapped), "also when written as IPv6");
	id_end(id);

	id = id_new();
	set_flag(id, RDMA_OPTION_ID_AFONLY, 1);
	ok(!bind_to(id, &all) && !v->cm_listen(id, 0), "listens on :: alone");
	own.sin6_port = v->cm_get_src_port(id);
	to = ipv4("127.0.0.1", own.sin6_port);
	ok(is_heard(id, &own), "hears ::1");
	ok(is_refused(&to), "but not IPv4");
	struct rdma_cm_id *four = id_new();

	ok(!bind_to(four, &to) && !v->cm_listen(four, 0) &&
		   is_heard(four, &to) && is_heard(id, &own),
	   "whose port another listener may have");
	id_end(four);
	id_end(id);
}

static void source_addresses(void)
{
	struct rdma_cm_id *listener = listener_new(channel, 0), *id;
	struct sockaddr_in to = ipv4("127.0.0.1",
				     v->cm_get_src_port(listener));
	struct sockaddr_in from = ipv4("127.0.0.9", 0);
	struct rdma_conn_param param = { .retry_count = 7, .qp_num = 1 };
	struct seen seen;

	v->cm_create_id(other, &id, NULL, RDMA_PS_TCP);
	ok(!v->cm_resolve_addr(id, (struct sockaddr *)&from,
			       (struct sockaddr *)&to, 100) &&
		   got(other, RDMA_CM_EVENT_ADDR_RESOLVED, &seen) &&
		   id->route.addr.src_sin.sin_addr.s_addr ==
			   from.sin_addr.s_addr,
	   "a source address is taken");
	ok_or_die(!v->cm_resolve_route(id, 1) &&
			  got(other, RDMA_CM_EVENT_ROUTE_RESOLVED, &seen) &&
			  !v->cm_connect(id, &param) &&
			  got(channel, RDMA_CM_EVENT_CONNECT_REQUEST, &seen),
		  "connecting");
	ok(seen.id->route.addr.dst_sin.sin_addr.s_addr ==
			   from.sin_addr.s_addr &&
		   seen.id->route.addr.dst_sin.sin_port ==
			   v->cm_get_src_port(id) &&
		   seen.id->route.addr.src_sin.sin_addr.s_addr ==
			   to.sin_addr.s_addr,
	   "and is what the peer sees");
	v->cm_destroy_id(seen.id);
	v->cm_destroy_id(id);

	v->cm_create_id(other, &id, NULL, RDMA_PS_TCP);
	from = ipv4("192.0.2.77", 0);
	ok(v->cm_resolve_addr(id, (struct sockaddr *)&from,
			      (struct sockaddr *)&to, 100) &&
		   errno == EADDRNOTAVAIL,
	   "not one of another host");
	v->cm_destroy_id(id);
	id_end(listener);
}

static void options(void)
{
	struct sockaddr_in addr = ipv4("127.0.0.1", 0);
	struct rdma_cm_id *a = id_new(), *b = id_new();
	uint8_t byte = 3;
	int flag = 1;

	set_flag(a, RDMA_OPTION_ID_REUSEADDR, 1);
	set_flag(b, RDMA_OPTION_ID_REUSEADDR, 1);
	ok(!bind_to(a, &addr), "bound");
	addr.sin_port = v->cm_get_src_port(a);
	ok(!bind_to(b, &addr), "REUSEADDR: bound twice");
	ok(v->cm_listen(a, 0) && errno == EADDRINUSE,
	   "but a shared port takes no listener");
	id_end(b);
	ok(!v->cm_listen(a, 0), "alone it does");
	b = id_new();
	set_flag(b, RDMA_OPTION_ID_REUSEADDR, 1);
	ok(bind_to(b, &addr) && errno == EADDRINUSE,
	   "and shares with nobody while it listens");
	ok(v->cm_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &flag,
			    sizeof(flag)) &&
		   errno == EINVAL,
	   "REUSEADDR comes before bind");
	ok(!v->cm_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1) &&
		   !v->cm_set_option(b, RDMA_OPTION_ID,
				     RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1),
	   "TOS and ACK_TIMEOUT are taken");
	byte = 32;
	ok(v->cm_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
			    &byte, 1) &&
		   errno == EINVAL,
	   "a time-out code over 31 is not");
	ok(v->cm_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &flag, 4) &&
		   errno == EINVAL,
	   "nor a wrong length");
	ok(v->cm_set_option(b, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &byte, 1) &&
		   errno == ENOSYS &&
		   v->cm_set_option(b, RDMA_OPTION_ID, 99, &byte, 1) &&
		   errno == ENOSYS,
	   "others are not known");
	id_end(a);
	id_end(b);
}

static void refusals(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct ibv_context **devices;
	int count = 0;

	ok(v->cm_create_id(NULL, &id, NULL, RDMA_PS_TCP) &&
		   errno == EOPNOTSUPP,
	   "an id without a channel is refused");
	ok(v->cm_create_id(channel, &id, NULL, RDMA_PS_UDP) &&
		   errno == EPROTONOSUPPORT,
	   "and datagrams");
	ok(v->cm_get_event(channel, &event) && errno == EAGAIN,
	   "no event on a non-blocking channel: EAGAIN");
	id = id_new();
	ok(v->cm_resolve_route(id, 1) && errno == EINVAL &&
		   v->cm_connect(id, NULL) && errno == EINVAL &&
		   v->cm_accept(id, NULL) && errno == EINVAL &&
		   v->cm_reject(id, NULL, 0) && errno == EINVAL &&
		   v->cm_disconnect(id) && errno == EINVAL &&
		   v->cm_create_qp(id, NULL, &attr) && errno == EINVAL,
	   "a new id does nothing but bind and resolve");
	id_end(id);
	devices = v->cm_get_devices(&count);
	id = listener_new(channel, 0);
	ok(devices && count == 1 && devices[0] == id->verbs && !devices[1],
	   "the one device is the one that ids have");
	v->cm_free_devices(devices);
	id_end(id);
	ok(!strcmp(v->cm_event_str(RDMA_CM_EVENT_REJECTED),
		   "RDMA_CM_EVENT_REJECTED") &&
		   v->cm_event_str((enum rdma_cm_event_type)99),
	   "events have names");
}

int main(void)
{
	v = softverbs_table();
	channel = channel_new();
	other = channel_new();
	ok_or_die(channel && other, "channels");
	binding();
	no_tcp_port_is_taken();
	listening();
	ipv6_addresses();
	source_addresses();
	options();
	refusals();
	v->cm_destroy_event_channel(channel);
	v->cm_destroy_event_channel(other);
	return ok_done();
}
