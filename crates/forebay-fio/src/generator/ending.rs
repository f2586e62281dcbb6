//! Ends of streams on zones with write pointers: a stream has transferred all its bytes, or no zone
//! accepts its next I/O.
//!
//! fio ends a job silently in the second case. Here the stream keeps the reason, so that its caller
//! can print it.

use thiserror::Error;

/// Why no zone accepts the next I/O of a stream, although it has bytes left. It may change: other
/// streams write to zones, and close them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum Blocked {
    /// No zone has data for a read: none of the region, or for sequential reads, none after the
    /// last read.
    #[error(
        "its zones have no more data to read; let another job write to them first, or add \
         --read_beyond_wp=1"
    )]
    NoData,
    /// No zone has room for a block of a read inside of the region.
    #[error(
        "the part of each zone in its region is smaller than a block; lower --bs, or change \
         --offset or --size"
    )]
    NoRoom,
    /// Other streams have as many zones open as the file may have, and none is in the region. A
    /// stream at its own limit writes to any open zone of its region, as in fio.
    #[error(
        "--max_open_zones is reached, and all open zones are outside the region to write; raise \
         --max_open_zones"
    )]
    NoOpenZone,
}

/// The end of a stream with bytes left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlyEnd {
    /// The reason.
    pub why: Blocked,
    /// The bytes that are left; `None` for a stream without end.
    pub left_bytes: Option<u64>,
}

/// Why a stream has no next I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// A pass over the region is complete, or all bytes were transferred.
    End,
    /// No zone accepts the I/O now.
    Blocked(Blocked),
}

impl From<Blocked> for Stop {
    fn from(why: Blocked) -> Self {
        Self::Blocked(why)
    }
}
