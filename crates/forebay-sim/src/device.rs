//! The simulated device: a model for the time, and blocks that hold the written data.
//!
//! Each block holds one number, which identifies the bio that wrote it, and the bio's block.

use crate::check::Checks;
use crate::check::bios::{BioRow, Bios};
use crate::check::cover::Piece;
use crate::engine::Engine;
use crate::file::SwarmFile;
use crate::heap::{Event, EventHeap};
use crate::plant::Plant;
use crate::sparse::Sparse;
use crate::trace::Kind;
use forebay_core::{BlockStatus, Durability, Op};
use forebay_model::{FaultRules, Random};

/// The number of writes that are delayed at once, for a planted bug.
const NR_LATE: usize = 8;

/// The device of all hardware contexts.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) engine: Engine,
    /// When a machine's next event is due, if one is in the heap.
    next_event_ns: Option<u64>,
    pub(crate) random: Random,
    blocks: Sparse<Block>,
    /// Delayed writes: a planted bug.
    late: Vec<(u64, u64)>,
    /// The device takes a flush beside other commands.
    is_flush_queueable: bool,
    /// The number of commands that were taken and not done; and whether one of them is a flush.
    nr_taken: u32,
    is_flushing: bool,
    pub(crate) file: Option<SwarmFile>,
    pub(crate) faults: FaultRules,
    /// The number of commands that the device has accepted.
    pub(crate) nr_issued: u64,
    planted: Planted,
}

/// The planted bug of a device. It takes effect in one of `of` chances.
#[derive(Debug)]
pub(crate) struct Planted {
    pub(crate) plant: Option<Plant>,
    pub(crate) of: u32,
    pub(crate) random: Random,
}

/// The present value of a block, and the previous one.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    value: u64,
    before: u64,
}

impl Device {
    pub(crate) fn new(
        engine: Engine,
        random: Random,
        is_flush_queueable: bool,
        file: Option<SwarmFile>,
        faults: FaultRules,
        planted: Planted,
    ) -> Device {
        Device {
            engine,
            next_event_ns: None,
            random,
            blocks: Sparse::default(),
            late: Vec::new(),
            is_flush_queueable,
            nr_taken: 0,
            is_flushing: false,
            file,
            faults,
            nr_issued: 0,
            planted,
        }
    }

    /// Restores the initial state of a device without a machine, and keeps the allocated memory.
    pub(crate) fn reset(&mut self, random: Random) {
        self.random = random;
        self.blocks.all().for_each(|block| *block = Block::default());
        self.late.clear();
        (self.nr_taken, self.is_flushing) = (0, false);
        self.nr_issued = 0;
        self.file.iter_mut().for_each(SwarmFile::reset);
    }

    /// Records a loss if an error of the file was reported before one of its descriptions was
    /// opened (the library's `Claim::check_after_open`). Returns whether there was one.
    pub(crate) fn check_place(&mut self, durability: &Durability, checks: &mut Checks) -> bool {
        let Some(file) = &mut self.file else { return false };
        let Err(status) = file.errors.check_place() else { return false };
        checks.note(Kind::PlaceError, checks.trace.task as u64, 0);
        durability.flush_failed();
        checks.bios.flush_failed(status);
        true
    }

    /// Returns whether the device has a command beside which it does not take this one.
    pub(crate) fn is_busy_with(&self, op: Op) -> bool {
        let is_alone = op == Op::Flush && self.nr_taken > 0;
        !self.is_flush_queueable && (is_alone || self.is_flushing)
    }

    /// Performs the events of a file that may happen at any time.
    pub(crate) fn stir(&mut self, checks: &mut Checks) {
        if let Some(file) = &mut self.file {
            file.stir(&mut self.random, checks);
        }
    }

    /// Records that an event of the machine has happened. Returns whether it is the one that is
    /// due: an earlier one may have replaced it.
    pub(crate) fn event_fired(&mut self, at_ns: u64) -> bool {
        let is_due = self.next_event_ns == Some(at_ns);
        if is_due {
            self.next_event_ns = None;
        }
        is_due
    }

    /// Adds the event of the machine's next completion, unless the heap has one that is no later.
    /// Handling that one adds the next.
    pub(crate) fn schedule_next(&mut self, heap: &mut EventHeap<Event>, now: u64) {
        let Some(at_ns) = self.engine.next_at_ns().map(|at_ns| at_ns.max(now)) else { return };
        let is_first = self.next_event_ns.is_none_or(|next_ns| at_ns < next_ns);
        if is_first && !self.shows(Plant::LoseEvent) {
            self.next_event_ns = Some(at_ns);
            heap.add(at_ns, Event::Machine { at_ns });
        }
    }

    /// Takes a command that a machine has completed: its hardware context, its tag, and its
    /// result.
    pub(crate) fn take_done(
        &mut self,
        now: u64,
    ) -> Option<(usize, usize, Result<u64, BlockStatus>)> {
        self.engine.take_done(now, &mut self.random)
    }

    /// Records that a command is taken.
    pub(crate) fn begin(&mut self, op: Op) {
        self.nr_taken += 1;
        self.is_flushing |= op == Op::Flush;
    }

    /// Records that a command is done.
    pub(crate) fn end(&mut self, op: Op) {
        self.nr_taken -= 1;
        if op == Op::Flush {
            self.is_flushing = false;
        }
    }

    /// Returns whether this bug shows now.
    #[inline]
    pub(crate) fn shows(&mut self, plant: Plant) -> bool {
        let planted = &mut self.planted;
        planted.plant == Some(plant) && planted.random.chance(1, planted.of)
    }

    /// Performs a command for the first `nr_sure` of its blocks, and, unless the result `is_exact`,
    /// for some of the others: a command that fails may have done any part of its work.
    pub(crate) fn apply(
        &mut self,
        op: Op,
        pieces: &[Piece],
        (nr_sure, is_exact): (u64, bool),
        bios: &mut Bios,
    ) {
        if op == Op::Write && self.shows(Plant::LostWrite) {
            return;
        }
        if self.late.len() > NR_LATE {
            let (block, value) = self.late.remove(0);
            self.set(block, value);
        }
        let nr_all: u64 = pieces.iter().map(|piece| piece.nr as u64).sum();
        let torn = op == Op::Write && nr_sure == nr_all && self.shows(Plant::TornWrite);
        let mut nth = 0;
        for piece in pieces {
            for at in 0..piece.nr {
                nth += 1;
                let is_sure = nth <= nr_sure && !(torn && nth == nr_all);
                let is_kept = torn || is_exact || op == Op::Read;
                if !is_sure && (is_kept || self.random.chance(1, 2)) {
                    continue;
                }
                let (unit, block) = (piece.first + at, piece.block + at as u64);
                self.apply_block(op, bios.row_mut(piece.slot), unit, block);
            }
            if op == Op::Discard && self.shows(Plant::WideDiscard) {
                self.set(piece.block + piece.nr as u64, 0);
            }
        }
    }

    fn apply_block(&mut self, op: Op, row: &mut BioRow, unit: usize, block: u64) {
        match op {
            Op::Read => row.values[unit] = self.read(block),
            Op::Write => {
                let beside = self.shows(Plant::MisdirectedWrite);
                match self.shows(Plant::LateWrite) {
                    true => self.late.push((block, row.value(unit))),
                    false => self.set(block + u64::from(beside), row.value(unit)),
                }
            }
            Op::WriteZeroes => self.set(block, row.value(unit)),
            // After a discard the device may return the old or the new contents.
            Op::Discard if self.random.chance(1, 2) => self.set(block, row.value(unit)),
            Op::Discard | Op::Flush => {}
        }
    }

    fn read(&mut self, block: u64) -> u64 {
        if self.shows(Plant::WrongData) {
            return self.random.draw();
        }
        if self.shows(Plant::StaleRead) {
            return self.blocks.at_mut(block).before;
        }
        let block = block + u64::from(self.shows(Plant::MisdirectedRead));
        self.value(block)
    }

    /// Returns the present value of a block.
    pub(crate) fn value(&self, block: u64) -> u64 {
        self.blocks.at(block).map_or(0, |block| block.value)
    }

    fn set(&mut self, block: u64, value: u64) {
        let block = self.blocks.at_mut(block);
        block.before = block.value;
        block.value = value;
    }
}
