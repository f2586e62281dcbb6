//! Priority classes: with `mq-deadline` a request of a lower class is handed out only if none of a
//! higher class is queued or at the device, unless it has aged (DL4, DL5).
//!
//! The check sees bios, and no tags. A bio of a higher class is at the device, or it is queued for
//! certain: it came to the context before those of the lower class, by the same rules, and was not
//! issued yet. Left out are devices that fail or have time limits, because a request that was
//! handed out earlier may be held back there; disks with owners; and threads that wait for tags.

use super::bios::{BioRow, Bios, Stage, Unit};
use super::cover::Piece;
use super::{Verdict, broken, rules};
use forebay_core::{BioFlags, Policy, SchedulerPolicy};

/// Flags of bios that wait for a tag by rules of their own, or for a flush first.
const SPECIAL: BioFlags = BioFlags::RESERVED
    .union(BioFlags::BACKGROUND)
    .union(BioFlags::NOWAIT)
    .union(BioFlags::PREFLUSH);

/// The classes of the bios in a hardware context.
#[derive(Debug)]
pub(crate) struct Classes {
    /// After which time a request goes before higher classes. `None`: nothing is checked.
    aging_ns: Option<u64>,
    is_certain: bool,
    nr_arrived: u64,
}

impl Classes {
    /// Creates the checker of a disk. `may_retry`: requests may be held back by retries.
    pub(crate) fn new(policy: &Policy, may_retry: bool) -> Classes {
        let is_certain = !may_retry
            && policy.io_timeout_ns == 0
            && policy.nr_hw_queues == 1
            && !policy.emulation.threads_wait_for_tags();
        let mut classes = Classes { aging_ns: None, is_certain, nr_arrived: 0 };
        classes.set(policy);
        classes
    }

    /// Records another scheduler.
    pub(crate) fn set(&mut self, policy: &Policy) {
        let is_on = self.is_certain && policy.scheduler == SchedulerPolicy::MqDeadline;
        self.aging_ns = is_on.then_some(policy.mq_deadline.prio_aging_expire_ns);
    }

    /// Records that the disk has owners.
    pub(crate) fn set_has_owners(&mut self) {
        (self.is_certain, self.aging_ns) = (false, None);
    }

    /// Records that the context lets a bio in.
    pub(crate) fn arrive(&mut self, row: &mut BioRow) {
        self.nr_arrived += 1;
        row.arrival = self.nr_arrived;
    }

    /// Checks a command with data that the driver is offered. `pieces` are the parts of bios in it.
    pub(crate) fn check(&self, pieces: &[Piece], bios: &mut Bios, now: u64) -> Verdict {
        let Some(aging_ns) = self.aging_ns else { return Ok(()) };
        let (mut is_first, mut is_plain) = (true, true);
        let (mut since_ns, mut arrival) = (u64::MAX, u64::MAX);
        for piece in pieces {
            let row = bios.row_mut(piece.slot);
            is_first &= !std::mem::replace(&mut row.was_offered, true);
            is_plain &= !row.flags.intersects(SPECIAL);
            since_ns = since_ns.min(row.queued_ns);
            arrival = arrival.min(row.arrival);
        }
        let Some(first) = pieces.first().map(|piece| bios.row(piece.slot)) else { return Ok(()) };
        if !is_first || now.saturating_sub(since_ns) >= aging_ns {
            return Ok(());
        }
        let class = first.class;
        let is_passed = |row: &&BioRow| {
            let is_there = || (0..row.nr_units()).any(|at| row.unit(at) == Unit::Issued);
            let is_before = is_plain && row.arrival > 0 && row.arrival < arrival;
            let is_queued = || is_before && !row.flags.intersects(SPECIAL) && row.is_untouched();
            // A write may wait for other writes to put their tags (Q9).
            let may_wait = || row.op.is_write() && !first.op.is_write();
            row.class < class
                && row.stage == Stage::Queued
                && row.nr_units() > 0
                && (is_there() || !may_wait() && is_queued())
        };
        match bios.live().find(is_passed) {
            None => Ok(()),
            Some(higher) => {
                let (name, class) = (first.name(), class.name());
                let (other, other_class) = (higher.name(), higher.class.name());
                let what = format!("{name} ({class}) was issued before {other} ({other_class})");
                broken(rules::DL4, what)
            }
        }
    }
}
