//! Facilities of the operating system that drivers and the runtime share.
//!
//! - [`clock`]: the time;
//! - [`event`]: descriptors that become readable: eventfds, timerfds, and sets of them;
//! - [`fork`]: detects a child of the process that opened a disk;
//! - [`open_flags`]: the flags with which a file is open;
//! - [`primitive`]: concurrency primitives, of std or of the model checkers.

pub(crate) mod clock;
pub(crate) mod event;
pub(crate) mod fork;
#[cfg(test)]
#[path = "../../tests/support/forked.rs"]
pub(crate) mod forked;
pub(crate) mod open_flags;
pub(crate) mod primitive;
mod thread_id;

pub(crate) use thread_id::thread_id;
