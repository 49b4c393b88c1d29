/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A whole life of a connection, in which the n-th allocation, or the n-th call
 * of the device, fails, for every n: it ends, with an answer, and leaves
 * nothing behind.
 */
#include <dirent.h>

#include "faulty.h"
#include "world.h"

enum { ENOUGH = 2000, REPETITIONS = 4 };

static unsigned descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	while (dir && readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* Bounded, and shorter than the usual. */
#define shortly(w, cond)                                                       \
	({                                                                     \
		uint64_t end_ns_ = rk_now_ns() + 3 * RK_NS_PER_S;              \
		while (!(cond) && rk_now_ns() < end_ns_)                       \
			world_step(w);                                         \
		(cond);                                                        \
	})

/* 1: all went well; 0: something was refused, in order; -1: it hangs. */
static int live_once(struct world *w, const struct fabric_choice *choice)
{
	int carried;

	if (fabric_context_open(&w->context[0], NULL, choice) ||
	    fabric_context_open(&w->context[1], NULL, choice) ||
	    world_listen(w) || world_connect(w, 250))
		return 0;
	if (!shortly(w, w->a.closed || (w->a.established && w->b.established)))
		return -1;
	if (w->a.closed)
		return 0;
	if (w->memory_result || world_send(&w->a, 0) ||
	    world_write(&w->a, &w->b.target, 0, 0) ||
	    rk_mem_alloc(w->context[0], w->a.conn, 4096, RK_REMOTE_WRITE,
			 &w->a.target))
		return 0;
	if (!shortly(w, w->a.closed || w->b.closed ||
				(w->b.received && w->b.written)))
		return -1;
	carried = w->b.received == 1 && w->b.written == 1;
	rk_conn_disconnect(w->a.conn);
	if (!shortly(w, w->a.closed))
		return -1;
	rk_conn_destroy(w->a.conn);
	w->a.conn = NULL;
	if (!shortly(w, w->b.closed))
		return -1;
	return carried;
}

static int life(const struct fabric_choice *choice)
{
	struct world w;
	int ret;

	world_init(&w);
	w.params[0].receive_depth = w.params[1].receive_depth = 4;
	ret = live_once(&w, choice);
	faulty_in = -1;
	rk_alloc_fail_at(-1);
	world_close(&w);
	return ret;
}

/*
 * With the n-th fault: 1, 0 and -1 as above, -2 it leaves something.  The
 * device below keeps a link for some seconds, so a leak is what grows with
 * every repetition.
 */
static int life_with_fault(const struct fabric_choice *choice, long n,
			   bool allocations)
{
	unsigned fds, fds_before = 0, more_fds = 0, more_live = 0;
	long live, live_before = 0;
	int ret = 0;

	for (unsigned i = 0; i < REPETITIONS; i++) {
		faulty_name = NULL;
		rk_alloc_fail_at(allocations ? n : -1);
		faulty_in = allocations ? -1 : n;
		ret = life(choice);
		if (ret < 0)
			break;
		live = rk_alloc_live();
		fds = descriptors();
		more_live += i && live > live_before;
		more_fds += i && fds > fds_before;
		live_before = live;
		fds_before = fds;
	}
	if (more_live == REPETITIONS - 1 || more_fds == REPETITIONS - 1)
		return -2;
	return ret;
}

static void each_fails(const struct fabric_choice *choice, bool allocations)
{
	unsigned refused = 0, well = 0, n;
	int ret = 0;

	/* an allocation more or less is possible: past the last one all goes
	 * well many times in a row */
	for (n = 0; n < ENOUGH && ret >= 0 && well < 20; n++) {
		ret = life_with_fault(choice, n, allocations);
		refused += ret == 0;
		well = ret == 1 ? well + 1 : 0;
	}
	ok(ret >= 0 && refused > 10 && n < ENOUGH,
	   "%s 0 to %u fails (%u refused): %s%s",
	   allocations ? "allocation" : "call of the device", n, refused,
	   ret == -1   ? "it hangs"
	   : ret == -2 ? "it leaves something behind"
		       : "it ends, nothing is left",
	   ret < 0 && faulty_name ? faulty_name : "");
}

int main(void)
{
	struct fabric_choice choice;

	rk_log_set_level(RK_LOG_ERROR + 1);
	ok_or_die(!fabric_choose_from(faulty_table(), &choice),
		  "the software device is there");
	for (unsigned n = 0; n < 3; n++)
		ok_or_die(life(&choice) == 1, "without a fault it works");
	each_fails(&choice, false);
	each_fails(&choice, true);
	return ok_done();
}
