//! The settings and counters that `forebay run` shares with the library that it preloads.
//!
//! - [`settings`]: passed down in the environment;
//! - [`area`]: the counters of a tree of processes, in memory.

pub mod area;
pub mod settings;

pub use settings::{JoinSyncs, POLICY_VARIABLE, SETTINGS, Settings};
