//! Binary heaps of the nodes with queued I/O, the smallest start tag first.
//!
//! Each node stores its place, so that a node can be moved and removed wherever it is.

use super::{FairQueue, NONE};

impl FairQueue {
    /// Adds a node to the heap of its parent.
    pub(super) fn push(&mut self, at: u32) {
        let parent = self.nodes[at as usize].parent;
        let ready = &mut self.nodes[parent as usize].ready;
        let place = ready.len();
        ready.push(at);
        self.nodes[at as usize].place = place as u32;
        self.sift_up(at);
    }

    /// Removes a node from the heap of its parent.
    pub(super) fn take(&mut self, at: u32) {
        let parent = self.nodes[at as usize].parent;
        let place = core::mem::replace(&mut self.nodes[at as usize].place, NONE);
        let ready = &mut self.nodes[parent as usize].ready;
        ready.swap_remove(place as usize);
        if let Some(moved) = ready.get(place as usize).copied() {
            self.nodes[moved as usize].place = place;
            self.sift_up(moved);
            self.sift_down(moved);
        }
    }

    /// Moves a node whose start tag has grown to its place.
    pub(super) fn sift_down(&mut self, at: u32) {
        let parent = self.nodes[at as usize].parent;
        loop {
            let place = self.nodes[at as usize].place as usize;
            let ready = &self.nodes[parent as usize].ready;
            let children =
                [2 * place + 1, 2 * place + 2].into_iter().filter_map(|at| ready.get(at));
            let smallest = children.copied().min_by_key(|child| self.key(*child));
            match smallest {
                Some(child) if self.key(child) < self.key(at) => self.exchange(parent, at, child),
                _ => return,
            }
        }
    }

    fn sift_up(&mut self, at: u32) {
        let parent = self.nodes[at as usize].parent;
        loop {
            let place = self.nodes[at as usize].place as usize;
            if place == 0 {
                return;
            }
            let above = self.nodes[parent as usize].ready[(place - 1) / 2];
            if self.key(above) < self.key(at) {
                return;
            }
            self.exchange(parent, at, above);
        }
    }

    /// Returns the key by which a node is ordered (FQ1). No two nodes have the same.
    fn key(&self, at: u32) -> (u128, u64) {
        let node = &self.nodes[at as usize];
        (node.start, node.order)
    }

    fn exchange(&mut self, parent: u32, one: u32, other: u32) {
        let places = [one, other].map(|at| self.nodes[at as usize].place);
        self.nodes[parent as usize].ready.swap(places[0] as usize, places[1] as usize);
        self.nodes[one as usize].place = places[1];
        self.nodes[other as usize].place = places[0];
    }
}
