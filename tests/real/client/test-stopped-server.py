#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A server that stands still costs a client of librdmakit no more time than
it allows."""
import errno
import os
import signal
import subprocess
import sys

from harness import Server, done, equal, ok

STOPPED = os.environ["RDMAKIT_STOPPED"]


def main():
    with Server() as server:
        for uri in server.uris():
            scheme = uri.split(":")[0]
            client = subprocess.Popen([STOPPED, uri], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
            if not equal(client.stdout.readline(), "ready\n",
                         f"the library answers over {scheme}"):
                client.kill()
                continue
            server.process.send_signal(signal.SIGSTOP)
            out, _ = client.communicate("go\n", timeout=20)
            server.process.send_signal(signal.SIGCONT)
            lines = [line.split() for line in out.splitlines()]
            ok(len(lines) == 2 and int(lines[0][0]) == errno.ETIMEDOUT,
               f"{scheme}: a command to a stopped server times out", out)
            ok(len(lines) == 2 and 390 <= int(lines[0][1]) < 1500,
               f"{scheme}: when it was told to (400 ms)", out)
            ok(len(lines) == 2 and int(lines[1][1]) < 3000,
               f"{scheme}: and closing does not hang", out)
    return done()


if __name__ == "__main__":
    sys.exit(main())
