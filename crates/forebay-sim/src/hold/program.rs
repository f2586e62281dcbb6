//! The program: the order of its calls. Its choices do not depend on time, so a load has the same
//! bios with and without the hold.

use super::load::{HoldLoad, HoldMix};
use forebay_core::{Bio, BioFlags, Op, Segment};
use forebay_model::Random;

/// The longest pause, ns.
const PAUSE_MAX_NS: u64 = 500_000;

/// The most bios under one plug.
const PLUG_MAX: u64 = 6;

/// The bits of a memory address below the number of its bio.
pub(super) const ADDR_SHIFT: u32 = 32;

/// A call.
#[derive(Debug)]
pub(super) enum Call {
    /// Submit one bio.
    Submit(Bio),
    /// Submit several bios under one plug.
    Plug(Vec<Bio>),
    /// Make no call for a time in nanoseconds.
    Pause(u64),
    /// Wait for all bios.
    Drain,
}

/// The state of the program.
#[derive(Debug)]
pub(super) struct Program {
    mix: HoldMix,
    len: u64,
    nr_blocks: u64,
    random: Random,
    op: Op,
    /// The end of the last bio.
    end: u64,
    nr_made: u32,
    nr_bios: u32,
}

impl Program {
    pub(super) fn new(load: &HoldLoad, capacity_bytes: u64, random: Random) -> Program {
        let nr_blocks = capacity_bytes / load.len;
        assert!(nr_blocks > 8, "a bio may be elsewhere");
        let HoldLoad { mix, len, nr_bios, .. } = *load;
        Program { mix, len, nr_blocks, random, op: Op::Read, end: 0, nr_made: 0, nr_bios }
    }

    /// Returns whether all bios were made.
    pub(super) fn is_over(&self) -> bool {
        self.nr_made == self.nr_bios
    }

    /// Returns the next call, with at most `room` bios.
    pub(super) fn call(&mut self, room: u32) -> Call {
        let mix = self.mix;
        if self.random.chance(mix.pause, 100) {
            return Call::Pause(self.random.between(1, PAUSE_MAX_NS));
        }
        if self.random.chance(mix.drain, 100) {
            return Call::Drain;
        }
        if self.random.chance(mix.plug, 100) {
            let nr = self.random.between(1, PLUG_MAX).min((self.nr_bios - self.nr_made).into());
            return Call::Plug((0..nr.min(room.into())).map(|_| self.bio()).collect());
        }
        Call::Submit(self.bio())
    }

    fn bio(&mut self) -> Bio {
        let number = self.nr_made;
        self.nr_made += 1;
        let HoldMix { jump, turn, flag, flush, .. } = self.mix;
        if self.random.chance(flush, 100) {
            return Bio::flush();
        }
        if self.random.chance(turn, 100) {
            self.op = if self.op == Op::Read { Op::Write } else { Op::Read };
        }
        let mut block = self.end / self.len % self.nr_blocks;
        if self.random.chance(jump, 100) {
            block = (block + 1 + self.random.below(self.nr_blocks - 2)) % self.nr_blocks;
        }
        self.end = (block + 1) * self.len;
        let addr = (number as usize + 1) << ADDR_SHIFT;
        let mut bio = Bio::data(self.op, block * self.len, Segment { addr, len: self.len as u32 });
        if self.random.chance(flag, 100) {
            bio.flags = match self.op {
                Op::Write => self.random.pick(&[BioFlags::FUA, BioFlags::NOMERGE]),
                _ => self.random.pick(&[BioFlags::NOMERGE, BioFlags::BACKGROUND]),
            };
        }
        bio
    }
}
