//! Depths that latency goals leave owners: no owner has more requests in flight than its depth
//! (OW7).
//!
//! The depths themselves are those of the layer; the check counts the requests. A request leaves
//! the queue of its owner at a time that the checker does not see, between its acceptance and its
//! first command. Consider the requests of an owner that have had a command and have not ended. The
//! last one to leave left after the newest one was accepted, and all others had left by then. So
//! their number was at most the depth of that moment. When a request is issued, the number is
//! compared with the largest depth since its acceptance.
//!
//! A depth changes in turns only, before requests leave. So it is read at each first command and
//! after each turn. Not counted are requests that no limit holds back, as in
//! [`owners`](super::owners), those that may have left while no owner had a goal, and those with a
//! command that has completed. Disks with time limits are not checked, because bios that are given
//! up (H5) end within the turn that lets others go.

use super::bios::{BioRow, Bios};
use super::cover::Piece;
use super::{Verdict, broken, rules};
use forebay_core::{BioFlags, Op, Owner, Owners, Policy};
use std::sync::Arc;

/// The place of I/O without an owner.
const UNOWNED: usize = usize::MAX;

/// An owner, or one above it, of a bio that waits: its place, and its largest depth since the bio
/// was accepted. `u32::MAX`: no limit.
type Level = (usize, u32);

/// A bio that a context has accepted, and that has had no command.
#[derive(Clone, Debug)]
struct Waiting {
    hctx: usize,
    slot: u32,
    serial: u64,
    levels: Vec<Level>,
}

/// The first bio of a request that was issued and has not ended.
#[derive(Clone, Debug)]
struct Issued {
    hctx: usize,
    slot: u32,
    owners: Vec<usize>,
}

/// The owners that a context has, by number.
#[derive(Clone, Debug, Default)]
struct Table {
    places: Vec<Option<usize>>,
    has_goals: bool,
}

/// The depths of all owners that a disk has or had, and the requests that they limit.
#[derive(Debug)]
pub(crate) struct OwnerDepths {
    is_off: bool,
    has_reserved: bool,
    /// The owners and the places of their parents. `None` if the owner was removed.
    owners: Vec<(Option<Arc<Owner>>, Option<usize>)>,
    /// For the depth of I/O without an owner.
    list: Owners,
    tables: Vec<Table>,
    waiting: Vec<Waiting>,
    issued: Vec<Issued>,
}

impl OwnerDepths {
    pub(crate) fn new(policy: &Policy) -> OwnerDepths {
        OwnerDepths {
            is_off: policy.io_timeout_ns > 0,
            has_reserved: policy.nr_reserved > 0,
            owners: Vec::new(),
            list: Owners::new(),
            tables: vec![Table::default(); policy.nr_hw_queues as usize],
            waiting: Vec::new(),
            issued: Vec::new(),
        }
    }

    /// Records an owner, which gets the next place.
    pub(crate) fn add(&mut self, owner: &Arc<Owner>, parent: Option<usize>) {
        self.owners.push((Some(Arc::clone(owner)), parent));
    }

    /// Records that an owner was removed. Its requests are not counted any more.
    pub(crate) fn remove(&mut self, owner: usize) {
        self.owners[owner].0 = None;
        self.waiting.retain(|waiting| waiting.levels.iter().all(|(at, _)| *at != owner));
        self.issued.retain(|issued| !issued.owners.contains(&owner));
    }

    /// Records the owners that a context has from now on.
    pub(crate) fn pass_to(&mut self, hctx: usize, places: &[Option<usize>], list: &Owners) {
        let has_goals = list.iter().any(|owner| owner.limits().latency_target_us > 0);
        self.tables[hctx] = Table { places: places.to_vec(), has_goals };
        self.list = list.clone();
        if !has_goals {
            self.waiting.retain(|waiting| waiting.hctx != hctx);
        }
    }

    /// Records that a context lets a bio in.
    pub(crate) fn accept(&mut self, hctx: usize, slot: u32, row: &BioRow) {
        let table = &self.tables[hctx];
        let is_reserved = self.has_reserved && row.flags.contains(BioFlags::RESERVED);
        if self.is_off || !table.has_goals || row.op == Op::Flush || is_reserved {
            return;
        }
        let place = table.places.get(row.limited_by as usize).copied().flatten();
        let mut level = Some(place.unwrap_or(UNOWNED));
        let mut levels = Vec::new();
        while let Some(at) = level {
            levels.push((at, self.depth(at)));
            level = self.owners.get(at).and_then(|(_, parent)| *parent);
        }
        self.waiting.retain(|waiting| waiting.slot != slot);
        self.waiting.push(Waiting { hctx, slot, serial: row.serial, levels });
    }

    /// Returns the depth of an owner. `u32::MAX`: no limit.
    fn depth(&self, owner: usize) -> u32 {
        let depth = match self.owners.get(owner) {
            Some((Some(owner), _)) => owner.stats().depth,
            Some((None, _)) => None,
            None => self.list.depth_of_unowned(),
        };
        depth.unwrap_or(u32::MAX)
    }

    /// Reads all depths.
    pub(crate) fn read(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        for (at, most) in waiting.iter_mut().flat_map(|waiting| &mut waiting.levels) {
            *most = self.depth(*at).max(*most);
        }
        self.waiting = waiting;
    }

    /// Records that the device is gone for a context: no depth holds back the bios that wait there.
    pub(crate) fn gone(&mut self, hctx: usize) {
        self.waiting.retain(|waiting| waiting.hctx != hctx);
    }

    /// Records that a bio has ended.
    pub(crate) fn end(&mut self, slot: u32) {
        self.waiting.retain(|waiting| waiting.slot != slot);
        self.issued.retain(|issued| issued.slot != slot);
    }

    /// Records that a command has completed: its bios may end in this turn, before others leave.
    pub(crate) fn complete(&mut self, pieces: &[Piece]) {
        let is_done = |issued: &Issued| pieces.iter().any(|piece| piece.slot == issued.slot);
        self.issued.retain(|issued| !is_done(issued));
    }

    /// Records and checks that the driver has taken a command, or has refused it for good.
    pub(crate) fn issue(&mut self, pieces: &[Piece], bios: &Bios, is_refused: bool) -> Verdict {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.read();
        let mut first = None;
        for piece in pieces {
            let serial = bios.row(piece.slot).serial;
            let is_new = |waiting: &Waiting| (waiting.slot, waiting.serial) == (piece.slot, serial);
            if let Some(at) = self.waiting.iter().position(is_new) {
                let waiting = self.waiting.swap_remove(at);
                first.get_or_insert(waiting);
            }
        }
        let Some(Waiting { hctx, slot, levels, .. }) = first.filter(|_| !is_refused) else {
            return Ok(());
        };
        let owners = levels.iter().map(|(at, _)| *at).collect();
        self.issued.push(Issued { hctx, slot, owners });
        for (owner, most) in levels {
            let of_owner = |issued: &&Issued| issued.hctx == hctx && issued.owners.contains(&owner);
            let nr = self.issued.iter().filter(of_owner).count();
            if nr > most as usize {
                let what = format!("context {hctx}, owner {owner}: {nr} requests of {most}");
                return broken(rules::OW7, what);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bio_that_waits_has_the_largest_depth_of_its_time() {
        let mut list = Owners::with_goal_windows(1);
        let goal = list.add("goal", None, 0).expect("a new name");
        let mut limits = forebay_core::Limits::default();
        limits.latency_target_us = 1;
        goal.set_limits(&limits, 0).expect("no other change");
        let mut depths = OwnerDepths::new(&Policy::default());
        depths.add(&goal, None);
        depths.pass_to(0, &[None, Some(0)], &list);
        assert!(depths.tables[0].has_goals);
        assert_eq!([depths.depth(0), depths.depth(UNOWNED)], [u32::MAX; 2]);
        depths.waiting.push(Waiting { hctx: 0, slot: 3, serial: 1, levels: vec![(UNOWNED, 2)] });
        depths.read();
        assert_eq!(depths.waiting[0].levels, [(UNOWNED, u32::MAX)], "there is no limit now");
        depths.end(3);
        assert!(depths.waiting.is_empty());
        limits.latency_target_us = 0;
        goal.set_limits(&limits, 0).expect("no other change");
        depths.pass_to(0, &[None, Some(0)], &list);
        assert!(!depths.tables[0].has_goals);
    }
}
