//! Binary heap of the children with queued I/O, the smallest start tag first.
//!
//! An entry has a copy of its node's key, so that a comparison reads nothing else. Each node stores
//! its place in the heap of its parent, so that a node can be moved and removed wherever it is.

use super::{FairQueue, NONE, Node};
use alloc::vec::Vec;

/// An entry of a heap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) start: u128,
    /// How many start tags were assigned before this one. No two entries have the same.
    pub(super) order: u64,
    /// The index of the node.
    pub(super) at: u32,
}

impl Ready {
    /// Returns whether this entry goes before another (FQ1).
    #[inline]
    fn is_before(&self, other: &Ready) -> bool {
        (self.start, self.order) < (other.start, other.order)
    }
}

impl FairQueue {
    /// Adds an entry to the heap of its node's parent.
    pub(super) fn push(&mut self, entry: Ready) {
        let parent = self.nodes[entry.at as usize].parent as usize;
        let place = self.nodes[parent].ready.len();
        self.nodes[parent].ready.push(entry);
        self.with_heap(parent, |nodes, ready| {
            sift_up(nodes, ready, place, entry);
        });
    }

    /// Removes a node from the heap of its parent.
    pub(super) fn take(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        let parent = node.parent as usize;
        let place = core::mem::replace(&mut node.place, NONE) as usize;
        let ready = &mut self.nodes[parent].ready;
        ready.swap_remove(place);
        if let Some(moved) = ready.get(place).copied() {
            self.with_heap(parent, |nodes, ready| {
                let place = sift_up(nodes, ready, place, moved);
                sift_down(nodes, ready, place, moved);
            });
        }
    }

    /// Replaces the entry of a node by one with a larger key.
    pub(super) fn replace(&mut self, entry: Ready) {
        let Node { parent, place, .. } = self.nodes[entry.at as usize];
        self.with_heap(parent as usize, |nodes, ready| {
            sift_down(nodes, ready, place as usize, entry);
        });
    }

    /// Sets all start tags to 0, in the order that they have.
    pub(super) fn equalize_starts(&mut self) {
        for parent in 0..self.nodes.len() {
            let first = self.nr_starts;
            self.nr_starts += self.nodes[parent].ready.len() as u64;
            self.with_heap(parent, |nodes, ready| {
                ready.sort_unstable_by_key(|entry| (entry.start, entry.order));
                for (place, order) in (0..ready.len()).zip(first..) {
                    put(nodes, ready, place, Ready { start: 0, order, ..ready[place] });
                }
            });
        }
    }

    /// Calls `change` with the heap of a node, and with all nodes.
    fn with_heap(&mut self, parent: usize, change: impl FnOnce(&mut [Node], &mut [Ready])) {
        let mut ready: Vec<Ready> = core::mem::take(&mut self.nodes[parent].ready);
        change(&mut self.nodes, &mut ready);
        self.nodes[parent].ready = ready;
    }
}

/// Moves the entries above a place down, as far as `entry` goes before them, and puts it there.
/// Returns its place.
fn sift_up(nodes: &mut [Node], ready: &mut [Ready], mut place: usize, entry: Ready) -> usize {
    while place > 0 && entry.is_before(&ready[(place - 1) / 2]) {
        put(nodes, ready, place, ready[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(nodes, ready, place, entry);
    place
}

/// Moves the entries below a place up, as far as they go before `entry`, and puts it there.
fn sift_down(nodes: &mut [Node], ready: &mut [Ready], mut place: usize, entry: Ready) {
    loop {
        let (left, right) = (2 * place + 1, 2 * place + 2);
        let child = match (ready.get(left), ready.get(right)) {
            (Some(one), Some(other)) if other.is_before(one) => right,
            (Some(_), _) => left,
            (None, _) => break,
        };
        if !ready[child].is_before(&entry) {
            break;
        }
        put(nodes, ready, place, ready[child]);
        place = child;
    }
    put(nodes, ready, place, entry);
}

#[inline]
fn put(nodes: &mut [Node], ready: &mut [Ready], place: usize, entry: Ready) {
    ready[place] = entry;
    nodes[entry.at as usize].place = place as u32;
}
