//! Outstanding I/O of each owner: requests that have left its queue and have not ended.
//!
//! A latency goal that is missed limits their number (OW7). They are counted only while an owner of
//! the disk has a goal, or an observer watches their owner (`owner/activity.rs`). A request is
//! counted with its first bio, which is marked when the request leaves, and for its owner and all
//! owners above. The count ends with that bio. So a request that is given up (H5) counts no longer
//! than its bios exist, and a bio that is cut counts once.
//!
//! Each hardware context counts its own requests, and the depth holds in each. So the end of a
//! request can let go only requests that wait in the same context, whose turn it is, and no context
//! has to wake another. The measure of latencies and the depth itself are shared
//! ([`OwnerGoal`]).
//!
//! A removed owner keeps its count until the last of its requests has ended, also if another owner
//! has got its number.
//!
//! Counterpart in Linux: `struct rq_wait` of `block/blk-iolatency.c`, one for each cgroup and
//! device. There the submitting thread sleeps.

use crate::owner::{Owner, OwnerGoal, Owners, Peers};
use crate::request::Request;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The node above all owners.
const TOP: u32 = 0;

/// The node of I/O without an owner.
pub(super) const UNOWNED: u32 = 1;

/// The counts of all owners, as a tree.
#[derive(Debug)]
pub(super) struct Outstanding {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// An owner has a goal.
    has_goals: bool,
    /// The full depth: the number of tags that may be in use.
    full: u32,
    /// More requests may leave than at the last call of [`take_freed`](Outstanding::take_freed).
    is_freed: bool,
}

#[derive(Debug, Default)]
struct Node {
    parent: u32,
    /// The requests of this owner, and of those below.
    nr: u32,
    state: State,
    /// A child has a goal.
    has_goals_below: bool,
    /// `None` in the top node and in the node of I/O without an owner. The latter may have a goal.
    owner: Option<Arc<Owner>>,
    goal: Option<Goal>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    Live,
    /// The owner was removed, and has requests that have not ended.
    Removed,
}

#[derive(Debug)]
struct Goal {
    own: Arc<OwnerGoal>,
    peers: Arc<Peers>,
}

impl Outstanding {
    pub(super) fn new(full: u32) -> Outstanding {
        let live = || Node { state: State::Live, ..Node::default() };
        Outstanding {
            nodes: alloc::vec![live(), live()],
            free: Vec::new(),
            has_goals: false,
            full,
            is_freed: false,
        }
    }

    /// Sets the full depth.
    pub(super) fn set_full(&mut self, full: u32) {
        self.full = full;
    }

    /// Adds an owner. `parent` is the node of its parent. Returns the node of the owner.
    pub(super) fn add(&mut self, parent: Option<u32>, owner: &Arc<Owner>) -> u32 {
        let goal = Goal { own: Arc::clone(owner.goal()), peers: Arc::clone(owner.peers()) };
        let parent = parent.unwrap_or(TOP);
        let (owner, goal) = (Some(Arc::clone(owner)), Some(goal));
        let node = Node { parent, state: State::Live, owner, goal, ..Node::default() };
        match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                // Freeing it must not allocate.
                self.free.reserve(self.nodes.len());
                self.nodes.len() as u32 - 1
            }
        }
    }

    /// Removes an owner. Those below it were removed before.
    pub(super) fn remove(&mut self, at: u32) {
        self.nodes[at as usize].state = State::Removed;
        self.free_if_done(at);
    }

    fn free_if_done(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        if node.state == State::Removed && node.nr == 0 {
            *node = Node::default();
            self.free.push(at);
        }
    }

    /// Updates which owners have a goal, and lifts the limit of owners whose peers have none.
    pub(super) fn set_owners(&mut self, owners: &Owners) {
        self.nodes[UNOWNED as usize].goal = owners
            .top()
            .map(|top| Goal { own: Arc::clone(&top.unowned), peers: Arc::clone(&top.peers) });
        self.nodes.iter_mut().for_each(|node| node.has_goals_below = false);
        self.has_goals = false;
        for at in 0..self.nodes.len() {
            if self.nodes[at].is_live() && self.nodes[at].own().is_some_and(|own| own.has_target())
            {
                let parent = self.nodes[at].parent as usize;
                self.nodes[parent].has_goals_below = true;
                self.has_goals = true;
            }
        }
        for node in self.nodes.iter().filter(|node| node.is_live()) {
            let is_free = !self.nodes[node.parent as usize].has_goals_below;
            node.own().filter(|_| is_free).into_iter().for_each(OwnerGoal::lift);
        }
        // More may leave now.
        self.is_freed = true;
    }

    /// Returns whether an owner of the disk has a goal.
    #[inline]
    pub(super) fn has_goals(&self) -> bool {
        self.has_goals
    }

    /// Returns whether a request may leave the queue of its owner, as far as the goals of others
    /// are concerned (OW7).
    pub(super) fn may_leave(&mut self, mut at: u32, now: u64) -> bool {
        while at != TOP {
            self.end_windows(at, now);
            let node = &self.nodes[at as usize];
            if self.nodes[node.parent as usize].has_goals_below
                && let Some(Goal { own, .. }) = &node.goal
                && own.depth().is_some_and(|depth| node.nr >= depth)
            {
                return false;
            }
            at = node.parent;
        }
        true
    }

    /// Marks a request that leaves the queue of its owner, and counts it: at the node of the owner,
    /// and in the activity of `watched`, which is the owner if an observer watches it.
    // Most requests are not counted.
    #[cold]
    pub(super) fn begin(&mut self, rq: &mut Request, mut at: u32, watched: Option<&Owner>) {
        rq.note_outstanding(at);
        if let Some(owner) = watched {
            rq.note_watched();
            owner.watched().note_start();
        }
        while at != TOP {
            let node = &mut self.nodes[at as usize];
            node.nr += 1;
            at = node.parent;
        }
    }

    /// Returns the owner of a node, also after it was removed. `None` in a node without an owner.
    pub(super) fn owner(&self, at: u32) -> Option<&Owner> {
        self.nodes[at as usize].owner.as_deref()
    }

    /// Ends the count of a request. `latency_ns` is `None` if it has failed (LG1).
    pub(super) fn end(&mut self, mut at: u32, latency_ns: Option<u64>, now: u64) {
        while at != TOP {
            self.end_windows(at, now);
            let node = &mut self.nodes[at as usize];
            node.nr -= 1;
            if let (true, Some(Goal { own, .. }), Some(latency_ns)) =
                (node.is_live(), &node.goal, latency_ns)
            {
                own.note(latency_ns);
            }
            let parent = node.parent;
            self.free_if_done(at);
            at = parent;
        }
        self.is_freed = true;
    }

    /// Ends the windows that are over of an owner and its peers, if one of them has a goal.
    fn end_windows(&mut self, at: u32, now: u64) {
        let node = &self.nodes[at as usize];
        let parent = node.parent;
        if node.is_live()
            && self.nodes[parent as usize].has_goals_below
            && let Some(Goal { peers, .. }) = &node.goal
            && peers.is_over(now)
        {
            let members = self.nodes.iter().filter(|node| node.is_live() && node.parent == parent);
            // If another context is ending them, the next end of a request here finds the depths:
            // requests are held back only while others of their owner are outstanding.
            let has_ended = peers.end_windows(now, self.full, members.filter_map(Node::own));
            self.is_freed |= has_ended;
        }
    }

    /// Returns whether more requests may leave than at the last call: some have ended, or a depth
    /// has changed.
    pub(super) fn take_freed(&mut self) -> bool {
        core::mem::take(&mut self.is_freed)
    }

    /// Returns what [`take_freed`](Outstanding::take_freed) would return, and leaves it set.
    pub(super) fn is_freed(&self) -> bool {
        self.is_freed
    }
}

impl Node {
    fn is_live(&self) -> bool {
        self.state == State::Live
    }

    fn own(&self) -> Option<&OwnerGoal> {
        Some(&self.goal.as_ref()?.own)
    }
}
