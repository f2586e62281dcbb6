//! The parts of a scenario that do not depend on the protocol: the disk, and the ends of phases.

use forebay_core::{
    BlockStatus, FlushPolicy, MergePolicy, PlugPolicy, Policy, QueueLimits, SECTOR_SHIFT,
};
use forebay_model::{Faults, Fixed, Flaky, Model, Random};

/// The disk of a scenario.
#[derive(Debug)]
pub(crate) struct DiskScenario {
    pub(crate) limits: QueueLimits,
    pub(crate) policy: Policy,
    pub(crate) model: Box<dyn Model>,
    pub(crate) has_faults: bool,
    /// A failed flush loses the cached writes.
    pub(crate) failure_loses: bool,
    /// The maximum number of bios of a worker in the layer.
    pub(crate) nr_bios: usize,
}

/// The end of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All clients leave, and then the power fails.
    Quiet,
    /// The power fails after so many replies.
    PowerCut(u64),
    /// The server dies after so many replies.
    ServerDies(u64),
    /// The server is stopped after this many replies. It sends the last ones, and closes all
    /// connections.
    ServerStops(u64),
}

/// Draws a disk with a hardware context for each worker.
pub(crate) fn draw_disk(random: &mut Random, nr_workers: u32) -> DiskScenario {
    let limits = limits(random);
    let has_faults = random.chance(1, 2);
    let faults = if has_faults { faults(random) } else { Faults::default() };
    let latency_ns = random.pick(&[200, 5_000, 50_000]);
    let block = limits.logical_block_size;
    let model: Box<dyn Model> = match has_faults || random.chance(1, 2) {
        true => Box::new(Flaky::new(block, 100, latency_ns, faults)),
        false => Box::new(Fixed::new(latency_ns, random.pick(&[1, 4, 64]))),
    };
    let policy = policy(random, nr_workers);
    let failure_loses = random.chance(1, 2);
    let nr_bios = random.pick(&[1, 4, 64, 1024]);
    DiskScenario { limits, policy, model, has_faults, failure_loses, nr_bios }
}

/// Draws the ends of all phases, each with about `nr_answers` replies.
pub(crate) fn draw_endings(random: &mut Random, nr_answers: u64) -> Vec<Ending> {
    let nr_cuts = random.below(3);
    let mut endings: Vec<Ending> = (0..nr_cuts)
        .map(|_| match random.below(6) {
            0 => Ending::ServerDies(random.below(nr_answers)),
            1 => Ending::ServerStops(random.below(nr_answers)),
            _ => Ending::PowerCut(random.below(nr_answers)),
        })
        .collect();
    endings.push(Ending::Quiet);
    endings
}

fn limits(random: &mut Random) -> QueueLimits {
    let block: u32 = random.pick(&[512, 512, 4096]);
    let sectors = |blocks: u64| ((blocks * u64::from(block)) >> SECTOR_SHIFT) as u32;
    let max_sectors = sectors(random.pick(&[1, 3, 8, 256]));
    let nr_blocks = random.pick(&[4, 16, 48]);
    let (volatile_cache, has_discard) = (random.chance(5, 6), random.chance(2, 3));
    QueueLimits::default()
        .capacity_bytes(Some(nr_blocks * u64::from(block)))
        .logical_block_size(block)
        .physical_block_size(block)
        .max_hw_sectors(max_sectors)
        .max_sectors(max_sectors)
        .max_segments(random.pick(&[2, 4, 128]))
        .discard_granularity(if has_discard { block } else { 0 })
        .max_discard_sectors(if has_discard { sectors(64) } else { 0 })
        .max_discard_segments(random.pick(&[1, 4, 256]))
        .max_write_zeroes_sectors(sectors(random.pick(&[0, 3, 64, 64])))
        .volatile_cache(volatile_cache)
        .fua(volatile_cache && random.chance(1, 2))
        .flush_queueable(random.chance(1, 2))
}

fn policy(random: &mut Random, nr_hw_queues: u32) -> Policy {
    let merges = [MergePolicy::All, MergePolicy::All, MergePolicy::Never];
    Policy::default()
        .plug(random.pick(&[PlugPolicy::Outermost, PlugPolicy::Outermost, PlugPolicy::None]))
        .nomerges(random.pick(&merges))
        .queue_depth(random.pick(&[1, 2, 8, 32]))
        .flush(random.pick(&FlushPolicy::ALL))
        .elide(random.chance(1, 2))
        .nr_hw_queues(nr_hw_queues)
        .iostats(false)
}

fn faults(random: &mut Random) -> Faults {
    let statuses = [BlockStatus::Io, BlockStatus::Medium, BlockStatus::NoSpace];
    let mut rate = |list: &[u32]| if random.chance(1, 2) { random.pick(list) } else { 0 };
    Faults {
        fail: rate(&[1_000, 20_000, 100_000]),
        statuses: Faults::statuses(&statuses),
        offline: 0,
        refuse: rate(&[1_000, 50_000]),
        busy: rate(&[1_000, 50_000, 300_000]),
        short: rate(&[5_000, 50_000, 300_000]),
        none: rate(&[1_000, 10_000]),
        bad_block: rate(&[1_000, 20_000]),
        straggler: rate(&[1_000, 20_000]),
    }
}
