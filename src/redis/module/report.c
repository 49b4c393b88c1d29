/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * INFO rdma.  The server puts "rdma_" before each name.  Main thread; also
 * from the server's crash report, where it only copies counters.
 */
#include "core.h"
#include "link.h"
#include "listen.h"
#include "loop.h"

void rk_report(struct rk_server_report *report, int for_crash_report)
{
	struct rk_context_info device = { 0 };
	struct rk_stream_stats stats = { 0 };
	size_t i;

	/* Anything else is not safe to look at then. */
	if (!rk_core.device || for_crash_report)
		return;
	if (rk_api.report_section(report, "") != RK_SERVER_OK)
		return; /* not asked for */
	rk_context_info_get(rk_core.device, &device);
	rk_context_stream_stats(rk_core.device, &stats);

	const struct {
		const char *name, *text;
	} texts[] = {
		{ "device", device.device },
		{ "device_reason", device.reason },
		{ "listening", rk_listen_text() },
		{ "server", rk_core.guard.version },
		{ "layout", rk_server.layout->name },
		{ "build", rk_core.guard.tested ? "tested" : "untested" },
		{ "build_id", rk_core.guard.build },
	};
	const struct {
		const char *name;
		unsigned long long number;
	} numbers[] = {
		{ "software", device.software },
		{ "port", rk_core.settings.port },
		{ "connections", rk_links.count[RK_LINK_SERVED] },
		{ "arriving", rk_links.count[RK_LINK_ARRIVING] },
		{ "lingering", rk_links.count[RK_LINK_LINGERING] },
		{ "accepted", rk_core.accepted },
		{ "rejected", rk_core.rejected },
		{ "bytes_read", stats.bytes_read },
		{ "bytes_written", stats.bytes_written },
		{ "immediates_received", stats.immediates_received },
		{ "immediates_sent", stats.immediates_sent },
		{ "window_bytes", rk_core.settings.rx_bytes },
		{ "window_refills", stats.windows_announced },
		{ "window_stalls", stats.window_stalls },
		{ "window_stall_us", stats.stall_ns / 1000 },
		{ "credit_stalls", stats.credit_stalls },
		{ "receiver_not_ready", device.receiver_not_ready },
		{ "bytes_registered", device.bytes_registered },
		{ "memory_cap", rk_core.settings.memory_cap_bytes },
		{ "errors", device.errors },
		{ "spin_us", rk_core.settings.spin_us },
		{ "passes", rk_loop_counts.passes },
		{ "sleeps", rk_loop_counts.sleeps },
	};

	for (i = 0; i < RK_ARRAY_SIZE(texts); i++)
		rk_api.report_text(report, texts[i].name,
				   texts[i].text ? texts[i].text : "");
	for (i = 0; i < RK_ARRAY_SIZE(numbers); i++)
		rk_api.report_number(report, numbers[i].name,
				     numbers[i].number);
}
