# SPDX-License-Identifier: BSD-3-Clause
"""What any client does, over RDMA: used with and without I/O threads."""
import os
import threading
import time

from harness import Closed, Error, Push, encode

WINDOW = 1 << 20  # of the server and of the client, by default


def set_and_get(tap, server):
    c = server.rdma()
    tap.equal(c("PING"), "PONG", "PING over RDMA is answered")
    tap.equal(c("SET", "key", "value"), "OK", "SET over RDMA")
    tap.equal(c("GET", "key"), b"value", "GET over RDMA gives it back")
    tap.equal(server.control("GET", "key"), b"value",
              "a client over TCP sees what was set over RDMA")
    tap.equal(c("GET", "nothing"), None, "an absent key is nil")
    tap.ok(isinstance(c("NOSUCH"), Error), "an unknown command is an error")
    c.close()


def pipelined(tap, server):
    c = server.rdma()
    count = 10000
    sender = threading.Thread(target=c.send, args=(b"".join(
        encode("INCR", "pipelined") for _ in range(count)),))
    server.control("DEL", "pipelined")
    sender.start()
    replies = [c.read() for _ in range(count)]
    sender.join()
    tap.equal(replies, list(range(1, count + 1)),
              "10000 pipelined commands are answered in order")
    c.close()


def large_value(tap, server):
    c = server.rdma()
    value = os.urandom(64 << 20)
    sender = threading.Thread(target=c.send,
                              args=(encode("SET", "large", value),))
    sender.start()
    answer = c.read()
    sender.join()
    tap.equal(answer, "OK", "a value of 64 MiB is taken")
    tap.ok(c("GET", "large") == value, "and comes back as it was")
    c("DEL", "large")
    c.close()


def window_edges(tap, server):
    c = server.rdma()
    head = len(encode("SET", "edge", b"")) + 2 * len(str(WINDOW)) - 2
    for size in (WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 3):
        for length, what in ((size, "value"), (size - head, "command")):
            value = os.urandom(length)
            c.send(encode("SET", "edge", value))
            tap.equal(c.read(), "OK", f"a {what} of {size} bytes is taken")
            tap.ok(c("GET", "edge") == value, "and given back as it was")
    c.close()


def small_window(tap, server):
    c = server.rdma(window=65536)
    value = os.urandom(700001)
    c.send(encode("SET", "small-window", value))
    tap.equal(c.read(), "OK", "a client with a window of 64 KiB sets 700 KB")
    tap.ok(c("GET", "small-window") == value, "and reads it back")
    c.close()


def slow_reader(tap, server):
    value = os.urandom(8 << 20)
    server.control("SET", "slow", value)
    c = server.rdma()
    c.send(encode("GET", "slow") * 6)
    other = server.rdma()
    tap.equal(other("PING"), "PONG",
              "another client is served while one does not read 48 MB")
    time.sleep(0.2)
    good = all(c.read() == value for _ in range(6))
    tap.ok(good, "six replies of 8 MiB reach a reader that was slow")
    server.control("DEL", "slow")
    c.close()
    other.close()


def transactions(tap, server):
    c = server.rdma()
    server.control("SET", "counter", "0")
    tap.equal(c("MULTI"), "OK", "MULTI")
    tap.equal(c("INCR", "counter"), "QUEUED", "a command is queued")
    tap.equal(c("INCR", "counter"), "QUEUED", "and another")
    tap.equal(server.control("GET", "counter"), b"0", "and not run yet")
    tap.equal(c("EXEC"), [1, 2], "EXEC runs them")
    c("WATCH", "counter")
    server.control("SET", "counter", "9")
    c("MULTI")
    c("INCR", "counter")
    tap.equal(c("EXEC"), None, "a watched key that changed aborts EXEC")
    c.close()


def publish_subscribe(tap, server):
    a, b = server.rdma(), server.rdma()
    tap.equal(a("SUBSCRIBE", "news"), [b"subscribe", b"news", 1], "SUBSCRIBE")
    heard = server.control("PUBLISH", "news", "from tcp")
    tap.equal(heard, 1, "PUBLISH over TCP finds the subscriber over RDMA")
    tap.equal(a.read(), [b"message", b"news", b"from tcp"], "who gets it")
    b.send(b"".join(encode("PUBLISH", "news", n) for n in range(2000)))
    counts = {b.read() for _ in range(2000)}
    tap.equal(counts, {1}, "2000 messages are published over RDMA")
    messages = [a.read()[2] for _ in range(2000)]
    tap.equal(messages, [b"%d" % n for n in range(2000)],
              "and arrive in order")
    a.close()
    b.close()


def blocking_pop(tap, server):
    c = server.rdma()
    server.control("DEL", "queue")
    tap.equal(c("BLPOP", "queue", "0.05"), None, "BLPOP times out")
    c.send(encode("BLPOP", "queue", "0"))
    tap.ok(c.silent(0.05), "BLPOP waits")
    server.control("RPUSH", "queue", "work")
    tap.equal(c.read(), [b"queue", b"work"], "and is woken by a push")
    c.close()


def tracking(tap, server):
    c = server.rdma()
    tap.equal(c("HELLO", "3")[b"proto"], 3, "RESP3")
    tap.equal(c("CLIENT", "TRACKING", "ON"), "OK", "CLIENT TRACKING ON")
    server.control("SET", "tracked", "1")
    c("GET", "tracked")
    server.control("SET", "tracked", "2")
    push = c.read()
    tap.ok(isinstance(push, Push) and push == [b"invalidate", [b"tracked"]],
           "a changed key is pushed to the client", push)
    c.close()


def monitor(tap, server):
    c = server.rdma()
    tap.equal(c("MONITOR"), "OK", "MONITOR")
    server.control("SET", "seen", "by monitor")
    line = c.read()
    tap.ok("\"SET\" \"seen\"" in line and "127.0.0.1:" in line,
           "MONITOR shows what another client does", line)
    c.close()


def scripts(tap, server):
    a, b = server.rdma(), server.rdma()
    tap.equal(a("EVAL", "return {KEYS[1], 7}", "1", "k"), [b"k", 7], "EVAL")
    server.control("CONFIG", "SET", "lua-time-limit", "100")
    a.send(encode("EVAL", "while true do end", "0"))
    end = time.monotonic() + 10
    while time.monotonic() < end:
        answer = b("PING")
        if answer != "PONG":
            break
    tap.ok(str(answer).startswith("BUSY"),
           "while a script runs too long another client is told BUSY", answer)
    tap.equal(b("SCRIPT", "KILL"), "OK",
              "and can kill it, from the loop inside the script")
    tap.ok("killed" in a.read(), "whose client gets an error")
    tap.equal(b("PING"), "PONG", "and all goes on")
    a.close()
    b.close()


def many_at_once(tap, server):
    clients = [server.rdma(wait=False) for _ in range(50)]
    wrong = []

    def work(number, c):
        try:
            c.wait_open()
            for round_ in range(20):
                value = b"%d:%d:" % (number, round_) + b"x" * (number * 97)
                if c("SET", f"many:{number}", value) != "OK" or \
                        c("GET", f"many:{number}") != value:
                    wrong.append(number)
        except (Closed, OSError) as error:
            wrong.append((number, repr(error)))

    threads = [threading.Thread(target=work, args=pair)
               for pair in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tap.equal(wrong, [], "50 clients at once are each given their own values")
    for c in clients:
        c.kill()


ALL = (set_and_get, pipelined, large_value, window_edges, small_window,
       slow_reader, transactions, publish_subscribe, blocking_pop, tracking,
       monitor, scripts, many_at_once)
