//! virtio-blk in the simulator: a guest with one to four rings, and a server that runs the sessions
//! that ship. Drivers publish requests at any moment, also in the middle of a round. Some requests
//! are bad, and some break their ring. Now and then the guest resets its device, pauses or dies.
//! After the death of a server, its successor repeats the requests in flight. The server and its
//! disk are in `server`.
//!
//! `rules.rs` has the rules of what a guest sees (X1 to X4), beside those of the sessions (Y1 to
//! Y4). [`sectors`](crate::sectors) checks what all drivers have seen together, crashes included
//! (P2, P3): without a write cache, each write is durable before its status (Y2).
//!
//! - `queue`, `ring`: a virtqueue, and the server's end of it; `checks`: how a session uses it;
//! - `rings`: all virtqueues, as the transport of the server; `memory`: memory of the guest;
//! - `driver`, `requests`, `shared`: the driver of a ring; `vm`: the guest and its front end;
//! - `workers`: the threads of the server; `world`: all together.

mod checks;
mod driver;
mod memory;
mod met;
mod queue;
mod requests;
mod ring;
mod rings;
mod rules;
mod scenario;
mod shared;
mod vm;
mod workers;
mod world;

use crate::Violation;
use crate::server::{self, ServerPlant, ServerSummary};
use forebay_model::Random;
use world::World;

/// Options of a run, beyond its seed.
#[derive(Clone, Copy, Debug)]
pub struct BlkOptions {
    /// The approximate number of requests that the guest makes in each phase.
    pub nr_requests: u32,
    /// A bug for the checkers to find.
    pub plant: Option<ServerPlant>,
}

impl Default for BlkOptions {
    fn default() -> BlkOptions {
        BlkOptions { nr_requests: 120, plant: None }
    }
}

/// Runs the scenario of a seed.
///
/// # Errors
/// The broken rule, and how to reproduce it.
pub fn run_blk_seed(seed: u64, options: &BlkOptions) -> Result<ServerSummary, Box<Violation>> {
    let scenario = scenario::draw(&mut Random::new(seed, 0), options.nr_requests);
    let state = format!("{scenario:?}\n");
    server::run(seed, options.plant, state, |cx| World::new(scenario, cx))
}
