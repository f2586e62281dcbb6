//! The integration tests, one program: what they share is compiled once, and all of it is used.

mod against_fio;
mod bench;
mod common;
mod endings;
mod load;
mod refusals;
mod sharing;
mod sim;
