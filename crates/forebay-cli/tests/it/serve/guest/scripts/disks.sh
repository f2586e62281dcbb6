# Three disks: vda has 4 queues, vdb has blocks of 4096 bytes, vdc is read-only.
for disk in vda vdb vdc; do
    await $disk
    dir=/sys/block/$disk
    report "$disk.sectors $(cat $dir/size)"
    report "$disk.block $(cat $dir/queue/logical_block_size)"
    report "$disk.read_only $(cat $dir/ro)"
    report "$disk.serial $(cat $dir/serial)"
    report "$disk.queues $(ls $dir/mq | wc -l)"
    report "$disk.discard $(cat $dir/queue/discard_max_bytes)"
    report "$disk.zeroes $(cat $dir/queue/write_zeroes_max_bytes)"
    report "$disk.segments $(cat $dir/queue/max_segments)"
    report "$disk.sum $(sha256sum < /dev/$disk | cut -d ' ' -f 1)"
done

# Each processor has its queue.
for cpu in 0 1 2 3; do
    taskset -c $cpu dd if=/dev/vda of=/dev/null bs=4k count=16 skip=$((cpu * 100)) iflag=direct 2> /dev/null ||
        fail "read on processor $cpu"
done
report "used $(grep -c 'virtio0-req' /proc/interrupts)" \
    "$(awk '/virtio0-req/ && $2 + $3 + $4 + $5 > 0' /proc/interrupts | wc -l)"

# write DISK: cached and direct writes, of one block and of many.
write() {
    dd if=/dev/urandom of=/tmp/data bs=64k count=32 2> /dev/null || fail urandom
    dd if=/tmp/data of=/dev/$1 bs=4k seek=5 count=1 oflag=direct conv=notrunc 2> /dev/null || fail "block of $1"
    dd if=/tmp/data of=/dev/$1 bs=4k seek=100 count=300 conv=notrunc,fsync 2> /dev/null || fail "cached $1"
    dd if=/tmp/data of=/dev/$1 bs=1M seek=3 oflag=direct conv=notrunc,fsync 2> /dev/null || fail "direct $1"
    forget
    report "$1.sum $(sha256sum < /dev/$1 | cut -d ' ' -f 1)"
}
write vda
write vdb
if dd if=/tmp/data of=/dev/vdc bs=4k count=1 conv=fsync 2> /dev/null; then fail "vdc was written"; fi
meet written
