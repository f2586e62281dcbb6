//! A bio inside the layer: a box that is in exactly one place from queueing to its end. The box of
//! the first bio of a request also has the request's header.
//!
//! The place that holds the box owns the bio: the plug of a thread, the backlog or request table of
//! a hardware context, or a list of ended bios. So the compiler rejects code that loses a bio or
//! ends it twice. The owner allocates each box once and reuses it, so no I/O allocates.

use crate::bio::{Bio, BioFlags, Op, Segments};
use crate::origin::Origin;
use crate::request::Steps;
use crate::retry::{Moment, RetrySlot};
use crate::status::BlockStatus;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::AtomicPtr;

/// A shared place for the memory of a bio that has ended while the driver may use that memory. The
/// layer drops its handle when the driver is done. The layer does not look into it.
pub type MemoryHold = Arc<dyn Any + Send + Sync>;

/// Creates an empty [`MemoryHold`], of the type that the owners of bios expect.
pub type NewMemoryHold = fn() -> MemoryHold;

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
    marks: Marks,
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
    /// Valid if the bio has waited for a tag.
    waited_ns: u64,
    /// Valid if a limit has held the bio back.
    limit_wait_ns: u64,
    /// Valid if the bio counts among the outstanding I/O of its owner.
    outstanding_at: u32,
    /// Present if the bio has ended while the driver may still use its memory (H5).
    pub(crate) hold: Option<MemoryHold>,
    owner: u64,
    number: u32,
    link: AtomicPtr<QueuedBio>,
}

/// The reasons to count a bio when it ends, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marks(u8);

impl Marks {
    const NONE: Marks = Marks(0);
    /// The bio has waited for a tag.
    const TAG_WAIT: Marks = Marks(1);
    /// A limit has held the bio back.
    const LIMIT_WAIT: Marks = Marks(2);
    /// The bio counts among the outstanding I/O of its owner.
    const OUTSTANDING: Marks = Marks(4);
    /// An observer watches its owner: the bio counts in the activity of its owner too.
    const WATCHED: Marks = Marks(8);

    const fn has(self, other: Marks) -> bool {
        self.0 & other.0 != 0
    }

    const fn with(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }
}

impl QueuedBio {
    /// Allocates an empty box. `owner` identifies the receiver of its ends, and `number` identifies
    /// the box among that owner's boxes. The layer interprets neither.
    pub fn new(owner: u64, number: u32) -> Box<QueuedBio> {
        Box::new(QueuedBio::empty(owner, number))
    }

    /// Gives a box, whose bio has ended, to an owner as if it were new.
    pub fn renew(&mut self, owner: u64, number: u32) {
        assert!(self.next.is_none(), "a box has another owner when its bio has ended");
        *self = QueuedBio::empty(owner, number);
    }

    fn empty(owner: u64, number: u32) -> QueuedBio {
        QueuedBio {
            bio: Bio::flush(),
            next: None,
            rq: Header::new(),
            marks: Marks::NONE,
            status: None,
            good_len: 0,
            durable_point: 0,
            is_in_doubt: false,
            queued_ns: 0,
            waited_ns: 0,
            limit_wait_ns: 0,
            outstanding_at: 0,
            hold: None,
            owner,
            number,
            link: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Stores a bio in the box. The previous bio must have ended.
    #[inline]
    pub fn fill(&mut self, bio: Bio) {
        assert!(self.next.is_none(), "a box is filled when its bio has ended");
        self.status = None;
        self.good_len = bio.len;
        self.durable_point = 0;
        self.is_in_doubt = false;
        self.marks = Marks::NONE;
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

    /// Takes the list of segments of a bio that has ended, so that its submitter can use the list
    /// again.
    #[inline]
    pub fn take_segments(&mut self) -> Segments {
        core::mem::take(&mut self.bio.segments)
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
        self.marks.has(Marks::TAG_WAIT).then_some(self.waited_ns)
    }

    /// Returns how long a limit of its owner has held back a bio that has ended, in nanoseconds, or
    /// `None` if none did.
    pub fn limit_wait(&self) -> Option<u64> {
        self.marks.has(Marks::LIMIT_WAIT).then_some(self.limit_wait_ns)
    }

    /// Returns whether the bio has to be counted when it ends, because of a wait or among the
    /// outstanding I/O of its owner.
    #[inline]
    pub(crate) fn has_marks(&self) -> bool {
        self.marks != Marks::NONE
    }

    /// Records that the bio counts among the outstanding I/O of its owner, at this node.
    pub(crate) fn note_outstanding(&mut self, node: u32) {
        self.marks = self.marks.with(Marks::OUTSTANDING);
        self.outstanding_at = node;
    }

    /// Records that the bio, which counts among the outstanding I/O, counts in the activity of its
    /// owner too.
    pub(crate) fn note_watched(&mut self) {
        self.marks = self.marks.with(Marks::WATCHED);
    }

    /// Returns whether the bio counts in the activity of its owner.
    pub(crate) fn is_watched(&self) -> bool {
        self.marks.has(Marks::WATCHED)
    }

    /// Takes the header of the request from the box that had it. The time of issue in the header
    /// that the other box gets is that of another I/O, so it is cleared
    /// ([`driver_ns`](QueuedBio::driver_ns)).
    #[inline]
    pub(super) fn swap_header(&mut self, other: &mut QueuedBio) {
        core::mem::swap(&mut self.rq, &mut other.rq);
        other.rq.issued_ns = 0;
    }

    /// Returns how long the driver had the request of which this bio is the first. `None` if this
    /// bio has no request of its own, because it was split, or joined another one in a scheduler;
    /// or if turns received no time.
    pub(crate) fn driver_ns(&self, now: u64) -> Option<u64> {
        // A header that was not issued for this bio has the time of an earlier bio of this box, or
        // none.
        let is_own = self.queued_ns != 0 && self.rq.issued_ns >= self.queued_ns;
        is_own.then(|| now.saturating_sub(self.rq.issued_ns))
    }

    /// Returns the node at which the bio counts among the outstanding I/O of its owner, if it does.
    pub(crate) fn outstanding(&self) -> Option<u32> {
        self.marks.has(Marks::OUTSTANDING).then_some(self.outstanding_at)
    }

    /// Records that the bio was not issued in the turn that accepted it, usually for lack of a tag.
    /// A bio that is split waits for several tags; the longest time counts.
    pub(crate) fn note_tag_wait(&mut self, waited_ns: u64) {
        let longest_ns = self.tag_wait().unwrap_or(0);
        self.marks = self.marks.with(Marks::TAG_WAIT);
        self.waited_ns = longest_ns.max(waited_ns);
    }

    /// Records that a limit of its owner has held the bio back.
    pub(crate) fn note_limit_wait(&mut self, waited_ns: u64) {
        self.marks = self.marks.with(Marks::LIMIT_WAIT);
        self.limit_wait_ns = waited_ns;
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

/// The layer's bookkeeping for a request.
#[derive(Debug)]
pub struct Header {
    pub(crate) op: Op,
    pub(crate) flags: BioFlags,
    pub(crate) origin: Origin,
    pub(crate) steps: Steps,
    /// The request accepts no (further) merges.
    pub(crate) nomerge: bool,
    /// The request exceeds the limits of one command. It is cut when it takes tags.
    pub(crate) oversized: bool,
    /// After a failure: the bios are issued one after another.
    pub(crate) bio_by_bio: bool,
    /// The driver has accepted the request at least once.
    pub(crate) was_issued: bool,
    /// The request has made way for reads (Q9), so it is older than those that still do.
    pub(crate) was_held: bool,
    /// The slot of this request among the retries in progress.
    pub(crate) retry: Option<RetrySlot>,
    /// For a part of a split bio: the index of that bio.
    pub(crate) part_of: Option<u32>,
    /// The plug level at which the request was queued.
    pub(crate) level: u32,
    pub(crate) nr_bios: u32,
    pub(crate) nr_segments: u32,
    /// The remaining work: first byte on the device, and length.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The number of bytes of the first bio before `start`.
    pub(crate) skip: u64,
    /// When the request left the plug, took its tag, and was last issued.
    pub(crate) unplugged_ns: u64,
    pub(crate) tagged_ns: u64,
    pub(crate) issued_ns: u64,
    /// The writes that had been issued before this request was issued. Recorded for a write that
    /// joins several bios, when it is first issued; and for a write of one bio where counts are not
    /// exact.
    pub(crate) issued_after: Moment,
    /// Bios that were appended, newest first, until the request is sealed.
    pub(super) joined_back: Option<Box<QueuedBio>>,
}

impl Header {
    /// Returns an empty header.
    pub(crate) const fn new() -> Header {
        Header {
            op: Op::Flush,
            flags: BioFlags::NONE,
            origin: Origin::NONE,
            steps: Steps::NONE,
            nomerge: true,
            oversized: false,
            bio_by_bio: false,
            was_issued: false,
            was_held: false,
            retry: None,
            part_of: None,
            level: 1,
            nr_bios: 1,
            nr_segments: 0,
            start: 0,
            len: 0,
            skip: 0,
            unplugged_ns: 0,
            tagged_ns: 0,
            issued_ns: 0,
            issued_after: Moment::NONE,
            joined_back: None,
        }
    }

    /// Initialises the header for a new request of one bio with one segment and one command. The
    /// time stamps keep their old values until they are set.
    #[inline]
    pub(super) fn begin(&mut self, bio: &Bio, level: u32) {
        assert!(self.joined_back.is_none(), "the box's last bio has ended");
        self.op = bio.op;
        self.flags = bio.flags;
        self.origin = bio.origin;
        self.steps = Steps::DATA;
        self.nomerge = false;
        self.oversized = false;
        self.bio_by_bio = false;
        self.was_issued = false;
        self.was_held = false;
        self.retry = None;
        self.part_of = None;
        self.level = level;
        self.nr_bios = 1;
        self.nr_segments = 1;
        self.start = bio.start;
        self.len = bio.len;
        self.skip = 0;
    }
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn renewed_box_equals_a_new_one() {
        let mut boxed = QueuedBio::new(1, 2);
        boxed.fill(Bio::flush_up_to(7));
        boxed.mark_first(BlockStatus::Timeout);
        boxed.durable_point = 3;
        boxed.note_tag_wait(4);
        boxed.note_limit_wait(5);
        (boxed.rq.tagged_ns, boxed.rq.nr_bios) = (5, 6);
        boxed.hold = Some(Arc::new(()));
        boxed.renew(8, 9);
        assert_eq!(format!("{boxed:?}"), format!("{:?}", QueuedBio::new(8, 9)));
        assert_eq!((boxed.owner(), boxed.number(), boxed.has_hold()), (8, 9, false));
    }
}
