//! Device models: completion time and result as a function of device state, command and time.
//!
//! A [`Model`] has no clock, no data and no random source of its own. The time and a [`Random`]
//! stream are arguments. All arithmetic uses integers, so the same seed gives the same results on
//! every machine. The simulator runs models in virtual time.
//!
//! - [`Fixed`]: several channels, each with the same time for every command;
//! - [`Flaky`]: random times, so commands overtake each other; some fail, come back short, or find
//!   the device busy.
//!
//! A [`Machine`] is a device that chooses what to serve next, so the completion time of a command
//! is known only when it is served. These are the devices of published experiments, listed by name
//! in [`machines`]:
//!
//! - [`Hdd`]: one arm that sweeps over the queued commands;
//! - [`SsdSas`], [`Nvme`]: flash, with limits of bytes and commands per second;
//! - [`VirtioRam`]: host memory behind a virtual controller;
//! - [`Sata`]: a volatile cache, and a flush that runs only by itself.
//!
//! A [`ModelFile`] holds the constants of such a device as text, for example those of a fit.
//!
//! [`ErrSeq`] reports the write-back errors of a device that is a file. [`FaultRules`] select
//! requests that fail, come late or move less.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod errseq;
mod fault_rule;
mod fixed;
mod flaky;
mod flash;
mod hdd;
mod machine;
pub mod machines;
mod model_file;
mod parameters;
mod pipe;
mod random;
mod sata;
#[cfg(test)]
mod testing;
mod virtio_ram;

pub use errseq::{ErrCursor, ErrSeq};
pub use fault_rule::{FAULT_NAMES, FaultEffect, FaultRule, FaultRules, parse_time_ns};
pub use fixed::Fixed;
pub use flaky::{Faults, Flaky, PER_MILLION};
pub use flash::{Nvme, NvmeParams, SsdSas, SsdSasParams};
pub use hdd::{Hdd, HddParams};
pub use machine::{Done, Machine};
pub use model_file::{ConfiguredMachine, ModelFile, ModelFileEntry, ModelFileError};
pub use parameters::Parameter;
pub use random::Random;
pub use sata::{Sata, SataParams};
pub use virtio_ram::{VirtioRam, VirtioRamParams};

use core::fmt::Debug;
use forebay_core::{BlockStatus, Op};

/// A command for a device: a request without its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The operation.
    pub op: Op,
    /// The first byte; 0 for a flush.
    pub start: u64,
    /// The number of bytes; 0 for a flush. For a discard of several ranges, their sum.
    pub len: u64,
}

/// Whether a device accepts a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Accepted. [`Model::serve`] follows.
    Taken,
    /// The device has no room now.
    Busy,
    /// The device refuses the command for good.
    Refused(BlockStatus),
}

/// The completion time and result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// The time in nanoseconds, not before the command began.
    pub done_at_ns: u64,
    /// The number of bytes moved from the start of the command, or the failure. For operations that
    /// move no data it is the command's length.
    pub result: Result<u64, BlockStatus>,
}

/// A device's times and results.
pub trait Model: Debug + Send {
    /// Returns whether the device accepts a command.
    fn admit(&mut self, command: &Command, random: &mut Random) -> Admission {
        let _ = (command, random);
        Admission::Taken
    }

    /// Begins an accepted command. Times do not go backwards.
    fn serve(&mut self, command: &Command, now: u64, random: &mut Random) -> Service;
}
