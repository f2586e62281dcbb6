//! The adaptive hold in virtual time: a program that submits bios one by one, and the user of the
//! policy ([`forebay_core::Hold`]) between it and a modelled device.
//!
//! The user drives the core as the drop-in for libaio does: one software queue, one hardware
//! context, and a plug that stays open between calls. The program keeps a number of bios
//! outstanding; now and then it opens a plug of its own, flushes, pauses without a call, or waits
//! for all bios. A second thread reaps completions and observes the deadline, up to a random time
//! late.
//!
//! The checkers do not use the policy's own state: they record what is held, for how long, and
//! whether the device is idle. `rules.rs` has the rules I7 to I10 of `core/hold.rs` as they are
//! checked here. Data are not checked: the other worlds do that.
//!
//! - `load`: the program's settings, and a random load; `program`: its calls;
//! - `layer`: the user of the policy; `io`: the core's driver, with the device;
//! - `checks`: the checkers; `world`: time and events; `met`: events that random loads must meet.

mod checks;
mod io;
mod layer;
mod load;
mod met;
mod plant;
mod program;
mod rules;
mod world;

pub use io::SentRequest;
pub use load::{HoldCosts, HoldLoad, HoldMix};
pub use plant::HoldPlant;

use crate::Violation;
use forebay_model::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// Options of a run of a random load, beyond its seed.
#[derive(Clone, Copy, Debug)]
pub struct HoldOptions {
    /// The number of bios of the program.
    pub nr_bios: u32,
    /// A bug for the checkers to find.
    pub plant: Option<HoldPlant>,
}

impl Default for HoldOptions {
    fn default() -> HoldOptions {
        HoldOptions { nr_bios: 600, plant: None }
    }
}

/// Result of a run that broke no rule.
#[derive(Clone, Debug)]
pub struct HoldSummary {
    /// The virtual time at the end, ns.
    pub now_ns: u64,
    /// The hash over all events.
    pub hash: u64,
    /// The number of bios that were held.
    pub nr_held: u64,
    /// The requests that the driver accepted, in order.
    pub requests: Vec<SentRequest>,
    /// How often each kind of event happened.
    pub met: Vec<(&'static str, u64)>,
}

/// Runs the random load of a seed.
///
/// # Errors
/// The broken rule, and how to reproduce it.
pub fn run_hold_seed(seed: u64, options: &HoldOptions) -> Result<HoldSummary, Box<Violation>> {
    let load = load::draw(&mut Random::new(seed, 0), options.nr_bios);
    run(seed, load, options.plant)
}

/// Runs a load.
///
/// # Errors
/// The broken rule, and how to reproduce it.
pub fn run_hold(seed: u64, load: &HoldLoad) -> Result<HoldSummary, Box<Violation>> {
    run(seed, load.clone(), None)
}

fn run(seed: u64, load: HoldLoad, plant: Option<HoldPlant>) -> Result<HoldSummary, Box<Violation>> {
    let state = format!("{load:?}\n");
    let mut world = World::new(seed, load, plant);
    #[cfg(forebay_plant)]
    plant::choose(seed, plant);
    // The core's assertions are checkers too.
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    #[cfg(forebay_plant)]
    plant::choose(seed, None);
    let outcome = outcome.unwrap_or_else(|panic| Err(crate::assertion(&*panic)));
    outcome.map_err(|broken| {
        // A rule that was broken earlier is the cause of a panic.
        let (rule, what) = world.take_broken().unwrap_or(broken).into_parts();
        let trace = world.trace();
        let (step, now_ns, last) = (trace.step, trace.now, trace.last());
        Box::new(Violation { seed, step, now_ns, rule, what, state, last })
    })?;
    Ok(world.summary())
}
