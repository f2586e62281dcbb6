//! Device models: from a device's state, a command and the time to when it is done, and how.
//!
//! A [`Model`] has no clock, no data and no randomness of its own: the time and a [`Random`] stream
//! are arguments. All of its arithmetic is in whole numbers, so the same seed gives the same
//! answers on every machine. The simulator runs models in virtual time.
//!
//! - [`Fixed`]: a number of channels, each of which takes the same time for every command;
//! - [`Flaky`]: every command takes a time of its own, so they overtake each other, and some fail,
//!   come back short, or find the device busy.
//!
//! A [`Machine`] is a device that chooses what to serve next, and so knows the end of a command
//! only when it has come so far. These are the devices of published experiments, by name in
//! [`machines`]:
//!
//! - [`Hdd`]: one arm, which sweeps over what is queued;
//! - [`SsdSas`], [`Nvme`]: flash, with limits of bytes and commands per second;
//! - [`VirtioRam`]: a host's memory, behind a virtual controller;
//! - [`Sata`]: a volatile cache, and a flush that is never beside another command.
//!
//! [`ErrSeq`] is a part of a device that is a file: how its write-back errors are reported.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod errseq;
mod fixed;
mod flaky;
mod flash;
mod hdd;
mod machine;
pub mod machines;
mod parameters;
mod pipe;
mod random;
mod sata;
#[cfg(test)]
mod testing;
mod virtio_ram;

pub use errseq::{ErrCursor, ErrSeq};
pub use fixed::Fixed;
pub use flaky::{Faults, Flaky, PER_MILLION};
pub use flash::{Nvme, NvmeParams, SsdSas, SsdSasParams};
pub use hdd::{Hdd, HddParams};
pub use machine::{Done, Machine};
pub use parameters::Parameter;
pub use random::Random;
pub use sata::{Sata, SataParams};
pub use virtio_ram::{VirtioRam, VirtioRamParams};

use core::fmt::Debug;
use forebay_core::{BlockStatus, Op};

/// What a device is asked to do: a request, without its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The operation.
    pub op: Op,
    /// The first byte; 0 for a flush.
    pub start: u64,
    /// How many bytes; 0 for a flush. Of a discard of several ranges, their sum.
    pub len: u64,
}

/// Whether a device takes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It does. [`Model::serve`] follows.
    Taken,
    /// It has no room now.
    Busy,
    /// It does not, and never will.
    Refused(BlockStatus),
}

/// When a command is done, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// The time, ns; not before it began.
    pub done_at_ns: u64,
    /// Bytes moved from its start (its length for what moves none), or the failure.
    pub result: Result<u64, BlockStatus>,
}

/// A device, as far as time and success go.
pub trait Model: Debug + Send {
    /// Whether the device takes a command.
    fn admit(&mut self, command: &Command, random: &mut Random) -> Admission {
        let _ = (command, random);
        Admission::Taken
    }

    /// Begins a command that was taken. Times do not go backwards.
    fn serve(&mut self, command: &Command, now: u64, random: &mut Random) -> Service;
}
