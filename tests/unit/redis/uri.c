/* SPDX-License-Identifier: BSD-3-Clause */
/* URIs: what they mean, what is refused, and there and back. */
#include "redis/client/uri.h"

#include <errno.h>
#include <string.h>

#include "redis/client/transport.h"

#include "ok.h"

static char error[256];

static void good(const char *text, const struct rk_uri *expected)
{
	struct rk_uri uri, again;
	char full[RK_URI_FULL_MAX];
	int ret = rk_uri_parse(&uri, text, error, sizeof(error));

	if (!ok(!ret, "%s is a URI", text)) {
		printf("# %s\n", error);
		return;
	}
	ok(!strcmp(uri.scheme, expected->scheme) &&
		   !strcmp(uri.host, expected->host) &&
		   !strcmp(uri.path, expected->path) &&
		   !strcmp(uri.user, expected->user) &&
		   !strcmp(uri.password, expected->password) &&
		   !strcmp(uri.device, expected->device) &&
		   uri.db == expected->db &&
		   uri.port == (expected->port ? expected->port : 6379),
	   "and says what was meant");
	rk_uri_compose(&uri, full, sizeof(full));
	ok(!rk_uri_parse(&again, full, error, sizeof(error)) &&
		   !memcmp(&uri, &again, sizeof(uri)),
	   "and survives being written and read");
}

#define URI(...) &(struct rk_uri){ __VA_ARGS__ }

static void forms(void)
{
	good("rdma://h", URI(.scheme = "rdma", .host = "h"));
	good("tcp://10.0.0.1:7000/3",
	     URI(.scheme = "tcp", .host = "10.0.0.1", .port = 7000, .db = 3));
	good("redis://h/", URI(.scheme = "tcp", .host = "h"));
	good("valkey://h", URI(.scheme = "tcp", .host = "h"));
	good("RDMA://h", URI(.scheme = "rdma", .host = "h"));
	good("tcp://[::1]:7000",
	     URI(.scheme = "tcp", .host = "::1", .port = 7000));
	good("tcp://[fe80::1%25eth0]",
	     URI(.scheme = "tcp", .host = "fe80::1%eth0"));
	good("unix:///run/r.sock", URI(.scheme = "unix", .path = "/run/r.sock"));
	good("unix:///a%20b?db=2",
	     URI(.scheme = "unix", .path = "/a b", .db = 2));
	good("unix://:pw@/r", URI(.scheme = "unix", .path = "/r",
				  .password = "pw"));
	good("rdma://u:p%40%2F%3a@h:1/2?device=mlx5_0",
	     URI(.scheme = "rdma", .host = "h", .port = 1, .db = 2,
		 .user = "u", .password = "p@/:", .device = "mlx5_0"));
	good("tcp://:a:b@h",
	     URI(.scheme = "tcp", .host = "h", .password = "a:b"));
	good("tcp://h?db=4", URI(.scheme = "tcp", .host = "h", .db = 4));
}

static void refused(void)
{
	static const char *const bad[] = {
		"",		 "host",	   "tcp:/h",
		"://h",		 "tcp://",	   "tcp://:6379",
		"tcp://h:0",	 "tcp://h:65536",  "tcp://h:x",
		"tcp://h:",	 "tcp://h:1x",	   "tcp://[::1",
		"tcp://[::1]x",	 "tcp://user@h",   "tcp://h/x",
		"tcp://h/-1",	 "tcp://h?x=1",	   "tcp://h?db",
		"tcp://h?db=1x", "unix://",	   "unix:///",
		"unix://h/p",	 "tcp://:%zz@h",   "tcp://:%0@h",
		"tcp://:%00@h",	 "tcp://:a%4@h",   "averyveryverylongname://h",
	};
	struct rk_uri uri;
	char path[300] = "unix:///";

	for (size_t i = 0; i < RK_ARRAY_SIZE(bad); i++) {
		error[0] = '\0';
		ok(rk_uri_parse(&uri, bad[i], error, sizeof(error)) ==
				   -EINVAL && error[0],
		   "'%s': %s", bad[i], error);
	}
	memset(path + 8, 'p', 200);
	ok(rk_uri_parse(&uri, path, error, sizeof(error)) == -EINVAL,
	   "a path longer than the system takes: %s", error);
}

static void secrets_stay_secret(void)
{
	struct rk_uri uri;
	char text[RK_URI_TEXT_MAX];

	ok_or_die(!rk_uri_parse(&uri, "rdma://joe:geheim@h/5", error,
				sizeof(error)),
		  "a URI with a password");
	rk_uri_text(&uri, text, sizeof(text));
	ok(!strcmp(text, "rdma://h:6379"), "is shown as %s", text);
	ok(rk_uri_parse(&uri, "tcp://joe:geheim@h:x", error, sizeof(error)) &&
		   !strstr(error, "geheim"),
	   "an error does not show it: %s", error);
}

static void transports_have_names(void)
{
	ok(rk_transport_find("tcp", error, sizeof(error)) == &rk_transport_tcp,
	   "tcp is known");
	ok(!rk_transport_find("tls", error, sizeof(error)) &&
		   strstr(error, "unix"),
	   "what is not known is answered with what is: %s", error);
	ok(rk_transport_register(&rk_transport_unix) == -EEXIST,
	   "a name is taken once");
}

int main(void)
{
	forms();
	refused();
	secrets_stay_secret();
	transports_have_names();
	return ok_done();
}
