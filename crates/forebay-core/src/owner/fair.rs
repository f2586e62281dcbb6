//! Start-time fair queueing: which owner's I/O goes next, by weights.
//!
//! The algorithm is that of P. Goyal, H. M. Vin and H. Cheng, "Start-time Fair Queueing" (SIGCOMM
//! 1996). It fits a device because it needs neither the speed of the device nor the cost of an I/O
//! before that I/O goes. A [`FairQueue`] orders owners, and holds no requests. Its holder queues
//! requests by owner.
//!
//! The rules:
//!
//! - FQ1 The next I/O is one of the owner with the smallest start tag, among those with queued I/O.
//!   Among equal tags, the one that was assigned first wins.
//! - FQ2 An I/O of cost `c` moves the tag of its owner, of weight `w`, by `c / w`.
//! - FQ3 The start tag of an owner whose first I/O is queued is the larger of the virtual time and
//!   its last finish tag. The virtual time is the start tag of the last I/O that went, or the
//!   largest finish tag if no I/O is queued. So an idle owner saves no credit, and a new one
//!   begins at the place of the others.
//! - FQ4 An owner with children is itself ordered among its siblings, and divides its share by the
//!   same rules. Its own I/O counts as that of a child with [`WEIGHT_DEFAULT`].
//!
//! For two owners that both have queued I/O during any interval, the paper proves that
//! `|W_f / w_f - W_g / w_g| <= l_f / w_f + l_g / w_g`, where `W` is the cost of the I/O that went
//! and `l` the largest cost. It holds among siblings.
//!
//! # Numbers
//! Tags are fixed-point numbers of 128 bits with [`FRACTION`] bits after the point. They never
//! overflow: the largest cost moves a tag by 2^63. The rest of each division is added to the next
//! one. So the tag of an owner that always has I/O is exact to its last bit after any number of
//! I/Os.
//!
//! An I/O takes one binary heap operation and one division of 64 bits for each level of the tree.
//! Only [`add`](FairQueue::add) allocates.

mod heap;

use super::tree::{WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN};
use alloc::vec::Vec;
use heap::Ready;

/// The number of bits of a tag after the point.
const FRACTION: u32 = 16;

/// An index that no node has.
const NONE: u32 = u32::MAX;

/// The index of the node above all owners.
const TOP: u32 = 0;

/// The handle of an owner in a [`FairQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FairId(u32);

impl FairId {
    /// Returns the handle as an index. Handles of removed owners are used again.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The owners that share a device by weights, and the order of their I/O. A value of one holder.
///
/// ```
/// use forebay_core::FairQueue;
///
/// let mut fair = FairQueue::new();
/// let (light, heavy) = (fair.add(None, 100), fair.add(None, 300));
/// for _ in 0..8 {
///     fair.enqueue(light);
///     fair.enqueue(heavy);
/// }
/// let mut nr_heavy = 0;
/// for _ in 0..8 {
///     let owner = fair.next().expect("I/O is queued");
///     fair.charge(owner, 4096);
///     nr_heavy += usize::from(owner == heavy);
/// }
/// assert_eq!(nr_heavy, 6);
/// ```
#[derive(Clone, Debug)]
pub struct FairQueue {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// The number of start tags that were assigned.
    nr_starts: u64,
    nr_queued: u64,
    streak: Streak,
}

/// I/O of one owner that went while none was queued, and is not charged yet. Each began where the
/// one before it ended, so one charge of the sum is the same.
#[derive(Clone, Copy, Debug)]
struct Streak {
    owner: FairId,
    cost: u64,
}

/// The owner of no streak.
const NO_OWNER: FairId = FairId(TOP);

impl Default for Streak {
    fn default() -> Streak {
        Streak { owner: NO_OWNER, cost: 0 }
    }
}

/// An owner, or the own I/O of an owner with children, or the node above all owners.
#[derive(Clone, Debug)]
struct Node {
    parent: u32,
    /// The owner whose I/O this node stands for.
    owner: FairId,
    /// 0 in a free node.
    weight: u32,
    /// The number of queued I/Os, of a node without children.
    nr_queued: u64,
    start: u128,
    finish: u128,
    /// The rest of the last division by the weight.
    rest: u64,
    /// The index in the heap of the parent. `NONE` if no I/O is queued here or below.
    place: u32,
    /// The child that stands for the own I/O. `NONE` if there are no children.
    own: u32,
    nr_children: u32,
    /// The children with queued I/O, as a heap by start tag.
    ready: Vec<Ready>,
    /// The virtual time among the children.
    now: u128,
    finish_max: u128,
}

impl Node {
    fn new(parent: u32, owner: FairId, weight: u32) -> Node {
        Node {
            parent,
            owner,
            weight,
            nr_queued: 0,
            start: 0,
            finish: 0,
            rest: 0,
            place: NONE,
            own: NONE,
            nr_children: 0,
            ready: Vec::new(),
            now: 0,
            finish_max: 0,
        }
    }

    fn is_ready(&self) -> bool {
        self.nr_queued > 0 || !self.ready.is_empty()
    }
}

impl Default for FairQueue {
    fn default() -> FairQueue {
        FairQueue::new()
    }
}

impl FairQueue {
    /// The highest cost of an I/O. A higher cost counts as this one: 140 s in picoseconds.
    pub const COST_MAX: u64 = (1 << 47) - 1;

    /// Creates a queue without owners.
    pub fn new() -> FairQueue {
        let top = Node::new(NONE, FairId(TOP), WEIGHT_DEFAULT);
        FairQueue {
            nodes: alloc::vec![top],
            free: Vec::new(),
            nr_starts: 0,
            nr_queued: 0,
            streak: Streak::default(),
        }
    }

    /// Adds an owner, below another or beside all others. A weight outside of [`WEIGHT_MIN`] to
    /// [`WEIGHT_MAX`] counts as the nearest one.
    ///
    /// # Panics
    /// Panics if the parent was removed.
    pub fn add(&mut self, parent: Option<FairId>, weight: u32) -> FairId {
        self.end_streak();
        let parent = parent.map_or(TOP, |id| self.checked(id));
        if parent != TOP && self.nodes[parent as usize].own == NONE {
            self.add_own(parent);
        }
        FairId(self.add_node(parent, None, weight))
    }

    /// Removes an owner.
    ///
    /// # Panics
    /// Panics if I/O of the owner is queued, if it has children, or if it was removed before.
    pub fn remove(&mut self, owner: FairId) {
        self.end_streak();
        let at = self.checked(owner);
        let Node { own, nr_children, .. } = self.nodes[at as usize];
        let nr_own = u32::from(own != NONE);
        assert!(nr_children == nr_own, "owner {} has children", owner.0);
        assert!(!self.nodes[at as usize].is_ready(), "I/O of owner {} is queued", owner.0);
        for at in [own, at].into_iter().filter(|at| *at != NONE) {
            let parent = self.nodes[at as usize].parent;
            self.nodes[parent as usize].nr_children -= 1;
            self.nodes[at as usize].weight = 0;
            self.free.push(at);
        }
    }

    /// Changes the weight of an owner. It applies to I/O that goes from now on. A weight outside of
    /// [`WEIGHT_MIN`] to [`WEIGHT_MAX`] counts as the nearest one.
    ///
    /// # Panics
    /// Panics if the owner was removed.
    pub fn set_weight(&mut self, owner: FairId, weight: u32) {
        self.end_streak();
        let at = self.checked(owner);
        let node = &mut self.nodes[at as usize];
        (node.weight, node.rest) = (weight.clamp(WEIGHT_MIN, WEIGHT_MAX), 0);
    }

    /// Forgets the I/O that went, because costs have another unit from now on. All owners begin at
    /// the same place. Those with queued I/O keep their order.
    pub fn restart(&mut self) {
        self.end_streak();
        for node in &mut self.nodes {
            (node.start, node.finish, node.rest) = (0, 0, 0);
            (node.now, node.finish_max) = (0, 0);
        }
        self.equalize_starts();
    }

    /// Records that an I/O of an owner is queued.
    ///
    /// # Panics
    /// Panics if the owner was removed.
    pub fn enqueue(&mut self, owner: FairId) {
        self.end_streak();
        let leaf = self.leaf(owner);
        self.nr_queued += 1;
        self.nodes[leaf as usize].nr_queued += 1;
        self.make_ready(leaf);
    }

    /// Returns the owner whose I/O goes next (FQ1). `None` if no I/O is queued.
    #[inline]
    pub fn next(&self) -> Option<FairId> {
        let mut at = self.nodes[TOP as usize].ready.first()?.at;
        while let Some(child) = self.nodes[at as usize].ready.first() {
            at = child.at;
        }
        Some(self.nodes[at as usize].owner)
    }

    /// Records that the I/O of an owner goes, usually of the one that [`next`](Self::next) returns.
    /// It is no longer queued.
    ///
    /// # Panics
    /// Panics if no I/O of the owner is queued, or the owner was removed.
    pub fn charge(&mut self, owner: FairId, cost: u64) {
        let mut at = self.dequeue(owner);
        while at != TOP {
            let node = &self.nodes[at as usize];
            let (parent, is_ready) = (node.parent, node.is_ready());
            let now = self.nodes[parent as usize].ready[0].start;
            let finish = self.nodes[at as usize].advance(cost);
            let above = &mut self.nodes[parent as usize];
            (above.now, above.finish_max) = (now, above.finish_max.max(finish));
            if is_ready {
                let entry = self.assign_start(at, finish);
                self.replace(entry);
            } else {
                self.leave(at);
            }
            at = parent;
        }
    }

    /// Records that an I/O of an owner goes that was not queued: the same as
    /// [`enqueue`](Self::enqueue) and [`charge`](Self::charge). No other I/O is queued.
    ///
    /// # Panics
    /// Panics if I/O is queued, or the owner was removed.
    #[inline]
    pub fn pass(&mut self, owner: FairId, cost: u64) {
        // Within a streak no I/O is queued. A higher cost is no part of a streak.
        if self.streak.owner == owner && cost <= FairQueue::COST_MAX - self.streak.cost {
            self.streak.cost += cost;
        } else {
            self.begin_streak(owner, cost);
        }
    }

    /// Charges an I/O that was not queued, and begins a streak of its owner if the next one may
    /// join it.
    #[inline(never)]
    fn begin_streak(&mut self, owner: FairId, cost: u64) {
        assert!(self.nr_queued == 0, "I/O that is queued goes first");
        self.end_streak();
        let is_newest = self.charge_alone(owner, cost);
        self.streak.owner = if is_newest { owner } else { NO_OWNER };
    }

    /// Charges the I/O of a streak. Called before anything else uses or changes a tag.
    #[inline]
    fn end_streak(&mut self) {
        if self.streak.owner != NO_OWNER {
            let Streak { owner, cost } = core::mem::take(&mut self.streak);
            self.charge_alone(owner, cost);
        }
    }

    /// Charges I/O while none is queued. Returns whether the start tag of the next I/O would be
    /// the finish tag of this one, at all levels.
    fn charge_alone(&mut self, owner: FairId, cost: u64) -> bool {
        let mut at = self.leaf(owner);
        let mut is_newest = true;
        while at != TOP {
            let parent = self.nodes[at as usize].parent;
            let now = self.nodes[parent as usize].now;
            let node = &mut self.nodes[at as usize];
            node.begin(now);
            let finish = node.advance(cost);
            // The node leaves again, and its parent has no other.
            let above = &mut self.nodes[parent as usize];
            above.finish_max = above.finish_max.max(finish);
            above.now = above.finish_max;
            is_newest &= above.now == finish;
            at = parent;
        }
        is_newest
    }

    /// Takes the I/O of an owner out of the order for a time, because a limit holds it back. Unlike
    /// an owner without I/O, it returns ([`enqueue`](Self::enqueue)) with the tag that it has, also
    /// if all others are held back with it. So weights hold among owners below one limit.
    ///
    /// # Panics
    /// Panics if no I/O of the owner is queued, or the owner was removed.
    pub fn hold_back(&mut self, owner: FairId) {
        let mut at = self.dequeue(owner);
        while at != TOP && !self.nodes[at as usize].is_ready() {
            self.take(at);
            at = self.nodes[at as usize].parent;
        }
    }

    /// Records that an I/O of an owner is no longer queued, and does not go: it was merged into
    /// another, or has failed.
    ///
    /// # Panics
    /// Panics if no I/O of the owner is queued, or the owner was removed.
    pub fn cancel(&mut self, owner: FairId) {
        let mut at = self.dequeue(owner);
        while at != TOP && !self.nodes[at as usize].is_ready() {
            self.leave(at);
            at = self.nodes[at as usize].parent;
        }
    }

    /// Returns how many I/Os are queued.
    pub fn nr_queued(&self) -> u64 {
        self.nr_queued
    }

    /// Returns how many I/Os of an owner are queued, without those of its children.
    ///
    /// # Panics
    /// Panics if the owner was removed.
    pub fn nr_queued_of(&self, owner: FairId) -> u64 {
        self.nodes[self.leaf(owner) as usize].nr_queued
    }

    /// Returns the index of an owner.
    fn checked(&self, owner: FairId) -> u32 {
        let node = self.nodes.get(owner.0 as usize);
        assert!(
            owner.0 != TOP && node.is_some_and(|node| node.weight > 0),
            "owner {} was removed",
            owner.0
        );
        owner.0
    }

    /// Returns the index of the node that counts an owner's own I/O.
    fn leaf(&self, owner: FairId) -> u32 {
        let at = self.checked(owner);
        match self.nodes[at as usize].own {
            NONE => at,
            own => own,
        }
    }

    fn add_node(&mut self, parent: u32, owner: Option<FairId>, weight: u32) -> u32 {
        let at = self.free.pop().unwrap_or(self.nodes.len() as u32);
        let weight = weight.clamp(WEIGHT_MIN, WEIGHT_MAX);
        let node = Node::new(parent, owner.unwrap_or(FairId(at)), weight);
        match self.nodes.get_mut(at as usize) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        self.free.reserve(self.nodes.len() - self.free.len());
        let above = &mut self.nodes[parent as usize];
        above.nr_children += 1;
        let nr_more = above.nr_children as usize - above.ready.len();
        above.ready.reserve(nr_more);
        at
    }

    /// Adds the child that stands for the own I/O of an owner which gets its first child. The owner
    /// keeps its place among its siblings.
    fn add_own(&mut self, at: u32) {
        let own = self.add_node(at, Some(FairId(at)), WEIGHT_DEFAULT);
        let node = &mut self.nodes[at as usize];
        node.own = own;
        let nr_queued = core::mem::take(&mut node.nr_queued);
        if nr_queued > 0 {
            self.nodes[own as usize].nr_queued = nr_queued;
            self.join(own);
        }
    }

    /// Queues a node with I/O in its parent, and the parent in turn.
    fn make_ready(&mut self, mut at: u32) {
        while at != TOP && self.nodes[at as usize].place == NONE {
            self.join(at);
            at = self.nodes[at as usize].parent;
        }
    }

    /// Queues a node in its parent.
    fn join(&mut self, at: u32) {
        let parent = self.nodes[at as usize].parent;
        let now = self.nodes[parent as usize].now;
        let start = self.nodes[at as usize].begin(now);
        let entry = self.assign_start(at, start);
        self.push(entry);
    }

    /// Removes a node without I/O from the queue of its parent.
    fn leave(&mut self, at: u32) {
        self.take(at);
        let parent = self.nodes[at as usize].parent;
        let above = &mut self.nodes[parent as usize];
        if above.ready.is_empty() {
            above.now = above.now.max(above.finish_max);
        }
    }

    /// Assigns a start tag. Returns the entry for the heap.
    fn assign_start(&mut self, at: u32, start: u128) -> Ready {
        self.nodes[at as usize].start = start;
        let order = self.nr_starts;
        self.nr_starts += 1;
        Ready { start, order, at }
    }

    /// Counts an I/O as no longer queued. Returns the index of its node.
    fn dequeue(&mut self, owner: FairId) -> u32 {
        let leaf = self.leaf(owner);
        let node = &mut self.nodes[leaf as usize];
        assert!(node.nr_queued > 0, "no I/O of owner {} is queued", owner.0);
        node.nr_queued -= 1;
        self.nr_queued -= 1;
        leaf
    }
}

impl Node {
    /// Returns the start tag of the first queued I/O, if `now` is the virtual time (FQ3).
    #[inline]
    fn begin(&mut self, now: u128) -> u128 {
        let start = now.max(self.finish);
        if start > self.finish {
            self.rest = 0;
        }
        self.start = start;
        start
    }

    /// Returns the finish tag of an I/O (FQ2).
    #[inline]
    fn advance(&mut self, cost: u64) -> u128 {
        let scaled = (cost.min(FairQueue::COST_MAX) << FRACTION) + self.rest;
        let weight = u64::from(self.weight);
        self.finish = self.start + u128::from(scaled / weight);
        self.rest = scaled % weight;
        self.finish
    }
}

#[cfg(all(test, not(blk_loom)))]
mod tests;
