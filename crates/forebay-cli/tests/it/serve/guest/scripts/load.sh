# fio on four queues until the host has done its part.
await vda
(
    while [ ! -e /tmp/stop ]; do
        fio --name=load --filename=/dev/vda --direct=1 --ioengine=libaio --iodepth=8 --numjobs=4 --size=4m \
            --offset_increment=4m --rw=randrw --bsrange=512-16k --verify=crc32c --verify_fatal=1 --thread \
            --minimal > /tmp/fio 2>&1 || fail "fio: $(tail -n 3 /tmp/fio)"
        echo round >> /tmp/rounds
    done
) &
load=$!
while [ ! -e /tmp/rounds ]; do sleep 0.1; done
meet loaded
touch /tmp/stop
wait $load
report "rounds $(wc -l < /tmp/rounds)"
