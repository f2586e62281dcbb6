#!/usr/bin/env bash
# The layer's drivers against fio's engines, on one file: `forebay bench --compare=fio` for each
# load, as a Markdown table of the medians of the pairs' ratios. Takes about half a minute a load.
#
#   bench/against-fio.sh FILE [pairs] [seconds]
#
# FILE is overwritten by the loads that write. Its size decides what is read: make it larger than
# the device's cache, if it has one.
set -euo pipefail
cd "$(dirname "$0")/.."
file=${1:?"usage: bench/against-fio.sh FILE [pairs] [seconds]"}
pairs=${2:-5}
seconds=${3:-2}
cargo build --quiet --profile dist --package forebay-cli
size=$(stat -c %s "$file")

# load NAME OPTIONS...
load() {
    local name=$1
    shift
    local json
    json=$(target/dist/forebay bench --name=load --filename="$file" --size="$size" --direct=1 \
        --time_based=1 --runtime="$seconds" "$@" --compare=fio --compare-pairs="$pairs" \
        --compare-format=json)
    python3 - "$name" "$json" <<'PY'
import json, sys
name, comparison = sys.argv[1], json.loads(sys.argv[2])
rows = {row["metric"]: row for row in comparison["metrics"]}

def cell(metric):
    ratio = rows.get(metric, {}).get("ratio")
    if not ratio:
        return "-"
    return f"{ratio['median']:.2f} ({ratio['min']:.2f}-{ratio['max']:.2f})"

print(f"| {name} | {cell('iops')} | {cell('clat_p50_us')} | {cell('clat_p99_us')} | {cell('cpu_us_per_io')} | {cell('syscalls_per_io')} |")
PY
}

echo "| load | IOPS | p50 | p99 | CPU per I/O | system calls per I/O |"
echo "|---|---|---|---|---|---|"
for depth in 1 4 32 128; do
    load "io_uring, random reads, depth $depth" --ioengine=io_uring --rw=randread --bs=4k --iodepth=$depth
done
batch="--iodepth_batch=16 --iodepth_batch_complete_min=16 --iodepth_batch_complete_max=16"
load "io_uring, random writes, depth 32" --ioengine=io_uring --rw=randwrite --bs=4k --iodepth=32
load "io_uring, random reads, depth 128, batches of 16" --ioengine=io_uring --rw=randread --bs=4k --iodepth=128 $batch
load "io_uring, sequential reads, depth 32" --ioengine=io_uring --rw=read --bs=4k --iodepth=32
load "io_uring, sequential reads, depth 128, batches of 16" --ioengine=io_uring --rw=read --bs=4k --iodepth=128 $batch
load "io_uring, sequential writes, depth 128, batches of 16" --ioengine=io_uring --rw=write --bs=4k --iodepth=128 $batch
load "io_uring, 128k reads, depth 8" --ioengine=io_uring --rw=read --bs=128k --iodepth=8
for depth in 1 32; do
    load "libaio, random reads, depth $depth" --ioengine=libaio --rw=randread --bs=4k --iodepth=$depth
done
load "libaio, random writes, depth 32" --ioengine=libaio --rw=randwrite --bs=4k --iodepth=32
load "libaio, sequential reads, depth 128, batches of 16" --ioengine=libaio --rw=read --bs=4k --iodepth=128 $batch
load "psync, random reads, 1 job" --ioengine=psync --rw=randread --bs=4k
load "psync, random reads, 4 jobs" --ioengine=psync --rw=randread --bs=4k --numjobs=4 --group_reporting
