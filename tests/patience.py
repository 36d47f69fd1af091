"""How long a test waits for another process, and what it says when it waited in vain."""

import time

HUNG = 900
"""Seconds. Only a process that hangs takes so long, however busy the machine is."""


def until(condition, seen=lambda: "nothing"):
    """Wait for a condition; in the end, fail with what was seen instead."""
    deadline = time.monotonic() + HUNG
    while not condition():
        assert time.monotonic() < deadline, f"waited {HUNG} s in vain; seen: {seen()}"
        time.sleep(0.02)
