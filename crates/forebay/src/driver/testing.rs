//! Support for the drivers' tests: devices from specs, and requests in the layer's form.
// It makes system calls.
#![allow(unsafe_code)]

pub(super) use super::direct::{DEPTH, Numbers, data, issue, reap};
use super::psync::call::Target;
use super::zeroing::{self, Ranges, Way};
use super::{Device, DriverQueue, Mode};
use crate::claim::QueueFile;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::spec::Spec;
use forebay_core::QueueLimits;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

/// Opens the device of a spec.
pub(super) fn device(spec: &str) -> Arc<dyn Device> {
    let spec = Spec::parse(spec).expect("a good spec");
    let mut keys = Keys::of(&spec);
    let settings = Settings::take(&mut keys).expect("good settings");
    let opened = super::open(&spec, &mut keys, &settings).expect("a device");
    keys.finish().expect("known keys");
    opened.device
}

/// Opens a queue of the device of a spec.
pub(super) fn queue(spec: &str, mode: Mode) -> DriverQueue {
    device(spec).open_queue(DEPTH, mode).expect("a queue")
}

/// Returns the ranges of a fixed-size file.
pub(super) fn ranges() -> Ranges {
    Ranges { grows: false, discard: zeroing::PUNCH_HOLE, way: Way::default(), goes_on: true }
}

/// Creates a file of 1 MiB. Returns it as the target of calls, and its limits.
pub(super) fn target() -> (Target, QueueLimits) {
    let file = tempfile::tempfile().expect("a scratch file");
    file.set_len(1 << 20).expect("room for it");
    let limits = QueueLimits::default().capacity_bytes(Some(1 << 20)).volatile_cache(true);
    (Target::new(Arc::new(QueueFile::new(file, false)), ranges()), limits)
}

/// Returns whether a descriptor is readable, or becomes so before the timeout.
pub(super) fn is_readable(fd: BorrowedFd<'_>, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, open, and one structure that the kernel may write to.
    let nr = unsafe { libc::poll(&raw mut poll, 1, timeout_ms) };
    nr == 1 && poll.revents & libc::POLLIN != 0
}

/// Runs `test` while this process can open no descriptor. For a child of a fork: other threads
/// would be disturbed.
pub(super) fn without_descriptors<T>(test: impl FnOnce() -> T) -> T {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes to one structure.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before) }, 0);
    let none = libc::rlimit { rlim_cur: 0, ..before };
    // SAFETY: the kernel reads one structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) }, 0);
    let result = test();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const before) }, 0);
    result
}

/// Drops the clean pages of a file from the page cache, as far as the kernel does it.
pub(super) fn forget(path: &Path) {
    let file = File::open(path).expect("a scratch file");
    file.sync_all().expect("a scratch file");
    for advice in [libc::POSIX_FADV_DONTNEED, libc::POSIX_FADV_RANDOM] {
        // SAFETY: numbers only.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) };
    }
}
