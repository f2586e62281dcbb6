//! Helpers of the checks.
// It polls a descriptor.
#![allow(unsafe_code)]

use crate::{BioQueue, Buf, Completion, Disk, Io};
use forebay_model::Random;
use std::fmt::Debug;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ScopedJoinHandle, Thread};
use std::time::{Duration, Instant};

/// Longest time that one step of a check may take.
const LONG: Duration = Duration::from_secs(60);

/// Returns bytes that depend on the offset and on `stamp`.
pub(super) fn pattern(stamp: u64, start: u64, len: u64) -> Buf {
    let mut buf = Buf::new(len as usize);
    for (nth, word) in buf.chunks_mut(8).enumerate() {
        let value = (start + nth as u64 * 8) ^ stamp.rotate_right(8);
        word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
    }
    buf
}

/// Checks the bytes that were read, unless the disk keeps no data.
#[track_caller]
pub(super) fn assert_read(disk: &Disk, read: &[u8], expected: &[u8]) {
    assert!(!keeps_data(disk) || read == expected, "{}: read other data", disk.info().spec);
}

/// Returns whether a read returns the data that was written.
pub(super) fn keeps_data(disk: &Disk) -> bool {
    disk.info().facts.keeps_data
}

#[track_caller]
pub(super) fn submit(queue: &mut BioQueue, io: Io) {
    queue.submit(io).unwrap_or_else(|error| panic!("{error}"));
}

/// Reaps until the queue is empty. Returns the completions in the order in which they were reaped.
#[track_caller]
pub(super) fn reap_all(queue: &mut BioQueue) -> Vec<Completion> {
    let (mut done, nr) = (Vec::new(), queue.len());
    while !queue.is_empty() {
        queue.reap(1, usize::MAX, &mut done);
    }
    assert_eq!(done.len(), nr, "each I/O ends once");
    done
}

/// Checks the result of an I/O. `what` names the I/O.
#[track_caller]
pub(super) fn assert_result<E: PartialEq + Debug>(
    what: &str,
    result: &Result<u64, E>,
    expected: &Result<u64, E>,
) {
    assert!(result == expected, "{what} ended with {result:?}; expected {expected:?}");
}

/// Waits for the threads of a scope. Panics as the first one that has panicked, so that a check
/// fails with the sentence of that thread.
pub(super) fn join_all<'a>(threads: impl IntoIterator<Item = ScopedJoinHandle<'a, ()>>) {
    let results: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    for result in results {
        result.unwrap_or_else(|panic| resume_unwind(panic));
    }
}

/// Waits until `fd` is readable.
#[track_caller]
pub(super) fn await_readable(fd: BorrowedFd<'_>) {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the descriptor is open, and the kernel writes to one structure.
    let nr = unsafe { libc::poll(&raw mut poll, 1, LONG.as_millis() as i32) };
    assert!(
        nr == 1 && poll.revents != 0,
        "the descriptor is not readable, though I/O is in flight"
    );
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future like an executor: polls it each time it is woken, and does nothing in between.
#[track_caller]
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, end) = (pin!(future), Instant::now() + LONG);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(end.saturating_duration_since(Instant::now()));
        assert!(Instant::now() < end, "a future is not woken");
    }
}

/// A random number generator.
#[derive(Clone, Debug)]
pub(super) struct Numbers(Random);

impl Numbers {
    pub(super) fn new(seed: u64) -> Numbers {
        Numbers(Random::new(seed, 0))
    }

    /// Returns a number below `n`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }
}
