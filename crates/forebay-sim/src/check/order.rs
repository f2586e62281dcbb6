//! Order of issue: no bio is overtaken beyond the bound, and a NOWAIT bio does not wait.
//!
//! A hardware context issues bios in the order in which it accepted them. The exceptions:
//! - a NOWAIT bio, which is answered in its turn;
//! - a bio that needs a flush first;
//! - a bio with a tag class of its own: it may use tags that others may not, or the reverse;
//! - on a device that fails, any bio, while a retry of the same place is under way. Hence the
//!   bound.
//!
//! If threads wait for tags instead of their bios, each thread's own bios are in order.

use super::bios::{Bios, Stage, Unit};
use super::{Verdict, broken, rules};
use forebay_core::{BioFlags, Op, Policy, WakePolicy};
use std::collections::{BTreeMap, VecDeque};

/// How many of the newest arrivals a check visits: an overtaking bio is found when it arrives.
const NR_LOOKED_AT: usize = 32;

const FLUSHES: BioFlags = BioFlags::FUA.union(BioFlags::PREFLUSH);

/// Flags of bios with an order of their own.
const CLASSES: BioFlags = BioFlags::RESERVED.union(BioFlags::BACKGROUND);

#[derive(Clone, Copy, Debug)]
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
    /// One of its bios was issued since the last check: only that can break the order.
    is_changed: bool,
}

#[derive(Debug, Default)]
struct Arrivals {
    /// By owner, or a single line for all.
    lines: BTreeMap<usize, Line>,
    /// NOWAIT bios that were accepted for the next turn.
    nowait: Vec<(u32, u64)>,
    /// The lines that have changed, by their keys.
    changed: Vec<usize>,
}

/// The arrivals at all hardware contexts.
#[derive(Debug)]
pub(crate) struct Order {
    hctxs: Vec<Arrivals>,
    bound: u64,
    /// Each owner has a line of its own.
    by_owner: bool,
}

impl Order {
    pub(crate) fn new(policy: &Policy, bound: u64) -> Order {
        Order {
            hctxs: (0..policy.nr_hw_queues).map(|_| Arrivals::default()).collect(),
            bound,
            by_owner: policy.wake != WakePolicy::Fair,
        }
    }

    /// Records that a context accepts a bio.
    pub(crate) fn arrive(&mut self, hctx: usize, slot: u32, bios: &Bios) {
        let row = bios.row(slot);
        let at = self.line_of(row.owner);
        let arrivals = &mut self.hctxs[hctx];
        if row.op == Op::Flush || row.flags.intersects(FLUSHES) {
            return;
        }
        if row.flags.contains(BioFlags::NOWAIT) {
            // If there are retries, a retry may hold back all parts of a split bio.
            if self.bound == 0 || row.units.len() == 1 {
                arrivals.nowait.push((slot, row.serial));
            }
            return;
        }
        if row.flags.intersects(CLASSES) {
            return;
        }
        let line = arrivals.lines.entry(at).or_default();
        line.nr_arrived += 1;
        line.waiting.push_back(Arrival { number: line.nr_arrived, slot, serial: row.serial });
    }

    /// Records that a context issues a part of a bio.
    pub(crate) fn issue(&mut self, hctx: usize, owner: usize) {
        let at = self.line_of(owner);
        let Arrivals { lines, changed, .. } = &mut self.hctxs[hctx];
        if let Some(line) = lines.get_mut(&at)
            && !std::mem::replace(&mut line.is_changed, true)
        {
            changed.push(at);
        }
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
        let check = |line: &mut Line| line.check(self.bound, bios);
        changed.drain(..).try_for_each(|at| lines.get_mut(&at).map_or(Ok(()), check))
    }
}

impl Line {
    fn check(&mut self, bound: u64, bios: &Bios) -> Verdict {
        self.is_changed = false;
        let is_not_waiting = |first: &mut Arrival| !is_waiting(bios, first.slot, first.serial);
        while self.waiting.pop_front_if(is_not_waiting).is_some() {}
        let Some(first) = self.waiting.front() else { return Ok(()) };
        let overtaken_by = self.waiting.iter().rev().take(NR_LOOKED_AT).find(|later| {
            later.number - first.number > bound && was_issued(bios, later.slot, later.serial)
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
    row.serial == serial
        && row.stage == Stage::Queued
        && row.units.iter().any(|unit| matches!(unit, Unit::Issued | Unit::Moved))
}
