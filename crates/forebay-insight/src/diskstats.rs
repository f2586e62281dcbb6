//! Counters of disks as lines of `/proc/diskstats`.

use crate::stats::names;
use forebay::{DiskMeter, Op};
use std::collections::BTreeMap;

/// The major number of the lines. Linux leaves 240 to 254 to local use, and never assigns them.
/// Traces use the same.
const MAJOR: u32 = 240;

const SECTOR_BYTES: u64 = 512;
const NS_PER_MS: u64 = 1_000_000;

/// Returns a line for each of these disks, in the format of `/proc/diskstats` (Linux 5.5 and newer:
/// 17 counters, `Documentation/admin-guide/iostats.rst`). Written to a file, it is the input of
/// programs that read that file. The minor number is that of the disk in this process. Zeroed
/// ranges count as writes, as in Linux.
///
/// ```
/// let disk = forebay::Disk::open("ram:1M")?;
/// disk.write_all_at(&[7; 4096], 0)?;
/// let line = forebay_insight::diskstats(&[disk.meter()]);
/// let fields: Vec<_> = line.split_whitespace().collect();
/// assert_eq!(fields[2], "ram:1M");
/// assert_eq!((fields[7], fields[9]), ("1", "8")); // a write, of 8 sectors
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn diskstats(disks: &[DiskMeter]) -> String {
    names(disks).iter().zip(disks).map(|(name, meter)| diskstats_of(name, meter)).collect()
}

/// Returns the line of a disk with this name.
#[doc(hidden)]
pub fn diskstats_of(name: &str, meter: &DiskMeter) -> String {
    let stats = meter.stats();
    let counters: BTreeMap<_, _> = stats.counters().collect();
    diskstats_line(name, meter.number(), stats.in_flight, |counter| counters[counter])
}

/// Returns the line of a disk with this name, number and number of requests at the device.
/// `counter` returns the value of a counter by its name in [`forebay::disk_counters`].
#[doc(hidden)]
pub fn diskstats_line(
    name: &str,
    number: u64,
    in_flight: u64,
    counter: impl Fn(&str) -> u64,
) -> String {
    // Readers split the line at spaces, and an export may have an empty name.
    let name = match name {
        "" => format!("#{number}"),
        name => name.replace(char::is_whitespace, "_"),
    };
    // Counters of another process may be any numbers.
    let sum = |ops: &[Op], what: &str| {
        let values = ops.iter().map(|op| counter(&format!("{}_{what}", op.name())));
        values.fold(0, u64::saturating_add)
    };
    let four = |ops: &[Op]| {
        [
            sum(ops, "requests"),
            sum(ops, "merges"),
            sum(ops, "bytes") / SECTOR_BYTES,
            sum(ops, "ticks_ns") / NS_PER_MS,
        ]
    };
    let time_ms = [counter("busy_ns"), sum(&Op::ALL, "ticks_ns")].map(|ns| ns / NS_PER_MS);
    let flushes = [sum(&[Op::Flush], "requests"), sum(&[Op::Flush], "ticks_ns") / NS_PER_MS];
    let numbers = [
        &four(&[Op::Read])[..],
        &four(&[Op::Write, Op::WriteZeroes]),
        &[in_flight],
        &time_ms,
        &four(&[Op::Discard]),
        &flushes,
    ];
    let mut line = format!("{MAJOR:4} {number:7} {name}");
    for number in numbers.concat() {
        line += &format!(" {number}");
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::{Disk, Io, Spec};

    #[test]
    fn fields_are_in_the_order_of_the_kernel() {
        let disk = Disk::open("ram:1M?nr_hw_queues=1").expect("it opens");
        let plug = forebay::plug();
        let mut queue = disk.queue();
        for n in 0..4 {
            queue.submit(Io::read(forebay::Buf::new(512), n * 512)).expect("a read");
        }
        drop(plug);
        queue.reap(4, 4, &mut Vec::new());
        disk.write_all_at(&[1; 1024], 0).expect("a write");
        disk.write_zeroes(4096, 2048).expect("zeroes");
        disk.discard(8192, 4096).expect("a discard");
        let line = diskstats(&[disk.meter()]);
        let fields: Vec<_> = line.split_whitespace().collect();
        assert_eq!((fields.len(), fields[0], fields[2]), (20, "240", "ram:1M"), "{line}");
        assert_eq!(fields[1], disk.meter().number().to_string());
        let number = |at: usize| fields[at].parse::<u64>().expect("a number");
        assert_eq!([3, 4, 5].map(number), [1, 3, 4], "reads, merged, sectors: {line}");
        assert_eq!([7, 8, 9].map(number), [2, 0, 6], "writes, merged, sectors: {line}");
        assert_eq!(number(11), 0, "in flight: {line}");
        assert_eq!([14, 15, 16].map(number), [1, 0, 8], "discards, merged, sectors: {line}");
    }

    #[test]
    fn names_are_one_word_and_no_two_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a b.img");
        std::fs::write(&path, [0; 4096]).expect("a file");
        let disks = [(); 2].map(|()| Disk::open_spec(&Spec::from_path(&path)).expect("it opens"));
        let lines = diskstats(&disks.each_ref().map(Disk::meter));
        let names: Vec<_> = lines.lines().map(|line| line.split(' ').rev().nth(17)).collect();
        let expected = disks.each_ref().map(|disk| format!("a_b.img#{}", disk.meter().number()));
        assert_eq!(names, expected.each_ref().map(|name| Some(name.as_str())), "{lines}");
    }

    #[test]
    fn line_has_every_field_also_if_the_name_is_empty_and_numbers_are_large() {
        let line = diskstats_line("", 7, 3, |_| u64::MAX);
        let fields: Vec<_> = line.split_whitespace().collect();
        assert_eq!((fields.len(), &fields[..3]), (20, &["240", "7", "#7"][..]), "{line}");
        assert_eq!(fields[11], "3", "in flight: {line}");
        assert_eq!(fields[12], (u64::MAX / 1_000_000).to_string(), "busy, ms: {line}");
    }
}
