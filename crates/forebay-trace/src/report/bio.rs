//! The stages of a bio.

use crate::record::{Categories, Record, SECTOR_BYTES};

/// The number of stages of a bio.
pub const NR_STAGES: usize = 6;

/// The names of the stages, in the order in which a bio passes them.
pub const STAGES: [&str; NR_STAGES] = ["plug", "limit", "flush", "tag", "queue", "driver"];

/// The index of the waits for limits in [`STAGES`].
pub const LIMIT: usize = 1;
/// The index of the waits for flushes in [`STAGES`].
pub const FLUSH: usize = 2;
/// The index of the driver in [`STAGES`].
pub const DRIVER: usize = 5;

/// The stages of a bio in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// When it was queued.
    pub queued_ns: u64,
    /// The first sector.
    pub sector: u64,
    /// The number of bytes.
    pub bytes: u32,
    /// The operation.
    pub categories: Categories,
    /// The thread that queued it.
    pub pid: u32,
    /// It merged with a request.
    pub is_merged: bool,
    /// Its request waited for a tag.
    pub has_slept: bool,
    /// The driver was busy at first.
    pub was_requeued: bool,
    /// The errno, negative, or 0.
    pub error: i16,
    /// The time in each of [`STAGES`], in nanoseconds.
    pub stages_ns: [u64; NR_STAGES],
}

impl Traced {
    /// Returns the time from Q to the end of the bio in nanoseconds: C, or the end of the flush
    /// after it.
    pub fn total_ns(&self) -> u64 {
        self.stages_ns.iter().sum()
    }

    /// Returns the first byte. A damaged file may have sectors beyond the last byte.
    pub fn offset(&self) -> u64 {
        self.sector.saturating_mul(SECTOR_BYTES)
    }
}

/// A bio that has not ended yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) queued: Record,
    pub(super) unplugged_ns: Option<u64>,
    /// The time at which a limit released it.
    pub(super) released_ns: Option<u64>,
    /// The end of the flush before its data.
    pub(super) flushed_ns: Option<u64>,
    pub(super) tagged_ns: Option<u64>,
    /// The time of the first D.
    pub(super) issued_ns: Option<u64>,
    /// The number of its pieces that are not complete.
    pub(super) nr_left: u32,
    pub(super) is_merged: bool,
    pub(super) has_slept: bool,
    pub(super) was_requeued: bool,
    /// The failure of its first piece that has failed: the sector, and the errno.
    pub(super) failure: Option<(u64, i16)>,
    /// The time of the last failure.
    pub(super) failed_ns: u64,
}

impl Open {
    pub(super) fn new(queued: &Record) -> Open {
        Open {
            queued: *queued,
            unplugged_ns: None,
            released_ns: None,
            flushed_ns: None,
            tagged_ns: None,
            issued_ns: None,
            nr_left: 1,
            is_merged: false,
            has_slept: false,
            was_requeued: false,
            failure: None,
            failed_ns: 0,
        }
    }

    /// Records the failure of a piece. The result of a bio is that of its lowest sector that has
    /// failed.
    pub(super) fn fail(&mut self, sector: u64, error: i16, now: u64) {
        self.failed_ns = now;
        if self.failure.is_none_or(|(other, _)| sector < other) {
            self.failure = Some((sector, error));
        }
    }

    /// Returns its sectors: the first one, and the one after the last.
    pub(super) fn sectors(&self) -> (u64, u64) {
        sectors_of(&self.queued)
    }

    /// Returns the bio with the times of its stages, at its completion.
    pub(super) fn ended(&self, complete_ns: u64) -> Traced {
        self.ended_after(complete_ns, None)
    }

    /// Returns the bio with the times of its stages. It was complete at `complete_ns`, and if there
    /// was a flush after that, it ended at `flushed_ns`.
    pub(super) fn ended_after(&self, complete_ns: u64, flushed_ns: Option<u64>) -> Traced {
        let ends = [
            self.unplugged_ns,
            self.released_ns,
            self.flushed_ns,
            self.tagged_ns,
            self.issued_ns,
            Some(complete_ns),
        ];
        let after = flushed_ns.map(|flushed_ns| (FLUSH, flushed_ns));
        let ends = ends.into_iter().enumerate();
        let ends = ends.filter_map(|(stage, end_ns)| Some((stage, end_ns?))).chain(after);
        let (mut stages_ns, mut since_ns) = ([0; NR_STAGES], self.queued.time_ns);
        // The sum is at most the last time, so it fits.
        for (stage, end_ns) in ends {
            stages_ns[stage] += end_ns.saturating_sub(since_ns);
            since_ns = since_ns.max(end_ns);
        }
        Traced {
            queued_ns: self.queued.time_ns,
            sector: self.queued.sector,
            bytes: self.queued.bytes,
            categories: self.queued.categories,
            pid: self.queued.pid,
            is_merged: self.is_merged,
            has_slept: self.has_slept,
            was_requeued: self.was_requeued,
            error: self.failure.map_or(0, |(_, error)| error),
            stages_ns,
        }
    }
}

/// Returns the sectors of a record: the first one, and the one after the last.
pub(super) fn sectors_of(record: &Record) -> (u64, u64) {
    let nr_sectors = u64::from(record.bytes).div_ceil(SECTOR_BYTES);
    (record.sector, record.sector.saturating_add(nr_sectors))
}
