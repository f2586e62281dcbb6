//! The contract between the layer and a device driver.
//!
//! Counterpart in Linux: `struct blk_mq_ops`.

use crate::bio::{BioFlags, Op, Segment, Segments};
use crate::request::{ChainSegments, QueuedBio, Ranges, Request, Splits};
use crate::status::BlockStatus;
use crate::tag::Tag;
use alloc::boxed::Box;
use core::time::Duration;

/// A device driver: one instance per hardware context, used by one thread at a time. Meanwhile one
/// other thread may wait for its completions, through a waiter that the driver's device provides.
///
/// The layer promises:
/// - K1 a tag is issued again only after its completion was reaped;
/// - K2 the memory of a request stays valid, and no other code uses it, until its completion was
///   reaped;
/// - K3 requests keep the device limits that the layer was created with;
/// - K4 a series of [`Driver::queue_rq`] is followed by [`Driver::commit_rqs`], [`Driver::wait`] or
///   [`Driver::leave_to_wait`];
/// - K8 after [`Driver::kick`] nothing is reaped until the waiting thread has returned. Then
///   [`Driver::reap`] is called even if nothing is in flight. So a driver may implement a kick as a
///   completion of its own, which the wait cannot miss.
///
/// The driver promises:
/// - K5 each request for which it returned [`Issue::Queued`] or [`Issue::Begun`] completes exactly
///   once, in any order, and the driver does not access its memory after the completion;
/// - K6 a completion of `n` bytes means that the first `n` bytes of the request were moved. For a
///   write it also means that no others were, if the limits say
///   [`exact_counts`](crate::QueueLimits::exact_counts);
/// - K7 it never calls back into the layer: completions leave it through [`Driver::reap`] only.
pub trait Driver: Send {
    /// Accepts a request. `last` is a hint that no other request follows at once, so a batching
    /// driver may begin. A driver may rely on `commit_rqs` alone.
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, last: bool) -> Issue;

    /// Begins everything that was queued, with at most one system call for the batch.
    fn commit_rqs(&mut self);

    /// Leaves everything that was queued to the next wait beside the driver. That wait begins it
    /// first, so one system call does both. If no such wait follows, a turn does, and its reap
    /// begins the requests. A driver without this ability begins them now.
    fn leave_to_wait(&mut self) {
        self.commit_rqs();
    }

    /// Appends completed requests to `done`, in the order of completion. Never blocks. `look`
    /// determines whether a system call is worthwhile.
    fn reap(&mut self, done: &mut Completions, how: Reap);

    /// Begins everything that was queued and waits until `nr_completions` requests can be reaped or
    /// `timeout` has passed. Without a timeout the caller asks for no more than are in flight.
    ///
    /// May return early on a signal, or if at least one request can be reaped. Does not return
    /// early for any other reason if a timeout is given. A driver that makes a blocking call on the
    /// waiting thread may return late: when the call ends. The timeout costs no system call where
    /// the wait itself takes one, and at most one elsewhere.
    fn wait(&mut self, nr_completions: u32, timeout: Option<Duration>);

    /// Asks the device to give up the request of a tag in flight. The request still completes
    /// exactly once (K5): with [`BlockStatus::Timeout`] if it was given up, or else with its own
    /// result. Part of it may have been done in either case. Begins everything that was queued, and
    /// does not block. Returns false if the device cannot be asked.
    ///
    /// A completion that this causes is announced as any other: by a wait, or by
    /// [`Driver::has_ready`]. It may end a wait beside the driver early.
    fn cancel(&mut self, _tag: Tag) -> bool {
        false
    }

    /// Takes back the request that was left to the calling thread ([`Issue::Begun`]), if that
    /// thread has not begun it, and begins it as usual. Called before the thread runs foreign code,
    /// which may block.
    fn withdraw(&mut self) {}

    /// Wakes the thread that waits beside this driver, now or at its next wait. Several kicks count
    /// as one. If the thread has already returned for another reason, its next wait may return at
    /// once.
    fn kick(&mut self) {}

    /// Returns whether completions are present that no wait announces. The layer calls this after
    /// it has issued requests, and reaps until there are none, before a thread waits beside the
    /// driver. [`Driver::wait`] takes them into account.
    fn has_ready(&self) -> bool {
        false
    }

    /// Returns whether the driver makes system calls. Turns do not count those of a driver that
    /// makes none.
    fn makes_syscalls(&self) -> bool {
        true
    }

    /// Returns the number of system calls made since the driver was opened.
    fn nr_syscalls(&self) -> u64 {
        0
    }
}

/// How a driver reaps completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reap {
    /// With a system call if needed.
    Full,
    /// Without a system call: a commit follows in this turn and brings the completions too.
    NoSyscall,
}

/// The result of [`Driver::queue_rq`]. Counterpart in Linux: the `blk_status_t` of `queue_rq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issue {
    /// Accepted. A completion will follow.
    Queued,
    /// Accepted, and needs no commit: the calling thread makes the I/O itself, after it has
    /// released the context and before it waits ([`Host::make_own_call`]). No wait and no
    /// descriptor announces the completion, so that thread requests a turn.
    ///
    /// [`Host::make_own_call`]: crate::wait::Host::make_own_call
    Begun,
    /// Not accepted; retry later (`BLK_STS_RESOURCE`).
    Busy,
    /// Not accepted, for good. No completion follows.
    Failed(BlockStatus),
}

impl Issue {
    /// Returns whether the driver has accepted the request.
    #[inline]
    pub fn is_accepted(self) -> bool {
        matches!(self, Issue::Queued | Issue::Begun)
    }
}

/// The driver's view of a request. Valid only during [`Driver::queue_rq`].
#[derive(Clone, Debug)]
pub struct IssuedRequest<'a> {
    /// The tag under which it completes.
    pub tag: Tag,
    /// The operation.
    pub op: Op,
    /// Whether the write must be durable when it completes. Set only if the limits say `fua`.
    pub fua: bool,
    /// Whether the flush also makes all metadata of a file durable
    /// ([`BioFlags::FSYNC`](crate::BioFlags::FSYNC)).
    pub metadata: bool,
    /// The first byte on the device; 0 for a flush.
    pub start: u64,
    /// The number of bytes; 0 for a flush.
    pub len: u64,
    /// The number of bios it joins.
    pub nr_bios: u32,
    /// An upper bound of the number of segments.
    pub nr_segments: u32,
    pub(crate) head: &'a QueuedBio,
    pub(crate) skip: u64,
}

impl<'a> IssuedRequest<'a> {
    /// Builds the driver's view of a request that is one command for all of its data and no part of
    /// a bio.
    #[inline]
    pub(crate) fn of_plain(rq: &'a Request, tag: Tag) -> IssuedRequest<'a> {
        IssuedRequest {
            tag,
            op: rq.op,
            fua: false,
            metadata: false,
            start: rq.start,
            len: rq.len,
            nr_bios: rq.nr_bios,
            nr_segments: rq.nr_segments,
            head: rq.first(),
            skip: 0,
        }
    }

    /// Builds the driver's view of the current step of a request: its data, or a flush.
    pub(crate) fn of_step<const DATA: bool>(
        rq: &'a Request,
        splits: &'a Splits,
        tag: Tag,
    ) -> IssuedRequest<'a> {
        IssuedRequest {
            tag,
            op: if DATA { rq.op } else { Op::Flush },
            fua: DATA && rq.steps.is_native_fua(),
            metadata: !DATA && rq.flags.contains(BioFlags::FSYNC),
            start: if DATA { rq.start } else { 0 },
            len: if DATA { rq.window_len(splits) } else { 0 },
            nr_bios: rq.nr_bios,
            nr_segments: rq.nr_segments,
            head: rq.head(splits),
            skip: rq.skip,
        }
    }

    /// Returns the owner of its first bio ([`QueuedBio::owner`]). Meaningless for a flush.
    #[inline]
    pub fn owner(&self) -> u64 {
        self.head.owner()
    }

    /// Returns whether the submitter keeps the memory valid until the driver is done with it, even
    /// if the bios end earlier ([`BioFlags::OWNED`]). That is true of all bios of a request, or of
    /// none.
    #[inline]
    pub fn has_owned_memory(&self) -> bool {
        self.head.bio.flags.contains(BioFlags::OWNED)
    }

    /// Returns the memory segments in the order of the bytes on the device. Empty except for reads
    /// and writes.
    #[inline]
    pub fn segments(&self) -> RequestSegments<'a> {
        let len = if self.op.moves_data() { self.len } else { 0 };
        RequestSegments(ChainSegments::new(self.head, self.skip, len))
    }

    /// Returns the memory of a read or write if it is one whole segment. This usual case costs less
    /// than [`segments`](IssuedRequest::segments).
    #[inline]
    pub fn only_segment(&self) -> Option<Segment> {
        match self.head.bio.segments {
            // A flush has length 0, and no segment has. A longer request has other bios as well.
            Segments::One(one) if self.skip == 0 && u64::from(one.len) == self.len => Some(one),
            _ => None,
        }
    }

    /// Returns the ranges on the device as (first byte, length). A merged discard has several.
    pub fn ranges(&self) -> Ranges<'a> {
        Ranges::new(self.head, self.skip, self.len)
    }

    /// Returns the first `len` bytes of this request under the same tag, for drivers that move less
    /// than requested.
    ///
    /// # Panics
    /// Panics if `len` exceeds the request's length.
    #[must_use]
    pub fn prefix(&self, len: u64) -> IssuedRequest<'a> {
        assert!(len <= self.len);
        IssuedRequest { len, ..self.clone() }
    }
}

/// Iterator over the segments of a request.
#[derive(Clone, Debug)]
pub struct RequestSegments<'a>(ChainSegments<'a>);

impl Iterator for RequestSegments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        self.0.next()
    }
}

/// A completion: a tag and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The tag of the request.
    pub tag: Tag,
    /// The number of bytes moved from the start of the request, or the failure. For operations that
    /// move no data it is the request's length.
    pub result: Result<u64, BlockStatus>,
}

/// The list that a driver appends completions to. Allocated at open.
#[derive(Debug)]
pub struct Completions {
    /// The first `len` are the completions. The length is the number of tags.
    list: Box<[Completed]>,
    len: usize,
}

/// Fills the unused places of a list.
const UNUSED: Completed = Completed { tag: Tag::from_index(0), result: Ok(0) };

impl Completions {
    /// Creates a list for a queue of `depth` tags.
    pub fn new(depth: u32) -> Completions {
        Completions { list: alloc::vec![UNUSED; depth as usize].into(), len: 0 }
    }

    /// Appends one completion.
    ///
    /// # Panics
    /// Panics if there are more completions than tags: some tag completed twice.
    #[inline]
    pub fn push(&mut self, tag: Tag, result: Result<u64, BlockStatus>) {
        // Nothing grows here, so a driver's `queue_rq` can be short.
        let Some(place) = self.list.get_mut(self.len) else { too_many() };
        *place = Completed { tag, result };
        self.len += 1;
    }

    /// Moves all completions of `others` to this list.
    ///
    /// # Panics
    /// Panics if there are more completions than tags.
    #[inline]
    pub fn append(&mut self, others: &mut Completions) {
        // For one completion, a push costs less than a copy of the list.
        if others.len == 1 {
            let Completed { tag, result } = others.list[0];
            others.len = 0;
            return self.push(tag, result);
        }
        self.append_list(others);
    }

    #[inline(never)]
    fn append_list(&mut self, others: &mut Completions) {
        let nr = self.len + others.len;
        let Some(places) = self.list.get_mut(self.len..nr) else { too_many() };
        places.copy_from_slice(others.as_slice());
        (self.len, others.len) = (nr, 0);
    }

    /// Returns whether the list is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of completions.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the completions, oldest first.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[Completed] {
        &self.list[..self.len]
    }

    /// Returns a completion by its index, oldest first.
    #[inline]
    pub(crate) fn get(&self, nth: usize) -> &Completed {
        &self.list[nth]
    }

    /// Removes all completions and keeps the memory.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Drains all completions, oldest first, and keeps the memory.
    pub fn drain(&mut self) -> impl Iterator<Item = Completed> + '_ {
        let nr = core::mem::take(&mut self.len);
        self.list[..nr].iter().copied()
    }
}

#[cold]
fn too_many() -> ! {
    panic!("more completions than tags")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn list(tags: core::ops::Range<usize>) -> Completions {
        let mut list = Completions::new(4);
        tags.for_each(|index| list.push(Tag::from_index(index), Ok(index as u64)));
        list
    }

    /// A driver that does only what each must.
    struct Least;

    impl Driver for Least {
        fn queue_rq(&mut self, _rq: &IssuedRequest<'_>, _last: bool) -> Issue {
            Issue::Queued
        }

        fn commit_rqs(&mut self) {}

        fn reap(&mut self, _done: &mut Completions, _how: Reap) {}

        fn wait(&mut self, _nr_completions: u32, _timeout: Option<Duration>) {}
    }

    #[test]
    fn driver_that_does_the_least_cancels_nothing_and_announces_each_completion() {
        assert!(!Least.cancel(Tag::from_index(0)) && !Least.has_ready());
        // Its system calls are not counted, and the layer assumes that it makes some.
        assert!(Least.makes_syscalls() && Least.nr_syscalls() == 0);
    }

    #[test]
    fn appended_completions_keep_their_order() {
        for nr in 0..3 {
            let (mut all, mut others) = (list(0..2), list(2..2 + nr));
            assert!(!all.is_empty());
            all.append(&mut others);
            assert!(others.is_empty() && all.len() == 2 + nr);
            let tags: Vec<usize> = all.drain().map(|completed| completed.tag.index()).collect();
            assert!(tags.into_iter().eq(0..2 + nr));
            assert!(all.is_empty());
        }
    }

    #[test]
    #[should_panic(expected = "more completions than tags")]
    fn more_appended_completions_than_tags_panic() {
        list(0..3).append(&mut list(0..2));
    }

    #[test]
    #[should_panic(expected = "more completions than tags")]
    fn more_pushed_completions_than_tags_panic() {
        list(0..5);
    }
}
