/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One thread reads while the owner takes what arrives: no byte is lost or
 * doubled, with one window and with two, and no window is forgotten.
 */
#include <pthread.h>
#include <sched.h>

#include "script.h"

enum { LENGTH = 65536, TOTAL = 24 << 20 };

struct reader {
	struct rk_stream *stream;
	bool peeks;
	int wrong; /* shared */
	int kick;  /* shared: the owner is to service the stream */
	uint64_t got;
};

static uint8_t byte_at(uint64_t at)
{
	return (uint8_t)(at ^ at >> 8 ^ at >> 16);
}

static size_t read_some(struct reader *r, uint8_t *buffer, size_t most)
{
	struct iovec piece[2];
	ssize_t n;

	if (!r->peeks) {
		n = rk_stream_read_offthread(r->stream, buffer, most);
		return n < 0 ? 0 : (size_t)n;
	}
	if (!rk_stream_peek(r->stream, piece))
		return 0;
	most = rk_min(most, piece[0].iov_len);
	memcpy(buffer, piece[0].iov_base, most);
	rk_stream_consume_offthread(r->stream, most);
	return most;
}

static void *read_all(void *arg)
{
	struct reader *r = arg;
	static uint8_t buffer[100000];
	unsigned step = 1;

	while (r->got < TOTAL) {
		size_t n = read_some(r, buffer, 1 + step * 7919 % 99999);

		if (!n)
			sched_yield();
		step++;
		for (size_t i = 0; i < n; i++)
			if (buffer[i] != byte_at(r->got + i))
				rk_store(&r->wrong, 1);
		r->got += n;
		if (rk_stream_due(r->stream))
			rk_store_release(&r->kick, 1);
	}
	return NULL;
}

static void beside_the_owner(bool peeks, bool one_window)
{
	static const struct rk_stream_params params = { .window_bytes = LENGTH };
	struct script *sc = script_new();
	struct rk_stream_stats stats;
	struct reader r = { .peeks = peeks };
	uint64_t sent = 0, end_ns = rk_now_ns() + 60 * RK_NS_PER_S;
	static uint8_t chunk[LENGTH];
	uint32_t at = 0, windows = 1;
	pthread_t thread;

	script_up(sc, STREAM_SERVER, &params);
	sc->mem_fails = one_window ? 1000000 : 0;
	r.stream = sc->stream;
	ok_or_die(!pthread_create(&thread, NULL, read_all, &r), "a reader");
	while (sent < TOTAL && rk_now_ns() < end_ns) {
		uint32_t n = 1 + (uint32_t)(sent * 31 % 20000);

		if (__atomic_exchange_n(&r.kick, 0, __ATOMIC_ACQUIRE))
			rk_stream_service(sc->stream);
		script_complete(sc);
		sc->ops = sc->completed = 0;
		rk_stream_stats_get(sc->stream, &stats);
		if (at == LENGTH && stats.windows_announced == windows) {
			sched_yield();
			continue;
		}
		if (at == LENGTH) {
			windows = (uint32_t)stats.windows_announced;
			at = 0;
		}
		n = rk_min(n, LENGTH - at);
		for (uint32_t i = 0; i < n; i++)
			chunk[i] = byte_at(sent + i);
		script_peer_writes(sc, at, chunk, n);
		at += n;
		sent += n;
	}
	ok_or_die(sent == TOTAL, "no window was forgotten");
	pthread_join(thread, NULL);
	ok(r.got == TOTAL && !rk_load(&r.wrong), "every byte%s, %s",
	   peeks ? ", seen in place" : "",
	   one_window ? "one window" : "two windows");
	ok(one_window == (sc->mems == 1), "that many windows");
	script_end(sc);
}

int main(void)
{
	beside_the_owner(false, false);
	beside_the_owner(true, false);
	beside_the_owner(false, true);
	beside_the_owner(true, true);
	return ok_done();
}
