//! Queues of requests by owner: where requests wait for the limits of their owner, and for their
//! turn among the owners.
//!
//! As soon as a disk has an owner, all of its requests pass through these queues. Those without an
//! owner share one queue, of the usual weight and without limits.
//!
//! - OW1 a request leaves its queue only if no limit of its owner, or above, refuses it. Then it is
//!   charged (OL1). The requests of an owner leave in the order of their arrival.
//! - OW2 among the owners that no limit holds back, the fair order chooses (FQ1). The next request
//!   leaves only when no other is waiting for a tag outside of these queues. So weights divide the
//!   tags, and thereby the device.
//! - OW3 while the disk is frozen no request leaves, and a freeze does not wait for those here. So
//!   a limit delays no freeze.
//! - OW4 if the device is gone, no limit holds a request back (H3).
//! - OW5 a flush bypasses these queues, because it has no data and other owners may wait for it. So
//!   does a request that may have a reserved tag, because other I/O may depend on it.
//! - OW6 while a limit holds requests back, there is a deadline: the earliest time at which one of
//!   them may leave.
//! - OW7 a request leaves its queue only if fewer requests of its owner have left and not ended
//!   than the latency goals of other owners allow (LG3), and the same holds for each owner above.
//!   It is held back as by a limit, but until one of these requests ends (`outstanding.rs`). The
//!   depth is at least 1, so the completion that lets it go is under way in the same context.
//!
//! Each hardware context has its own queues. Limits hold for all contexts together, because these
//! share the buckets. Weights, and the depths of OW7, hold within a context.
//!
//! A turn costs one charge for each owner that a limit begins to hold back, and nothing for those
//! that wait already.
//!
//! Counterparts in Linux: `struct throtl_service_queue` (`block/blk-throttle.c`), where bios wait
//! too before they reach a scheduler; and the service trees of `block/bfq-wf2q.c`.

use super::outstanding::{Outstanding, UNOWNED};
use crate::cost::{CostModel, WeightBy};
use crate::hctx::turned::NO_DEADLINE;
use crate::owner::{FairId, FairQueue, Owner, OwnerCharge, Owners, RetryAt, WEIGHT_DEFAULT};
use crate::plant::plants;
use crate::request::Request;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The requests that wait for their owner, and the owners of the disk.
#[derive(Debug)]
pub(super) struct OwnedQueues {
    owners: Owners,
    by: WeightBy,
    model: CostModel,
    fair: FairQueue,
    /// The queue of each owner, by the number of the owner. The first is for requests without one.
    queues: Vec<Queue>,
    /// The number of each owner, by its index in the fair order.
    numbers: Vec<u32>,
    outstanding: Outstanding,
    /// The numbers of the owners that a limit holds back.
    held_back: Vec<u32>,
    /// The numbers of the owners that a depth holds back (OW7).
    held_by_depth: Vec<u32>,
    /// The earliest time at which one of them may leave.
    next_ns: u64,
    nr_waiting: usize,
    /// The number of turns. Wraps.
    turn: u32,
}

#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<Waiting>,
    /// The place in the fair order. `None` if there is no such owner.
    fair: Option<FairId>,
    /// `None` for requests without an owner.
    owner: Option<Arc<Owner>>,
    /// The node of the owner in [`Outstanding`].
    node: u32,
    held: Held,
    /// How many of the oldest requests were held back.
    nr_held_back: usize,
}

/// The reason why the requests of an owner are held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Held {
    /// Nothing: the owner is in the fair order, if it has requests.
    #[default]
    No,
    /// A limit, until this time.
    Limit(u64),
    /// The depth that the latency goals of others leave (OW7).
    Depth,
}

#[derive(Debug)]
struct Waiting {
    rq: Request,
    /// The turn in which it came.
    turn: u32,
}

/// A request that leaves the queue of its owner.
#[derive(Debug)]
pub(super) struct Released {
    pub(super) rq: Request,
    pub(super) cause: Cause,
}

/// Why a request has waited in the queue of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It has not waited: it leaves in the turn in which it came.
    None,
    /// A limit has held it back, or a depth (OW7).
    Limit,
    /// It has waited for its turn among the owners.
    Turn,
}

impl Queue {
    /// Charges a request to the limits of its owner (OW1).
    #[inline]
    fn charge(&self, rq: &Request, now: u64) -> Result<(), RetryAt> {
        let Some(owner) = &self.owner else { return Ok(()) };
        let nr_charged = if plants!(ChargeOne) { 1 } else { rq.nr_bios };
        match plants!(PassLimit) {
            true => Ok(()),
            false => owner.charge(rq.op, nr_charged, rq.len, now).map(|_| ()),
        }
    }

    /// Returns the owner, if an observer watches it.
    #[inline(always)]
    fn watched(&self, now: u64) -> Option<&Owner> {
        self.owner.as_deref().filter(|owner| owner.watched().is_watched(now))
    }

    /// Counts a request that leaves. `waited_ns` is how long a limit held it back.
    fn note_start(&self, rq: &Request, waited_ns: Option<u64>) {
        if let Some(owner) = &self.owner {
            owner.counters().note_start(rq.nr_bios, rq.len, waited_ns);
        }
    }
}

impl OwnedQueues {
    /// Creates queues for these owners, in a context with this many tags.
    pub(super) fn new(owners: Owners, by: WeightBy, model: CostModel, nr_tags: u32) -> OwnedQueues {
        let mut queues = OwnedQueues {
            owners: Owners::default(),
            by,
            model,
            fair: FairQueue::new(),
            queues: Vec::new(),
            numbers: Vec::new(),
            outstanding: Outstanding::new(nr_tags),
            held_back: Vec::new(),
            held_by_depth: Vec::new(),
            next_ns: NO_DEADLINE,
            nr_waiting: 0,
            turn: 0,
        };
        let fair = queues.fair.add(None, WEIGHT_DEFAULT);
        queues.queues.push(Queue { fair: Some(fair), node: UNOWNED, ..Queue::default() });
        queues.note_number(fair, 0);
        queues.set_owners(owners, by, model);
        queues
    }

    /// Replaces the owners, and takes over their weights. Requests of an owner that was removed go
    /// on without one. Limits that hold requests back are tried again.
    pub(super) fn set_owners(&mut self, owners: Owners, by: WeightBy, model: CostModel) {
        if (self.by, self.model) != (by, model) {
            self.fair.restart();
        }
        (self.by, self.model) = (by, model);
        let nr = owners.iter().map(|owner| owner.id().number() as usize + 1).max().unwrap_or(1);
        if self.queues.len() < nr {
            self.queues.resize_with(nr, Queue::default);
        }
        self.remove_gone(&owners);
        // A parent may have a higher number than its children.
        let mut new: Vec<_> = owners.iter().collect();
        new.sort_by_key(|owner| owner.level());
        for owner in new {
            let number = owner.id().number() as usize;
            let fair = match self.queues[number].fair {
                Some(fair) => fair,
                None => {
                    let parent = owner.parent().map(|up| &self.queues[up.id().number() as usize]);
                    let node = self.outstanding.add(parent.map(|queue| queue.node), owner);
                    let fair = self.fair.add(parent.and_then(|queue| queue.fair), owner.weight());
                    self.note_number(fair, number as u32);
                    let (fair_id, owner) = (Some(fair), Some(Arc::clone(owner)));
                    self.queues[number] = Queue { fair: fair_id, owner, node, ..Queue::default() };
                    fair
                }
            };
            self.fair.set_weight(fair, owner.weight());
        }
        self.outstanding.set_owners(&owners);
        self.owners = owners;
        for number in self.held_back.iter() {
            self.queues[*number as usize].held = Held::Limit(0);
        }
        self.next_ns = if self.held_back.is_empty() { NO_DEADLINE } else { 0 };
    }

    /// Removes the owners that are not among `owners`, children first.
    fn remove_gone(&mut self, owners: &Owners) {
        let is_gone = |owner: &Arc<Owner>| {
            owners.get(owner.id()).is_none_or(|other| !Arc::ptr_eq(owner, other))
        };
        let gone = self.queues.iter().filter_map(|queue| queue.owner.as_ref());
        let mut gone: Vec<_> = gone.filter(|owner| is_gone(owner)).cloned().collect();
        gone.sort_by_key(|owner| core::cmp::Reverse(owner.level()));
        for owner in gone {
            let number = owner.id().number();
            self.held_back.retain(|held| *held != number);
            self.held_by_depth.retain(|held| *held != number);
            let queue = core::mem::take(&mut self.queues[number as usize]);
            let Some(fair) = queue.fair else { continue };
            if !queue.requests.is_empty() && queue.held == Held::No {
                self.fair.cancel(fair);
            }
            self.fair.remove(fair);
            self.outstanding.remove(queue.node);
            self.nr_waiting -= queue.requests.len();
            queue.requests.into_iter().for_each(|waiting| self.push(0, waiting));
        }
    }

    /// Returns the owners.
    pub(super) fn owners(&self) -> &Owners {
        &self.owners
    }

    fn note_number(&mut self, fair: FairId, number: u32) {
        if self.numbers.len() <= fair.index() {
            self.numbers.resize(fair.index() + 1, 0);
        }
        self.numbers[fair.index()] = number;
    }

    /// Returns whether no request waits.
    pub(super) fn is_empty(&self) -> bool {
        self.nr_waiting == 0
    }

    /// Returns the requests that wait.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.queues.iter().flat_map(|queue| queue.requests.iter().map(|waiting| &waiting.rq))
    }

    /// Returns the time at which a limit may let a request go; [`NO_DEADLINE`] if none holds one
    /// back.
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Begins a turn. Requests that came before it have waited.
    pub(super) fn begin_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    /// Keeps a request until it may go.
    pub(super) fn keep(&mut self, rq: Request) {
        let number = self.number_of(&rq);
        let turn = self.turn;
        self.push(number, Waiting { rq, turn });
    }

    /// Returns the number of the queue of a request.
    fn number_of(&self, rq: &Request) -> usize {
        let number = rq.origin.owner() as usize;
        match self.queues.get(number) {
            Some(queue) if queue.fair.is_some() => number,
            _ => 0,
        }
    }

    fn push(&mut self, number: usize, waiting: Waiting) {
        let queue = &mut self.queues[number];
        queue.requests.push_back(waiting);
        self.nr_waiting += 1;
        match (queue.held, queue.fair) {
            (Held::Limit(_) | Held::Depth, _) => queue.nr_held_back = queue.requests.len(),
            (Held::No, Some(fair)) if queue.requests.len() == 1 => self.fair.enqueue(fair),
            _ => {}
        }
    }

    /// Returns the next request that may go, in the fair order. If the device is gone, no limit
    /// and no depth count (OW4).
    pub(super) fn release(&mut self, now: u64, is_gone: bool) -> Option<Released> {
        if now >= self.next_ns || is_gone && !self.held_back.is_empty() {
            self.retry_held_back(now, is_gone);
        }
        let has_goals = self.outstanding.has_goals() && !is_gone;
        loop {
            let is_freed = self.outstanding.take_freed() && !plants!(ForgetFreed);
            if !self.held_by_depth.is_empty() && (is_freed || is_gone) {
                self.retry_held_by_depth(now, is_gone);
            }
            let fair = match self.fair.next() {
                Some(fair) => fair,
                // To find the owners that wait was enough to end a window.
                None if self.is_depth_freed() => continue,
                None => return None,
            };
            let number = self.numbers[fair.index()];
            let queue = &mut self.queues[number as usize];
            if has_goals && !self.outstanding.may_leave(queue.node, now) && !plants!(PassDepth) {
                queue.held = Held::Depth;
                queue.nr_held_back = queue.requests.len();
                self.held_by_depth.push(number);
                self.fair.hold_back(fair);
                continue;
            }
            let rq = &queue.requests.front().expect("an owner in the fair order has requests").rq;
            if !is_gone && let Err(at) = queue.charge(rq, now) {
                let until_ns = at.0.max(now + 1);
                queue.held = Held::Limit(until_ns);
                queue.nr_held_back = queue.requests.len();
                self.held_back.push(number);
                self.next_ns = self.next_ns.min(until_ns);
                self.fair.hold_back(fair);
                continue;
            }
            let mut waiting = queue.requests.pop_front().expect("it has just been looked at");
            let watched = queue.watched(now);
            if has_goals || watched.is_some() {
                self.outstanding.begin(&mut waiting.rq, queue.node, watched);
            }
            let cause = match queue.nr_held_back.checked_sub(1) {
                Some(left) => {
                    queue.nr_held_back = left;
                    Cause::Limit
                }
                None if waiting.turn != self.turn => Cause::Turn,
                None => Cause::None,
            };
            let waited_ns = match cause {
                Cause::Limit => Some(waiting.rq.waited_ns(now)),
                Cause::None | Cause::Turn => None,
            };
            queue.note_start(&waiting.rq, waited_ns);
            if !queue.requests.is_empty() {
                self.fair.enqueue(fair);
            }
            self.fair.charge(fair, self.cost(&waiting.rq));
            self.nr_waiting -= 1;
            return Some(Released { rq: waiting.rq, cause });
        }
    }

    /// Returns whether requests may [`pass`](Self::pass): none waits, and no latency goal counts
    /// those that have left (OW7).
    pub(super) fn may_pass(&self) -> bool {
        self.is_empty() && !self.outstanding.has_goals()
    }

    /// Charges a request as if it had been kept and released, while requests may pass. Returns
    /// false if a limit refuses it. The caller then keeps it.
    #[inline(always)]
    pub(super) fn pass(&mut self, rq: &mut Request, now: u64) -> bool {
        debug_assert!(self.may_pass());
        let queue = match self.queues.get(rq.origin.owner() as usize) {
            Some(queue) if queue.fair.is_some() => queue,
            _ => &self.queues[0],
        };
        let Some(fair) = queue.fair else { return false };
        if queue.charge(rq, now).is_err() {
            return false;
        }
        if let Some(owner) = queue.owner.as_deref() {
            if owner.watched().is_watched(now) {
                self.outstanding.begin(rq, queue.node, Some(owner));
            }
            owner.counters().note_start(rq.nr_bios, rq.len, None);
        }
        self.fair.pass(fair, self.cost(rq));
        true
    }

    /// Returns the cost of a request in the fair order. One without a cost would go before all
    /// others.
    #[inline]
    fn cost(&self, rq: &Request) -> u64 {
        self.model.cost(self.by, rq.op, rq.nr_bios, rq.len).max(1)
    }

    /// Returns the owners to the fair order whose time has come.
    #[inline(never)]
    fn retry_held_back(&mut self, now: u64, is_gone: bool) {
        let OwnedQueues { held_back, queues, fair, next_ns, .. } = self;
        *next_ns = NO_DEADLINE;
        held_back.retain(|number| {
            let queue = &mut queues[*number as usize];
            let Held::Limit(until_ns) = queue.held else { unreachable!("a limit holds it back") };
            if until_ns > now && !is_gone {
                *next_ns = until_ns.min(*next_ns);
                return true;
            }
            queue.held = Held::No;
            fair.enqueue(queue.fair.expect("its owner is among the owners"));
            false
        });
    }

    /// Returns the owners to the fair order whose requests no depth holds back any more.
    #[inline(never)]
    fn retry_held_by_depth(&mut self, now: u64, is_gone: bool) {
        let OwnedQueues { held_by_depth, queues, fair, outstanding, .. } = self;
        let has_goals = outstanding.has_goals() && !is_gone;
        held_by_depth.retain(|number| {
            let queue = &mut queues[*number as usize];
            if has_goals && !outstanding.may_leave(queue.node, now) {
                return true;
            }
            queue.held = Held::No;
            fair.enqueue(queue.fair.expect("its owner is among the owners"));
            false
        });
    }

    /// Counts for its owner that a watched request has ended, which was counted at this node.
    pub(super) fn end_watched(&self, node: u32, total_ns: Option<u64>, driver_ns: Option<u64>) {
        if let Some(owner) = self.outstanding.owner(node) {
            owner.watched().note_end(total_ns, driver_ns);
        }
    }

    /// Records that a request has ended which was counted at this node ([`Outstanding`]).
    pub(super) fn end_outstanding(&mut self, node: u32, latency_ns: Option<u64>, now: u64) {
        if !plants!(KeepOutstanding) {
            self.outstanding.end(node, latency_ns, now);
        }
    }

    /// Returns whether requests have ended since a depth held others back, so that these may leave.
    pub(super) fn is_depth_freed(&self) -> bool {
        !self.held_by_depth.is_empty() && self.outstanding.is_freed()
    }

    /// Sets the number of tags that may be in use.
    pub(super) fn set_nr_tags(&mut self, nr_tags: u32) {
        self.outstanding.set_full(nr_tags);
    }

    /// Charges a NOWAIT request that would be issued now. Returns `None` if it had to wait: a limit
    /// or a depth refuses it, or another request of any owner waits for its turn.
    pub(super) fn charge_nowait(&mut self, rq: &mut Request, now: u64) -> Option<OwnerCharge> {
        let queue = &self.queues[self.number_of(rq)];
        let has_goals = self.outstanding.has_goals();
        if self.fair.next().is_some()
            || !queue.requests.is_empty()
            || has_goals && !self.outstanding.may_leave(queue.node, now)
        {
            return None;
        }
        let charge = match &queue.owner {
            None => OwnerCharge::NONE,
            Some(owner) => owner.charge(rq.op, rq.nr_bios, rq.len, now).ok()?,
        };
        let watched = queue.watched(now);
        if has_goals || watched.is_some() {
            self.outstanding.begin(rq, queue.node, watched);
        }
        Some(charge)
    }

    /// Takes back the charge of a NOWAIT request that was not issued. `number` is that of the owner
    /// in its origin.
    pub(super) fn refund_nowait(&self, number: u32, charge: OwnerCharge) {
        if let Some(owner) = self.owners.numbered(number) {
            owner.refund(charge);
        }
    }

    /// Counts a request of an owner that has not waited. `number` is that of the owner in its
    /// origin.
    pub(super) fn note_start(&self, number: u32, nr_ios: u32, bytes: u64) {
        if let Some(owner) = self.owners.numbered(number) {
            owner.counters().note_start(nr_ios, bytes, None);
        }
    }

    /// Counts a request of an owner that waited for its tag. `number` is that of the owner in its
    /// origin.
    pub(super) fn note_tag_wait(&self, number: u32, nr_ios: u32, waited_ns: u64) {
        if let Some(owner) = self.owners.numbered(number) {
            owner.counters().note_tag_wait(nr_ios, waited_ns);
        }
    }

    /// Counts a request of an owner that waited in the scheduler.
    pub(super) fn note_scheduler_wait(&self, number: u32, nr_ios: u32, waited_ns: u64) {
        if let Some(owner) = self.owners.numbered(number) {
            owner.counters().note_scheduler_wait(nr_ios, waited_ns);
        }
    }
}
