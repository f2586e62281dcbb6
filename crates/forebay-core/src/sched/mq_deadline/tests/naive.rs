//! A naive model of `mq-deadline`: one list, and a scan of it for each rule.

use super::super::{Direction, MqDeadline, MqDeadlineParams, class_of};
use crate::bio::Op;
use crate::sched::beside::Model;
use crate::sched::{Neighbours, Position, Queued, are_alike};
use crate::tag::Tag;
use alloc::vec::Vec;

/// A wrong rule of the model. A test that compares the two must find each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// DL1: a batch never ends.
    EndlessBatch,
    /// DL1: a batch goes on from the lowest address.
    WrapAround,
    /// DL2: writes never get their turn while reads wait.
    StarveWrites,
    /// DL2: the count of read batches is kept after a batch of writes.
    KeepStarved,
    /// DL3: deadlines are ignored.
    IgnoreExpiry,
    /// DL4: a lower class goes while a higher one is at the device.
    PassClass,
    /// DL5: no request ages.
    IgnoreAge,
    /// DL6: the head is the tail.
    IgnoreHead,
    /// DL7: a request that absorbs another keeps its own deadline.
    KeepDeadline,
    /// DL8: a request that was given up counts as being at the device.
    CountGivenUp,
}

impl Bug {
    pub(super) const ALL: [Bug; 10] = [
        Bug::EndlessBatch,
        Bug::WrapAround,
        Bug::StarveWrites,
        Bug::KeepStarved,
        Bug::IgnoreExpiry,
        Bug::PassClass,
        Bug::IgnoreAge,
        Bug::IgnoreHead,
        Bug::KeepDeadline,
        Bug::CountGivenUp,
    ];
}

#[derive(Clone, Copy, Debug)]
struct Item {
    rq: Queued,
    deadline_ns: u64,
    is_head: bool,
    /// The order among equal starts.
    sorted_at: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Naive {
    params: MqDeadlineParams,
    bug: Option<Bug>,
    /// In the order of the FIFOs.
    items: Vec<Item>,
    out: Vec<Queued>,
    latest: [[u64; 2]; 3],
    direction: Direction,
    nr_in_batch: u32,
    nr_starved: u32,
    nr_sorted: u64,
    newest_discard: Option<Tag>,
}

impl Naive {
    pub(super) fn new(params: MqDeadlineParams, bug: Option<Bug>) -> Naive {
        Naive {
            params,
            bug,
            items: Vec::new(),
            out: Vec::new(),
            latest: [[0; 2]; 3],
            direction: Direction::Read,
            nr_in_batch: 0,
            nr_starved: 0,
            nr_sorted: 0,
            newest_discard: None,
        }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn place(&self, tag: Tag) -> usize {
        self.items.iter().position(|item| item.rq.tag == tag).expect("it is queued")
    }

    fn choose(&mut self, class: usize, now: u64, before_ns: u64) -> Option<Tag> {
        let of_class: Vec<Item> =
            self.items.iter().filter(|item| class_of(&item.rq) == class).copied().collect();
        let is_old = |item: &Item| item.rq.since_ns <= before_ns;
        if let Some(head) = of_class.iter().find(|item| item.is_head) {
            return is_old(head).then_some(head.rq.tag);
        }
        let of = |direction| of_class.iter().filter(move |it| Direction::of(it.rq.op) == direction);
        let wraps = self.has(Bug::WrapAround);
        let from = |direction: Direction| {
            let latest = self.latest[class][direction as usize];
            let sorted = |item: &&Item| (item.rq.start, item.sorted_at);
            let above = of(direction).filter(|item| item.rq.start >= latest).min_by_key(sorted);
            above.or_else(|| of(direction).filter(|_| wraps).min_by_key(sorted)).copied()
        };
        let goes_on = self.nr_in_batch < self.params.fifo_batch || self.has(Bug::EndlessBatch);
        let chosen = match from(self.direction) {
            Some(item) if goes_on => item,
            _ => {
                let [reads, writes] =
                    [Direction::Read, Direction::Write].map(|direction| of(direction).next());
                let is_starved = self.nr_starved >= self.params.writes_starved;
                self.nr_starved += u32::from(reads.is_some() && writes.is_some());
                let is_read = reads.is_some()
                    && (writes.is_none() || !is_starved || self.has(Bug::StarveWrites));
                let oldest = *if is_read { reads } else { writes }?;
                let direction = if is_read { Direction::Read } else { Direction::Write };
                if !is_read && !self.has(Bug::KeepStarved) {
                    self.nr_starved = 0;
                }
                let is_expired = oldest.deadline_ns <= now && !self.has(Bug::IgnoreExpiry);
                let item = from(direction).filter(|_| !is_expired).unwrap_or(oldest);
                (self.direction, self.nr_in_batch) = (direction, 0);
                item
            }
        };
        if !is_old(&chosen) {
            return None;
        }
        self.nr_in_batch += 1;
        Some(chosen.rq.tag)
    }

    fn take(&mut self, tag: Tag) -> Tag {
        let Item { rq, .. } = self.items.remove(self.place(tag));
        self.latest[class_of(&rq)][Direction::of(rq.op) as usize] = rq.start;
        if self.newest_discard == Some(tag) {
            self.newest_discard = None;
        }
        self.out.push(rq);
        tag
    }
}

impl Model for Naive {
    type Scheduler = MqDeadline;

    fn insert(&mut self, rq: Queued, at: Position, now: u64) {
        let expire_ns = match rq.op {
            Op::Read => self.params.read_expire_ns,
            _ => self.params.write_expire_ns,
        };
        self.nr_sorted += 1;
        let is_head = at == Position::Head && !self.has(Bug::IgnoreHead);
        let sorted_at = self.nr_sorted;
        self.items.push(Item { rq, deadline_ns: now + expire_ns, is_head, sorted_at });
        if rq.op == Op::Discard && !is_head {
            self.newest_discard = Some(rq.tag);
        }
    }

    fn neighbours(&self, rq: &Queued) -> Neighbours {
        let mut others: Vec<&Item> = self.items.iter().filter(|item| !item.is_head).collect();
        others.sort_by_key(|item| (item.rq.start, item.sorted_at));
        let is_list_of = |item: &&&Item| {
            class_of(&item.rq) == class_of(rq) && Direction::of(item.rq.op) == Direction::of(rq.op)
        };
        let below = others.iter().filter(is_list_of).map(|item| item.rq.start);
        let nearest = below.filter(|start| *start < rq.start).max();
        let tag_of = |found: Option<&&Item>| found.map(|item| item.rq.tag);
        Neighbours {
            before: tag_of(others.iter().rev().find(|item| {
                are_alike(rq, &item.rq)
                    && Some(item.rq.start) == nearest
                    && item.rq.start + item.rq.len == rq.start
            })),
            after: tag_of(others.iter().find(|item| {
                let is_after = rq.start + rq.len == item.rq.start;
                let is_queued = self.items.iter().any(|item| item.rq.tag == rq.tag);
                (self.params.front_merges || is_queued) && is_after && are_alike(rq, &item.rq)
            })),
            discard: tag_of(
                others.iter().find(|item| {
                    Some(item.rq.tag) == self.newest_discard && are_alike(rq, &item.rq)
                }),
            ),
        }
    }

    fn grown(&mut self, tag: Tag, start: u64, len: u64) {
        let place = self.place(tag);
        let item = &mut self.items[place];
        if item.rq.start != start {
            self.nr_sorted += 1;
            item.sorted_at = self.nr_sorted;
        }
        (item.rq.start, item.rq.len) = (start, len);
    }

    fn absorbed(&mut self, into: Tag, tag: Tag) {
        let (kept, gone) = (self.place(into), self.place(tag));
        if self.items[gone].deadline_ns < self.items[kept].deadline_ns
            && !self.has(Bug::KeepDeadline)
        {
            self.items[kept].deadline_ns = self.items[gone].deadline_ns;
            let since_ns = self.items[gone].rq.since_ns;
            self.items[kept].rq.since_ns = self.items[kept].rq.since_ns.min(since_ns);
            self.items.swap(kept, gone);
            self.items.remove(kept);
        } else {
            self.items.remove(gone);
        }
        if self.newest_discard == Some(tag) {
            self.newest_discard = None;
        }
    }

    fn next(&mut self, now: u64) -> Option<Tag> {
        if self.items.is_empty() {
            return None;
        }
        let is_inside = |class| {
            self.items.iter().map(|item| &item.rq).chain(&self.out).any(|rq| class_of(rq) == class)
        };
        let inside = [0, 1, 2].map(is_inside);
        let before_ns = now.checked_sub(self.params.prio_aging_expire_ns);
        if let Some(before_ns) = before_ns
            && inside.iter().filter(|is_inside| **is_inside).count() > 1
            && !self.has(Bug::IgnoreAge)
            && let Some(tag) = [1, 2].iter().find_map(|class| self.choose(*class, now, before_ns))
        {
            return Some(self.take(tag));
        }
        for (class, is_inside) in inside.into_iter().enumerate() {
            if let Some(tag) = self.choose(class, now, u64::MAX) {
                return Some(self.take(tag));
            }
            if is_inside && !self.has(Bug::PassClass) {
                return None;
            }
        }
        None
    }

    fn completed(&mut self, tag: Tag, _now: u64, _device_ns: u64) {
        self.out.retain(|rq| rq.tag != tag);
    }

    fn given_up(&mut self, tag: Tag) {
        if !self.has(Bug::CountGivenUp) {
            self.completed(tag, 0, 0);
        }
    }

    fn nr_queued(&self) -> usize {
        self.items.len()
    }
}
