/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports: what is reserved, what conflicts, who is found by connecting. */
#include <sys/un.h>
#include <unistd.h>

#include "wire_ends.h"

static int bind_close(struct ends *ends, const char *text, uint16_t port,
		      bool v6_only)
{
	struct wire_listener *listener;
	int ret = ends_bind(ends, text, port, v6_only, &listener);

	wire_unbind(listener);
	return ret;
}

static void bare_open(struct ends *ends)
{
	memset(ends, 0, sizeof(*ends));
	if (wire_open(&ends->wire, &ends_handler, ends))
		ok_or_die(false, "a wire");
}

static void port_zero_gives_distinct_ports(void)
{
	struct wire_listener *a = NULL, *b = NULL;
	struct ends ends;

	bare_open(&ends);
	ok(!ends_bind(&ends, "127.0.0.1", 0, false, &a) &&
		   !ends_bind(&ends, "127.0.0.1", 0, false, &b),
	   "port 0 is bound twice");
	ok(wire_listener_port(a) >= 49152 && wire_listener_port(b) >= 49152,
	   "both ports are of the dynamic range");
	ok(wire_listener_port(a) != wire_listener_port(b),
	   "and differ");
	wire_unbind(a);
	wire_unbind(b);
	wire_unbind(NULL);
	ends_close(&ends);
}

/* The wildcard and the specific: who excludes whom. */
static void conflicts_are_those_of_tcp(void)
{
	static const struct {
		const char *first;
		bool first_only;
		const char *second;
		bool second_only;
		bool conflict;
	} table[] = {
		{ "127.0.0.1", 0, "127.0.0.1", 0, true },
		{ "127.0.0.1", 0, "127.0.0.2", 0, false },
		{ "127.0.0.1", 0, "0.0.0.0", 0, true },
		{ "0.0.0.0", 0, "127.0.0.1", 0, true },
		{ "0.0.0.0", 0, "127.0.0.2", 0, true },
		{ "0.0.0.0", 0, "0.0.0.0", 0, true },
		{ "::", 0, "0.0.0.0", 0, true },
		{ "0.0.0.0", 0, "::", 0, true },
		{ "::", 0, "127.0.0.1", 0, true },
		{ "127.0.0.1", 0, "::", 0, true },
		{ "::", 1, "0.0.0.0", 0, false },
		{ "0.0.0.0", 0, "::", 1, false },
		{ "::", 1, "127.0.0.1", 0, false },
		{ "::", 1, "::", 0, true },
		{ "::", 0, "::", 1, true },
		{ "::", 1, "::1", 0, true },
		{ "::1", 0, "::", 1, true },
		{ "::1", 0, "::", 0, true },
		{ "::1", 0, "::1", 0, true },
		{ "::1", 0, "127.0.0.1", 0, false },
		{ "::ffff:127.0.0.1", 0, "127.0.0.1", 0, true },
	};
	struct wire_listener *holder;
	struct ends ends;

	bare_open(&ends);
	for (unsigned i = 0; i < RK_ARRAY_SIZE(table); i++) {
		uint16_t port;
		int ret;

		if (ends_bind(&ends, table[i].first, 0, table[i].first_only,
			      &holder))
			ok_or_die(false, "%s can be bound", table[i].first);
		port = wire_listener_port(holder);
		ret = bind_close(&ends, table[i].second, port,
				 table[i].second_only);
		ok(ret == (table[i].conflict ? -EADDRINUSE : 0),
		   "%s%s, then %s%s: %s", table[i].first,
		   table[i].first_only ? " (v6 only)" : "", table[i].second,
		   table[i].second_only ? " (v6 only)" : "",
		   table[i].conflict ? "in use" : "both");
		wire_unbind(holder);
		ok(bind_close(&ends, table[i].second, port,
			      table[i].second_only) == 0,
		   "free after the first is gone");
	}
	ends_close(&ends);
}

static void foreign_addresses_are_refused(void)
{
	struct sockaddr_un odd = { .sun_family = AF_UNIX };
	struct wire_listener *listener;
	struct wire_link *link;
	struct ends ends;

	bare_open(&ends);
	ok(bind_close(&ends, "192.0.2.77", 0, false) == -EADDRNOTAVAIL,
	   "an address of another host cannot be bound");
	ok(bind_close(&ends, "224.0.0.1", 0, false) == -EADDRNOTAVAIL,
	   "nor a multicast address");
	ok(wire_bind(ends.wire, (struct sockaddr *)&odd, false, &listener) ==
		   -EAFNOSUPPORT,
	   "nor a unix path");
	ok(ends_connect(&ends, "192.0.2.77", 7, &link) == -EHOSTUNREACH &&
		   !link,
	   "connecting to another host is EHOSTUNREACH");
	ok(ends_connect(&ends, "2001:db8::7", 7, &link) == -EHOSTUNREACH,
	   "also with IPv6");
	ok(ends_connect(&ends, "127.0.0.1", 0, &link) == -ECONNREFUSED,
	   "port 0 cannot be connected to");
	ends_close(&ends);
}

static int reach(struct ends *ends, const char *text, uint16_t port)
{
	struct wire_link *link;
	int ret = ends_connect(ends, text, port, &link);

	if (!ret)
		wire_put(link);
	return ret;
}

static void a_wildcard_is_reached_by_every_address(void)
{
	struct wire_listener *listener;
	struct ends ends;
	uint16_t port;

	bare_open(&ends);
	if (ends_bind(&ends, "0.0.0.0", 0, false, &listener))
		ok_or_die(false, "bind");
	port = wire_listener_port(listener);
	ok(reach(&ends, "127.0.0.1", port) == -ECONNREFUSED,
	   "a port that is bound but does not listen refuses");
	ok(!wire_listen(listener, 8) && !wire_listen(listener, 16),
	   "listen, and again with another backlog");
	ok(!reach(&ends, "127.0.0.1", port), "0.0.0.0: by 127.0.0.1");
	ok(!reach(&ends, "127.3.2.1", port), "0.0.0.0: by 127.3.2.1");
	ok(!reach(&ends, "::ffff:127.0.0.1", port), "0.0.0.0: mapped");
	ok(!reach(&ends, "0.0.0.0", port), "0.0.0.0: by itself");
	ok(reach(&ends, "::1", port) == -ECONNREFUSED, "0.0.0.0: not ::1");
	wire_unbind(listener);
	ok(reach(&ends, "127.0.0.1", port) == -ECONNREFUSED,
	   "nobody is there after the unbind");

	if (ends_bind(&ends, "::", port, false, &listener) ||
	    wire_listen(listener, 8))
		ok_or_die(false, "bind");
	ok(!reach(&ends, "::1", port), ":: by ::1");
	ok(!reach(&ends, "127.0.0.1", port), ":: by 127.0.0.1");
	wire_unbind(listener);

	if (ends_bind(&ends, "::", port, true, &listener) ||
	    wire_listen(listener, 8))
		ok_or_die(false, "bind");
	ok(!reach(&ends, "::1", port), ":: v6 only, by ::1");
	ok(reach(&ends, "127.0.0.1", port) == -ECONNREFUSED,
	   ":: v6 only, not by 127.0.0.1");
	wire_unbind(listener);
	ends_close(&ends);
}

static void a_full_backlog_is_said(void)
{
	struct wire_listener *listener;
	struct sockaddr_un name;
	struct port_address address;
	struct sockaddr_storage addr;
	struct ends ends;
	socklen_t bytes;
	int fds[8], tries, ret = 0;
	struct wire_link *link;

	bare_open(&ends);
	if (ends_bind(&ends, "127.0.0.1", 0, false, &listener) ||
	    wire_listen(listener, 1))
		ok_or_die(false, "bind");
	addr = ends_addr("127.0.0.1", wire_listener_port(listener));
	if (port_parse((struct sockaddr *)&addr, &address))
		ok_or_die(false, "parse");
	bytes = port_name(&address, false, &name);
	for (tries = 0; tries < 8; tries++) {
		fds[tries] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
		if (connect(fds[tries], (struct sockaddr *)&name, bytes))
			break;
	}
	ok(ends_connect(&ends, "127.0.0.1", wire_listener_port(listener),
			&link) == -EAGAIN,
	   "a full backlog is EAGAIN");
	for (int i = 0; i <= tries && i < 8; i++)
		close(fds[i]);
	ends_settle(&ends);
	ret = reach(&ends, "127.0.0.1", wire_listener_port(listener));
	ok(ret == 0, "those that hung up leave room, without a word");
	ok(ends.gone == 0 && ends.messages == 0, "and nobody hears of them");
	wire_unbind(listener);
	ends_close(&ends);
}

int main(void)
{
	port_zero_gives_distinct_ports();
	conflicts_are_those_of_tcp();
	foreign_addresses_are_refused();
	a_wildcard_is_reached_by_every_address();
	a_full_backlog_is_said();
	ok(rk_alloc_live() == 0, "nothing is left allocated");
	return ok_done();
}
