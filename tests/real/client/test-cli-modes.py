#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""rdmakit redis: options, exit codes, the terminal, messages, reconnecting."""
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

from harness import (RDMAKIT, Server, done, equal, eventually, ok, rdmakit,
                     free_port)


class Terminal:
    """The program on a terminal, typed at and read from."""

    def __init__(self, *args):
        self.home = tempfile.mkdtemp(prefix="rdmakit-home-")
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["HOME"] = self.home
            os.environ["TERM"] = "xterm"
            os.execv(RDMAKIT, [RDMAKIT, "redis", *args])

    def read(self):
        while select.select([self.fd], [], [], 0.02)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return False
            if not data:
                return False
            self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "",
                                data.decode("latin-1")).replace("\r", "")
        return True

    def shows(self, text):
        """Until text appears; what came before it is forgotten."""
        def look():
            self.read()
            return text in self.seen
        good = eventually(look)
        if good:
            self.seen = self.seen.split(text, 1)[1]
        return good

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        def gone():
            self.read()
            pid, self.status = os.waitpid(self.pid, os.WNOHANG)
            return pid != 0
        if not eventually(gone, 5):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            return None
        os.close(self.fd)
        return self.status


def options(server):
    tcp = server.uri("tcp")
    for uri in server.uris():
        scheme = uri.split(":")[0]
        r = rdmakit("redis", "-u", uri, "-x", "SET", "k", text="from\nstdin\n")
        equal((r.code, r.out), (0, "OK\n"), f"-x over {scheme}")
        r = rdmakit("redis", "-u", uri, "GET", "k")
        equal(r.out, "from\nstdin\n\n", f"what it wrote, over {scheme}")
    r = rdmakit("redis", "-p", str(server.port), "PING")
    equal((r.code, r.out), (0, "PONG\n"), "without more, -p means RDMA")
    r = rdmakit("redis", "-s", server.unix, "PING")
    equal((r.code, r.out), (0, "PONG\n"), "-s")
    r = rdmakit("redis", "--tcp", "-h", "127.0.0.1", "-p", str(server.port),
                "-n", "3", "CLIENT", "INFO")
    ok(r.code == 0 and " db=3 " in r.out, "--tcp, -h, -n", r)
    start = time.monotonic()
    r = rdmakit("redis", "-u", tcp, "-r", "3", "-i", "0.1", "INCR", "counter")
    equal(r.out, "1\n2\n3\n", "-r runs it so often")
    ok(0.2 <= time.monotonic() - start < 5, "-i waits between")
    r = rdmakit("redis", "-u", tcp, "-e", "NOSUCH")
    ok(r.code == 1 and "unknown command" in r.err, "-e: an error is a failure",
       r)
    r = rdmakit("redis", "-u", tcp, "NOSUCH")
    ok(r.code == 0 and "unknown command" in r.out, "without it, it is not", r)
    for uri in (f"tcp://127.0.0.1:{free_port()}", "unix:///no/such",
                f"rdma://127.0.0.1:{free_port()}", "tcp://no.such.host.invalid"):
        r = rdmakit("redis", "-u", uri, "PING")
        ok(r.code == 1 and not r.out and "cannot connect" in r.err,
           f"nobody at {uri.split(':')[0]}: exit code 1 and why", r)
    r = rdmakit("redis", "-u", tcp, "-n", "99999", "PING")
    ok(r.code == 1 and "DB index" in r.err, "a database that is not there", r)
    for bad in (["--nosuch"], ["-p", "0"], ["-p"], ["-u", "what"],
                ["-i", "x"]):
        r = rdmakit("redis", *bad, "PING")
        ok(r.code == 2 and "--help" in r.err, f"{bad} is refused", r)
    r = rdmakit("redis", "--help")
    ok(r.code == 0 and "Usage" in r.out, "--help", r)
    r = rdmakit("bnech")
    ok(r.code == 2 and "bench" in r.err, "a wrong word: the nearest is named",
       r)


def passwords():
    with Server("--requirepass", "geheim") as server:
        tcp = server.uri("tcp")
        for scheme in ("tcp", "unix", "rdma"):
            uri = server.uri(scheme).replace("://", "://:geheim@")
            equal(rdmakit("redis", "-u", uri, "PING").out, "PONG\n",
                  f"a password in the URI, {scheme}")
        equal(rdmakit("redis", "-u", tcp, "-a", "geheim", "PING").out,
              "PONG\n", "-a")
        equal(rdmakit("redis", "-u", tcp, "-a", "geheim", "--user", "default",
                      "PING").out, "PONG\n", "--user")
        r = rdmakit("redis", "-u", tcp, "PING",
                    env={**os.environ, "REDISCLI_AUTH": "geheim"})
        equal(r.out, "PONG\n", "REDISCLI_AUTH")
        r = rdmakit("redis", "-u", tcp, "-a", "falsch", "PING")
        ok(r.code == 1 and "WRONGPASS" in r.err and "falsch" not in r.err,
           "a wrong one", r)
        r = rdmakit("bench", "redis", "-n", "100", "-c", "2", "--rounds", "1",
                    *[u.replace("://", "://:geheim@") for u in server.uris()])
        ok(r.code == 0 and "geheim" not in r.out, "the benchmark logs in too",
           r)


def messages(server, scheme):
    uri = server.uri(scheme)
    reader = subprocess.Popen([RDMAKIT, "redis", "-u", uri, "--no-raw",
                               "SUBSCRIBE", "news"], stdout=subprocess.PIPE)
    ok(eventually(lambda: server.redis_cli("PUBLISH", "news", "first").out ==
                  "1\n"), f"SUBSCRIBE over {scheme} subscribes")
    seen = b""
    end = time.monotonic() + 10
    while b'"first"' not in seen and time.monotonic() < end:
        if select.select([reader.stdout], [], [], 1)[0]:
            seen += os.read(reader.stdout.fileno(), 4096)
    ok(b"Reading messages" in seen and b'1) "message"' in seen and
       b'3) "first"' in seen, "and messages are printed as they come", seen)
    reader.send_signal(signal.SIGINT)
    reader.wait(10)
    ok(eventually(lambda: server.redis_cli("PUBLISH", "news", "x").out ==
                  "0\n"), "Ctrl-C ends it, and the server knows")


def terminal(server, scheme):
    place = {"unix": f"redis {server.unix}"}.get(
        scheme, f"127.0.0.1:{server.port}")
    t = Terminal("-u", server.uri(scheme))
    ok(t.shows(f"{place}> "), f"a prompt, over {scheme}", t.seen)
    t.type('SET "a key" \'a value\'\n')
    ok(t.shows("OK\n") and t.shows(f"{place}> "), "a command", t.seen)
    t.type('GET "a key"\n')
    ok(t.shows('"a value"\n'), "annotated, since it is a terminal", t.seen)
    t.type("SELECT 2\n")
    ok(t.shows(f"{place}[2]> "), "the database is in the prompt", t.seen)
    t.type("MULTI\n")
    ok(t.shows(f"{place}[2](TX)> "), "a transaction too", t.seen)
    server.redis_cli("-n", "2", "DEL", "n")
    t.type("INCR n\n")
    ok(t.shows("QUEUED"), "it queues", t.seen)
    t.type("EXEC\n")
    ok(t.shows("1) (integer) 1") and t.shows(f"{place}[2]> "), "and runs",
       t.seen)
    t.type("BLPOP nothing 0\n")
    eventually(lambda: "blocked_clients:1" in
               server.redis_cli("INFO", "clients").out)
    t.type("\x03")
    ok(t.shows(f"not connected> "), "Ctrl-C ends a command that blocks",
       t.seen)
    t.type("PING\n")
    ok(t.shows("PONG") and t.shows(f"{place}[2]> "),
       "the next one connects again, to the same database", t.seen)
    t.type("SUBSCRIBE news\n")
    ok(t.shows("Reading messages"), "SUBSCRIBE reads", t.seen)
    eventually(lambda: server.redis_cli("PUBLISH", "news", "hear").out ==
               "1\n")
    ok(t.shows('"hear"'), "messages", t.seen)
    t.type("\x03")
    ok(t.shows("> "), "until Ctrl-C", t.seen)
    t.type("MONITOR\n")
    ok(t.shows("OK"), "MONITOR begins", t.seen)
    eventually(lambda: server.redis_cli("ECHO", "seen-by-monitor").code == 0
               and t.read() and "seen-by-monitor" in t.seen)
    ok(t.shows("seen-by-monitor"), "and shows what others do", t.seen)
    t.type("\x03")
    ok(t.shows("> "), "until Ctrl-C", t.seen)
    t.type("PING\n")
    ok(t.shows("PONG"), "and then answers again", t.seen)
    server.redis_cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    t.type("ECHO back\n")
    ok(t.shows('"back"'), "killed by the server, it connects again", t.seen)
    t.type("AUTH hidden-word\nquit\n")
    equal(t.end(), 0, "quit ends it")
    try:
        with open(f"{t.home}/.rdmakit_redis_history", encoding="utf-8") as f:
            history = f.read()
    except OSError as error:
        history = str(error)
    ok("MULTI" in history and "hidden-word" not in history,
       "history is kept, without passwords", history)


def pushes(server):
    t = Terminal("-u", server.uri("tcp"), "-3")
    t.shows("> ")
    t.type("CLIENT TRACKING ON\n")
    t.shows("OK")
    t.type("GET watched\n")
    t.shows("(nil)")
    server.redis_cli("SET", "watched", "1")
    t.type("PING\n")
    ok(t.shows("invalidate: 'watched'") and t.shows("PONG"),
       "pushes are shown", t.seen)
    t.type("\x04")
    equal(t.end(), 0, "Ctrl-D ends it")


def has_terminals():
    """A root without /dev/pts has none."""
    try:
        for fd in pty.openpty():
            os.close(fd)
    except OSError:
        return False
    return True


def main():
    with Server() as server:
        options(server)
        for scheme in ("tcp", "unix", "rdma"):
            messages(server, scheme)
        if has_terminals():
            for scheme in ("tcp", "rdma"):
                terminal(server, scheme)
            pushes(server)
        else:
            ok(True, "on a terminal # SKIP no /dev/pts here")
    passwords()
    return done()


if __name__ == "__main__":
    sys.exit(main())
