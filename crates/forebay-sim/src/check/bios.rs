//! Every bio ends exactly once, at its owner, with its own status and length.
//!
//! The checker keeps the state of each block of each bio in the layer: not at the driver, at the
//! driver, transferred, or failed with a status. The first block that was not transferred therefore
//! determines the only right result of the bio.

mod row;

use super::given_up::GivenUp;
use super::register::Register;
use super::{Verdict, broken, rules};
use forebay_core::{Bio, BioFlags, BlockStatus, Op, QueuedBio};
use std::collections::VecDeque;

pub(crate) use row::{BioRow, OFFSET_BITS, SLOT_SHIFT, Stage, Unit, split_value};

/// All boxes.
#[derive(Debug)]
pub(crate) struct Bios {
    /// The first `nr_rows` are boxes. The others are memory for new ones.
    rows: Vec<BioRow>,
    nr_rows: usize,
    block_size: u64,
    /// A logical clock that orders the starts and ends of bios.
    clock: u64,
    serial: u64,
    /// Boxes in the order of queueing, with the serials of their bios, beginning with the oldest
    /// bio in the layer.
    line: VecDeque<(u32, u64)>,
    /// Boxes of bios in the layer that have a range and no memory. No two of the ranges overlap.
    ranges: Vec<u32>,
    /// By status: when a flush last failed, and when any command last failed. `offline_at` is when
    /// the device was last known to be gone.
    flush_failed_at: [u64; BlockStatus::ALL.len()],
    failed_at: [u64; BlockStatus::ALL.len()],
    /// When a command last transferred nothing.
    none_at: u64,
    offline_at: u64,
    /// Whether requests have a time limit.
    has_time_limit: bool,
    given_up: GivenUp,
    pub(crate) nr_ended: u64,
    pub(crate) nr_blocks_read: u64,
}

impl Bios {
    /// Returns no boxes. `rows` is memory for them.
    pub(crate) fn new(block_size: u32, has_time_limit: bool, rows: Vec<BioRow>) -> Bios {
        Bios {
            rows,
            nr_rows: 0,
            block_size: block_size.into(),
            clock: 1,
            serial: 0,
            line: VecDeque::new(),
            ranges: Vec::new(),
            flush_failed_at: [0; BlockStatus::ALL.len()],
            failed_at: [0; BlockStatus::ALL.len()],
            none_at: 0,
            offline_at: 0,
            has_time_limit,
            given_up: GivenUp::default(),
            nr_ended: 0,
            nr_blocks_read: 0,
        }
    }

    /// Frees all boxes and restarts the serials. Keeps the allocated memory.
    pub(crate) fn reset(&mut self) {
        self.rows.iter_mut().for_each(|row| row.stage = Stage::Free);
        self.line.clear();
        self.ranges.clear();
        (self.clock, self.serial) = (1, 0);
        self.flush_failed_at.fill(0);
        self.failed_at.fill(0);
        (self.none_at, self.offline_at) = (0, 0);
        self.given_up.clear();
        (self.nr_ended, self.nr_blocks_read) = (0, 0);
    }

    /// Adds a free box of `owner` and returns its number.
    pub(crate) fn new_row(&mut self, owner: usize) -> u32 {
        if self.nr_rows == self.rows.len() {
            self.rows.push(BioRow::default());
        }
        self.rows[self.nr_rows].renew(owner);
        self.nr_rows += 1;
        self.nr_rows as u32 - 1
    }

    /// Returns the memory of all boxes.
    pub(crate) fn take_memory(&mut self) -> Vec<BioRow> {
        self.nr_rows = 0;
        std::mem::take(&mut self.rows)
    }

    #[inline]
    pub(crate) fn row(&self, slot: u32) -> &BioRow {
        &self.rows[..self.nr_rows][slot as usize]
    }

    #[inline]
    pub(crate) fn row_mut(&mut self, slot: u32) -> &mut BioRow {
        &mut self.rows[slot as usize]
    }

    /// Returns the boxes of the bios that are in the layer, and maybe some that have ended.
    pub(crate) fn live(&self) -> impl Iterator<Item = &BioRow> {
        let is_same = |(slot, serial): &&(u32, u64)| self.row(*slot).serial == *serial;
        self.line.iter().filter(is_same).map(|(slot, _)| self.row(*slot))
    }

    /// Returns the number of bios that are not with their owners.
    pub(crate) fn nr_live(&self) -> usize {
        self.rows[..self.nr_rows].iter().filter(|row| row.stage != Stage::Free).count()
    }

    /// Returns whether a bio without memory may be queued. Only its range identifies such a bio.
    pub(crate) fn is_range_free(&self, block: u64, nr: u64) -> bool {
        self.ranges.iter().all(|&slot| {
            let row = self.row(slot);
            block >= row.block + row.units.len() as u64 || row.block >= block + nr
        })
    }

    /// Returns the bio without memory whose range includes this one.
    pub(crate) fn of_range(&self, op: Op, block: u64, nr: u64) -> Option<u32> {
        self.ranges.iter().copied().find(|&slot| {
            let row = self.row(slot);
            let end = row.block + row.units.len() as u64;
            row.op == op && row.block <= block && block + nr <= end
        })
    }

    /// Records that a bio enters the layer.
    pub(crate) fn queue(&mut self, slot: u32, bio: &Bio, now: u64, register: &mut Register) {
        self.clock += 1;
        self.serial += 1;
        let (clock, serial, size) = (self.clock, self.serial, self.block_size);
        let row = &mut self.rows[slot as usize];
        assert!(row.stage == Stage::Free, "a box is filled when it is free");
        row.stage = Stage::Queued;
        (row.serial, row.op, row.flags, row.block) = (serial, bio.op, bio.flags, bio.start / size);
        (row.queued_at, row.queued_ns, row.is_cut) = (clock, now, false);
        (row.is_given_up, row.is_kept) = (false, false);
        (row.is_tried, row.limited_by) = (false, bio.origin.owner());
        row.class = bio.origin.priority().class();
        (row.arrival, row.was_offered) = (0, false);
        row.set_idle((bio.len / size) as usize);
        row.values.clear();
        row.values.resize(if bio.op == Op::Read { row.units.len() } else { 0 }, u64::MAX);
        if bio.op.is_write() {
            let oldest = self.line.front().map_or(clock, |&(slot, _)| {
                let oldest = &self.rows[slot as usize];
                oldest.queued_at
            });
            let row = &self.rows[slot as usize];
            for unit in 0..row.units.len() {
                register.begin_write(row.block + unit as u64, row.value(unit), clock, oldest);
            }
            if bio.op != Op::Write {
                self.ranges.push(slot);
            }
        }
        self.line.push_back((slot, serial));
    }

    /// Removes a bio that the layer refused, with all its traces.
    pub(crate) fn refuse(&mut self, slot: u32, register: &mut Register) {
        let row = &self.rows[slot as usize];
        if row.op.is_write() {
            for unit in 0..row.units.len() {
                register.forget_write(row.block + unit as u64, row.value(unit));
            }
        }
        self.free(slot);
    }

    /// Records that blocks go to the driver.
    #[inline]
    pub(crate) fn issue(&mut self, slot: u32, units: std::ops::Range<usize>) -> Verdict {
        let row = &mut self.rows[slot as usize];
        row.is_cut |= units.len() < row.units.len();
        let is_queued = row.stage == Stage::Queued;
        if !is_queued || row.is_sent() {
            let is_there = |unit: &Unit| matches!(unit, Unit::Moved | Unit::Issued);
            let wrong = units.clone().find(|&at| !is_queued || is_there(&row.units[at]));
            if let Some(at) = wrong {
                let (name, stage, unit) = (row.name(), row.stage, row.units[at]);
                let what = format!("block {at} of {name}, which is {stage:?}, was {unit:?}");
                return broken(rules::ISSUED_ONCE, what);
            }
        }
        row.set(units, Unit::Issued);
        Ok(())
    }

    /// Records that the driver has completed blocks.
    #[inline]
    pub(crate) fn complete(&mut self, slot: u32, units: std::ops::Range<usize>, to: Unit) {
        self.rows[slot as usize].set(units, to);
    }

    pub(crate) fn failed(&mut self, op: Op, status: BlockStatus) {
        self.clock += 1;
        self.failed_at[status as usize] = self.clock;
        if op == Op::Flush {
            self.flush_failed_at[status as usize] = self.clock;
        }
    }

    /// Returns whether a command that counts as a flush has failed.
    pub(crate) fn has_flush_failed(&self) -> bool {
        self.flush_failed_at.iter().any(|&at| at > 0)
    }

    /// Records the failure of a command that counts as a flush.
    pub(crate) fn flush_failed(&mut self, status: BlockStatus) {
        self.clock += 1;
        self.flush_failed_at[status as usize] = self.clock;
    }

    pub(crate) fn moved_none(&mut self) {
        self.clock += 1;
        self.none_at = self.clock;
    }

    /// Records that the layer has noticed the loss of the device.
    pub(crate) fn offline(&mut self) {
        self.clock += 1;
        self.offline_at = self.clock;
    }

    /// Records that a command with blocks of a bio is given up. Returns whether the bio may end
    /// before the command (H5).
    pub(crate) fn give_up(&mut self, slot: u32) -> bool {
        let row = &mut self.rows[slot as usize];
        row.is_given_up |= row.is_owned();
        row.is_given_up
    }

    /// Records that a command that may change or sync the device is given up.
    pub(crate) fn block(&mut self, ranges: impl Iterator<Item = (u64, u64)>) {
        self.given_up.add(ranges);
    }

    /// Records that such a command has completed.
    pub(crate) fn unblock(&mut self, ranges: impl Iterator<Item = (u64, u64)>) {
        self.clock += 1;
        let oldest = self.line.front().map(|&(slot, _)| self.rows[slot as usize].queued_at);
        self.given_up.complete(ranges, self.clock, oldest.unwrap_or(self.clock - 1));
    }

    /// Checks that a bio has ended after its command was given up, if one command had all of it
    /// (H5).
    pub(crate) fn check_given_up(&self, slot: u32) -> Verdict {
        let row = self.row(slot);
        match row.stage == Stage::Queued && !row.is_cut {
            true => broken(rules::H5, format!("{} has not ended", row.name())),
            false => Ok(()),
        }
    }

    /// Records and checks the end of a bio. `is_early` if the driver has it.
    pub(crate) fn end(
        &mut self,
        bio: &QueuedBio,
        is_early: bool,
        register: &mut Register,
    ) -> Verdict {
        self.clock += 1;
        self.nr_ended += 1;
        let slot = bio.number();
        let row = &mut self.rows[slot as usize];
        if row.stage != Stage::Queued || row.serial != bio.bio().user_data {
            let what = format!("{} ended, and was {:?}", row.name(), row.stage);
            return broken(rules::ENDS_ONCE, what);
        }
        (row.stage, row.is_kept) = (Stage::Ended, is_early);
        let row = &self.rows[slot as usize];
        self.check_result(row, bio.result())?;
        if row.flags.contains(BioFlags::NOWAIT) {
            check_nowait(row, bio)?;
        }
        let (queued_at, clock) = (row.queued_at, self.clock);
        let is_done = row.op != Op::Discard && bio.result().is_ok();
        for (at, unit) in row.units.iter().enumerate() {
            let block = row.block + at as u64;
            if row.op.is_write() {
                register.end_write(block, row.value(at), is_done, clock);
            } else if *unit == Unit::Moved {
                self.nr_blocks_read += 1;
                register.end_read(block, row.values[at], queued_at, clock, row.serial)?;
            }
        }
        Ok(())
    }

    /// Checks that the result follows from the first block that was not transferred.
    fn check_result(&self, row: &BioRow, result: Result<u64, BlockStatus>) -> Verdict {
        let first = row.units.iter().position(|unit| *unit != Unit::Moved);
        let at = first.unwrap_or(row.units.len());
        if row.is_given_up && result == Err(BlockStatus::Timeout) {
            return Ok(());
        }
        let is_right = match (first.map(|at| row.units[at]), result) {
            (Some(Unit::Issued), _) => {
                let what = format!("block {at} of {}, which ended", row.name());
                return broken(rules::K2, what);
            }
            (None | Some(Unit::EndOfFile), Ok(len)) => len == at as u64 * self.block_size,
            (Some(Unit::Failed(last)), Err(status)) if status == last => true,
            // E1, E3: a failure that ends one of the bios retried one by one may end those behind
            // it.
            (Some(Unit::Failed(last)), Ok(len)) => {
                let is_left = last.may_be_of_one_bio() && row.op == Op::Read;
                is_left && self.none_at > row.queued_at && len == at as u64 * self.block_size
            }
            (unit, Err(status)) => self.may_fail(row, unit, status),
            (_, Ok(_)) => false,
        };
        if is_right {
            return Ok(());
        }
        let what = format!("{} ended with {result:?}; its blocks: {:?}", row.name(), row.units);
        // A bio that waits for a flush fails, and no command for its bytes has.
        let flushes = BioFlags::FUA.union(BioFlags::PREFLUSH);
        let has_flush = row.op == Op::Flush || row.flags.intersects(flushes);
        let has_failed = row.units.iter().any(|unit| matches!(unit, Unit::Failed(_)));
        match has_flush && !has_failed && result.is_err() {
            true => broken(rules::F3, what),
            false => broken(rules::OWN_RESULT, what),
        }
    }

    /// Returns whether a bio may fail with a status that no command for its bytes had.
    fn may_fail(&self, row: &BioRow, unit: Option<Unit>, status: BlockStatus) -> bool {
        let flushes = BioFlags::FUA.union(BioFlags::PREFLUSH);
        let has_flush = row.op == Op::Flush || row.flags.intersects(flushes);
        let failed_at = self.flush_failed_at[status as usize];
        if has_flush && failed_at > row.queued_at {
            return true;
        }
        // H4: an overdue flush, whatever its own status was. F3: one after a flush that was given
        // up.
        let has_newly_failed = || self.flush_failed_at.iter().any(|&at| at > row.queued_at);
        let is_overdue = self.has_time_limit && status == BlockStatus::Timeout;
        let is_blocked = || self.given_up.any(row.queued_at);
        if has_flush && is_overdue && (has_newly_failed() || is_blocked()) {
            return true;
        }
        // Writes that an earlier flush has lost are lost for every flush that covers them.
        let has_failed = self.flush_failed_at.iter().any(|&at| at > 0) || self.offline_at > 0;
        if has_flush && status == BlockStatus::Io && has_failed {
            return true;
        }
        match status {
            BlockStatus::Offline => {
                // This status may also replace a retry.
                let is_left = matches!(unit, Some(Unit::Idle | Unit::Failed(_)));
                let nr = row.units.len() as u64;
                (has_flush || is_left) && self.offline_at > row.queued_at
                    || is_left && self.given_up.overlap(row.block, nr, row.queued_at)
            }
            BlockStatus::Again | BlockStatus::NotSupported
                if row.flags.contains(BioFlags::NOWAIT) && row.is_undone() =>
            {
                true
            }
            // E3: while the bios of a request are retried one by one, a failure that belongs to no
            // single bio ends the remaining ones.
            _ => {
                let was_left = matches!(unit, Some(Unit::Failed(last)) if last.may_be_of_one_bio());
                let failed = self.failed_at[status as usize] > row.queued_at;
                let stuck = self.none_at > row.queued_at && status == BlockStatus::Io;
                was_left && (!status.may_be_of_one_bio() && failed || stuck)
            }
        }
    }

    /// Records that the owner has its bio again.
    pub(crate) fn reap(&mut self, slot: u32, by: usize) -> Verdict {
        let row = &self.rows[slot as usize];
        if row.stage != Stage::Ended || row.owner != by {
            let what = format!("{} came to task {by} while {:?}", row.name(), row.stage);
            return broken(rules::COMES_BACK, what);
        }
        self.free(slot);
        Ok(())
    }

    fn free(&mut self, slot: u32) {
        let row = &mut self.rows[slot as usize];
        row.stage = Stage::Free;
        if row.op.is_write() && row.op != Op::Write {
            self.ranges.retain(|&other| other != slot);
        }
        while let Some(&(slot, serial)) = self.line.front() {
            let row = &self.rows[slot as usize];
            if row.stage != Stage::Free && row.serial == serial {
                break;
            }
            self.line.pop_front();
        }
    }

    /// Returns the serial of the bio that is queued next.
    pub(crate) fn next_serial(&self) -> u64 {
        self.serial + 1
    }
}

/// Checks that a bio that ended with `Again` did nothing, and that it never waited for a tag.
fn check_nowait(row: &BioRow, bio: &QueuedBio) -> Verdict {
    let again = matches!(bio.result(), Err(BlockStatus::Again));
    if again && !row.is_undone() {
        let what = format!("{} ended with Again; its blocks: {:?}", row.name(), row.units);
        return broken(rules::NOWAIT_UNDONE, what);
    }
    // If a bio is split, one part may wait for a busy driver after another was issued or refused.
    match bio.tag_wait() {
        Some(_) if !row.is_cut && row.units.len() == 1 => broken(rules::NOWAIT, row.name()),
        _ => Ok(()),
    }
}
