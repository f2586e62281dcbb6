//! I/O schedulers: the order in which requests that have a tag reach the device.
//!
//! Counterpart in Linux: `struct elevator_mq_ops` (`block/elevator.h`). Each scheduler is one file.
//! It is a value that neither reads a clock nor calls a driver, and it holds no requests: only
//! their tags, and the properties that its rules need ([`Queued`]). The requests stay in the table
//! of the hardware context, which calls the scheduler, merges, and issues.
//!
//! The tags of a context with a scheduler are *scheduler tags*, as in Linux: a request waits for
//! one as without a scheduler, by the same rules (`wake=`, classes, gathering). With its tag it is
//! queued here. At most `device_depth` of the queued requests are at the device at once.

#[cfg(test)]
mod beside;
mod bfq;
mod choice;
mod elevator;
mod kyber;
mod mq_deadline;
#[cfg(test)]
mod recorded;
mod sorted;
mod tag_list;

pub(crate) use elevator::Elevator;

use crate::bio::Op;
use crate::origin::{Class, Origin};
use crate::owner::Owners;
use crate::tag::Tag;
use sorted::SortedTags;

/// The part of a request that a scheduler keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    /// The tag, which no other queued request has.
    pub(crate) tag: Tag,
    pub(crate) op: Op,
    pub(crate) origin: Origin,
    /// The first byte on the device, and the number of bytes.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// When the request left its plug, in nanoseconds. Requests of different threads can be out of
    /// order.
    pub(crate) since_ns: u64,
}

/// Where a request is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Before all others of its class, in any order of addresses: it has waited for its flush.
    Head,
    /// By the rules of the scheduler.
    Tail,
}

/// Queued requests that a request may merge with, as far as the scheduler can see: the operation,
/// the origin and the place are right. The context checks the other rules (`merge.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Neighbours {
    /// The request that ends where this one starts.
    pub(crate) before: Option<Tag>,
    /// The request that starts where this one ends.
    pub(crate) after: Option<Tag>,
    /// For a discard: the newest other discard, if neither is adjacent (M4).
    pub(crate) discard: Option<Tag>,
}

impl Neighbours {
    /// Finds the neighbours of `rq` in a list of queued requests. `newest_discard` is the discard
    /// that was queued last. `in_front`: `rq` may merge with the request that follows it. `of`
    /// returns the request of a queued tag.
    #[inline(always)]
    fn find<'a>(
        rq: &Queued,
        sorted: &mut SortedTags,
        newest_discard: Option<Tag>,
        in_front: bool,
        of: impl Fn(Tag) -> &'a Queued,
    ) -> Neighbours {
        let is_alike = |tag: &Tag| are_alike(rq, of(*tag));
        let ends_here = |tag: &Tag| of(*tag).start + of(*tag).len == rq.start;
        let before = sorted.below(rq.start).filter(ends_here).find(is_alike);
        let end = rq.start + rq.len;
        let after = match in_front && sorted.start_after_gap() <= end {
            true => sorted.at(end).find(is_alike),
            false => None,
        };
        Neighbours { before, after, discard: newest_discard.filter(is_alike) }
    }
}

/// Returns whether two requests may merge, as far as a scheduler can see.
fn are_alike(rq: &Queued, other: &Queued) -> bool {
    rq.tag != other.tag && rq.op == other.op && rq.origin == other.origin
}

/// An I/O scheduler. Times are nanoseconds of any monotonic clock.
///
/// A request goes through it once: [`insert`](Self::insert), [`next`](Self::next),
/// [`completed`](Self::completed). In between, [`grown`](Self::grown) and
/// [`absorbed`](Self::absorbed) report merges. Flushes never reach it.
pub(crate) trait Scheduler {
    /// Queues a request.
    fn insert(&mut self, rq: Queued, at: Position, now: u64);

    /// Queues a request and hands it out, if [`next`](Self::next) would certainly return it. No
    /// other request is queued. Returns false if it is not queued.
    fn pass(&mut self, _rq: Queued) -> bool {
        false
    }

    /// Returns the queued requests that `rq` may merge with. `rq` may be queued itself, and is then
    /// not among them.
    fn neighbours(&mut self, rq: &Queued) -> Neighbours;

    /// Records that a queued request has a new range, because another was merged into it.
    fn grown(&mut self, tag: Tag, start: u64, len: u64);

    /// Removes `tag`, whose request was merged into `into`, as if it had never been queued. Its
    /// deadline applies to `into` if it is earlier.
    fn absorbed(&mut self, into: Tag, tag: Tag);

    /// Removes and returns the request to issue next. Returns `None` if none is queued, or none may
    /// be issued before a completion, an insertion, or [`next_at_ns`](Self::next_at_ns).
    fn next(&mut self, now: u64) -> Option<Tag>;

    /// Removes and returns any queued request. Called for a device that is gone, where the order
    /// does not matter, and where those that it has may never complete.
    fn next_any(&mut self) -> Option<Tag>;

    /// Records that a request that [`next`](Self::next) returned is done, `device_ns` after it was
    /// issued.
    fn completed(&mut self, tag: Tag, now: u64, device_ns: u64);

    /// Records that a request that [`next`](Self::next) returned may never complete (H5), so no
    /// other request may wait for it. `completed` follows if it does complete.
    fn given_up(&mut self, tag: Tag);

    /// Returns the number of queued requests.
    fn nr_queued(&self) -> usize;

    /// Returns whether a queued request goes before a flush of `class` that has waited since
    /// `since_ns`. Only asked for a device that executes flushes alone.
    fn passes_flush(&self, _class: Class, _since_ns: u64, _now: u64) -> bool {
        false
    }

    /// Returns when `next` may return a request although nothing else happens. `u64::MAX` means
    /// never.
    fn next_at_ns(&self) -> u64;

    /// Records how many requests may be at the device, and how many tags may be in use.
    fn set_depths(&mut self, device_depth: u32, nr_requests: u32);

    /// Replaces the owners, and takes over their weights. An owner may have been removed, and
    /// another may have its number, while requests of the former are queued.
    fn set_owners(&mut self, _owners: &Owners) {}
}
