//! Properties of disks as a guest sees them, and data in both directions.

use super::export::{Disk, Export, is_forebay};
use super::machine::{Machine, distribution};
use crate::serve::tools::run;
use std::io::Write;

const MIB: u64 = 1 << 20;

/// Fills the first half with data that are neither zero nor compressible.
fn fill(file: &mut std::fs::File) {
    let bytes: Vec<u8> =
        (0..4 * MIB as u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    file.write_all(&bytes).expect("room for it");
}

fn sum(export: &Export) -> String {
    let printed = run(export.folder(), "sha256sum", &["disk.img"]);
    printed.split_whitespace().next().expect("a sum").to_owned()
}

#[test]
fn guest_sees_options_of_the_disk_and_its_data() {
    let test = "guest_sees_options_of_the_disk_and_its_data";
    let Some(distribution) = distribution(test, &[]) else { return };
    let first =
        Disk { len_bytes: 8 * MIB, block_size: Some(512), serial: "first", ..Disk::default() };
    let second = Disk {
        block_size: Some(4096),
        nr_queues: 2,
        len_bytes: 9 * MIB,
        serial: "a-serial-of-20-bytes",
        ..first
    };
    let third =
        Disk { is_read_only: true, nr_queues: 1, len_bytes: 10 * MIB, serial: "third", ..first };
    let disks = [("vda", first), ("vdb", second), ("vdc", third)];
    let exports = disks.map(|(_, disk)| Export::of_file(&disk, fill));
    let sums = exports.each_ref().map(sum);
    let devices: Vec<_> = disks
        .iter()
        .zip(&exports)
        .flat_map(|((name, _), export)| export.device(name, ""))
        .collect();
    let mut machine = Machine::start(distribution, include_str!("scripts/disks.sh"), &[], &devices);
    machine.await_point("written");
    for ((name, disk), export) in disks.iter().zip(&exports) {
        let value = |what: &str| machine.value(&format!("{name}.{what}"));
        assert_eq!(value("sectors"), (disk.len_bytes / 512).to_string(), "{name}");
        let block_size = disk.block_size.expect("one of ours");
        assert_eq!(value("block"), block_size.to_string(), "{name}");
        assert_eq!(value("read_only"), u32::from(disk.is_read_only).to_string(), "{name}");
        assert_eq!(value("queues"), disk.nr_queues.to_string(), "{name}");
        if is_forebay() {
            assert_eq!(value("serial"), disk.serial, "{name}");
        }
        for limit in ["discard", "zeroes", "segments"] {
            let nr: u64 = value(limit).parse().expect("a number");
            assert!(nr > 1 || disk.is_read_only, "{name}: {limit} is {nr}");
        }
        // The guest has read what the file had at first, and then what it has written.
        assert_eq!(value("sum"), sum(export), "{name}");
    }
    assert_eq!(machine.value("used"), "4 4", "queues of vda, and those in use");
    let console = machine.console();
    for ((name, _), at_first) in disks.iter().zip(&sums) {
        assert!(console.contains(&format!("GUEST {name}.sum {at_first}\n")), "{name}: {console}");
    }
    assert_ne!(sum(&exports[0]), sums[0], "it was written");
    assert_eq!(sum(&exports[2]), sums[2], "it is read-only");
    machine.release("written");
    machine.finish();
    exports.into_iter().for_each(Export::end);
}
