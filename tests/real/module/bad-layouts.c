/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wrong layouts, for the test of the guard: takes the place of layout.c in a
 * module of its own.  RDMAKIT_TEST_LAYOUT names the mistake.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/module/layout.h"

/* The real tables, under another name for what is found. */
const struct rk_layout *rk_layout_find_real(bool valkey, int major, int minor);
#define rk_layout_find rk_layout_find_real
#include "redis/module/layout.c"
#undef rk_layout_find

static struct rk_layout layout;
static struct rk_conn_offsets at;
static uint8_t order[RK_SLOTS_MAX];

static void swap(enum rk_method a, enum rk_method b)
{
	int i = rk_layout_slot(&layout, a), j = rk_layout_slot(&layout, b);

	order[i] = b;
	order[j] = a;
}

static void make_mistake(const char *mistake)
{
	if (!strcmp(mistake, "unknown-version"))
		return;
	if (!strcmp(mistake, "table-bytes"))
		layout.slots++;
	else if (!strcmp(mistake, "state"))
		at.state = 12;
	else if (!strcmp(mistake, "fd"))
		at.fd = 20;
	else if (!strcmp(mistake, "flags"))
		at.flags = 14;
	else if (!strcmp(mistake, "last-errno"))
		at.last_errno = 20;
	else if (!strcmp(mistake, "private-data"))
		at.private_data = 40;
	else if (!strcmp(mistake, "read-handler"))
		at.read_handler = 32;
	else if (!strcmp(mistake, "write-handler"))
		at.write_handler = 48;
	else if (!strcmp(mistake, "read-and-write"))
		swap(RK_METHOD_READ, RK_METHOD_WRITE);
	else if (!strcmp(mistake, "write-and-writev"))
		swap(RK_METHOD_WRITE, RK_METHOD_WRITEV);
	else if (!strcmp(mistake, "handlers"))
		swap(RK_METHOD_SET_READ_HANDLER, RK_METHOD_SET_WRITE_HANDLER);
	else if (!strcmp(mistake, "close-and-read"))
		swap(RK_METHOD_CLOSE, RK_METHOD_READ);
	else if (!strcmp(mistake, "last-error"))
		swap(RK_METHOD_LAST_ERROR, RK_METHOD_CLOSE);
	else if (!strcmp(mistake, "other-version"))
		layout = redis_7_2;
	else if (strcmp(mistake, "none"))
		abort();
}

const struct rk_layout *rk_layout_find(bool valkey, int major, int minor)
{
	const char *mistake = getenv("RDMAKIT_TEST_LAYOUT");
	const struct rk_layout *real = rk_layout_find_real(valkey, major, minor);

	if (!mistake || !real)
		return real;
	layout = *real;
	at = *real->at;
	layout.at = &at;
	memcpy(order, real->order, real->order_count);
	layout.order = order;
	make_mistake(mistake);
	return strcmp(mistake, "unknown-version") ? &layout : NULL;
}
