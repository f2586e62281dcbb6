//! Models of concurrent steps. Loom runs them through every interleaving that the memory model
//! allows (including loads that return old values):
//!
//! `RUSTFLAGS="--cfg blk_loom" cargo test -p forebay-core --test loom --release`, best with
//! `-- --test-threads 1`: a model runs one thread at a time, and parallel models only slow each
//! other.
//!
//! Where possible, each claim has a *planted* bug beside it: a model that must fail, which shows
//! that the claim can fail. Accesses to data shared between threads are Relaxed on purpose: the
//! order has to come from the code under test. Ghosts, which only the checks read, are std's
//! atomics: loom does not see them, so they order nothing.
#![cfg(blk_loom)]

mod common;
mod durability;
mod leader;
mod run_state;
mod run_timer;
mod scheduler_change;
mod shared;
mod tags;
mod waits;
