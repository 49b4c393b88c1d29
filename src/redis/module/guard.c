/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layers of the guard, cheapest first: who the server says it is, which
 * functions it exports, the pattern of its own connection types, and last the
 * probe (probe.c).  Until the probe no code of the server is run.  What it
 * cannot see is changed behaviour behind an unchanged layout: that is why the
 * list of versions is closed.  Main thread, once.
 */
#include "guard.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"

struct rk_server rk_server;

/* The first bytes of the build ids that the tests ran with. */
static const char *const tested_builds[] = {
	"a50d6825", /* Debian 12, redis 7.0.15 */
	"1c8ca332", /* Debian 13, redis 8.0.2 */
	"b91e4bc8", /* Debian experimental, redis 8.6.3 */
	"3ac31ccc", /* Debian 12 backports, valkey 8.0.1 */
	"717de1c7", /* Debian 13, valkey 8.1.1 */
	"10abf518", /* Debian unstable, valkey 9.1.2 */
};

#define REFUSE(result, ...)                                               \
	(snprintf((result)->why, sizeof((result)->why), __VA_ARGS__),     \
	 -ENOTSUP)

void rk_server_type_build(void *type[RK_SLOTS_MAX],
			  const struct rk_methods *methods)
{
	const struct rk_layout *layout = rk_server.layout;
	unsigned slot;

	memset(type, 0, sizeof(*type) * RK_SLOTS_MAX);
	for (slot = 0; slot < layout->order_count; slot++)
		type[slot] = methods->of[layout->order[slot]];
}

void rk_conn_init(void *conn, void **type, void *loop)
{
	*(void ***)conn = type;
	*rk_conn_fd(conn) = -1;
	if (rk_server.at.iovcnt >= 0)
		*rk_conn_iovcnt(conn) = 1024; /* IOV_MAX; 0 would stall */
	if (rk_server.at.loop >= 0)
		*rk_conn_loop(conn) = loop;
}

/* ---------------------------------------------------------- 1. who it is */

static int check_who(struct rk_server_context *ctx,
		     struct rk_guard_result *result)
{
	struct rk_server_info *info;
	const char *name, *text;
	int major = 0, minor = 0, patch = 0, parts = 0;
	bool valkey;

	info = rk_api.info_get(ctx, "server");
	name = rk_api.info_text(info, "server_name");
	valkey = name && !strcmp(name, "valkey");
	text = rk_api.info_text(info,
				valkey ? "valkey_version" : "redis_version");
	if (text)
		parts = sscanf(text, "%d.%d.%d", &major, &minor, &patch);
	rk_api.info_free(ctx, info);

	if (parts < 2)
		return REFUSE(result, "the server does not say its version "
				      "in INFO server");
	snprintf(result->version, sizeof(result->version), "%s %d.%d.%d",
		 valkey ? "valkey" : "redis", major, minor, patch);
	rk_server.layout = rk_layout_find(valkey, major, minor);
	if (!rk_server.layout)
		return REFUSE(result,
			      "this server is %s; known are %s",
			      result->version, rk_layout_versions());
	rk_server.at = *rk_server.layout->at;
	return 0;
}

/* ------------------------------------------------------------ 2. symbols */

static void *find(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

static int check_symbols(struct rk_guard_result *result)
{
	const bool is_7_0 = rk_server.layout->is_redis_7_0;
	const struct {
		const char *name;
		void *out;
		bool needed;
	} wanted[] = {
		{ "aeCreateFileEvent", &rk_server.loop_add, true },
		{ "aeDeleteFileEvent", &rk_server.loop_remove, true },
		{ "createSocketAcceptHandler", &rk_server.watch, true },
		{ "createClient", &rk_server.client_create, true },
		{ "freeClient", &rk_server.client_free, true },
		{ "clientAcceptHandler", &rk_server.client_accepted, true },
		{ "readQueryFromClient", &rk_server.client_read, true },
		{ "writeToClient", &rk_server.client_write, true },
		{ "ProcessingEventsWhileBlocked", &rk_server.blocked_loop,
		  false },
		{ "acceptCommonHandler", &rk_server.accept_common, !is_7_0 },
		{ "connectionTypeTcp", &rk_server.type_tcp, !is_7_0 },
		{ "connectionTypeTls", &rk_server.type_tls, false },
		{ "connCreateAcceptedSocket", &rk_server.create_accepted,
		  is_7_0 },
		{ "CT_Socket", &rk_server.type_tcp_symbol, is_7_0 },
	};
	size_t i;

	for (i = 0; i < RK_ARRAY_SIZE(wanted); i++) {
		void *address = find(wanted[i].name);

		if (!address && wanted[i].needed)
			return REFUSE(result,
				      "%s should export %s, and does not: "
				      "was it linked without -rdynamic?",
				      result->version, wanted[i].name);
		memcpy(wanted[i].out, &address, sizeof(address));
	}
	if (is_7_0 && find("connTypeRegister"))
		return REFUSE(result,
			      "%s exports connTypeRegister, which 7.0 does "
			      "not have: it is not what it says",
			      result->version);
	return 0;
}

/* -------------------------------------------------------- 3. fingerprint */

static bool in_program(void *address)
{
	Dl_info here, program;

	return address && dladdr(address, &here) &&
	       dladdr((void *)rk_server.client_create, &program) &&
	       here.dli_fbase == program.dli_fbase;
}

static int check_table_bytes(struct rk_guard_result *result)
{
	unsigned expected = rk_server.layout->slots * sizeof(void *);
	ElfW(Sym) *symbol = NULL;
	Dl_info info;

	if (!expected)
		return 0;
	if (!dladdr1(rk_server.type_tcp_symbol, &info, (void **)&symbol,
		     RTLD_DL_SYMENT) ||
	    !symbol)
		return REFUSE(result, "the size of CT_Socket cannot be read; "
				      "%u bytes were expected",
			      expected);
	if (symbol->st_size != expected)
		return REFUSE(result,
			      "CT_Socket has %lu bytes, %u were expected",
			      (unsigned long)symbol->st_size, expected);
	return 0;
}

/* What the server's own types have in a slot. */
enum content { EMPTY, FILLED, ANYTHING };

static enum content tcp_content(enum rk_method method)
{
	switch (method) {
	case RK_METHOD_INIT:
	case RK_METHOD_CLEANUP:
	case RK_METHOD_CONFIGURE:
	case RK_METHOD_UNBIND_LOOP:
	case RK_METHOD_HAS_PENDING:
	case RK_METHOD_PROCESS_PENDING:
		return EMPTY;
	case RK_METHOD_GET_TYPE:
	case RK_METHOD_EVENT_HANDLER:
	case RK_METHOD_ACCEPT_HANDLER:
	case RK_METHOD_ADDRESS:
	case RK_METHOD_IS_LOCAL:
	case RK_METHOD_LISTEN:
	case RK_METHOD_CLOSE_LISTENER:
	case RK_METHOD_CREATE:
	case RK_METHOD_CREATE_ACCEPTED:
	case RK_METHOD_SHUTDOWN:
	case RK_METHOD_CLOSE:
	case RK_METHOD_CONNECT:
	case RK_METHOD_BLOCKING_CONNECT:
	case RK_METHOD_ACCEPT:
	case RK_METHOD_WRITE:
	case RK_METHOD_WRITEV:
	case RK_METHOD_READ:
	case RK_METHOD_SET_WRITE_HANDLER:
	case RK_METHOD_SET_READ_HANDLER:
	case RK_METHOD_LAST_ERROR:
	case RK_METHOD_SYNC_WRITE:
	case RK_METHOD_SYNC_READ:
	case RK_METHOD_SYNC_READLINE:
	case RK_METHOD_REBIND_LOOP:
		return FILLED;
	case RK_METHOD_COUNT:
		break;
	}
	return ANYTHING;
}

static enum content tls_content(enum rk_method method)
{
	enum content content = tcp_content(method);

	/* What TCP leaves empty is there for TLS. */
	return content == EMPTY ? FILLED : ANYTHING;
}

static int check_table(struct rk_guard_result *result, const char *name,
		       void **type, enum content (*expect)(enum rk_method))
{
	const struct rk_layout *layout = rk_server.layout;
	unsigned slot;

	for (slot = 0; slot < layout->order_count; slot++) {
		enum content content = expect(layout->order[slot]);

		if (content == FILLED && !in_program(type[slot]))
			return REFUSE(result,
				      "slot %u of the server's %s type "
				      "should hold a function of the server, "
				      "and holds %p",
				      slot, name, type[slot]);
		if (content == EMPTY && type[slot])
			return REFUSE(result,
				      "slot %u of the server's %s type "
				      "should be empty, and holds %p",
				      slot, name, type[slot]);
	}
	return 0;
}

static int check_fingerprint(struct rk_guard_result *result)
{
	void **tcp, **tls;
	int ret;

	ret = check_table_bytes(result);
	if (ret)
		return ret;
	tcp = rk_server.type_tcp ? rk_server.type_tcp() :
				   rk_server.type_tcp_symbol;
	if (!tcp)
		return REFUSE(result, "the server has no tcp type");
	ret = check_table(result, "tcp", tcp, tcp_content);
	if (ret)
		return ret;
	tls = rk_server.type_tls ? rk_server.type_tls() : NULL;
	return tls ? check_table(result, "tls", tls, tls_content) : 0;
}

/* --------------------------------------------------------------- build id */

/* The build id note of the main program, which comes first. */
static int read_build_id(struct dl_phdr_info *info, size_t size, void *data)
{
	struct rk_guard_result *result = data;
	int i;

	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		const char *at = (char *)(info->dlpi_addr + ph->p_vaddr);
		const char *end = at + ph->p_memsz;

		while (ph->p_type == PT_NOTE &&
		       (size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
			const ElfW(Nhdr) *note = (const void *)at;
			const unsigned char *id;
			unsigned j;

			id = (const void *)(at + sizeof(*note) +
					    rk_round_up(note->n_namesz, 4));
			at = (const char *)id + rk_round_up(note->n_descsz, 4);
			if (note->n_type != NT_GNU_BUILD_ID || at > end)
				continue;
			for (j = 0; j < note->n_descsz &&
				    2 * j + 2 < sizeof(result->build);
			     j++)
				snprintf(result->build + 2 * j, 3, "%02x",
					 id[j]);
			return 1;
		}
	}
	return 1; /* only the first object */
}

static void check_build(struct rk_guard_result *result)
{
	size_t i;

	dl_iterate_phdr(read_build_id, result);
	for (i = 0; i < RK_ARRAY_SIZE(tested_builds); i++) {
		if (!strncmp(result->build, tested_builds[i],
			     strlen(tested_builds[i])))
			result->tested = true;
	}
}

int rk_guard_check(struct rk_server_context *ctx,
		   struct rk_guard_result *result)
{
	int ret;

	memset(result, 0, sizeof(*result));
	memset(&rk_server, 0, sizeof(rk_server));
	ret = check_who(ctx, result);
	if (ret)
		return ret;
	ret = check_symbols(result);
	if (ret)
		return ret;
	ret = check_fingerprint(result);
	if (ret)
		return ret;
	check_build(result);
	return rk_guard_probe(result->why);
}
