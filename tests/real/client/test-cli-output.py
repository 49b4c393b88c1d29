#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""rdmakit redis prints what redis-cli prints."""
import json
import re
import sys

from harness import Server, done, equal, ok, rdmakit

# Compared in every format, in RESP2 and RESP3, as lines of standard input.
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

# And these as commands of their own, with their exit codes.
ALONE = ["GET bytes", "GET none", "NOSUCH a b", "HGETALL hash", "INFO keyspace",
         "LRANGE none 0 -1", "SUBSCRIBE", "DEBUG PROTOCOL push"]

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


def compare_alone(server, uri, resp, form):
    for line in [c.split() for c in ALONE] + [["EVAL", NESTED, "0"]]:
        theirs = server.redis_cli(resp, form, *line)
        ours = rdmakit("redis", "-u", uri, resp, form, *line)
        if theirs.out != ours.out or theirs.code != ours.code:
            equal(repr(ours), repr(theirs), f"{form} {resp} {line}")
            return False
    return True


def compare_commands(server, uri, resp, form):
    text = "\n".join(COMMANDS) + "\n"
    theirs = server.redis_cli(resp, form, text=text)
    ours = rdmakit("redis", "-u", uri, resp, form, text=text)
    equal(ours.out, theirs.out, f"{len(COMMANDS)} commands, {resp} {form}, "
          f"over {uri.split(':')[0]}")


def compare_lines(server, uri, form):
    theirs = server.redis_cli(form, text=LINES)
    ours = rdmakit("redis", "-u", uri, form, text=LINES)
    equal(without_ids(ours.out), without_ids(theirs.out),
          f"lines of standard input, {form}, {uri.split(':')[0]}")


def json_is_json(uri):
    # Not: texts for people, and bytes that are no UTF-8.
    lines = [c for c in COMMANDS if c not in
             ("INFO keyspace", "CLUSTER INFO", "MEMORY DOCTOR", "GET bytes")]
    outcome = rdmakit("redis", "-u", uri, "--json", text="\n".join(lines))
    replies = outcome.out.splitlines()
    equal(len(replies), len(lines), "--json prints one line for each command")
    try:
        values = [json.loads(reply) for reply in replies]
        ok({"error": "ERR EXEC without MULTI"} in values and
           {"a": "1", "b": "2"} in values, "each is JSON, errors too")
    except ValueError as error:
        ok(False, f"each is JSON: {error}", outcome.out)


def main():
    with Server() as server:
        fill(server)
        for scheme in ("tcp", "rdma"):
            for resp in ("-2", "-3"):
                for form in ("--no-raw", "--raw", "--csv"):
                    compare_commands(server, server.uri(scheme), resp, form)
        for scheme, resp, form in (("tcp", "-3", "--no-raw"),
                                   ("tcp", "-2", "--raw"),
                                   ("tcp", "-3", "--csv"),
                                   ("unix", "-2", "--no-raw"),
                                   ("rdma", "-3", "--no-raw")):
            ok(compare_alone(server, server.uri(scheme), resp, form),
               f"{len(ALONE) + 1} commands by themselves, {resp} {form}, "
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
