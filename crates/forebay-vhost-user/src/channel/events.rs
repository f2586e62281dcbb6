//! Checks of the eventfds of a front end, before a thread waits for them.

use super::refusal::{Refusal, refuse};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

/// Returns the descriptor of an eventfd, and makes it non-blocking.
///
/// The front end shares the open file, and can make it blocking again.
///
/// # Errors
/// Returns an error if it is not an eventfd. A wait for another kind of file may always return at
/// once, and a read of it may block.
pub(super) fn eventfd(file: File) -> Result<OwnedFd, Refusal> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // Without /proc the kind of the file is unknown.
    if link.is_ok_and(|link| link.to_str() != Some("anon_inode:[eventfd]")) {
        return Err(refuse("the descriptor is not an eventfd"));
    }
    let set = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::NONBLOCK));
    set.map_err(|error| refuse(format_args!("cannot use the eventfd: {error}")))?;
    Ok(OwnedFd::from(file))
}
