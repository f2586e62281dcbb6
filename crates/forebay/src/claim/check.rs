//! Check of a place for an error of a write-back that its file has not reported yet.
//!
//! O3: a check and the record of its loss are one step for other checks. The kernel reports an
//! error once to an open file, and all checks of a place use one. So the check that comes second
//! finds nothing, and its caller may move the durable point next. The loss must be recorded by
//! then. Hence the lock, which each check holds until it has recorded what it found.
// It makes a system call that the standard library does not wrap.
#![allow(unsafe_code)]

use crate::runtime::primitive::{Mutex, lock, try_lock};
use forebay_core::Durability;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Finds errors of a write-back, and holds the lock of the checks.
#[derive(Debug)]
pub(super) struct Check {
    way: Mutex<Way>,
}

/// How the error is found that a file has not reported yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By a wait for the write-back of a range without pages.
    Wait,
    /// By a sync.
    Sync,
}

impl Check {
    pub(super) fn new(way: Way) -> Check {
        Check { way: Mutex::new(way) }
    }

    /// Records a loss if `file` has not reported an error yet. Waits for a sync where `may_sync`,
    /// and where nothing less finds the error.
    pub(super) fn run(&self, file: &File, durability: &Durability, may_sync: bool) {
        self.run_by(durability, may_sync, |way| fails(file, way, may_sync));
    }

    /// Records a loss if `finds_error` returns true.
    fn run_by(
        &self,
        durability: &Durability,
        may_sync: bool,
        finds_error: impl FnOnce(&mut Way) -> bool,
    ) {
        // A check that must not wait does not wait for the sync of another thread either. That
        // thread records what it finds.
        let way = if may_sync { Some(lock(&self.way)) } else { try_lock(&self.way) };
        let Some(mut way) = way else { return };
        if finds_error(&mut way) {
            durability.flush_failed();
        }
    }
}

#[cfg(test)]
impl Check {
    pub(super) fn way(&self) -> Way {
        *lock(&self.way)
    }

    pub(super) fn set_way(&self, way: Way) {
        *lock(&self.way) = way;
    }
}

/// Returns whether the file reports an error now. Changes `way` if the system refuses it.
fn fails(file: &File, way: &mut Way, may_sync: bool) -> bool {
    if *way == Way::Wait {
        match wait_for_nothing(file).map_err(|error| error.raw_os_error()) {
            Ok(()) => return false,
            // No error of a write-back on these file systems: the call is missing or forbidden.
            Err(Some(libc::ENOSYS | libc::EPERM)) => *way = Way::Sync,
            Err(_) => return true,
        }
    }
    may_sync && file.sync_data().is_err()
}

/// Fails if an error of a write-back has not been reported to this open file. Waits for nothing.
fn wait_for_nothing(file: &File) -> io::Result<()> {
    /// No file has a page there that is written back.
    const LAST: i64 = i64::MAX - 1;
    // SAFETY: numbers only.
    match unsafe {
        libc::sync_file_range(file.as_raw_fd(), LAST, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod models {
    use super::{Check, Way};
    use crate::runtime::primitive::{AtomicBool, Ordering, check, thread};
    use forebay_core::Backing;
    use std::sync::Arc;

    /// O3.
    #[test]
    fn loss_is_recorded_before_another_check_finds_nothing() {
        check(|| {
            let backing = Backing::shared(1);
            let state = Arc::new((Check::new(Way::Sync), backing, AtomicBool::new(true)));
            let run = |(check, backing, error): &(Check, Backing, AtomicBool)| {
                // Relaxed: the kernel's error word, whose order is its own.
                let finds_error = |_: &mut Way| error.swap(false, Ordering::Relaxed);
                check.run_by(backing.durability(), true, finds_error);
                assert_eq!(backing.durability().nr_failures(), 1, "it is recorded");
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
