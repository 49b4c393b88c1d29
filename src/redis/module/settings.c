/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading the arguments.  Every refusal is one sentence with the name, the
 * value and what would be right.  Main thread, once, at load.
 */
#include "settings.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "rdmakit/stream.h"

#define REFUSE(why, ...) \
	(snprintf(why, RK_SETTINGS_WHY_BYTES, __VA_ARGS__), -EINVAL)

/* A decimal number with an optional unit of bytes, up to max. */
static int parse_number(const char *text, bool units, uint64_t max,
			uint64_t *out)
{
	static const struct {
		const char *name;
		uint64_t factor;
	} known[] = {
		{ "", 1 },	      { "b", 1 },
		{ "k", 1000 },	      { "kb", 1024 },
		{ "m", 1000000 },     { "mb", 1048576 },
		{ "g", 1000000000 },  { "gb", 1073741824 },
	};
	unsigned long long number;
	char *end;
	size_t i;

	if (*text < '0' || *text > '9') /* strtoull takes signs and blanks */
		return -EINVAL;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	for (i = 0; i < (units ? RK_ARRAY_SIZE(known) : 1); i++) {
		if (strcasecmp(end, known[i].name))
			continue;
		if (number > max / known[i].factor)
			return -ERANGE;
		*out = number * known[i].factor;
		return 0;
	}
	return -EINVAL;
}

/* ------------------------------------------------------------- addresses */

static int add_address(struct rk_settings *settings, const char *text,
		       char *why)
{
	const struct addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE,
	};
	struct rk_bind *bind;
	struct addrinfo *found = NULL;
	const char *name = text;
	int error;

	if (settings->bind_count == RK_BIND_MAX)
		return REFUSE(why, "rdma-bind takes at most %d addresses",
			      RK_BIND_MAX);
	bind = &settings->bind[settings->bind_count];
	memset(bind, 0, sizeof(*bind));
	snprintf(bind->text, sizeof(bind->text), "%s", text);
	if (*name == '-') {
		bind->optional = true;
		name++;
	}
	if (!strcmp(name, "*"))
		name = "0.0.0.0";
	else if (!strcmp(name, "::*"))
		name = "::";
	error = *name ? getaddrinfo(name, NULL, &hints, &found) : EAI_NONAME;
	if (error) {
		if (bind->optional)
			return 0;
		return REFUSE(why, "rdma-bind %s is not an address of this "
				   "host: %s",
			      text, gai_strerror(error));
	}
	memcpy(&bind->addr, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	settings->bind_count++;
	return 0;
}

/* The server's own bind setting: addresses with blanks between. */
static int default_addresses(struct rk_settings *settings,
			     struct rk_server_context *ctx, char *why)
{
	char text[1024], *next = text, *address;
	int ret;

	if (rk_api_config(ctx, "bind", text, sizeof(text)) || !*text)
		snprintf(text, sizeof(text), "* -::*");
	while ((address = strsep(&next, " "))) {
		if (!*address)
			continue;
		ret = add_address(settings, address, why);
		if (ret)
			return ret;
	}
	return 0;
}

/* ---------------------------------------------------------- one each name */

static int set_port(struct rk_settings *settings, const char *value, char *why)
{
	uint64_t number;

	if (parse_number(value, false, 65535, &number) || !number)
		return REFUSE(why, "rdma-port %s is not a port: 1 to 65535",
			      value);
	settings->port = (uint16_t)number;
	return 0;
}

static int set_rx_size(struct rk_settings *settings, const char *value,
		       char *why)
{
	uint64_t number;

	if (parse_number(value, true, RK_STREAM_WINDOW_MAX, &number) ||
	    number < RK_STREAM_WINDOW_MIN)
		return REFUSE(why, "rdma-rx-size %s is not a number of bytes "
				   "from %d to %d",
			      value, RK_STREAM_WINDOW_MIN,
			      RK_STREAM_WINDOW_MAX);
	settings->rx_bytes = (uint32_t)number;
	return 0;
}

static int set_vector(struct rk_settings *settings, const char *value,
		      char *why)
{
	uint64_t number;

	if (!strcmp(value, "-1")) {
		settings->completion_vector = -1;
		return 0;
	}
	if (parse_number(value, false, 1024, &number))
		return REFUSE(why, "rdma-completion-vector %s is not a number "
				   "from -1 to 1024",
			      value);
	settings->completion_vector = (int)number;
	return 0;
}

static int set_device(struct rk_settings *settings, const char *value,
		      char *why)
{
	if (!*value || strlen(value) >= sizeof(settings->device))
		return REFUSE(why, "rdma-device %s is not a device: auto, "
				   "soft, or a name that ibv_devices shows",
			      value);
	snprintf(settings->device, sizeof(settings->device), "%s", value);
	return 0;
}

static int set_spin(struct rk_settings *settings, const char *value, char *why)
{
	uint64_t number;

	if (parse_number(value, false, RK_SPIN_MAX_US, &number))
		return REFUSE(why, "rdma-spin %s is not a number of "
				   "microseconds from 0 to %d",
			      value, RK_SPIN_MAX_US);
	settings->spin_us = (uint32_t)number;
	return 0;
}

static int set_memory_cap(struct rk_settings *settings, const char *value,
			  char *why)
{
	if (parse_number(value, true, UINT64_MAX, &settings->memory_cap_bytes))
		return REFUSE(why, "rdma-memory-cap %s is not a number of "
				   "bytes (units: k, m, g, kb, mb, gb)",
			      value);
	return 0;
}

static const struct {
	const char *name;
	int (*set)(struct rk_settings *settings, const char *value, char *why);
	bool list;
} known[] = {
	{ "rdma-port", set_port, false },
	{ "rdma-bind", add_address, true },
	{ "rdma-rx-size", set_rx_size, false },
	{ "rdma-completion-vector", set_vector, false },
	{ "rdma-device", set_device, false },
	{ "rdma-spin", set_spin, false },
	{ "rdma-memory-cap", set_memory_cap, false },
};

static int find(const char *name)
{
	size_t i;

	for (i = 0; i < RK_ARRAY_SIZE(known); i++) {
		if (!strcasecmp(name, known[i].name))
			return (int)i;
	}
	return -1;
}

static int read_arguments(struct rk_settings *settings,
			  struct rk_server_string **argv, int argc, char *why)
{
	unsigned seen = 0;
	int i = 0, which, ret;

	while (i < argc) {
		const char *name = rk_api.string_text(argv[i++], NULL);

		which = find(name);
		if (which < 0)
			return REFUSE(why, "%s is not an argument; known are "
					   "rdma-port, rdma-bind, "
					   "rdma-rx-size, "
					   "rdma-completion-vector, "
					   "rdma-device, rdma-spin, "
					   "rdma-memory-cap",
				      name);
		if (seen & 1u << which)
			return REFUSE(why, "%s is there twice", name);
		seen |= 1u << which;
		if (i == argc)
			return REFUSE(why, "%s has no value", name);
		do {
			const char *value = rk_api.string_text(argv[i], NULL);

			ret = known[which].set(settings, value, why);
			if (ret)
				return ret;
			i++;
		} while (known[which].list && i < argc &&
			 strncasecmp(rk_api.string_text(argv[i], NULL),
				     "rdma-", 5));
	}
	return 0;
}

/* ---------------------------------------------------------- what is left */

static uint64_t config_number(struct rk_server_context *ctx,
			      const char *setting)
{
	char text[32];
	uint64_t number;

	if (rk_api_config(ctx, setting, text, sizeof(text)) ||
	    parse_number(text, false, UINT64_MAX, &number))
		return 0;
	return number;
}

int rk_settings_read(struct rk_settings *settings,
		     struct rk_server_context *ctx,
		     struct rk_server_string **argv, int argc,
		     char why[RK_SETTINGS_WHY_BYTES])
{
	uint64_t port;
	int ret;

	*settings = (struct rk_settings){
		.completion_vector = -1,
		.device = "auto",
		.spin_us = RK_SPIN_DEFAULT_US,
	};
	ret = read_arguments(settings, argv, argc, why);
	if (ret)
		return ret;
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		settings->spin_us = 0; /* it would keep the client waiting */
	if (!settings->port) {
		port = config_number(ctx, "port");
		if (!port)
			port = config_number(ctx, "tls-port");
		if (!port)
			return REFUSE(why, "the server has no port to take "
					   "over: give rdma-port");
		settings->port = (uint16_t)port;
	}
	if (!settings->bind_count) {
		ret = default_addresses(settings, ctx, why);
		if (ret)
			return ret;
	}
	if (!settings->bind_count)
		return REFUSE(why, "no address to listen on: give rdma-bind");
	return 0;
}
