# SPDX-License-Identifier: BSD-3-Clause
"""A stock redis-server with the module for clients to talk to, and TAP.

The server runs in a folder of its own on a port that was free, over TCP, a
unix socket and RDMA at once, with no persistence.  RDMAKIT, RDMAKIT_MODULE
and RDMAKIT_STOPPED name the files under test; RDMAKIT_PRELOAD, if set, is
what a sanitized module needs in a server that is not.
"""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

RDMAKIT = os.environ["RDMAKIT"]
MODULE = os.environ["RDMAKIT_MODULE"]
PATIENCE = 20.0

count = failed = 0


def ok(good, name, note=""):
    global count, failed
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {name}", flush=True)
    if not good:
        failed += 1
        if note != "":
            print("# " + str(note)[:3000].replace("\n", "\n# "), flush=True)
    return good


def equal(found, expected, name):
    return ok(found == expected, name,
              f"expected {expected!r:.1200}\nfound    {found!r:.1200}")


def done():
    print(f"1..{count}", flush=True)
    return 1 if failed else 0


def eventually(condition, seconds=PATIENCE):
    """Look until it is true; what it was at last."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.02)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, *options):
        self.dir = tempfile.mkdtemp(prefix="rdmakit-client-")
        self.port = free_port()
        self.unix = f"{self.dir}/redis.sock"
        self.log = f"{self.dir}/log"
        env = dict(os.environ)
        if os.environ.get("RDMAKIT_PRELOAD"):
            env["LD_PRELOAD"] = os.environ["RDMAKIT_PRELOAD"]
            # The server's own at exit are not ours to count.
            env["ASAN_OPTIONS"] = "detect_leaks=0"
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1",
             "--unixsocket", self.unix, "--save", "", "--appendonly", "no",
             "--dir", self.dir, "--logfile", self.log,
             "--enable-debug-command", "yes", "--loadmodule", MODULE,
             *options], stdout=subprocess.DEVNULL, env=env)
        if not eventually(self.answers):
            with open(self.log, encoding="utf-8") as log:
                print("Bail out! redis-server did not start:\n# " +
                      log.read().replace("\n", "\n# "), flush=True)
            self.stop()
            raise SystemExit(1)

    def answers(self):
        """A connection alone says nothing: modules are loaded after the
        sockets listen."""
        out = self.redis_cli("PING").out
        return out == "PONG\n" or out.startswith("NOAUTH")

    def uri(self, scheme):
        if scheme == "unix":
            return f"unix://{self.unix}"
        return f"{scheme}://127.0.0.1:{self.port}"

    def uris(self):
        return [self.uri(s) for s in ("rdma", "tcp", "unix")]

    def redis_cli(self, *args, **kwargs):
        return run("redis-cli", "-p", str(self.port), *args, **kwargs)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()


class Outcome:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"exit code {self.code}\n{self.out}\n{self.err}"


def run(*command, text=None, seconds=PATIENCE, **kwargs):
    """Output is latin-1, so that any byte is one character."""
    data = None if text is None else text.encode("latin-1")
    if data is None:
        kwargs.setdefault("stdin", subprocess.DEVNULL)
    try:
        process = subprocess.run(command, input=data, capture_output=True,
                                 timeout=seconds, check=False, **kwargs)
    except subprocess.TimeoutExpired as late:
        return Outcome(None, (late.stdout or b"").decode("latin-1"),
                       (late.stderr or b"").decode("latin-1"))
    return Outcome(process.returncode, process.stdout.decode("latin-1"),
                   process.stderr.decode("latin-1"))


def rdmakit(*args, **kwargs):
    return run(RDMAKIT, *args, **kwargs)
