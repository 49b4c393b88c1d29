#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The same with the server's I/O threads writing, and reading too."""
import sys
import threading

import commands
from harness import Closed, Tap, run

# Threads run only while at least two clients per thread have replies.
CLIENTS = 12


def threads_at_work(tap, server):
    """Enough clients with enough replies that I/O threads take part."""
    clients = [server.rdma(wait=False) for _ in range(CLIENTS)]
    wrong = []

    def work(number, c):
        try:
            c.wait_open()
            for round_ in range(8):
                value = b"%d:%d:" % (number, round_) + b"y" * 5000 * number
                c.send(b"".join(
                    commands.encode("SET", f"io:{number}", value) +
                    commands.encode("GET", f"io:{number}")
                    for _ in range(10)))
                for _ in range(10):
                    if c.read() != "OK" or c.read() != value:
                        wrong.append(number)
        except (Closed, OSError) as error:
            wrong.append((number, repr(error)))

    threads = [threading.Thread(target=work, args=pair)
               for pair in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tap.equal(wrong, [], f"{CLIENTS} pipelining clients get what they set")
    stats = server.info("stats")
    tap.ok(int(stats["io_threaded_writes_processed"]) > 0,
           "I/O threads have written", stats)
    # Newer servers have no such setting: their threads always read.
    if server.control("CONFIG", "GET", "io-threads-do-reads")[1:] != [b"no"]:
        tap.ok(int(stats["io_threaded_reads_processed"]) > 0,
               "I/O threads have read", stats)
    for c in clients:
        c.kill()


CHECKS = (threads_at_work, commands.set_and_get, commands.pipelined,
          commands.large_value, commands.small_window, commands.slow_reader,
          commands.publish_subscribe, commands.blocking_pop, commands.scripts,
          commands.many_at_once)

tap = Tap()
run(tap, CHECKS, config="io-threads 4", what=" and 4 I/O threads")
run(tap, CHECKS, config="io-threads 4\nio-threads-do-reads yes",
    what=" and 4 I/O threads that read")
sys.exit(tap.done())
