//! `bfq`: one owner at a time has the device, for a share of its bytes by weight.
//!
//! Sources: P. Valente and F. Checconi, "High Throughput Disk Scheduling with Fair Bandwidth
//! Distribution" (IEEE Transactions on Computers 59(9), 2010), for slices with budgets in bytes and
//! for idling; Linux 6.12 (`block/bfq-iosched.c`) for names and defaults. This is the part that
//! rotational disks need. An owner takes the place of a process. The order of slices is that of
//! start-time fair queueing, which needs no budget in advance. Not implemented are: weight raising
//! (`low_latency`), merged and injected queues, queues of asynchronous requests, and the level of a
//! priority.
//!
//! - BF1 *Queues.* Each owner has a queue in each class. Requests without an owner have one of the
//!   default weight.
//! - BF2 *Addresses.* The next request of a queue is the first one that begins at the end of the
//!   last one that went or after it; if there is none, the one with the lowest address.
//! - BF3 *Deadlines.* A slice begins with the request of the earliest deadline, if that has passed.
//!   A deadline is `fifo_expire_sync` (reads) or `fifo_expire_async` after the insertion.
//! - BF4 *Slices.* One queue is in service. It stays until its next request exceeds the budget or
//!   comes after `timeout_sync`, or until it is empty and not awaited. So a queue that has used up
//!   its slice keeps its place in the order (BF5) if its next request comes soon enough. A slice
//!   has at least one request.
//! - BF5 *Shares.* The queues of a class have slices in the fair order of their owners (FQ1 to
//!   FQ4). A slice costs the bytes that went. If it took `timeout_sync` or longer, and moved less
//!   than two thirds of the budget, it costs the budget. So random I/O pays for its time.
//! - BF6 *Idling.* An empty queue in service is awaited while one of its requests is at the device,
//!   and for `slice_idle` from then on. Others wait meanwhile. The conditions: the device turns;
//!   the last request was a read; the mean time to the next one is at most `slice_idle`; the
//!   requests are sequential, or some owner has a parent or another weight than 100; the class is
//!   not idle; a tag is free for the request; and none was given up.
//! - BF7 *Budget.* `max_budget` in sectors of 512 bytes, or if it is 0, what the device moves in
//!   three quarters of `timeout_sync`. So slices that read sequentially use up their budget, and
//!   their bytes are in the ratio of the weights. The rate is the mean of such slices, each new one
//!   for an eighth. It is 8 MiB before the first.
//! - BF8 *Classes.* A slice ends when a request of a higher class is queued. Requests of a lower
//!   class go only if none of a higher class is queued or awaited. But a class with queued requests
//!   may issue one once 200 ms have passed since it last issued one, or since it had none.
//! - BF9 *Head.* Requests that are inserted at the head go before all others of their class, in
//!   their order, and do not merge. Their owner is charged.
//! - BF10 *Merges.* Requests of one owner merge. A request that absorbs another one takes its place
//!   in the FIFO and its deadline, if these are earlier.
//! - BF11 *Changes.* A new weight applies to the slices that end afterwards. Requests of a removed
//!   owner join those without an owner.
//! - BF12 *Given up.* A request that was given up (H5) no longer counts as being at the device.

mod budget;
mod class;
mod pattern;
mod queue;
mod slice;

use crate::bio::Op;
use crate::limits::QueueLimits;
use crate::origin::{Class, Origin};
use crate::owner::{Owner, Owners, WEIGHT_DEFAULT};
use crate::sched::tag_list::Links;
use crate::sched::{Neighbours, Position, Queued, Scheduler};
use crate::scheduling::BfqParams;
use crate::tag::Tag;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use budget::Budget;
use class::OfClass;
use queue::{Queue, fifo_of};
use slice::{CLASS_WAIT_NS, Slice};

/// A tag's request.
#[derive(Clone, Copy, Debug)]
struct Row {
    rq: Queued,
    /// The number of its queue.
    number: u32,
    deadline_ns: u64,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not in the scheduler.
    None,
    /// In the list of requests that were inserted at the head.
    Head,
    /// In its queue.
    Sorted,
    /// Handed out and not completed.
    Out,
    /// Handed out and given up.
    GivenUp,
}

/// The scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Bfq {
    params: BfqParams,
    /// `slice_idle`, or 0 if the device does not turn.
    idle_ns: u64,
    /// By tag.
    rows: Box<[Row]>,
    links: Links,
    /// By class, the highest first.
    classes: [OfClass; 3],
    slice: Option<Slice>,
    budget: Budget,
    owners: Owners,
    /// Some owner has a parent, or another weight than the default.
    weights_differ: bool,
    nr_queued: usize,
    /// How many requests were handed out and have their tags, and how many of these were given up.
    nr_out: usize,
    nr_given_up: usize,
    nr_requests: usize,
    /// The bytes of all requests that were completed.
    bytes_done: u64,
    /// The discard that was inserted last, while it is queued.
    newest_discard: Option<Tag>,
    /// The time of the last call.
    now: u64,
}

fn class_of(rq: &Queued) -> usize {
    rq.origin.priority().class() as usize
}

impl Bfq {
    /// Creates the scheduler of a context with `depth` tags.
    pub(crate) fn new(params: BfqParams, limits: &QueueLimits, depth: u32) -> Bfq {
        let rq = Queued {
            tag: Tag::from_index(0),
            op: Op::Read,
            origin: Origin::NONE,
            start: 0,
            len: 0,
            since_ns: 0,
        };
        let row = Row { rq, number: 0, deadline_ns: 0, place: Place::None };
        Bfq {
            params,
            idle_ns: if limits.rotational { params.slice_idle_ns } else { 0 },
            rows: (0..depth).map(|_| row).collect(),
            links: Links::new(depth),
            classes: core::array::from_fn(|_| OfClass::new()),
            slice: None,
            budget: Budget::new(&params),
            owners: Owners::default(),
            weights_differ: false,
            nr_queued: 0,
            nr_out: 0,
            nr_given_up: 0,
            nr_requests: depth as usize,
            bytes_done: 0,
            newest_discard: None,
            now: 0,
        }
    }

    fn row(&self, tag: Tag) -> &Row {
        &self.rows[tag.index()]
    }

    fn queue(&self, class: usize, number: u32) -> &Queue {
        &self.classes[class].queues[number as usize]
    }

    fn queue_mut(&mut self, class: usize, number: u32) -> &mut Queue {
        &mut self.classes[class].queues[number as usize]
    }

    /// Records that a queued request goes.
    fn take(&mut self, tag: Tag) {
        self.remove(tag);
        let now = self.now;
        let row = &mut self.rows[tag.index()];
        row.place = Place::Out;
        let of_class = &mut self.classes[class_of(&row.rq)];
        of_class.since_ns = now;
        of_class.queues[row.number as usize].nr_out += 1;
        self.nr_out += 1;
    }

    /// Removes a queued request from its lists.
    fn remove(&mut self, tag: Tag) {
        let row = self.rows[tag.index()];
        let of_class = &mut self.classes[class_of(&row.rq)];
        match row.place {
            Place::Head => of_class.head.remove(tag, &mut self.links),
            Place::Sorted => {
                of_class.queues[row.number as usize].remove(&row, &mut self.links);
            }
            Place::None | Place::Out | Place::GivenUp => unreachable!("the request is queued"),
        }
        of_class.nr_queued -= 1;
        self.nr_queued -= 1;
        if self.newest_discard == Some(tag) {
            self.newest_discard = None;
        }
    }

    /// Removes an owner. Its requests join those without an owner (BF11).
    fn remove_owner(&mut self, number: u32) {
        for class in 0..self.classes.len() {
            if self.is_in_service(class, number) {
                self.end_slice(self.now);
            }
            let first_is_busy = self.queue(class, 0).nr_queued > 0 || self.is_in_service(class, 0);
            let of_class = &mut self.classes[class];
            let queue = of_class.remove_owner(number as usize);
            if queue.nr_queued > 0 && !first_is_busy {
                of_class.enqueue(0);
            }
            of_class.queues[0].take_over(queue, &self.rows, &mut self.links);
        }
        for row in self.rows.iter_mut().filter(|row| row.number == number) {
            row.number = 0;
        }
    }
}

impl Scheduler for Bfq {
    #[inline(never)]
    fn insert(&mut self, rq: Queued, at: Position, now: u64) {
        self.now = now;
        self.settle(now);
        let class = class_of(&rq);
        let expire_ns = match rq.op {
            Op::Read => self.params.fifo_expire_sync_ns,
            _ => self.params.fifo_expire_async_ns,
        };
        let of_class = &mut self.classes[class];
        let number = of_class.number_of(rq.origin.owner());
        let place = if at == Position::Head { Place::Head } else { Place::Sorted };
        let row = Row { rq, number, deadline_ns: now.saturating_add(expire_ns), place };
        self.rows[rq.tag.index()] = row;
        if of_class.nr_queued == 0 {
            of_class.since_ns = now;
        }
        of_class.nr_queued += 1;
        self.nr_queued += 1;
        if place == Place::Head {
            of_class.head.push_back(rq.tag, &mut self.links);
            return;
        }
        if rq.op == Op::Discard {
            self.newest_discard = Some(rq.tag);
        }
        let queue = &mut of_class.queues[number as usize];
        let was_empty = queue.nr_queued == 0;
        let is_quiet = was_empty && queue.nr_out == 0;
        queue.pattern.inserted(rq.start, rq.len, now, is_quiet, self.idle_ns);
        queue.add(&row, &mut self.links);
        if was_empty && !self.is_in_service(class, number) {
            self.classes[class].enqueue(number);
        }
    }

    #[inline(never)]
    fn neighbours(&mut self, rq: &Queued) -> Neighbours {
        let class = class_of(rq);
        // A queued request stays in its queue when its owner's number is used again.
        let number = match self.rows.get(rq.tag.index()) {
            Some(row) if row.place == Place::Sorted => row.number,
            _ => self.classes[class].number_of(rq.origin.owner()),
        };
        let sorted = &mut self.classes[class].queues[number as usize].sorted;
        Neighbours::find(rq, sorted, self.newest_discard, true, |tag| &self.rows[tag.index()].rq)
    }

    fn grown(&mut self, tag: Tag, start: u64, len: u64) {
        let Row { rq, number, place, .. } = &mut self.rows[tag.index()];
        if *place == Place::Sorted {
            let queue = &mut self.classes[class_of(rq)].queues[*number as usize];
            if start != rq.start {
                queue.sorted.remove(rq.start, tag);
                queue.sorted.insert(start, tag);
            }
            queue.pattern.grown(start + len);
        }
        (rq.start, rq.len) = (start, len);
    }

    fn absorbed(&mut self, into: Tag, tag: Tag) {
        let (mut kept, gone) = (*self.row(into), *self.row(tag));
        assert!((kept.place, gone.place) == (Place::Sorted, Place::Sorted), "both are queued");
        assert!(fifo_of(kept.rq.op) == fifo_of(gone.rq.op) && kept.number == gone.number);
        // BF10.
        if gone.deadline_ns < kept.deadline_ns {
            let queue = &mut self.classes[class_of(&kept.rq)].queues[kept.number as usize];
            queue.move_before(tag, &kept, &mut self.links);
            kept.deadline_ns = gone.deadline_ns;
            self.rows[into.index()] = kept;
        }
        self.remove(tag);
        self.rows[tag.index()].place = Place::None;
    }

    #[inline(never)]
    fn next(&mut self, now: u64) -> Option<Tag> {
        self.now = now;
        if self.nr_queued == 0 {
            return None;
        }
        self.settle(now);
        // BF8.
        if let Some(slice) = self.slice
            && self.classes[..slice.class].iter().any(|of_class| of_class.nr_queued > 0)
        {
            self.end_slice(now);
        }
        if let Some(tag) = self.next_waiting(now) {
            return Some(self.serve_beside(tag));
        }
        for class in 0..self.classes.len() {
            if let Some(tag) = self.classes[class].head.first() {
                return Some(self.serve_beside(tag));
            }
            if let Some(slice) = self.slice.filter(|slice| slice.class == class) {
                // BF6: it is awaited if it has none.
                let tag = self.next_of_slice(&slice, now)?;
                if !self.is_used_up(&slice, tag, now) {
                    return Some(self.serve(tag));
                }
                self.end_slice(now);
            }
            if let Some(number) = self.classes[class].next() {
                self.begin_slice(class, number, now);
                let tag = self.slice.and_then(|slice| self.next_of_slice(&slice, now));
                return tag.map(|tag| self.serve(tag));
            }
        }
        None
    }

    #[inline(never)]
    fn next_any(&mut self) -> Option<Tag> {
        let of_queues = |of_class: &OfClass| of_class.queues.iter().find_map(Queue::any);
        let any = |of_class: &OfClass| of_class.head.first().or_else(|| of_queues(of_class));
        let tag = self.classes.iter().find_map(any)?;
        let Row { rq, number, place, .. } = *self.row(tag);
        let class = class_of(&rq);
        self.take(tag);
        let is_empty = self.queue(class, number).nr_queued == 0;
        if place == Place::Sorted && is_empty && !self.is_in_service(class, number) {
            let of_class = &mut self.classes[class];
            of_class.fair.cancel(of_class.fair_of(number));
        }
        Some(tag)
    }

    #[inline(never)]
    fn completed(&mut self, tag: Tag, now: u64, _device_ns: u64) {
        self.now = now;
        let row = &mut self.rows[tag.index()];
        let (class, number, len) = (class_of(&row.rq), row.number, row.rq.len);
        self.nr_out -= 1;
        match core::mem::replace(&mut row.place, Place::None) {
            Place::Out => {
                self.bytes_done += len;
                let queue = self.queue_mut(class, number);
                queue.nr_out -= 1;
                queue.pattern.ended(now);
            }
            Place::GivenUp => self.nr_given_up -= 1,
            Place::None | Place::Head | Place::Sorted => unreachable!("it was handed out"),
        }
    }

    fn given_up(&mut self, tag: Tag) {
        let row = &mut self.rows[tag.index()];
        assert!(row.place == Place::Out, "it was handed out");
        row.place = Place::GivenUp;
        let (class, number, now) = (class_of(&row.rq), row.number, self.now);
        self.nr_given_up += 1;
        let queue = self.queue_mut(class, number);
        queue.nr_out -= 1;
        queue.pattern.ended(now);
    }

    fn nr_queued(&self) -> usize {
        self.nr_queued
    }

    fn passes_flush(&self, class: Class, since_ns: u64, now: u64) -> bool {
        // BF8.
        let has_waited = now >= since_ns.saturating_add(CLASS_WAIT_NS);
        !has_waited && self.classes[..class as usize].iter().any(|higher| higher.nr_queued > 0)
    }

    fn next_at_ns(&self) -> u64 {
        match &self.slice {
            Some(slice) if self.nr_queued > 0 => {
                let is_empty = self.queue(slice.class, slice.number).nr_queued == 0;
                self.awaited_until_ns(slice).filter(|_| is_empty).unwrap_or(u64::MAX)
            }
            _ => u64::MAX,
        }
    }

    fn set_depths(&mut self, _device_depth: u32, nr_requests: u32) {
        self.nr_requests = nr_requests as usize;
    }

    fn set_owners(&mut self, owners: &Owners) {
        let before = core::mem::replace(&mut self.owners, owners.clone());
        let is_gone = |owner: &&Arc<Owner>| {
            owners.get(owner.id()).is_none_or(|other| !Arc::ptr_eq(owner, other))
        };
        let mut gone: Vec<_> = before.iter().filter(is_gone).collect();
        gone.sort_by_key(|owner| core::cmp::Reverse(owner.level()));
        gone.iter().for_each(|owner| self.remove_owner(owner.id().number()));
        // A parent may have a higher number than its children.
        let mut all: Vec<_> = owners.iter().collect();
        all.sort_by_key(|owner| owner.level());
        for of_class in &mut self.classes {
            all.iter().for_each(|owner| of_class.set_owner(owner));
        }
        let is_usual = |owner: &Arc<Owner>| owner.level() == 0 && owner.weight() == WEIGHT_DEFAULT;
        self.weights_differ = !owners.iter().all(is_usual);
    }
}

#[cfg(test)]
mod tests;
