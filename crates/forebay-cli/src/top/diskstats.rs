//! The disks of one answer as lines of `/proc/diskstats`, for `--diskstats`.

use super::answer::{Answer, Disk};
use forebay_insight::{diskstats_line, diskstats_names};

/// Returns the lines.
pub(super) fn of(answer: &Answer) -> String {
    let disks: Vec<_> = answer.disks.iter().map(|disk| (&*disk.name, disk.number)).collect();
    let lines = diskstats_names(&disks);
    lines.iter().zip(&answer.disks).map(|(name, disk)| line(name, disk)).collect()
}

fn line(name: &str, disk: &Disk) -> String {
    // A process of another version may lack a counter.
    let counter = |name: &str| disk.counters.get(name).copied().unwrap_or_default();
    diskstats_line(name, disk.number, disk.in_flight, counter)
}

#[cfg(test)]
mod tests {
    use super::super::answer::{Answer, tests::after};
    use super::*;

    #[test]
    fn lines_have_the_counters_of_each_disk() {
        let lines = of(&Answer::parse(after(1)).expect("an answer"));
        let expected = [
            " 240       1 vm1.img 12000 0 144000 0 4000 0 48000 0 14 640 0 0 0 0 0 10 0\n",
            " 240       2 vm2.img 6000 0 72000 0 2000 0 24000 0 7 640 0 0 0 0 0 10 0\n",
        ];
        assert_eq!(lines, expected.concat());
    }
}
