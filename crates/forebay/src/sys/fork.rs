//! Fork detection: recognizes a process that is a child of the one that opened a disk.
//!
//! A child of a fork shares rings and memory with its parent, and has none of the parent's other
//! threads. So it can use nothing of a disk that was opened before the fork. A page that the kernel
//! wipes in the child detects this, without a system call, and for every kind of fork. Disks that
//! the child opens are its own: it stores a new mark.
// It maps a page.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The mark of this process. It reads 0 in a child that has opened nothing. `None` if the kernel
/// does not wipe pages (before Linux 4.14): then forks are not detected.
static MARK: LazyLock<Option<&AtomicU64>> = LazyLock::new(mark);

/// The last mark that was assigned. A child continues from its parent's value.
static LAST: AtomicU64 = AtomicU64::new(0);

fn mark() -> Option<&'static AtomicU64> {
    const PAGE: usize = 4096;
    if cfg!(miri) {
        return None;
    }
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping replaces nothing; the advice concerns only that mapping.
    let page = unsafe {
        let page = libc::mmap(ptr::null_mut(), PAGE, prot, flags, -1, 0);
        if page == libc::MAP_FAILED || libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) != 0 {
            return None;
        }
        page
    };
    // SAFETY: zeroed, aligned, and never unmapped.
    Some(unsafe { &*page.cast::<AtomicU64>() })
}

/// The process that opened a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The address of this process's mark, and its value at that time.
    mark: Option<(&'static AtomicU64, u64)>,
}

impl Origin {
    /// Returns this process, for a disk that it opens.
    // Relaxed, here and below: a mark changes once in a process, from 0, and by a fork.
    pub(crate) fn here() -> Origin {
        let Some(mark) = *MARK else { return Origin { mark: None } };
        if mark.load(Ordering::Relaxed) == 0 {
            let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            // If another thread was first, its mark counts.
            let _ = mark.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        Origin { mark: Some((mark, mark.load(Ordering::Relaxed))) }
    }

    /// Returns whether that process was an ancestor of this one.
    #[inline]
    pub(crate) fn is_elsewhere(self) -> bool {
        self.mark.is_some_and(|(mark, then)| mark.load(Ordering::Relaxed) != then)
    }
}

/// A value behind a lock that all threads of a process share.
///
/// A child of a fork starts with a value of its own. In its copy of the parent's value, another
/// thread of the parent may have held the lock, and would never release it in the child.
pub(crate) struct PerProcess<T: 'static> {
    /// Null until the first use. Values are never freed. There are few: one for this process, and
    /// one for each ancestor that used the value before it forked.
    latest: AtomicPtr<OfProcess<T>>,
}

struct OfProcess<T> {
    origin: Origin,
    value: Mutex<T>,
}

impl<T: Default + Send> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess { latest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Locks the value of this process, and creates it if there is none.
    pub(crate) fn lock(&self) -> MutexGuard<'static, T> {
        loop {
            // Acquire: pairs with the release below, so the value that another thread has created
            // is complete.
            let latest = self.latest.load(Ordering::Acquire);
            // SAFETY: the pointer is null, or comes from `Box::into_raw` below and is never freed.
            // The value is only shared, and is `Sync` because `T` is `Send`.
            match unsafe { latest.as_ref() } {
                Some(found) if !found.origin.is_elsewhere() => {
                    return found.value.lock().unwrap_or_else(PoisonError::into_inner);
                }
                _ => self.replace(latest),
            }
        }
    }

    /// Replaces the value that is null or of another process, unless another thread was first.
    #[cold]
    fn replace(&self, latest: *mut OfProcess<T>) {
        let new = OfProcess { origin: Origin::here(), value: Mutex::default() };
        let new = Box::into_raw(Box::new(new));
        // Release: see `lock`. A failure loads nothing that is used.
        let (done, failed) = (Ordering::Release, Ordering::Relaxed);
        if self.latest.compare_exchange(latest, new, done, failed).is_err() {
            // SAFETY: `new` comes from `Box::into_raw`, and no other thread has got it.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}
