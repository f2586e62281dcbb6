//! Models of what several threads do at once, run by loom through every interleaving that the
//! memory model allows (loads that return old values included):
//!
//! `RUSTFLAGS="--cfg blk_loom" cargo test -p forebay-core --test loom --release`, best with
//! `-- --test-threads 1`: a model is one thread at a time, and many of them only hinder each other.
//!
//! Every claim stands beside a *planted* bug where there can be one: a model that must fail, so
//! that it is known to be able to. What threads tell each other here is Relaxed on purpose: the
//! order has to come from the code under test. Ghosts, which only the checks read, are std's
//! atomics: loom does not see them, so they order nothing.
#![cfg(blk_loom)]

mod common;
mod durability;
mod leader;
mod run_state;
mod run_timer;
mod shared;
mod tags;
mod waits;
