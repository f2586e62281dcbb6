//! Columns of the tables, for the live view and for `--once`.

use super::sample::{DiskSample, ExportSample, OwnerSample, StageSample, WaitSample};
use crate::figure::unit::Unit;

/// A column of a table whose rows are of type `T`.
pub(super) struct Column<T> {
    pub(super) title: &'static str,
    /// Width in characters; the first column takes what is left.
    pub(super) width: u16,
    /// The narrowest screen that has room for it.
    pub(super) from_width: u16,
    pub(super) cell: fn(&T) -> String,
}

const fn column<T>(
    title: &'static str,
    width: u16,
    from_width: u16,
    cell: fn(&T) -> String,
) -> Column<T> {
    Column { title, width, from_width, cell }
}

pub(super) const DISKS: [Column<DiskSample>; 14] = [
    column("DISK", 12, 0, disk_name),
    column("IOPS", 6, 0, |disk| count(disk.iops)),
    column("READ", 9, 0, |disk| rate(disk.read_bytes)),
    column("WRITE", 9, 0, |disk| rate(disk.written_bytes)),
    column("REQ/s", 6, 0, |disk| count(disk.requests)),
    column("MERGED", 6, 0, |disk| percent(disk.merged)),
    column("DEPTH", 5, 0, |disk| disk.in_flight.to_string()),
    column("BUSY", 5, 0, |disk| percent(disk.utilization)),
    column("MEAN", 7, 100, |disk| disk.stages.last().map_or_else(dash, mean)),
    column("P99", 7, 0, |disk| disk.stages.last().map_or_else(dash, p99)),
    column("FLUSH", 6, 100, |disk| count(disk.flushes["asked"])),
    column("SYSCALL", 7, 120, |disk| count(disk.system_calls)),
    column("SCHEDULER", 11, 120, |disk| disk.scheduler.clone()),
    column("DRIVER", 10, 140, |disk| disk.driver.clone()),
];

pub(super) const EXPORTS: [Column<ExportSample>; 11] = [
    column("EXPORT", 12, 0, |export| export.name.clone()),
    column("CLIENTS", 7, 0, |export| export.clients.to_string()),
    column("REQ/s", 6, 0, |export| count(export.requests)),
    column("READ", 9, 0, |export| rate(export.read_bytes)),
    column("WRITE", 9, 0, |export| rate(export.written_bytes)),
    column("DEPTH", 5, 0, |export| export.in_flight.to_string()),
    column("ERR/s", 5, 0, |export| count(export.errors)),
    column("RECEIVE", 7, 0, |export| export.stages.first().map_or_else(dash, mean)),
    column("AT DISK", 7, 0, |export| export.stages.last().map_or_else(dash, mean)),
    column("REC P99", 7, 100, |export| export.stages.first().map_or_else(dash, p99)),
    column("DISK P99", 8, 100, |export| export.stages.last().map_or_else(dash, p99)),
];

pub(super) const OWNERS: [Column<OwnerSample>; 14] = [
    column("OWNER", 10, 0, owner_name),
    column("DISK", 10, 0, |owner| owner.disk.clone()),
    column("IOPS", 6, 0, |owner| count(owner.iops)),
    column("BYTES", 9, 0, |owner| rate(owner.bytes)),
    column("DEPTH", 5, 0, |owner| number(owner.in_flight)),
    column("MEAN", 7, 0, |owner| owner.stages.first().map_or_else(dash, mean)),
    column("P99", 7, 0, |owner| owner.stages.first().map_or_else(dash, p99)),
    column("DEVICE", 7, 120, |owner| owner.stages.last().map_or_else(dash, mean)),
    column("LIMIT", 15, 0, |owner| wait(owner, "limit")),
    column("TAG", 15, 120, |owner| wait(owner, "tag")),
    column("SCHED", 15, 100, |owner| wait(owner, "scheduler")),
    column("MISSED", 6, 140, |owner| count(owner.missed_windows)),
    column("MAX DEPTH", 9, 140, |owner| number(owner.depth)),
    column("WEIGHT", 6, 140, |owner| owner.weight.to_string()),
];

/// Returns the name of a disk, marked if its device is gone.
fn disk_name(disk: &DiskSample) -> String {
    if disk.failed { format!("{} (gone)", disk.name) } else { disk.name.clone() }
}

fn owner_name(owner: &OwnerSample) -> String {
    match &owner.parent {
        Some(parent) => format!("{parent}/{}", owner.name),
        None => owner.name.clone(),
    }
}

/// Returns the waits of an owner for one cause, as a rate and a mean time.
fn wait(owner: &OwnerSample, cause: &str) -> String {
    owner.waits.iter().find(|wait| wait.cause == cause).map_or_else(dash, wait_text)
}

/// Returns waits as a rate and a mean time.
pub(super) fn wait_text(wait: &WaitSample) -> String {
    match wait.per_second > 0.0 {
        true => format!("{}/s {}", count(wait.per_second), time(wait.mean_ns)),
        false => dash(),
    }
}

/// Returns a name that fits into a column. The middle of a longer one is left out, because names
/// of the clients of an export differ only at the end.
pub(super) fn shortened(name: String, width: usize) -> String {
    let nr_chars = name.chars().count();
    if nr_chars <= width || width == 0 {
        return name;
    }
    let nr_first = (width - 1) / 3;
    let nr_last = width - 1 - nr_first;
    let first = name.chars().take(nr_first);
    let last = name.chars().skip(nr_chars - nr_last);
    first.chain(['\u{2026}']).chain(last).collect()
}

/// Returns a number, or a dash without one.
fn number(value: Option<u64>) -> String {
    value.map_or_else(dash, |value| value.to_string())
}

fn dash() -> String {
    "-".to_owned()
}

/// Returns a number with at most three digits that count.
pub(super) fn count(value: f64) -> String {
    Unit::Count.label(value)
}

/// Returns bytes per second.
pub(super) fn rate(value: f64) -> String {
    match value > 0.0 {
        true => Unit::BytesPerSecond.label(value),
        false => "0".to_owned(),
    }
}

/// Returns a time.
pub(super) fn time(ns: f64) -> String {
    Unit::Ns.label(ns).replace('\u{b5}', "u").replace(' ', "")
}

/// Returns a time of a stage, or a dash if no I/O has passed it.
pub(super) fn time_of(stage: &StageSample, ns: f64) -> String {
    if stage.per_second > 0.0 { time(ns) } else { dash() }
}

fn mean(stage: &StageSample) -> String {
    time_of(stage, stage.mean_ns)
}

fn p99(stage: &StageSample) -> String {
    time_of(stage, stage.p99_ns as f64)
}

/// Returns a share.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Returns a time in the two units that fit.
pub(super) fn uptime(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fit_their_columns() {
        for value in [0.0, 0.004, 0.04, 1.0, 12.34, 999.4, 999_600.0, 123_456_789.0, 9.99e12] {
            assert!(count(value).len() <= 6, "{}", count(value));
            assert!(rate(value).len() <= 9, "{}", rate(value));
            assert!(time(value).chars().count() <= 7, "{}", time(value));
        }
        assert_eq!(
            [0, 59, 61, 3661, 90_000].map(uptime),
            ["0 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]
        );
        assert_eq!(
            (time(84_000.0), time(0.0), percent(0.336)),
            ("84us".into(), "0".into(), "34 %".into())
        );
    }

    #[test]
    fn long_names_keep_their_first_and_last_characters() {
        let short = |width| shortened("export:a.img/client:7".to_owned(), width);
        assert_eq!(short(21), "export:a.img/client:7");
        assert_eq!(short(14), "expo\u{2026}/client:7");
        assert_eq!(
            (short(3), short(2), short(1)),
            ("\u{2026}:7".into(), "\u{2026}7".into(), "\u{2026}".into())
        );
        assert_eq!(shortened("\u{e4}\u{f6}\u{fc}x".to_owned(), 4), "\u{e4}\u{f6}\u{fc}x");
    }

    #[test]
    fn columns_of_narrow_screens_fit_into_eighty() {
        fn width<T>(columns: &[Column<T>], screen: u16) -> u16 {
            let shown = columns.iter().filter(|column| column.from_width <= screen);
            // A blank is between two columns.
            shown.map(|column| column.width + 1).sum::<u16>() - 1
        }
        for screen in [80, 100, 120, 140] {
            let widths = [width(&DISKS, screen), width(&EXPORTS, screen), width(&OWNERS, screen)];
            assert!(widths.iter().all(|width| *width <= screen), "{screen}: {widths:?}");
        }
    }
}
