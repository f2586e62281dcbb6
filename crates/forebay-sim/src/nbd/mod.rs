//! NBD in the simulator: a few clients connect to a server that runs the sessions that ship.
//! Pipes between them cut the streams at any byte. Now and then a client vanishes. Some clients
//! have a parser of their own and also send illegal requests. Others use the client half.
//! The server and its disk are in `server`.
//!
//! `rules.rs` has the rules of what a client sees (N1 to N7). [`sectors`](crate::sectors) checks
//! what all clients have seen together, crashes included (P2, P3).

mod ask;
mod client;
mod conn;
mod conns;
mod host;
mod met;
mod options;
mod pending;
mod pipe;
mod recut;
mod replies;
mod requests;
mod rules;
mod scenario;
mod settings;
mod workers;
mod world;

pub use scenario::NbdClient;

use crate::Violation;
use crate::server::{self, ServerPlant, ServerSummary};
use forebay_model::Random;
use world::World;

/// Options of a run, beyond its seed.
#[derive(Clone, Copy, Debug)]
pub struct NbdOptions {
    /// The approximate number of requests that the clients make in each phase.
    pub nr_requests: u32,
    /// A bug for the checkers to find.
    pub plant: Option<ServerPlant>,
    /// The kind of all clients; `None` draws one for each connection.
    pub client: Option<NbdClient>,
}

impl Default for NbdOptions {
    fn default() -> NbdOptions {
        NbdOptions { nr_requests: 120, plant: None, client: None }
    }
}

/// Runs the scenario of a seed.
///
/// # Errors
/// The broken rule, and how to reproduce it.
pub fn run_nbd_seed(seed: u64, options: &NbdOptions) -> Result<ServerSummary, Box<Violation>> {
    let mut scenario = scenario::draw(&mut Random::new(seed, 0), options.nr_requests);
    if let Some(client) = options.client {
        scenario.load.library = client.percent();
    }
    let state = format!("{scenario:?}\n");
    server::run(seed, options.plant, state, |cx| World::new(scenario, cx))
}
