/* SPDX-License-Identifier: BSD-3-Clause */
/* The layout tables give each version's slots and offsets; versions that are
 * not listed have none. */
#include "ok.h"
#include "redis/module/layout.h"

/* As counted in the servers' own headers; -1: no such slot. */
static const struct {
	bool valkey;
	int major, minor;
	int get_type, close, connect, read, set_read, rebind, pending;
	int state, fd, private_data, read_handler, loop;
} expected[] = {
	{ false, 7, 0, 14, 5, 1, 4, 8, -1, -1, 8, 56, 24, 48, -1 },
	{ false, 7, 2, 0, 12, 13, 18, 20, -1, 25, 8, 16, 32, 56, -1 },
	{ false, 7, 4, 0, 12, 13, 18, 20, -1, 25, 8, 16, 32, 56, -1 },
	{ false, 8, 0, 0, 12, 13, 18, 20, 26, 27, 8, 16, 32, 64, 40 },
	{ false, 8, 6, 0, 12, 13, 18, 20, 26, 27, 8, 16, 32, 64, 40 },
	{ true, 7, 2, 0, 12, 13, 18, 20, -1, 25, 8, 16, 32, 56, -1 },
	{ true, 8, 0, 0, 12, 13, 18, 20, -1, 25, 8, 16, 32, 56, -1 },
	{ true, 8, 1, 0, 13, 14, 19, 21, -1, 26, 8, 16, 32, 56, -1 },
	{ true, 9, 0, 0, 13, 14, 19, 21, -1, 26, 8, 16, 32, 56, -1 },
	{ true, 9, 1, 0, 13, 14, 19, 21, -1, 26, 8, 16, 32, 56, -1 },
};

static const struct {
	bool valkey;
	int major, minor;
} unknown[] = {
	{ false, 6, 2 }, { false, 7, 1 }, { false, 8, 7 }, { false, 9, 0 },
	{ true, 7, 0 },	 { true, 8, 2 },  { true, 9, 2 },  { true, 10, 0 },
};

static void check_version(unsigned i)
{
	const struct rk_layout *layout =
		rk_layout_find(expected[i].valkey, expected[i].major,
			       expected[i].minor);
	const char *name = expected[i].valkey ? "valkey" : "redis";
	int major = expected[i].major, minor = expected[i].minor;

	if (!ok(layout, "%s %d.%d has a layout", name, major, minor))
		return;
#define SLOT(method) rk_layout_slot(layout, RK_METHOD_##method)
	ok(SLOT(GET_TYPE) == expected[i].get_type &&
		   SLOT(CLOSE) == expected[i].close &&
		   SLOT(CONNECT) == expected[i].connect &&
		   SLOT(READ) == expected[i].read &&
		   SLOT(SET_READ_HANDLER) == expected[i].set_read &&
		   SLOT(REBIND_LOOP) == expected[i].rebind &&
		   SLOT(HAS_PENDING) == expected[i].pending,
	   "%s %d.%d: the methods are in their slots", name, major, minor);
	ok(layout->at->state == expected[i].state &&
		   layout->at->fd == expected[i].fd &&
		   layout->at->private_data == expected[i].private_data &&
		   layout->at->read_handler == expected[i].read_handler &&
		   layout->at->loop == expected[i].loop,
	   "%s %d.%d: the fields are at their offsets", name, major, minor);
	ok(layout->at->bytes <= RK_CONN_BYTES &&
		   layout->order_count <= RK_SLOTS_MAX,
	   "%s %d.%d fits into what is kept for it", name, major, minor);
}

int main(void)
{
	for (unsigned i = 0; i < sizeof(expected) / sizeof(*expected); i++)
		check_version(i);
	for (unsigned i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
		ok(!rk_layout_find(unknown[i].valkey, unknown[i].major,
				   unknown[i].minor),
		   "%s %d.%d is not guessed at",
		   unknown[i].valkey ? "valkey" : "redis", unknown[i].major,
		   unknown[i].minor);
	return ok_done();
}
