#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""rdmakit redis prints what redis-cli prints."""
import json
import re
import sys

from harness import Server, done, equal, ok, rdmakit

# Each is run as a command of its own, in every format, in RESP2 and RESP3.
COMMANDS = """
PING
GET text
GET bytes
GET none
STRLEN text
NOSUCH a b
GET
HGETALL hash
HGETALL none
SMEMBERS set
SMEMBERS none
LRANGE list 0 -1
LRANGE none 0 -1
ZRANGE scores 0 -1 WITHSCORES
ZSCORE scores b
GEOPOS none a
XRANGE stream - +
XINFO STREAM stream FULL
COMMAND DOCS get set
COMMAND INFO get nosuch
CONFIG GET maxmemory*
INFO keyspace
CLUSTER INFO
MEMORY DOCTOR
ACL LIST
EXEC
SUBSCRIBE
DEBUG PROTOCOL string
DEBUG PROTOCOL integer
DEBUG PROTOCOL double
DEBUG PROTOCOL null
DEBUG PROTOCOL array
DEBUG PROTOCOL set
DEBUG PROTOCOL map
DEBUG PROTOCOL push
DEBUG PROTOCOL verbatim
DEBUG PROTOCOL true
DEBUG PROTOCOL false
""".strip().splitlines()

NESTED = ("return {1,{2,{3,'x',{}},{}},'y',"
          "{'a','b','c','d','e','f','g','h','i','j'}}")

LINES = r"""
PING
SET x "a b\x41"
GET x
SET y 'it\'s'
GET y
bad "x

ECHO "a"b
ECHO a"b c"
ECHO "\n\r\t\b\a\q\\\x0"
ECHO '\n'
ECHO ""
2 PING
MULTI
SET q 1
SELECT 2
GET q
EXEC
GET q
SELECT 3
NOSUCH
CLIENT GETNAME
GET
RESET
HELLO 3
HGETALL nope
PING
"""


def fill(server):
    for line in (["SET", "text", "hello"], ["HSET", "hash", "a", "1", "b", "2"],
                 ["SADD", "set", "m"], ["ZADD", "scores", "1", "a", "2.5", "b"],
                 ["RPUSH", "list"] + [str(i) for i in range(12)],
                 ["XADD", "stream", "5-5", "f", "v"],
                 ["XGROUP", "CREATE", "stream", "g", "0"]):
        server.redis_cli(*line)
    server.redis_cli("-x", "SET", "bytes",
                     text="a\x01\"\\\n\t\r\a\bz\xff\xe4")


def without_ids(text):
    return re.sub(r'("id" => \(integer\) \d+|\nid \d+)', "", text)


def compare_commands(server, uri, resp, formats):
    for form in formats:
        for line in [c.split() for c in COMMANDS] + [["EVAL", NESTED, "0"]]:
            theirs = server.redis_cli(resp, form, *line)
            ours = rdmakit("redis", "-u", uri, resp, form, *line)
            if theirs.out != ours.out or theirs.code != ours.code:
                equal(repr(ours), repr(theirs), f"{form} {resp} {line}")
                return False
    return True


def compare_lines(server, uri, form):
    theirs = server.redis_cli(form, text=LINES)
    ours = rdmakit("redis", "-u", uri, form, text=LINES)
    equal(without_ids(ours.out), without_ids(theirs.out),
          f"lines of standard input, {form}, {uri.split(':')[0]}")


def json_is_json(uri):
    for line in COMMANDS:
        if line in ("INFO keyspace", "CLUSTER INFO", "MEMORY DOCTOR",
                    "SUBSCRIBE", "GET bytes"):
            continue  # texts for people, a mode, and bytes that are no UTF-8
        outcome = rdmakit("redis", "-u", uri, "--json", *line.split())
        try:
            json.loads(outcome.out)
        except ValueError as error:
            ok(False, f"--json {line}: {error}", outcome.out)
            return
    ok(True, "--json prints JSON for every command, errors too")


def main():
    with Server() as server:
        fill(server)
        for scheme, resp, formats in (
                ("tcp", "-3", ["--no-raw", "--raw", "--csv"]),
                ("unix", "-2", ["--no-raw"]),
                ("rdma", "-3", ["--no-raw"])):
            ok(compare_commands(server, server.uri(scheme), resp, formats),
               f"{len(COMMANDS) + 1} commands, {resp}, {', '.join(formats)}, "
               f"over {scheme}")
        for scheme in ("tcp", "rdma"):
            for form in ("--no-raw", "--raw"):
                compare_lines(server, server.uri(scheme), form)
        json_is_json(server.uri("tcp"))
        outcome = rdmakit("redis", "-u", server.uri("tcp"), "GET", "text")
        equal(outcome.out, "hello\n", "plain when the output is no terminal")
    return done()


if __name__ == "__main__":
    sys.exit(main())
