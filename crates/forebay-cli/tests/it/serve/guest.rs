//! A guest on a served disk. A Linux kernel in QEMU, without hardware virtualization, mounts a file
//! system, writes files, and prints their checksums. The host then checks that all files are
//! intact.
//!
//! The kernel and the tools come from the distribution, downloaded once by apt. Without them the
//! test is skipped by name, or fails if `FOREBAY_REQUIRE_TOOLS` is set.

use super::server::Server;
use super::tools::{is_there, run, try_run};
use crate::common::{folder, skip_unless_required, stdout};
use std::fs::{File, copy, create_dir_all, read_to_string, write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const TEST: &str = "a_guest_finds_all_that_it_wrote";
/// The modules that the disk needs, in load order.
const MODULES: [&str; 6] = [
    "virtio/virtio_ring.ko",
    "virtio/virtio.ko",
    "virtio/virtio_pci_legacy_dev.ko",
    "virtio/virtio_pci_modern_dev.ko",
    "virtio/virtio_pci.ko",
    "block/virtio_blk.ko",
];

/// Returns the folder with the distribution's kernel and busybox, unpacked.
fn distribution() -> Option<PathBuf> {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    if kept.join("bin/busybox").exists() {
        return Some(kept);
    }
    let folder = folder();
    let said = stdout(&try_run(&folder, "apt-cache", &["depends", "linux-image-cloud-amd64"]));
    let kernel = said.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))?;
    let kernel = format!("linux-image-{kernel}");
    let got = try_run(&folder, "apt-get", &["-q", "download", &kernel, "busybox-static"]);
    if !got.status.success() {
        return None;
    }
    for entry in std::fs::read_dir(folder.path()).ok()?.flatten() {
        let package = entry.file_name().into_string().ok()?;
        if package.ends_with(".deb") {
            run(&folder, "dpkg-deb", &["--extract", &package, "root"]);
        }
    }
    // A concurrent test run may have created it first.
    let _ = std::fs::rename(folder.path().join("root"), &kept);
    kept.join("bin/busybox").exists().then_some(kept)
}

fn only_entry(folder: &Path, begin: &str) -> PathBuf {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let mut paths = entries.map(|entry| entry.path());
    let begins = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin))
    };
    paths.find(begins).unwrap_or_else(|| panic!("no {begin} in {}", folder.display()))
}

/// Creates the guest's initial file system: busybox, modules, and the init script.
fn initrd(folder: &TempDir, distribution: &Path) {
    let root = folder.path().join("initrd");
    create_dir_all(root.join("bin")).expect("a folder");
    create_dir_all(root.join("modules")).expect("a folder");
    copy(distribution.join("bin/busybox"), root.join("bin/busybox")).expect("a copy");
    let version = only_entry(&distribution.join("lib/modules"), "");
    let mut order = String::new();
    for module in MODULES {
        let from = version.join("kernel/drivers").join(module);
        let name = module.rsplit('/').next().expect("a name");
        copy(from, root.join("modules").join(name)).expect("a copy");
        order.push_str(name);
        order.push('\n');
    }
    write(root.join("modules/order"), order).expect("a file");
    write(root.join("init"), include_str!("guest/init.sh")).expect("a file");
    let pack = "chmod +x initrd/init && cd initrd && bin/busybox find . | \
                bin/busybox cpio -o -H newc > ../initrd.cpio";
    run(folder, "sh", &["-c", pack]);
}

#[test]
fn a_guest_finds_all_that_it_wrote() {
    for tool in ["qemu-system-x86_64", "mkfs.ext4", "debugfs", "dpkg-deb"] {
        if !is_there(tool, TEST) {
            return;
        }
    }
    let Some(distribution) = distribution() else {
        let why = "the kernel of the distribution is not there: apt-get download linux-image-... \
                   and busybox-static failed; apt-get update, and check the network";
        skip_unless_required(TEST, why);
        return;
    };
    let folder = folder();
    initrd(&folder, &distribution);
    File::create(folder.path().join("disk.img")).expect("a file").set_len(64 << 20).expect("");
    run(&folder, "mkfs.ext4", &["-q", "-F", "disk.img"]);
    let server = Server::start(&folder, "disk.img");
    let kernel = only_entry(&distribution.join("boot"), "vmlinuz");
    let drive = format!(
        "file={},format=raw,if=none,id=d,cache=none,discard=unmap,detect-zeroes=unmap",
        server.uri("")
    );
    let args = [
        "-accel",
        "tcg",
        "-m",
        "256",
        "-nodefaults",
        "-no-reboot",
        "-display",
        "none",
        "-serial",
        "file:console",
        "-initrd",
        "initrd.cpio",
        "-append",
        "console=ttyS0 quiet panic=-1",
        "-device",
        "virtio-blk-pci,drive=d",
        "-drive",
        &drive,
        "-kernel",
    ];
    let kernel = kernel.to_str().expect("a path of ours");
    run(&folder, "qemu-system-x86_64", &[&args[..], &[kernel]].concat());
    let console = read_to_string(folder.path().join("console")).expect("the guest's console");
    assert!(console.contains("GUEST DONE"), "{console}");
    // Otherwise the guest sends no flush, and the test proves nothing.
    assert!(console.contains("GUEST DISK: write back"), "{console}");
    // Flushed data must be on the disk, although the server is killed without a shutdown.
    server.kill();
    run(&folder, "e2fsck", &["-fn", "disk.img"]);
    run(&folder, "sh", &["-c", "mkdir out && debugfs -R 'rdump / out' disk.img"]);
    run(&folder, "sh", &["-c", "cd out && md5sum --check --quiet sums"]);
    let sums = read_to_string(folder.path().join("out/sums")).expect("the guest's sums");
    assert_eq!(sums.lines().count(), 57, "all its files");
}
