# The root is ext4 on vda. vdb gets ext4, vdc gets xfs.
grep -q '^/dev/vda / ext4 rw' /proc/mounts || fail "the root is $(grep ' / ' /proc/mounts)"
for disk in vdb vdc; do await $disk; done

mkdir -p /mnt/ext4 /mnt/xfs /etc
# mkfs looks there for mounted file systems.
ln -s /proc/mounts /etc/mtab

# tree DIR: files that are written, overwritten and removed.
tree() {
    for file in 1 2 3 4 5 6 7 8; do
        dd if=/dev/urandom of=$1/$file bs=5000 count=$((file * 9)) 2> /dev/null || fail "dd in $1"
    done
    dd if=/dev/urandom of=$1/8 bs=4k seek=3 count=2 conv=notrunc,fsync 2> /dev/null || fail "dd in $1"
    rm $1/2 $1/5
    (cd $1 && md5sum [0-9] > sums) || fail "md5sum in $1"
    forget
    (cd $1 && md5sum -c sums > /dev/null) || fail "$1: what was read again differs"
}

mkfs.ext4 -q -F /dev/vdb || fail mkfs.ext4
mount -t ext4 /dev/vdb /mnt/ext4 || fail "mount of ext4"
mkfs.xfs -q -f /dev/vdc || fail mkfs.xfs
mount -t xfs /dev/vdc /mnt/xfs || fail "mount of xfs"
mkdir /files
for dir in /mnt/ext4 /mnt/xfs /files; do tree $dir; done
umount /mnt/ext4 || fail "umount of ext4"
umount /mnt/xfs || fail "umount of xfs"

# check PROGRAM...: an intact file system, by its own check.
check() { "$@" > /tmp/check 2>&1 || fail "$*: $(tail -n 5 /tmp/check)"; }
forget
check fsck.ext4 -fn /dev/vdb
check xfs_repair -n /dev/vdc
mount -o remount,ro / || fail "remount of the root"
check fsck.ext4 -fn /dev/vda
