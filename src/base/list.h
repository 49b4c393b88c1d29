/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A circular doubly linked list of embedded nodes.  A node that is in no list
 * points at itself, so removing it twice is harmless.
 */
#ifndef RK_BASE_LIST_H
#define RK_BASE_LIST_H

#include <stdbool.h>

#include "base/compiler.h"

struct rk_list {
	struct rk_list *next, *prev;
};

static inline void rk_list_init(struct rk_list *node)
{
	node->next = node->prev = node;
}

static inline bool rk_list_empty(const struct rk_list *head)
{
	return head->next == head;
}

static inline void rk_list_add_tail(struct rk_list *head, struct rk_list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

static inline void rk_list_remove(struct rk_list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	rk_list_init(node);
}

#define rk_list_entry(node, type, member) rk_container_of(node, type, member)

#define rk_list_first(head, type, member) \
	rk_list_entry((head)->next, type, member)

/* The current element may be removed (and freed) inside the loop. */
#define rk_list_for_each_safe(pos, tmp, head)                     \
	for ((pos) = (head)->next, (tmp) = (pos)->next; (pos) != (head); \
	     (pos) = (tmp), (tmp) = (pos)->next)

#endif
