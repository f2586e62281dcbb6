//! The request header: the layer's bookkeeping for a request, stored in the box of its first bio.

use crate::bio::{Bio, BioFlags, Op};
use crate::flush::Steps;
use crate::hctx::retry::{Moment, RetrySlot};
use crate::queued::QueuedBio;
use alloc::boxed::Box;

/// The layer's bookkeeping for a request.
#[derive(Debug)]
pub struct Header {
    pub(crate) op: Op,
    pub(crate) flags: BioFlags,
    pub(crate) steps: Steps,
    /// The request accepts no (further) merges.
    pub(crate) nomerge: bool,
    /// The request exceeds the limits of one command. It is cut when it takes tags.
    pub(crate) oversized: bool,
    /// After a failure: the bios are issued one after another.
    pub(crate) bio_by_bio: bool,
    /// The driver has accepted the request at least once.
    pub(crate) was_issued: bool,
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
            steps: Steps::NONE,
            nomerge: true,
            oversized: false,
            bio_by_bio: false,
            was_issued: false,
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
        self.steps = Steps::DATA;
        self.nomerge = false;
        self.oversized = false;
        self.bio_by_bio = false;
        self.was_issued = false;
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
