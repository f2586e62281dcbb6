//! The contract between the layer and what drives a device.
//!
//! Counterpart in Linux: `struct blk_mq_ops`.

use crate::bio::{Op, Segment};
use crate::queued::{ChainSegments, QueuedBio};
use crate::status::BlockStatus;
use crate::tag::Tag;
use alloc::vec::Vec;

/// What drives a device: one instance per hardware context, used by one thread at a time. One more
/// may wait meanwhile for its completions, through what the driver's maker gives out beside it.
///
/// The layer promises:
/// - K1 a tag is issued again only after its completion was reaped;
/// - K2 the memory of a request stays valid, and nobody else uses it, until its completion was
///   reaped;
/// - K3 requests keep the limits of the device, which the layer was made with;
/// - K4 after a series of [`Driver::queue_rq`] comes [`Driver::commit_rqs`], [`Driver::wait`] or
///   [`Driver::leave_to_wait`];
/// - K8 after [`Driver::kick`] nothing is reaped until the thread that waits has come back; then
///   [`Driver::reap`] is called, even if nothing is in flight. So a kick may be a completion of
///   the driver's own, which the wait cannot miss.
///
/// The driver promises:
/// - K5 each request for which it said [`Issue::Queued`] is completed exactly once, in any order;
/// - K6 a completion of `n` bytes says that the first `n` bytes of the request were moved; of a
///   write also that no others were, if the limits say
///   [`exact_counts`](crate::QueueLimits::exact_counts);
/// - K7 it never calls back into the layer: completions are handed over in [`Driver::reap`] alone.
pub trait Driver: Send {
    /// Takes a request. `last` is a hint: no other follows at once, so a driver that batches may
    /// begin; a driver may rely on `commit_rqs` alone.
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, last: bool) -> Issue;

    /// Begins everything that was queued: at most one system call for the batch.
    fn commit_rqs(&mut self);

    /// Leaves everything that was queued to the next wait beside the driver, which begins it before
    /// it waits: one system call for both. If there is no such wait after all, a turn follows, and
    /// the reap of that begins it. A driver that cannot do so begins it now.
    fn leave_to_wait(&mut self) {
        self.commit_rqs();
    }

    /// Hands over what has completed, in the order in which it did. Never waits. `look` says how
    /// hard to look.
    fn reap(&mut self, done: &mut Completions, look: Look);

    /// Begins everything that was queued, then waits until `nr_completions` can be reaped
    /// (of those in flight; the caller asks for no more than there are). May return early, on a
    /// signal for instance.
    fn wait(&mut self, nr_completions: u32);

    /// Makes the thread that waits for this driver's completions beside it return: now, or when it
    /// next waits. Several kicks before that are one. The thread may have come back by itself
    /// meanwhile; then its next wait may return at once.
    fn kick(&mut self) {}

    /// Whether completions that no wait announces are there already. The layer asks after it has
    /// issued, and reaps until there are none, before a thread waits beside the driver.
    /// [`Driver::wait`] knows of them.
    fn has_ready(&self) -> bool {
        false
    }

    /// How many system calls it has made since open.
    fn nr_syscalls(&self) -> u64 {
        0
    }
}

/// How hard a driver looks for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// With a system call, if it takes one.
    Hard,
    /// Without: a commit follows in this turn, and brings them as well.
    Glance,
}

/// The answer of [`Driver::queue_rq`]. Counterpart in Linux: the `blk_status_t` of `queue_rq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issue {
    /// Taken; a completion will follow.
    Queued,
    /// Not taken; try again later (`BLK_STS_RESOURCE`).
    Busy,
    /// Not taken, and it never will be: no completion follows.
    Failed(BlockStatus),
}

/// A request as the driver sees it: valid during [`Driver::queue_rq`] only.
#[derive(Clone, Debug)]
pub struct IssuedRequest<'a> {
    /// The name under which it completes.
    pub tag: Tag,
    /// What to do.
    pub op: Op,
    /// Whether this write must be durable when it completes; set only if the limits say `fua`.
    pub fua: bool,
    /// Whether this flush makes all metadata of a file durable as well
    /// ([`BioFlags::FSYNC`](crate::BioFlags::FSYNC)).
    pub metadata: bool,
    /// The first byte on the device; 0 for a flush.
    pub start: u64,
    /// How many bytes; 0 for a flush.
    pub len: u64,
    /// How many bios it joins.
    pub nr_bios: u32,
    /// At most how many segments it has.
    pub nr_segments: u32,
    pub(crate) head: &'a QueuedBio,
    pub(crate) skip: u64,
}

impl<'a> IssuedRequest<'a> {
    /// The memory, in the order of the device's bytes; empty but for reads and writes.
    #[inline]
    pub fn segments(&self) -> RequestSegments<'a> {
        let len = if self.op.moves_data() { self.len } else { 0 };
        RequestSegments(ChainSegments::new(self.head, self.skip, len))
    }

    /// The ranges on the device, as (first byte, length): several for a merged discard.
    pub fn ranges(&self) -> Ranges<'a> {
        Ranges::new(self.head, self.skip, self.len)
    }

    /// The first `len` bytes of this request, under the same tag; for drivers that move less than
    /// they were asked to.
    ///
    /// # Panics
    /// If `len` is over the request's own.
    #[must_use]
    pub fn prefix(&self, len: u64) -> IssuedRequest<'a> {
        assert!(len <= self.len);
        IssuedRequest { len, ..self.clone() }
    }
}

/// The segments of a request.
#[derive(Clone, Debug)]
pub struct RequestSegments<'a>(ChainSegments<'a>);

impl Iterator for RequestSegments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        self.0.next()
    }
}

/// The ranges of a request on its device.
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    bio: Option<&'a QueuedBio>,
    skip: u64,
    left: u64,
}

impl<'a> Ranges<'a> {
    pub(crate) fn new(head: &'a QueuedBio, skip: u64, len: u64) -> Ranges<'a> {
        Ranges { bio: Some(head), skip, left: len }
    }
}

impl Iterator for Ranges<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        if self.left == 0 {
            return None;
        }
        let queued = self.bio?;
        let bio = &queued.bio;
        let range = (bio.start + self.skip, (bio.len - self.skip).min(self.left));
        self.left -= range.1;
        self.skip = 0;
        self.bio = queued.next.as_deref();
        Some(range)
    }
}

/// One completion: which request, and how many of its bytes, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The request.
    pub tag: Tag,
    /// Bytes moved from the request's start (its length for what moves none), or the failure.
    pub result: Result<u64, BlockStatus>,
}

/// Where a driver puts completions: a list that was allocated at open.
#[derive(Debug)]
pub struct Completions {
    list: Vec<Completed>,
    depth: usize,
}

impl Completions {
    /// A list for a queue of `depth` tags.
    pub fn new(depth: u32) -> Completions {
        Completions { list: Vec::with_capacity(depth as usize), depth: depth as usize }
    }

    /// Hands one completion over.
    ///
    /// # Panics
    /// If there are more than tags: some tag completed twice.
    #[inline]
    pub fn push(&mut self, tag: Tag, result: Result<u64, BlockStatus>) {
        assert!(self.list.len() < self.depth, "more completions than tags");
        self.list.push(Completed { tag, result });
    }

    /// Hands over all that `others` has, and leaves it empty.
    ///
    /// # Panics
    /// If there are more than tags.
    #[inline]
    pub fn append(&mut self, others: &mut Completions) {
        self.list.append(&mut others.list);
        assert!(self.list.len() <= self.depth, "more completions than tags");
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many were handed over.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// One of them, counted from the oldest.
    #[inline]
    pub(crate) fn get(&self, nth: usize) -> Completed {
        self.list[nth]
    }

    /// Forgets them, keeping the memory.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    /// Takes them all out, oldest first, keeping the memory.
    pub fn drain(&mut self) -> impl Iterator<Item = Completed> + '_ {
        self.list.drain(..)
    }
}
