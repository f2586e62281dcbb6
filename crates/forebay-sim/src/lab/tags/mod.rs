//! Jobs that need more tags than exist, in the world of random scenarios, with its checkers.
//!
//! - [`load`]: the load; [`mod@run`]: its scenario and tasks;
//! - [`job`]: a job's thread; [`board`]: the state that the jobs share.

mod board;
mod job;
mod load;
mod run;
#[cfg(test)]
mod tests;

pub use load::{TagLoad, Worker};
pub use run::measure_tags;
pub(super) use run::{Extras, run};
