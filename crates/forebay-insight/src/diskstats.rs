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
    diskstats_of(names(disks).iter().map(String::as_str).zip(disks.iter().cloned()))
}

/// Returns a line for each of these disks, with these names.
#[doc(hidden)]
pub fn diskstats_of<'a>(disks: impl IntoIterator<Item = (&'a str, DiskMeter)>) -> String {
    let (names, meters): (Vec<_>, Vec<_>) =
        disks.into_iter().map(|(name, meter)| ((name, meter.number()), meter)).unzip();
    let line = |(name, meter): (&String, &DiskMeter)| {
        let stats = meter.stats();
        let counters: BTreeMap<_, _> = stats.counters().collect();
        diskstats_line(name, meter.number(), stats.in_flight, |counter| counters[counter])
    };
    diskstats_names(&names).iter().zip(&meters).map(line).collect()
}

/// Returns the names of lines for disks with these names and numbers: one word each, because
/// readers split the line at spaces, and no two the same.
#[doc(hidden)]
pub fn diskstats_names(disks: &[(&str, u64)]) -> Vec<String> {
    let words: Vec<_> =
        disks.iter().map(|(name, _)| name.replace(char::is_whitespace, "_")).collect();
    let name = |(word, (_, number)): (&String, &(&str, u64))| {
        // An export may have an empty name.
        let is_name = !word.is_empty() && words.iter().filter(|other| *other == word).count() == 1;
        if is_name { word.clone() } else { format!("{word}#{number}") }
    };
    words.iter().zip(disks).map(name).collect()
}

/// Returns the line of a disk with this name of [`diskstats_names`], number and number of requests
/// at the device. `counter` returns the value of a counter by its name in
/// [`forebay::disk_counters`].
#[doc(hidden)]
pub fn diskstats_line(
    name: &str,
    number: u64,
    in_flight: u64,
    counter: impl Fn(&str) -> u64,
) -> String {
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
    fn names_that_are_equal_as_words_get_the_number_of_their_disk() {
        let names = [("a b", 1), ("a_b", 2), ("", 3), ("c", 4)];
        assert_eq!(diskstats_names(&names), ["a_b#1", "a_b#2", "#3", "c"]);
    }

    #[test]
    fn line_has_every_field_also_if_numbers_are_large() {
        let line = diskstats_line("#7", 7, 3, |_| u64::MAX);
        let fields: Vec<_> = line.split_whitespace().collect();
        assert_eq!((fields.len(), &fields[..3]), (20, &["240", "7", "#7"][..]), "{line}");
        assert_eq!(fields[11], "3", "in flight: {line}");
        assert_eq!(fields[12], (u64::MAX / 1_000_000).to_string(), "busy, ms: {line}");
    }
}
