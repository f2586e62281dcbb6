//! File systems of a guest, and space that it gives back.

use super::export::{Disk, Export};
use super::machine::{Machine, distribution};
use crate::serve::tools::run;
use std::fs::read_to_string;

const MIB: usize = 1 << 20;
const TOOLS: [&str; 5] = ["mkfs.ext4", "mkfs.xfs", "fio", "blkdiscard", "fallocate"];

/// Asserts that an image of ext4 has these many files, each as its checksum says.
fn check_files(export: &Export, image: &str, nr: usize) {
    let folder = export.folder();
    run(folder, "sh", &["-c", &format!("mkdir out && debugfs -R 'rdump / out' {image}")]);
    run(folder, "sh", &["-c", "cd out && md5sum --check --quiet sums"]);
    let sums = read_to_string(folder.path().join("out/sums")).expect("the guest's sums");
    assert_eq!(sums.lines().count(), nr, "all its files");
    run(folder, "rm", &["-r", "out"]);
}

#[test]
fn file_systems_of_a_guest_are_intact_and_give_space_back() {
    let test = "file_systems_of_a_guest_are_intact_and_give_space_back";
    let needed = [&TOOLS[..], &["e2fsck", "debugfs", "xfs_repair"]].concat();
    let Some(distribution) = distribution(test, &needed) else { return };
    let exports = [64, 320, 32].map(|mib| {
        let disk = Disk { len_bytes: mib << 20, ..Disk::default() };
        Export::start(&disk)
    });
    let names = ["ext4", "xfs", "raw"];
    let devices: Vec<_> =
        exports.iter().zip(names).flat_map(|(export, name)| export.device(name, "")).collect();
    let [ext4, xfs, raw] = &exports;
    let script = include_str!("scripts/file_systems.sh");
    let mut machine = Machine::start(distribution, script, &TOOLS, &devices);

    machine.await_point("synced");
    // As after a power cut: the journal completes what the copy lacks.
    run(ext4.folder(), "cp", &["--sparse=always", "disk.img", "copy.img"]);
    run(ext4.folder(), "sh", &["-c", "e2fsck -fy copy.img || [ $? -eq 1 ]"]);
    check_files(ext4, "copy.img", 25);
    let before = [ext4, xfs].map(Export::allocated_bytes);
    machine.release("synced");

    machine.await_point("filled");
    for (export, before) in [ext4, xfs].into_iter().zip(before) {
        let after = export.allocated_bytes();
        assert!(after + 15 * MIB as u64 <= before, "fstrim freed {before} - {after} bytes");
    }
    let data = raw.contents();
    let allocated = raw.allocated_bytes();
    machine.release("filled");

    machine.await_point("freed");
    let now = raw.contents();
    let zeroed = 16 * MIB..24 * MIB;
    assert!(data[zeroed.clone()].chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));
    assert!(now[zeroed].iter().all(|byte| *byte == 0), "both zeroed ranges");
    assert!(now[..16 * MIB] == data[..16 * MIB] && now[28 * MIB..] == data[28 * MIB..], "the rest");
    let freed = allocated - raw.allocated_bytes();
    assert!(freed >= 8 * MIB as u64, "zeroes with unmap and a discard freed {freed} bytes");
    machine.release("freed");
    machine.finish();

    run(ext4.folder(), "e2fsck", &["-fn", "disk.img"]);
    check_files(ext4, "disk.img", 24);
    run(xfs.folder(), "xfs_repair", &["-n", "disk.img"]);
    exports.into_iter().for_each(Export::end);
}
