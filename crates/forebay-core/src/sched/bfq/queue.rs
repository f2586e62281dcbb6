//! The requests of one owner in one class.

use super::Row;
use super::pattern::Pattern;
use crate::bio::Op;
use crate::owner::FairId;
use crate::sched::sorted::SortedTags;
use crate::sched::tag_list::{Links, TagList};
use crate::tag::Tag;
use alloc::vec::Vec;

/// Returns the index of the FIFO of an operation: 0 for reads, which are synchronous, or 1.
pub(super) fn fifo_of(op: Op) -> usize {
    usize::from(op != Op::Read)
}

/// The queue of an owner.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// The place in the fair order. `None` if there is no such owner.
    pub(super) fair: Option<FairId>,
    pub(super) sorted: SortedTags,
    /// In the order of the deadlines: reads, and others.
    fifo: [TagList; 2],
    pub(super) nr_queued: u32,
    /// How many requests are at the device and not given up.
    pub(super) nr_out: u32,
    /// The end of the last request that went.
    position: u64,
    pub(super) pattern: Pattern,
}

impl Queue {
    /// Returns the request to go next. The first one of a slice is the one that has been expired
    /// for the longest time, if one is (BF3).
    pub(super) fn choose(&mut self, rows: &[Row], is_first: bool, now: u64) -> Option<Tag> {
        let deadline_ns = |tag: &Tag| rows[tag.index()].deadline_ns;
        if is_first
            && let Some(oldest) =
                self.fifo.iter().filter_map(TagList::first).min_by_key(deadline_ns)
            && deadline_ns(&oldest) <= now
        {
            return Some(oldest);
        }
        // BF2.
        self.sorted.first_from(self.position).or_else(|| self.sorted.first())
    }

    /// Adds a request, which has the latest deadline of its FIFO.
    pub(super) fn add(&mut self, row: &Row, links: &mut Links) {
        self.sorted.insert(row.rq.start, row.rq.tag);
        self.fifo[fifo_of(row.rq.op)].push_back(row.rq.tag, links);
        self.nr_queued += 1;
    }

    /// Removes a queued request.
    pub(super) fn remove(&mut self, row: &Row, links: &mut Links) {
        self.sorted.remove(row.rq.start, row.rq.tag);
        self.fifo[fifo_of(row.rq.op)].remove(row.rq.tag, links);
        self.nr_queued -= 1;
    }

    /// Moves a request in its FIFO to the place before another one.
    pub(super) fn move_before(&mut self, next: Tag, row: &Row, links: &mut Links) {
        let fifo = &mut self.fifo[fifo_of(row.rq.op)];
        fifo.remove(row.rq.tag, links);
        fifo.insert_before(next, row.rq.tag, links);
    }

    /// Records that a request of the sorted list has gone.
    pub(super) fn went(&mut self, row: &Row) {
        self.position = row.rq.start + row.rq.len;
        self.pattern.went(row.rq.op == Op::Read);
    }

    /// Returns any queued request.
    pub(super) fn any(&self) -> Option<Tag> {
        self.fifo.iter().find_map(TagList::first)
    }

    /// Moves all requests of another queue here.
    pub(super) fn take_over(&mut self, mut other: Queue, rows: &[Row], links: &mut Links) {
        self.nr_out += other.nr_out;
        self.nr_queued += other.nr_queued;
        for nth in 0..self.fifo.len() {
            let mut tags = Vec::new();
            for fifo in [&mut self.fifo[nth], &mut other.fifo[nth]] {
                while let Some(tag) = fifo.first() {
                    fifo.remove(tag, links);
                    tags.push(tag);
                }
            }
            tags.sort_by_key(|tag| rows[tag.index()].deadline_ns);
            for tag in tags {
                self.fifo[nth].push_back(tag, links);
            }
        }
        other.sorted.iter().for_each(|(start, tag)| self.sorted.insert(start, tag));
    }
}
