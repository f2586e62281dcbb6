//! An NBD server: disks of the layer for the network.
//!
//! [`Server::open`] opens disks and sockets; [`Server::run`] serves them until the process is told
//! to stop. Connections are spread over a few threads. Each takes everything that its clients have
//! sent, submits it to the disks within one plug, so that neighbours merge whoever sent them, and
//! answers in as few system calls.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod config;
mod end;
mod error;
mod export;
pub mod listen;
pub mod log;
pub mod metrics;
pub mod notify;
mod pool;
pub mod sandbox;
mod server;
pub mod signals;
pub mod tls;
mod worker;

pub use config::{ExportOptions, Limits, Options, TlsOptions};
pub use error::ServeError;
pub use server::Server;
