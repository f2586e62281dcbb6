#!/usr/bin/env python3
"""Measures how many trace records a second of processor time writes.

    bench/trace.py target/release/forebay [SECONDS]

Prints the table of bench/TRACE.md. A job of random reads runs on `null` without and with `--trace`.
Processor time is that of the whole process: the job, and the thread that writes the files.
"""

import os
import re
import subprocess
import sys
import tempfile

JOBS = [
    ("one at a time", "--iodepth=1"),
    ("32 in flight, in batches of 16", "--iodepth=32 --iodepth_batch=16"),
    ("the same, 100,000 I/Os per second", "--iodepth=32 --iodepth_batch=16 --rate_iops=100000"),
]
RECORD_BYTES = 48
MESSAGE = re.compile(r"trace: (\d+) records in \S+?(?:; (\d+) were lost.*)?$", re.MULTILINE)


def run(program, options, seconds, folder=None):
    """Returns the I/Os, the seconds of processor time, and the records written and lost."""
    words = [program, "bench", "--name=a", "--filename=null:1G", "--rw=randread", "--bs=4k"]
    words += [f"--runtime={seconds}", "--time_based", "--output-format=terse", *options.split()]
    if folder:
        words.append(f"--trace={folder}")
    before = os.times()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    iops = int(done.stdout.split(";")[7])
    found = MESSAGE.search(done.stderr)
    written, lost = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
    return iops * seconds, used, written, lost


def main():
    program = sys.argv[1]
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    print("| job | I/Os per second of processor time, off | on | records per I/O | written per second of"
          " processor time | lost |")
    print("|---|---|---|---|---|---|")
    for name, options in JOBS:
        ios_off, used_off, _, _ = run(program, options, seconds)
        with tempfile.TemporaryDirectory() as folder:
            place = os.path.join(folder, "trace")
            ios, used, written, lost = run(program, options, seconds, place)
            size = sum(entry.stat().st_size for entry in os.scandir(place)
                       if ".blktrace." in entry.name)
        assert size >= written * RECORD_BYTES, "the files have all records that were counted"
        share = 100 * lost / max(written + lost, 1)
        print(f"| {name} | {ios_off / used_off / 1e6:.2f} M | {ios / used / 1e6:.2f} M |"
              f" {(written + lost) / ios:.2f} | {written / used / 1e6:.2f} M | {share:.1f} % |")


if __name__ == "__main__":
    main()
