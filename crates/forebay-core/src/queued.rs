//! A bio inside the layer: a box that is in exactly one place from queueing to its end.
//!
//! The place that holds the box owns the bio: the plug of a thread, the backlog or request table of
//! a hardware context, or a list of ended bios. So the compiler rejects code that loses a bio or
//! ends it twice. The owner allocates each box once and reuses it, so no I/O allocates.

use crate::bio::{Bio, Segment};
use crate::request::Header;
use crate::status::BlockStatus;
use crate::timeout::MemoryHold;
use alloc::boxed::Box;
use core::sync::atomic::AtomicPtr;

/// A bio with the layer's bookkeeping.
///
/// Counterpart in Linux: the fields of `struct bio` that the block layer uses.
#[derive(Debug)]
pub struct QueuedBio {
    pub(crate) bio: Bio,
    /// The next bio of the same request.
    pub(crate) next: Option<Box<QueuedBio>>,
    /// In the first bio of a request: the request header.
    pub(crate) rq: Header,
    /// The bio was not issued in the turn that accepted it, usually for lack of a tag.
    pub(crate) has_waited: bool,
    /// Why the bytes after `good_len` failed. `None` means end of file.
    pub(crate) status: Option<BlockStatus>,
    /// The number of bytes from the start that are known to be good. Equals `bio.len` until a part
    /// fails or completes short.
    pub(crate) good_len: u64,
    /// Valid after the end: see [`QueuedBio::durable_point`].
    pub(crate) durable_point: u64,
    /// The bio was at the device when a flush failed.
    pub(crate) is_in_doubt: bool,
    pub(crate) queued_ns: u64,
    /// Valid if `has_waited`.
    pub(crate) waited_ns: u64,
    /// Present if the bio has ended while the driver may still use its memory (H5).
    pub(crate) hold: Option<MemoryHold>,
    owner: u64,
    number: u32,
    link: AtomicPtr<QueuedBio>,
}

impl QueuedBio {
    /// Allocates an empty box. `owner` identifies the receiver of its ends, and `number` identifies
    /// the box among that owner's boxes. The layer interprets neither.
    pub fn new(owner: u64, number: u32) -> Box<QueuedBio> {
        Box::new(QueuedBio {
            bio: Bio::flush(),
            next: None,
            rq: Header::new(),
            has_waited: false,
            status: None,
            good_len: 0,
            durable_point: 0,
            is_in_doubt: false,
            queued_ns: 0,
            waited_ns: 0,
            hold: None,
            owner,
            number,
            link: AtomicPtr::new(core::ptr::null_mut()),
        })
    }

    /// Stores a bio in the box. The previous bio must have ended.
    #[inline]
    pub fn fill(&mut self, bio: Bio) {
        assert!(self.next.is_none(), "a box is filled when its bio has ended");
        self.status = None;
        self.good_len = bio.len;
        self.durable_point = 0;
        self.is_in_doubt = false;
        self.has_waited = false;
        self.bio = bio;
    }

    /// Returns the bio.
    #[inline]
    pub fn bio(&self) -> &Bio {
        &self.bio
    }

    /// Takes the bio out of a box that was refused.
    pub fn take_bio(&mut self) -> Bio {
        core::mem::replace(&mut self.bio, Bio::flush())
    }

    /// Returns the receiver of the bio's end.
    #[inline]
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Returns the number of this box among its owner's boxes.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the result of a bio that has ended: the number of bytes moved from its start, or the
    /// reason why the first missing byte was not moved. The count is below the bio's length only at
    /// the end of a file. For operations that move no data it is the length.
    #[inline]
    pub fn result(&self) -> Result<u64, BlockStatus> {
        match self.status {
            Some(status) => Err(status),
            None => Ok(self.good_len),
        }
    }

    /// Returns the durable point of a bio that has ended. The bio is on stable storage once
    /// everything up to this point is ([`Bio::flush_up_to`](crate::Bio::flush_up_to)). 0 means that
    /// it is durable already or changed nothing.
    #[inline]
    pub fn durable_point(&self) -> u64 {
        self.durable_point
    }

    /// Returns how long a bio that has ended waited for a tag, in nanoseconds, or `None` if it did
    /// not wait. The time is 0 where turns receive no time: with `iostats=off` on a disk without a
    /// volatile cache.
    pub fn tag_wait(&self) -> Option<u64> {
        self.has_waited.then_some(self.waited_ns)
    }

    /// Takes the place for the memory of a bio that has ended with
    /// [`Timeout`](crate::BlockStatus::Timeout) while the driver may still use that memory (H5).
    /// The owner puts the memory there and drops the handle. The memory then stays valid until the
    /// driver is done. Called before the box is used again. Returns `None` if the driver no longer
    /// uses the memory.
    #[inline]
    pub fn take_hold(&mut self) -> Option<MemoryHold> {
        self.hold.take()
    }

    /// Returns whether [`take_hold`](QueuedBio::take_hold) returns a place.
    #[inline]
    pub fn has_hold(&self) -> bool {
        self.hold.is_some()
    }

    /// Returns a pointer field for intrusive lists of the box's holder. The layer does not read it.
    #[inline]
    pub fn link_mut(&mut self) -> &mut *mut QueuedBio {
        self.link.get_mut()
    }

    /// Records a status that no other replaces.
    pub(crate) fn mark_first(&mut self, status: BlockStatus) {
        (self.good_len, self.status) = (0, Some(status));
    }

    /// Records that only the bytes below `offset` are good. The lowest offset wins.
    pub(crate) fn mark(&mut self, offset: u64, status: Option<BlockStatus>) {
        if offset < self.good_len || self.bio.len == 0 {
            self.good_len = offset;
            self.status = status;
        }
    }
}

/// Iterator over the segments of a chain of bios, limited to a range of its bytes.
#[derive(Clone, Debug)]
pub(crate) struct ChainSegments<'a> {
    bio: Option<&'a QueuedBio>,
    index: usize,
    skip: u64,
    left: u64,
}

impl<'a> ChainSegments<'a> {
    /// Starts `skip` bytes into the first bio and covers `len` bytes.
    #[inline]
    pub(crate) fn new(first: &'a QueuedBio, skip: u64, len: u64) -> ChainSegments<'a> {
        ChainSegments { bio: Some(first), index: 0, skip, left: len }
    }
}

impl Iterator for ChainSegments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        while self.left > 0 {
            let queued = self.bio?;
            let Some(segment) = queued.bio.segments.as_slice().get(self.index) else {
                self.bio = queued.next.as_deref();
                self.index = 0;
                continue;
            };
            self.index += 1;
            let segment_len = u64::from(segment.len);
            // Skips empty segments as well.
            if self.skip >= segment_len {
                self.skip -= segment_len;
                continue;
            }
            // Neither cast truncates: both values are at most the segment's own length.
            let skip = self.skip as u32;
            let len = (segment_len - self.skip).min(self.left) as u32;
            self.skip = 0;
            self.left -= u64::from(len);
            return Some(Segment { addr: segment.addr + skip as usize, len });
        }
        None
    }
}
