//! An NBD server: disks of the layer for the network.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod listen;
pub mod log;
pub mod metrics;
pub mod notify;
pub mod sandbox;
pub mod signals;
pub mod tls;
