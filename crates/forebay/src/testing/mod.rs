//! Tests of the contract between the layer and a device, for authors of drivers and back ends.
//!
//! A [`Subject`] opens disks on the device under test. [`Subject::check`] runs every check of
//! [`CHECKS`] on it. A check uses a disk as a program would, and so tests what the rules K1 to K8
//! of [`Driver`](crate::driver::Driver) mean for users. Every driver of this library passes them.
//!
//! A block of 4096 bytes must never read as a mix of two writes. A file that the device uses
//! through the page cache may not give that (ext4 does not), so let the device use direct I/O in
//! the test.
//!
//! ```
//! use forebay::testing::Subject;
//! use forebay::{Backend, Batch, Disk, Op, QueueLimits};
//! use std::sync::Mutex;
//!
//! struct Memory(Mutex<Vec<u8>>);
//!
//! impl Backend for Memory {
//!     fn name(&self) -> &str {
//!         "memory"
//!     }
//!
//!     fn submit(&self, batch: &mut Batch<'_>) {
//!         let mut bytes = self.0.lock().unwrap();
//!         for mut request in batch {
//!             let range = request.offset() as usize..(request.offset() + request.len()) as usize;
//!             match request.op() {
//!                 Op::Read => request.copy_from(0, &bytes[range]),
//!                 Op::Write => request.copy_to(0, &mut bytes[range]),
//!                 _ => {}
//!             }
//!             request.complete(Ok(()));
//!         }
//!     }
//! }
//!
//! let subject = Subject::new(|setup| {
//!     let len = forebay::testing::LEN;
//!     let limits = setup.limits(QueueLimits::default().capacity_bytes(Some(len)));
//!     let memory = Memory(Mutex::new(vec![0; len as usize]));
//!     Disk::with_backend(memory, limits, setup.policy()).unwrap()
//! });
//! # let subject_of_one_check = subject;
//! # forebay::testing::CHECKS[0].run(&subject_of_one_check); /*
//! subject.check();
//! # */
//! ```
// A check is a test: it panics if the device fails it.
#![allow(clippy::missing_panics_doc, reason = "a check panics if the device fails it")]

mod data;
mod errors;
mod fork;
mod helpers;
mod progress;
mod register;
mod subject;
mod trace;
mod watchdog;

pub use subject::{Setup, Subject};
use watchdog::Watchdog;

/// The size of the disks that a [`Subject`] opens, in bytes.
pub const LEN: u64 = 1 << 20;

/// One check of a device.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Check {
    /// The name of the check: the behaviour that it demands.
    pub name: &'static str,
    /// The rules of [`Driver`](crate::driver::Driver) that a failure points to.
    pub rules: &'static str,
    run: fn(&Subject<'_>),
}

impl Check {
    /// Runs the check.
    ///
    /// If it does not end within [`Subject::time_limit`], a completion or a wake-up is lost. Then
    /// the process aborts with one line on the standard error stream, because I/O is in flight.
    ///
    /// # Panics
    /// Panics if the device fails it.
    pub fn run(&self, subject: &Subject<'_>) {
        let _watchdog = Watchdog::start(*self, subject.limit());
        (self.run)(subject);
    }
}

/// Returns the table of checks. Each row has the module and the name of a function, and rules.
macro_rules! checks {
    ($($module:ident::$name:ident: $rules:literal,)+) => {
        /// All checks.
        pub const CHECKS: &[Check] =
            &[$(Check { name: stringify!($name), rules: $rules, run: $module::$name },)+];
    };
}

checks! {
    data::written_data_is_read: "K2, K6",
    data::several_segments_are_one_range: "K2, K6",
    data::durable_writes_and_flushes_succeed: "K5, K6",
    data::ranges_are_zeroed: "K6",
    data::unaligned_or_out_of_range_io_is_refused: "K3",
    data::a_plug_makes_one_request_of_neighbours: "K5, K6",
    data::a_large_bio_is_split: "K3, K5",
    data::nowait_io_ends_at_once: "K5",
    register::blocks_are_registers: "K1, K2, K6",
    trace::a_random_trace_ends_as_on_a_ram_disk: "K5, K6",
    errors::an_error_ends_only_its_own_io: "K5, K6",
    progress::many_requests_in_flight_all_complete: "K1, K5",
    progress::threads_share_a_context: "K5, K8, and the wait",
    progress::dropping_a_queue_completes_its_writes: "K2, K5",
    progress::dropping_a_disk_completes_its_io: "K2, K5",
    progress::waiters_continue_after_the_end_of_a_hold: "K8, and the wait",
    progress::a_descriptor_is_readable_when_a_reap_is_due: "the descriptor of the wait",
    progress::a_freeze_waits_for_entered_bios: "K5",
    progress::futures_complete_when_no_other_code_drives_the_disk: "K5, K8, and the wait",
    fork::a_child_of_a_fork_uses_no_device: "forks",
}
