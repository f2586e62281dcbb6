//! Contents of a toy disk: sectors that hold one value each, and commands that fail.
//!
//! A command takes effect when it begins or when it completes. Commands complete in a random order.
//! One that fails may have changed any part of its range.

use super::{AtDevice, Page};
use forebay_core::{BlockStatus, Op, QueueLimits};
use forebay_model::Random;

/// The length of a sector, in bytes.
const SECTOR: usize = 512;

/// Returns the result of a command that begins: operation, first byte, bytes.
pub(crate) type Decide = Box<dyn FnMut(Op, u64, u64) -> Result<u64, BlockStatus> + Send>;

/// The contents of a toy disk.
pub(crate) struct Contents {
    sectors: Vec<u64>,
    random: Random,
    decide: Decide,
    takes_flush_alone: bool,
    /// The number of commands that were taken and have not completed; and whether one of them is a
    /// flush.
    nr_taken: u32,
    is_flushing: bool,
    /// The next command to complete is the one of the lowest rank, and not a random one. So some
    /// commands take much longer than others.
    by_rank: bool,
}

impl Contents {
    /// Creates empty sectors, as many as the limits have.
    pub(crate) fn new(limits: &QueueLimits, mut random: Random, decide: Decide) -> Contents {
        let nr = limits.capacity_bytes.unwrap_or(0) as usize / SECTOR;
        Contents {
            sectors: vec![0; nr],
            by_rank: random.chance(1, 2),
            random,
            decide,
            takes_flush_alone: !limits.flush_queueable,
            nr_taken: 0,
            is_flushing: false,
        }
    }

    /// Takes a command, unless the device has one beside which it does not.
    pub(super) fn take(&mut self, op: Op) -> bool {
        let is_flush = op == Op::Flush;
        if self.takes_flush_alone && (self.is_flushing || is_flush && self.nr_taken > 0) {
            return false;
        }
        self.nr_taken += 1;
        self.is_flushing |= is_flush;
        true
    }

    /// Begins a command, and decides its result.
    pub(super) fn begin(&mut self, rq: &mut AtDevice) {
        rq.result = (self.decide)(rq.op, rq.start, rq.len);
        rq.rank = self.random.draw();
        if self.random.chance(1, 2) {
            self.apply(rq);
        }
    }

    /// Draws the command that completes next.
    pub(super) fn pick(&mut self, at_device: &[AtDevice]) -> usize {
        let ranks = at_device.iter().enumerate().map(|(at, rq)| (rq.rank, at));
        match ranks.min() {
            Some((_, at)) if self.by_rank => at,
            _ => self.random.below(at_device.len() as u64) as usize,
        }
    }

    /// Completes a command.
    pub(super) fn complete(&mut self, rq: &mut AtDevice) {
        self.nr_taken -= 1;
        self.is_flushing &= rq.op != Op::Flush;
        self.apply(rq);
    }

    /// Performs a command, once.
    fn apply(&mut self, rq: &mut AtDevice) {
        if std::mem::replace(&mut rq.is_applied, true) {
            return;
        }
        let nr_sure = rq.result.unwrap_or(0) as usize / SECTOR;
        let first = rq.start as usize / SECTOR;
        for (at, page) in rq.pages.iter().enumerate() {
            let is_done = at < nr_sure || rq.op == Op::Write && self.random.chance(1, 2);
            match rq.op {
                // SAFETY: the request is at the device.
                Op::Read if is_done => unsafe { Page::set(*page, self.sectors[first + at]) },
                // SAFETY: as above.
                Op::Write if is_done => self.sectors[first + at] = unsafe { Page::get(*page) },
                _ => {}
            }
        }
    }

    /// Returns the values of all sectors.
    pub(crate) fn sectors(&self) -> Vec<u64> {
        self.sectors.clone()
    }
}
