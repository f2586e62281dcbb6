"""Reads of `null` in lists of 32 with reusable I/O objects, for instruction counts.

The argument is the number of I/Os.
"""

import sys

import forebay


def main(nr):
    queue = forebay.Disk("null:1G").queue()
    ios = [forebay.Io.read(bytearray(4096), 8192 * at) for at in range(32)]
    for _ in range(nr // 32):
        queue.submit(ios)
        queue.reap(32)


main(int(sys.argv[1]))
