"""Helpers of the tests."""

import subprocess
import sys

import forebay

# A disk in memory whose requests take this long each: much longer than anything else in a test, also
# on a busy machine.
SLOW_SECONDS = 0.4
SLOW = "ram:1M?req_ns=400000000"


def run(program):
    """Runs a program of its own in a new interpreter, and returns how it ended."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )


def submit(queue, *ios):
    """Submits I/O that must be accepted."""
    assert queue.submit(list(ios)) == len(ios)


def read_slowly(buffer):
    """Returns a queue on a slow disk with a read in flight into a buffer."""
    queue = forebay.Disk(SLOW).queue()
    submit(queue, forebay.Io.read(buffer, 0))
    return queue
