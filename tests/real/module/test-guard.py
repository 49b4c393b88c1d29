#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The module loads where it fits, and else says in one sentence why not."""
import os
import sys

from harness import MODULE, Error, Server, Tap

BAD = os.environ["RDMAKIT_BAD_MODULE"]

tap = Tap()

# What is wrong, and a word of the sentence that has to say so.
MISTAKES = {
    "unknown-version": "known are",
    "table-bytes": "CT_Socket has 120 bytes, 128 were expected",
    "other-version": "acceptCommonHandler",
    "state": "conn->state",
    "fd": "conn->fd",
    "flags": "barrier bit",
    "last-errno": "last_errno",
    "private-data": "private_data",
    "read-handler": "",
    "write-handler": "handler",
    "read-and-write": "",
    "write-and-writev": "",
    "handlers": "read_handler",
    "close-and-read": "",
    "last-error": "",
}

# Arguments, and a word of the sentence.
ARGUMENTS = {
    "rdma-port 0": "1 to 65535",
    "rdma-port 65536": "1 to 65535",
    "rdma-port x": "1 to 65535",
    "rdma-port": "has no value",
    "rdma-bind": "has no value",
    "rdma-bind 127.0.0.1 rdma-bind ::1": "twice",
    "rdma-bind not.an.address.invalid": "is not an address",
    "rdma-rx-size 65535": "65536 to 16777216",
    "rdma-rx-size 17m": "65536 to 16777216",
    "rdma-completion-vector 1025": "-1 to 1024",
    "rdma-device ''": "is not a device",
    "rdma-device no-such-device": "no-such-device",
    "rdma-spin 1s": "microseconds",
    "rdma-spin -1": "microseconds",
    "rdma-memory-cap 1q": "bytes",
    "rdma-memory-cap 99999999999g": "bytes",
    "port 7": "is not an argument",
}


def load(server, module, *args):
    return server.control("MODULE", "LOAD", module, *args)


def refused(server, before, word, name):
    lines = server.log_lines(r"<rdma> not loading: (.*)")
    fresh = lines[before:]
    tap.ok(len(fresh) == 1 and word in fresh[0], name, fresh)
    return len(lines)


with Server(load=False) as server:
    count = 0
    for arguments, word in ARGUMENTS.items():
        words = [w.strip("'") for w in arguments.split()]
        answer = load(server, MODULE, *words)
        if not isinstance(answer, Error):
            tap.ok(False, f"{arguments} is refused", answer)
            continue
        count = refused(server, count, word, f"{arguments}: one sentence")
    tap.equal(server.control("PING"), "PONG",
              "the server goes on after refusals")
    answer = load(server, MODULE, "rdma-bind", "127.0.0.1", "rdma-rx-size",
                  "128kb", "rdma-spin", "5", "rdma-memory-cap", "1gb",
                  "rdma-device", "soft")
    tap.equal(answer, "OK", "MODULE LOAD while the server runs")
    info = server.info()
    tap.equal((info["rdma_window_bytes"], info["rdma_memory_cap"]),
              ("131072", str(1 << 30)), "the arguments are taken")
    tap.equal(info["rdma_port"], str(server.port),
              "the port is the server's if none is given")
    tap.equal((info["rdma_layout"], info["rdma_build"] != ""),
              ("redis-7.0", True), "INFO rdma names the layout")
    c = server.rdma()
    tap.equal(c("PING"), "PONG", "clients over RDMA are served")
    tap.ok(isinstance(load(server, MODULE), Error), "not twice")
    tap.ok(isinstance(server.control("MODULE", "UNLOAD", "rdma"), Error),
           "and it cannot be unloaded")
    tap.equal(c("PING"), "PONG", "the client is still there")
    c.close()
    tap.equal(server.stop(), 0, "the server ends with status 0")

os.environ["RDMAKIT_TEST_LAYOUT"] = "none"
with Server(load=False) as server:
    tap.equal(load(server, BAD), "OK",
              "the module of wrong layouts loads with a right one")

for mistake, word in MISTAKES.items():
    os.environ["RDMAKIT_TEST_LAYOUT"] = mistake
    with Server(load=False) as server:
        answer = load(server, BAD)
        if tap.ok(isinstance(answer, Error), f"{mistake} wrong: refused",
                  answer):
            refused(server, 0, word, f"{mistake} wrong: one sentence")
        tap.equal(server.control("PING"), "PONG",
                  f"{mistake} wrong: the server is unharmed")
del os.environ["RDMAKIT_TEST_LAYOUT"]

server = Server(module_args=("rdma-spin", "x"))
tap.ok(not server.started and server.process.wait(20) != 0,
       "a server whose loadmodule line is wrong does not start")
server.stop()

with Server("--loadmodule", MODULE, "rdma-spin", "7", load=False) as server:
    tap.ok(server.started and server.info()["rdma_spin_us"] in ("7", "0"),
           "--loadmodule on the command line takes arguments")
    tap.equal(len(server.log_lines(r"<rdma> listening on .* with device .*")),
              1, "one line says where and with which device")

sys.exit(tap.done())
