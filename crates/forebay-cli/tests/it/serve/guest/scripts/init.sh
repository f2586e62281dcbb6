#!/bin/busybox sh
# The part that all guests share. A script follows.
/bin/busybox mkdir -p /proc /sys /dev /mnt /tmp
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
# No echo of what the host sends.
stty -echo
# The kernel has started, and no driver of a disk yet.
echo "GUEST BOOTED"
for module in $(cat /modules/order); do insmod /modules/$module; done

# report NAME VALUE...: one line for the host.
report() { echo "GUEST $*"; }

fail() {
    dmesg | tail -n 20
    report "FAILED $*"
    poweroff -f
}

# meet NAME: waits until the host has done its part.
meet() {
    report "WAITS $1"
    local line
    while read -r line; do [ "$line" = "go $1" ] && return; done
    fail "no answer of the host at $1"
}

# Forgets cached data, so that the next read is one of the disk.
forget() { sync && echo 3 > /proc/sys/vm/drop_caches; }

# await DISK: waits until the kernel has found it.
await() {
    local nr=0
    while [ ! -b "/dev/$1" ]; do
        [ $nr -lt 300 ] || fail "no disk $1"
        sleep 0.1
        nr=$((nr + 1))
    done
}

