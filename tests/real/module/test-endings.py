#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""However clients end, others are served and nothing is left of them."""
import os
import signal
import sys
import threading
import time

from harness import Closed, Tap, encode, eventually, run


class Load:
    """A client that works all the time and notes what goes wrong."""

    def __init__(self, server, name):
        self.client, self.name = server.rdma(), name
        self.rounds, self.wrong, self.slowest = 0, [], 0.0
        self.stopping = False
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        try:
            while not self.stopping:
                value = os.urandom(3000)
                begin = time.monotonic()
                if self.client("SET", self.name, value) != "OK" or \
                        self.client("GET", self.name) != value:
                    self.wrong.append(self.rounds)
                self.slowest = max(self.slowest, time.monotonic() - begin)
                self.rounds += 1
        except (Closed, OSError) as error:
            self.wrong.append(repr(error))

    def stop(self, tap, what):
        before = self.rounds
        eventually(lambda: self.rounds > before or self.wrong)
        self.stopping = True
        self.thread.join()
        tap.ok(self.rounds > before and not self.wrong, what, self.wrong)
        self.client.close()


def half_a_command(c):
    c.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\nhalf")


def unread_replies(c):
    c.send(encode("GET", "bulk") * 20)


def blocked(c):
    c.send(encode("BLPOP", "never", "0"))


def subscribed(c):
    c.send(encode("SUBSCRIBE", "channel"))


def at_once(c):
    pass


STATES = (half_a_command, unread_replies, blocked, subscribed, at_once)


def abrupt_disconnects(tap, server):
    server.control("SET", "bulk", os.urandom(200000))
    load = Load(server, "beside")
    before = server.descriptors()
    for number in range(200):
        state = STATES[number % len(STATES)]
        c = server.rdma(wait=state is not at_once)
        state(c)
        if number % 2:
            c.kill()
        else:
            c.sock.close()
            c.process.stdin = None
            load.slowest += 0
    for c in server.clients[1:]:
        if c.process.poll() is None:
            c.close()
    load.stop(tap, "one client is served while 200 others break off")
    tap.ok(server.all_gone(), "none of the 200 is left", server.info())
    tap.ok(eventually(lambda: server.descriptors() <= before),
           "nor a descriptor of them",
           f"{before} before, {server.descriptors()} after")
    counted = int(server.control("INFO", "clients").decode()
                  .split("connected_clients:")[1].split()[0])
    tap.equal(counted, 1, "nor a client in the server")


def in_mid_transfer(tap, server):
    server.control("SET", "bulk", os.urandom(16 << 20))
    c = server.rdma()
    c.send(encode("GET", "bulk") * 8)
    time.sleep(0.05)
    c.kill()
    tap.ok(server.all_gone(), "one killed with 128 MB to come is freed")
    d = server.rdma()
    d.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$67108864\r\n" +
           b"x" * (20 << 20))
    d.kill()
    tap.ok(server.all_gone(), "one killed inside a 64 MB argument is freed")
    server.control("DEL", "bulk")


def killed_under_load(tap, server):
    load = Load(server, "survivor")
    victims = [server.rdma() for _ in range(8)]
    for number, c in enumerate(victims):
        c.send(encode("SET", f"victim:{number}", os.urandom(100000)) * 20)
    time.sleep(0.05)
    for c in victims:
        c.kill()
    load.stop(tap, "a client is served while eight under load are killed")
    tap.ok(server.all_gone(), "and the eight are freed", server.info())


def stopped_under_load(tap, server):
    server.control("SET", "bulk", os.urandom(4 << 20))
    load = Load(server, "awake")
    victims = [server.rdma() for _ in range(4)]
    for c in victims:
        c.signal(signal.SIGSTOP)
        c.sock.setblocking(False)
        try:
            c.sock.send(encode("GET", "bulk") * 4)
        except BlockingIOError:
            pass
    time.sleep(0.3)
    slowest = load.slowest
    load.stop(tap, "a client is served while four are stopped")
    tap.ok(slowest < 2.0, "and does not wait for them", slowest)
    for c in victims[:2]:
        c.signal(signal.SIGCONT)
        c.sock.settimeout(20)
    for c in victims[:2]:
        tap.equal([len(c.read()) for _ in range(4)], [4 << 20] * 4,
                  "one that goes on gets all of its replies")
    for c in victims[2:]:
        c.kill()
    for c in victims[:2]:
        c.close()
    tap.ok(server.all_gone(), "killed while stopped: freed", server.info())
    server.control("DEL", "bulk")


def closed_by_the_server_while_stopped(tap, server):
    c = server.rdma()
    client_id = c("CLIENT", "ID")
    server.control("SET", "bulk", os.urandom(4 << 20))
    c.signal(signal.SIGSTOP)
    server.control("CLIENT", "KILL", "ID", client_id)
    tap.ok(server.all_gone(), "a stopped client can be killed by the server",
           server.info())
    c.signal(signal.SIGCONT)
    tap.ok(c.ended(), "and sees the end when it goes on")


def random_kills(tap, server):
    """A client with the right to kill ends others that work, for a while."""
    loads = [Load(server, f"chaos:{n}") for n in range(6)]
    end = time.monotonic() + 2
    killed = 0
    while time.monotonic() < end:
        ids = [line.split()[0][3:] for line in
               server.control("CLIENT", "LIST").decode().splitlines()
               if "cmd=get" in line or "cmd=set" in line]
        if not ids:
            break
        killed += server.control("CLIENT", "KILL", "ID", ids[killed % len(ids)])
        time.sleep(0.05)
    for load in loads:
        load.stopping = True
        load.thread.join()
    tap.equal([load.wrong for load in loads
               if load.wrong and "Closed" not in str(load.wrong)], [],
              "clients that the server kills at work see no wrong byte")
    tap.ok(killed >= 1, "and some were killed", killed)
    for load in loads:
        load.client.kill()
    tap.ok(server.all_gone(), "and all are freed", server.info())


tap = Tap()
run(tap, (abrupt_disconnects, in_mid_transfer, killed_under_load,
          stopped_under_load, closed_by_the_server_while_stopped,
          random_kills))
run(tap, (killed_under_load, in_mid_transfer),
    config="io-threads 4\nio-threads-do-reads yes",
    what=" and I/O threads")
sys.exit(tap.done())
