# A file system on the served disk at work.
await vda
mount -t ext4 -o discard /dev/vda /mnt || fail mount
report "cache $(cat /sys/block/vda/queue/write_cache)"
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
forget
cd /mnt && find . -type f | sort | xargs md5sum > /sums || fail md5sum
forget
md5sum -c /sums > /dev/null || fail "what was read again differs"
cp /sums /mnt/sums
cd / && fstrim /mnt
umount /mnt || fail umount
