//! How bios of many threads get through the core.
//!
//! - [`thread`], [`ctx`], [`mod@plug`]: what a thread keeps: its plug, and its part of each disk;
//! - [`shared`]: what all handles of an open disk share; [`gates`] hold it, [`service`] is a thread
//!   that turns it, [`run_queue`] another, of a twin that runs it too often; [`fork`] knows it in a
//!   child of its process;
//! - [`hctx`]: a hardware context, and its token at work; [`tag_pool`]: tags that contexts of
//!   several disks share;
//! - [`wait`]: who waits for it, who leads, and who is woken (W1-W5); [`blocking`] calls wait so;
//! - [`stack`], [`mailbox`], [`ready`]: lists between threads, where ends wait for their owners,
//!   and what of a queue has ended and was not reaped;
//! - [`clock`], [`event`], [`abort`]: the time, descriptors, and rather no process than a lost
//!   token; [`alarm`]: wakes event loops when no completion will;
//! - [`primitive`]: what all of it is made of, here and under the model checkers, which run it over
//!   the device of `toy`.

pub(crate) mod abort;
pub(crate) mod alarm;
pub(crate) mod blocking;
pub(crate) mod clock;
pub(crate) mod ctx;
pub(crate) mod event;
pub(crate) mod fork;
pub(crate) mod gates;
pub(crate) mod hctx;
pub(crate) mod mailbox;
pub(crate) mod plug;
pub(crate) mod primitive;
pub(crate) mod ready;
pub(crate) mod run_queue;
pub(crate) mod service;
pub(crate) mod shared;
pub(crate) mod stack;
#[cfg(test)]
mod tag_models;
pub(crate) mod tag_pool;
#[cfg(test)]
mod take_back_models;
pub(crate) mod thread;
#[cfg(test)]
pub(crate) mod toy;
pub(crate) mod wait;
