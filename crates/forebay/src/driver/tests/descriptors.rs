//! Tests of drivers that cannot create a descriptor: an event loop gets an error, and may try
//! again.

use crate::driver::testing::{queue, without_descriptors};
use crate::driver::{Mode, Waiter};
use crate::sys::forked::in_child;
use std::sync::Arc;

/// Returns whether the descriptor of a queue fails while the process can open none, and exists
/// later.
fn fails_only_without_descriptors(waiter: &Arc<dyn Waiter>) -> bool {
    let error = without_descriptors(|| waiter.poll_fd().err());
    let errno = error.and_then(|error| error.raw_os_error());
    errno == Some(libc::EMFILE) && matches!(waiter.poll_fd(), Ok(Some(_)))
}

#[test]
fn queue_without_a_free_descriptor_is_an_error_and_not_a_driver_without_one() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, [0; 4096]).expect("a scratch file");
    let psync = queue(&format!("psync:{}", path.display()), Mode::Shared);
    assert!(in_child(|| fails_only_without_descriptors(&psync.waiter)));
    let backend = crate::driver::backend::tests::queue(Mode::Shared);
    assert!(in_child(|| fails_only_without_descriptors(&backend.waiter)));
}
