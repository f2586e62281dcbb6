#!/bin/busybox sh
# All that the guest does: a file system on the served disk at work, and a word when it is done.
/bin/busybox mkdir -p /proc /sys /dev /mnt
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
for module in $(cat /modules/order); do insmod /modules/$module; done
nr=0
while [ ! -b /dev/vda ] && [ $nr -lt 100 ]; do sleep 0.1; nr=$((nr + 1)); done

fail() { echo "GUEST FAILED: $*"; poweroff -f; }

mount -t ext4 -o discard /dev/vda /mnt || fail mount
echo "GUEST DISK: $(cat /sys/block/vda/queue/write_cache), discard $(cat /sys/block/vda/queue/discard_max_bytes)"
dd if=/dev/urandom of=/mnt/big bs=64k count=128 conv=fsync 2> /dev/null || fail dd
for dir in 1 2 3 4 5 6 7 8; do
    mkdir /mnt/dir$dir || fail mkdir
    for file in 1 2 3 4 5 6 7 8; do
        dd if=/mnt/big of=/mnt/dir$dir/file$file bs=$((dir * 1000)) skip=$file count=3 2> /dev/null || fail dd
    done
done
# What is removed is discarded; what is overwritten in place is written in small pieces.
rm -r /mnt/dir4
dd if=/dev/urandom of=/mnt/big bs=4k seek=7 count=9 conv=notrunc,fsync 2> /dev/null || fail dd
sync
echo 3 > /proc/sys/vm/drop_caches
cd /mnt && find . -type f | sort | xargs md5sum > /sums || fail md5sum
echo 3 > /proc/sys/vm/drop_caches
md5sum -c /sums > /dev/null || fail "what was read again differs"
cp /sums /mnt/sums
cd / && fstrim /mnt
umount /mnt || fail umount
echo "GUEST DONE"
poweroff -f
