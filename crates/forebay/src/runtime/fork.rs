//! Knows whether this process is a child of the one that opened its disks.
//!
//! A child of a fork shares rings and memory with its parent, and has none of the parent's other
//! threads: nothing of a disk can be used there. A page that the kernel wipes in a child tells,
//! without a system call, and whichever way the child was made.
// It maps a page.
#![allow(unsafe_code)]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The mark; it reads false in a child. None where the kernel does not wipe pages (before Linux
/// 4.14): then nothing is known.
static MARK: LazyLock<Option<&AtomicBool>> = LazyLock::new(mark);

fn mark() -> Option<&'static AtomicBool> {
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
    let mark = unsafe { &*page.cast::<AtomicBool>() };
    mark.store(true, Ordering::Relaxed);
    Some(mark)
}

/// Makes the mark, if it is not there. Called when a disk is opened.
pub(crate) fn begin() {
    LazyLock::force(&MARK);
}

/// Whether this is a child of the process that called [`begin`] first, and so of every disk's that
/// is not the child's own.
// Relaxed: the mark changes only by a fork, which has one thread.
#[inline]
pub(crate) fn is_child() -> bool {
    MARK.is_some_and(|mark| !mark.load(Ordering::Relaxed))
}
