/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which device a context gets, and the words that say why.
 *
 * The devices are those that the connection manager has open: a queue pair of
 * its ids can use nothing else.  They stay open as long as the process.
 *
 * Any thread.
 */
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "fabric/verbs/internal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct devices {
	const struct rk_verbs_table *table;
	struct ibv_context **list; /* kept: the contexts are in use */
	int count;
};

static struct devices devices_of_system, devices_of_soft;

/* An empty list is looked for again: a driver may be loaded meanwhile. */
static int find_devices(struct devices *devices,
			const struct rk_verbs_table *table)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (!devices->count) {
		if (devices->list)
			devices->table->cm_free_devices(devices->list);
		devices->table = table;
		devices->list = table->cm_get_devices(&devices->count);
		if (!devices->list) {
			ret = errno ? -errno : -ENODEV;
			devices->count = 0;
		} else if (!devices->count) {
			ret = -ENODEV;
		}
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

static const char *name_of(const struct devices *devices, int i)
{
	return devices->table->get_device_name(devices->list[i]->device);
}

/* NULL: it can carry what we do; else what is wrong with it. */
static const char *what_is_wrong(const struct rk_verbs_table *table,
				 struct ibv_context *verbs)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;

	if (verbs->device->transport_type == IBV_TRANSPORT_IWARP)
		return "is iWARP, which has no immediate data";
	if (verbs->device->transport_type != IBV_TRANSPORT_IB)
		return "has no reliable connections";
	if (table->query_device(verbs, &attr))
		return "cannot be queried";
	for (unsigned n = 1; n <= attr.phys_port_cnt; n++) {
		if (!table->query_port(verbs, (uint8_t)n, &port) &&
		    port.state == IBV_PORT_ACTIVE)
			return NULL;
	}
	return "has no active port";
}

static void take(struct fabric_choice *out, const struct rk_verbs_table *table,
		 struct ibv_context *verbs, const char *name)
{
	out->table = table;
	out->verbs = verbs;
	out->software = false;
	snprintf(out->name, sizeof(out->name), "%s", name);
}

static int choose_soft(struct fabric_choice *out)
{
	int ret = find_devices(&devices_of_soft, softverbs_table());

	if (ret) {
		rk_log(RK_LOG_ERROR, "the software device does not start: %s",
		       strerror(-ret));
		return ret;
	}
	take(out, devices_of_soft.table, devices_of_soft.list[0], "soft");
	out->software = true;
	return 0;
}

static bool choose_first(const struct rk_verbs_table *table,
			 struct fabric_choice *out)
{
	for (int i = 0; i < devices_of_system.count; i++) {
		struct ibv_context *verbs = devices_of_system.list[i];
		const char *name = name_of(&devices_of_system, i);
		const char *problem = what_is_wrong(table, verbs);

		if (problem) {
			snprintf(out->reason, sizeof(out->reason),
				 "device %s %s", name, problem);
			continue;
		}
		take(out, table, verbs, name);
		snprintf(out->reason, sizeof(out->reason),
			 "the first usable RDMA device of this host");
		return true;
	}
	return false;
}

static socklen_t address_bytes(const struct sockaddr *addr)
{
	return addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
					  : sizeof(struct sockaddr_in6);
}

static bool choose_owner(const struct rk_verbs_table *table,
			 const struct sockaddr *addr, bool remote,
			 struct fabric_choice *out)
{
	const char *does = remote ? "reaches" : "owns";
	char host[INET6_ADDRSTRLEN + 20] = "?"; /* and a scope */
	struct ibv_context *verbs;
	const char *name, *problem;
	int ret;

	getnameinfo(addr, address_bytes(addr), host, sizeof(host), NULL, 0,
		    NI_NUMERICHOST);
	ret = fabric_owner_find(table, addr, remote, &verbs);
	if (ret) {
		bool known = ret == -ENODEV || ret == -EADDRNOTAVAIL;

		snprintf(out->reason, sizeof(out->reason),
			 "no RDMA device of this host %s %s%s%s", does, host,
			 known ? "" : ": ", known ? "" : strerror(-ret));
		return false;
	}
	name = table->get_device_name(verbs->device);
	problem = what_is_wrong(table, verbs);
	if (problem) {
		snprintf(out->reason, sizeof(out->reason),
			 "device %s, which %s %s, %s", name, does, host,
			 problem);
		return false;
	}
	take(out, table, verbs, name);
	snprintf(out->reason, sizeof(out->reason), "it %s %s", does, host);
	return true;
}

/* The connection manager takes this host's own loopback address for that of
 * any device when it connects, for that of none when it listens: both ends
 * have to ask the same. */
static bool choose_system(const struct sockaddr *addr, bool remote,
			  struct fabric_choice *out)
{
	const char *problem;
	const struct rk_verbs_table *table = fabric_system_table(&problem);
	int ret;

	if (!table) {
		snprintf(out->reason, sizeof(out->reason), "%s", problem);
		return false;
	}
	ret = find_devices(&devices_of_system, table);
	if (ret) {
		snprintf(out->reason, sizeof(out->reason),
			 "this host has no RDMA device");
		return false;
	}
	if (!addr || fabric_address_is_wildcard(addr))
		return choose_first(table, out);
	return choose_owner(table, addr,
			    remote && !fabric_address_is_loopback(addr), out);
}

static int choose_named(const char *wanted, struct fabric_choice *out)
{
	const char *problem;
	const struct rk_verbs_table *table = fabric_system_table(&problem);
	char names[300] = "soft";
	size_t used = strlen(names);

	if (table && !find_devices(&devices_of_system, table)) {
		for (int i = 0; i < devices_of_system.count; i++) {
			const char *name = name_of(&devices_of_system, i);

			if (!strcmp(name, wanted)) {
				take(out, table, devices_of_system.list[i],
				     name);
				snprintf(out->reason, sizeof(out->reason),
					 "asked for");
				return 0;
			}
			if (used < sizeof(names))
				used += (size_t)snprintf(names + used,
							 sizeof(names) - used,
							 ", %s", name);
		}
	}
	rk_log(RK_LOG_ERROR, "no RDMA device \"%s\"; this host has: %s", wanted,
	       names);
	return -ENODEV;
}

static int choose_auto(const struct sockaddr *addr, bool remote,
		       struct fabric_choice *out)
{
	int ret;

	if (addr && !fabric_address_is_ip(addr)) {
		rk_log(RK_LOG_ERROR, "no device: the address is of family %d, "
				     "which is not IP",
		       addr->sa_family);
		return -EINVAL;
	}
	if (choose_system(addr, remote, out))
		return 0;
	ret = choose_soft(out);
	if (!ret)
		rk_log(RK_LOG_INFO, "using the software device: %s",
		       out->reason);
	return ret;
}

int fabric_choose(const struct rk_context_params *params,
		  struct fabric_choice *out)
{
	const char *wanted = params ? params->device : NULL;

	memset(out, 0, sizeof(*out));
	if (!wanted || !strcmp(wanted, "auto"))
		return choose_auto(params ? params->address : NULL,
				   params && params->address_is_remote, out);
	if (strcmp(wanted, "soft"))
		return choose_named(wanted, out);
	snprintf(out->reason, sizeof(out->reason), "asked for");
	return choose_soft(out);
}

int fabric_choose_from(const struct rk_verbs_table *table,
		       struct fabric_choice *out)
{
	struct devices devices = { .table = table };

	memset(out, 0, sizeof(*out));
	devices.list = table->cm_get_devices(&devices.count);
	if (!devices.list)
		return errno ? -errno : -ENODEV;
	if (!devices.count) {
		table->cm_free_devices(devices.list);
		return -ENODEV;
	}
	take(out, table, devices.list[0], name_of(&devices, 0));
	snprintf(out->reason, sizeof(out->reason), "given");
	table->cm_free_devices(devices.list);
	return 0;
}
