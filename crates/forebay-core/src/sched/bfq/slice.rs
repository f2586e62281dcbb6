//! The slice of the queue in service: when it ends, and whether its queue is awaited (BF4, BF6).

use super::{Bfq, Row, class_of};
use crate::origin::Class;
use crate::tag::Tag;

/// How long a class waits for higher ones (BF8), as in Linux (`BFQ_CL_IDLE_TIMEOUT`).
pub(super) const CLASS_WAIT_NS: u64 = 200_000_000;

/// The slice of the queue that is in service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub(super) class: usize,
    pub(super) number: u32,
    since_ns: u64,
    budget: u64,
    /// The bytes that went.
    bytes: u64,
    /// `bytes_done` when it began.
    done_before: u64,
}

impl Bfq {
    /// Returns whether a queue is in service.
    pub(super) fn is_in_service(&self, class: usize, number: u32) -> bool {
        self.slice.is_some_and(|slice| (slice.class, slice.number) == (class, number))
    }

    /// Returns until when the queue in service is awaited if it is empty (BF6): `u64::MAX` while
    /// one of its requests is at the device. `None` if it is not awaited.
    pub(super) fn awaited_until_ns(&self, slice: &Slice) -> Option<u64> {
        let queue = self.queue(slice.class, slice.number);
        let has_tag = self.nr_queued + self.nr_out < self.nr_requests;
        let is_awaited = self.idle_ns > 0
            && slice.class != Class::Idle as usize
            && queue.pattern.is_awaited(self.idle_ns, self.weights_differ)
            && self.nr_given_up == 0
            && has_tag;
        let until_ns = match queue.nr_out {
            0 => queue.pattern.ended_ns().saturating_add(self.idle_ns),
            _ => u64::MAX,
        };
        is_awaited.then_some(until_ns)
    }

    /// Ends the slice if its queue is empty and not awaited any longer.
    pub(super) fn settle(&mut self, now: u64) {
        let Some(slice) = self.slice else { return };
        let is_empty = self.queue(slice.class, slice.number).nr_queued == 0;
        if is_empty && self.awaited_until_ns(&slice).is_none_or(|until_ns| until_ns <= now) {
            self.end_slice(now);
        }
    }

    /// Ends the slice, and charges its queue.
    pub(super) fn end_slice(&mut self, now: u64) {
        let Some(slice) = self.slice.take() else { return };
        let Slice { class, number, since_ns, bytes, budget, done_before } = slice;
        let queue = self.queue(class, number);
        let has_more = queue.nr_queued > 0;
        let until_ns = if has_more { now } else { queue.pattern.ended_ns() };
        let took_ns = until_ns.saturating_sub(since_ns);
        let is_stream = queue.pattern.is_stream();
        self.classes[class].charge(number, self.budget.cost(bytes, took_ns, budget), has_more);
        if is_stream {
            self.budget.measured(self.bytes_done - done_before, took_ns);
        }
    }

    /// Puts a queue in service.
    pub(super) fn begin_slice(&mut self, class: usize, number: u32, now: u64) {
        let (budget, done_before) = (self.budget.bytes(), self.bytes_done);
        self.slice = Some(Slice { class, number, since_ns: now, budget, bytes: 0, done_before });
    }

    /// Returns whether the slice is used up, so that its queue may not issue this request.
    pub(super) fn is_used_up(&self, slice: &Slice, tag: Tag, now: u64) -> bool {
        let exceeds = slice.bytes + self.row(tag).rq.len > slice.budget;
        let is_late = now - slice.since_ns >= self.params.timeout_sync_ns;
        slice.bytes > 0 && (exceeds || is_late)
    }

    /// Returns the next request of the queue in service.
    pub(super) fn next_of_slice(&mut self, slice: &Slice, now: u64) -> Option<Tag> {
        let Bfq { classes, rows, .. } = self;
        let queue = &mut classes[slice.class].queues[slice.number as usize];
        queue.choose(rows, slice.bytes == 0, now)
    }

    /// Hands out a request in the slice of its queue.
    pub(super) fn serve(&mut self, tag: Tag) -> Tag {
        let row = *self.row(tag);
        self.take(tag);
        self.queue_mut(class_of(&row.rq), row.number).went(&row);
        if let Some(slice) = &mut self.slice {
            slice.bytes += row.rq.len;
        }
        tag
    }

    /// Hands out a request beside the slice, and charges its owner.
    pub(super) fn serve_beside(&mut self, tag: Tag) -> Tag {
        let Row { rq, number, .. } = *self.row(tag);
        let class = class_of(&rq);
        self.take(tag);
        let has_more = self.queue(class, number).nr_queued > 0;
        let keeps = has_more || self.is_in_service(class, number);
        self.classes[class].charge(number, rq.len, keeps);
        tag
    }

    /// Returns a request that has waited for too long behind higher classes (BF8).
    pub(super) fn next_waiting(&mut self, now: u64) -> Option<Tag> {
        let Bfq { classes, rows, slice, .. } = self;
        (1..classes.len()).find_map(|class| {
            let is_busy = |class: usize| {
                let in_service = slice.is_some_and(|slice| slice.class == class);
                in_service || classes[class].nr_queued > 0
            };
            if now - classes[class].since_ns < CLASS_WAIT_NS || !(0..class).any(is_busy) {
                return None;
            }
            let of_class = &mut classes[class];
            if let Some(tag) = of_class.head.first() {
                return Some(tag);
            }
            let number = of_class.next()?;
            of_class.queues[number as usize].choose(rows, true, now)
        })
    }
}
