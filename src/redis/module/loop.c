/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One pass: let the device work, take over what I/O threads handed over, call
 * each link that is ready once, then either stay awake (the kick) or arm the
 * device and let the server sleep.
 *
 * The polled descriptor is an epoll set of the three, so that a pass of the
 * server's loop is one call of ours however many of them are readable: a
 * server whose I/O threads read must see a read handler once per pass.
 *
 * Threads: the owner, but for the hand-over list, which is a stack that any
 * thread pushes to and the owner takes whole.
 */
#include "loop.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "link.h"

/* Whether spinning pays: see spin(). */
enum { LUCK_MAX = 8, LUCK_LOST = 2, LUCK_RETRY = 64 };

/* How long a pass without work looks at the device before the server's loop
 * goes round: about what going round costs.  Other clients wait so long. */
enum { LINGER_NS = 4000 };

static struct {
	int poll_fd, kick_fd, timer_fd;
	void *main;
	struct rk_list ready;
	uint64_t pass;
	uint64_t last_work_ns;
	bool spinning;
	int luck;	      /* 0 to LUCK_MAX */
	unsigned not_spun;    /* since luck ran out */
	uint64_t timer_at_ns; /* what timer_fd is set to */
	int kicked;	      /* kick_fd is readable; any thread */
	struct rk_link *handed;
	struct rk_fd_set watched;
} loop = { .poll_fd = -1, .kick_fd = -1, .timer_fd = -1 };

struct rk_loop_counts rk_loop_counts;

static void kick(void)
{
	static const uint64_t one = 1;

	if (__atomic_exchange_n(&loop.kicked, 1, __ATOMIC_SEQ_CST))
		return;
	while (write(loop.kick_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void stay_awake(void)
{
	if (!rk_load(&loop.kicked)) {
		rk_loop_counts.kicks++;
		kick();
	}
}

static void drain_kick(void)
{
	uint64_t value;

	if (!rk_load(&loop.kicked))
		return;
	while (read(loop.kick_fd, &value, sizeof(value)) < 0 && errno == EINTR)
		;
	/* Whoever hands over after this kicks; whoever did before is seen by
	 * the look at the list that follows. */
	__atomic_store_n(&loop.kicked, 0, __ATOMIC_SEQ_CST);
}

static void set_timer(uint64_t at_ns)
{
	struct itimerspec spec = { 0 };

	/* A timer that comes too early costs one idle pass. */
	if (at_ns == RK_NEVER || at_ns >= loop.timer_at_ns)
		return;
	spec.it_value.tv_sec = (time_t)(at_ns / RK_NS_PER_S);
	spec.it_value.tv_nsec = (long)(at_ns % RK_NS_PER_S) + 1;
	timerfd_settime(loop.timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
	loop.timer_at_ns = at_ns;
}

static void drain_timer(uint64_t now_ns)
{
	uint64_t value;

	if (now_ns < loop.timer_at_ns)
		return;
	if (read(loop.timer_fd, &value, sizeof(value)) < 0 && errno == EAGAIN)
		return; /* due, but not fired yet: it will be readable */
	loop.timer_at_ns = RK_NEVER;
}

/* ------------------------------------------------------------- the lists */

void rk_loop_mark(struct rk_link *link)
{
	if (rk_list_empty(&link->ready))
		rk_list_add_tail(&loop.ready, &link->ready);
	stay_awake();
}

void rk_loop_unmark(struct rk_link *link)
{
	rk_list_remove(&link->ready);
}

void rk_loop_hand_over(struct rk_link *link)
{
	struct rk_link *first;

	if (__atomic_exchange_n(&link->handed, true, __ATOMIC_SEQ_CST))
		return;
	first = rk_load(&loop.handed);
	do {
		link->handed_next = first;
	} while (!__atomic_compare_exchange_n(&loop.handed, &first, link, true,
					      __ATOMIC_SEQ_CST,
					      __ATOMIC_RELAXED));
	kick();
}

void rk_loop_take_over(void)
{
	struct rk_link *link, *next;

	if (!rk_load(&loop.handed))
		return;
	link = __atomic_exchange_n(&loop.handed, NULL, __ATOMIC_SEQ_CST);
	for (; link; link = next) {
		next = link->handed_next;
		/* From here on it may be handed over again. */
		__atomic_store_n(&link->handed, false, __ATOMIC_SEQ_CST);
		rk_link_take_over(link);
	}
}

/* ---------------------------------------------------------------- a pass */

/*
 * Each link once: those marked meanwhile go behind, and the first that was
 * called in this pass ends it.  A pass inside a handler of this one has a
 * higher number; what it called is not called again here either.
 */
static unsigned serve_ready(uint64_t pass)
{
	struct rk_link *link;
	unsigned served = 0;

	while (!rk_list_empty(&loop.ready)) {
		link = rk_list_first(&loop.ready, struct rk_link, ready);
		if (link->pass >= pass)
			break;
		rk_list_remove(&link->ready);
		link->pass = pass;
		rk_link_serve(link);
		served++;
	}
	return served;
}

/*
 * Stay awake a little longer?  Spinning saves a wake-up when the next request
 * comes soon.  It costs processor time otherwise, and where processors are
 * short it keeps from running the very client that is waited for.  So what
 * came of it is counted: a spin that ends with work adds to our luck, one that
 * ends without takes twice as much, and without luck one in LUCK_RETRY is
 * tried.
 */
static bool spin(uint64_t now_ns)
{
	const uint64_t spin_ns = rk_core.settings.spin_us * RK_NS_PER_US;

	if (now_ns - loop.last_work_ns >= spin_ns) {
		if (loop.spinning)
			loop.luck = rk_max(loop.luck - LUCK_LOST, 0);
		loop.spinning = false;
		return false;
	}
	if (loop.spinning)
		return true;
	if (!loop.luck && ++loop.not_spun < LUCK_RETRY)
		return false;
	loop.not_spun = 0;
	loop.spinning = true;
	return true;
}

/* Events without a link to call are the device's own: they prove nothing. */
static void found_work(uint64_t now_ns, unsigned served)
{
	loop.last_work_ns = now_ns;
	if (!loop.spinning || !served)
		return;
	loop.luck = rk_min(loop.luck + 1, (int)LUCK_MAX);
	loop.spinning = false;
}

/*
 * A pass of a spin that found nothing: going round the server's loop takes
 * system calls, and a request that comes meanwhile waits for all of them.  The
 * client may be waiting for this very processor, so that is offered first.
 */
static unsigned linger(uint64_t now_ns)
{
	uint64_t end_ns = now_ns + LINGER_NS;
	unsigned events;

	sched_yield();
	do {
		rk_pause();
		events = rk_context_process(rk_core.device, 0);
	} while (!events && !rk_load(&loop.handed) && rk_now_ns() < end_ns);
	return events;
}

static void settle(uint64_t now_ns, uint64_t expires_ns)
{
	if (!rk_list_empty(&loop.ready) || spin(now_ns)) {
		stay_awake();
		return;
	}
	drain_kick();
	if (rk_load(&loop.handed) || rk_context_arm(rk_core.device)) {
		stay_awake();
		return;
	}
	set_timer(rk_min(rk_context_deadline_ns(rk_core.device), expires_ns));
	rk_loop_counts.sleeps++;
}

static void on_readable(void *server_loop, int fd, void *data, int mask)
{
	uint64_t now_ns = rk_now_ns(), expires_ns;
	uint64_t pass = ++loop.pass;
	unsigned events, served;

	if (!rk_core.device)
		return; /* the server is going down */
	loop.main = server_loop;
	rk_loop_counts.passes++;
	drain_timer(now_ns);
	events = rk_context_process(rk_core.device, 0);
	if (!events && loop.spinning && rk_list_empty(&loop.ready))
		events = linger(now_ns);
	rk_loop_take_over();
	expires_ns = rk_links_expire(now_ns);
	served = serve_ready(pass);
	if (events || served)
		found_work(now_ns, served);
	settle(now_ns, expires_ns);
}

void rk_loop_wait(uint64_t until_ns)
{
	struct pollfd ready = { .fd = rk_context_fd(rk_core.device),
				.events = POLLIN };
	uint64_t now_ns = rk_now_ns(), wake_ns;
	uint64_t wait_ms = 0;

	if (!rk_context_process(rk_core.device, 0) &&
	    !rk_context_arm(rk_core.device)) {
		wake_ns = rk_min(until_ns,
				 rk_context_deadline_ns(rk_core.device));
		if (wake_ns > now_ns)
			wait_ms = (wake_ns - now_ns) / RK_NS_PER_MS + 1;
		poll(&ready, 1, (int)rk_min(wait_ms, (uint64_t)1000));
		rk_context_process(rk_core.device, 0);
	}
	stay_awake(); /* it may have to be armed again */
}

void rk_loop_touched(void)
{
	if (rk_context_deadline_ns(rk_core.device) < loop.timer_at_ns)
		stay_awake();
}

void *rk_loop_main(void)
{
	return loop.main;
}

/* ------------------------------------------------------------ start, stop */

static int add(int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	if (fd < 0)
		return -errno;
	return epoll_ctl(loop.poll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static void stop(void)
{
	int *fds[] = { &loop.poll_fd, &loop.kick_fd, &loop.timer_fd };
	size_t i;

	for (i = 0; i < RK_ARRAY_SIZE(fds); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
	loop.kicked = 0;
}

int rk_loop_start(void)
{
	int ret;

	rk_list_init(&loop.ready);
	loop.timer_at_ns = RK_NEVER;
	loop.luck = LUCK_MAX;
	loop.poll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop.poll_fd < 0)
		return -errno;
	loop.kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	ret = add(loop.kick_fd);
	if (ret)
		goto err;
	loop.timer_fd = timerfd_create(CLOCK_MONOTONIC,
				       TFD_NONBLOCK | TFD_CLOEXEC);
	ret = add(loop.timer_fd);
	if (ret)
		goto err;
	ret = add(rk_context_fd(rk_core.device));
	if (ret)
		goto err;
	loop.watched.fd[0] = loop.poll_fd;
	loop.watched.count = 1;
	if (rk_server.watch(&loop.watched, on_readable)) {
		ret = -EMFILE; /* the server's loop has no place for it */
		goto err;
	}
	kick(); /* the first pass arms the device */
	return 0;

err:
	stop();
	return ret;
}
