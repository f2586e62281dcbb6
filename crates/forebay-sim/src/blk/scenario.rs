//! The scenario of a run, which the seed determines. About half of the features and faults are
//! switched off in each.

use super::queue::Latencies;
use crate::server::{DiskScenario, Ending, draw_disk, draw_endings};
use forebay_front::blk::{BlkDisk, SECTOR};
use forebay_model::Random;

/// The most ranges of a discard or a write-zeroes. The front waits until the disk has room for all.
pub(super) const NR_RANGES_MAX: u64 = 3;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Read,
    Write,
    Flush,
    Discard,
    Zero,
    GetId,
    Bad,
}

impl Wish {
    const ALL: [Wish; 7] =
        [Wish::Read, Wish::Write, Wish::Flush, Wish::Discard, Wish::Zero, Wish::GetId, Wish::Bad];
}

/// The load that a guest generates.
#[derive(Clone, Debug)]
pub(super) struct GuestLoad {
    /// For each ring, in each phase.
    pub(super) nr_requests: u32,
    pub(super) wishes: Vec<Wish>,
    /// The maximum number of requests in flight in a ring.
    pub(super) depth: usize,
    pub(super) burst_max: u64,
    /// The longest request, in blocks; the part of the disk that is used; and a block in bytes.
    pub(super) nr_blocks_max: u64,
    pub(super) nr_blocks: u64,
    pub(super) block: u64,
    /// How often a driver breaks its ring: per mille of requests.
    pub(super) breaks: u32,
    /// How often a driver polls its used ring, and suppresses notifications: percent of its steps.
    pub(super) polls: u32,
    pub(super) think_ns: u64,
    /// Events of the guest as a whole, and their number in each phase.
    pub(super) actions: Vec<Action>,
    pub(super) nr_actions: u32,
    pub(super) action_ns: u64,
    pub(super) can_discard: bool,
    pub(super) can_zero: bool,
}

/// Something that happens to a guest as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The write cache is switched on or off.
    ToggleCache,
    /// The driver resets the device, and starts it again.
    Reset,
    /// The front end stops the rings, and goes on later.
    Pause,
    /// The front end dies, and another guest starts.
    Die,
    /// A ring is disabled for a while.
    Disable,
    /// The operator acknowledges that writes are lost.
    AcknowledgeLoss,
}

/// The scenario of a run.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(super) disk: DiskScenario,
    pub(super) device: BlkDisk,
    pub(super) nr_queues: usize,
    pub(super) queue_size: u16,
    pub(super) latencies: Latencies,
    /// How often a thread of the server polls before it sleeps: percent of its rounds.
    pub(super) server_polls: u32,
    /// The longest time of a reap, ns.
    pub(super) reap_ns_max: u64,
    pub(super) load: GuestLoad,
    pub(super) endings: Vec<Ending>,
}

pub(crate) fn draw(random: &mut Random, nr_requests: u32) -> Scenario {
    let nr_queues = random.pick(&[1, 1, 2, 4]);
    let mut disk = draw_disk(random, nr_queues);
    disk.nr_bios = random.pick(&[NR_RANGES_MAX as usize, 16, 64]);
    let queue_size = random.pick(&[2, 8, 32]);
    let nr_requests = nr_requests.div_ceil(nr_queues);
    let load = load(random, &disk, queue_size, nr_requests);
    let nr_sectors = disk.limits.capacity_bytes.unwrap_or(0) / SECTOR;
    let most = |is_able: bool| if is_able { nr_sectors as u32 } else { 0 };
    let device = BlkDisk {
        export: 0,
        nr_sectors,
        read_only: random.chance(1, 20),
        // The device may keep the data of a discarded sector.
        discards_to_zeroes: false,
        max_discard_sectors: most(load.can_discard),
        max_write_zeroes_sectors: most(load.can_zero),
        serial: *b"a simulated disk\0\0\0\0",
    };
    Scenario {
        endings: draw_endings(random, u64::from(nr_requests * nr_queues)),
        disk,
        device,
        nr_queues: nr_queues as usize,
        queue_size,
        latencies: Latencies {
            kick_ns: random.pick(&[200, 2_000, 20_000]),
            interrupt_ns: random.pick(&[200, 2_000, 20_000]),
        },
        server_polls: random.pick(&[0, 30, 90]),
        reap_ns_max: random.pick(&[0, 0, 10_000, 90_000]),
        load,
    }
}

fn load(random: &mut Random, disk: &DiskScenario, queue_size: u16, nr_requests: u32) -> GuestLoad {
    let limits = &disk.limits;
    let block = u64::from(limits.logical_block_size);
    let nr_all = limits.capacity_bytes.unwrap_or(0) / block;
    let (can_discard, can_zero) =
        (limits.discard_granularity > 0, limits.max_write_zeroes_sectors > 0);
    let mut wishes: Vec<Wish> = vec![Wish::Read, Wish::Write, Wish::Read, Wish::Write];
    let is_able = |wish: &Wish| match wish {
        Wish::Discard => can_discard,
        Wish::Zero => can_zero,
        _ => true,
    };
    wishes.extend(Wish::ALL.iter().filter(|wish| is_able(wish) && random.chance(1, 2)));
    let all = [
        Action::ToggleCache,
        Action::Reset,
        Action::Pause,
        Action::Die,
        Action::Disable,
        Action::AcknowledgeLoss,
    ];
    let actions: Vec<_> = all.into_iter().filter(|_| random.chance(1, 2)).collect();
    GuestLoad {
        nr_requests,
        wishes,
        depth: random.pick(&[1, 4, 16]).min(queue_size.into()),
        burst_max: random.pick(&[1, 4, 16]),
        nr_blocks_max: random.pick(&[1, 2, 16]).min(nr_all),
        nr_blocks: if random.chance(1, 2) { nr_all } else { nr_all.min(4) },
        block,
        breaks: random.pick(&[0, 5, 20]),
        polls: random.pick(&[0, 20]),
        think_ns: random.pick(&[100, 5_000, 50_000]),
        nr_actions: if actions.is_empty() { 0 } else { random.pick(&[0, 2, 6]) },
        actions,
        action_ns: random.pick(&[20_000, 500_000]),
        can_discard,
        can_zero,
    }
}
