# A disk of 64 MiB that grows to 96 and to 128 MiB, with a load on its first half.
await vda
report "sectors $(cat /sys/block/vda/size)"
{
    while [ ! -e /tmp/stop ]; do
        dd if=/dev/zero of=/dev/vda bs=64k count=64 oflag=direct conv=notrunc 2> /dev/null || fail "the load"
    done
    touch /tmp/stopped
} &

# One MiB, whose sectors all begin with the same text.
printf '%-511s\n' "new area" > /tmp/data
for double in 1 2 4 8 16 32 64 128 256 512 1024; do
    cat /tmp/data /tmp/data > /tmp/twice && mv /tmp/twice /tmp/data
done

# use MIB: waits until the disk has grown to this size, and writes up to its new end.
use() {
    local nr=0 last=$(($1 - 1))
    while [ "$(cat /sys/block/vda/size)" != $(($1 * 2048)) ]; do
        [ $nr -lt 600 ] || fail "no growth to $1 MiB"
        sleep 0.1
        nr=$((nr + 1))
    done
    write_last $1
    dd if=/dev/vda of=/tmp/read bs=1M skip=$last iflag=direct 2> /dev/null || fail "read of the last MiB"
    cmp /tmp/data /tmp/read || fail "the last MiB differs"
    if dd if=/tmp/data of=/dev/vda bs=1M count=1 seek=$1 oflag=direct conv=notrunc 2> /dev/null; then
        fail "a write behind the new end"
    fi
}

# write_last MIB: writes the last MiB of a disk of this size.
write_last() {
    dd if=/tmp/data of=/dev/vda bs=1M count=1 seek=$(($1 - 1)) oflag=direct conv=notrunc 2> /dev/null ||
        fail "write of the last MiB of $1"
}
meet started
use 96
meet grown
use 128
meet "grown again"

# The file was truncated to 64 MiB, and the server has refused that.
[ "$(cat /sys/block/vda/size)" = 262144 ] || fail "the disk has shrunk"
if dd if=/dev/vda of=/dev/null bs=1M count=1 skip=80 iflag=direct 2> /dev/null; then
    fail "a read behind the end of the file succeeds"
fi
write_last 128
touch /tmp/stop
while [ ! -e /tmp/stopped ]; do sleep 0.1; done
