#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A client over RDMA can do what a client over TCP can."""
import sys

import commands
from harness import Tap, run

tap = Tap()
run(tap, commands.ALL)
sys.exit(tap.done())
