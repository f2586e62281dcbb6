# The cache of vda in both modes; that of vdb cannot be changed, and vdc has no flushes.
for disk in vda vdb vdc; do await $disk; done
cache() { cat /sys/block/$1/queue/write_cache; }

# load NAME: 64 writes of one block each, and then a flush.
load() {
    report "$1.cache $(cache vda)"
    meet $1
    dd if=/tmp/data of=/dev/vda bs=4k count=64 oflag=direct conv=notrunc 2> /dev/null || fail "dd $1"
    meet $1-written
    dd if=/tmp/data of=/dev/vda bs=4k count=1 conv=notrunc,fsync 2> /dev/null || fail "fsync $1"
    meet $1-synced
}
dd if=/dev/urandom of=/tmp/data bs=4k count=64 2> /dev/null
report "at_first $(cache vda)"
echo "write back" > /sys/block/vda/cache_type || fail "write back"
load back
echo "write through" > /sys/block/vda/cache_type || fail "write through"
load through
echo "write back" > /sys/block/vda/cache_type || fail "write back again"
load again
report "fixed.cache $(cache vdb)"
echo "write through" > /sys/block/vdb/cache_type && fail "the mode of vdb was changed"
report "fixed.still $(cache vdb)"
report "bare.cache $(cache vdc)"
meet bare
dd if=/tmp/data of=/dev/vdc bs=4k count=64 oflag=direct conv=notrunc 2> /dev/null || fail "dd bare"
meet bare-written
