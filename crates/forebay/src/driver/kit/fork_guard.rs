//! Detection of a forked child, for destructors of drivers.

use crate::sys::fork::Origin;

/// The process that opened a driver, which may own threads or connections that a child of a fork
/// does not have.
///
/// The layer refuses all I/O in a child, and drops no queue there. But the child may drop its
/// handles of the disk, and with the last one the driver. A destructor that uses a library, a
/// thread or a connection checks this first.
///
/// ```
/// use forebay::driver::kit::ForkGuard;
///
/// struct Connection {
///     opened_in: ForkGuard,
/// }
///
/// impl Drop for Connection {
///     fn drop(&mut self) {
///         if !self.opened_in.is_in_child() {
///             // Close the connection.
///         }
///     }
/// }
/// # drop(Connection { opened_in: ForkGuard::new() });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ForkGuard(Origin);

impl ForkGuard {
    /// Records the calling process.
    #[expect(clippy::new_without_default, reason = "a default value would hide where it is made")]
    pub fn new() -> ForkGuard {
        ForkGuard(Origin::here())
    }

    /// Returns whether this process is a child of the recorded one. Makes no system call. Always
    /// false before Linux 4.14.
    #[inline]
    pub fn is_in_child(&self) -> bool {
        self.0.is_elsewhere()
    }
}
