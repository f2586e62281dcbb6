//! Helpers that poll descriptors and futures as an event loop or a minimal executor does.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// A waker that unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future, and calls `wait` between polls. The waker unparks this thread.
pub(crate) fn run<F: Future>(future: F, wait: impl Fn()) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => wait(),
        }
    }
}

/// Waits until `fd` is readable.
///
/// # Panics
/// If that takes longer than any I/O of a test.
pub(crate) fn await_readable(fd: BorrowedFd<'_>, whose: &str) {
    await_any(&[fd], whose);
}

/// Waits until one of these descriptors is readable, like [`await_readable`].
pub(crate) fn await_any(fds: &[BorrowedFd<'_>], whose: &str) {
    let ready = poll_any(fds, Duration::from_secs(20));
    assert!(ready.contains(&true), "{whose}: readable in time");
}

/// Waits up to `timeout` for one of these descriptors. Returns which of them are readable.
#[expect(unsafe_code, reason = "poll is a system call")]
pub(crate) fn poll_any(fds: &[BorrowedFd<'_>], timeout: Duration) -> Vec<bool> {
    let events = libc::POLLIN;
    let poll = |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let mut polls: Vec<_> = fds.iter().map(poll).collect();
    let (nr, timeout) = (polls.len() as libc::nfds_t, timeout.as_millis() as i32);
    // SAFETY: the descriptors are open, and `polls` has as many structures as the kernel may write
    // to.
    unsafe { libc::poll(polls.as_mut_ptr(), nr, timeout) };
    polls.iter().map(|poll| poll.revents != 0).collect()
}

/// A waker that signals an eventfd, for an event loop.
pub(crate) struct EventFd(File);

impl EventFd {
    #[expect(unsafe_code, reason = "eventfd is a system call")]
    pub(crate) fn new() -> EventFd {
        // SAFETY: the call takes numbers only. The descriptor is new, so nothing else closes it.
        let fd = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            assert!(fd >= 0, "a descriptor");
            OwnedFd::from_raw_fd(fd)
        };
        EventFd(fd.into())
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn clear(&self) {
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl Wake for EventFd {
    fn wake(self: Arc<Self>) {
        (&self.0).write_all(&1u64.to_ne_bytes()).expect("room for a signal");
    }
}

/// Returns whether `fd` is readable now.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    poll_any(&[fd], Duration::ZERO) == [true]
}
