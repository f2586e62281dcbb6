//! The scenario of a run, which the seed determines. About half of the features and faults are
//! switched off in each.

use super::settings::Settings;
use crate::server::{DiskScenario, Ending, SECTOR, draw_disk, draw_endings};
use forebay_core::QueueLimits;
use forebay_front::nbd::{self, ExportFacts};
use forebay_front::stream::{Budget, Capacity, PieceSizes};
use forebay_model::Random;
use forebay_nbd::export::{Abilities, ExportInfo};
use forebay_nbd::server::TlsPolicy;
use forebay_nbd::wire::BlockSizes;
use std::sync::Arc;

/// The limit of connections. Clients never reach it, although the server may not have noticed the
/// end of earlier connections.
const NR_CONNS_MAX: usize = 150;

/// The kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdClient {
    /// A client with a parser of its own, which also sends illegal requests.
    Own,
    /// `forebay_nbd::client`: for all requests, and for about half of the handshakes.
    Library,
}

impl NbdClient {
    /// Returns how many percent of the connections use the library.
    pub(crate) fn percent(self) -> u32 {
        match self {
            NbdClient::Own => 0,
            NbdClient::Library => 100,
        }
    }
}

/// A kind of request that a client may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Read,
    ReadDf,
    Write,
    WriteFua,
    Flush,
    Trim,
    TrimFua,
    Zero,
    ZeroFua,
    ZeroFast,
    Cache,
    Status,
    Illegal,
}

impl Wish {
    const ALL: [Wish; 13] = [
        Wish::Read,
        Wish::ReadDf,
        Wish::Write,
        Wish::WriteFua,
        Wish::Flush,
        Wish::Trim,
        Wish::TrimFua,
        Wish::Zero,
        Wish::ZeroFua,
        Wish::ZeroFast,
        Wish::Cache,
        Wish::Status,
        Wish::Illegal,
    ];
}

/// The load that the clients generate.
#[derive(Clone, Debug)]
pub(crate) struct ClientLoad {
    pub(crate) nr_requests: u32,
    pub(crate) wishes: Vec<Wish>,
    /// The maximum number of requests in flight.
    pub(crate) depth: usize,
    pub(crate) burst_max: u64,
    /// The longest request, in blocks; and the part of the disk that is used.
    pub(crate) nr_blocks_max: u64,
    pub(crate) nr_blocks: u64,
    pub(crate) block: u64,
    pub(crate) may_structure: bool,
    pub(crate) may_extend: bool,
    pub(crate) asks_much: bool,
    pub(crate) gives_up: bool,
    /// How often a client uses the library: percent of connections for the requests, and half as
    /// many for the handshake.
    pub(crate) library: u32,
    /// How often a proxy changes the form of the replies: percent of connections.
    pub(crate) recuts: u32,
    /// How often a client vanishes: percent of connections. How often it leaves with requests in
    /// flight, or sends a message that ends its connection: per mille of requests.
    pub(crate) vanishes: u32,
    pub(crate) leaves_busy: u32,
    pub(crate) breaks: u32,
    /// How often a client stops reading for a long time: percent of its steps.
    pub(crate) sleeps: u32,
    pub(crate) think_ns: u64,
}

/// The scenario of a run.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) disk: DiskScenario,
    pub(crate) nr_clients: usize,
    pub(crate) settings: Settings,
    pub(crate) load: ClientLoad,
    pub(crate) endings: Vec<Ending>,
    /// The bytes that a pipe holds, the bytes that arrive at once, and the mean time between two
    /// such arrivals.
    pub(crate) pipe_bytes: usize,
    pub(crate) piece_max: u64,
    pub(crate) pipe_ns: u64,
    /// How many percent of the connections report no event for bytes that a read has left.
    pub(crate) unreported: u32,
}

pub(crate) fn draw(random: &mut Random, nr_requests: u32) -> Scenario {
    let nr_workers = random.pick(&[1, 1, 2]);
    let disk = draw_disk(random, nr_workers);
    let nr_clients = random.pick(&[1, 2, 3, 4, 4]);
    let settings = settings(random, &disk.limits, nr_workers as usize, disk.has_faults);
    let nr_requests = nr_requests.div_ceil(nr_clients as u32);
    let load = load(random, &settings.front.infos[0], nr_requests);
    Scenario {
        disk,
        nr_clients,
        settings,
        load,
        endings: draw_endings(random, u64::from(nr_requests) * nr_clients as u64),
        pipe_bytes: random.pick(&[64, 1000, 10_000, 100_000]),
        piece_max: random.pick(&[7, 100, 3_000, 100_000]),
        pipe_ns: random.pick(&[50, 1_000, 20_000]),
        unreported: random.pick(&[0, 50]),
    }
}

fn settings(
    random: &mut Random,
    limits: &QueueLimits,
    nr_workers: usize,
    may_fail: bool,
) -> Settings {
    let block = limits.logical_block_size;
    let size_bytes = limits.capacity_bytes.unwrap_or(0);
    let payload_max = (block * random.pick(&[1, 4, 16])).max(4096);
    let is_zeroing = limits.max_write_zeroes_sectors > 0;
    let can = Abilities {
        read_only: random.chance(1, 20),
        flush: true,
        fua: random.chance(5, 6),
        trim: limits.discard_granularity > 0,
        write_zeroes: is_zeroing,
        fast_zero: is_zeroing && random.chance(1, 2),
        cache: random.chance(1, 2),
        multi_conn: true,
        rotational: false,
    };
    let export = |name: &str, size_bytes, can| ExportInfo {
        name: name.into(),
        description: "simulated".into(),
        size_bytes,
        can,
        block_size: BlockSizes { min: block, preferred: 4096, max: payload_max },
    };
    let other = Abilities { read_only: true, ..Abilities::default() };
    let infos = [export("main", size_bytes, can), export("other", SECTOR, other)];
    let facts = ExportFacts {
        discards_to_zeroes: false,
        keeps_data: true,
        caches_reads: random.chance(1, 2),
    };
    let capacity = Capacity { connections: NR_CONNS_MAX, threads: nr_workers, memory_bytes: None };
    let front = nbd::Settings {
        infos: infos.into(),
        facts: vec![facts; 2],
        tls: TlsPolicy::Off,
        capacity,
        budget: budget(random, block as usize),
        nr_open: Arc::default(),
        max_in_flight: random.pick(&[1, 4, 512]),
    };
    Settings { front, nr_workers, may_fail }
}

/// Returns the memory of a worker: little, so that clients meet every shortage.
fn budget(random: &mut Random, block: usize) -> Budget {
    let max = block * random.pick(&[1, 2, 16]);
    let sizes = PieceSizes { min: block, max, held_max: max * random.pick(&[4, 8, 64]) };
    let least = (2 * block * NR_CONNS_MAX).max(4 * max);
    Budget::with_sizes(least * random.pick(&[1, 1, 16]), NR_CONNS_MAX, sizes)
}

fn load(random: &mut Random, export: &ExportInfo, nr_requests: u32) -> ClientLoad {
    let block = u64::from(export.block_size.min);
    let nr_all = export.size_bytes / block;
    let is_offered = |wish: &Wish| match wish {
        Wish::WriteFua => export.can.fua,
        Wish::TrimFua => export.can.fua && export.can.trim,
        Wish::Trim => export.can.trim,
        Wish::Zero => export.can.write_zeroes,
        Wish::ZeroFua => export.can.fua && export.can.write_zeroes,
        Wish::ZeroFast => export.can.fast_zero,
        Wish::Cache => export.can.cache,
        _ => true,
    };
    let mut wishes: Vec<Wish> = vec![Wish::Read, Wish::Write, Wish::Read, Wish::Write];
    wishes.extend(Wish::ALL.iter().filter(|wish| is_offered(wish) && random.chance(1, 2)));
    let mut percent = |list: &[u32]| if random.chance(1, 2) { random.pick(list) } else { 0 };
    let (vanishes, leaves_busy) = (percent(&[20, 60]), percent(&[20, 60]));
    let (breaks, sleeps) = (percent(&[10, 30]), percent(&[2, 10]));
    ClientLoad {
        nr_requests,
        wishes,
        depth: random.pick(&[1, 4, 16]),
        burst_max: random.pick(&[1, 4, 16]),
        nr_blocks_max: random.pick(&[1, 2, 16]).min(nr_all),
        nr_blocks: if random.chance(1, 2) { nr_all } else { nr_all.min(4) },
        block,
        may_structure: random.chance(3, 4),
        may_extend: random.chance(3, 4),
        asks_much: random.chance(1, 2),
        gives_up: random.chance(1, 4),
        library: random.pick(&[0, 30, 60]),
        recuts: random.pick(&[0, 50]),
        vanishes,
        leaves_busy,
        breaks,
        sleeps,
        think_ns: random.pick(&[100, 5_000, 50_000]),
    }
}
