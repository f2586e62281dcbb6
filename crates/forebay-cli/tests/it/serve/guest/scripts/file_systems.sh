# vda gets ext4, vdb gets xfs; vdc is written by fio, and then given back in part.
for disk in vda vdb vdc; do await $disk; done

# tree DIR: a large file, and small ones that are written in pieces and overwritten.
tree() {
    dd if=/dev/urandom of=$1/big bs=64k count=256 conv=fsync 2> /dev/null || fail "dd in $1"
    for dir in 1 2 3 4; do
        mkdir $1/dir$dir || fail "mkdir in $1"
        for file in 1 2 3 4 5 6 7 8; do
            dd if=$1/big of=$1/dir$dir/file$file bs=$((dir * 1000)) skip=$file count=3 2> /dev/null || fail "dd in $1"
        done
    done
    rm -r $1/dir2
    dd if=/dev/urandom of=$1/big bs=4k seek=7 count=9 conv=notrunc,fsync 2> /dev/null || fail "dd in $1"
    forget
    (cd $1 && find . -type f | sort | xargs md5sum) > /tmp/sums || fail "md5sum in $1"
    cp /tmp/sums $1/sums
    forget
    (cd $1 && md5sum -c sums > /dev/null) || fail "$1: what was read again differs"
}

mkdir -p /mnt/ext4 /mnt/xfs /etc
# mkfs looks there for mounted file systems.
ln -s /proc/mounts /etc/mtab
mkfs.ext4 -q -F /dev/vda || fail mkfs.ext4
mount -t ext4 /dev/vda /mnt/ext4 || fail "mount of ext4"
mkfs.xfs -q -f /dev/vdb || fail mkfs.xfs
mount -t xfs /dev/vdb /mnt/xfs || fail "mount of xfs"
tree /mnt/ext4
tree /mnt/xfs
sync
meet synced
for kind in ext4 xfs; do
    rm /mnt/$kind/big
    sed -i '/ .\/big$/d' /mnt/$kind/sums
    sync
    /bin/fstrim /mnt/$kind || fail "fstrim of $kind"
    umount /mnt/$kind || fail "umount of $kind"
done

# Four jobs, so that all queues are at work at once.
fio --name=verify --filename=/dev/vdc --direct=1 --ioengine=libaio --iodepth=8 --numjobs=4 --size=2m \
    --offset_increment=2m --rw=randrw --bsrange=512-16k --verify=crc32c --verify_fatal=1 --thread --minimal \
    > /tmp/fio 2>&1 || fail "fio: $(tail -n 3 /tmp/fio)"

dd if=/dev/urandom of=/dev/vdc bs=1M seek=16 count=16 conv=notrunc,fsync 2> /dev/null || fail "dd on vdc"
meet filled
# Zeroes that keep the blocks, zeroes that may free them, and a discard, of 4 MiB each.
blkdiscard=/usr/bin/blkdiscard
$blkdiscard -z -o $((16 << 20)) -l $((4 << 20)) /dev/vdc || fail zeroes
/usr/bin/fallocate -p -o $((20 << 20)) -l $((4 << 20)) /dev/vdc || fail "zeroes with unmap"
$blkdiscard -o $((24 << 20)) -l $((4 << 20)) /dev/vdc || fail discard
meet freed
