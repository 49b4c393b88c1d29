#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""rdmakit bench redis: what it prints, what it counts, what it notices."""
import json
import os
import re
import socket
import statistics
import sys
import threading

from harness import Server, done, equal, ok, rdmakit, run

SHAPE = {
    "transport": str, "op": str, "ops_per_s": float, "bytes_per_s": float,
    "latency_us": dict, "cpu_us_per_op": float, "errors": int,
    "connections": int, "pipeline": int, "bytes": int,
}


def results(outcome):
    try:
        found = json.loads(outcome.out)
        return found["results"] if set(found) == {"results"} else None
    except ValueError:
        return None


def right_shape(result):
    latency = result.get("latency_us", {})
    values = [latency.get(k, -1) for k in ("p50", "p90", "p99", "p999", "max")]
    return (all(isinstance(result.get(k), t) for k, t in SHAPE.items()) and
            set(latency) == {"p50", "p90", "p99", "p999", "max"} and
            values == sorted(values) and values[0] > 0 and
            result["ops_per_s"] > 0 and result["bytes_per_s"] > 0 and
            result["cpu_us_per_op"] >= 0)


def shape(server):
    r = rdmakit("bench", "redis", "--json", "-c", "5", "-P", "4", "-d", "100",
                "-n", "2000", "-r", "50", "-t", "set,get,incr", "--rounds", "2",
                *server.uris())
    found = results(r)
    if not ok(r.code == 0 and found is not None, "--json prints one object", r):
        return
    equal([(x["op"], x["transport"]) for x in found],
          [(op, t) for op in ("set", "get", "incr")
           for t in ("rdma", "tcp", "unix")],
          "a result for each operation and transport, in that order")
    ok(all(right_shape(x) for x in found), "each has all its parts", r)
    ok(all((x["connections"], x["pipeline"], x["bytes"], x["errors"]) ==
           (5, 4, 100, 0) for x in found), "and says how it was measured", r)
    ok(all(x["messages_sent"] >= 500 and x["messages_received"] >= 500
           for x in found), "and that every batch crossed, both ways", r)
    ok(found[0].get("device") and "device" not in found[1],
       "RDMA names its device", r)
    equal(server.redis_cli("KEYS", "rdmakit:bench:*").out, "\n",
          "no key is left behind")


def every_operation(server):
    known = re.search(r"\(set,get\): (\S+)", rdmakit("bench", "redis",
                                                      "--help").out).group(1)
    for scheme in ("tcp", "rdma"):
        r = rdmakit("bench", "redis", "--json", "-c", "3", "-P", "2", "-n",
                    "600", "-d", "2000", "-r", "20", "--rounds", "1", "-t",
                    known, server.uri(scheme))
        found = results(r) or []
        ok(r.code == 0 and len(found) == len(known.split(",")) and
           not any(x["errors"] for x in found),
           f"{known} over {scheme}", r)
    r = rdmakit("bench", "redis", "--json", "-c", "2", "-P", "2", "-n", "12",
                "-d", "3M", "--rounds", "1", *server.uris())
    ok(r.code == 0 and len(results(r) or []) == 6,
       "values larger than any buffer, read back as they were written", r)


def counts(server):
    before = int(re.search(r"cmdstat_ping:calls=(\d+)|$", server.redis_cli(
        "INFO", "commandstats").out).group(1) or 0)
    rdmakit("bench", "redis", "-c", "7", "-P", "4", "-n", "1001", "-t", "ping",
            "--rounds", "3", server.uri("tcp"))
    after = int(re.search(r"cmdstat_ping:calls=(\d+)", server.redis_cli(
        "INFO", "commandstats").out).group(1))
    equal(after - before, 3003, "as many requests as asked for, not one more")
    r = rdmakit("bench", "redis", "--json", "-c", "2", "-t", "ping",
                "--runtime", "1", "--rounds", "1", "--server-pid",
                str(server.process.pid), server.uri("tcp"))
    found = results(r)
    ok(found and found[0]["cpu_us_per_op"] > 0,
       "--runtime, with the CPU time from the system", r)


def errors(server):
    server.redis_cli("SET", "rdmakit:bench:list", "no list")
    r = rdmakit("bench", "redis", "--json", "-c", "2", "-n", "500", "--rounds",
                "2", "-t", "sadd,incr", server.uri("tcp"))
    ok(r.code == 0, "keys of others do not disturb other operations", r)
    server.redis_cli("SET", "rdmakit:bench:set", "no set")
    r = rdmakit("bench", "redis", "--json", "-c", "2", "-n", "500", "--rounds",
                "2", "-t", "sadd", server.uri("tcp"))
    found = results(r)
    ok(r.code == 1 and found and found[0]["errors"] == 1000 and
       "WRONGTYPE" in r.err, "error replies of all rounds are counted", r)
    r = rdmakit("bench", "redis", "-n", "10", "tcp://127.0.0.1:1")
    ok(r.code == 1 and "cannot connect" in r.err, "nobody there", r)
    for bad in (["-c", "0"], ["-t", "nosuch"], ["-d", "x"], []):
        r = rdmakit("bench", "redis", *bad)
        ok(r.code == 2 and "--help" in r.err, f"{bad} is refused", r)


class Liar(threading.Thread):
    """A server that says OK to everything and answers GET with bytes of its
    own."""

    def __init__(self, answer):
        super().__init__(daemon=True)
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def run(self):
        while True:
            threading.Thread(target=self.serve, daemon=True,
                             args=(self.listener.accept()[0],)).start()

    def serve(self, connection):
        while True:
            data = connection.recv(65536)
            if not data:
                return
            for _ in range(data.count(b"$3\r\nGET\r\n")):
                connection.sendall(self.answer)
            for _ in range(len(re.findall(rb"\*\d+\r\n", data)) -
                           data.count(b"$3\r\nGET\r\n")):
                connection.sendall(b"+OK\r\n")


def lies():
    for answer, what in ((b"$4\r\nabcd\r\n", "bytes that were not written"),
                         (b"$3\r\nabc\r\n", "too few bytes"),
                         (b"$-1\r\n", "nothing"), (b":1\r\n", "a number")):
        liar = Liar(answer)
        liar.start()
        r = rdmakit("bench", "redis", "--json", "-c", "1", "-n", "20", "-d",
                    "4", "--rounds", "1", "-t", "get",
                    f"tcp://127.0.0.1:{liar.port}")
        found = results(r)
        ok(r.code == 1 and found and found[0]["errors"] == 20,
           f"a GET that gives {what} is an error", r)
    liar = Liar(b"what?\r\n")
    liar.start()
    r = rdmakit("bench", "redis", "-c", "1", "-n", "20", "-t", "get",
                f"tcp://127.0.0.1:{liar.port}")
    ok(r.code == 1 and "RESP" in r.err, "what is no RESP ends the run", r)


def against_redis_benchmark(server):
    """The other side of every ratio must be at its best."""
    ours, theirs = [], []
    for _ in range(3):
        r = run("redis-benchmark", "-p", str(server.port), "-c", "50", "-d",
                "64", "-t", "get", "-n", "30000", "--csv")
        theirs.append(float(re.search(r'"GET","([0-9.]+)"', r.out).group(1)))
        r = rdmakit("bench", "redis", "--json", "-c", "50", "-d", "64", "-t",
                    "get", "-n", "30000", "--rounds", "1", server.uri("tcp"))
        ours.append(results(r)[0]["ops_per_s"])
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(f"# ours {ours}, redis-benchmark {theirs}")
    ok(ratio >= 0.9, f"TCP rate against redis-benchmark: {ratio:.2f}")


def table(server):
    r = rdmakit("bench", "redis", "-c", "2", "-n", "200", "-t", "ping",
                "--rounds", "1", server.uri("tcp"), server.uri("unix"))
    rows = [l.split() for l in r.out.splitlines() if l.startswith("ping")]
    ok(r.code == 0 and len(rows) == 2 and rows[0][3] == "1.00x" and
       not r.err, "the table compares with TCP", r)


def main():
    with Server() as server:
        shape(server)
        every_operation(server)
        counts(server)
        table(server)
        against_redis_benchmark(server)
        errors(server)
    lies()
    return done()


if __name__ == "__main__":
    sys.exit(main())
