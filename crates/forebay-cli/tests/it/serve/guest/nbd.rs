//! A guest whose disk is QEMU's client of NBD. It mounts a file system, writes files, and keeps
//! their checksums. The host then checks that all files are intact.

use super::machine::{Machine, distribution};
use crate::common::folder;
use crate::serve::server::Server;
use crate::serve::tools::run;
use std::fs::{File, read_to_string};

#[test]
fn a_guest_finds_all_that_it_wrote() {
    let test = "a_guest_finds_all_that_it_wrote";
    let Some(distribution) = distribution(test, &["mkfs.ext4", "debugfs"]) else { return };
    let folder = folder();
    File::create(folder.path().join("disk.img")).expect("a file").set_len(64 << 20).expect("");
    run(&folder, "mkfs.ext4", &["-q", "-F", "disk.img"]);
    let server = Server::start(&folder, "disk.img");
    let drive = format!(
        "file={},format=raw,if=none,id=d,cache=none,discard=unmap,detect-zeroes=unmap",
        server.uri("")
    );
    let devices = ["-drive", &drive, "-device", "virtio-blk-pci,drive=d"].map(str::to_owned);
    let machine = Machine::start(distribution, include_str!("scripts/nbd.sh"), &[], &devices);
    let console = machine.finish();
    // Otherwise the guest sends no flush, and the test proves nothing.
    assert!(console.contains("GUEST cache write back\n"), "{console}");
    // Flushed data must be on the disk, although the server is killed without a shutdown.
    server.kill();
    run(&folder, "e2fsck", &["-fn", "disk.img"]);
    run(&folder, "sh", &["-c", "mkdir out && debugfs -R 'rdump / out' disk.img"]);
    run(&folder, "sh", &["-c", "cd out && md5sum --check --quiet sums"]);
    let sums = read_to_string(folder.path().join("out/sums")).expect("the guest's sums");
    assert_eq!(sums.lines().count(), 57, "all its files");
}
