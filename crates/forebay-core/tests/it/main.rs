//! The integration tests, as one program: shared code is compiled once, and all of it is used.

mod accepts;
mod classes;
mod commits;
mod common;
mod early_ends;
mod errseq;
mod flush;
mod fua;
mod gates;
mod gather;
mod left_flush;
mod limits;
mod lines;
mod names;
mod plug;
mod results;
mod retry;
mod shared_set;
mod short_writes;
mod split_merge;
mod stats;
mod tag_steps;
mod tags;
mod timeouts;
mod turns;
mod wait_defaults;
