/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue between an I/O thread and the owner is bounded, keeps the order,
 * survives a lack of memory and gives its memory back. */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "ok.h"
#include "redis/module/buffer.h"

static unsigned char next_in, next_out;

static ssize_t put(struct rk_buffer *b, size_t bytes)
{
	unsigned char data[4096];
	ssize_t taken;

	for (size_t i = 0; i < bytes; i++)
		data[i] = (unsigned char)(next_in + i);
	taken = rk_buffer_put(b, data, bytes);
	if (taken > 0)
		next_in = (unsigned char)(next_in + taken);
	return taken;
}

static bool take(struct rk_buffer *b, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		if ((unsigned char)b->data[b->start + i] != next_out)
			return false;
		next_out++;
	}
	rk_buffer_drop(b, bytes);
	return true;
}

int main(void)
{
	struct rk_buffer b = { 0 };
	size_t all = 0;
	bool good = true;
	ssize_t taken;

	while ((taken = put(&b, 4000)) > 0)
		all += (size_t)taken;
	ok(taken == 0 && all == RK_BUFFER_MAX_BYTES,
	   "it takes what it may hold and no more");
	ok(take(&b, all), "and gives it back in order");
	ok(!b.data && !rk_alloc_live(), "a large one that is empty is freed");

	for (unsigned i = 0; i < 5000; i++) {
		size_t bytes = 1 + i * 37 % 4000;

		good &= put(&b, bytes) == (ssize_t)bytes;
		good &= take(&b, rk_min(b.bytes, 1 + i * 53 % 4096));
	}
	while (b.bytes && good)
		good &= take(&b, rk_min(b.bytes, (size_t)1000));
	ok(good, "bytes keep their order however they come and go");

	rk_buffer_free(&b);
	rk_alloc_fail_at(0);
	ok(put(&b, 100) == -ENOMEM && !b.bytes,
	   "without memory nothing is taken");
	ok(put(&b, 100) == 100 && take(&b, 100), "and later it works again");
	rk_alloc_fail_at(-1);
	while (b.bytes < RK_BUFFER_KEEP_BYTES)
		put(&b, 1024);
	rk_alloc_fail_at(0);
	all = b.bytes;
	ok(put(&b, 4096) == -ENOMEM && b.bytes == all && take(&b, all),
	   "what is in it stays when it cannot grow");
	rk_buffer_free(&b);
	ok(!rk_alloc_live(), "all memory is given back");
	return ok_done();
}
