//! An allocator that counts in all threads of the program.
//!
//! A test program that uses this file has one test, so that no other test allocates meanwhile.
// This file implements an allocator.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

struct Counting;

/// Whether allocations are being counted.
static IS_ARMED: AtomicBool = AtomicBool::new(false);
static NR_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Counts an allocation of any thread except the program's first. That one belongs to the test
/// harness, which allocates to print a line when a test runs for more than a minute.
fn count() {
    // SAFETY: both calls only return a number.
    let is_first = || unsafe { libc::gettid() == libc::getpid() };
    if IS_ARMED.load(Ordering::Relaxed) && !is_first() {
        NR_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call is forwarded to the system's allocator; counting accesses two atomics only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Starts counting from 0.
pub(crate) fn start() {
    NR_ALLOCATIONS.store(0, Ordering::Relaxed);
    IS_ARMED.store(true, Ordering::Relaxed);
}

/// Stops counting, and returns the number of allocations since the start.
pub(crate) fn stop() -> u64 {
    IS_ARMED.store(false, Ordering::Relaxed);
    NR_ALLOCATIONS.load(Ordering::Relaxed)
}
