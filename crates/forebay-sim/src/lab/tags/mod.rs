//! Jobs that need more tags than exist, in the world of random scenarios, with its checkers.
//!
//! The tables of waits for tags (`measure_tags`) still come from the smaller world of `world.rs`.

mod job;
mod run;
#[cfg(test)]
mod tests;

pub(super) use run::{Extras, run};
