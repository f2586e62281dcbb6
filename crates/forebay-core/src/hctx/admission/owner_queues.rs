//! FIFO queues of requests, one for each owner, that allocate only when more wait than ever before.
//!
//! A map of lists would allocate when an owner's first request comes, and free that memory when its
//! last one goes: for nearly every I/O, if threads wait for tags. Here all queues share one pool of
//! nodes, and a hash table finds the queue of an owner. Nodes and queues are reused.

use crate::request::Request;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// An index that no node and no queue has.
const NONE: u32 = u32::MAX;
/// Capacity in owners before anything grows: most disks have fewer threads.
pub(super) const NR_OWNERS_USUAL: usize = 32;

/// FIFO queues, by owner. Each stores a `state` for the caller.
#[derive(Debug)]
pub(super) struct OwnerQueues<S> {
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
    queues: Vec<Queue<S>>,
    free_queues: Vec<u32>,
    /// Indices of queues, hashed by owner. Open addressing with linear probing: no empty slot lies
    /// between the home slot of an owner and its actual slot. The length is a power of two; at most
    /// half of the slots are used.
    table: Box<[u32]>,
}

#[derive(Debug)]
struct Node {
    /// `None` in a free node.
    rq: Option<Request>,
    /// The next younger node of its queue.
    next: u32,
}

#[derive(Debug)]
struct Queue<S> {
    owner: u64,
    oldest: u32,
    youngest: u32,
    len: u32,
    state: S,
}

impl<S: Default> OwnerQueues<S> {
    pub(super) fn new() -> OwnerQueues<S> {
        OwnerQueues {
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            queues: Vec::with_capacity(NR_OWNERS_USUAL),
            free_queues: Vec::with_capacity(NR_OWNERS_USUAL),
            table: empty_table(2 * NR_OWNERS_USUAL),
        }
    }

    /// Returns whether no owner has a queue.
    pub(super) fn is_empty(&self) -> bool {
        self.nr_queues() == 0
    }

    /// Returns all requests: those of each owner from the oldest on, the owners in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        let places = self.table.iter().filter(|&&at| at != NONE);
        let oldest = places.map(|&at| self.queues[at as usize].oldest);
        oldest.flat_map(|oldest| {
            let first = self.nodes.get(oldest as usize);
            let nodes = core::iter::successors(first, |node| self.nodes.get(node.next as usize));
            nodes.filter_map(|node| node.rq.as_ref())
        })
    }

    /// Passes the state and the requests of each queue, from the oldest on, to `look`.
    pub(super) fn for_each(
        &mut self,
        mut look: impl FnMut(&mut S, &mut dyn Iterator<Item = &Request>),
    ) {
        let OwnerQueues { nodes, queues, table, .. } = self;
        for &at in table.iter().filter(|&&at| at != NONE) {
            let Queue { oldest, state, .. } = &mut queues[at as usize];
            let first = nodes.get(*oldest as usize);
            let nodes = core::iter::successors(first, |node| nodes.get(node.next as usize));
            look(state, &mut nodes.filter_map(|node| node.rq.as_ref()));
        }
    }

    /// Returns the state of an owner's queue, if it has one.
    pub(super) fn get(&self, owner: u64) -> Option<&S> {
        self.find(owner).map(|at| &self.queues[at].state)
    }

    /// Returns the state of an owner's queue, if it has one.
    pub(super) fn get_mut(&mut self, owner: u64) -> Option<&mut S> {
        self.find(owner).map(|at| &mut self.queues[at].state)
    }

    /// Returns how many requests an owner's queue has.
    pub(super) fn len(&self, owner: u64) -> usize {
        self.find(owner).map_or(0, |at| self.queues[at].len as usize)
    }

    /// Makes an empty queue for an owner that has none. Returns whether it had none.
    pub(super) fn insert(&mut self, owner: u64) -> bool {
        if self.find(owner).is_some() {
            return false;
        }
        if 2 * (self.nr_queues() + 1) > self.table.len() {
            self.grow_table();
        }
        let state = S::default();
        let queue = Queue { owner, oldest: NONE, youngest: NONE, len: 0, state };
        let at = match self.free_queues.pop() {
            Some(at) => {
                self.queues[at as usize] = queue;
                at
            }
            None => {
                self.queues.push(queue);
                // Freeing it must not allocate.
                self.free_queues.reserve(self.queues.len());
                (self.queues.len() - 1) as u32
            }
        };
        self.enter(at);
        true
    }

    /// Removes an owner's queue, which is empty, and returns its state.
    pub(super) fn remove(&mut self, owner: u64) -> Option<S> {
        let place = self.place_of(owner)?;
        let at = self.table[place];
        self.leave(place);
        self.free_queues.push(at);
        let queue = &mut self.queues[at as usize];
        assert!(queue.len == 0, "a queue that is removed is empty");
        Some(core::mem::take(&mut queue.state))
    }

    /// Appends a request to the queue of an owner, which has one.
    pub(super) fn push_back(&mut self, owner: u64, rq: Request) {
        let at = self.find(owner).expect("the owner has a queue");
        let node = self.new_node(rq);
        let queue = &mut self.queues[at];
        match queue.youngest {
            NONE => queue.oldest = node,
            youngest => self.nodes[youngest as usize].next = node,
        }
        queue.youngest = node;
        queue.len += 1;
    }

    /// Prepends a request to the queue of an owner, which has one.
    pub(super) fn push_front(&mut self, owner: u64, rq: Request) {
        let at = self.find(owner).expect("the owner has a queue");
        let node = self.new_node(rq);
        let queue = &mut self.queues[at];
        self.nodes[node as usize].next = queue.oldest;
        queue.oldest = node;
        if queue.youngest == NONE {
            queue.youngest = node;
        }
        queue.len += 1;
    }

    /// Takes the oldest request of an owner.
    pub(super) fn pop_front(&mut self, owner: u64) -> Option<Request> {
        let at = self.find(owner)?;
        let queue = &mut self.queues[at];
        let first = queue.oldest;
        let node = self.nodes.get_mut(first as usize)?;
        queue.oldest = node.next;
        if queue.oldest == NONE {
            queue.youngest = NONE;
        }
        queue.len -= 1;
        self.free_nodes.push(first);
        node.rq.take()
    }

    fn new_node(&mut self, rq: Request) -> u32 {
        let node = Node { rq: Some(rq), next: NONE };
        match self.free_nodes.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                // Freeing it must not allocate.
                self.free_nodes.reserve(self.nodes.len());
                (self.nodes.len() - 1) as u32
            }
        }
    }

    fn nr_queues(&self) -> usize {
        self.queues.len() - self.free_queues.len()
    }

    fn find(&self, owner: u64) -> Option<usize> {
        self.place_of(owner).map(|place| self.table[place] as usize)
    }

    fn place_of(&self, owner: u64) -> Option<usize> {
        let mut place = self.home_of(owner);
        while self.table[place] != NONE {
            if self.queues[self.table[place] as usize].owner == owner {
                return Some(place);
            }
            place = self.next_to(place);
        }
        None
    }

    /// Returns the place where the search for an owner begins. Owners are often addresses, so their
    /// low bits are equal. The highest bits of the product depend on all bits (Fibonacci hashing).
    fn home_of(&self, owner: u64) -> usize {
        let hash = owner.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> (u64::BITS - self.table.len().trailing_zeros())) as usize
    }

    fn next_to(&self, place: usize) -> usize {
        (place + 1) & (self.table.len() - 1)
    }

    /// Adds a queue to the table. The table has no queue of its owner.
    fn enter(&mut self, at: u32) {
        let mut place = self.home_of(self.queues[at as usize].owner);
        while self.table[place] != NONE {
            place = self.next_to(place);
        }
        self.table[place] = at;
    }

    /// Frees a place of the table. Moves back the entries that a search would no longer find after
    /// the gap.
    fn leave(&mut self, place: usize) {
        let (mut gap, mut place) = (place, self.next_to(place));
        let mask = self.table.len() - 1;
        while self.table[place] != NONE {
            let home = self.home_of(self.queues[self.table[place] as usize].owner);
            let is_behind_gap = place.wrapping_sub(home) & mask >= place.wrapping_sub(gap) & mask;
            if is_behind_gap {
                self.table[gap] = self.table[place];
                gap = place;
            }
            place = self.next_to(place);
        }
        self.table[gap] = NONE;
    }

    #[cold]
    fn grow_table(&mut self) {
        let table = empty_table(2 * self.table.len());
        let before = core::mem::replace(&mut self.table, table);
        before.iter().filter(|&&at| at != NONE).for_each(|&at| self.enter(at));
    }
}

fn empty_table(len: usize) -> Box<[u32]> {
    core::iter::repeat_n(NONE, len).collect()
}

#[cfg(all(test, not(any(blk_loom, blk_shuttle))))]
mod tests {
    use super::*;
    use crate::request::QueuedBio;
    use alloc::collections::{BTreeMap, VecDeque};

    /// Returns a request whose bio has this number.
    fn request(number: u32) -> Request {
        Request::of_bios(QueuedBio::new(0, number))
    }

    fn number(rq: &Request) -> u32 {
        rq.bios().next().expect("a request has a bio").number()
    }

    #[test]
    fn usual_number_of_owners_needs_no_growth_and_more_leave_half_of_the_table_free() {
        let mut queues = OwnerQueues::<u64>::new();
        let usual = queues.table.len();
        for owner in 0..1000 {
            assert!(queues.insert(owner));
            assert!(2 * queues.nr_queues() <= queues.table.len());
            let is_usual = queues.nr_queues() <= NR_OWNERS_USUAL;
            assert_eq!(queues.table.len() == usual, is_usual, "{owner}");
        }
    }

    /// Compares random operations on the queues with the same ones on a map of lists.
    #[test]
    fn queues_behave_as_a_map_of_lists() {
        let mut seed = 1_u64;
        let mut below = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % bound
        };
        let mut queues = OwnerQueues::<u64>::new();
        let mut model = BTreeMap::<u64, VecDeque<u32>>::new();
        for nth in 0..20_000 {
            // Few and many owners; with equal low bits, as addresses have. The high bits keep
            // their hashes from being spread evenly, so searches pass other owners' places.
            let owner = below(if nth % 2000 < 1000 { 4 } else { 100 });
            let owner = owner.pow(5).wrapping_mul(owner << 40 | 4096);
            match below(5) {
                0 | 1 => {
                    assert_eq!(queues.insert(owner), !model.contains_key(&owner));
                    queues.push_back(owner, request(nth));
                    model.entry(owner).or_default().push_back(nth);
                    *queues.get_mut(owner).expect("it is there") = owner;
                }
                2 if model.contains_key(&owner) => {
                    queues.push_front(owner, request(nth));
                    model.get_mut(&owner).expect("it is there").push_front(nth);
                }
                _ => {
                    let expected = model.get_mut(&owner).and_then(VecDeque::pop_front);
                    let found = queues.pop_front(owner);
                    assert_eq!(found.as_ref().map(number), expected);
                    if model.get(&owner).is_some_and(VecDeque::is_empty) {
                        model.remove(&owner);
                        assert_eq!(queues.remove(owner), Some(owner));
                    }
                }
            }
            assert_eq!(queues.len(owner), model.get(&owner).map_or(0, VecDeque::len));
            assert_eq!(queues.is_empty(), model.is_empty());
            assert_eq!(queues.get(owner).is_some(), model.contains_key(&owner));
        }
        let mut found: Vec<_> = queues.iter().map(number).collect();
        let mut expected: Vec<_> = model.values().flatten().copied().collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
        for (owner, list) in model {
            let mut rest = core::iter::from_fn(|| queues.pop_front(owner));
            assert!(list.iter().all(|nth| rest.next().as_ref().map(number) == Some(*nth)));
        }
    }
}
