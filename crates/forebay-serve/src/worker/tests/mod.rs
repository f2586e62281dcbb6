//! Tests of a worker that a test drives by hand, round by round.

mod late;
mod merges;
mod priorities;
