//! Drivers of your own, in unsafe code: the contract, and parts for their authors.
//!
//! [`Disk::with_driver`](crate::Disk::with_driver) opens a disk on a [`Driver`]. Its [`Queue`]s get
//! requests with the addresses of their memory, and return completions by tag. How a thread waits
//! for them is one value, [`Wait`], fixed at open. [`kit`] has parts: a list for completions from
//! callbacks and threads, and a guard against forks. [`forward!`](forward) passes calls of a
//! wrapper on. [`testing`](crate::testing) has the tests that every driver should pass.
//!
//! The safe alternative is [`Backend`](crate::Backend).
//
// The table below maps a spec's driver name to one of the library's own drivers:
//
// - `null`: completes everything at once and moves no data;
// - `ram`: memory, with the service times of a simple device if configured;
// - `model`: the devices of published experiments, in real time;
// - `file`: a file or block device, through io_uring or its best available substitute;
// - `aio`: a file or block device, through the kernel's AIO;
// - `psync`: a file or block device, through blocking system calls on threads;
// - `nbd`: an export of an NBD server;
// - `vhost_user`: the disk of a vhost-user-blk server;
// - `rbd`: an image of a Ceph cluster;
// - `fault`: wraps another device and makes chosen requests fail;
// - `backend`: a device of the library's user in safe code, which no spec names.
//
// Shared parts: `contract`, the public traits; `kit`, completions from other threads; `own_call`,
// requests that their threads make themselves; `own_file`, the open file of each queue; `holes`,
// the data and holes of a file; `vectors`, memory in the kernel's format; `zeroing`, the ways to
// zero a range; `kick_cost`, the simulated cost of a kick; `deadline`, `timer`, `due_fd` and
// `timer_slack`, timed waits; `memory`, the bytes of a disk in memory; `socket`, connections to
// servers.
//
// A `Device` opens one queue per hardware context. A queue is a driver of the core, which one
// thread uses at a time, and a `Waiter`, with which another thread waits meanwhile. `null`, `ram`,
// `model`, `nbd`, `rbd` and `backend` implement the public contract, and `contract::DriverDevice`
// connects it with these traits. The others use more: registered memory, requests that a waiting
// thread makes, commits that a wait makes, a poll descriptor that is acknowledged (decision 0092).

mod aio;
pub(crate) mod backend;
mod contract;
mod deadline;
// A fuzz target uses only a part of it.
#[cfg(any(test, fuzzing))]
#[cfg_attr(fuzzing, expect(dead_code, reason = "tests use the rest"))]
mod direct;
mod due_fd;
mod fault;
mod kick_cost;
pub mod kit;
#[cfg(test)]
pub(crate) use fault::RULE_NAMES;
mod file;
mod holes;
mod memory;
mod model;
mod nbd;
#[cfg(test)]
#[path = "../../tests/support/nbd_server.rs"]
mod nbd_server;
mod null;
pub(crate) mod own_call;
mod own_file;
mod psync;
mod ram;
mod rbd;
pub(crate) mod refusal;
#[cfg(test)]
#[path = "../../tests/support/skip.rs"]
pub(crate) mod skip;
mod socket;
#[cfg(all(test, feature = "vhost-user"))]
#[path = "../../tests/support/storage_daemon.rs"]
mod storage_daemon;
mod syscall;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod timer;
mod timer_slack;
mod vectors;
mod vhost_user;
mod zeroing;

#[cfg(all(fuzzing, feature = "vhost-user"))]
pub(crate) use vhost_user::fuzzed;

#[doc(inline)]
pub use crate::__forward_driver as forward;
use crate::arena::Arena;
use crate::claim::Claim;
use crate::driver_names;
use crate::error::{OpenError, SpecError};
use crate::extent::Extents;
use crate::info::{DiskFacts, Feature};
use crate::keys::Keys;
use crate::settings::{Defaults, Settings};
use crate::spec::Spec;
pub use contract::{Answer, BlockingWait, Driver, Facts, Queue, Wait};
pub(crate) use contract::{Checked, DriverDevice};
pub(crate) use file::{Registration, RingMemory, scheduler_of};
use forebay_core::{BlockStatus, Durability, QueueLimits};
pub use forebay_core::{Completed, Completions, IssuedRequest, Ranges, Reap, RequestSegments, Tag};
pub(crate) use own_call::{Offer, OwnCall};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Which threads use a queue. Fixed when the queue is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One thread only: it opens the queue, uses it, waits for it and drops it. No other thread
    /// waits, so there are no kicks.
    Owned,
    /// Any thread, one at a time. One more thread may wait meanwhile.
    Shared,
}

/// An open device. It makes a queue for each hardware context.
pub(crate) trait Device: Send + Sync {
    /// Returns the limits of the device. They do not change while it is open.
    fn limits(&self) -> QueueLimits;

    /// Returns whether every request ends in the turn that issues it, and the driver is never busy.
    /// Then no thread ever waits for completions.
    fn ends_at_once(&self) -> bool {
        false
    }

    /// Returns the memory that the queues have registered, if any. Buffers are taken from it.
    fn arena(&self) -> Option<&Arc<Arena>> {
        None
    }

    /// Returns whether the queues let callers register memory ([`Waiter::memory`]).
    fn can_register_memory(&self) -> bool {
        false
    }

    /// Adds the known extents from byte `offset` on. The caller treats the rest of the range as
    /// data. May wait for the device. Any thread may call this at any time, also while queues work.
    ///
    /// # Errors
    /// Fails if the device cannot report extents.
    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        let _ = (offset, extents);
        Ok(())
    }

    /// Returns why the device is gone, if it is gone and the reason is known.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Forgets why the device was gone, because the disk is used again.
    fn revived(&self) {}

    /// Reads the size of a device without a file again, in bytes. May wait for the device. `None`:
    /// the device keeps its size.
    ///
    /// # Errors
    /// Fails if the device does not report it.
    fn reread_len(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Opens a queue of `depth` tags. For [`Mode::Owned`] the calling thread becomes its owner.
    ///
    /// # Errors
    /// Returns the system's error if it has no resources for another queue.
    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<DriverQueue>;

    /// Records a loss if a write-back error was reported that a queue opened since then does not
    /// report. Called after a queue is opened and before its first use, and before losses are
    /// acknowledged. (For drivers with files the claim makes this check.)
    fn check_for_errors(&self, durability: &Durability) {
        let _ = durability;
    }

    /// Converts an error of [`Device::open_queue`] to the reason why the disk cannot be opened.
    fn refusal(&self, source: io::Error) -> OpenError {
        file::no_uring(source)
    }
}

/// A queue of a device: its driver and its waiter.
pub(crate) struct DriverQueue {
    pub(crate) driver: Box<dyn forebay_core::Driver>,
    pub(crate) waiter: Arc<dyn Waiter>,
}

/// Waits for a driver's completions without using the driver. The leader of a shared context waits
/// in this way while other threads use the driver. One thread at a time may wait.
pub(crate) trait Waiter: Send + Sync {
    /// Waits until a completion can be reaped that was not reaped when the call began, a kick
    /// arrives, or `timeout` has passed. May return early: on a signal, or once for a completion or
    /// kick of before. With delays, `fault` returns after 500 us at most. Need not return for
    /// completions that [`has_ready`](forebay_core::Driver::has_ready) reports.
    fn wait(&self, timeout: Option<Duration>);

    /// Returns whether the driver leaves requests to threads that offer to make them
    /// ([`own_call`]).
    fn leaves_own_calls(&self) -> bool {
        false
    }

    /// Makes a request that the driver has left to the calling thread, which then requests a turn.
    /// Any number of threads may call this at once, even while one thread waits and another uses
    /// the driver.
    fn make_own_call(&self, call: OwnCall) {
        unreachable!("no {call:?} was left to a thread");
    }

    /// Returns whether a kick may fail to end a wait, because the system call that it needs has
    /// been forbidden since (seccomp).
    fn misses_kicks(&self) -> bool {
        false
    }

    /// Returns whether a wait begins the requests that the driver has left to it
    /// ([`leave_to_wait`](forebay_core::Driver::leave_to_wait)).
    fn begins(&self) -> bool {
        false
    }

    /// Returns the requests left to a wait to the driver, because no wait follows. Returns whether
    /// there were any. Then a turn is due, which begins them.
    fn take_back(&self) -> bool {
        false
    }

    /// Returns a descriptor that becomes readable when there may be completions to reap. `None`:
    /// completions are present at once.
    ///
    /// # Errors
    /// Returns the system's error if it has no resources for a descriptor, or forbids setting a
    /// timer.
    fn poll_fd(&self) -> io::Result<Option<BorrowedFd<'_>>> {
        Ok(None)
    }

    /// Acknowledges the poll descriptor: the next reap clears it and returns all completions that
    /// it announced. Other reaps may leave it readable. Called by the thread that uses the driver.
    fn ack_poll(&self) {}

    /// Returns the memory that callers have registered with the queue, or `None` if they cannot.
    fn memory(&self) -> Option<&Arc<RingMemory>> {
        None
    }

    /// Returns the number of system calls made since open, without those of the driver.
    fn nr_syscalls(&self) -> u64 {
        0
    }

    /// Returns the number of system calls made for this queue that neither the driver nor
    /// [`nr_syscalls`](Waiter::nr_syscalls) counts.
    fn nr_uncounted_syscalls(&self) -> u64 {
        0
    }
}

/// An open device with its properties.
pub(crate) struct Opened {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) facts: DiskFacts,
    pub(crate) features: Vec<Feature>,
    /// A one-line message for the operator, if there is one.
    pub(crate) notice: Option<String>,
    pub(crate) defaults: Defaults,
    /// The exclusive rights and locks that the disk holds on its file or device.
    pub(crate) claim: Claim,
}

type Open = fn(&Spec, &mut Keys, &Settings) -> Result<Opened, OpenError>;

/// All drivers: the name in specs, and the function that opens a device.
const DRIVERS: [(&str, Open); driver_names::ALL.len()] = [
    ("null", null::open),
    ("ram", ram::open),
    ("model", model::open),
    ("file", file::open),
    ("aio", file::open_aio),
    ("psync", file::open_psync),
    ("nbd", nbd::open),
    ("vhost-user", vhost_user::open),
    ("rbd", rbd::open),
    ("fault", fault::open),
];

/// Opens the device that a spec names.
pub(crate) fn open(spec: &Spec, keys: &mut Keys, settings: &Settings) -> Result<Opened, OpenError> {
    let found = DRIVERS.into_iter().find(|(name, _)| *name == spec.driver());
    let (_, open) = found.expect("each name of a driver is in this table");
    open(spec, keys, settings)
}

/// Parses the target of a spec as a size. Returns the size and the logical block size in bytes.
fn sized_target(spec: &Spec, keys: &mut Keys) -> Result<(u64, u32), SpecError> {
    let block = take_block(keys)?;
    let bad_target = |expected| SpecError::BadTarget {
        driver: spec.driver(),
        target: spec.target().to_owned(),
        expected,
    };
    let len =
        forebay_core::parse_size(spec.target()).ok_or_else(|| bad_target("a size, such as 1G"))?;
    if len == 0 || len > i64::MAX as u64 || !len.is_multiple_of(u64::from(block)) {
        return Err(bad_target("a size above 0, in whole logical blocks"));
    }
    Ok((len, block))
}

/// Takes the key for the logical block size. Returns the size in bytes.
fn take_block(keys: &mut Keys) -> Result<u32, SpecError> {
    let expected = "a power of two, 1 to 4096";
    let size = keys.take("logical_block_size", expected, |value| {
        forebay_core::parse_size(value).filter(|size| size.is_power_of_two() && *size <= 4096)
    })?;
    Ok(size.unwrap_or(512) as u32)
}

/// Takes a key for a time. Returns nanoseconds; 0 if the key is not set.
fn take_ns(keys: &mut Keys, key: &'static str) -> Result<u64, SpecError> {
    let expected = "a number of nanoseconds, up to 1 000 000 000 000";
    Ok(keys.take_number(key, expected, 0..=1_000_000_000_000)?.unwrap_or(0))
}

/// Returns the limits of a device in memory: all operations, and no volatile cache.
fn ideal_limits(capacity: u64, block: u32) -> QueueLimits {
    QueueLimits::default()
        .capacity_bytes(Some(capacity))
        .logical_block_size(block)
        .physical_block_size(block.max(512))
        .io_min(block)
        .discard_granularity(block.max(512))
        .max_discard_sectors(1 << 22)
        .max_discard_segments(256)
        .max_write_zeroes_sectors(1 << 22)
}
