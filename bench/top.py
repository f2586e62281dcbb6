#!/usr/bin/env python3
"""Processor time of `forebay top`, and of the server that it watches.

Usage: bench/top.py PROGRAM [SECONDS]. It needs tmux. Results and their machine are in TOP.md.
"""

import glob
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

ANSWERS = 100


def cpu_seconds(pid):
    """Returns the processor time of all threads of a process."""
    files = glob.glob(f"/proc/{pid}/task/*/schedstat")
    return sum(int(open(name).read().split()[0]) for name in files) / 1e9


def share(pids, seconds):
    """Returns the share of a processor that each process uses, in percent."""
    before = [cpu_seconds(pid) for pid in pids]
    time.sleep(seconds)
    return [100 * (cpu_seconds(pid) - then) / seconds for pid, then in zip(pids, before)]


def tmux(*args):
    return subprocess.check_output(["tmux", "-S", "tmux", "-f", "/dev/null", *args], text=True)


def answer(pid):
    """Returns the processor time of an answer, in microseconds, and its bytes."""
    client = socket.socket(socket.AF_UNIX)
    client.connect("run/control")
    lines = client.makefile("rw")
    before = cpu_seconds(pid)
    for _ in range(ANSWERS):
        lines.write('{"command":"stats"}\n')
        lines.flush()
        line = lines.readline()
    assert json.loads(line)["protocol"] == 1
    return 1e6 * (cpu_seconds(pid) - before) / ANSWERS, len(line)


def measure(program, nr_disks, seconds):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    specs = [f"null:{at + 1}G?nr_hw_queues=3" for at in range(nr_disks)]
    server = subprocess.Popen(
        [program, "serve", *specs, "--nbd", "unix:s", "--limits", "iops=100k"]
        + ["--control", "run/control"],
        **quiet,
    )
    time.sleep(2)
    here = os.getcwd()
    loads = [
        subprocess.Popen(
            [program, "bench", "--name=x", "--rw=randread", "--iodepth=4", "--size=1g"]
            + [f"--filename=nbd+unix:///null:{at}G?socket={here}/s", "--rate_iops=2000"]
            + ["--time_based", f"--runtime={10 + 3 * seconds}"],
            **quiet,
        )
        for at in (1, 2)
    ]
    time.sleep(2)
    [alone] = share([server.pid], seconds)
    tmux("new-session", "-d", "-x", "160", "-y", "50", f"exec {program} top {here}/run/control")
    time.sleep(3)
    view = int(tmux("list-panes", "-F", "#{pane_pid}"))
    top, watched = share([view, server.pid], seconds)
    tmux("kill-server")
    for load in loads:
        load.terminate()
        load.wait()
    microseconds, nr_bytes = answer(server.pid)
    server.terminate()
    server.wait()
    print(
        f"| {nr_disks} | {top:.2f} % | {alone:.2f} % | {watched:.2f} % | {microseconds:.0f} us"
        f" | {nr_bytes} |"
    )


def main():
    program = os.path.abspath(sys.argv[1])
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.mkdir("run", 0o700)
        print("| disks | `top` | server alone | server watched | an answer | bytes |")
        print("|---|---|---|---|---|---|")
        for nr_disks in (2, 50):
            measure(program, nr_disks, seconds)


if __name__ == "__main__":
    main()
