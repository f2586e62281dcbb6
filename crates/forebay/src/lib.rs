//! Forebay: a multi-queue block layer in user space.
//!
//! A program that issues small I/O from many places submits it to a [`Disk`]. While a thread has a
//! [`plug`] open, its I/O is collected and neighbours are merged. At the end of the plug the batch
//! reaches the device as few, large requests, with one system call.
//!
//! ```
//! use forebay::{Buf, Disk, Io};
//!
//! let disk = Disk::open("ram:64M")?; // or "disk.img?direct=on", "/dev/vdb", ...
//! let mut queue = disk.queue();
//! let plug = forebay::plug();
//! for n in 0..16 {
//!     queue.submit(Io::read(Buf::new(4096), n * 4096).user_data(n))?;
//! }
//! drop(plug);
//! let mut done = Vec::new();
//! queue.reap(16, 16, &mut done);
//! assert!(done.iter().all(|completion| completion.result == Ok(4096)));
//! assert_eq!(disk.stats().queue.issued, 1); // sixteen reads, one request
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Interfaces
//! [`Disk::open`] opens a file, a block device, an NBD export or a simulated device by its
//! [`Spec`]. With the features `vhost-user` and `rbd` it also opens disks of vhost-user-blk servers
//! and images of Ceph clusters. Each of these interfaces submits I/O to a disk, and they can be
//! mixed:
//!
//! - blocking calls such as [`Disk::read_at`] and [`Disk::flush`];
//! - a completion queue: [`BioQueue::submit`] and [`BioQueue::reap`], or [`BioQueue::poll_handle`]
//!   in an event loop;
//! - futures for any executor: [`Disk::start`], [`Disk::start_all`] and [`plugged`].
//!
//! Offsets and lengths are in bytes. Times are in nanoseconds where the name ends in `_ns`.
//!
//! # Devices of your own
//! A type that implements the trait [`Backend`] is a device: its I/O is merged, split and flushed
//! like that of any disk. A device that needs the addresses of memory implements the unsafe trait
//! [`driver::Driver`]. [`testing`] has the checks that a device should pass.
//!
//! # Threads
//! Any number of threads may use a [`Disk`]. The first `nr_hw_queues - 1` threads that create a
//! [`BioQueue`] own a hardware context each; all other threads share one. A queue stays on its
//! thread; an [`IoFuture`] may move to any thread. Plugs and sections ([`defer`]) belong to a
//! thread. I/O that no thread waits for makes progress when a thread submits or reaps, or when an
//! event loop reaps or polls after a watched descriptor became readable. If neither happens, a
//! thread of the disk is needed: `service=on`, or the one that the first future starts.
//!
//! # Durability
//! A completed write is durable after the next [`Disk::flush`] that succeeds, or at once if it was
//! submitted with [`Io::fua`]. Callers that wait with [`Disk::durable`] share flushes. For files
//! that are not opened as disks, use [`GroupCommit`]. After a failed flush, later flushes that
//! cover the lost writes fail too, until [`Disk::acknowledge_loss`] is called.
//!
//! # Errors
//! Invalid I/O is refused before any part of it is submitted ([`SubmitErrorKind`]). Submitted I/O
//! ends exactly once, with the number of bytes moved or a [`BlockStatus`]. [`IoError::errno`]
//! converts both to an errno.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]
#![allow(clippy::vec_box, reason = "a bio is boxed once, and lists pass the box on")]

mod advice;
mod arena;
mod buf;
mod claim;
mod commit;
mod counters;
mod disk;
pub mod driver;
mod driver_names;
mod durable;
mod errno;
mod error;
mod error_numbers;
mod events;
mod extent;
mod file_system;
#[doc(hidden)]
pub mod foreign;
mod future;
mod info;
mod io;
mod keys;
mod meter;
mod owner;
mod poll_handle;
mod properties;
mod queue;
mod runtime;
mod scheduler_below;
mod segment_list;
#[cfg(feature = "serde")]
pub mod serialize;
mod settings;
mod spec;
#[cfg(test)]
mod spec_docs;
mod sys;
mod tag_pool;
pub mod testing;
mod trace;

pub use advice::SchedulerAdvice;
pub use arena::BUF_ALIGN;
pub use buf::Buf;
pub use commit::{
    CommitError, CommitFuture, CommitPoint, CommitStats, CommitThread, GroupCommit, SyncFile,
    SyncKind, Ticket,
};
pub use counters::{DiskCounter, disk_counters};
pub use disk::{Disk, DiskOptions, GuestSlice};
pub use driver::backend::{AsyncBackend, Backend, Batch, Request, Stall};
pub use driver_names::ALL as DRIVER_NAMES;
pub use durable::{Durable, DurableFuture};
pub use error::{
    FreezeError, IoError, OpenError, OwnerError, RegisterError, SchedulerError, SpecError,
    SubmitError,
};
pub use error_numbers::errno_of;
pub use extent::{Extent, ExtentKind, Extents};
#[doc(hidden)]
pub use forebay_core::cold_path;
pub use forebay_core::{
    BadKnob, BadLimit, BadPriority, BadSetting, BfqParams, Bio, BioFlags, BlockStatus, COUNTERS,
    Class, CostModel, CounterInfo, CounterUnit, DefaultValue, Emulation, EmulationStats,
    FlushPolicy, Histogram, KNOBS, KickPolicy, Knob, KyberParams, LIMIT_KEYS, LateRequest,
    LateStage, LimitKey, Limits, LimitsError, LostWrites, MergeKind, MergePolicy, MqDeadlineParams,
    OWNER_COUNTERS, OWNER_MAX, Op, OpStats, Origin, OwnerActivity, OwnerCounter, OwnerStats,
    PlugPolicy, Policy, Priority, QUEUE_DEPTH_MAX, QueueLimits, QueueStats, Rate, Rates,
    SCHEDULER_KEYS, SchedulerPolicy, Scheduling, Segment, Segments, StageStats, SubmitErrorKind,
    TagNeed, UnplugCause, Values, WEIGHT_DEFAULT, WEIGHT_KEYS, WEIGHT_MAX, WEIGHT_MIN, WeightBy,
};
pub use future::{IoFuture, plugged};
pub use info::{DiskFacts, DiskInfo, DiskStats, Feature, FeatureState, ImageLock};
pub use io::{Completion, Io};
pub use meter::{DiskMeter, OwnerMeter, open_disks};
pub use owner::Owner;
pub use poll_handle::{DiskPoll, QueuePoll};
pub use properties::{Property, PropertyGroup, PropertyValue, property_names};
pub use queue::{BioQueue, PollMode, RegisteredMemory};
pub use runtime::gates::Hold;
pub use runtime::leak::leaked_bufs;
pub use runtime::plug::{DeferGuard, PlugGuard, defer, plug};
pub use settings::table::{SETTINGS, Setting};
pub use spec::Spec;
pub use sys::clock::now_ns;
pub use trace::{Trace, TraceStats};

/// Runs the examples of the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Runs the examples of the guide as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;

/// The parts of drivers that fuzz targets run. Only their builds have it.
#[cfg(all(fuzzing, feature = "vhost-user"))]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::driver::fuzzed::{Ended, accepts_config, play_ring};
}
