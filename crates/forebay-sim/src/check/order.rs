//! Order of issue: no bio is overtaken beyond the bound, and a NOWAIT bio does not wait.
//!
//! A hardware context issues bios in the order in which it accepted them. The exceptions:
//! - a NOWAIT bio, which is answered in its turn;
//! - a bio that needs a flush first;
//! - a bio with a tag class of its own: it may use tags that others may not, or the reverse;
//! - on a device that fails, any bio, while a retry of the same place is under way. Hence the
//!   bound;
//! - after a command was given up, bios of a merged request that is taken apart (H6).
//!
//! If threads wait for tags instead of their bios, each thread's own bios are in order. A scheduler
//! has an order of its own, so disks with one are not checked here. Nor are those with owners,
//! except for NOWAIT bios: limits and weights decide about the others.

use super::bios::{Bios, Stage};
use super::{Verdict, broken, rules};
use forebay_core::{BioFlags, Op, Policy};
use std::collections::VecDeque;

const FLUSHES: BioFlags = BioFlags::FUA.union(BioFlags::PREFLUSH);

/// Flags of bios with an order of their own.
const CLASSES: BioFlags = BioFlags::RESERVED.union(BioFlags::BACKGROUND);

/// A bio in a line. The number is its place in the order of arrival, from 1.
#[derive(Clone, Copy, Debug, Default)]
struct Arrival {
    number: u64,
    slot: u32,
    serial: u64,
}

#[derive(Debug, Default)]
struct Line {
    /// Bios that were accepted and not issued as far as is known; after a check the first is
    /// certainly not issued.
    waiting: VecDeque<Arrival>,
    nr_arrived: u64,
    /// Its bios that were issued since the last check: only they can have overtaken others.
    issued: Vec<Arrival>,
}

#[derive(Debug, Default)]
struct Arrivals {
    /// By owner, or a single line for all.
    lines: Vec<Line>,
    /// NOWAIT bios that were accepted for the next turn.
    nowait: Vec<(u32, u64)>,
    /// The lines in which bios were issued.
    changed: Vec<usize>,
}

/// The arrivals at all hardware contexts.
#[derive(Debug)]
pub(crate) struct Order {
    hctxs: Vec<Arrivals>,
    /// By box: the last arrival.
    of_slot: Vec<Arrival>,
    bound: u64,
    /// Each owner has a line of its own.
    by_owner: bool,
    is_scheduled: bool,
    has_owners: bool,
}

impl Order {
    pub(crate) fn new(policy: &Policy, bound: u64) -> Order {
        Order {
            hctxs: (0..policy.nr_hw_queues).map(|_| Arrivals::default()).collect(),
            of_slot: Vec::new(),
            bound,
            by_owner: policy.emulation.threads_wait_for_tags(),
            is_scheduled: !policy.scheduler.is_none(),
            has_owners: false,
        }
    }

    /// Allows so many bios to overtake another one from now on.
    pub(crate) fn allow(&mut self, bound: u64) {
        self.bound = self.bound.max(bound);
    }

    /// Checks no order from now on: a scheduler may be chosen.
    pub(crate) fn leave_out(&mut self) {
        self.is_scheduled = true;
    }

    /// Records that the disk has owners.
    pub(crate) fn set_has_owners(&mut self) {
        self.has_owners = true;
    }

    /// Records that a context accepts a bio.
    pub(crate) fn arrive(&mut self, hctx: usize, slot: u32, bios: &Bios) {
        let row = bios.row(slot);
        let at = self.line_of(row.owner);
        let arrivals = &mut self.hctxs[hctx];
        if self.is_scheduled || row.op == Op::Flush || row.flags.intersects(FLUSHES) {
            return;
        }
        if row.flags.contains(BioFlags::NOWAIT) {
            // If there are retries, a retry may hold back all parts of a split bio.
            if self.bound == 0 || row.nr_units() == 1 {
                arrivals.nowait.push((slot, row.serial));
            }
            return;
        }
        if row.flags.intersects(CLASSES) || self.has_owners {
            return;
        }
        if arrivals.lines.len() <= at {
            arrivals.lines.resize_with(at + 1, Line::default);
        }
        let line = &mut arrivals.lines[at];
        line.nr_arrived += 1;
        let arrival = Arrival { number: line.nr_arrived, slot, serial: row.serial };
        line.waiting.push_back(arrival);
        if self.of_slot.len() <= slot as usize {
            self.of_slot.resize(slot as usize + 1, Arrival::default());
        }
        self.of_slot[slot as usize] = arrival;
    }

    /// Records that a context issues a part of a bio.
    pub(crate) fn issue(&mut self, hctx: usize, slot: u32, bios: &Bios) {
        let row = bios.row(slot);
        let at = self.line_of(row.owner);
        let arrival = self.of_slot.get(slot as usize).filter(|last| last.serial == row.serial);
        let Some(&arrival) = arrival else { return };
        let Arrivals { lines, changed, .. } = &mut self.hctxs[hctx];
        let Some(line) = lines.get_mut(at) else { return };
        if line.issued.is_empty() {
            changed.push(at);
        }
        line.issued.push(arrival);
    }

    fn line_of(&self, owner: usize) -> usize {
        if self.by_owner { owner } else { 0 }
    }

    /// Checks the order after a turn.
    pub(crate) fn turned(&mut self, hctx: usize, bios: &Bios) -> Verdict {
        let Arrivals { lines, nowait, changed } = &mut self.hctxs[hctx];
        for (slot, serial) in nowait.drain(..) {
            if is_waiting(bios, slot, serial) {
                let what = format!("bio {serial} is neither ended nor issued after its turn");
                return broken(rules::NOWAIT, what);
            }
        }
        changed.drain(..).try_for_each(|at| lines[at].check(self.bound, bios))
    }
}

impl Line {
    fn check(&mut self, bound: u64, bios: &Bios) -> Verdict {
        while let Some(first) = self.waiting.front()
            && !is_waiting(bios, first.slot, first.serial)
        {
            self.waiting.pop_front();
        }
        let mut issued = self.issued.drain(..);
        let Some(first) = self.waiting.front() else { return Ok(()) };
        let overtaken_by = issued.find(|later| {
            later.number.saturating_sub(first.number) > bound
                && was_issued(bios, later.slot, later.serial)
        });
        match overtaken_by {
            Some(later) => {
                let (first, later) = (first.serial, later.serial);
                let what =
                    format!("bio {first} waits, and bio {later}, which came after, does not");
                broken(rules::T8, what)
            }
            None => Ok(()),
        }
    }
}

fn is_waiting(bios: &Bios, slot: u32, serial: u64) -> bool {
    let row = bios.row(slot);
    row.serial == serial && row.stage == Stage::Queued && row.is_untouched()
}

fn was_issued(bios: &Bios, slot: u32, serial: u64) -> bool {
    let row = bios.row(slot);
    row.serial == serial && row.stage == Stage::Queued && row.is_sent()
}
