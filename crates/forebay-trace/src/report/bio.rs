//! The stages of a bio.

use crate::message::Extent;
use crate::record::{Categories, Record, SECTOR_BYTES};

/// The number of stages of a bio.
pub const NR_STAGES: usize = 6;

/// The names of the stages.
pub const STAGES: [&str; NR_STAGES] = ["plug", "flush", "limit", "tag", "queue", "driver"];

/// The index of the waits for flushes in [`STAGES`].
pub const FLUSH: usize = 1;
/// The index of the waits for limits in [`STAGES`].
pub const LIMIT: usize = 2;
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
}

/// A bio that has not ended yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) queued: Record,
    pub(super) unplugged_ns: Option<u64>,
    /// The end of the flush that must precede its data.
    pub(super) flushed_ns: Option<u64>,
    /// The time at which a limit released it.
    pub(super) released_ns: Option<u64>,
    pub(super) tagged_ns: Option<u64>,
    pub(super) issued_ns: Option<u64>,
    /// The bytes that are not complete.
    pub(super) left: u64,
    pub(super) is_merged: bool,
    pub(super) has_slept: bool,
    pub(super) was_requeued: bool,
}

impl Open {
    pub(super) fn new(queued: &Record) -> Open {
        Open {
            queued: *queued,
            unplugged_ns: None,
            flushed_ns: None,
            released_ns: None,
            tagged_ns: None,
            issued_ns: None,
            left: u64::from(queued.bytes),
            is_merged: false,
            has_slept: false,
            was_requeued: false,
        }
    }

    /// Returns the sector after its range.
    pub(super) fn end(&self) -> u64 {
        end_of(&self.queued)
    }

    /// Returns the bio with the times of its stages, at its completion.
    pub(super) fn ended(&self, complete: &Record) -> Traced {
        let mut stages_ns = [0; NR_STAGES];
        let mut since_ns = self.queued.time_ns;
        let ends = [
            self.unplugged_ns,
            self.flushed_ns,
            self.released_ns,
            self.tagged_ns,
            self.issued_ns,
            Some(complete.time_ns),
        ];
        for (stage, end_ns) in stages_ns.iter_mut().zip(ends) {
            if let Some(end_ns) = end_ns {
                *stage = end_ns.saturating_sub(since_ns);
                since_ns = since_ns.max(end_ns);
            }
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
            error: complete.error,
            stages_ns,
        }
    }
}

/// A FUA write whose data are complete. The next record of the same context says whether it waits
/// for a flush.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) bio: Open,
    pub(super) complete: Record,
    pub(super) waits: bool,
}

impl Written {
    /// Returns whether its range has a part of `extent`.
    pub(super) fn touches(&self, extent: Extent) -> bool {
        self.bio.queued.sector < extent.end() && extent.sector < self.bio.end()
    }

    /// Returns the bio, after a flush that has ended at `flushed_ns` with this errno.
    pub(super) fn flushed(&self, flushed_ns: u64, errno: i32) -> Traced {
        let mut bio = self.bio.ended(&self.complete);
        bio.stages_ns[FLUSH] += flushed_ns.saturating_sub(self.complete.time_ns);
        // An errno of Linux is less than 4096.
        bio.error = -(errno as i16);
        bio
    }
}

/// Returns the sector after the range of a record.
pub(super) fn end_of(record: &Record) -> u64 {
    record.sector.saturating_add(u64::from(record.bytes).div_ceil(SECTOR_BYTES))
}
