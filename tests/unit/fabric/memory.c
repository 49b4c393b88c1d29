/* SPDX-License-Identifier: BSD-3-Clause */
/* Registered memory: counted, capped, zeroed, and never given back too early. */
#include "faulty.h"
#include "world.h"

static char last_line[600];

static void remember(enum rk_log_level level, const char *line)
{
	snprintf(last_line, sizeof(last_line), "%s", line);
}

static struct rk_context *open_capped(uint64_t cap_bytes)
{
	struct rk_context_params params = { .completion_vector = -1,
					    .memory_cap_bytes = cap_bytes };
	struct fabric_choice choice;
	struct rk_context *context;

	ok_or_die(!fabric_choose_from(faulty_table(), &choice) &&
			  !fabric_context_open(&context, &params, &choice),
		  "a context opens");
	return context;
}

static uint64_t registered(const struct rk_context *context)
{
	struct rk_context_info info;

	rk_context_info_get(context, &info);
	return info.bytes_registered;
}

static bool is_zero(const struct rk_mem *mem)
{
	const char *bytes = mem->addr;

	for (size_t i = 0; i < mem->bytes; i++)
		if (bytes[i])
			return false;
	return true;
}

static void small_pieces_share_a_registration(void)
{
	struct rk_context *context = open_capped(0);
	struct rk_mem mem[64];
	uint64_t before;
	unsigned good = 0, zero = 0;
	bool overlap = false;

	ok(!rk_mem_alloc(context, NULL, 1, 0, &mem[0]) && mem[0].bytes == 4096,
	   "a byte takes a page");
	before = registered(context);
	for (unsigned i = 1; i < 15; i++)
		good += !rk_mem_alloc(context, NULL, 4000, 0, &mem[i]);
	ok(good == 14 && registered(context) == before &&
		   mem[1].lkey == mem[0].lkey,
	   "fifteen pages are one registration");
	for (unsigned i = 0; i < 15; i++)
		for (unsigned j = 0; j < i; j++)
			overlap |= mem[i].addr == mem[j].addr;
	ok(!overlap, "none is given twice");
	for (unsigned i = 0; i < 15; i++) {
		memset(mem[i].addr, 0x55, mem[i].bytes);
		rk_mem_free(context, &mem[i]);
	}
	for (unsigned i = 0; i < 15; i++) {
		good += !rk_mem_alloc(context, NULL, 4096, 0, &mem[i]);
		zero += is_zero(&mem[i]);
	}
	ok(zero == 15, "what was used comes back zeroed");
	for (unsigned i = 0; i < 15; i++)
		rk_mem_free(context, &mem[i]);
	ok(registered(context) == before, "one empty chunk is kept");
	ok(!mem[0].addr, "freed memory is forgotten");
	rk_context_close(context);
}

static void any_mixture_of_sizes(void)
{
	enum { COUNT = 40 };
	struct rk_context *context = open_capped(0);
	struct rk_mem mem[COUNT] = { 0 };
	unsigned wrong = 0, random = 1, i;
	uint64_t most = 0;

	for (unsigned n = 0; n < 4000; n++) {
		random = random * 1103515245 + 12345;
		i = random / 65536 % COUNT;
		if (mem[i].addr) {
			for (size_t at = 0; at < mem[i].bytes; at += 4096)
				wrong += ((uint32_t *)mem[i].addr)[at / 4] != i;
			rk_mem_free(context, &mem[i]);
			continue;
		}
		if (rk_mem_alloc(context, NULL, random % 300000 + 1, 0,
				 &mem[i])) {
			wrong++;
			continue;
		}
		for (size_t at = 0; at < mem[i].bytes; at += 4096)
			((uint32_t *)mem[i].addr)[at / 4] = i;
		most = rk_max(most, registered(context));
	}
	ok(wrong == 0, "4000 steps, nobody writes into another's memory");
	for (i = 0; i < COUNT; i++)
		rk_mem_free(context, &mem[i]);
	ok(most < 40 * 300000 * 2 && registered(context) <= 2 << 20,
	   "at most %llu bytes were registered, %llu stay",
	   (unsigned long long)most, (unsigned long long)registered(context));
	rk_context_close(context);
}

static void the_cap_is_kept(void)
{
	struct rk_context *context = open_capped(100 << 10);
	struct rk_mem one, two, three;

	ok(!rk_mem_alloc(context, NULL, 60 << 10, 0, &one), "60 of 100 KiB");
	last_line[0] = '\0';
	ok(rk_mem_alloc(context, NULL, 60 << 10, 0, &two) == -ENOMEM &&
		   !two.addr,
	   "60 more are refused");
	ok(strstr(last_line, "cap") && strstr(last_line, "102400"),
	   "with the limit: %s", last_line);
	ok(!rk_mem_alloc(context, NULL, 36 << 10, 0, &two), "36 more are not");
	ok(!rk_mem_alloc(context, NULL, 4096, 0, &three),
	   "what is registered already costs nothing");
	ok(registered(context) <= 100 << 10, "%llu bytes are registered",
	   (unsigned long long)registered(context));
	rk_mem_free(context, &one);
	rk_mem_free(context, &two);
	rk_mem_free(context, &three);
	ok(!rk_mem_alloc(context, NULL, 100 << 10, 0, &one),
	   "empty chunks make room for what is large");
	rk_mem_free(context, &one);
	rk_context_close(context);
}

static void memory_in_use_is_quarantined(void)
{
	struct rk_context *context = open_capped(0);
	struct rk_mem large;
	uint64_t end_ns;

	ok(!rk_mem_alloc(context, NULL, 4 << 20, 0, &large) &&
		   registered(context) == 4 << 20,
	   "a large piece is a registration of its own");
	faulty_dereg_busy = true;
	rk_mem_free(context, &large);
	ok(registered(context) == 4 << 20, "still counted while in use");
	ok(rk_context_deadline_ns(context) != RK_NEVER,
	   "the context wants to be called again");
	faulty_dereg_busy = false;
	end_ns = rk_now_ns() + 5 * RK_NS_PER_S;
	while (registered(context) && rk_now_ns() < end_ns) {
		uint64_t at_ns = rk_context_deadline_ns(context);
		uint64_t now_ns = rk_now_ns();

		if (at_ns > now_ns)
			poll(NULL, 0, (int)((at_ns - now_ns) / RK_NS_PER_MS));
		rk_context_process(context, 0);
	}
	ok(registered(context) == 0, "given back once the peer lets go");
	rk_context_close(context);
}

static void all(void)
{
	small_pieces_share_a_registration();
	any_mixture_of_sizes();
	the_cap_is_kept();
	memory_in_use_is_quarantined();
}

int main(void)
{
	long live;

	rk_log_set_sink(remember);
	all();
	live = rk_alloc_live(); /* the device itself stays */
	all();
	ok(rk_alloc_live() <= live, "nothing more is left: %ld, before %ld",
	   rk_alloc_live(), live);
	return ok_done();
}
