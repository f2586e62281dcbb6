//! Abstraction of the system call that submits and waits: one function, which a test can replace to
//! inject any result.

use io_uring::IoUring;
use io_uring::types::{SubmitArgs, Timespec};
use std::io;
use std::time::Duration;

/// The maximum timeout: 100 years. The kernel adds a timeout to the current time, and a sum that
/// overflows ends the wait at once.
pub(super) const LONGEST_TIMEOUT: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Makes the system call.
pub(super) trait Enter: Send {
    /// Submits the entries in the ring and waits until `nr_to_wait_for` completions are present or
    /// `timeout` has passed. Returns the number of entries that the kernel has taken.
    ///
    /// # Errors
    /// Returns the kernel's error. The kernel may have taken entries nevertheless. If it has taken
    /// none, a timeout is `ETIME`.
    fn submit_and_wait(
        &mut self,
        ring: &IoUring,
        nr_to_wait_for: u32,
        timeout: Option<Duration>,
    ) -> io::Result<usize>;
}

/// The kernel itself.
#[derive(Debug)]
pub(super) struct Kernel;

impl Enter for Kernel {
    #[inline]
    fn submit_and_wait(
        &mut self,
        ring: &IoUring,
        nr_to_wait_for: u32,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        match timeout {
            None => ring.submit_and_wait(nr_to_wait_for as usize),
            Some(timeout) => {
                let time = Timespec::from(timeout.min(LONGEST_TIMEOUT));
                let args = SubmitArgs::new().timespec(&time);
                ring.submitter().submit_with_args(nr_to_wait_for as usize, &args)
            }
        }
    }
}
