//! Closes beside uses of a handle, on several threads.
// Uses handles as C does.
#![allow(unsafe_code)]

use super::*;
use std::ptr;
use std::sync::{Barrier, MutexGuard, PoisonError};

/// All tests share the list of closed handles, so one runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Number;

/// Counts its drops.
struct Counted<'a>(&'a AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Kind for Counted<'_> {
    const MARK: Mark = DISK;
    type Pointee = u8;
}

impl Kind for Number {
    const MARK: Mark = GROUP_COMMIT;
    type Pointee = u8;
}

/// Closes handles on each of two threads at once, and returns the addresses of all.
fn close_on_two_threads(nr_each: usize) -> Vec<usize> {
    let start = Barrier::new(2);
    let close_some = || {
        let opened: Vec<_> = (0..nr_each).map(|_| open(Number)).collect();
        start.wait();
        for handle in &opened {
            // SAFETY: only this thread has the handle.
            unsafe { close::<Number>(*handle) }.expect("it is open");
        }
        opened.into_iter().map(<*mut u8>::expose_provenance).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(close_some), scope.spawn(close_some)];
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn handles_that_threads_close_at_once_keep_their_memory() {
    let _alone = alone();
    for _ in 0..200 {
        for address in close_on_two_threads(CLOSED_MAX / 2) {
            let handle = ptr::with_exposed_provenance_mut(address);
            // SAFETY: no more handles were closed than keep their memory.
            let used = unsafe { get::<Number>(handle) }.map(|_| ());
            assert!(used.is_err_and(|failure| failure.is(libc::EBADF)));
        }
    }
}

#[test]
fn the_last_use_of_a_closed_handle_drops_its_value() {
    let _alone = alone();
    let nr_drops = AtomicU64::new(0);
    let handle = open(Counted(&nr_drops));
    // SAFETY: this is a handle whose memory is kept.
    unsafe {
        let uses = [get::<Counted<'_>>(handle), get::<Counted<'_>>(handle)];
        close::<Counted<'_>>(handle).expect("it is open");
        assert!(get::<Counted<'_>>(handle).is_err_and(|failure| failure.is(libc::EBADF)));
        assert!(close::<Counted<'_>>(handle).is_err_and(|failure| failure.is(libc::EBADF)));
        for used in uses {
            assert_eq!(nr_drops.load(Ordering::Relaxed), 0);
            drop(used);
        }
    }
    assert_eq!(nr_drops.load(Ordering::Relaxed), 1);
}

/// Uses a handle on one thread while another closes it. Each value is dropped once, and not
/// while it is in use.
#[test]
fn a_close_during_calls_of_other_threads_drops_the_value_once() {
    let _alone = alone();
    let nr_drops = AtomicU64::new(0);
    for nr_closed in 0..2000 {
        let address = open(Counted(&nr_drops)).expose_provenance();
        let handle = || ptr::with_exposed_provenance_mut(address);
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                // SAFETY: this is a handle whose memory is kept.
                while let Ok(used) = unsafe { get::<Counted<'_>>(handle()) } {
                    assert_eq!(used.0.load(Ordering::Relaxed), nr_closed);
                }
            });
            start.wait();
            // SAFETY: the same.
            unsafe { close::<Counted<'_>>(handle()) }.expect("it is open");
        });
        assert_eq!(nr_drops.load(Ordering::Relaxed), nr_closed + 1);
    }
}
