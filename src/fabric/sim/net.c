/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The clock and what happens next: a binary heap of events by time, events of
 * the same time in the order they were made; beside it the timers of the
 * contexts.  The one generator of random numbers and the trace are here too.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fabric/sim/internal.h"

enum { EVENTS_MAX = 50 * 1000 * 1000 };

/* The simulator's own memory: outside of the count that tests take. */
void *sim_must_calloc(size_t count, size_t bytes)
{
	void *p = calloc(count ? count : 1, bytes ? bytes : 1);

	if (!p) {
		fprintf(stderr, "simulator: out of memory\n");
		abort();
	}
	return p;
}

struct sim_net *sim_open(uint64_t seed)
{
	struct sim_net *net = sim_must_calloc(1, sizeof(*net));

	net->random = seed;
	net->now_ns = RK_NS_PER_S;
	net->knobs = (struct sim_knobs){
		.delay_min_ns = 1000,
		.delay_max_ns = 20000,
		.completion_max_ns = 5000,
		.process_max_ns = 2000,
		.rnr_wait_ns = 100000,
		.retry_ns = 500 * RK_NS_PER_MS,
		.memory_fail_at = -1,
		.inline_bytes = 256,
		.pieces = RK_PIECES_MAX,
	};
	rk_list_init(&net->contexts);
	rk_list_init(&net->listeners);
	return net;
}

static struct event *heap_pop(struct sim_net *net);

void sim_close(struct sim_net *net)
{
	struct rk_list *pos, *tmp;
	struct event *event;

	if (!net)
		return;
	rk_list_for_each_safe (pos, tmp, &net->contexts)
		rk_context_close(
			&rk_list_entry(pos, struct sim_context, node)->base);
	while ((event = heap_pop(net))) {
		sim_pair_put(event->pair);
		free(event);
	}
	free(net->heap);
	free(net->regions);
	free(net);
}

struct sim_knobs *sim_knobs(struct sim_net *net)
{
	return &net->knobs;
}

uint64_t sim_now_ns(const struct sim_net *net)
{
	return net->now_ns;
}

uint64_t sim_random(struct sim_net *net, uint64_t limit)
{
	uint64_t z = net->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	z ^= z >> 31;
	return limit ? z % limit : 0;
}

bool sim_chance(struct sim_net *net, unsigned of_1000)
{
	return of_1000 && sim_random(net, 1000) < of_1000;
}

uint64_t sim_delay_ns(struct sim_net *net)
{
	const struct sim_knobs *k = &net->knobs;

	if (k->delay_max_ns <= k->delay_min_ns)
		return k->delay_min_ns;
	return k->delay_min_ns +
	       sim_random(net, k->delay_max_ns - k->delay_min_ns + 1);
}

static bool is_before(const struct event *a, const struct event *b)
{
	if (a->at_ns != b->at_ns)
		return a->at_ns < b->at_ns;
	return a->sequence < b->sequence;
}

struct event *sim_event_new(struct sim_net *net, enum event_kind kind,
			    struct pair *pair, enum side side)
{
	struct event *event = sim_must_calloc(1, sizeof(*event));

	event->kind = kind;
	event->side = side;
	event->pair = pair;
	if (pair)
		pair->references++;
	return event;
}

void sim_event_push(struct sim_net *net, struct event *event, uint64_t at_ns)
{
	size_t i = net->heap_count++;

	if (net->heap_count > net->heap_room) {
		size_t room = net->heap_room ? net->heap_room * 2 : 64;
		struct event **heap = sim_must_calloc(room, sizeof(*heap));

		if (net->heap)
			memcpy(heap, net->heap, i * sizeof(*heap));
		free(net->heap);
		net->heap = heap;
		net->heap_room = room;
	}
	net->timeouts += event->kind == EVENT_TIMEOUT;
	event->at_ns = rk_max(at_ns, net->now_ns);
	event->sequence = net->sequence++;
	while (i && is_before(event, net->heap[(i - 1) / 2])) {
		net->heap[i] = net->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	net->heap[i] = event;
}

static struct event *heap_pop(struct sim_net *net)
{
	struct event *top, *last;
	size_t i = 0, child;

	if (!net->heap_count)
		return NULL;
	top = net->heap[0];
	net->timeouts -= top->kind == EVENT_TIMEOUT;
	last = net->heap[--net->heap_count];
	while ((child = 2 * i + 1) < net->heap_count) {
		if (child + 1 < net->heap_count &&
		    is_before(net->heap[child + 1], net->heap[child]))
			child++;
		if (is_before(last, net->heap[child]))
			break;
		net->heap[i] = net->heap[child];
		i = child;
	}
	net->heap[i] = last;
	return top;
}

/* The context whose timer is due first; NULL: no timer is set. */
static struct sim_context *first_timer(struct sim_net *net, uint64_t *at_ns)
{
	struct sim_context *context, *first = NULL;
	struct rk_list *pos, *tmp;
	uint64_t deadline_ns;

	*at_ns = RK_NEVER;
	rk_list_for_each_safe (pos, tmp, &net->contexts) {
		context = rk_list_entry(pos, struct sim_context, node);
		if (context->held || context->crashed)
			continue;
		deadline_ns = rk_context_deadline_ns(&context->base);
		if (deadline_ns < *at_ns) {
			*at_ns = deadline_ns;
			first = context;
		}
	}
	return first;
}

static void dispatch(struct event *event)
{
	switch (event->kind) {
	case EVENT_PROCESS:
		if (!event->context)
			break; /* closed meanwhile */
		event->context->process_pending = false;
		sim_context_run(event->context);
		break;
	case EVENT_DELIVER:
		sim_pipe_deliver(event->pair, event->side);
		break;
	case EVENT_ACK:
		sim_pipe_ack(event);
		break;
	case EVENT_REQUEST:
	case EVENT_REPLY:
	case EVENT_REJECT:
	case EVENT_READY:
	case EVENT_CANCEL:
	case EVENT_TIMEOUT:
	case EVENT_FAIL:
	case EVENT_LOCAL_CLOSED:
		sim_conn_event(event);
		break;
	}
	sim_pair_put(event->pair);
	free(event);
}

/* Run the next event if it is not later than limit_ns. */
static bool step(struct sim_net *net, uint64_t limit_ns, bool timers_too)
{
	struct sim_context *context;
	uint64_t timer_ns, event_ns;

	event_ns = net->heap_count ? net->heap[0]->at_ns : RK_NEVER;
	context = first_timer(net, &timer_ns);
	if (!timers_too && net->heap_count == net->timeouts &&
	    rk_min(timer_ns, event_ns) > net->now_ns)
		return false;
	if (context && timer_ns < event_ns) {
		if (timer_ns > limit_ns)
			return false;
		net->now_ns = rk_max(net->now_ns, timer_ns);
		sim_context_run(context);
		return true;
	}
	if (event_ns > limit_ns || !net->heap_count)
		return false;
	net->now_ns = event_ns;
	dispatch(heap_pop(net));
	return true;
}

bool sim_step(struct sim_net *net)
{
	return step(net, RK_NEVER, true);
}

static uint64_t run(struct sim_net *net, uint64_t limit_ns, bool timers_too)
{
	uint64_t count = 0;

	while (step(net, limit_ns, timers_too)) {
		if (++count == EVENTS_MAX) {
			sim_mistake(net, NULL, "does not settle");
			break;
		}
	}
	return count;
}

uint64_t sim_run(struct sim_net *net, uint64_t for_ns)
{
	uint64_t limit_ns = net->now_ns + for_ns;
	uint64_t count;

	if (limit_ns < net->now_ns)
		limit_ns = RK_NEVER - 1;
	count = run(net, limit_ns, true);
	if (for_ns != RK_NEVER)
		net->now_ns = rk_max(net->now_ns, limit_ns);
	return count;
}

uint64_t sim_settle(struct sim_net *net)
{
	return run(net, RK_NEVER - 1, false);
}

uint64_t sim_hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
	const uint8_t *p = data;
	uint64_t word;

	for (; bytes >= sizeof(word); bytes -= sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		p += sizeof(word);
		hash = (hash ^ word) * 0x9fb21c651e98df25ull;
		hash ^= hash >> 32;
	}
	while (bytes--)
		hash = (hash ^ *p++) * 0x100000001b3ull;
	return hash;
}

void sim_trace(struct sim_net *net, const char *what, const struct pair *pair,
	       enum side side, uint64_t a, uint64_t b)
{
	uint64_t words[] = { net->now_ns, pair ? pair->id : 0, side, a, b };

	net->trace_hash = sim_hash_bytes(net->trace_hash, what, strlen(what));
	net->trace_hash = sim_hash_bytes(net->trace_hash, words, sizeof(words));
	if (net->trace)
		fprintf(net->trace, "%12llu ns  pair %u %s  %-12s %llu %llu\n",
			(unsigned long long)net->now_ns, pair ? pair->id : 0,
			side == ACTIVE ? "active " : "passive", what,
			(unsigned long long)a, (unsigned long long)b);
}

void sim_mistake(struct sim_net *net, const struct pair *pair,
		 const char *format, ...)
{
	char text[160];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	sim_trace(net, text, pair, ACTIVE, 0, 0);
	if (net->knobs.tolerate_mistakes)
		return;
	if (!net->errors++)
		snprintf(net->error_text, sizeof(net->error_text),
			 "at %llu ns, pair %u: %s",
			 (unsigned long long)net->now_ns, pair ? pair->id : 0,
			 text);
}

unsigned sim_errors(const struct sim_net *net)
{
	return net->errors;
}

const char *sim_error_text(const struct sim_net *net)
{
	return net->error_text;
}

unsigned sim_connections_live(const struct sim_net *net)
{
	return net->connections;
}

uint64_t sim_memory_live(const struct sim_net *net)
{
	return net->memory_bytes;
}

uint64_t sim_trace_hash(const struct sim_net *net)
{
	return net->trace_hash;
}

void sim_trace_to(struct sim_net *net, FILE *file)
{
	net->trace = file;
}

void sim_pair_put(struct pair *pair)
{
	if (!pair || --pair->references)
		return;
	sim_pipe_purge(&pair->from[ACTIVE]);
	sim_pipe_purge(&pair->from[PASSIVE]);
	free(pair);
}
