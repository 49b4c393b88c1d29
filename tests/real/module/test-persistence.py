#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Forked children, barriers, reloads and the end of the server."""
import os
import sys

from harness import Closed, Error, Server, Tap, encode, eventually, run


def reload(tap, server):
    c = server.rdma()
    c("SET", "kept", "over a reload")
    tap.equal(c("DEBUG", "RELOAD"), "OK", "DEBUG RELOAD over RDMA")
    tap.equal(c("GET", "kept"), b"over a reload", "and the data is there")
    c.close()


def background_save(tap, server):
    c = server.rdma()
    server.control("CONFIG", "SET", "rdb-key-save-delay", "3000")
    for number in range(100):
        c("SET", f"saved:{number}", "x" * 100)
    tap.equal(c("BGSAVE"), "Background saving started", "BGSAVE over RDMA")
    good = all(c("SET", f"during:{n}", n) == "OK" for n in range(200))
    tap.ok(good, "the client is served while a child saves")
    d = server.rdma()
    tap.equal(d("PING"), "PONG", "a client may come while a child lives")
    d.close()
    e = server.rdma()
    e("PING")
    e.kill()
    ended = eventually(lambda: server.info("persistence")
                       ["rdb_bgsave_in_progress"] == "0")
    tap.ok(ended and server.info("persistence")["rdb_last_bgsave_status"] ==
           "ok", "and the child ends well")
    tap.equal(c("PING"), "PONG", "and takes no connection with it")
    server.control("CONFIG", "SET", "rdb-key-save-delay", "0")
    c.close()


def append_only(tap, server):
    c = server.rdma()
    values = [os.urandom(1000) for _ in range(100)]
    c.send(b"".join(encode("SET", f"aof:{n}", value)
                    for n, value in enumerate(values)))
    tap.equal([c.read() for _ in values], ["OK"] * len(values),
              "with appendfsync always replies come after the sync")
    tap.ok(str(c("BGREWRITEAOF")).startswith("Background"), "BGREWRITEAOF")
    tap.ok(eventually(lambda: server.info("persistence")
                      ["aof_rewrite_in_progress"] == "0"), "runs to its end")
    tap.equal(c("DEBUG", "LOADAOF"), "OK", "DEBUG LOADAOF over RDMA")
    tap.ok(all(c("GET", f"aof:{n}") == value
               for n, value in enumerate(values)),
           "and every value is in the file")
    c.close()


def shutdown(tap):
    with Server() as server:
        c, other = server.rdma(), server.rdma()
        other("PING")
        c.send(encode("SHUTDOWN", "NOSAVE"))
        tap.ok(c.ended(), "SHUTDOWN over RDMA ends its connection")
        tap.ok(other.ended(), "and the others'")
        eventually(lambda: server.process.poll() is not None)
        tap.equal(server.process.poll(), 0, "and the server, with status 0")


def killed_server(tap):
    with Server() as server:
        c = server.rdma()
        c("PING")
        server.process.kill()
        try:
            ended = c.ended()
        except OSError:
            ended = True
        tap.ok(ended, "a client of a killed server sees the end")


def refused_shutdown(tap, server):
    """A SHUTDOWN that fails leaves everything as it was."""
    c = server.rdma()
    server.control("CONFIG", "SET", "save", "100 1")
    server.control("CONFIG", "SET", "dbfilename", "no-such-type.rdb")
    os.mkdir(os.path.join(server.dir, "no-such-type.rdb"))
    c("SET", "changed", "1")
    answer = c("SHUTDOWN", "SAVE")
    tap.ok(isinstance(answer, Error), "a SHUTDOWN that cannot save fails",
           answer)
    tap.equal(c("PING"), "PONG", "and the connection is as it was")
    server.control("CONFIG", "SET", "save", "")
    c.close()


tap = Tap()
run(tap, (reload, background_save, refused_shutdown),
    config="enable-protected-configs yes")
run(tap, (append_only,), config="appendonly yes\nappendfsync always",
    what=" and an append only file")
for check in (shutdown, killed_server):
    try:
        check(tap)
    except (Closed, OSError) as error:
        tap.ok(False, f"{check.__name__} ran to its end", repr(error))
sys.exit(tap.done())
