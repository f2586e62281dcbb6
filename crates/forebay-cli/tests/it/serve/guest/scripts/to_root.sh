# The guest goes on from the ext4 on vda, which has an init script of its own.
await vda
mount -t ext4 /dev/vda /mnt || fail "mount of the root"
exec switch_root /mnt /init
