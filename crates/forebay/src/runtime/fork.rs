//! Knows whether this process is a child of the one that opened a disk.
//!
//! A child of a fork shares rings and memory with its parent, and has none of the parent's other
//! threads: nothing of a disk can be used there that was opened before. A page that the kernel
//! wipes in a child tells, without a system call, and whichever way the child was made. What the
//! child opens itself is its own: it makes a mark of its own.
// It maps a page.
#![allow(unsafe_code)]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The mark of this process; it reads 0 in a child that has opened nothing. None where the kernel
/// does not wipe pages (before Linux 4.14): then nothing is known.
static MARK: LazyLock<Option<&AtomicU64>> = LazyLock::new(mark);

/// The last mark that was made. A child goes on from its parent's.
static LAST: AtomicU64 = AtomicU64::new(0);

fn mark() -> Option<&'static AtomicU64> {
    const PAGE: usize = 4096;
    if cfg!(miri) {
        return None;
    }
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping replaces nothing; the advice is about that alone.
    let page = unsafe {
        let page = libc::mmap(std::ptr::null_mut(), PAGE, prot, flags, -1, 0);
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
    /// Where the mark of this process is, and what it was then.
    mark: Option<(&'static AtomicU64, u64)>,
}

impl Origin {
    /// This process, for a disk that it opens.
    // Relaxed, here and below: a mark changes once in a process, from 0, and by a fork.
    pub(crate) fn here() -> Origin {
        let Some(mark) = *MARK else { return Origin { mark: None } };
        if mark.load(Ordering::Relaxed) == 0 {
            let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            // Where another thread was first, its mark counts.
            let _ = mark.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        Origin { mark: Some((mark, mark.load(Ordering::Relaxed))) }
    }

    /// Whether that was an ancestor of this process.
    #[inline]
    pub(crate) fn is_elsewhere(self) -> bool {
        self.mark.is_some_and(|(mark, then)| mark.load(Ordering::Relaxed) != then)
    }
}
