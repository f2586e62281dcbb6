//! A third world: NBD. A few clients talk to sessions of the protocol's server half, over pipes
//! that cut streams anywhere; requests become bios of the core's, on a device that fails and has a
//! volatile cache; and now and then a client vanishes, the server dies, or the power goes. Some
//! clients parse by themselves, and say what is illegal; others are the protocol's client half.
//!
//! One thread and one seed, as in the simulator proper: a run can be had again, byte for byte. What
//! is checked: `rules.rs` for what a client sees (N1 to N7), and [`sectors`](crate::sectors) for
//! what all of them have seen together, crashes included (P2, P3).

mod ask;
mod client;
mod context;
mod device;
mod disk;
mod ends;
mod flights;
mod library;
mod memory;
mod options;
mod pending;
mod pipe;
mod plant;
mod replies;
mod reply;
mod requests;
mod rules;
mod scenario;
mod server;
mod session;
mod store;
mod trace;
mod world;

pub use plant::NbdPlant;
pub use scenario::NbdClient;

use crate::Violation;
use crate::check::Broken;
use context::Context;
use forebay_model::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// What a run may be told, beyond its seed.
#[derive(Clone, Copy, Debug)]
pub struct NbdOptions {
    /// How many requests the clients make in each phase, about.
    pub nr_requests: u32,
    /// A bug for the checkers to find.
    pub plant: Option<NbdPlant>,
    /// What all clients are; without it, each connection may have another.
    pub client: Option<NbdClient>,
}

impl Default for NbdOptions {
    fn default() -> NbdOptions {
        NbdOptions { nr_requests: 120, plant: None, client: None }
    }
}

/// What a run that broke no rule has done.
#[derive(Clone, Debug)]
pub struct NbdSummary {
    /// The seed.
    pub seed: u64,
    /// The hash over all that happened.
    pub hash: u64,
    /// How often each thing was met that a seed may meet.
    pub met: Vec<(&'static str, u64)>,
}

/// Runs the scenario of a seed.
///
/// # Errors
/// The rule that was broken, and how to see it again.
pub fn run_nbd_seed(seed: u64, options: &NbdOptions) -> Result<NbdSummary, Box<Violation>> {
    let mut scenario = scenario::draw(&mut Random::new(seed, 0), options.nr_requests);
    if let Some(client) = options.client {
        scenario.load.library = client.percent();
    }
    let state = format!("{scenario:?}\n");
    let mut world = World::new(scenario, Context::new(seed, options.plant));
    // The core's assertions are checkers too.
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let outcome = outcome.unwrap_or_else(|panic| Err(crate::assertion(&*panic)));
    let trace = &world.cx.trace;
    match outcome {
        Ok(()) => Ok(NbdSummary { seed, hash: trace.hash(), met: trace.counts() }),
        Err(Broken { rule, what }) => {
            let (now_ns, last) = (world.cx.now, trace.last());
            Err(Box::new(Violation {
                seed,
                step: trace.nr_events(),
                now_ns,
                rule,
                what,
                state,
                last,
            }))
        }
    }
}
