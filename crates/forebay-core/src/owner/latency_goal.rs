//! Latency goal of an owner: when a window misses it, and the depth that its peers then have. Plain
//! values.
//!
//! The *peers* of an owner are the other owners below the same parent. I/O without an owner is that
//! of one more peer at the top. A goal has an effect on them only while it is missed. Time is
//! divided into windows of [`WINDOW_NS`]. After each window that misses the goal, the peers may
//! have fewer outstanding I/Os (OW7). The *full depth* is the number of tags.
//!
//! The rules:
//!
//! - LG1 the latency of an I/O begins when it leaves its plug, or when the last limit or depth
//!   (OW7) that held it back lets it go, and ends with the I/O. So it includes waits for a turn
//!   among the owners, for a tag and in a scheduler, which peers can cause. I/O that fails has
//!   none. I/O that leaves as one request counts once. I/O of the owners below counts too.
//! - LG2 an owner misses its goal in a window if at least one in [`SLOW_PART`] of its I/Os took
//!   longer than the goal. It keeps the goal well if fewer took longer than half of it. A window
//!   of fewer than [`SAMPLES_MIN`] I/Os, but at least one, is extended, to at most [`WINDOWS_MAX`]
//!   windows; meanwhile the goal counts as kept.
//! - LG3 after each window that an owner misses, each peer without a goal or with a looser one has
//!   half of its depth, and at least 1.
//! - LG4 after a window in which all stricter goals among the peers are kept well, a peer gets back
//!   a sixteenth of the full depth, at least 1, but its depth at most doubles. If one is just kept,
//!   this happens only every [`PROBE_WINDOWS`]th time in a row. A peer that has the full depth
//!   has no limit.
//!
//! # Why a goal that is just kept stops the regain
//! Latency follows depth within a window. If each kept window gave depth back, the peers would pass
//! the right depth every few windows, and the goal would be missed in a third of all. While the
//! depth at most doubles from a window with half of the latency, the next window keeps the goal on
//! a device whose latency is proportional to the depth. A goal below twice the latency of the idle
//! device is never kept well; the probes then give the depth back if the peers do no harm.
//!
//! Counterpart in Linux: `block/blk-iolatency.c` (Josef Bacik, 2018; described here as of 6.12). It
//! also halves the depth and gives a sixteenth back, has windows of 100 ms or more, and on disks
//! that do not rotate counts a window as missed if a tenth of its I/O was too slow. On disks that
//! rotate it compares the mean. Here all devices have the same rule, because one owner's large I/O
//! moves a mean more than it moves the tenth.

/// The length of a window, nanoseconds.
pub(super) const WINDOW_NS: u64 = 100_000_000;

/// A window with at least this many I/Os is decided at its end.
const SAMPLES_MIN: u64 = 5;

/// The number of windows after which fewer I/Os are decided as well.
const WINDOWS_MAX: u32 = 10;

/// One slow I/O in this many misses a goal.
const SLOW_PART: u64 = 10;

/// Peers of a goal that is just kept get depth back after this many windows.
const PROBE_WINDOWS: u32 = 16;

/// The part of the full depth that a window gives back.
const REGAIN_PART: u32 = 16;

/// The number of windows without I/O after which every peer has its full depth: those that may stay
/// open, 31 that double the smallest depth, and those that give back the rest.
pub(super) const WINDOWS_TO_FULL: u64 = WINDOWS_MAX as u64 + 31 + REGAIN_PART as u64;

/// The I/Os of a window: how many, how many took longer than half of the goal, and how many longer
/// than the goal. Three numbers of 21 bits in one word: enough for 20 million I/Os per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Samples(u64);

impl Samples {
    const BITS: u32 = 21;
    const MASK: u64 = (1 << Samples::BITS) - 1;

    /// Returns the count of one I/O with this latency.
    pub(super) const fn one(latency_ns: u64, target_ns: u64) -> Samples {
        let is_near = latency_ns > target_ns / 2;
        let is_slow = latency_ns > target_ns;
        Samples(1 | (is_near as u64) << Samples::BITS | (is_slow as u64) << (2 * Samples::BITS))
    }

    pub(super) const fn from_bits(bits: u64) -> Samples {
        Samples(bits)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the sum. Larger numbers than fit are the largest that fits.
    fn plus(self, other: Samples) -> Samples {
        let sum = |nth: u32| (self.nth(nth) + other.nth(nth)).min(Samples::MASK);
        Samples(sum(0) | sum(1) << Samples::BITS | sum(2) << (2 * Samples::BITS))
    }

    const fn nth(self, nth: u32) -> u64 {
        self.0 >> (nth * Samples::BITS) & Samples::MASK
    }

    fn outcome(self) -> Outcome {
        let is_many = |nr: u64| nr > 0 && nr * SLOW_PART >= self.nth(0);
        match (is_many(self.nth(2)), is_many(self.nth(1))) {
            (true, _) => Outcome::Missed,
            (false, true) => Outcome::Kept,
            (false, false) => Outcome::KeptWell,
        }
    }
}

/// The outcome of a window for a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is kept, with half of it to spare; or there was no I/O.
    KeptWell,
    /// It is kept, or there are too few I/Os to decide.
    Kept,
    Missed,
}

/// The window of an owner that is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// The I/Os of the windows before that had too few.
    pub(super) samples: Samples,
    /// The number of these windows.
    pub(super) nr_windows: u32,
}

impl Window {
    /// Ends a window in which these I/Os have ended (LG2).
    pub(super) fn end(&mut self, new: Samples) -> Outcome {
        let samples = self.samples.plus(new);
        let nr = samples.nth(0);
        let nr_windows = self.nr_windows + 1;
        if (1..SAMPLES_MIN).contains(&nr) && nr_windows < WINDOWS_MAX {
            *self = Window { samples, nr_windows };
            return Outcome::Kept;
        }
        *self = Window::default();
        samples.outcome()
    }
}

/// The strictest goals of a group of peers that were missed, and just kept, in a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strictest {
    missed_ns: u64,
    kept_ns: u64,
}

impl Strictest {
    pub(super) const NONE: Strictest = Strictest { missed_ns: u64::MAX, kept_ns: u64::MAX };

    /// Adds the outcome of an owner with this goal.
    pub(super) fn add(&mut self, target_ns: u64, outcome: Outcome) {
        match outcome {
            Outcome::Missed => self.missed_ns = self.missed_ns.min(target_ns),
            Outcome::Kept => self.kept_ns = self.kept_ns.min(target_ns),
            Outcome::KeptWell => {}
        }
    }

    /// Returns the worst outcome of the goals that are stricter than that of a peer. `u64::MAX`
    /// stands for no goal.
    pub(super) const fn above(&self, target_ns: u64) -> Outcome {
        if self.missed_ns < target_ns {
            Outcome::Missed
        } else if self.kept_ns < target_ns {
            Outcome::Kept
        } else {
            Outcome::KeptWell
        }
    }
}

/// The depth that the goals of its peers leave an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Depth {
    /// The most outstanding I/Os. 0: no limit.
    pub(super) most: u32,
    /// The number of windows in a row after which it was neither reduced nor raised.
    pub(super) nr_kept: u32,
}

impl Depth {
    /// Takes over the worst outcome of the stricter goals (LG3, LG4), with this full depth.
    pub(super) fn step(&mut self, worst: Outcome, full: u32) {
        match worst {
            Outcome::Missed => {
                let most = if self.most == 0 { full } else { self.most.min(full) };
                *self = Depth { most: (most / 2).max(1), nr_kept: 0 };
            }
            _ if self.most == 0 => {}
            Outcome::Kept if self.nr_kept + 1 < PROBE_WINDOWS => self.nr_kept += 1,
            Outcome::Kept | Outcome::KeptWell => {
                let most = self.most + (full / REGAIN_PART).max(1).min(self.most);
                *self = Depth { most: if most >= full { 0 } else { most }, nr_kept: 0 };
            }
        }
    }
}

#[cfg(all(test, not(blk_loom)))]
mod tests;
