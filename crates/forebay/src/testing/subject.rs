//! Device under test, and the settings with which the checks open it.

use super::{CHECKS, LEN};
use crate::disk::Disk;
use forebay_core::{BlockStatus, Knob, Policy, QueueLimits};
use std::fmt;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a check opens a disk.
#[derive(Clone, Debug)]
pub struct Setup {
    keys: String,
}

impl Setup {
    /// Returns the settings as the keys of a spec, such as `nr_hw_queues=1&queue_depth=3`.
    pub fn keys(&self) -> &str {
        &self.keys
    }

    /// Returns the settings as a policy. The others have their defaults.
    pub fn policy(&self) -> Policy {
        let mut policy = Policy::default();
        for (key, value) in self.pairs() {
            if let Some(knob) = Knob::named(key) {
                assert!(knob.set(&mut policy, value), "{key}={value}");
            }
        }
        policy
    }

    /// Returns the limits of the device as the check needs them: perhaps with smaller requests, or
    /// without native FUA writes.
    pub fn limits(&self, mut limits: QueueLimits) -> QueueLimits {
        for (key, value) in self.pairs() {
            match key {
                "fua" => limits.fua &= value == "on",
                "max_sectors_kb" => {
                    let sectors = value.parse::<u32>().expect("a number of KiB") * 2;
                    limits.max_sectors = limits.max_sectors.min(sectors);
                }
                _ => {}
            }
        }
        limits
    }

    fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.keys.split('&').filter_map(|pair| pair.split_once('='))
    }
}

/// A device under test: a function that opens disks on it.
pub struct Subject<'a> {
    open: Box<dyn Fn(&Setup) -> Disk + Sync + 'a>,
    nr_hw_queues_max: u64,
    refuses_nowait: bool,
    limit: Duration,
    failing: Option<Failing<'a>>,
    /// Why the check that runs was skipped.
    skipped: Mutex<Option<&'static str>>,
}

/// A device with a block that cannot be read.
struct Failing<'a> {
    offset: u64,
    status: BlockStatus,
    open: Box<dyn Fn(&Setup) -> Disk + Sync + 'a>,
}

impl<'a> Subject<'a> {
    /// Creates a subject. `open` opens a disk of [`LEN`] bytes with the settings of a [`Setup`].
    /// The contents do not matter. Each disk is closed before the next one with the same contents
    /// is opened, except for up to three at once, which may share their contents or not.
    pub fn new(open: impl Fn(&Setup) -> Disk + Sync + 'a) -> Subject<'a> {
        Subject {
            open: Box::new(open),
            nr_hw_queues_max: u64::MAX,
            refuses_nowait: false,
            limit: Duration::from_secs(300),
            failing: None,
            skipped: Mutex::new(None),
        }
    }

    /// Limits the number of hardware contexts of the disks, for a device that cannot have more.
    #[must_use]
    pub fn nr_hw_queues_max(self, nr: u64) -> Subject<'a> {
        Subject { nr_hw_queues_max: nr, ..self }
    }

    /// Allows the device to be busy with few requests in flight, so that I/O that must not wait is
    /// refused.
    #[must_use]
    pub fn refuses_nowait(self, refuses: bool) -> Subject<'a> {
        Subject { refuses_nowait: refuses, ..self }
    }

    /// Adds a device for the check of errors, which is skipped without it: `open` opens disks as
    /// above, but a read of any byte of the 4 KiB from `offset` on fails with `status`. The status
    /// is [`BlockStatus::Medium`] or [`BlockStatus::Io`], and neither the first nor the last 4 KiB
    /// of the disk fail.
    #[must_use]
    pub fn with_failing_block(
        self,
        offset: u64,
        status: BlockStatus,
        open: impl Fn(&Setup) -> Disk + Sync + 'a,
    ) -> Subject<'a> {
        Subject { failing: Some(Failing { offset, status, open: Box::new(open) }), ..self }
    }

    /// Sets the longest time that one check may take. The default is 300 s.
    #[must_use]
    pub fn time_limit(self, limit: Duration) -> Subject<'a> {
        Subject { limit, ..self }
    }

    /// Runs all checks, and prints one line for each: `ok`, `FAILED`, or `skipped` with the reason.
    ///
    /// # Panics
    /// Panics at the end if the device has failed a check, with the names of those checks and the
    /// rules that they point to.
    pub fn check(&self) {
        let mut failed = Vec::new();
        for check in CHECKS {
            let is_passed = catch_unwind(AssertUnwindSafe(|| check.run(self))).is_ok();
            let verdict = match (is_passed, self.skipped().take()) {
                (false, _) => String::from("FAILED"),
                (true, None) => String::from("ok"),
                (true, Some(why)) => format!("skipped: {why}"),
            };
            let _ = writeln!(io::stdout(), "contract: {}: {verdict}", check.name);
            if !is_passed {
                failed.push(format!("{} ({})", check.name, check.rules));
            }
        }
        assert!(
            failed.is_empty(),
            "the device fails {} checks: {}",
            failed.len(),
            failed.join("; ")
        );
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    pub(super) fn may_refuse_nowait(&self) -> bool {
        self.refuses_nowait
    }

    fn skipped(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a disk with these keys.
    pub(super) fn open(&self, keys: &str) -> Disk {
        let disk = (self.open)(&Setup { keys: keys.to_owned() });
        assert_eq!(disk.capacity_bytes(), Some(LEN), "the size of the disk");
        disk
    }

    /// Opens disks with a block that cannot be read, one with a shared context and one with two
    /// contexts. Returns the offset and the status too. `None` if the device has no such block:
    /// then the check counts as skipped.
    pub(super) fn open_failing(&self) -> Option<([Disk; 2], u64, BlockStatus)> {
        let Some(Failing { offset, status, open }) = &self.failing else {
            *self.skipped() = Some("the subject has no block that fails (with_failing_block)");
            return None;
        };
        let numbers = [1, self.nr_hw_queues_max.min(2)];
        let disks = numbers.map(|nr| open(&Setup { keys: format!("nr_hw_queues={nr}") }));
        Some((disks, *offset, *status))
    }

    /// Opens three disks: one on which all threads share the first context; one on which a thread
    /// that creates a queue owns a context, if the device can have two; and one with a worker that
    /// also runs the shared context.
    pub(super) fn each(&self, keys: &str) -> [Disk; 3] {
        let several = format!("nr_hw_queues={}", self.nr_hw_queues_max.min(2));
        ["nr_hw_queues=1", &several, "run_queue=always"]
            .map(|more| self.open(&format!("{more}&{keys}")))
    }
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").finish_non_exhaustive()
    }
}
