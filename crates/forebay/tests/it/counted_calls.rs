//! Counts all system calls of a thread, and of the threads that it starts, by a seccomp listener.
//!
//! `DiskStats::nr_syscalls` counts those of the driver. This also counts timers, signals of event
//! descriptors and wake-ups of threads.
// The kernel returns a raw descriptor, and notifications are read by `ioctl`.
#![allow(unsafe_code)]

use crate::seccomp::{RETURN, install, op};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread;

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND`.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;

/// The number of system calls so far. Reading it makes none.
pub(crate) struct Calls(AtomicU64);

impl Calls {
    /// Returns how many system calls `act` makes, here and in threads that were started here.
    pub(crate) fn of(&self, act: impl FnOnce()) -> u64 {
        let before = self.0.load(Ordering::Relaxed);
        act();
        self.0.load(Ordering::Relaxed) - before
    }
}

/// Runs `act` in a thread whose system calls are counted.
pub(crate) fn with_counted_calls<T: Send>(act: impl FnOnce(&Calls) -> T + Send) -> T {
    let (calls, listener) = (Calls(AtomicU64::new(0)), AtomicI32::new(-1));
    thread::scope(|scope| {
        let counted = scope.spawn(|| {
            let filter = vec![op(RETURN, libc::SECCOMP_RET_USER_NOTIF)];
            let fd = install(filter, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER).expect("a filter");
            // From here on each call of this thread waits for the loop below. A store is none.
            listener.store(fd as i32, Ordering::Release);
            act(&calls)
        });
        while listener.load(Ordering::Acquire) < 0 {
            assert!(!counted.is_finished(), "the filter cannot be installed");
            thread::yield_now();
        }
        // SAFETY: the kernel has just opened the descriptor, and nothing else uses it.
        let listener = unsafe { OwnedFd::from_raw_fd(listener.load(Ordering::Relaxed)) };
        while await_call(listener.as_raw_fd()) {
            if let Some(id) = receive(listener.as_raw_fd()) {
                calls.0.fetch_add(1, Ordering::Relaxed);
                let_it_go(listener.as_raw_fd(), id);
            }
        }
        counted.join().expect("no panic")
    })
}

/// Waits for a system call. Returns `false` once all threads with the filter have ended.
fn await_call(listener: RawFd) -> bool {
    let mut poll = libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
    // SAFETY: the descriptor is open, and the kernel writes to `poll` only.
    unsafe { libc::poll(&raw mut poll, 1, -1) };
    poll.revents & libc::POLLIN != 0 || poll.revents & libc::POLLHUP == 0
}

/// Returns the number of a call that waits.
fn receive(listener: RawFd) -> Option<u64> {
    // SAFETY: all fields are numbers. The kernel wants zeroes.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one such structure.
    let received = unsafe { libc::ioctl(listener, RECEIVE, &raw mut call) };
    // ENOENT: a signal has ended the call.
    (received == 0).then_some(call.id)
}

fn let_it_go(listener: RawFd, id: u64) {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
    // SAFETY: the kernel reads one such structure.
    let sent = unsafe { libc::ioctl(listener, SEND, &raw mut answer) };
    let error = io::Error::last_os_error().raw_os_error();
    assert!(sent == 0 || error == Some(libc::ENOENT), "{error:?}");
}
