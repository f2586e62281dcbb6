# vda loses its driver under load and gets it back, 20 times. Beside it vdb is verified, in both modes
# of its cache.
await vda
await vdb
(
    while [ ! -e /tmp/stop ]; do
        fio --name=load --filename=/dev/vdb --direct=1 --ioengine=libaio --iodepth=8 --numjobs=4 --size=1m \
            --offset_increment=1m --rw=randrw --bsrange=512-16k --verify=crc32c --verify_fatal=1 --thread \
            --minimal > /tmp/fio 2>&1 || fail "fio: $(tail -n 3 /tmp/fio)"
        echo round >> /tmp/rounds
    done
) &
beside=$!
(
    while [ ! -e /tmp/stop ]; do
        for mode in through back; do
            echo "write $mode" > /sys/block/vdb/cache_type || fail "write $mode"
            [ "$(cat /sys/block/vdb/queue/write_cache)" = "write $mode" ] || fail "vdb is not write $mode"
            echo $mode >> /tmp/toggles
            sleep 0.05
        done
    done
) &
toggles=$!

device=$(basename $(readlink -f /sys/block/vda/device))
driver=/sys/bus/virtio/drivers/virtio_blk
nr=0
while [ $nr -lt 20 ]; do
    # A disk whose device files are still open keeps its name.
    disk=$(ls /sys/bus/virtio/devices/$device/block)
    await $disk
    if [ $nr -gt 0 ]; then
        found=$(dd if=/dev/$disk bs=512 count=1 iflag=direct 2> /dev/null | head -c 8)
        [ "$found" = "$(printf %08d $nr)" ] || fail "storm $nr: it found $found on $disk"
    fi
    nr=$((nr + 1))
    printf '%0511d\n' 0 > /tmp/record
    printf '%08d' $nr | dd of=/tmp/record conv=notrunc 2> /dev/null
    dd if=/tmp/record of=/dev/$disk bs=512 oflag=direct conv=notrunc 2> /dev/null || fail "record $nr"
    writers=
    for cpu in 0 1 2 3; do
        taskset -c $cpu dd if=/dev/urandom of=/dev/$disk bs=4k seek=$((100 + 1000 * cpu)) count=900 oflag=direct \
            conv=notrunc 2> /dev/null &
        writers="$writers $!"
    done
    sleep 0.1
    echo $device > $driver/unbind || fail "unbind $nr"
    wait $writers
    # A writer that began after the unbind has created a file, which would keep the new disk out.
    [ -b /dev/$disk ] || rm -f /dev/$disk
    echo $device > $driver/bind || fail "bind $nr"
done
report "records $nr"
while [ ! -e /tmp/rounds ]; do sleep 0.1; done
touch /tmp/stop
wait $beside $toggles
report "rounds $(wc -l < /tmp/rounds)"
report "toggles $(wc -l < /tmp/toggles)"
