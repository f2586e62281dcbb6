//! The drivers, and how a spec becomes one.
//!
//! - [`null`]: completes everything at once and moves nothing;
//! - [`ram`]: memory, with the service times of a simple device if wanted;
//! - [`model`]: the devices of published experiments, in real time;
//! - [`mod@file`]: a file or block device, through io_uring, or what there is in its place;
//! - [`aio`]: the same through the kernel's AIO;
//! - [`psync`]: the same through system calls that block;
//! - [`nbd`]: an export of an NBD server;
//! - [`fault`]: wraps another device and lets chosen requests fail.
//!
//! They share [`own_file`], open files of queues; [`holes`], where a file's data is; [`vectors`],
//! memory as the kernel wants it; [`zeroing`], the ways to zero a range; [`doorbell`], the price of
//! a kick; [`timer`] and [`slack`], waits by the clock; and [`memory`], the bytes of a disk in
//! memory.
//!
//! A [`Device`] makes a queue for each hardware context: a driver, which one thread uses at a time,
//! and a [`Waiter`], with which another waits meanwhile.
//!
//! A driver follows the contract of [`forebay_core::Driver`], and comes from here alone: since it
//! follows the addresses in segments, only the layer, which vouches for them, may call it.

mod aio;
mod doorbell;
mod fault;
mod file;
mod holes;
mod memory;
mod model;
mod nbd;
#[cfg(test)]
#[path = "../../tests/support/nbd_server.rs"]
mod nbd_server;
mod null;
mod own_file;
mod psync;
mod ram;
#[cfg(test)]
#[path = "../../tests/support/skip.rs"]
mod skip;
mod slack;
#[cfg(test)]
mod testing;
mod timer;
mod vectors;
#[cfg(test)]
mod wait_tests;
mod zeroing;

use crate::arena::Arena;
use crate::claim::Claim;
use crate::error::{OpenError, SpecError};
use crate::extent::Extents;
use crate::info::{DiskFacts, Feature};
use crate::keys::Keys;
use crate::settings::{Defaults, Settings};
use crate::spec::Spec;
use forebay_core::{BlockStatus, Driver, Durability, QueueLimits};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// How a driver's queue is used. Fixed when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// By one thread only, ever: it makes the queue, uses it, waits for it and drops it. There is
    /// nobody to kick.
    Owned,
    /// By one thread at a time, any of them; and one more may wait meanwhile.
    Shared,
}

/// An open device. It makes a queue for each hardware context.
pub(crate) trait Device: Send + Sync {
    /// What the device can take. Fixed while it is open.
    fn limits(&self) -> QueueLimits;

    /// Returns whether every request ends in the turn that issues it, and the driver is never busy.
    /// Then nothing ever has to wait for its completions.
    fn ends_at_once(&self) -> bool {
        false
    }

    /// Memory that its queues know, from which buffers may be taken; if there is any.
    fn arena(&self) -> Option<&Arc<Arena>> {
        None
    }

    /// Tells what is in a range of the disk, from `offset` on, as far as it is known; what is not
    /// told is data. May wait for the device. Any thread may ask, whatever the queues do meanwhile.
    ///
    /// # Errors
    /// Why the device cannot tell.
    fn block_status(&self, offset: u64, extents: &mut Extents<'_>) -> Result<(), BlockStatus> {
        let _ = (offset, extents);
        Ok(())
    }

    /// Why it is gone, if it is and knows why.
    fn failure(&self) -> Option<String> {
        None
    }

    /// A queue of `depth` tags. Whoever calls this for [`Mode::Owned`] is its one thread.
    ///
    /// # Errors
    /// The system's, where it has no room for another queue.
    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<DriverQueue>;

    /// Records a loss if an error of a write-back was reported that a queue which was opened since
    /// does not report. To be called when a queue was opened, before anything is done through it,
    /// and before losses are acknowledged. (The claim checks the files of drivers that have such.)
    fn check_for_errors(&self, durability: &Durability) {
        let _ = durability;
    }

    /// What it means that [`Device::open_queue`] failed.
    fn refusal(&self, source: io::Error) -> OpenError {
        file::no_uring(source)
    }
}

/// A queue of a device: what drives it, and what waits for it.
pub(crate) struct DriverQueue {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) waiter: Arc<dyn Waiter>,
}

/// Waits for a driver's completions without touching the driver: for the leader of a shared
/// context, while others use the driver. One thread at a time may wait.
pub(crate) trait Waiter: Send + Sync {
    /// Returns when a completion can be reaped that was not reaped when this began, after a kick,
    /// or when `timeout` has passed. May return early, on a signal for instance. Of completions
    /// that [`Driver::has_ready`] tells of it need not know.
    fn wait(&self, timeout: Option<Duration>);

    /// Whether [`Waiter::help`] may do something, ever.
    fn can_help(&self) -> bool {
        false
    }

    /// The calling thread is going to call [`Waiter::help`] or [`Waiter::withdraw`], and does not
    /// wait before, for whatever. Until then one request need not be begun, though it is committed.
    fn offer(&self) {}

    /// Takes back what the calling thread has offered, if it has.
    fn withdraw(&self) {}

    /// Takes an offer back, if there is one. If `wanted`, does the work of one request that nobody
    /// has begun, in the calling thread, which would otherwise wait for another to do it: says
    /// whether it did. The caller reaps next. Any number of threads may do so at once, beside the
    /// one that waits and whoever uses the driver.
    fn help(&self, wanted: bool) -> bool {
        let _ = wanted;
        false
    }

    /// Returns whether a kick may find a wait that it cannot end: the system call that it takes is
    /// forbidden since.
    fn misses_kicks(&self) -> bool {
        false
    }

    /// Whether a wait begins what the driver has left to it ([`Driver::leave_to_wait`]).
    fn begins(&self) -> bool {
        false
    }

    /// There is no wait after all: what was left to it is the driver's again. True: there was
    /// something, and a turn is due, which begins it.
    fn take_back(&self) -> bool {
        false
    }

    /// Becomes readable when there may be something to reap. None where there is no such thing:
    /// completions are there at once, or come by the clock.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The descriptor was found readable: the next look takes that back, with all that it tells of.
    /// Other looks may leave it as it is. For who uses the driver.
    fn told(&self) {}

    /// How many system calls it has made since open; those of its driver are counted there.
    fn nr_syscalls(&self) -> u64 {
        0
    }
}

/// A device that is ready, and what is known of it.
pub(crate) struct Opened {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) facts: DiskFacts,
    pub(crate) features: Vec<Feature>,
    /// What whoever runs it should know.
    pub(crate) notice: Option<String>,
    pub(crate) defaults: Defaults,
    /// What it has to itself.
    pub(crate) claim: Claim,
}

type Open = fn(&Spec, &mut Keys, &Settings) -> Result<Opened, OpenError>;

/// The drivers that there are: their names in specs, and what opens them.
const DRIVERS: [(&str, Open); 8] = [
    ("null", null::open),
    ("ram", ram::open),
    ("model", model::open),
    ("file", file::open),
    ("aio", file::open_aio),
    ("psync", file::open_psync),
    ("nbd", nbd::open),
    ("fault", fault::open),
];

/// The name of the driver that is called so, if there is one.
pub(crate) fn named(name: &str) -> Option<&'static str> {
    DRIVERS.iter().map(|(known, _)| *known).find(|known| *known == name)
}

/// All names, for messages.
pub(crate) fn names() -> String {
    DRIVERS.map(|(name, _)| name).join(", ")
}

/// Opens the device that a spec names.
pub(crate) fn open(spec: &Spec, keys: &mut Keys, settings: &Settings) -> Result<Opened, OpenError> {
    let found = DRIVERS.into_iter().find(|(name, _)| *name == spec.driver());
    let (_, open) = found.expect("a spec names a driver of this table");
    open(spec, keys, settings)
}

/// The size that is the target of a spec, in whole blocks of the size that its keys give.
fn sized_target(spec: &Spec, keys: &mut Keys) -> Result<(u64, u32), SpecError> {
    let block = take_block(keys)?;
    let bad_target = |expected| SpecError::BadTarget {
        driver: spec.driver(),
        target: spec.target().to_owned(),
        expected,
    };
    let len = crate::size::size(spec.target()).ok_or_else(|| bad_target("a size, such as 1G"))?;
    if len == 0 || len > i64::MAX as u64 || !len.is_multiple_of(u64::from(block)) {
        return Err(bad_target("a size above 0, in whole logical blocks"));
    }
    Ok((len, block))
}

/// The logical block size that a key gives, bytes.
fn take_block(keys: &mut Keys) -> Result<u32, SpecError> {
    let expected = "a power of two, 1 to 4096";
    Ok(keys.take_number("logical_block_size", expected, 1..=4096)?.unwrap_or(512) as u32)
}

/// A time that a key gives, ns; 0 where it is not given.
fn take_ns(keys: &mut Keys, key: &'static str) -> Result<u64, SpecError> {
    let expected = "a number of nanoseconds, up to 1 000 000 000 000";
    Ok(keys.take_number(key, expected, 0..=1_000_000_000_000)?.unwrap_or(0))
}

/// Limits of a device that is memory or nothing: all operations, no cache to lose.
fn ideal_limits(capacity: u64, block: u32) -> QueueLimits {
    QueueLimits {
        capacity_bytes: Some(capacity),
        logical_block_size: block,
        physical_block_size: block.max(512),
        io_min: block,
        discard_granularity: block.max(512),
        max_discard_sectors: 1 << 22,
        max_discard_segments: 256,
        max_write_zeroes_sectors: 1 << 22,
        ..QueueLimits::default()
    }
}
