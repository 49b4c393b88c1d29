# SPDX-License-Identifier: BSD-3-Clause
"""A stock redis-server with the module, clients over RDMA, and TAP.

The server runs in a folder of its own on a port that was free; its TCP
listener stays on and is used to look at it from outside.  A client over RDMA
is a process (rdma-pipe) with a socket pair to it, so that it can be stopped
and killed like a real one.

RDMAKIT_MODULE and RDMAKIT_PIPE name the files under test; RDMAKIT_SERVER,
if set, is the command of another server than the distribution's, and
RDMAKIT_SERVER_CONFIG a line for its configuration.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

MODULE = os.environ["RDMAKIT_MODULE"]
PIPE = os.environ["RDMAKIT_PIPE"]
SERVER = os.environ.get("RDMAKIT_SERVER", "redis-server").split()
PRELOAD = os.environ.get("RDMAKIT_PRELOAD", "")
PATIENCE = 40.0  # seconds until something that must happen has not


# ------------------------------------------------------------------------ TAP

class Tap:
    def __init__(self):
        self.count = self.failed = 0

    def ok(self, good, name, note=""):
        self.count += 1
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}", flush=True)
        if not good:
            self.failed += 1
            if note != "":
                print("# " + str(note)[:2000].replace("\n", "\n# "), flush=True)
        return good

    def equal(self, found, expected, name):
        return self.ok(found == expected, name,
                       f"expected {expected!r:.300}\nfound {found!r:.300}")

    def done(self):
        print(f"1..{self.count}", flush=True)
        return 1 if self.failed else 0


def eventually(condition, seconds=PATIENCE):
    """Look until it is true; what it was at last."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.01)


# ----------------------------------------------------------------------- RESP

class Error(str):
    """An error reply."""


class Push(list):
    """A RESP3 push."""


class Closed(Exception):
    """The server ended the connection."""


def encode(*args):
    parts = [b"*%d\r\n" % len(args)]
    for arg in args:
        if not isinstance(arg, bytes):
            arg = str(arg).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(arg), arg))
    return b"".join(parts)


class Client:
    """A connection that speaks RESP on a socket."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(PATIENCE)
        self.buffer = b""

    def send(self, data):
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed() from error

    def _more(self, least=1):
        parts, got = [self.buffer], 0
        while got < least:
            try:
                data = self.sock.recv(1 << 18)
            except ConnectionResetError:
                data = b""
            if not data:
                self.buffer = b"".join(parts)
                raise Closed()
            parts.append(data)
            got += len(data)
        self.buffer = b"".join(parts)

    def _line(self):
        while (end := self.buffer.find(b"\r\n")) < 0:
            self._more()
        line, self.buffer = self.buffer[:end], self.buffer[end + 2:]
        return line

    def _bytes(self, count):
        if len(self.buffer) < count + 2:
            self._more(count + 2 - len(self.buffer))
        data, self.buffer = self.buffer[:count], self.buffer[count + 2:]
        return data

    def read(self):
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return Error(rest.decode())
        if kind in b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._bytes(int(rest))
        if kind == b"*":
            return None if rest == b"-1" else [
                self.read() for _ in range(int(rest))]
        if kind == b">":
            return Push(self.read() for _ in range(int(rest)))
        if kind == b"%":
            return {self.read(): self.read() for _ in range(int(rest))}
        if kind == b"_":
            return None
        raise ValueError(f"not RESP: {line!r}")

    def command(self, *args):
        self.send(encode(*args))
        return self.read()

    __call__ = command

    def silent(self, seconds):
        """Nothing comes for so long."""
        self.sock.settimeout(seconds)
        try:
            self._more()
            return False
        except (socket.timeout, Closed):
            return True
        finally:
            self.sock.settimeout(PATIENCE)

    def ended(self, seconds=PATIENCE):
        """The server ends it, whatever it still says before."""
        self.sock.settimeout(seconds)
        try:
            while True:
                self._more()
        except Closed:
            return True
        except socket.timeout:
            return False

    def close(self):
        self.sock.close()


class RdmaClient(Client):
    def __init__(self, host, port, window=0, source=None, wait=True):
        ours, theirs = socket.socketpair()
        args = [PIPE, host, str(port), str(window)]
        args += [source] if source else []
        self.process = subprocess.Popen(
            args, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE,
            env=dict(os.environ))
        theirs.close()
        super().__init__(ours)
        self.address = None
        if wait:
            self.wait_open()

    def wait_open(self):
        words = self.process.stderr.readline().decode().split()
        if not words or words[0] != "open":
            self.kill()
            raise Closed(" ".join(words))
        self.address = f"{words[1]}:{words[2]}"

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """As kill -9: no last word of any kind."""
        self.process.kill()
        self._reap()

    def close(self):
        """In order."""
        self.sock.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reap()

    def _reap(self):
        self.process.wait()
        self.process.stderr.close()
        self.sock.close()


# --------------------------------------------------------------------- server

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, *settings, module_args=(), module=MODULE, load=True,
                 config=""):
        self.dir = tempfile.mkdtemp(prefix="rdmakit-redis-")
        self.port = free_port()
        self.clients = []
        self.config = os.path.join(self.dir, "redis.conf")
        self.log = os.path.join(self.dir, "log")
        with open(self.config, "w", encoding="ascii") as conf:
            conf.write(f"port {self.port}\nbind 127.0.0.1\nsave ''\n"
                       f"dir {self.dir}\nlogfile {self.log}\n"
                       f"enable-module-command yes\n"
                       f"enable-debug-command yes\n"
                       f"loglevel verbose\n{config}\n"
                       + os.environ.get("RDMAKIT_SERVER_CONFIG", "") + "\n")
            if load:
                conf.write(f"loadmodule {module} {' '.join(module_args)}\n")
        env = dict(os.environ)
        if PRELOAD:
            env["LD_PRELOAD"] = PRELOAD
        self.process = subprocess.Popen(
            [*SERVER, self.config, *settings], env=env,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.started = self._wait_started()
        self.control = self.tcp() if self.started else None

    def _wait_started(self):
        def look():
            if self.process.poll() is not None:
                return "ended"
            try:
                with socket.create_connection(
                        ("127.0.0.1", self.port), 1) as probe:
                    probe.sendall(encode("PING"))
                    return "listens" if probe.recv(100) else None
            except OSError:
                return None
        return eventually(look) == "listens"

    def tcp(self):
        return Client(socket.create_connection(("127.0.0.1", self.port)))

    def rdma(self, host="127.0.0.1", window=0, source=None, wait=True):
        client = RdmaClient(host, self.port, window, source, wait)
        self.clients.append(client)
        return client

    def info(self, section="rdma"):
        text = self.control("INFO", section).decode()
        return dict(line.split(":", 1) for line in text.splitlines()
                    if ":" in line)

    def connections(self):
        info = self.info()
        return sum(int(info["rdma_" + state])
                   for state in ("connections", "arriving", "lingering"))

    def all_gone(self):
        return eventually(lambda: self.connections() == 0)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def log_text(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                return log.read()
        except FileNotFoundError:
            return ""

    def log_lines(self, pattern):
        return re.findall(pattern, self.log_text())

    def stop(self):
        """SIGTERM; the exit status."""
        for client in self.clients:
            if client.process.poll() is None:
                client.signal(signal.SIGCONT)
                client.kill()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if self.control:
            self.control.close()
        shutil.rmtree(self.dir, ignore_errors=True)
        return status

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()


def nothing_left(tap, server):
    tap.ok(server.all_gone(), "no connection is left over", server.info())


def run(tap, functions, *settings, what="", **server_arguments):
    """Start a server, run each on it, and see that it ends well."""
    with Server(*settings, **server_arguments) as server:
        if not tap.ok(server.started,
                      "a stock redis-server starts with the module" + what,
                      server.log_text()):
            return
        _checks(tap, server, functions + (nothing_left,))
        tap.equal(server.stop(), 0, "the server ends with status 0")


def _checks(tap, server, functions):
    """An exception is a failure of that one function, with its words."""
    for function in functions:
        try:
            begin = time.monotonic()
            function(tap, server)
            print(f"# {function.__name__}: "
                  f"{time.monotonic() - begin:.2f} s")
        except (Closed, OSError, ValueError, KeyError, IndexError,
                AssertionError) as error:
            tap.ok(False, f"{function.__name__} ran to its end",
                   f"{type(error).__name__}: {error}\n"
                   + server.log_text()[-1500:])
            if server.process.poll() is not None:
                tap.ok(False, "the server lives",
                       f"exit status {server.process.returncode}")
                return
