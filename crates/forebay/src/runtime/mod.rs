//! How bios of many threads get through the core: tokens, mailboxes, waits, plugs, and the clock.

pub(crate) mod abort;
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
pub(crate) mod service;
pub(crate) mod shared;
pub(crate) mod stack;
pub(crate) mod thread;
#[cfg(test)]
pub(crate) mod toy;
pub(crate) mod wait;
