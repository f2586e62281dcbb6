# Four registers, one on each queue, and fio beside them, until the host has restarted the server often.
await vda

# check NR TEXT: fails unless sector NR has this text.
check() {
    local found
    found=$(taskset -c $1 dd if=/dev/vda bs=512 skip=$1 count=1 iflag=direct 2> /dev/null)
    [ "$found" = "$2" ] || fail "writer $1: instead of $2 it read $found"
}

# writer NR: writes rising numbers to sector NR, and reads each of them twice before the next.
writer() {
    local nr=0 record
    while [ ! -e /tmp/stop ]; do
        nr=$((nr + 1))
        record=$(printf '%0511d' $nr)
        echo $record > /tmp/record$1
        taskset -c $1 dd if=/tmp/record$1 of=/dev/vda bs=512 seek=$1 oflag=direct conv=notrunc 2> /dev/null ||
            fail "number $nr of writer $1"
        check $1 $record
        check $1 $record
    done
    report "register$1 $nr"
}
for cpu in 0 1 2 3; do writer $cpu & done
nr=0
# The host's release is the end: what it says is read meanwhile.
(read -r line && touch /tmp/stop) < /dev/console &
while [ ! -e /tmp/stop ]; do
    fio --name=load --filename=/dev/vda --direct=1 --ioengine=libaio --iodepth=8 --numjobs=4 --size=8m \
        --offset=1m --offset_increment=8m --rw=randrw --bsrange=512-16k --verify=crc32c --verify_fatal=1 \
        --thread --minimal > /tmp/fio 2>&1 || fail "fio: $(tail -n 3 /tmp/fio)"
    nr=$((nr + 1))
    report "round $nr"
done
wait
