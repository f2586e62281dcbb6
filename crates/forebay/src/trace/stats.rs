//! The counts of a trace.

/// Counts of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceStats {
    /// Records written to the files.
    pub records: u64,
    /// Records that found no room in their ring. The files have a message in their place.
    pub lost: u64,
}

impl TraceStats {
    /// Adds the counts of other files.
    pub(super) fn add(&mut self, other: TraceStats) {
        self.records += other.records;
        self.lost += other.lost;
    }
}
