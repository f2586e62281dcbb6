//! The system call that submits and waits, as the driver sees it: one function, so that a test can
//! put any answer of the kernel in its place.

use io_uring::IoUring;
use std::io;

/// Makes the system call.
pub(super) trait Enter: Send {
    /// Submits what is in the ring, and waits until `nr_to_wait_for` completions are there. Says
    /// how many entries the kernel has taken.
    ///
    /// # Errors
    /// The kernel's. Entries may have been taken all the same.
    fn submit_and_wait(&mut self, ring: &IoUring, nr_to_wait_for: u32) -> io::Result<usize>;
}

/// The kernel itself.
#[derive(Debug)]
pub(super) struct Kernel;

impl Enter for Kernel {
    #[inline]
    fn submit_and_wait(&mut self, ring: &IoUring, nr_to_wait_for: u32) -> io::Result<usize> {
        ring.submit_and_wait(nr_to_wait_for as usize)
    }
}
