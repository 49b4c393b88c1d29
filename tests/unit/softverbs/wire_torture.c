/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes exchange records over many lanes while a third stops them and
 * kills one of them at any moment; in some sessions a hostile fourth scribbles
 * beside them.  Checked: order, loss, duplication, payload, one-sided bytes
 * before the record that follows them, and that nobody sleeps for ever (both
 * sleep without a time-out).
 *
 * Usage: wire_torture [SECONDS [SEED]]
 */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "ok.h"
#include "wire_torture.h"

struct torture *shared;
uint64_t seed;

struct totals {
	unsigned sessions, complete, killed[2], stops, with_hostile;
	uint64_t records, rejects;
};

static pid_t start(unsigned role, uint64_t session_seed)
{
	static int (*const roles[ROLES])(void) = { torture_producer,
						   torture_consumer,
						   torture_hostile };
	pid_t parent = getpid(), child;

	fflush(stdout);
	child = fork();
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(9);
	seed = session_seed * (role + 3) | 1;
	while (role != CONSUMER && !shared->port)
		usleep(100);
	_exit(roles[role]());
}

static bool has_ended(pid_t pid)
{
	siginfo_t info = { .si_pid = 0 };

	return !waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) &&
	       info.si_pid;
}

static void stop_one(pid_t pid, struct totals *totals)
{
	kill(pid, SIGSTOP);
	usleep((useconds_t)(next_random() % 6000));
	kill(pid, SIGCONT);
	totals->stops++;
}

/* The two must end by themselves once one of them has. */
static void reap(const pid_t *pids)
{
	uint64_t until_ns = rk_now_ns() + QUIET_S * RK_NS_PER_S;
	bool reaped[2] = { false, false };

	while (!(reaped[0] && reaped[1])) {
		for (unsigned i = 0; i < 2; i++) {
			int status;

			if (reaped[i] ||
			    waitpid(pids[i], &status, WNOHANG) != pids[i])
				continue;
			reaped[i] = true;
			if (WIFSIGNALED(status) ?
				    WTERMSIG(status) != SIGKILL :
				    WEXITSTATUS(status) != 0)
				shared->failures++;
		}
		if (rk_now_ns() > until_ns) {
			printf("# the %s is not told\n",
			       reaped[PRODUCER] ? "consumer" : "producer");
			shared->failures++;
			kill(pids[0], SIGKILL);
			kill(pids[1], SIGKILL);
			until_ns = UINT64_MAX;
		}
		usleep(200);
	}
}

static void session(struct totals *totals)
{
	uint64_t session_seed = next_random(), before = 0, now_ns, quiet_ns;
	uint64_t kill_ns = rk_now_ns() +
			   (20 + next_random() % 300) * RK_NS_PER_MS;
	unsigned victim = (unsigned)(next_random() % 3);
	unsigned roles = next_random() % 3 ? 2 : ROLES;
	pid_t pids[ROLES];

	memset(shared, 0, sizeof(*shared));
	for (unsigned i = 0; i < roles; i++)
		pids[i] = start(i, session_seed);
	quiet_ns = rk_now_ns();
	while (!has_ended(pids[PRODUCER]) && !has_ended(pids[CONSUMER])) {
		uint64_t sum = shared->progress[PRODUCER] +
			       shared->progress[CONSUMER];

		usleep((useconds_t)(next_random() % 3000));
		now_ns = rk_now_ns();
		if (sum != before)
			quiet_ns = now_ns;
		before = sum;
		if (now_ns - quiet_ns > QUIET_S * RK_NS_PER_S) {
			printf("# hang after %lu records\n",
			       shared->progress[CONSUMER]);
			shared->failures++;
			break;
		}
		if (victim < 2 && now_ns > kill_ns && sum) {
			kill(pids[victim], SIGKILL);
			totals->killed[victim]++;
			break;
		}
		if (next_random() % 3 == 0)
			stop_one(pids[next_random() % roles], totals);
	}
	reap(pids);
	if (roles == ROLES) {
		kill(pids[HOSTILE], SIGKILL);
		waitpid(pids[HOSTILE], NULL, 0);
		totals->with_hostile++;
	}
	totals->sessions++;
	totals->complete += shared->done != 0;
	totals->records += shared->progress[CONSUMER];
	totals->rejects += shared->rejects;
	if (shared->failures)
		printf("# failed: session seed %lu\n", session_seed);
}

int main(int argc, char **argv)
{
	uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 0) : 6;
	uint64_t until_ns = rk_now_ns() + seconds * RK_NS_PER_S;
	struct totals totals = { 0 };
	bool good = true;

	seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261201;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	rk_log_set_level(RK_LOG_ERROR);
	while (good && rk_now_ns() < until_ns) {
		session(&totals);
		good = !shared->failures;
	}
	ok(good, "%u sessions (%u complete, %u producers and %u consumers "
	   "killed, %u beside a hostile process), %u stops",
	   totals.sessions, totals.complete, totals.killed[PRODUCER],
	   totals.killed[CONSUMER], totals.with_hostile, totals.stops);
	ok(totals.records > 100, "%lu records checked, %lu hostile ones "
	   "refused", totals.records, totals.rejects);
	return ok_done();
}
