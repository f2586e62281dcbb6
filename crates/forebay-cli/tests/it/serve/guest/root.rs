//! A guest whose root is on an export, and which checks its file systems itself.

use super::export::{Disk, Export};
use super::machine::{Machine, distribution};
use crate::common::folder;
use crate::serve::tools::run;
use std::fs::File;
use std::io::copy;

const TOOLS: [&str; 4] = ["mkfs.ext4", "mkfs.xfs", "fsck.ext4", "xfs_repair"];
const ROOT_MIB: u64 = 64;

#[test]
fn guest_whose_root_is_an_export_finds_its_file_systems_intact() {
    let test = "guest_whose_root_is_an_export_finds_its_file_systems_intact";
    let Some(distribution) = distribution(test, &TOOLS) else { return };
    let folder = folder();
    distribution.make_root(&folder, ROOT_MIB, include_str!("scripts/root.sh"), &TOOLS);
    let disk = |mib: u64| Disk { len_bytes: mib << 20, ..Disk::default() };
    let root = Export::of_file(&disk(ROOT_MIB), |file| {
        let mut image = File::open(folder.path().join("root.img")).expect("the root");
        copy(&mut image, file).expect("room for it");
    });
    let others = [32, 320].map(|mib| Export::start(&disk(mib)));
    let devices = [(&root, "root"), (&others[0], "ext4"), (&others[1], "xfs")]
        .map(|(export, name)| export.device(name, ""))
        .concat();
    let script = include_str!("scripts/to_root.sh");
    Machine::start(distribution, script, &[], &devices).finish();
    run(root.folder(), "fsck.ext4", &["-fn", "disk.img"]);
    run(others[0].folder(), "fsck.ext4", &["-fn", "disk.img"]);
    run(others[1].folder(), "xfs_repair", &["-n", "disk.img"]);
    [root].into_iter().chain(others).for_each(Export::end);
}
