#!/usr/bin/env python3
"""Lateness of replays: `forebay bench --read_iolog` and fio's `read_iolog`, in turn.

Usage: bench/replay.py PROGRAM [ROUNDS]

Both replay one log over NBD to a server that records a trace. The trace is the clock of both: the
lateness of an I/O is the time from the first I/O to its arrival, less the same time in the log.
Needs fio with the engine nbd, and blkparse.
"""

import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

BLOCK = 4096
SECONDS = 4
RATES = (500, 2000, 8000)


def log_of(rate):
    """Returns I/Os as (due in us, word, offset): exponential gaps, each offset once."""
    draw = random.Random(rate)
    offsets = list(range(0, 2 * rate * SECONDS, 2))
    draw.shuffle(offsets)
    due, ios = 0.0, []
    for offset in offsets:
        due += draw.expovariate(rate) * 1e6
        ios.append((int(due), "read" if draw.random() < 0.7 else "write", offset * BLOCK))
        if due > SECONDS * 1e6:
            break
    return ios


def write_log(path, ios):
    lines = ["fio version 3 iolog", "0 disk add", "0 disk open"]
    lines += [f"{due} disk {word} {offset} {BLOCK}" for due, word, offset in ios]
    lines.append(f"{ios[-1][0]} disk close")
    path.write_text("\n".join(lines) + "\n")


def arrivals(folder):
    """Returns the arrival of each offset in a trace, ns."""
    disk = (folder / "devices").read_text().split()[1]
    text = subprocess.run(
        ["blkparse", "-q", "-D", str(folder), "-i", disk, "-a", "queue", "-f", "%a %T %t %S\n"],
        check=True, capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 4 and words[0] == "Q":
            found.setdefault(int(words[3]) * 512, int(words[1]) * 10**9 + int(words[2]))
    return found


def lateness(ios, found):
    """Returns the sorted lateness of all I/Os, us, from the earliest one on."""
    ahead = [found[offset] / 1000 - due for due, _, offset in ios]
    first = min(ahead)
    return sorted(value - first for value in ahead)


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    print("| I/Os per second | replay | p50 | p99 | max | p99 beside fio |\n|---|---|---|---|---|---|")
    for rate in RATES:
        measure(program, rate, rounds)


def measure(program, rate, rounds):
    ios = log_of(rate)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_log(folder / "load.log", ios)
        uri = f"nbd+unix:///?socket={folder}/socket"
        (folder / "run").mkdir(mode=0o700)
        spec = f"ram:{max(offset for _, _, offset in ios) + BLOCK}"
        server = subprocess.Popen(
            [program, "serve", spec, "--nbd", f"unix:{folder}/socket",
             "--control", f"{folder}/run/control"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        common = ["--name=replay", f"--read_iolog={folder}/load.log", "--iodepth=64"]
        commands = {
            "fio": ["fio", *common, "--ioengine=nbd", f"--uri={uri}"],
            "bench": [program, "bench", *common, f"--replay_redirect={uri}", "--eta=never"],
        }
        try:
            while not (folder / "socket").exists():
                time.sleep(0.05)
            results = {which: [] for which in commands}
            for nth in range(rounds):
                for which, command in commands.items():
                    results[which].append(one(program, folder, command, ios, f"{which}{nth}"))
        finally:
            server.terminate()
            server.wait()
    at = lambda all_late, part: all_late[min(len(all_late) - 1, int(part * len(all_late)))]
    p99 = {which: [at(late, 0.99) for late in all_of] for which, all_of in results.items()}
    for which, all_of in results.items():
        middle = lambda part: statistics.median(at(late, part) for late in all_of)
        ratios = sorted(own / fio for own, fio in zip(p99["bench"], p99["fio"]))
        beside = "" if which == "fio" else (
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
        print(f"| {rate} | {which} | {middle(0.5):.0f} us | {middle(0.99):.0f} us | "
              f"{middle(1.0):.0f} us | {beside} |", flush=True)


def one(program, folder, command, ios, name):
    """Replays the log while the server is traced. Returns the lateness of all I/Os."""
    out = folder / name
    trace = subprocess.Popen(
        [program, "trace", str(folder / "run/control"), "--output", str(out)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    trace.send_signal(2)
    trace.wait()
    found = arrivals(out)
    missing = [offset for _, _, offset in ios if offset not in found]
    if missing:
        sys.exit(f"{' '.join(command)}: {len(missing)} of {len(ios)} I/Os did not arrive")
    return lateness(ios, found)


if __name__ == "__main__":
    main()
