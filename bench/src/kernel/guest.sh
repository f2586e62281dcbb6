# Measures the schedulers of the guest's kernel on /dev/vda. A list of calls follows.
tracing=/sys/kernel/tracing
# The number of requests that the driver takes from the scheduler at once.
insmod /modules/virtio_blk.ko queue_depth=$(sed -n 's/.*device_depth=\([0-9]*\).*/\1/p' /proc/cmdline)
insmod /modules/kyber-iosched.ko
insmod /modules/bfq.ko
mount -t tracefs none $tracing
await vda
cd /sys/block/vda/queue
report "KERNEL $(uname -r)"

# settle KEY=VALUE...: settings of the queue and of its scheduler, which is the first one.
settle() {
    local pair file
    echo none > scheduler
    for pair in "$@" max_sectors_kb=256; do
        file=${pair%%=*}
        [ -e "$file" ] || file=iosched/$file
        echo "${pair#*=}" > "$file" || fail "setting $pair"
    done
}

# order NAME KEY=VALUE...: the order in which /tmp/requests are issued, from the kernel's trace.
order() {
    report "BEGIN $1"
    shift
    settle "$@"
    echo > $tracing/trace
    echo 1 > $tracing/events/block/block_rq_issue/enable
    fio --name=order --ioengine=libaio --direct=1 --thread --iodepth=64 --read_iolog=/tmp/requests \
        --minimal > /tmp/out 2>&1 || fail "fio: $(tail -n 3 /tmp/out)"
    echo 0 > $tracing/events/block/block_rq_issue/enable
    grep -v '^#' $tracing/trace
    report END
}

# load NAME FILE KEY=VALUE...: fio's report of a job file.
load() {
    report "BEGIN $1"
    local file=$2
    shift 2
    settle "$@"
    fio --output-format=json --output=/tmp/out "$file" || fail "fio: $(tail -n 3 /tmp/out)"
    cat /tmp/out
    report END
}

