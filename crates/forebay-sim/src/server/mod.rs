//! The simulated server: everything but the protocol of its clients.
//!
//! Workers run the front that ships, `forebay-front`. Its host is this module: requests become bios
//! of the core, on a device with faults and a volatile cache. Now and then the server dies or is
//! stopped, or the power fails. One thread and one seed, as in the main simulator: every run can be
//! repeated, byte for byte.
//!
//! A protocol supplies a [`Transport`], the clients, and a [`World`] of both. The clients log what
//! they have done and seen. [`sectors`](crate::sectors) checks the log, crashes included (P2, P3).
//!
//! - `context`: clock, events and random numbers; `trace`: past events;
//! - `device`, `store`: the device, and what a power cut may leave of it; `disk`: the core over it;
//!   `memory`: the memory of its bios;
//! - `host`, `worker`: the front and its events; `world`: the phases of a run;
//! - `scenario`: random disks; `plant`: planted bugs.

mod context;
mod device;
mod disk;
mod host;
mod memory;
mod plant;
mod rules;
mod scenario;
mod store;
mod trace;
mod worker;
mod world;

pub use plant::ServerPlant;

pub(crate) use context::{Context, Event, Way};
pub(crate) use host::{Outside, SharedOutside, SimHost, Transport};
pub(crate) use memory::{Memory, Piece};
pub(crate) use scenario::{DiskScenario, Ending, draw_disk, draw_endings};
pub(crate) use store::SECTOR;
pub(crate) use trace::{FIRST_OF_PROTOCOL, Kind, kinds};
pub(crate) use worker::Worker;
pub(crate) use world::{Log, Stage, World};

use crate::Violation;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Result of a run that broke no rule.
#[derive(Clone, Debug)]
pub struct ServerSummary {
    /// The seed.
    pub seed: u64,
    /// The hash over all events.
    pub hash: u64,
    /// How often each kind of event happened.
    pub met: Vec<(&'static str, u64)>,
}

/// Runs the world of a seed. `state` describes its scenario.
///
/// # Errors
/// The broken rule, and how to reproduce it.
pub(crate) fn run<W: World>(
    seed: u64,
    plant: Option<ServerPlant>,
    state: String,
    world: impl FnOnce(Context) -> W,
) -> Result<ServerSummary, Box<Violation>> {
    let mut world = world(Context::new(seed, plant));
    #[cfg(forebay_plant)]
    plant::choose(seed, plant);
    // The core's assertions are checkers too, and those of the front.
    let outcome = catch_unwind(AssertUnwindSafe(|| world::run(&mut world)));
    #[cfg(forebay_plant)]
    plant::choose(seed, None);
    let outcome = outcome.unwrap_or_else(|panic| Err(crate::assertion(&*panic)));
    world.stage().with_context(|Context { now: now_ns, trace, .. }| match outcome {
        Ok(()) => Ok(ServerSummary { seed, hash: trace.hash(), met: trace.counts::<W::Met>() }),
        Err(broken) => {
            let (rule, what) = broken.into_parts();
            let (step, last) = (trace.nr_events(), trace.last());
            Err(Box::new(Violation { seed, step, now_ns: *now_ns, rule, what, state, last }))
        }
    })
}
