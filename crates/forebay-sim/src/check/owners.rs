//! Limits of owners: the I/O that starts in any time is bounded (OW1), from the definition of a
//! limit, so that the check shares no mistake with the layer's buckets.
//!
//! A context accepts a bio, charges its owner at some time after that, and then issues its first
//! command. The check sees the first and the last of these times. For each time `s` at which bios
//! were accepted, it counts the units of bios that were accepted at `s` or later and are issued.
//! All of them were charged since `s`, so they are at most the burst, what the rate gives since
//! `s`, the largest request, and one unit (OL2).
//!
//! Not counted are bios that no limit holds back: those that may have a reserved tag (OW5), those
//! that waited while the device was gone (OW4), and those whose owner was removed.

use super::bios::{BioRow, Bios};
use super::cover::Piece;
use super::{Verdict, broken, rules};
use forebay_core::{BioFlags, Limits, Op, Policy, Rate};

/// The number of rates that an owner may have: I/Os and bytes, for both directions and for each.
const NR_RATES: usize = 6;

/// The parts of an I/O or of a byte. A rate of 1 per second gives one of them in 1 ns, so no sum is
/// rounded.
const PARTS: u128 = 1_000_000_000;

/// The layer counts 4096ths of an I/O, and bytes.
const UNITS_PER_IO: u128 = 4096;

/// The largest number of times `s` of a rate. Every second one is dropped then.
const STARTS_MAX: usize = 256;

/// A rate, and the I/O that has started.
#[derive(Debug)]
struct Started {
    per_s: u128,
    /// The burst and one unit of the layer, in parts.
    burst: u128,
    /// The largest request, in parts.
    largest: u128,
    /// Times, and the parts of the bios that were accepted since then and are issued.
    since: Vec<(u64, u128)>,
}

#[derive(Debug)]
struct CheckedOwner {
    parent: Option<usize>,
    was_removed: bool,
    /// `None` where there is no limit.
    rates: [Option<Started>; NR_RATES],
}

/// A bio that a context has accepted.
#[derive(Clone, Debug, Default)]
struct Accepted {
    hctx: usize,
    serial: u64,
    since_ns: u64,
    /// The owner that will be charged. `None` after that.
    owner: Option<usize>,
}

/// The owners that a disk has or had, by the order in which they were added.
#[derive(Debug)]
pub(crate) struct OwnerLimits {
    has_reserved: bool,
    block_size: u128,
    owners: Vec<CheckedOwner>,
    /// For each hardware context, the owner of each number.
    tables: Vec<Vec<Option<usize>>>,
    /// By box.
    accepted: Vec<Accepted>,
}

impl OwnerLimits {
    pub(crate) fn new(policy: &Policy, block_size: u32) -> OwnerLimits {
        OwnerLimits {
            has_reserved: policy.nr_reserved > 0,
            block_size: block_size.into(),
            owners: Vec::new(),
            tables: vec![Vec::new(); policy.nr_hw_queues as usize],
            accepted: Vec::new(),
        }
    }

    /// Records an owner without limits, and returns its place.
    pub(crate) fn add(&mut self, parent: Option<usize>) -> usize {
        self.owners.push(CheckedOwner { parent, was_removed: false, rates: Default::default() });
        self.owners.len() - 1
    }

    /// Records that an owner was removed. Its bios go on without limits, also without those of its
    /// parents.
    pub(crate) fn remove(&mut self, owner: usize) {
        self.owners[owner].was_removed = true;
        let of_owner = self.accepted.iter_mut().filter(|accepted| accepted.owner == Some(owner));
        of_owner.for_each(|accepted| accepted.owner = None);
    }

    /// Records new limits. Each side of the change is checked by its own limits.
    pub(crate) fn set(&mut self, owner: usize, limits: &Limits) {
        let all = [limits.both, limits.read, limits.write];
        let rates = all.iter().flat_map(|rates| [(rates.iops, true), (rates.bps, false)]);
        for (rate, (limit, is_ios)) in self.owners[owner].rates.iter_mut().zip(rates) {
            *rate = Started::new(limit, is_ios);
        }
    }

    /// Records the owners that a context has from now on, by their numbers.
    pub(crate) fn pass_to(&mut self, hctx: usize, table: &[Option<usize>]) {
        self.tables[hctx].clear();
        self.tables[hctx].extend_from_slice(table);
    }

    /// Records that a context lets a bio in.
    pub(crate) fn accept(&mut self, hctx: usize, slot: u32, row: &BioRow, now: u64) {
        let owner = self.tables[hctx].get(row.limited_by as usize).copied().flatten();
        let Some(owner) = owner else { return };
        let is_reserved = self.has_reserved && row.flags.contains(BioFlags::RESERVED);
        if row.op == Op::Flush || is_reserved || self.owners[owner].was_removed {
            return;
        }
        if self.accepted.len() <= slot as usize {
            self.accepted.resize_with(slot as usize + 1, Accepted::default);
        }
        let accepted = Accepted { hctx, serial: row.serial, since_ns: now, owner: Some(owner) };
        self.accepted[slot as usize] = accepted;
        self.begin(owner, now);
    }

    /// Records a time since which bios are counted.
    fn begin(&mut self, owner: usize, now: u64) {
        let mut level = Some(owner);
        while let Some(owner) = level {
            let CheckedOwner { parent, rates, .. } = &mut self.owners[owner];
            for rate in rates.iter_mut().flatten() {
                if rate.since.last().is_none_or(|(start, _)| *start != now) {
                    rate.begin(now);
                }
            }
            level = *parent;
        }
    }

    /// Records that a freeze is in force: bios that are not issued have not left their owners.
    pub(crate) fn frozen(&mut self, now: u64) {
        for slot in 0..self.accepted.len() {
            let accepted = &mut self.accepted[slot];
            if let Some(owner) = accepted.owner {
                accepted.since_ns = now;
                self.begin(owner, now);
            }
        }
    }

    /// Records that the device is gone for a context: no limit holds back the bios that wait there.
    pub(crate) fn gone(&mut self, hctx: usize) {
        let of_hctx = self.accepted.iter_mut().filter(|accepted| accepted.hctx == hctx);
        of_hctx.for_each(|accepted| accepted.owner = None);
    }

    /// Returns whether a bio that is subject to limits waits in a context.
    pub(crate) fn has_waiting(&self, hctx: usize, bios: &Bios) -> bool {
        let waits = |(slot, accepted): (usize, &Accepted)| {
            let is_there = accepted.hctx == hctx && accepted.owner.is_some();
            is_there && bios.row(slot as u32).serial == accepted.serial
        };
        self.accepted.iter().enumerate().any(waits)
    }

    /// Records and checks that the driver has taken a command. Each bio counts once, with the
    /// whole of its range.
    pub(crate) fn issue(&mut self, pieces: &[Piece], bios: &Bios, now: u64) -> Verdict {
        if self.accepted.is_empty() {
            return Ok(());
        }
        let mut first = Vec::new();
        for piece in pieces {
            let row = bios.row(piece.slot);
            let Some(accepted) = self.accepted.get_mut(piece.slot as usize) else { continue };
            if accepted.serial == row.serial
                && let Some(owner) = accepted.owner.take()
            {
                let bytes = row.nr_units() as u128 * self.block_size;
                first.push((owner, accepted.since_ns, row.op, bytes));
            }
        }
        // A request is charged for all of its bios at once.
        let sum = (first.len() as u128, first.iter().map(|&(.., bytes)| bytes).sum::<u128>());
        for (owner, since_ns, op, bytes) in first {
            let mut level = Some(owner);
            while let Some(at) = level {
                let CheckedOwner { parent, rates, .. } = &mut self.owners[at];
                for (which, rate) in rates.iter_mut().enumerate() {
                    let Some(rate) = rate.as_mut().filter(|_| applies(which, op)) else { continue };
                    let is_ios = which % 2 == 0;
                    let parts = PARTS * if is_ios { 1 } else { bytes };
                    let largest = PARTS * if is_ios { sum.0 } else { sum.1 };
                    rate.largest = rate.largest.max(largest);
                    if let Err((start, nr)) = rate.add(since_ns, parts, now) {
                        let unit = if is_ios { "I/Os" } else { "bytes" };
                        let what = format!(
                            "owner {at}: {nr} {unit} in {} ns, at {} per second; burst {}, \
                             largest request {}",
                            now - start,
                            rate.per_s,
                            rate.burst / PARTS,
                            rate.largest / PARTS,
                        );
                        return broken(rules::OW1, what);
                    }
                }
                level = *parent;
            }
        }
        Ok(())
    }
}

/// Returns whether a rate applies to an operation.
fn applies(which: usize, op: Op) -> bool {
    match which / 2 {
        0 => true,
        1 => op == Op::Read,
        _ => op != Op::Read,
    }
}

impl Started {
    fn new(limit: Rate, is_ios: bool) -> Option<Started> {
        let usual = (limit.per_s / 10).max(if is_ios { 1 } else { 4096 });
        let unit = if is_ios { PARTS.div_ceil(UNITS_PER_IO) } else { PARTS };
        (limit.per_s > 0).then(|| Started {
            per_s: limit.per_s.into(),
            burst: PARTS * u128::from(limit.burst.unwrap_or(usual)) + unit,
            largest: 0,
            since: Vec::new(),
        })
    }

    fn begin(&mut self, now: u64) {
        if self.since.len() == STARTS_MAX {
            let mut nth = 0;
            self.since.retain(|_| {
                nth += 1;
                nth % 2 == 0
            });
        }
        self.since.push((now, 0));
    }

    /// Adds a bio that was accepted at `accepted_ns`. Returns the time since which too much has
    /// started, if there is one, and how much.
    fn add(&mut self, accepted_ns: u64, parts: u128, now: u64) -> Result<(), (u64, u128)> {
        for (start, nr) in &mut self.since {
            if *start > accepted_ns {
                break;
            }
            *nr += parts;
            let limit = self.burst + self.largest + self.per_s * u128::from(now - *start);
            if *nr > limit {
                return Err((*start, *nr / PARTS));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> Started {
        let limit = Rate { per_s: 1000, burst: Some(2) };
        Started { largest: PARTS, ..Started::new(limit, true).expect("a limit") }
    }

    #[test]
    fn burst_rate_and_largest_request_may_start_and_no_more() {
        let mut rate = started();
        rate.begin(5);
        assert!((0..3).all(|_| rate.add(5, PARTS, 5).is_ok()), "two of the burst, and one");
        assert!(rate.add(5, PARTS, 1_000_005).is_ok(), "one per millisecond");
        assert_eq!(rate.add(5, PARTS, 1_000_005), Err((5, 5)));
    }

    #[test]
    fn io_that_waited_before_a_time_does_not_count_since_that_time() {
        let mut rate = started();
        rate.begin(0);
        rate.begin(9_000_000);
        assert!((0..12).all(|_| rate.add(0, PARTS, 9_000_000).is_ok()));
        assert!((0..3).all(|_| rate.add(9_000_000, PARTS, 20_000_000).is_ok()));
        let mut rate = started();
        rate.begin(0);
        rate.begin(9_000_000);
        let mut add = || rate.add(9_000_000, PARTS, 9_000_000);
        assert!((0..3).all(|_| add().is_ok()));
        assert_eq!(add(), Err((9_000_000, 4)), "a pause gives no more than the burst");
    }

    #[test]
    fn many_times_are_thinned_out() {
        let mut rate = started();
        (0..1000).for_each(|now| rate.begin(now));
        assert!(rate.since.len() <= STARTS_MAX && rate.since.is_sorted());
        assert_eq!(rate.since.last(), Some(&(999, 0)));
    }
}
