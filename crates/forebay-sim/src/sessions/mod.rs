//! NBD sessions in virtual time: clients of `forebay-nbd`, a server of its sessions over the core,
//! and a medium with a volatile cache and faults.
//!
//! Four connections do what [`Sectors`] can judge. Their pipes take and bring bytes in pieces that
//! are drawn; so are the framing of each connection, the order of all that happens, short counts,
//! failures, clients that hang up in the middle, and when the power fails. Behind a loss of power
//! there is another life, on what the medium kept.
//!
//! The server here stands for that of `forebay-serve`, which has sockets and threads: both run the
//! same sessions over the same core, but how they wait is their own.
//!
//! - `pipe`: a stream in pieces;
//! - `client`, `load`: a client's half, and what it asks for;
//! - `server`, `flight`: the server's half, and its requests on their way;
//! - `disk`, `medium`: the core, and what is below.

mod client;
mod disk;
mod flight;
mod load;
mod medium;
mod pipe;
mod server;

use crate::sectors::{Anomaly, Crash, Sectors};
use client::Client;
use disk::Disk;
use forebay_model::Random;
use server::Server;

pub(crate) const SECTOR: u64 = 512;
/// Few, so that connections meet.
pub(crate) const NR_SECTORS: u64 = 24;
const NR_CLIENTS: usize = 4;
/// Lives of one seed: each but the last ends with a loss of power.
const NR_LIVES: usize = 3;
/// Steps without a request that ends, after which none will.
const STEPS_MAX: u64 = 200_000;

/// A bug of a server, for the checks to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// A flush is answered and not made.
    SkipFlush,
    /// A flush covers the writes of its own connection alone.
    FlushOwn,
    /// A write is answered before the disk has it.
    AnswerEarly,
    /// FUA is not passed on.
    IgnoreFua,
    /// What failed is said to be good.
    HideFailure,
    /// A piece of a read is told to be elsewhere in it.
    MixPieces,
    /// A read brings what its buffer held before.
    StaleBuffer,
    /// What fails behind good pieces is not told.
    HideLateFailure,
    /// An answer has the number of another request.
    WrongCookie,
    /// What was done for a client that has gone is answered to the next.
    AnswerNext,
}

impl Lie {
    /// All of them.
    pub const ALL: [Lie; 10] = [
        Lie::SkipFlush,
        Lie::FlushOwn,
        Lie::AnswerEarly,
        Lie::IgnoreFua,
        Lie::HideFailure,
        Lie::MixPieces,
        Lie::StaleBuffer,
        Lie::HideLateFailure,
        Lie::WrongCookie,
        Lie::AnswerNext,
    ];
}

/// What a seed has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Requests that ended well.
    pub nr_good: u64,
    /// Requests that were answered with an error.
    pub nr_failed: u64,
    /// Connections whose client hung up in the middle.
    pub nr_hung_up: u64,
    /// Reads of a sector that was written meanwhile.
    pub nr_racing_reads: u64,
    /// Replies that came in several pieces.
    pub nr_in_pieces: u64,
    /// Failures that were told behind good pieces.
    pub nr_late_failures: u64,
    /// Connections by their framing: simple, structured, extended.
    pub nr_framings: [u64; 3],
    /// Bios that were merged.
    pub nr_merged: u64,
}

/// Why a seed has failed.
#[derive(Debug)]
pub enum Failure {
    /// What clients saw cannot be.
    Anomaly(Box<Anomaly>),
    /// A client's half does not believe the server.
    Broken(String),
    /// Nothing moves.
    Stall(String),
}

/// Runs what a seed decides.
///
/// # Errors
/// The first thing that is wrong.
pub fn run_seed(seed: u64, lie: Option<Lie>) -> Result<Summary, Failure> {
    let mut random = Random::new(seed, 0);
    let mut summary = Summary::default();
    let mut sectors = Sectors::new(NR_SECTORS);
    let mut kept = vec![vec![0; SECTOR as usize]; NR_SECTORS as usize];
    let mut sequence = 0;
    for life in 0..NR_LIVES {
        let disk = Disk::new(&mut random, kept, lie);
        let mut world = World::new(&mut random, disk, lie, life as u64 * 1_000_000 + 1, sequence);
        let end = match life + 1 < NR_LIVES {
            true => random.below(6000),
            false => u64::MAX,
        };
        world.run(&mut random, end, &mut summary)?;
        let (ops, next) = world.logs();
        sequence = next;
        let tally = sectors.check(&ops).map_err(Failure::Anomaly)?;
        summary.nr_racing_reads += tally.racing_reads;
        summary.nr_merged += world.server.disk.nr_merged();
        kept = world.server.disk.lose_power(&mut random);
        let found: Vec<_> = (0..).zip(&kept).map(|(at, bytes)| load::value_of(at, bytes)).collect();
        sectors.crash(&ops, Crash::Power, &found).map_err(Failure::Anomaly)?;
    }
    Ok(summary)
}

/// Clients and their server.
#[derive(Debug)]
struct World {
    server: Server,
    clients: Vec<Client>,
    now: u64,
}

impl World {
    fn new(random: &mut Random, disk: Disk, lie: Option<Lie>, now: u64, sequence: u64) -> World {
        let clients = (0..NR_CLIENTS).map(|nth| Client::new(nth as u16, sequence, random));
        let clients = clients.collect();
        World { server: Server::new(disk, NR_CLIENTS, lie), clients, now }
    }

    /// Lets things happen, one at a time, until all clients are done or it is the end.
    fn run(&mut self, random: &mut Random, end: u64, summary: &mut Summary) -> Result<(), Failure> {
        let (mut steps, mut progress_at) = (0, 0);
        while self.clients.iter().any(|client| !client.is_done()) && steps < end {
            steps += 1;
            self.now += 1;
            let nr = random.below(NR_CLIENTS as u64) as usize;
            let pipes = &mut self.server.links[nr];
            let moved = match random.below(8) {
                0..=2 => self.clients[nr].act(random, self.now, pipes, summary)?,
                3 | 4 => self.server.serve(nr, random),
                5 => self.server.turn(random, self.now),
                6 => self.server.disk.complete_one(random),
                _ => self.server.send(nr, random),
            };
            if moved {
                progress_at = steps;
            }
            if steps - progress_at > STEPS_MAX {
                return Err(Failure::Stall(format!("{:?}", self.clients[nr])));
            }
        }
        Ok(())
    }

    /// What all clients did, and a number for the next stamps.
    fn logs(&mut self) -> (Vec<crate::sectors::Op>, u64) {
        let ops = self.clients.iter_mut().flat_map(Client::take_log).collect();
        let next = self.clients.iter().map(Client::sequence).max().unwrap_or(0);
        (ops, next)
    }
}
