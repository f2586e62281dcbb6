//! Insight into the disks of a process that uses Forebay, while it runs.
//!
//! - [`Insight::listen`] opens a unix socket, at which `forebay top SOCKET` shows a live view of
//!   every disk that the process has open. Programs may ask there too: the protocol is lines of
//!   JSON ([`stats`]).
//! - [`openmetrics`] returns the counters as OpenMetrics text, for Prometheus, with the names that
//!   `forebay serve --metrics` has.
//! - [`diskstats`] returns them as lines of `/proc/diskstats`, for iostat and its kin.
//!
//! All of them read the list of [`forebay::open_disks`]. None of them holds a disk open, nor stops
//! its I/O, nor costs anything while it is not used. For 10 s after an answer of the socket, I/O of
//! owners costs about 200 instructions more.
//!
//! ```
//! use forebay::Disk;
//! use forebay_insight::Insight;
//!
//! # let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
//! # let folder = tempfile::Builder::new().permissions(mode).tempdir()?;
//! # std::env::set_current_dir(&folder)?;
//! let _insight = Insight::listen("insight")?; // then: forebay top insight
//! let disk = Disk::open("ram:1M")?;
//! disk.write_all_at(&[7; 4096], 0)?;
//! let text = forebay_insight::openmetrics(&forebay::open_disks());
//! assert!(text.contains("forebay_disk_written_bytes_total{device=\"ram:1M\"} 4096\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The modules that are hidden in this documentation are parts of `forebay serve`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[doc(hidden)]
pub mod disk_metrics;
mod diskstats;
#[doc(hidden)]
pub mod families;
#[doc(hidden)]
pub mod label;
#[doc(hidden)]
pub mod lines;
mod listen;
mod openmetrics;
#[doc(hidden)]
pub mod own_socket;
#[doc(hidden)]
pub mod owner_metrics;
#[doc(hidden)]
pub mod small;
#[doc(hidden)]
pub mod socket_file;
pub mod stats;

pub use diskstats::diskstats;
#[doc(hidden)]
pub use diskstats::{diskstats_line, diskstats_names, diskstats_of};
pub use listen::{Insight, ListenError};
pub use openmetrics::{CONTENT_TYPE, openmetrics};
