//! Counters of disks as lines of `/proc/diskstats`.

use crate::stats::names;
use forebay::{DiskMeter, Op, OpStats};
use std::fmt::Write as _;

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
    let mut text = String::new();
    for (name, meter) in names(disks).iter().zip(disks) {
        // Readers split the line at spaces.
        let name = name.replace(char::is_whitespace, "_");
        let _ = writeln!(text, "{MAJOR:4} {:7} {name} {}", meter.number(), counters(meter));
    }
    text
}

/// Returns the 17 counters.
fn counters(meter: &DiskMeter) -> String {
    let stats = meter.stats();
    let op = |op| stats.queue.op(op);
    let zeroes = op(Op::WriteZeroes);
    let mut writes = *op(Op::Write);
    writes.requests += zeroes.requests;
    writes.merges += zeroes.merges;
    writes.bytes += zeroes.bytes;
    writes.ticks_ns += zeroes.ticks_ns;
    let (reads, discards, flushes) = (op(Op::Read), op(Op::Discard), op(Op::Flush));
    let all_ns: u64 = Op::ALL.into_iter().map(|of| op(of).ticks_ns).sum();
    let four =
        |op: &OpStats| [op.requests, op.merges, op.bytes / SECTOR_BYTES, op.ticks_ns / NS_PER_MS];
    let whole = [stats.in_flight, stats.queue.busy_ns / NS_PER_MS, all_ns / NS_PER_MS];
    let flush = [flushes.requests, flushes.ticks_ns / NS_PER_MS];
    let all = four(reads).into_iter().chain(four(&writes)).chain(whole);
    let all = all.chain(four(discards)).chain(flush);
    all.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
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
}
