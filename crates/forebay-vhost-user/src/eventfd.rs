//! Signals of eventfds.

use std::os::fd::AsFd;

/// Signals an eventfd.
#[inline]
pub fn signal(eventfd: impl AsFd) {
    // The write fails only if the counter is at its maximum. Then the eventfd is readable already.
    let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
}
