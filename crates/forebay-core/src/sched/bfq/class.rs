//! The queues of one class, and the fair order of their owners.

use super::queue::Queue;
use crate::owner::{FairId, FairQueue, Owner, WEIGHT_DEFAULT};
use crate::sched::tag_list::TagList;
use alloc::vec::Vec;

/// The queues of a class.
///
/// The fair order has one entry for each queue that has requests or is in service, apart from those
/// that were inserted at the head.
#[derive(Clone, Debug)]
pub(super) struct OfClass {
    /// Requests that were inserted at the head (BF9).
    pub(super) head: TagList,
    pub(super) fair: FairQueue,
    /// By the number of the owner. The first is for requests without one.
    pub(super) queues: Vec<Queue>,
    /// The number of each owner, by its index in the fair order.
    numbers: Vec<u32>,
    /// How many requests are queued, also at the head.
    pub(super) nr_queued: u32,
    /// When a request went last, or was queued while none was.
    pub(super) since_ns: u64,
}

impl OfClass {
    pub(super) fn new() -> OfClass {
        let mut of_class = OfClass {
            head: TagList::default(),
            fair: FairQueue::new(),
            queues: Vec::new(),
            numbers: Vec::new(),
            nr_queued: 0,
            since_ns: 0,
        };
        of_class.add(0, None, WEIGHT_DEFAULT);
        of_class
    }

    /// Adds the queue of an owner, below that of another.
    fn add(&mut self, number: usize, parent: Option<FairId>, weight: u32) -> FairId {
        let fair = self.fair.add(parent, weight);
        if self.numbers.len() <= fair.index() {
            self.numbers.resize(fair.index() + 1, 0);
        }
        self.numbers[fair.index()] = number as u32;
        if self.queues.len() <= number {
            self.queues.resize_with(number + 1, Queue::default);
        }
        self.queues[number].fair = Some(fair);
        fair
    }

    /// Adds an owner, or takes over its weight. Its parent is here.
    pub(super) fn set_owner(&mut self, owner: &Owner) {
        let number = owner.id().number() as usize;
        let fair = match self.queues.get(number).and_then(|queue| queue.fair) {
            Some(fair) => fair,
            None => {
                let parent = owner.parent().map(|up| up.id().number() as usize);
                let parent = parent.and_then(|number| self.queues[number].fair);
                self.add(number, parent, owner.weight())
            }
        };
        self.fair.set_weight(fair, owner.weight());
    }

    /// Removes an owner without children, whose queue is not in service. Returns its queue.
    pub(super) fn remove_owner(&mut self, number: usize) -> Queue {
        let mut queue = core::mem::take(&mut self.queues[number]);
        if let Some(fair) = queue.fair.take() {
            if queue.nr_queued > 0 {
                self.fair.cancel(fair);
            }
            self.fair.remove(fair);
        }
        queue
    }

    /// Returns the number of the queue of an owner, or 0 if there is no such owner.
    pub(super) fn number_of(&self, owner: u32) -> u32 {
        match self.queues.get(owner as usize) {
            Some(queue) if queue.fair.is_some() => owner,
            _ => 0,
        }
    }

    /// Returns the queue that is next in the fair order.
    pub(super) fn next(&self) -> Option<u32> {
        self.fair.next().map(|fair| self.numbers[fair.index()])
    }

    /// Returns the place of a queue in the fair order.
    pub(super) fn fair_of(&self, number: u32) -> FairId {
        self.queues[number as usize].fair.expect("the queue has an owner, or is the first")
    }

    /// Puts a queue in the fair order.
    pub(super) fn enqueue(&mut self, number: u32) {
        self.fair.enqueue(self.fair_of(number));
    }

    /// Charges a queue, which stays in the fair order if `keeps`.
    pub(super) fn charge(&mut self, number: u32, bytes: u64, keeps: bool) {
        let fair = self.fair_of(number);
        while self.fair.nr_queued_of(fair) <= u64::from(keeps) {
            self.fair.enqueue(fair);
        }
        self.fair.charge(fair, bytes);
    }
}
