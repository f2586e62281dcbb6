//! The third simulated world: NBD. A few clients connect to the front of the server that ships,
//! `forebay-front`, whose host is this world. Pipes between them cut the streams at any byte.
//! Requests become bios of the core, on a device with faults and a volatile cache. Now and then a
//! client vanishes, the server dies, or the power fails. Some clients have a parser of their own
//! and also send illegal requests; others use the protocol's client half.
//!
//! One thread and one seed, as in the main simulator: every run can be repeated, byte for byte.
//! `rules.rs` has the rules of what a client sees (N1 to N7). [`sectors`](crate::sectors) checks
//! what all clients have seen together, crashes included (P2, P3).

mod ask;
mod client;
mod conn;
mod context;
mod device;
mod disk;
mod host;
mod options;
mod outside;
mod pending;
mod pieces;
mod pipe;
mod plant;
mod recut;
mod replies;
mod requests;
mod rules;
mod scenario;
mod settings;
mod store;
mod trace;
mod workers;
mod world;

pub use plant::NbdPlant;
pub use scenario::NbdClient;

use crate::Violation;
use context::Context;
use forebay_model::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// Options of a run, beyond its seed.
#[derive(Clone, Copy, Debug)]
pub struct NbdOptions {
    /// The approximate number of requests that the clients make in each phase.
    pub nr_requests: u32,
    /// A bug for the checkers to find.
    pub plant: Option<NbdPlant>,
    /// The kind of all clients; `None` draws one for each connection.
    pub client: Option<NbdClient>,
}

impl Default for NbdOptions {
    fn default() -> NbdOptions {
        NbdOptions { nr_requests: 120, plant: None, client: None }
    }
}

/// Result of a run that broke no rule.
#[derive(Clone, Debug)]
pub struct NbdSummary {
    /// The seed.
    pub seed: u64,
    /// The hash over all events.
    pub hash: u64,
    /// How often each kind of event happened.
    pub met: Vec<(&'static str, u64)>,
}

/// Runs the scenario of a seed.
///
/// # Errors
/// The broken rule, and how to reproduce it.
pub fn run_nbd_seed(seed: u64, options: &NbdOptions) -> Result<NbdSummary, Box<Violation>> {
    let mut scenario = scenario::draw(&mut Random::new(seed, 0), options.nr_requests);
    if let Some(client) = options.client {
        scenario.load.library = client.percent();
    }
    let state = format!("{scenario:?}\n");
    let mut world = World::new(scenario, Context::new(seed, options.plant));
    #[cfg(forebay_plant)]
    choose(seed, options.plant);
    // The core's assertions are checkers too, and those of the front.
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    #[cfg(forebay_plant)]
    choose(seed, None);
    let outcome = outcome.unwrap_or_else(|panic| Err(crate::assertion(&*panic)));
    world.with_context(|Context { now: now_ns, trace, .. }| match outcome {
        Ok(()) => Ok(NbdSummary { seed, hash: trace.hash(), met: trace.counts() }),
        Err(broken) => {
            let (rule, what) = broken.into_parts();
            let (step, last) = (trace.nr_events(), trace.last());
            Err(Box::new(Violation { seed, step, now_ns: *now_ns, rule, what, state, last }))
        }
    })
}

/// Plants a bug in the front. It shows now and then.
#[cfg(forebay_plant)]
fn choose(seed: u64, plant: Option<NbdPlant>) {
    use forebay_front::plant::{FrontPlant, choose};
    let mut random = Random::new(seed, 3);
    choose(plant.map(|plant| -> Box<dyn FnMut(_) -> bool> {
        Box::new(move |bug: FrontPlant| {
            let shows = bug.is_rare() || random.chance(1, context::PLANT_OF);
            plant == NbdPlant::Front(bug) && shows
        })
    }));
}
