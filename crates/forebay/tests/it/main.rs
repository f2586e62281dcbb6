//! The integration tests, one program: what they share is compiled once, and all of it is used.

mod common;
mod data;
mod holds;
mod miri;
mod overlap;
mod plug;
mod progress;
mod refusals;
mod soak;
mod threads;
