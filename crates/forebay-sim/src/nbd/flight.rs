//! A request at the server with bios at the disk.

use super::memory::BufId;
use forebay_nbd::server::{NbdError, Request};

/// Bits of a bio's number below the offset of its data in the request, in bytes.
pub(super) const PLACE_SHIFT: u32 = 32;

/// A request with bios at the disk.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) conn: usize,
    pub(super) rq: Request,
    pub(super) buf: Option<BufId>,
    pub(super) nr_in_disk: u32,
    /// No more bios follow.
    pub(crate) is_all_there: bool,
    pub(crate) failed: Option<NbdError>,
    /// For a read: the length of the data before the first piece that failed.
    pub(super) good_len: u64,
    /// The reply was sent already: a planted bug.
    pub(super) is_answered: bool,
}
