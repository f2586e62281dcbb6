//! The core over the medium: bios go in, and come out.

use super::medium::{Faults, Medium, address};
use super::{Lie, NR_SECTORS, SECTOR};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Commit, DeviceState, FlushPolicy, Gates, HardwareContext,
    MergeKind, MergePolicy, PlugCounters, Policy, QueueLimits, QueueStats, QueuedBio, RunCounters,
    Segment, SoftwareQueue, TagSet, UnplugCause,
};
use forebay_model::Random;
use std::sync::Arc;

/// A bio's end: whose it was, what became of it, and its memory.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) user: u64,
    pub(super) result: Result<u64, BlockStatus>,
    pub(super) memory: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Disk {
    ctx: SoftwareQueue,
    hctx: HardwareContext,
    medium: Medium,
    free: Vec<Box<QueuedBio>>,
    ended: Vec<Box<QueuedBio>>,
    counters: Arc<PlugCounters>,
    lie: Option<Lie>,
}

impl Disk {
    /// A disk on what a medium kept.
    pub(super) fn new(random: &mut Random, kept: Vec<Vec<u8>>, lie: Option<Lie>) -> Disk {
        let limits = QueueLimits {
            capacity_bytes: Some(NR_SECTORS * SECTOR),
            max_sectors: random.pick(&[2, 8, 64]),
            max_hw_sectors: 64,
            discard_granularity: 512,
            max_discard_sectors: 64,
            max_discard_segments: 4,
            max_write_zeroes_sectors: 64,
            volatile_cache: true,
            fua: random.chance(1, 2),
            flush_queueable: random.chance(1, 2),
            ..QueueLimits::default()
        };
        let policy = Policy {
            queue_depth: random.pick(&[1, 2, 5, 32]),
            nomerges: random.pick(&[MergePolicy::All, MergePolicy::All, MergePolicy::Never]),
            flush: random.pick(&FlushPolicy::ALL),
            elide: random.chance(1, 2),
            iostats: false,
            ..Policy::default()
        };
        let fail = if lie.is_some() { 60 } else { random.pick(&[0, 0, 5, 60]) };
        let faults =
            Faults { fail, short: random.pick(&[0, 20, 300]), busy: random.pick(&[0, 50, 500]) };
        let counters: Arc<PlugCounters> = Arc::default();
        let state = Arc::new(DeviceState::new(1));
        let tags = Arc::new(TagSet::new(policy.queue_depth));
        let runs: Arc<RunCounters> = Arc::default();
        Disk {
            ctx: SoftwareQueue::new(limits, policy, Arc::clone(&counters)),
            hctx: HardwareContext::new(limits, policy, 0, state, tags, runs),
            medium: Medium::new(kept, faults, Random::new(random.draw(), 1)),
            free: Vec::new(),
            ended: Vec::new(),
            counters,
            lie,
        }
    }

    /// Submits a bio of the server, within the plug of its round. Its memory is `memory`.
    pub(super) fn submit(&mut self, mut bio: Bio, memory: Vec<u8>, now: u64) {
        let mut boxed = self.free.pop().unwrap_or_else(|| {
            self.medium.memory.push(Vec::new());
            QueuedBio::new(0, self.medium.memory.len() as u32 - 1)
        });
        let number = boxed.number();
        if bio.op.moves_data() {
            let segment = Segment { addr: address(number), len: memory.len() as u32 };
            bio = Bio {
                flags: bio.flags,
                user_data: bio.user_data,
                ..Bio::data(bio.op, bio.start, segment)
            };
        }
        if self.lie == Some(Lie::IgnoreFua) {
            bio.flags = BioFlags::NONE;
        }
        self.medium.memory[number as usize] = memory;
        boxed.fill(bio);
        let taken = self.ctx.queue_bio(boxed, 1, now);
        assert!(taken.is_ok(), "a good bio is not refused: {taken:?}");
    }

    /// The end of a round: what was submitted goes to the medium. Gives what has ended.
    pub(super) fn turn(&mut self, now: u64) -> Vec<Ended> {
        self.ctx.unplug(UnplugCause::Outermost, 1, now);
        self.hctx.accept_from(&mut self.ctx, true);
        self.hctx.turn(&mut self.medium, now, Gates::OPEN, Commit::Now, &mut self.ended);
        let mut ends = Vec::new();
        for boxed in self.ended.drain(..) {
            let memory = std::mem::take(&mut self.medium.memory[boxed.number() as usize]);
            let (user, result) = (boxed.bio().user_data, boxed.result());
            ends.push(Ended { user, result, memory });
            self.free.push(boxed);
        }
        ends
    }

    /// Lets the medium complete a command. Whether it had any.
    pub(super) fn complete_one(&mut self, random: &mut Random) -> bool {
        self.medium.complete_one(random)
    }

    /// What is left when the power fails now.
    pub(super) fn lose_power(&self, random: &mut Random) -> Vec<Vec<u8>> {
        self.medium.lose_power(random)
    }

    pub(super) fn nr_merged(&self) -> u64 {
        let mut stats = QueueStats::default();
        stats.add_plugs(&self.counters);
        stats.merges(MergeKind::Back) + stats.merges(MergeKind::Front)
    }
}
