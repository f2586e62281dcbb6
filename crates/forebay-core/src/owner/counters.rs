//! Counters of an owner: its I/O, and what that I/O waited for.

use crate::stats::counter::SharedCounter;

/// How much I/O an owner has started, and how long it waited. Units are I/Os, bytes and
/// nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerStats {
    /// I/Os started. Flushes, and I/O that may have a reserved
    /// tag, are not counted.
    pub ios: u64,
    /// The bytes of these I/Os.
    pub bytes: u64,
    /// I/Os that a limit held back, or the depth that the latency goal of another owner leaves.
    pub limit_waits: u64,
    /// How long these held them back.
    pub limit_wait_ns: u64,
    /// I/Os that waited for a tag.
    pub tag_waits: u64,
    /// How long they waited for it.
    pub tag_wait_ns: u64,
    /// I/Os that waited in the I/O scheduler, with a tag.
    pub scheduler_waits: u64,
    /// How long they waited there.
    pub scheduler_wait_ns: u64,
    /// Windows of 100 ms, or up to 1 s if there was little I/O, that missed the latency goal. I/O
    /// of the owners below counts too.
    pub missed_windows: u64,
    /// The most I/Os that the owner may have between its queue and their end, because other owners
    /// miss their latency goals: the value after its last I/O. `None` without such a limit.
    pub depth: Option<u32>,
}

/// A counter of an owner by name. [`OWNER_COUNTERS`] lists all of them.
#[derive(Debug)]
#[non_exhaustive]
pub struct OwnerCounter {
    /// The name. Names of counters in nanoseconds end in `_ns`.
    pub name: &'static str,
    /// The meaning, as one sentence.
    pub help: &'static str,
    of: fn(&OwnerStats) -> Option<u64>,
}

impl OwnerCounter {
    const fn new(
        name: &'static str,
        help: &'static str,
        of: fn(&OwnerStats) -> Option<u64>,
    ) -> OwnerCounter {
        OwnerCounter { name, help, of }
    }

    /// Returns the counter with this name.
    pub fn named(name: &str) -> Option<&'static OwnerCounter> {
        OWNER_COUNTERS.iter().find(|counter| counter.name == name)
    }

    /// Returns the value. `None` if the owner has none, such as no limit of its depth.
    pub fn of(&self, stats: &OwnerStats) -> Option<u64> {
        (self.of)(stats)
    }
}

/// All counters of an owner, in the order of reports.
pub static OWNER_COUNTERS: [OwnerCounter; 10] = [
    OwnerCounter::new("ios", "I/Os started.", |stats| Some(stats.ios)),
    OwnerCounter::new("bytes", "Bytes of the I/Os started.", |stats| Some(stats.bytes)),
    OwnerCounter::new(
        "limit_waits",
        "I/Os that a limit held back, or the latency goal of another owner.",
        |stats| Some(stats.limit_waits),
    ),
    OwnerCounter::new(
        "limit_wait_ns",
        "How long limits and latency goals of others held I/Os back.",
        |stats| Some(stats.limit_wait_ns),
    ),
    OwnerCounter::new("tag_waits", "I/Os that waited for a tag.", |stats| Some(stats.tag_waits)),
    OwnerCounter::new("tag_wait_ns", "How long I/Os waited for tags.", |stats| {
        Some(stats.tag_wait_ns)
    }),
    OwnerCounter::new("scheduler_waits", "I/Os that waited in the I/O scheduler.", |stats| {
        Some(stats.scheduler_waits)
    }),
    OwnerCounter::new("scheduler_wait_ns", "How long I/Os waited in the I/O scheduler.", |stats| {
        Some(stats.scheduler_wait_ns)
    }),
    OwnerCounter::new("missed_windows", "Windows that missed the latency goal.", |stats| {
        Some(stats.missed_windows)
    }),
    OwnerCounter::new(
        "depth",
        "Most I/Os in flight, while another owner misses its latency goal.",
        |stats| stats.depth.map(u64::from),
    ),
];

/// The counters of an owner, which all hardware contexts write.
#[derive(Debug, Default)]
pub(crate) struct OwnerCounters {
    ios: SharedCounter,
    bytes: SharedCounter,
    limit_waits: SharedCounter,
    limit_wait_ns: SharedCounter,
    tag_waits: SharedCounter,
    tag_wait_ns: SharedCounter,
    scheduler_waits: SharedCounter,
    scheduler_wait_ns: SharedCounter,
}

impl OwnerCounters {
    /// Counts a request that joins `nr_ios` I/Os. `waited_ns` is how long a limit held it back.
    pub(crate) fn note_start(&self, nr_ios: u32, bytes: u64, waited_ns: Option<u64>) {
        let nr_ios = u64::from(nr_ios);
        self.ios.add(nr_ios);
        self.bytes.add(bytes);
        if let Some(waited_ns) = waited_ns {
            self.limit_waits.add(nr_ios);
            self.limit_wait_ns.add(waited_ns.saturating_mul(nr_ios));
        }
    }

    /// Counts a request that joins `nr_ios` I/Os and waited for its tag.
    pub(crate) fn note_tag_wait(&self, nr_ios: u32, waited_ns: u64) {
        let nr_ios = u64::from(nr_ios);
        self.tag_waits.add(nr_ios);
        self.tag_wait_ns.add(waited_ns.saturating_mul(nr_ios));
    }

    /// Counts a request that joins `nr_ios` I/Os and waited in the scheduler.
    pub(crate) fn note_scheduler_wait(&self, nr_ios: u32, waited_ns: u64) {
        let nr_ios = u64::from(nr_ios);
        self.scheduler_waits.add(nr_ios);
        self.scheduler_wait_ns.add(waited_ns.saturating_mul(nr_ios));
    }

    /// Returns the counts. Each is recent; together they are of no single moment.
    pub(crate) fn stats(&self) -> OwnerStats {
        OwnerStats {
            ios: self.ios.get(),
            bytes: self.bytes.get(),
            limit_waits: self.limit_waits.get(),
            limit_wait_ns: self.limit_wait_ns.get(),
            tag_waits: self.tag_waits.get(),
            tag_wait_ns: self.tag_wait_ns.get(),
            scheduler_waits: self.scheduler_waits.get(),
            scheduler_wait_ns: self.scheduler_wait_ns.get(),
            ..OwnerStats::default()
        }
    }
}

#[cfg(all(test, not(blk_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_its_own_value_and_name() {
        let stats = OwnerStats {
            ios: 1,
            bytes: 2,
            limit_waits: 3,
            limit_wait_ns: 4,
            tag_waits: 5,
            tag_wait_ns: 6,
            scheduler_waits: 7,
            scheduler_wait_ns: 8,
            missed_windows: 9,
            depth: Some(10),
        };
        for (counter, expected) in OWNER_COUNTERS.iter().zip(1..) {
            assert_eq!(counter.of(&stats), Some(expected), "{}", counter.name);
            let found = OwnerCounter::named(counter.name).map(|found| found.name);
            assert_eq!(found, Some(counter.name));
            assert!(counter.help.ends_with('.'), "{}", counter.help);
        }
        let depth = OwnerCounter::named("depth").expect("there is one");
        assert_eq!(depth.of(&OwnerStats::default()), None);
    }
}
