# pack.sh GUEST OUT [KERNEL]: creates OUT/initrd.cpio from OUT/init, with busybox, fio and its
# libraries, and modules, and copies the kernel to OUT/vmlinuz. GUEST is the folder of the kernel and
# of busybox, which the tests of guests share. Without it, apt downloads the packages, and nothing is
# installed. KERNEL is the folder of another unpacked package with a kernel.
set -eu
guest=$1
out=$2
if [ ! -e "$guest/bin/busybox" ]; then
    packages=$out/packages
    mkdir -p "$packages" "$(dirname "$guest")"
    (
        cd "$packages"
        depends=$(apt-cache depends linux-image-cloud-amd64)
        image=$(echo "$depends" | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1)
        apt-get -q download "$image" busybox-static
        for package in *.deb; do dpkg-deb --extract "$package" root; done
    )
    mv "$packages/root" "$guest"
fi
root=$out/initrd
mkdir -p "$root/bin" "$root/modules" "$root/usr/bin"
cp "$guest/bin/busybox" "$root/bin/"
cp "$out/init" "$root/init"
chmod +x "$root/init"
kernel=${3:-$guest}
cp "$kernel"/boot/vmlinuz-* "$out/vmlinuz"
# A kernel may have some of them built in, and others compressed.
touch "$root/modules/order"
virtio="virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci"
for module in $virtio mq-deadline virtio_blk kyber-iosched bfq; do
    file=$(find "$kernel" -name "$module.ko" -o -name "$module.ko.xz")
    [ -n "$file" ] || continue
    case $file in
        *.xz) xz --decompress --stdout "$file" > "$root/modules/$module.ko" ;;
        *) cp "$file" "$root/modules/" ;;
    esac
    # The script loads the others itself.
    case $module in virtio_blk | kyber-iosched | bfq) continue ;; esac
    echo "$module.ko" >> "$root/modules/order"
done
fio=$(command -v fio)
for file in "$fio" $(ldd "$fio" | grep -o '/[^ ]*'); do
    mkdir -p "$root$(dirname "$file")"
    cp -L "$file" "$root$file"
done
cd "$root"
bin/busybox find . | bin/busybox cpio -o -H newc > "$out/initrd.cpio" 2> /dev/null
rm -r "$root"
