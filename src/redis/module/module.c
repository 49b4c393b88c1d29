/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loading: bind the module interface, read the arguments, prove the server,
 * open the device, listen, and last join the server's event loop, which is the
 * one step that is never undone.  Main thread.
 *
 * The module is called "rdma", since the server names its INFO section so.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "link.h"
#include "listen.h"
#include "loop.h"
#include "socket.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int RedisModule_OnLoad(struct rk_server_context *ctx,
			      struct rk_server_string **argv, int argc);
EXPORT int ValkeyModule_OnLoad(struct rk_server_context *ctx,
			       struct rk_server_string **argv, int argc);
EXPORT int RedisModule_OnUnload(struct rk_server_context *ctx);

static const char name[] = "rdma";

enum { VERSION = 1, GOODBYE_MS = 300 };

struct rk_core rk_core;

static void log_sink(enum rk_log_level level, const char *line)
{
	static const char *const levels[] = {
		[RK_LOG_DEBUG] = "debug",
		[RK_LOG_INFO] = "notice",
		[RK_LOG_WARNING] = "warning",
		[RK_LOG_ERROR] = "warning",
	};

	rk_api.log(rk_core.ctx, levels[level], "%s", line);
}

static void on_fork_child(void)
{
	rk_core.in_child = true;
}

/* Threads of the server may be inside a connection although the main thread
 * is here. */
static bool threads_may_run(struct rk_server_context *ctx)
{
	char count[16];

	return rk_server.layout->io_threads != RK_IO_FORK_JOIN &&
	       (rk_api_config(ctx, "io-threads", count, sizeof(count)) ||
		strcmp(count, "1"));
}

/* The server is about to exit: last words to the clients, then the device.
 * Where that is not safe the clients see the end of the process instead. */
static void on_shutdown(struct rk_server_context *ctx,
			struct rk_server_event event, uint64_t subevent,
			void *data)
{
	uint64_t end_ns = rk_now_ns() + GOODBYE_MS * RK_NS_PER_MS;
	struct rk_context_info info;

	if (!rk_core.device || rk_core.in_child || threads_may_run(ctx))
		return;
	rk_listen_stop();
	rk_links_shut();
	do {
		rk_loop_wait(rk_min(end_ns, rk_now_ns() + 10 * RK_NS_PER_MS));
		rk_context_info_get(rk_core.device, &info);
	} while (info.connections && rk_now_ns() < end_ns);
	rk_context_close(rk_core.device);
	rk_core.device = NULL;
}

/* ------------------------------------------------------------------ loading */

static int refuse(const char *why)
{
	rk_api.log(rk_core.ctx, "warning", "not loading: %s", why);
	return RK_SERVER_ERR;
}

/*
 * A large window hides the time a network takes.  Within one host there is
 * none to hide, and the windows of all clients together stay in the cache.
 */
static void choose_window(void)
{
	struct rk_context_info info;

	if (rk_core.settings.rx_bytes)
		return;
	rk_context_info_get(rk_core.device, &info);
	rk_core.settings.rx_bytes = info.software ? RK_STREAM_WINDOW_MIN :
						    RK_STREAM_WINDOW_DEFAULT;
}

/* One device serves all addresses, so the first decides; one that may be
 * missing only if there is no other. */
static const struct sockaddr *main_address(const struct rk_settings *settings)
{
	unsigned i = 0;

	while (i < settings->bind_count && settings->bind[i].optional)
		i++;
	if (i == settings->bind_count)
		i = 0;
	return (const struct sockaddr *)&settings->bind[i].addr;
}

static int open_device(char *why, size_t why_bytes)
{
	struct rk_context_params params = {
		.device = rk_core.settings.device,
		.completion_vector = rk_core.settings.completion_vector,
		.memory_cap_bytes = rk_core.settings.memory_cap_bytes,
		.address = main_address(&rk_core.settings),
	};
	int ret;

	ret = rk_context_open(&rk_core.device, &params);
	if (ret)
		snprintf(why, why_bytes, "rdma-device %s cannot be opened: %s",
			 params.device, strerror(-ret));
	else
		choose_window();
	return ret;
}

static void announce(void)
{
	struct rk_context_info info;

	rk_context_info_get(rk_core.device, &info);
	rk_api.log(rk_core.ctx, "notice",
		   "%s, layout %s: %s", rk_core.guard.version,
		   rk_server.layout->name,
		   rk_core.guard.tested ? "tested build" :
					  "untested build, layout verified");
	rk_api.log(rk_core.ctx, "notice",
		   "listening on %s with device %s (%s)", rk_listen_text(),
		   info.device, info.reason);
}

static int join_server(struct rk_server_context *ctx)
{
	const struct rk_server_event shutdown = { RK_SERVER_EVENT_SHUTDOWN,
						  1 };

	rk_api.report_register(ctx, rk_report);
	rk_api.subscribe(ctx, shutdown, on_shutdown);
	pthread_atfork(NULL, NULL, on_fork_child);
	return rk_loop_start();
}

static int load(struct rk_server_context *ctx, struct rk_server_string **argv,
		int argc)
{
	struct rk_methods methods;
	char why[RK_GUARD_WHY_BYTES];
	int ret;

	ret = rk_settings_read(&rk_core.settings, ctx, argv, argc, why);
	if (ret)
		return refuse(why);
	ret = rk_guard_check(ctx, &rk_core.guard);
	if (ret)
		return refuse(rk_core.guard.why);
	rk_methods_fill(&methods);
	rk_server_type_build(rk_core.type, &methods);
	rk_socket_prepare(ctx);

	ret = open_device(why, sizeof(why));
	if (ret)
		return refuse(why);
	rk_links_init();
	ret = rk_listen_start(why, sizeof(why));
	if (ret)
		goto err_device;
	ret = join_server(ctx);
	if (ret) {
		snprintf(why, sizeof(why), "no place in the server's event "
					   "loop: %s",
			 strerror(-ret));
		goto err_listen;
	}
	rk_core.loaded = true;
	announce();
	return RK_SERVER_OK;

err_listen:
	rk_listen_stop();
err_device:
	rk_context_close(rk_core.device);
	rk_core.device = NULL;
	return refuse(why);
}

int RedisModule_OnLoad(struct rk_server_context *ctx,
		       struct rk_server_string **argv, int argc)
{
	const char *missing;
	int ret;

	/* The library stays in memory after a refusal; start afresh then. */
	if (rk_core.loaded)
		return refuse("it is loaded already");
	memset(&rk_core, 0, sizeof(rk_core));
	rk_core.owner = pthread_self();
	ret = rk_api_bind(ctx, &missing);
	if (ret) {
		fprintf(stderr, "rdma: not loading: the server's module "
				"interface has no %s\n",
			missing);
		return RK_SERVER_ERR;
	}
	if (rk_api.name_busy(name))
		return RK_SERVER_ERR;
	rk_api.set_attributes(ctx, name, VERSION, RK_SERVER_API_VERSION);
	rk_core.ctx = rk_api.detached_context(ctx);
	rk_log_set_sink(log_sink);
	ret = load(ctx, argv, argc);
	if (ret != RK_SERVER_OK) {
		/* The server forgets the module, and what the context points
		 * at is gone. */
		rk_log_set_sink(NULL);
		rk_api.context_free(rk_core.ctx);
		rk_core.ctx = NULL;
	}
	return ret;
}

int ValkeyModule_OnLoad(struct rk_server_context *ctx,
			struct rk_server_string **argv, int argc)
{
	return RedisModule_OnLoad(ctx, argv, argc);
}

/* Its connections are the server's clients: there is no way back. */
int RedisModule_OnUnload(struct rk_server_context *ctx)
{
	if (rk_core.device)
		rk_api.log(rk_core.ctx, "warning",
			   "cannot be unloaded: restart the server without "
			   "it");
	return RK_SERVER_ERR;
}
