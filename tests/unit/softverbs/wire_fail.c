/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every allocation fails once, in turn: each call says so, nothing leaks, and
 * what stood before stands.  And a forked child, which may do nothing.
 */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire_ends.h"

/* All calls that allocate; the first error, or 0. */
static int everything(struct ends *ends)
{
	unsigned number;
	uint32_t key;
	char *memory;
	int ret;

	memset(ends, 0, sizeof(*ends));
	ret = wire_open(&ends->wire, &ends_handler, ends);
	if (ret)
		return ret;
	ret = ends_bind(ends, "127.0.0.1", 0, false, &ends->listener);
	if (!ret)
		ret = wire_listen(ends->listener, 4);
	if (!ret)
		ret = ends_connect(ends, "127.0.0.1",
				   wire_listener_port(ends->listener),
				   &ends->active);
	if (!ret)
		ret = wire_send(ends->active, "hello", 5);
	if (ret)
		return ret;
	ends_settle(ends);
	if (!ends->passive)
		return -ENOMEM; /* could not be accepted */
	ret = lane_reserve(ends->active, &number);
	if (!ret)
		ret = lane_open(&ends->a, ends->active, number, 7);
	if (!ret)
		ret = lane_open(&ends->b, ends->passive, number, 7);
	if (ret)
		return ret;
	lane_admit(&ends->b);
	memory = wire_mem_alloc(ends->wire, ends->passive, 100, ENDS_ALL);
	if (!memory)
		return -errno;
	ret = wire_key_add(ends->wire, memory, 100, ENDS_ALL, 7, &key);
	if (!ret)
		ret = wire_send(ends->passive, "x", 1);
	if (!ret) /* reads the grant, keeps the message for later */
		ret = wire_write(&ends->a, (uint64_t)(uintptr_t)memory, key,
				 &(struct iovec){ "y", 1 }, 1, 1);
	return ret;
}

static void each_allocation_may_fail(void)
{
	unsigned failed = 0, leaked = 0, wrong = 0;
	struct ends ends;

	for (long n = 0; n < 200; n++) {
		int ret;

		rk_alloc_fail_at(n);
		ret = everything(&ends);
		rk_alloc_fail_at(-1);
		if (ends.wire)
			ends_close(&ends);
		leaked += rk_alloc_live() != 0;
		if (!ret)
			break;
		failed++;
		wrong += ret != -ENOMEM && ret != -EHOSTDOWN &&
			 ret != -EPIPE;
	}
	ok(failed > 10, "%u allocations fail in turn", failed);
	ok(wrong == 0, "each is told");
	ok(leaked == 0, "none leaks");
}

static void a_forked_child_is_inert(void)
{
	struct ends ends;
	char *memory;
	uint32_t key;
	int status;
	pid_t child;

	ends_open(&ends);
	ends_open_lane(&ends);
	memory = wire_mem_alloc(ends.wire, ends.passive, 100, ENDS_ALL);
	if (!memory || wire_key_add(ends.wire, memory, 100, ENDS_ALL, 7, &key))
		ok_or_die(false, "memory");
	child = fork();
	if (!child) {
		wire_abandon(ends.wire);
		wire_abandon(ends.wire);
		/* what a program may still do when it tears down */
		lane_close(&ends.a);
		lane_close(&ends.b);
		if (wire_key_remove(ends.wire, key))
			_exit(2);
		wire_mem_free(ends.wire, memory);
		wire_put(ends.active);
		wire_put(ends.passive);
		wire_unbind(ends.listener);
		if (wire_pump(ends.wire, true) || wire_sleep(ends.wire))
			_exit(3);
		wire_wake(ends.wire);
		wire_close(ends.wire);
		_exit(fcntl(wire_fd(ends.wire), F_GETFD) < 0 ? 0 : 4);
	}
	ok(waitpid(child, &status, 0) == child && status == 0,
	   "a child tears down without touching what it shares (status %x)",
	   status);
	ends_settle(&ends);
	ok(ends.gone == 0 && ends_go_on(&ends), "its parent goes on");
	ok(!wire_write(&ends.a, (uint64_t)(uintptr_t)memory, key,
		       &(struct iovec){ "y", 1 }, 1, 1) && *memory == 'y',
	   "and so do its keys");
	ends_close(&ends);
}

int main(void)
{
	rk_log_set_level(RK_LOG_ERROR);
	each_allocation_may_fail();
	a_forked_child_is_inert();
	ok(rk_alloc_live() == 0, "nothing is left allocated");
	return ok_done();
}
