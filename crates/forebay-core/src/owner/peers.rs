//! Peers: the owners below one parent, whose latency goals limit the depth of others.
//!
//! All hardware contexts share this state: a goal counts wherever the I/O of its owner ends, and
//! its peers give way in every context. The arithmetic is in [`latency_goal`](super::latency_goal).
//!
//! # One thread ends a window
//! Each I/O that ends adds to the samples of its owner, by one atomic addition. A thread that finds
//! the window over marks the group ([`Peers::is_ending`]), moves all samples out, and computes the
//! new depths. A thread that finds the mark goes on: its sample counts in either window. There is
//! no timer. A depth that is limited is read only when I/O of its owner leaves or ends, and then
//! the windows that have passed are ended first.
//!
//! # Orderings
//! The mark is acquired and released, so the words that only the marking thread writes need no
//! order of their own. The depth is one word that publishes nothing else.

use super::latency_goal::{Depth, Outcome, Samples, Strictest, WINDOW_NS, WINDOWS_TO_FULL, Window};
use crate::primitive::{AtomicU32, AtomicU64, Ordering};
use crate::stats::counter::SharedCounter;

/// The shared state of a group of peers.
#[derive(Debug)]
pub(crate) struct Peers {
    window_ns: u64,
    /// When the window ends. 0 before the first I/O.
    end_ns: AtomicU64,
    /// 1 while a thread ends a window.
    is_ending: AtomicU32,
}

/// The latency goal of an owner, and the depth that the goals of its peers leave it.
#[derive(Debug)]
pub(crate) struct OwnerGoal {
    /// `u64::MAX`: no goal.
    target_ns: AtomicU64,
    /// The I/Os that have ended in this window ([`Samples`]).
    samples: AtomicU64,
    /// The most I/Os that may have left the queue of the owner and not ended. 0: no limit.
    depth: AtomicU32,
    nr_missed: SharedCounter,
    /// The rest of [`Window`] and [`Depth`]. Only the thread that ends a window reads and writes
    /// them.
    kept_samples: AtomicU64,
    nr_windows: AtomicU32,
    nr_kept: AtomicU32,
}

impl Default for OwnerGoal {
    fn default() -> OwnerGoal {
        OwnerGoal {
            target_ns: AtomicU64::new(u64::MAX),
            samples: AtomicU64::new(0),
            depth: AtomicU32::new(0),
            nr_missed: SharedCounter::new(),
            kept_samples: AtomicU64::new(0),
            nr_windows: AtomicU32::new(0),
            nr_kept: AtomicU32::new(0),
        }
    }
}

impl OwnerGoal {
    /// Sets the goal in microseconds. 0: no goal.
    pub(super) fn set_target_us(&self, target_us: u64) {
        let target_ns = match target_us {
            0 => u64::MAX,
            target_us => target_us.saturating_mul(1000),
        };
        if self.target_ns.swap(target_ns, Ordering::Relaxed) != target_ns {
            // They were counted by the old goal. Samples of windows that were extended stay.
            self.samples.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the goal in microseconds. 0: no goal.
    pub(super) fn target_us(&self) -> u64 {
        match self.target_ns.load(Ordering::Relaxed) {
            u64::MAX => 0,
            target_ns => target_ns / 1000,
        }
    }

    /// Returns whether the owner has a goal.
    pub(crate) fn has_target(&self) -> bool {
        self.target_ns.load(Ordering::Relaxed) != u64::MAX
    }

    /// Returns the depth that the goals of its peers leave the owner. `None` without a limit.
    #[inline]
    pub(crate) fn depth(&self) -> Option<u32> {
        match self.depth.load(Ordering::Relaxed) {
            0 => None,
            depth => Some(depth),
        }
    }

    /// Removes the limit of the depth, because no peer has a goal.
    pub(crate) fn lift(&self) {
        self.depth.store(0, Ordering::Relaxed);
    }

    /// Returns how many windows missed the goal.
    pub(super) fn nr_missed(&self) -> u64 {
        self.nr_missed.get()
    }

    /// Counts an I/O that has ended (LG1).
    #[inline]
    pub(crate) fn note(&self, latency_ns: u64) {
        let target_ns = self.target_ns.load(Ordering::Relaxed);
        if target_ns != u64::MAX {
            let one = Samples::one(latency_ns, target_ns);
            self.samples.fetch_add(one.bits(), Ordering::Relaxed);
        }
    }

    /// Ends a window of the owner, if it has a goal. Returns the goal and the outcome.
    fn end_window(&self) -> Option<(u64, Outcome)> {
        let target_ns = self.target_ns.load(Ordering::Relaxed);
        let new = Samples::from_bits(self.samples.swap(0, Ordering::Relaxed));
        let mut window = Window {
            samples: Samples::from_bits(self.kept_samples.load(Ordering::Relaxed)),
            nr_windows: self.nr_windows.load(Ordering::Relaxed),
        };
        let outcome = match target_ns {
            u64::MAX => {
                window = Window::default();
                None
            }
            _ => Some((target_ns, window.end(new))),
        };
        self.kept_samples.store(window.samples.bits(), Ordering::Relaxed);
        self.nr_windows.store(window.nr_windows, Ordering::Relaxed);
        self.nr_missed.add(matches!(outcome, Some((_, Outcome::Missed))).into());
        outcome
    }

    /// Takes over the outcomes of the peers.
    fn step(&self, strictest: Strictest, full: u32) {
        let mut depth = Depth {
            most: self.depth.load(Ordering::Relaxed),
            nr_kept: self.nr_kept.load(Ordering::Relaxed),
        };
        depth.step(strictest.above(self.target_ns.load(Ordering::Relaxed)), full);
        self.nr_kept.store(depth.nr_kept, Ordering::Relaxed);
        self.depth.store(depth.most, Ordering::Relaxed);
    }
}

impl Default for Peers {
    fn default() -> Peers {
        Peers::new(WINDOW_NS)
    }
}

impl Peers {
    /// Creates a group whose windows have this length.
    pub(super) fn new(window_ns: u64) -> Peers {
        let window_ns = window_ns.max(1);
        Peers { window_ns, end_ns: AtomicU64::new(0), is_ending: AtomicU32::new(0) }
    }

    /// Creates a group with windows of the same length.
    pub(super) fn same(&self) -> Peers {
        Peers::new(self.window_ns)
    }

    /// Returns whether the window is over.
    #[inline]
    pub(crate) fn is_over(&self, now: u64) -> bool {
        now >= self.end_ns.load(Ordering::Relaxed)
    }

    /// Ends all windows that are over. `members` are all owners of the group, and `full` is the
    /// full depth. Returns false if another thread is ending them.
    #[cold]
    pub(crate) fn end_windows<'a>(
        &self,
        now: u64,
        full: u32,
        members: impl Iterator<Item = &'a OwnerGoal> + Clone,
    ) -> bool {
        // Acquire: pairs with the release below, so that each end continues the one before.
        let order = (Ordering::Acquire, Ordering::Relaxed);
        if self.is_ending.compare_exchange(0, 1, order.0, order.1).is_err() {
            return false;
        }
        let end_ns = self.end_ns.load(Ordering::Relaxed);
        if now >= end_ns {
            let nr = if end_ns == 0 { 0 } else { (now - end_ns) / self.window_ns + 1 };
            // All windows but the first are without I/O.
            for _ in 0..nr.min(WINDOWS_TO_FULL) {
                self.end_window(full, members.clone());
            }
            let next_ns =
                if end_ns == 0 { now + self.window_ns } else { end_ns + nr * self.window_ns };
            self.end_ns.store(next_ns, Ordering::Relaxed);
        }
        self.is_ending.store(0, Ordering::Release);
        true
    }

    fn end_window<'a>(&self, full: u32, members: impl Iterator<Item = &'a OwnerGoal> + Clone) {
        let mut strictest = Strictest::NONE;
        for (target_ns, outcome) in members.clone().filter_map(OwnerGoal::end_window) {
            strictest.add(target_ns, outcome);
        }
        members.for_each(|goal| goal.step(strictest, full));
    }
}

#[cfg(all(test, blk_loom))]
mod models;
#[cfg(all(test, not(blk_loom)))]
mod tests;
