//! Group commit for a descriptor of the caller.
// Exports functions to C, and duplicates a descriptor of the caller.
#![allow(unsafe_code)]

use crate::args::{place_of, place_or_null};
use crate::error::{Failure, guard};
use crate::handle::{self, InUse, Kind, Mark};
use forebay::{CommitPoint, GroupCommit, SyncKind};
use std::ffi::c_int;
use std::fs::File;
use std::os::fd::BorrowedFd;

/// Group commit for a file: threads share its syncs. Any number of threads may use it at once.
pub struct forebay_group_commit {
    _private: [u8; 0],
}

/// The extent of a sync of a group commit.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum forebay_sync {
    /// The data, and the metadata needed to read it: fdatasync().
    Data = 0,
    /// All metadata as well: fsync().
    All = 1,
}

/// The value of a `forebay_group_commit`.
pub(crate) struct OpenCommit {
    commit: GroupCommit<File>,
}

impl Kind for OpenCommit {
    const MARK: Mark = handle::GROUP_COMMIT;
    type Pointee = forebay_group_commit;
}

/// # Safety
/// As for [`handle::get`].
unsafe fn commit_of(commit: *mut forebay_group_commit) -> Result<InUse<OpenCommit>, Failure> {
    // SAFETY: the caller keeps the conditions.
    unsafe { handle::get::<OpenCommit>(commit) }
}

/// Creates a group commit for the open file of a descriptor, which is duplicated. All syncs of the
/// file have to go through it. sync is one of enum forebay_sync.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_commit_open(
    fd: c_int,
    sync: u32,
    commit: *mut *mut forebay_group_commit,
) -> c_int {
    const DATA: u32 = forebay_sync::Data as u32;
    const ALL: u32 = forebay_sync::All as u32;
    guard(|| {
        let opened = place_of(commit)?;
        let kind = match sync {
            DATA => SyncKind::Data,
            ALL => SyncKind::All,
            unknown => {
                return Err(Failure::invalid(format!("{unknown} is not in enum forebay_sync")));
            }
        };
        if fd < 0 {
            return Err(Failure::new(libc::EBADF, format!("{fd} is not a descriptor")));
        }
        // SAFETY: the caller passes an open descriptor. If it is closed, the duplication fails.
        let file = File::from(unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?);
        let handle = handle::open(OpenCommit { commit: GroupCommit::with_kind(file, kind) });
        // SAFETY: the caller passes a pointer to a pointer; null was refused.
        unsafe { opened.write(handle) };
        Ok(0)
    })
}

/// Closes a group commit. Calls that are using it end as usual, and the last of them frees it.
///
/// Returns 0, or a negative errno: -EBADF if it is already closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_commit_close(commit: *mut forebay_group_commit) -> c_int {
    // SAFETY: the caller passes a handle.
    guard(|| unsafe { handle::close::<OpenCommit>(commit) }.map(|()| 0))
}

/// Waits until all writes to the file that returned before this call are on stable storage. May
/// make the sync itself, also for other threads.
///
/// Returns 0, or a negative errno, also if an earlier loss is not acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_commit(commit: *mut forebay_group_commit) -> c_int {
    // SAFETY: the caller passes a handle.
    guard(|| unsafe {
        commit_of(commit)?.commit.commit()?;
        Ok(0)
    })
}

/// Stores a point in *point, for forebay_commit_since(). Take it before the write.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_commit_point(
    commit: *mut forebay_group_commit,
    point: *mut u64,
) -> c_int {
    // SAFETY: the caller passes a handle, and the place of a number.
    guard(|| unsafe {
        place_of(point)?.write(commit_of(commit)?.commit.point().to_bits());
        Ok(0)
    })
}

/// Waits as forebay_commit() does for writes that began after a point, and fails exactly for the
/// losses that concern them.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_commit_since(
    commit: *mut forebay_group_commit,
    point: u64,
) -> c_int {
    // SAFETY: the caller passes a handle.
    guard(|| unsafe {
        commit_of(commit)?.commit.commit_since(CommitPoint::from_bits(point))?;
        Ok(0)
    })
}

/// Acknowledges a failed sync, so that forebay_commit() works again. Write the uncommitted data
/// again first, or give it up.
///
/// Returns 1 if there was a loss, 0 if not, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_commit_acknowledge_loss(
    commit: *mut forebay_group_commit,
) -> c_int {
    // SAFETY: the caller passes a handle.
    guard(|| unsafe { Ok(c_int::from(commit_of(commit)?.commit.acknowledge_loss().is_some())) })
}

/// Stores the numbers of commits, of syncs, and of failed syncs. Each pointer may be NULL.
///
/// Returns 0, or a negative errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_commit_stats(
    commit: *mut forebay_group_commit,
    commits: *mut u64,
    syncs: *mut u64,
    losses: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller passes a handle.
        let stats = unsafe { commit_of(commit) }?.commit.stats();
        let numbers = [(commits, stats.commits), (syncs, stats.syncs), (losses, stats.losses)];
        for (place, number) in numbers {
            if !place_or_null(place)?.is_null() {
                // SAFETY: the caller passes places of numbers, or null.
                unsafe { place.write(number) };
            }
        }
        Ok(0)
    })
}
