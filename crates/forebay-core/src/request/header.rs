//! What the layer notes of a request, beside the bio in whose box it lies.

use crate::bio::{Bio, BioFlags, Op};
use crate::flush::Steps;
use crate::queued::QueuedBio;
use crate::retry::{Moment, RetrySlot};
use alloc::boxed::Box;

/// What the layer notes of a request: in the box of its first bio.
#[derive(Debug)]
pub struct Header {
    pub(crate) op: Op,
    pub(crate) flags: BioFlags,
    pub(crate) steps: Steps,
    /// Not a candidate for merging (any more).
    pub(crate) nomerge: bool,
    /// Longer than one request may be: it is cut when it takes its tags.
    pub(crate) oversized: bool,
    /// After a failure: only the first bio is at the driver, then the next.
    pub(crate) bio_by_bio: bool,
    /// The driver has taken it at least once.
    pub(crate) was_issued: bool,
    /// Its place among the retries that are under way.
    pub(crate) retry: Option<RetrySlot>,
    /// Of a bio that was cut: where that is kept.
    pub(crate) part_of: Option<u32>,
    /// The plug level on which it was queued.
    pub(crate) level: u32,
    pub(crate) nr_bios: u32,
    pub(crate) nr_segments: u32,
    /// What is left to do: first byte on the device, and length.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The bytes of the first bio that lie before `start`.
    pub(crate) skip: u64,
    /// When it left the plug, took its tag, and was issued last.
    pub(crate) unplugged_ns: u64,
    pub(crate) tagged_ns: u64,
    pub(crate) issued_ns: u64,
    /// The writes that had been issued when it was: the first time, if it joins several bios. Of a
    /// single one it is found when it is needed.
    pub(crate) issued_after: Moment,
    /// Bios that have joined at the end, newest first, until the request is sealed.
    pub(super) joined_back: Option<Box<QueuedBio>>,
}

impl Header {
    /// Of nothing.
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

    /// That of a new request of one bio: one segment, one command. The stamps are left as they are,
    /// and set when their time comes.
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
