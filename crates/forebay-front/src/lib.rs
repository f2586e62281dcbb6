//! Front of a server: everything between its clients and its disks, without sockets.
//!
//! A worker thread has one [`Front`]. It works in rounds: requests that arrive together are
//! submitted under one plug, then completions are reaped, then replies are sent. The protocol of
//! the clients is a [`Session`]: [`nbd`] for byte streams, [`blk`] for rings in shared memory.
//!
//! The front reaches clients, disks and the clock only through a [`Host`]. The server implements it
//! with sockets, epoll and the library's queues, the simulator with pipes, virtual time and a
//! simulated disk. So the simulator tests this code, and not a copy of it.
//!
//! There are no sockets, threads, clocks or random numbers here.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod blk;
mod ending;
mod flight;
mod front;
mod host;
mod kinds;
mod link;
pub mod nbd;
#[cfg(not(forebay_plant))]
mod plant;
#[cfg(forebay_plant)]
pub mod plant;
mod poll;
mod session;
mod slots;
pub mod stream;
#[cfg(test)]
mod testing;

pub use ending::Ending;
pub use flight::{Answered, Ended, Failure, Flight};
pub use front::{Front, Readiness};
pub use host::{Closed, Failed, Host, Interest, Io, Parts, Peer};
pub use kinds::{RequestKind, Stage};
pub use link::Link;
pub use poll::{PollMode, PollSums, Polling};
pub use session::{Clients, Desk, EndedOf, MemoryOf, Progress, Session, Settled};
pub use slots::{Key, MARK_SHIFT};
