#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""To the server's own rules a client over RDMA is a client like any other."""
import os
import sys
import time

from harness import Closed, Error, Tap, encode, eventually, run


def listed(server, client_id):
    lines = server.control("CLIENT", "LIST", "ID", client_id).decode()
    return dict(word.split("=", 1) for word in lines.split())


def client_list(tap, server):
    c = server.rdma()
    entry = listed(server, c("CLIENT", "ID"))
    tap.equal(entry.get("addr"), c.address,
              "CLIENT LIST has the peer's true address and port")
    tap.equal(entry.get("laddr"), f"127.0.0.1:{server.port}",
              "and the address it came to")
    tap.ok(c.address in c("CLIENT", "INFO").decode(), "CLIENT INFO too")
    tap.equal(c("CLIENT", "SETNAME", "by-rdma"), "OK", "CLIENT SETNAME")
    tap.equal(c("CLIENT", "GETNAME"), b"by-rdma", "and GETNAME")
    tap.equal(int(server.info()["rdma_connections"]), 1,
              "INFO rdma counts it")
    c.close()


def two_have_their_own_address(tap, server):
    a, b = server.rdma(), server.rdma()
    tap.ok(a.address != b.address and
           listed(server, a("CLIENT", "ID"))["addr"] !=
           listed(server, b("CLIENT", "ID"))["addr"],
           "two clients have two addresses")
    a.close()
    b.close()


def reply_off(tap, server):
    c = server.rdma()
    c.send(encode("CLIENT", "REPLY", "OFF") + encode("PING") +
           encode("CLIENT", "REPLY", "ON"))
    tap.equal(c.read(), "OK", "CLIENT REPLY OFF silences until ON")
    tap.equal(c("PING"), "PONG", "and then answers again")
    c.close()


def pause(tap, server):
    c = server.rdma()
    server.control("CLIENT", "PAUSE", "10000", "WRITE")
    c.send(encode("SET", "paused", "1"))
    tap.ok(c.silent(0.1), "CLIENT PAUSE holds a write back")
    server.control("CLIENT", "UNPAUSE")
    tap.equal(c.read(), "OK", "until UNPAUSE")
    c.close()


def kill(tap, server):
    a, b, c = server.rdma(), server.rdma(), server.rdma()
    a_id = a("CLIENT", "ID")
    b_address = listed(server, b("CLIENT", "ID"))["addr"]
    tap.equal(server.control("CLIENT", "KILL", "ID", a_id), 1,
              "CLIENT KILL ID finds it")
    tap.ok(a.ended(), "and the client sees the end")
    tap.equal(server.control("CLIENT", "KILL", "ADDR", b_address), 1,
              "CLIENT KILL ADDR finds it")
    tap.ok(b.ended(), "and the client sees the end")
    tap.equal(c("CLIENT", "KILL", "SKIPME", "no", "ID", c("CLIENT", "ID")), 1,
              "one that kills itself still gets its answer")
    tap.ok(c.ended(), "and then the end")
    tap.ok(server.all_gone(), "none of them is left", server.info())


def quit_command(tap, server):
    c = server.rdma()
    tap.equal(c("QUIT"), "OK", "QUIT is answered")
    tap.ok(c.ended(), "and ends the connection")


def too_many(tap, server):
    before = int(server.info()["rdma_rejected"])
    server.control("CONFIG", "SET", "maxclients", "4")
    clients = [server.rdma() for _ in range(3)]
    good = [c("PING") for c in clients]
    tap.equal(good, ["PONG"] * 3, "clients up to maxclients are served")
    late = server.rdma()
    tap.equal(late.read(), Error("ERR max number of clients reached"),
              "one more is told why it is refused")
    tap.ok(late.ended(), "and closed")
    tap.equal(int(server.info()["rdma_rejected"]), before + 1, "and counted")
    clients.pop().close()
    eventually(lambda: server.connections() == 2)
    again = server.rdma()
    tap.equal(again("PING"), "PONG", "the place of one that left is free")
    server.control("CONFIG", "SET", "maxclients", "10000")
    for c in clients + [again]:
        c.close()


def output_limit(tap, server):
    c = server.rdma()
    server.control("CONFIG", "SET", "client-output-buffer-limit",
                   "normal 20mb 0 0")
    server.control("SET", "heavy", os.urandom(8 << 20))
    c.send(encode("GETRANGE", "heavy", "0", "-1") * 16)
    # It does not read a byte: the server has to end it.
    gone = eventually(lambda: server.info()["rdma_connections"] == "0")
    tap.ok(gone, "client-output-buffer-limit ends who does not read")
    server.control("CONFIG", "SET", "client-output-buffer-limit",
                   "normal 0 0 0")
    server.control("DEL", "heavy")
    c.kill()


def idle(tap, server):
    c = server.rdma()
    c("PING")
    server.control("CONFIG", "SET", "timeout", "1")
    ended = False
    for _ in range(100):
        server.control("PING")  # who watches must not be idle himself
        ended = c.ended(0.1)
        if ended:
            break
    tap.ok(ended, "an idle client is ended after the timeout")
    server.control("CONFIG", "SET", "timeout", "0")


def authentication(tap, server):
    server.control("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+get")
    c = server.rdma()
    tap.ok(str(c("AUTH", "reader", "wrong")).startswith("WRONGPASS"),
           "a wrong password is refused")
    tap.equal(c("AUTH", "reader", "secret"), "OK", "AUTH")
    tap.ok(str(c("SET", "a", "1")).startswith("NOPERM"),
           "a user has only his own rights")
    tap.equal(c("GET", "none"), None, "and those he has")
    server.control("CONFIG", "SET", "requirepass", "word")
    d = server.rdma()
    tap.ok(str(d("PING")).startswith("NOAUTH"), "requirepass is asked for")
    tap.equal(d("AUTH", "word"), "OK", "and taken")
    server.control("CONFIG", "SET", "requirepass", "")
    c.close()
    d.close()


def protected(tap, server):
    server.control("CONFIG", "SET", "protected-mode", "yes")
    c = server.rdma()
    tap.equal(c("PING"), "PONG", "protected mode lets 127.0.0.1 in")
    c.close()
    stranger = server.rdma(source="127.0.0.2")
    text = stranger.read()
    tap.ok(isinstance(text, Error) and "protected mode" in text,
           "and tells another address why it is refused", text)
    tap.ok(stranger.ended(), "and closes it")
    server.control("CONFIG", "SET", "protected-mode", "no")


def long_lived(tap, server):
    """Idle for a while, so that the server sleeps in between."""
    c = server.rdma()
    sleeps = int(server.info()["rdma_sleeps"])
    for _ in range(10):
        time.sleep(0.03)
        if c("PING") != "PONG":
            raise Closed()
    tap.ok(int(server.info()["rdma_sleeps"]) > sleeps,
           "the server sleeps while a client is idle, and wakes for it")
    c.close()


tap = Tap()
run(tap, (client_list, two_have_their_own_address, reply_off, pause, kill,
          quit_command, too_many, output_limit, idle, authentication,
          long_lived),
    module_args=("rdma-bind", "127.0.0.1"))
run(tap, (protected,), module_args=("rdma-bind", "*"),
    what=" on all addresses")
run(tap, (client_list, kill, quit_command), module_args=("rdma-spin", "0"),
    what=" and no spinning")
sys.exit(tap.done())
