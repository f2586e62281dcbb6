#!/usr/bin/env bash
# The rbd driver against fio's rbd engine, on one image of a cluster that the script starts: for each
# load, the IOPS of both in turn, and the median of the pairs' ratios, as a Markdown table.
#
#   bench/against-fio-rbd.sh [pairs] [seconds] [part of the name of a load]
#
# Both have `rbd_cache=false` and no read-ahead, except in the rows `defaults`. The cluster is that of
# contrib/ceph/one-node.sh with memstore: monitor, OSD and client share this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
pairs=${1:-5}
seconds=${2:-2}
part=${3:-}
forebay=${FOREBAY:-}
if [ -z "$forebay" ]; then
    cargo build --quiet --profile dist --package forebay-cli
    forebay=${CARGO_TARGET_DIR:-target}/dist/forebay
fi
dir=$(mktemp -d)
trap 'contrib/ceph/one-node.sh stop "$dir/c" || true; rm -rf "$dir"' EXIT
contrib/ceph/one-node.sh start "$dir/c" memstore > /dev/null 2>&1
cp "$dir/c/ceph.conf" "$dir/defaults.conf"
printf 'rbd_cache = false\nrbd_readahead_max_bytes = 0\n' | cat "$dir/c/ceph.conf" - \
    > "$dir/uncached.conf"
rbd --conf "$dir/c/ceph.conf" create rbd/bench --size 512M --image-feature layering
rbd --conf "$dir/c/ceph.conf" bench --io-type write --io-size 1M --io-total 512M rbd/bench \
    > /dev/null 2>&1

# iops PROGRAM CONF OPTIONS...
iops() {
    local program=$1 conf=$2
    shift 2
    local options=(--name=a --size=512M --bs=4k --time_based --runtime="$seconds" "$@"
        --group_reporting --output-format=json)
    case $program in
    fio) CEPH_CONF=$conf fio --ioengine=rbd --clientname=admin --pool=rbd --rbdname=bench --thread \
        "${options[@]}" ;;
    forebay) "$forebay" bench --filename="rbd:rbd/bench?conf=$conf" "${options[@]}" ;;
    esac 2> /dev/null | python3 -c '
import json, sys
text = sys.stdin.read()
job = json.loads(text[text.index("{"):])["jobs"]
print(round(sum(j[k]["iops"] for j in job for k in ("read", "write"))))'
}

# load NAME CONF OPTIONS...
load() {
    local name=$1 conf=$2 ours=() theirs=()
    shift 2
    [[ $name == *"$part"* ]] || return 0
    for _ in $(seq "$pairs"); do
        theirs+=("$(iops fio "$conf" "$@")")
        ours+=("$(iops forebay "$conf" "$@")")
    done
    python3 -c '
import statistics, sys
name, ours, theirs = sys.argv[1], *([int(n) for n in a.split()] for a in sys.argv[2:])
ratios = sorted(o / t for o, t in zip(ours, theirs))
median = statistics.median
print(f"| {name} | {median(ours):.0f} | {median(theirs):.0f} | {median(ratios):.2f} "
      f"({ratios[0]:.2f}-{ratios[-1]:.2f}) |", flush=True)' "$name" "${ours[*]}" "${theirs[*]}"
}

uncached=$dir/uncached.conf
batch=(--iodepth=16 --iodepth_batch=16 --iodepth_batch_complete=16)
echo "| load | forebay, IOPS | fio rbd, IOPS | ratio: median (least-most) |"
echo "|---|---|---|---|"
load "random reads, depth 1" "$uncached" --rw=randread --iodepth=1
load "random reads, depth 32" "$uncached" --rw=randread --iodepth=32
load "random writes, depth 1" "$uncached" --rw=randwrite --iodepth=1
load "random writes, depth 32" "$uncached" --rw=randwrite --iodepth=32
load "sequential reads, batches of 16" "$uncached" --rw=read "${batch[@]}"
load "sequential writes, batches of 16" "$uncached" --rw=write "${batch[@]}"
load "durable random writes, 16 threads" "$uncached" --rw=randwrite --numjobs=16 --fsync=1
load "defaults: random reads, depth 32" "$dir/defaults.conf" --rw=randread --iodepth=32
load "defaults: durable random writes, 16 threads" "$dir/defaults.conf" --rw=randwrite \
    --numjobs=16 --fsync=1
