/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs table of the system's rdma-core, from its libraries by their names
 * at run time: a program that links this starts on a host without them.  When
 * the libraries found are the drop-in software device, they are used as such.
 *
 * Any thread; loaded once, never unloaded.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "fabric/verbs/internal.h"

static struct rk_verbs_table table = { .name = "system" };
static bool loaded;
static char problem[160];
static int (*query_port)(struct ibv_context *context, uint8_t port,
			 struct ibv_port_attr *attr);

enum library { VERBS, CM };

#define SYMBOL(library, prefix, member, name)                                  \
	{                                                                      \
		library, offsetof(struct rk_verbs_table, member), prefix #name \
	}
#define IBV(member) SYMBOL(VERBS, "ibv_", member, member)
#define RDMA(member) SYMBOL(CM, "rdma_", cm_##member, member)

static const struct {
	enum library library;
	size_t offset;
	const char *name;
} symbols[] = {
	IBV(get_device_list),
	IBV(free_device_list),
	IBV(get_device_name),
	IBV(open_device),
	IBV(close_device),
	IBV(query_device),
	IBV(alloc_pd),
	IBV(dealloc_pd),
	IBV(reg_mr),
	IBV(dereg_mr),
	IBV(create_comp_channel),
	IBV(destroy_comp_channel),
	IBV(create_cq),
	IBV(destroy_cq),
	IBV(get_cq_event),
	IBV(ack_cq_events),
	IBV(create_qp),
	IBV(modify_qp),
	IBV(query_qp),
	IBV(destroy_qp),
	IBV(get_async_event),
	IBV(ack_async_event),
	RDMA(get_devices),
	RDMA(free_devices),
	RDMA(create_event_channel),
	RDMA(destroy_event_channel),
	RDMA(create_id),
	RDMA(destroy_id),
	RDMA(bind_addr),
	RDMA(resolve_addr),
	RDMA(resolve_route),
	RDMA(create_qp),
	RDMA(destroy_qp),
	RDMA(connect),
	RDMA(listen),
	RDMA(accept),
	RDMA(reject),
	RDMA(disconnect),
	{ CM, offsetof(struct rk_verbs_table, cm_get_event),
	  "rdma_get_cm_event" },
	{ CM, offsetof(struct rk_verbs_table, cm_ack_event),
	  "rdma_ack_cm_event" },
	RDMA(event_str),
	RDMA(set_option),
	RDMA(get_src_port),
	RDMA(get_dst_port),
};

/* The library fills in only what was there before the port grew. */
static int system_query_port(struct ibv_context *context, uint8_t port,
			     struct ibv_port_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	return query_port(context, port, attr);
}

static void *system_mem_alloc(struct rdma_cm_id *id, size_t bytes, int access)
{
	void *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return addr == MAP_FAILED ? NULL : addr;
}

static void system_mem_free(void *addr, size_t bytes)
{
	munmap(addr, bytes);
}

static void *find(void *library, const char *name)
{
	void *symbol = dlsym(library, name);

	if (!symbol && !problem[0])
		snprintf(problem, sizeof(problem),
			 "this host's rdma-core lacks %s", name);
	return symbol;
}

static void load(void)
{
	void *libraries[] = {
		[VERBS] = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL),
		[CM] = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL),
	};
	int (*fork_init)(void);
	void *symbol;

	if (!libraries[VERBS] || !libraries[CM]) {
		snprintf(problem, sizeof(problem),
			 "this host has no %s (package %s)",
			 libraries[VERBS] ? "librdmacm.so.1"
					  : "libibverbs.so.1",
			 libraries[VERBS] ? "librdmacm1" : "libibverbs1");
		return;
	}
	for (size_t i = 0; i < RK_ARRAY_SIZE(symbols); i++) {
		symbol = find(libraries[symbols[i].library], symbols[i].name);
		memcpy((char *)&table + symbols[i].offset, &symbol,
		       sizeof(symbol));
	}
	symbol = find(libraries[VERBS], "ibv_query_port");
	memcpy(&query_port, &symbol, sizeof(symbol));
	table.query_port = system_query_port;
	table.mem_alloc = system_mem_alloc;
	table.mem_free = system_mem_free;
	if (problem[0])
		return;
	/* before the first registration: a server may fork to save */
	symbol = dlsym(libraries[VERBS], "ibv_fork_init");
	memcpy(&fork_init, &symbol, sizeof(symbol));
	if (fork_init && fork_init())
		rk_log(RK_LOG_DEBUG, "ibv_fork_init: not possible here");
	loaded = true;
}

const struct rk_verbs_table *fabric_system_table(const char **why_not)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	*why_not = problem;
	return loaded ? &table : NULL;
}
