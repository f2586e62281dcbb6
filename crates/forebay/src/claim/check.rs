//! Check for write-back errors that a place's file has not reported yet.
//!
//! O3: a check and the record of its loss are one step for other checks. The kernel reports an
//! error once per open file, and all checks of a place use the same open file. So a second check
//! finds nothing, and its caller may then move the durable point. Hence each check holds a lock
//! until its loss is recorded.
// `sync_file_range` is not in the standard library.
#![allow(unsafe_code)]

use crate::sys::primitive::{Mutex, lock, try_lock};
use forebay_core::Durability;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Finds write-back errors, and serializes the checks.
#[derive(Debug)]
pub(super) struct WriteBackCheck {
    probe: Mutex<ErrorProbe>,
}

/// Method of finding an error that the file has not reported yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorProbe {
    /// Waits for the write-back of a range without pages.
    WaitForRange,
    /// Syncs the file.
    Sync,
}

impl WriteBackCheck {
    pub(super) fn new(probe: ErrorProbe) -> WriteBackCheck {
        WriteBackCheck { probe: Mutex::new(probe) }
    }

    /// Records a loss if `file` has an unreported error. Syncs if nothing cheaper finds it and
    /// `may_sync` is set.
    pub(super) fn run(&self, file: &File, durability: &Durability, may_sync: bool) {
        self.run_by(durability, may_sync, |probe| has_error(file, probe, may_sync));
    }

    /// Records a loss if `finds_error` returns true.
    fn run_by(
        &self,
        durability: &Durability,
        may_sync: bool,
        finds_error: impl FnOnce(&mut ErrorProbe) -> bool,
    ) {
        // A check that must not wait does not wait for the sync of another thread either. That
        // thread records what it finds.
        let probe = if may_sync { Some(lock(&self.probe)) } else { try_lock(&self.probe) };
        let Some(mut probe) = probe else { return };
        if finds_error(&mut probe) {
            durability.flush_failed();
        }
    }
}

#[cfg(test)]
impl WriteBackCheck {
    pub(super) fn probe(&self) -> ErrorProbe {
        *lock(&self.probe)
    }

    pub(super) fn set_probe(&self, probe: ErrorProbe) {
        *lock(&self.probe) = probe;
    }
}

/// Returns whether the file reports an error now. Changes `probe` if the system refuses its method.
fn has_error(file: &File, probe: &mut ErrorProbe, may_sync: bool) -> bool {
    if *probe == ErrorProbe::WaitForRange {
        match wait_for_nothing(file.as_raw_fd()) {
            Ok(()) => return false,
            // The call is missing or forbidden. An error of the file may have the same number
            // (FUSE), and no sync would report it again, so a call without a file decides.
            error @ Err(Some(libc::ENOSYS | libc::EPERM)) if wait_for_nothing(-1) == error => {
                *probe = ErrorProbe::Sync;
            }
            Err(_) => return true,
        }
    }
    may_sync && file.sync_data().is_err()
}

/// Fails with an errno if a write-back error has not been reported to this open file. Does not
/// block.
fn wait_for_nothing(fd: RawFd) -> Result<(), Option<i32>> {
    /// An offset at which no file has a page in write-back.
    const LAST: i64 = i64::MAX - 1;
    // SAFETY: integer arguments only.
    match unsafe { libc::sync_file_range(fd, LAST, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().raw_os_error()),
    }
}

#[cfg(test)]
mod models {
    use super::{ErrorProbe, WriteBackCheck};
    use crate::sys::primitive::{AtomicBool, Ordering, check, thread};
    use forebay_core::Backing;
    use std::sync::Arc;

    /// Two checks under O3: neither returns before the loss is recorded.
    #[test]
    fn loss_is_recorded_before_another_check_finds_nothing() {
        check(|| {
            let backing = Backing::shared(1);
            let state =
                Arc::new((WriteBackCheck::new(ErrorProbe::Sync), backing, AtomicBool::new(true)));
            let run = |(check, backing, error): &(WriteBackCheck, Backing, AtomicBool)| {
                // Relaxed: this stands for the kernel's error word, which orders nothing for its
                // users.
                let finds_error = |_: &mut ErrorProbe| error.swap(false, Ordering::Relaxed);
                check.run_by(backing.durability(), true, finds_error);
                assert_eq!(backing.durability().nr_failures(), 1, "the loss is recorded");
            };
            let other = {
                let state = Arc::clone(&state);
                thread::spawn(move || run(&state))
            };
            run(&state);
            other.join().unwrap();
        });
    }
}
