//! Runtime of the layer: carries bios of many threads through the core.
//!
//! - [`thread`], [`mod@plug`]: per-thread state: the plug, and the state of each disk;
//! - [`shared`]: state that all handles of an open disk share; [`gates`] freeze, quiesce and stop
//!   it; [`service`] is a thread that makes progress on it; [`emulation`] pays the costs of earlier
//!   systems, for comparison; [`owners`] lists the owners of its I/O; [`quarantine`] and [`leak`]
//!   keep memory that a driver may still use; [`meters`] has the counters; [`failures`] keeps
//!   events until the token is released;
//! - [`hctx`]: a hardware context, and the operations of its token;
//! - [`wait`]: the wait protocol: leader, followers and wake-ups (W1-W7); blocking calls;
//! - [`stack`], [`mailbox`], [`ready`]: lists that pass bios between threads, mailboxes for ended
//!   bios, and the list of a queue's bios that are not reaped; [`timed`]: whether turns need the
//!   time;
//! - [`abort`]: a guard that aborts before a token is lost; [`alarm`]: wakes event loops when no
//!   completion will.
//!
//! The model checkers run it over the device of `toy`.

pub(crate) mod abort;
pub(crate) mod alarm;
#[cfg(test)]
mod deadline_models;
#[cfg(test)]
mod differential;
pub(crate) mod emulation;
mod failures;
pub(crate) mod gates;
pub(crate) mod hctx;
pub(crate) mod late;
pub(crate) mod leak;
pub(crate) mod mailbox;
pub(crate) mod meters;
pub(crate) mod owners;
pub(crate) mod plug;
pub(crate) mod quarantine;
pub(crate) mod ready;
pub(crate) mod service;
pub(crate) mod shared;
mod size;
pub(crate) mod spare;
pub(crate) mod stack;
pub(crate) mod thread;
pub(crate) mod timed;
#[cfg(test)]
pub(crate) mod toy;
pub(crate) mod trace;
pub(crate) mod wait;
