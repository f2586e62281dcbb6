//! An NBD server: disks of the layer for the network.
//!
//! [`Server::open`] opens disks and sockets; [`Server::run`] serves them until it is told to stop.
//! Connections are spread over a few threads. Each takes everything that its clients have sent,
//! submits it to the disks within one plug, so that neighbours merge whoever sent them, and answers
//! in as few system calls.
//!
//! The process is the caller's: nothing here touches its signals, its limits or its rights, and it
//! may have several servers. `forebay serve` is the program around one.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod accept;
mod config;
mod end;
mod error;
mod export;
mod handle;
mod listen;
mod log;
mod metrics;
mod pool;
mod server;
mod threads;
mod tls;
mod worker;

pub use config::{ExportOptions, Limits, Options, TlsOptions};
pub use error::ServeError;
pub use handle::ServerHandle;
pub use listen::{Address, AddressError, ListenError};
pub use metrics::{EndpointError, metrics_address};
pub use server::{Needs, Observer, Server};
pub use tls::TlsError;
