//! Submission: the software queue accepts a bio in its box, or refuses it.

use crate::check::bios::{OFFSET_BITS, SLOT_SHIFT};
use crate::check::{broken, rules};
use crate::plant::Plant;
use crate::runtime::mailbox::Goal;
use crate::runtime::spare;
use crate::runtime::thread::{Io, Thread};
use crate::runtime::turn::Own;
use crate::trace::Kind;
use forebay_core::{
    Bio, BioFlags, Commit, Op, Origin, PlugPolicy, QueuedBio, Segment, Segments, SubmitErrorKind,
};
use std::rc::Rc;

/// On a disk with a time limit, one in `LENT_OF` boxes has borrowed memory.
const LENT_OF: u32 = 4;

impl Thread<'_> {
    /// Submits an I/O. Returns the serial number of its bio, or `None` if it was refused. An I/O
    /// without memory becomes a read if it overlaps another one without memory: the checkers
    /// distinguish those by their ranges alone.
    pub(crate) fn submit(&mut self, io: Io) -> Option<u64> {
        self.is_submitting = true;
        let serial = self.submit_one(io);
        if self.world.plants(Plant::WaitInSubmit) && self.nr_in_layer > 0 {
            self.wait_for(Goal::Delivered(self.nr_mailed + 1));
        }
        self.is_submitting = false;
        serial
    }

    /// Adds a box for the next bio. Returns its number.
    pub(crate) fn add_box(&mut self) -> u32 {
        let boxed = self.new_box();
        let number = boxed.number();
        self.free.push(boxed);
        number
    }

    fn new_box(&mut self) -> Box<QueuedBio> {
        let number = self.world.checks().bios.new_row(self.id);
        spare::new_box(self.id as u64, number)
    }

    fn submit_one(&mut self, mut io: Io) -> Option<u64> {
        let world = Rc::clone(&self.world);
        world.touch(io.block);
        self.step();
        self.cpu.spend(world.cpu.submit_ns);
        if matches!(io.op, Op::Discard | Op::WriteZeroes)
            && !world.checks().bios.is_range_free(io.block, io.nr)
        {
            (io.op, io.flags) = (Op::Read, BioFlags::NONE);
        }
        let mut boxed = self.free.pop().unwrap_or_else(|| self.new_box());
        let slot = boxed.number();
        let block_size = u64::from(world.disk.limits.logical_block_size);
        let serial = {
            let mut guard = world.checks();
            let checks = &mut *guard;
            let serial = checks.bios.next_serial();
            let mut bio = bio_of(&io, slot, block_size, serial);
            bio.origin = Origin::NONE.with_owner(self.owner).with_priority(io.priority);
            // The remaining bios must not end before the driver is done (H2).
            if world.disk.policy.io_timeout_ns > 0
                && !slot.is_multiple_of(LENT_OF)
                && bio.op.moves_data()
            {
                bio.flags = bio.flags.union(BioFlags::OWNED);
            }
            checks.note(Kind::Queue, slot.into(), bio.start);
            checks.queue_bio(slot, &bio, world.now());
            checks.bios.row_mut(slot).charge = io.charge;
            drop(guard);
            boxed.fill(bio);
            serial
        };
        let queued = match world.stages {
            None => self.queue.queue_bio(boxed, self.level, world.now()),
            Some(_) => self.queue.queue_traced_bio(boxed, self.level, world.now()),
        };
        if let Err((refusal, boxed)) = queued {
            self.refused(&io, refusal, boxed);
            return None;
        }
        self.nr_in_layer += 1;
        self.place(slot);
        if self.queue.has_outgoing() {
            self.turn(Commit::Now, Own::Direct);
        }
        Some(serial)
    }

    fn refused(&mut self, io: &Io, refusal: SubmitErrorKind, boxed: Box<QueuedBio>) {
        let world = Rc::clone(&self.world);
        let charge = {
            let mut checks = world.checks();
            let checks = &mut *checks;
            checks.note(Kind::Refuse, boxed.number().into(), io.block);
            let is_right = matches!(refusal, SubmitErrorKind::NotSupported(op) if op == io.op);
            if !is_right {
                checks.expect(broken(rules::NOT_REFUSED, format!("{io:?}: {refusal}")));
            }
            let charge = checks.bios.row_mut(boxed.number()).charge.take();
            checks.refuse_bio(boxed.number());
            charge
        };
        self.free.push(boxed);
        if let Some(tag) = charge {
            self.refund(&[tag]);
            self.settle();
        }
        self.nr_in_layer += usize::from(world.plants(Plant::CountRefused));
    }

    /// Records where the software queue has put a bio.
    fn place(&mut self, slot: u32) {
        let policy = self.world.disk.policy.plug;
        let level = if policy == PlugPolicy::PerLevel { self.level } else { 1 };
        let is_plugged = self.level > 0 && policy != PlugPolicy::None;
        if self.queue.has_outgoing() {
            self.outgoing.extend(self.plugged.drain(..).map(|(slot, _)| slot));
        }
        match is_plugged {
            true => self.plugged.push((slot, level)),
            false => self.outgoing.push(slot),
        }
    }
}

/// Returns the bio of an I/O, for the box with this number.
pub(crate) fn bio_of(io: &Io, slot: u32, block_size: u64, serial: u64) -> Bio {
    let (start, len) = (io.block * block_size, io.nr * block_size);
    assert!(len < 1 << OFFSET_BITS, "an address has room for it");
    let mut bio = match io.op {
        Op::Flush => Bio::flush(),
        op => Bio::range(op, start, len),
    };
    bio.flags = io.flags;
    if io.flags.contains(BioFlags::UP_TO) {
        bio.start = io.point;
    }
    bio.user_data = serial;
    if io.op.moves_data() {
        let segment = |nth: usize, from: u64, to: u64| Segment {
            addr: (slot as usize) << SLOT_SHIFT | nth << OFFSET_BITS | from as usize,
            len: (to - from) as u32,
        };
        bio.segments = match &io.cuts[..] {
            [] => Segments::One(segment(0, 0, len)),
            cuts => {
                let from = std::iter::once(0).chain(cuts.iter().copied());
                let to = cuts.iter().copied().chain(std::iter::once(len));
                let pairs = from.zip(to).enumerate();
                Segments::Many(pairs.map(|(nth, (from, to))| segment(nth, from, to)).collect())
            }
        };
    }
    bio
}
