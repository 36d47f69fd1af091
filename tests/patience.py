"""How long a test waits for another process, and its message when it gives up."""

import time

HUNG = 900
"""Seconds. Even on a busy machine, only a process that hangs takes this long."""


def until(condition, seen=lambda: "nothing"):
    """Wait for a condition; on timeout, fail with what was seen instead."""
    deadline = time.monotonic() + HUNG
    while not condition():
        assert time.monotonic() < deadline, f"waited {HUNG} s in vain; seen: {seen()}"
        time.sleep(0.02)
