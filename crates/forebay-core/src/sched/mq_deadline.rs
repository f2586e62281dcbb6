//! `mq-deadline`: batches in the order of the addresses, and a deadline for each request.
//!
//! Source: the rules and defaults of Linux 6.12 (`block/mq-deadline.c`). Differences: discards and
//! write-zeroes are writes, as there; zones are missing; and the context limits the tags of
//! requests that are not reads (`async_depth`, Q9), beside every scheduler. Linux takes a request
//! from the scheduler before the device has room for it, so it compares deadlines one service
//! earlier (`sched/recorded.rs` has recorded orders).
//!
//! A request has a class (that of its priority) and a direction: read, or write. For each pair
//! there is a list sorted by address, and a FIFO with a deadline for each request.
//!
//! - DL1 *Batches.* Requests of one class and direction go in the order of their addresses, from
//!   the one after the last that went, up to `fifo_batch` in a row. There is no wrap to the lowest
//!   address: a batch also ends at the highest one.
//! - DL2 *Direction.* A new batch is one of reads if any wait. Writes that wait get a batch after
//!   reads went before them `writes_starved` times.
//! - DL3 *Deadlines.* A new batch begins with the oldest request of its direction, if the deadline
//!   of that has passed, or if no request has a higher address than the last; otherwise with the
//!   next address. A deadline is `read_expire` or `write_expire` after the insertion.
//! - DL4 *Classes.* A request of a lower class goes only if no request of a higher class is queued
//!   or at the device.
//! - DL5 *Aging.* Unless it has waited for `prio_aging_expire`: then it goes before the higher
//!   classes.
//! - DL6 *Head.* Requests that are inserted at the head go before all others of their class, in
//!   their order, and do not merge.
//! - DL7 *Merges.* A request that absorbs another one takes its place in the FIFO, its deadline and
//!   its age, if these are earlier. A new request can be kept from merging at the front of a queued
//!   one (`front_merges`).
//! - DL8 *Given up.* A request that was given up (H5) no longer counts as being at the device.

use crate::bio::Op;
use crate::origin::{Class, Origin};
use crate::plant::plants;
use crate::sched::sorted::SortedTags;
use crate::sched::tag_list::{Links, TagList};
use crate::sched::{Neighbours, Position, Queued, Scheduler};
use crate::scheduling::MqDeadlineParams;
use crate::tag::Tag;
use alloc::boxed::Box;

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

impl Direction {
    fn of(op: Op) -> Direction {
        match op {
            Op::Read => Direction::Read,
            Op::Write | Op::Flush | Op::Discard | Op::WriteZeroes => Direction::Write,
        }
    }
}

/// The requests of one class.
#[derive(Clone, Debug, Default)]
struct OfClass {
    /// Requests that were inserted at the head (DL6).
    head: TagList,
    /// By direction.
    sorted: [SortedTags; 2],
    fifo: [TagList; 2],
    /// The start of the last request that went.
    latest: [u64; 2],
    /// How many requests are queued, or went and are not completed.
    nr_inside: u32,
}

impl OfClass {
    fn has_queued(&self) -> bool {
        [self.head, self.fifo[0], self.fifo[1]].iter().any(|list| list.first().is_some())
    }
}

/// A tag's request.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Valid while the request is queued.
    rq: Queued,
    deadline_ns: u64,
    /// The class of the request, also after it was handed out.
    class: usize,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not in the scheduler.
    None,
    /// In the list of requests that were inserted at the head.
    Head,
    /// In the sorted list and in the FIFO of its direction.
    Sorted,
    /// Handed out and not completed.
    Out,
    /// Handed out and given up.
    GivenUp,
}

/// The scheduler.
#[derive(Clone, Debug)]
pub(crate) struct MqDeadline {
    params: MqDeadlineParams,
    /// By tag.
    rows: Box<[Row]>,
    links: Links,
    /// By class, the highest first.
    classes: [OfClass; 3],
    nr_queued: usize,
    /// The direction of the current batch, and how many requests of it went.
    direction: Direction,
    nr_in_batch: u32,
    /// How often reads went before waiting writes.
    nr_starved: u32,
    /// The discard that was inserted last, while it is queued.
    newest_discard: Option<Tag>,
}

impl MqDeadline {
    /// Creates the scheduler of a context with `depth` tags.
    pub(crate) fn new(params: MqDeadlineParams, depth: u32) -> MqDeadline {
        let rq = Queued {
            tag: Tag::from_index(0),
            op: Op::Read,
            origin: Origin::NONE,
            start: 0,
            len: 0,
            since_ns: 0,
        };
        let row = Row { rq, deadline_ns: 0, class: 0, place: Place::None };
        MqDeadline {
            params,
            rows: (0..depth).map(|_| row).collect(),
            links: Links::new(depth),
            classes: Default::default(),
            nr_queued: 0,
            direction: Direction::Read,
            nr_in_batch: 0,
            nr_starved: 0,
            newest_discard: None,
        }
    }

    fn row(&self, tag: Tag) -> &Row {
        &self.rows[tag.index()]
    }

    /// Returns the next request of a class. `before_ns`: only one that has waited since that time.
    #[inline(always)]
    fn next_of(&mut self, class: usize, now: u64, before_ns: u64) -> Option<Tag> {
        let MqDeadline { classes, rows, .. } = self;
        let of_class = &mut classes[class];
        if let Some(tag) = of_class.head.first() {
            return (rows[tag.index()].rq.since_ns <= before_ns).then_some(tag);
        }
        let [reads, writes] = [of_class.fifo[0].first(), of_class.fifo[1].first()];
        let mut from = |direction: Direction| {
            let latest = of_class.latest[direction as usize];
            let latest = if plants!(BatchFromStart) { 0 } else { latest };
            of_class.sorted[direction as usize].first_from(latest)
        };
        let next = from(self.direction);
        let goes_on = self.nr_in_batch < self.params.fifo_batch || plants!(EndlessBatch);
        let tag = match next {
            Some(tag) if goes_on => tag,
            _ => {
                // DL2.
                let direction = match (reads, writes) {
                    (None, None) => return None,
                    (Some(_), None) => Direction::Read,
                    (None, Some(_)) => Direction::Write,
                    (Some(_), Some(_)) => {
                        let is_starved = self.nr_starved >= self.params.writes_starved;
                        self.nr_starved += 1;
                        match is_starved {
                            true if !plants!(StarveWrites) => Direction::Write,
                            _ => Direction::Read,
                        }
                    }
                };
                // DL3.
                let oldest = [reads, writes][direction as usize]?;
                let is_expired = rows[oldest.index()].deadline_ns <= now && !plants!(IgnoreExpiry);
                let first = from(direction).filter(|_| !is_expired).unwrap_or(oldest);
                self.begin_batch(direction);
                first
            }
        };
        if self.row(tag).rq.since_ns > before_ns {
            return None;
        }
        self.nr_in_batch += 1;
        Some(tag)
    }

    /// Begins a batch (DL1, DL2).
    fn begin_batch(&mut self, direction: Direction) {
        if direction == Direction::Write && !plants!(KeepStarved) {
            self.nr_starved = 0;
        }
        (self.direction, self.nr_in_batch) = (direction, 0);
    }

    /// Hands a request out.
    #[inline(always)]
    fn take(&mut self, tag: Tag) -> Tag {
        self.remove(tag);
        let row = &mut self.rows[tag.index()];
        row.place = Place::Out;
        let direction = Direction::of(row.rq.op) as usize;
        self.classes[row.class].latest[direction] = row.rq.start;
        tag
    }

    /// Removes a queued request from its lists.
    #[inline(always)]
    fn remove(&mut self, tag: Tag) {
        let Row { rq, place, class, .. } = self.rows[tag.index()];
        let direction = Direction::of(rq.op) as usize;
        let of_class = &mut self.classes[class];
        if place == Place::Sorted {
            of_class.sorted[direction].remove(rq.start, tag);
            of_class.fifo[direction].remove(tag, &mut self.links);
        } else {
            assert!(place == Place::Head, "the request is queued");
            of_class.head.remove(tag, &mut self.links);
        }
        self.nr_queued -= 1;
        if self.newest_discard == Some(tag) {
            self.newest_discard = None;
        }
    }

    /// Counts a request of a class that left, or was given up.
    fn leave(&mut self, class: usize) {
        self.classes[class].nr_inside -= 1;
    }

    /// Hands out a request that has waited for too long behind higher classes (DL5).
    #[cold]
    #[inline(never)]
    fn next_aged(&mut self, now: u64) -> Option<Tag> {
        let before_ns = now.checked_sub(self.params.prio_aging_expire_ns)?;
        if plants!(IgnoreAge) {
            return None;
        }
        let next = (1..self.classes.len()).find_map(|class| self.next_of(class, now, before_ns));
        next.map(|tag| self.take(tag))
    }
}

fn class_of(rq: &Queued) -> usize {
    rq.origin.priority().class() as usize
}

impl Scheduler for MqDeadline {
    #[inline(always)]
    fn insert(&mut self, rq: Queued, at: Position, now: u64) {
        let direction = Direction::of(rq.op);
        let expire_ns = match direction {
            Direction::Read => self.params.read_expire_ns,
            Direction::Write => self.params.write_expire_ns,
        };
        let class = class_of(&rq);
        let of_class = &mut self.classes[class];
        of_class.nr_inside += 1;
        self.nr_queued += 1;
        let place = match at {
            Position::Head if !plants!(HeadToTail) => {
                of_class.head.push_back(rq.tag, &mut self.links);
                Place::Head
            }
            Position::Head | Position::Tail => {
                of_class.sorted[direction as usize].insert(rq.start, rq.tag);
                of_class.fifo[direction as usize].push_back(rq.tag, &mut self.links);
                if rq.op == Op::Discard {
                    self.newest_discard = Some(rq.tag);
                }
                Place::Sorted
            }
        };
        let deadline_ns = now.saturating_add(expire_ns);
        self.rows[rq.tag.index()] = Row { rq, deadline_ns, class, place };
    }

    fn pass(&mut self, rq: Queued) -> bool {
        let (class, direction) = (class_of(&rq), Direction::of(rq.op));
        // DL4 and DL5 compare classes.
        let is_inside = |other: &OfClass| other.nr_inside > 0;
        let [high, usual, low] = &self.classes;
        let others = match class {
            0 => [usual, low],
            1 => [high, low],
            _ => [high, usual],
        };
        if others.into_iter().any(is_inside) {
            return false;
        }
        let of_class = &mut self.classes[class];
        // The request is both the next and the oldest one (DL1 to DL3).
        let latest = core::mem::replace(&mut of_class.latest[direction as usize], rq.start);
        of_class.nr_inside += 1;
        let is_next = direction == self.direction && rq.start >= latest;
        if !is_next || self.nr_in_batch >= self.params.fifo_batch {
            self.begin_batch(direction);
        }
        self.nr_in_batch += 1;
        let row = &mut self.rows[rq.tag.index()];
        (row.class, row.place) = (class, Place::Out);
        true
    }

    #[inline(always)]
    fn neighbours(&mut self, rq: &Queued) -> Neighbours {
        let MqDeadline { classes, rows, .. } = self;
        let sorted = &mut classes[class_of(rq)].sorted[Direction::of(rq.op) as usize];
        // A queued request absorbs its successor, which is a merge at its back.
        let is_queued = || rows.get(rq.tag.index()).is_some_and(|row| row.place == Place::Sorted);
        let in_front = self.params.front_merges || is_queued() || plants!(MergeInFront);
        Neighbours::find(rq, sorted, self.newest_discard, in_front, |tag| &rows[tag.index()].rq)
    }

    fn grown(&mut self, tag: Tag, start: u64, len: u64) {
        let Row { rq, place, class, .. } = &mut self.rows[tag.index()];
        if start != rq.start && *place == Place::Sorted {
            let sorted = &mut self.classes[*class].sorted[Direction::of(rq.op) as usize];
            sorted.remove(rq.start, tag);
            sorted.insert(start, tag);
        }
        (rq.start, rq.len) = (start, len);
    }

    fn absorbed(&mut self, into: Tag, tag: Tag) {
        let (mut kept, gone) = (*self.row(into), *self.row(tag));
        assert!((kept.place, gone.place) == (Place::Sorted, Place::Sorted), "both are queued");
        // DL7.
        if gone.deadline_ns < kept.deadline_ns && !plants!(KeepDeadline) {
            let direction = Direction::of(kept.rq.op) as usize;
            let fifo = &mut self.classes[kept.class].fifo[direction];
            fifo.remove(into, &mut self.links);
            fifo.insert_before(tag, into, &mut self.links);
            kept.deadline_ns = gone.deadline_ns;
            kept.rq.since_ns = kept.rq.since_ns.min(gone.rq.since_ns);
            self.rows[into.index()] = kept;
        }
        self.remove(tag);
        self.rows[tag.index()].place = Place::None;
        self.leave(gone.class);
    }

    #[inline]
    fn next(&mut self, now: u64) -> Option<Tag> {
        if self.nr_queued == 0 {
            return None;
        }
        // DL4.
        let is_inside = |class: &usize| self.classes[*class].nr_inside > 0;
        let mut inside = (0..self.classes.len()).filter(is_inside);
        let class = inside.next()?;
        if inside.next().is_some()
            && let Some(tag) = self.next_aged(now)
        {
            return Some(tag);
        }
        let mut next = self.next_of(class, now, u64::MAX);
        if next.is_none() && plants!(PassClass) {
            next = (0..self.classes.len()).find_map(|class| self.next_of(class, now, u64::MAX));
        }
        next.map(|tag| self.take(tag))
    }

    #[inline(never)]
    fn next_any(&mut self) -> Option<Tag> {
        let lists = |of_class: &OfClass| [of_class.head, of_class.fifo[0], of_class.fifo[1]];
        let tag = self.classes.iter().flat_map(lists).find_map(|list| list.first())?;
        Some(self.take(tag))
    }

    #[inline]
    fn completed(&mut self, tag: Tag, _now: u64, _device_ns: u64) {
        let row = &mut self.rows[tag.index()];
        let class = row.class;
        match core::mem::replace(&mut row.place, Place::None) {
            Place::Out => self.leave(class),
            Place::GivenUp => {}
            Place::None | Place::Head | Place::Sorted => unreachable!("it was handed out"),
        }
    }

    fn given_up(&mut self, tag: Tag) {
        let row = &mut self.rows[tag.index()];
        assert!(row.place == Place::Out, "it was handed out");
        row.place = Place::GivenUp;
        let class = row.class;
        if !plants!(CountGivenUp) {
            self.leave(class);
        }
    }

    fn nr_queued(&self) -> usize {
        self.nr_queued
    }

    fn passes_flush(&self, class: Class, since_ns: u64, now: u64) -> bool {
        // DL4 and DL5.
        let is_aged = now >= since_ns.saturating_add(self.params.prio_aging_expire_ns);
        !is_aged && self.classes[..class as usize].iter().any(OfClass::has_queued)
    }

    fn next_at_ns(&self) -> u64 {
        // Deadlines change only the order. A request waits for a completion, of its own class or of
        // a higher one.
        u64::MAX
    }

    fn set_depths(&mut self, _device_depth: u32, _nr_requests: u32) {}
}

#[cfg(test)]
mod tests;
