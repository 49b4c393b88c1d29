/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device "auto" on a host with two RDMA devices: one that owns 10.0.0.1, one
 * that owns 10.0.1.1, each with its /24 behind it.  This program has its own
 * fabric_system_table(), so the library's is not linked.
 */
#include <sys/eventfd.h>
#include <unistd.h>

#include "world.h"

enum { DEVICES = 2 };

static struct ibv_device devices[DEVICES];
static struct ibv_context contexts[DEVICES];
static unsigned ids, channels, events; /* open, or not acknowledged */
static bool silent;		       /* nothing comes of resolving */
static int channel_error, resolve_error, status;
static bool port_down[DEVICES];
static char last_line[600];
static const char first[] = "the first usable RDMA device of this host";

struct fake_channel {
	struct rdma_event_channel base;
	struct rdma_cm_event event;
};

static void remember(enum rk_log_level level, const char *line)
{
	snprintf(last_line, sizeof(last_line), "%s", line);
}

/* ---- the table --------------------------------------------------------- */

static const char *get_device_name(struct ibv_device *device)
{
	return device->name;
}

static int query_device(struct ibv_context *context,
			struct ibv_device_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->phys_port_cnt = 1;
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port,
		      struct ibv_port_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->state = port_down[context - contexts] ? IBV_PORT_DOWN
						    : IBV_PORT_ACTIVE;
	return 0;
}

static struct ibv_context **get_devices(int *count)
{
	static struct ibv_context *list[] = { &contexts[0], &contexts[1],
					      NULL };

	*count = DEVICES;
	return list;
}

static void free_devices(struct ibv_context **list)
{
}

static struct rdma_event_channel *create_event_channel(void)
{
	struct fake_channel *channel;

	if (channel_error) {
		errno = channel_error;
		return NULL;
	}
	channel = rk_zalloc(sizeof(*channel));
	channel->base.fd = eventfd(0, EFD_CLOEXEC);
	channels++;
	return &channel->base;
}

static void destroy_event_channel(struct rdma_event_channel *channel)
{
	close(channel->fd);
	rk_free(channel);
	channels--;
}

static int create_id(struct rdma_event_channel *channel,
		     struct rdma_cm_id **id, void *context,
		     enum rdma_port_space ps)
{
	*id = rk_zalloc(sizeof(**id));
	(*id)->channel = channel;
	ids++;
	return 0;
}

static int destroy_id(struct rdma_cm_id *id)
{
	rk_free(id);
	ids--;
	return 0;
}

static uint32_t ip_of(const struct sockaddr *addr)
{
	return ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr);
}

static uint32_t address_of_device(int i)
{
	return 0x0a000001u + 0x100u * (uint32_t)i;
}

/* As the kernel: a loopback address can be bound, to no device. */
static int bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	if (((struct sockaddr_in *)addr)->sin_port) {
		errno = EADDRINUSE;
		return -1;
	}
	if (addr->sa_family == AF_INET6 || ip_of(addr) >> 24 == 127)
		return 0;
	for (int i = 0; i < DEVICES; i++) {
		if (ip_of(addr) == address_of_device(i)) {
			id->verbs = &contexts[i];
			return 0;
		}
	}
	errno = EADDRNOTAVAIL;
	return -1;
}

/* As the kernel: a loopback address is reached through the first. */
static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *src,
			struct sockaddr *dst, int timeout_ms)
{
	struct fake_channel *channel = (struct fake_channel *)id->channel;
	uint64_t one = 1;

	if (resolve_error) {
		errno = resolve_error;
		return -1;
	}
	if (silent)
		return 0;
	channel->event.event = RDMA_CM_EVENT_ADDR_ERROR;
	channel->event.status = status;
	for (int i = 0; i < DEVICES; i++) {
		if (ip_of(dst) >> 8 == address_of_device(i) >> 8 ||
		    (!i && ip_of(dst) >> 24 == 127)) {
			id->verbs = &contexts[i];
			channel->event.event = RDMA_CM_EVENT_ADDR_RESOLVED;
			channel->event.status = 0;
		}
	}
	events++;
	return write(id->channel->fd, &one, sizeof(one)) == sizeof(one) ? 0
									: -1;
}

static int get_event(struct rdma_event_channel *channel,
		     struct rdma_cm_event **event)
{
	uint64_t count;

	if (read(channel->fd, &count, sizeof(count)) != sizeof(count))
		return -1;
	*event = &((struct fake_channel *)channel)->event;
	return 0;
}

static int ack_event(struct rdma_cm_event *event)
{
	events--;
	return 0;
}

const struct rk_verbs_table *fabric_system_table(const char **why_not)
{
	static const struct rk_verbs_table table = {
		.name = "system",
		.get_device_name = get_device_name,
		.query_device = query_device,
		.query_port = query_port,
		.cm_get_devices = get_devices,
		.cm_free_devices = free_devices,
		.cm_create_event_channel = create_event_channel,
		.cm_destroy_event_channel = destroy_event_channel,
		.cm_create_id = create_id,
		.cm_destroy_id = destroy_id,
		.cm_bind_addr = bind_addr,
		.cm_resolve_addr = resolve_addr,
		.cm_get_event = get_event,
		.cm_ack_event = ack_event,
	};

	*why_not = "";
	return &table;
}

/* ---- the choices ------------------------------------------------------- */

static int choose(const char *device, const char *text, bool remote,
		  struct fabric_choice *choice)
{
	struct sockaddr_storage addr = { 0 };
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&addr;
	struct sockaddr_in *in = (struct sockaddr_in *)&addr;
	struct rk_context_params params = { .device = device,
					    .address_is_remote = remote };

	last_line[0] = '\0';
	if (text)
		params.address = (struct sockaddr *)&addr;
	if (text && strchr(text, ':')) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(6379);
		inet_pton(AF_INET6, text, &in6->sin6_addr);
	} else if (text) {
		in->sin_family = AF_INET;
		in->sin_port = htons(6379);
		inet_pton(AF_INET, text, &in->sin_addr);
	}
	return fabric_choose(&params, choice);
}

struct expected {
	const char *text;
	bool remote;
	const char *device, *reason;
};

static void check(const struct expected *e)
{
	struct fabric_choice choice;
	bool soft = !strcmp(e->device, "soft");

	ok(!choose("auto", e->text, e->remote, &choice) &&
		   !strcmp(choice.name, e->device) &&
		   choice.software == soft &&
		   !strcmp(choice.reason, e->reason),
	   "%s %s: %s, since %s", e->remote ? "to" : "on",
	   e->text ? e->text : "nothing", choice.name, choice.reason);
	ok(soft ? strstr(last_line, e->reason) != NULL : !last_line[0],
	   "the software device, and no other, is said: %s", last_line);
	ok(!ids && !channels && !events, "nothing of the question is left");
}

static void by_address(void)
{
	static const struct expected list[] = {
		{ NULL, false, "one", first },
		{ "0.0.0.0", false, "one", first },
		{ "::", false, "one", first },
		{ "::ffff:0.0.0.0", false, "one", first },
		{ "0.0.0.0", true, "one", first },
		{ "10.0.0.1", false, "one", "it owns 10.0.0.1" },
		{ "10.0.1.1", false, "two", "it owns 10.0.1.1" },
		{ "10.0.1.2", false, "soft",
		  "no RDMA device of this host owns 10.0.1.2" },
		{ "127.0.0.1", false, "soft",
		  "no RDMA device of this host owns 127.0.0.1" },
		{ "::1", false, "soft",
		  "no RDMA device of this host owns ::1" },
		{ "10.0.0.9", true, "one", "it reaches 10.0.0.9" },
		{ "10.0.1.9", true, "two", "it reaches 10.0.1.9" },
		{ "127.0.0.1", true, "soft",
		  "no RDMA device of this host owns 127.0.0.1" },
		{ "::1", true, "soft",
		  "no RDMA device of this host owns ::1" },
	};

	for (unsigned i = 0; i < RK_ARRAY_SIZE(list); i++)
		check(&list[i]);
}

static void by_name(void)
{
	struct fabric_choice choice;

	ok(!choose("one", "10.0.1.1", false, &choice) &&
		   !strcmp(choice.name, "one"),
	   "a name is a name, whoever owns the address");
	ok(!choose("soft", "10.0.1.1", false, &choice) && choice.software,
	   "and so is soft");
}

static void unreached(void)
{
	uint64_t begin_ns;

	status = -ENODEV;
	check(&(struct expected){ "10.9.9.9", true, "soft",
				  "no RDMA device of this host reaches "
				  "10.9.9.9" });
	status = -ENETUNREACH;
	check(&(struct expected){ "10.9.9.9", true, "soft",
				  "no RDMA device of this host reaches "
				  "10.9.9.9: Network is unreachable" });
	resolve_error = EACCES;
	check(&(struct expected){ "10.0.1.9", true, "soft",
				  "no RDMA device of this host reaches "
				  "10.0.1.9: Permission denied" });
	resolve_error = 0;
	silent = true;
	begin_ns = rk_now_ns();
	check(&(struct expected){ "10.0.1.9", true, "soft",
				  "no RDMA device of this host reaches "
				  "10.0.1.9: Connection timed out" });
	ok(rk_now_ns() - begin_ns >= FABRIC_ASK_MS * RK_NS_PER_MS,
	   "after it was waited for");
	silent = false;
	channel_error = EMFILE;
	check(&(struct expected){ "10.0.1.1", false, "soft",
				  "no RDMA device of this host owns 10.0.1.1: "
				  "Too many open files" });
	channel_error = 0;
}

static void unusable(void)
{
	port_down[1] = true;
	check(&(struct expected){ "10.0.1.1", false, "soft",
				  "device two, which owns 10.0.1.1, has no "
				  "active port" });
	check(&(struct expected){ "10.0.1.9", true, "soft",
				  "device two, which reaches 10.0.1.9, has no "
				  "active port" });
	port_down[1] = false;
	port_down[0] = true;
	check(&(struct expected){ "0.0.0.0", false, "two", first });
	port_down[0] = false;
}

static void nonsense(void)
{
	const struct sockaddr local = { .sa_family = AF_UNIX };
	const struct rk_context_params params = { .address = &local };
	struct fabric_choice choice;

	ok(fabric_choose(&params, &choice) == -EINVAL &&
		   strstr(last_line, "not IP"),
	   "an address of another family: %s", last_line);
}

int main(void)
{
	static const char *const names[DEVICES] = { "one", "two" };

	for (int i = 0; i < DEVICES; i++) {
		snprintf(devices[i].name, sizeof(devices[i].name), "%s",
			 names[i]);
		devices[i].transport_type = IBV_TRANSPORT_IB;
		contexts[i].device = &devices[i];
	}
	rk_log_set_sink(remember);
	by_address();
	by_name();
	unreached();
	unusable();
	nonsense();
	return ok_done();
}
