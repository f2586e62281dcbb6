//! Table of the counters of a disk, for reports and for other languages.

use crate::info::DiskStats;
use forebay_core::{COUNTERS, CounterInfo, CounterUnit, MergeKind, Op, OpStats, UnplugCause};
use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

/// A named counter of a disk: [`disk_counters`] lists all of them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiskCounter {
    /// The name, such as `issued`, `read_bytes` or `merges_back`. Names of counters in nanoseconds
    /// end in `_ns`.
    pub name: Cow<'static, str>,
    /// The meaning, as one sentence.
    pub help: &'static str,
    /// The unit of the value.
    pub unit: CounterUnit,
    source: Source,
}

/// The place of a counter.
#[derive(Clone, Debug)]
enum Source {
    /// A counter of the layer, in [`COUNTERS`].
    Layer(&'static CounterInfo),
    Disk(fn(&DiskStats) -> u64),
    Merges(MergeKind),
    Unplugs(UnplugCause),
    Op(Op, fn(&OpStats) -> u64),
}

/// A counter of each operation: its name, its meaning, its unit, and its value.
pub(crate) type OpCounter = (&'static str, &'static str, CounterUnit, fn(&OpStats) -> u64);

/// The counters of each operation.
pub(crate) const OP_COUNTERS: [OpCounter; 5] = [
    ("bios", "I/Os of this operation that ended.", CounterUnit::Count, |op| op.bios),
    (
        "merges",
        "I/Os of this operation that merged into the request of another I/O.",
        CounterUnit::Count,
        |op| op.merges,
    ),
    ("requests", "Requests of this operation that completed.", CounterUnit::Count, |op| {
        op.requests
    }),
    ("bytes", "Bytes of the completed requests of this operation.", CounterUnit::Count, |op| {
        op.bytes
    }),
    (
        "ticks_ns",
        "Time from tag allocation to completion, summed over requests, ns.",
        CounterUnit::Nanoseconds,
        |op| op.ticks_ns,
    ),
];

/// A counter of the disk beside those of its queue: its name, its meaning, and its value.
type OfDisk = (&'static str, &'static str, fn(&DiskStats) -> u64);

/// The counters of the disk beside those of its queue.
pub(crate) const OF_DISK: [OfDisk; 3] = [
    ("nr_syscalls", "System calls made by the driver.", |stats| stats.nr_syscalls),
    ("skipped_runs", "Runs of hardware contexts that were left to another thread.", |stats| {
        stats.skipped_runs
    }),
    (
        "tag_rescues",
        "Waits for tags of a shared set that ended without a wake-up. A value above 0 is a bug.",
        |stats| stats.tag_rescues,
    ),
];

static ALL: LazyLock<Vec<DiskCounter>> = LazyLock::new(|| {
    let count = |name: String, help, source| DiskCounter {
        name: name.into(),
        help,
        unit: CounterUnit::Count,
        source,
    };
    let layer = COUNTERS.iter().map(|counter| {
        let CounterInfo { name, help, unit, .. } = *counter;
        DiskCounter { name: name.into(), help, unit, source: Source::Layer(counter) }
    });
    let disk = OF_DISK.map(|(name, help, get)| count(name.to_owned(), help, Source::Disk(get)));
    let merges = MergeKind::ALL.into_iter().map(|kind| {
        let help = "I/Os that merged into the request of another I/O in this way.";
        count(format!("merges_{}", kind.name()), help, Source::Merges(kind))
    });
    let unplugs = UnplugCause::ALL.into_iter().map(|cause| {
        let help = "Number of times that requests were unplugged for this reason.";
        count(format!("unplugs_{}", cause.name()), help, Source::Unplugs(cause))
    });
    let ops = Op::ALL.into_iter().flat_map(|op| {
        OP_COUNTERS.map(|(name, help, unit, get)| {
            let name = format!("{}_{name}", op.name()).into();
            DiskCounter { name, help, unit, source: Source::Op(op, get) }
        })
    });
    layer.chain(disk).chain(merges).chain(unplugs).chain(ops).collect()
});

/// Returns all counters of a disk: those of the layer ([`COUNTERS`]), of its driver, and of each
/// kind of merge, unplug and operation. The list is the same for every disk and at any time. A
/// later version may add counters anywhere in it.
pub fn disk_counters() -> &'static [DiskCounter] {
    &ALL
}

impl DiskCounter {
    /// Returns the value of the counter.
    #[inline]
    pub fn of(&self, stats: &DiskStats) -> u64 {
        match self.source {
            Source::Layer(counter) => counter.of(&stats.queue),
            Source::Disk(get) => get(stats),
            Source::Merges(kind) => stats.queue.merges(kind),
            Source::Unplugs(cause) => stats.queue.unplugs(cause),
            Source::Op(op, get) => get(stats.queue.op(op)),
        }
    }
}

impl DiskStats {
    /// Returns the names and values of all counters, in the order of [`disk_counters`].
    ///
    /// ```
    /// let disk = forebay::Disk::open("ram:1M")?;
    /// disk.write_all_at(&[7; 4096], 0)?;
    /// let stats = disk.stats();
    /// assert!(stats.counters().any(|counter| counter == ("write_bytes", 4096)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        disk_counters().iter().map(|counter| (&*counter.name, counter.of(self)))
    }
}

impl fmt::Display for DiskStats {
    /// Shows the operations and counters that are not 0, in one line.
    ///
    /// ```
    /// let disk = forebay::Disk::open("ram:1M?nr_hw_queues=1")?;
    /// disk.write_all_at(&[7; 4096], 0)?;
    /// let text = disk.stats().to_string();
    /// assert!(text.starts_with("write: 1 bios (0 merged), 1 requests, 4096 bytes; issued: 1; "));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.queue)?;
        for (name, _, get) in &OF_DISK {
            if get(self) > 0 {
                write!(f, "; {name}: {}", get(self))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Disk;
    use std::collections::BTreeMap;

    #[test]
    fn every_counter_has_a_name_of_its_own_and_a_meaning() {
        let names: BTreeMap<_, _> = ALL.iter().map(|it| (&*it.name, it)).collect();
        assert_eq!(names.len(), ALL.len());
        for counter in ALL.iter() {
            let DiskCounter { name, help, unit, .. } = counter;
            assert!(help.ends_with('.') && help.len() > 10, "{name}: {help}");
            assert_eq!(name.ends_with("_ns"), *unit == CounterUnit::Nanoseconds, "{name}");
        }
    }

    /// Each counter of [`QueueStats`](crate::QueueStats) and of the disk has a value of its own.
    #[test]
    fn counters_have_their_own_values() {
        let disk = Disk::open("ram:1M?nr_hw_queues=1").expect("it opens");
        for n in 0..3 {
            disk.write_all_at(&[7; 4096], n * 8192).expect("a write");
        }
        let stats = disk.stats();
        let counters: BTreeMap<_, _> = stats.counters().collect();
        assert_eq!((counters["write_bios"], counters["write_bytes"]), (3, 12288));
        assert_eq!(counters["issued"], stats.queue.issued);
        assert_eq!(counters["nr_syscalls"], stats.nr_syscalls);
        for kind in MergeKind::ALL {
            assert_eq!(counters[&*format!("merges_{}", kind.name())], stats.queue.merges(kind));
        }
        for cause in UnplugCause::ALL {
            assert_eq!(counters[&*format!("unplugs_{}", cause.name())], stats.queue.unplugs(cause));
        }
    }
}
