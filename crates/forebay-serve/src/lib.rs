//! Server: exports disks of the block layer, by NBD to the network and by vhost-user-blk to virtual
//! machines.
//!
//! [`Server::open`] opens disks and sockets; [`Server::run`] serves them until the caller stops it.
//! A few threads share the connections. Each thread reads everything that its clients have sent and
//! submits it to the disks within one plug, so that neighbouring I/Os merge even if different
//! clients sent them. It answers in as few system calls.
//!
//! The process belongs to the caller: the server changes no signal handler, resource limit or
//! privilege, and a process may have several servers. `forebay serve` is the program around one.
#![deny(unsafe_code)]
#![deny(missing_docs)]

mod accept;
mod block_status;
mod clients;
mod closing;
mod config;
mod control;
mod device;
mod end;
mod error;
mod export;
mod export_limits;
mod exports;
mod handle;
mod host;
mod image_format;
mod inbox;
mod listen;
mod log;
mod managed;
mod metrics;
mod observer;
mod open_files;
mod own_socket;
mod resize;
mod server;
mod shared;
mod sizes;
mod tenant;
mod threads;
mod tls;
mod traces;
mod vhost_user;
mod worker;

pub use config::{DeviceOptions, DeviceSocket, ExportOptions, Limits, Options, TlsOptions};
pub use error::ServeError;
pub use export_limits::{ClientLimits, ExportLimits};
pub use forebay_front::PollMode;
pub use forebay_vhost_user::survive_truncated_memory;
pub use handle::ServerHandle;
pub use image_format::image_warning;
pub use listen::{Address, AddressError, ListenError};
pub use log::{LogFormat, LogLevel};
pub use metrics::{EndpointError, last_part, metrics_address};
pub use observer::Observer;
pub use own_socket::ControlError;
pub use server::{Needs, Server};
pub use tls::TlsError;
