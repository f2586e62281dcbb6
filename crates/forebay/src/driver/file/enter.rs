//! Abstraction of the system call that submits and waits: one function, which a test can replace to
//! inject any result.

use io_uring::IoUring;
use std::io;

/// Makes the system call.
pub(super) trait Enter: Send {
    /// Submits the entries in the ring and waits until `nr_to_wait_for` completions are present.
    /// Returns the number of entries that the kernel has taken.
    ///
    /// # Errors
    /// Returns the kernel's error. The kernel may have taken entries nevertheless.
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
