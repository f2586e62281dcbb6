//! Descriptors for event loops: eventfd, timerfd, and epoll.
// It makes system calls on its own descriptors.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// An eventfd: readable from a signal until it is cleared.
#[derive(Debug)]
pub(crate) struct Event(File);

impl Event {
    pub(crate) fn new() -> io::Result<Event> {
        // SAFETY: integer arguments only.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        owned(fd).map(|fd| Event(fd.into()))
    }

    /// Creates a blocking one, which must not be cleared before [`Event::never_block`]. A wait is
    /// then one system call.
    pub(crate) fn new_blocking() -> io::Result<Event> {
        // SAFETY: integer arguments only.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        owned(fd).map(|fd| Event(fd.into()))
    }

    /// Makes it non-blocking. From then on it may be cleared, and watched by others.
    pub(crate) fn never_block(&self) {
        // SAFETY: integer arguments only.
        let answer = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert!(answer == 0, "an eventfd of our own: {}", io::Error::last_os_error());
    }

    /// Makes it blocking, as a process that shares it may do.
    #[cfg(all(test, feature = "vhost-user"))]
    pub(crate) fn set_blocking(&self) {
        // SAFETY: integer arguments only.
        let answer = unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_SETFL, 0) };
        assert!(answer == 0, "an eventfd of our own: {}", io::Error::last_os_error());
    }

    /// Waits for a signal and clears it, or until the timeout. May return early on a POSIX signal.
    /// One thread at a time may call this.
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        let refused = |answer: io::Result<usize>| {
            answer.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        let must_poll = timeout.is_some() || refused((&self.0).read(&mut [0; 8]));
        if must_poll && self.is_readable(timeout) {
            // The descriptor is blocking only while no other thread clears it, so this read does
            // not wait.
            let _ = (&self.0).read(&mut [0; 8]);
        }
    }

    /// Returns whether the event is readable, now or before the timeout.
    fn is_readable(&self, timeout: Option<Duration>) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit = timeout.map(timespec);
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: one structure that the kernel writes to, and a time that it reads, if any.
        unsafe { libc::ppoll(&raw mut poll, 1, limit, std::ptr::null()) > 0 }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn signal(&self) {
        // Fails only if the counter is at its maximum: then it is readable.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        // Fails only if it is clear already.
        let _ = (&self.0).read(&mut [0; 8]);
    }

    /// Clears an event that another process shares. That process can make the descriptor blocking,
    /// or clear it first. Neither makes this call wait (before Linux 5.8 both together do). Returns
    /// whether the event was signalled.
    #[cfg(feature = "vhost-user")]
    pub(crate) fn clear_shared(&self) -> bool {
        let mut value = [0_u8; 8];
        let vector = libc::iovec { iov_base: value.as_mut_ptr().cast(), iov_len: value.len() };
        let (fd, at_position) = (self.0.as_raw_fd(), -1);
        // SAFETY: the kernel writes to eight bytes of this frame.
        let answer =
            unsafe { libc::preadv2(fd, &raw const vector, 1, at_position, libc::RWF_NOWAIT) };
        let is_unknown = || {
            let error = io::Error::last_os_error().raw_os_error();
            matches!(error, Some(libc::EOPNOTSUPP | libc::ENOSYS))
        };
        answer > 0 || answer < 0 && is_unknown() && (&self.0).read(&mut value).is_ok()
    }
}

/// Several descriptors, for waits that end when one of them becomes readable (`EPOLLET`). A signal
/// ends one wait, now or the next one, and need not be cleared.
#[cfg(feature = "vhost-user")]
#[derive(Debug)]
pub(crate) struct Edges {
    epoll: OwnedFd,
}

#[cfg(feature = "vhost-user")]
impl Edges {
    /// Watches these descriptors, which must stay open as long as the result.
    ///
    /// # Errors
    /// The OS error if the epoll descriptor or a watch cannot be created.
    pub(crate) fn new<const N: usize>(fds: [BorrowedFd<'_>; N]) -> io::Result<Edges> {
        // SAFETY: integer arguments only.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        for (nth, fd) in fds.into_iter().enumerate() {
            let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
            let mut what = libc::epoll_event { events, u64: 1 << nth };
            let (epoll, add) = (epoll.as_raw_fd(), libc::EPOLL_CTL_ADD);
            // SAFETY: open descriptors, and a structure that the kernel reads.
            if unsafe { libc::epoll_ctl(epoll, add, fd.as_raw_fd(), &raw mut what) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Edges { epoll })
    }

    /// Waits until one of the descriptors was signalled. Returns a bit for each of these: none
    /// after the timeout. Returns `None` on a signal of POSIX. One thread at a time may call this.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Option<u64> {
        const NR: usize = 4;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; NR];
        let limit = timeout.map(timespec);
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (fd, list) = (self.epoll.as_raw_fd(), events.as_mut_ptr());
        let no_mask = std::ptr::null::<libc::sigset_t>();
        // SAFETY: the kernel writes to at most `NR` structures, and reads a time, if any.
        let mut nr =
            unsafe { libc::syscall(libc::SYS_epoll_pwait2, fd, list, NR, limit, no_mask, 0_usize) };
        if nr < 0 {
            // Before Linux 5.11 there is no such call; a filter may refuse it.
            if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                return None;
            }
            await_readable([self.epoll.as_fd()], timeout)?;
            // SAFETY: as above, without a time.
            nr = unsafe { libc::epoll_wait(fd, list, NR as i32, 0) }.into();
        }
        let nr = usize::try_from(nr).unwrap_or(0);
        Some(events[..nr].iter().fold(0, |bits, event| bits | event.u64))
    }
}

/// Waits until one of these descriptors is readable. Returns which of them are: none of them after
/// the timeout. Returns `None` on a signal.
pub(crate) fn await_readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> Option<[bool; N]> {
    let entry =
        |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polls = fds.map(entry);
    let limit = timeout.map(timespec);
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `N` structures that the kernel writes to, and a time that it reads, if any.
    let answer =
        unsafe { libc::ppoll(polls.as_mut_ptr(), N as libc::nfds_t, limit, std::ptr::null()) };
    (answer >= 0).then(|| polls.map(|poll| poll.revents != 0))
}

/// A timerfd: readable from the time that it was started for until it is started or stopped.
#[derive(Debug)]
pub(crate) struct TimerFd(File);

/// Returns the time of the clock of [`TimerFd`], in nanoseconds.
///
/// The layer's own clock ([`clock`](crate::sys::clock)) may run at a slightly other rate, or
/// stand still for a while after it was found to be ahead. So only this clock shows whether a timer
/// may have expired.
pub(crate) fn timer_now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a structure that the kernel writes to. The call cannot fail: the clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl TimerFd {
    /// Creates a timer that is not running.
    ///
    /// # Errors
    /// The OS error if a descriptor cannot be created, or setting a timer is forbidden.
    pub(crate) fn new() -> io::Result<TimerFd> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: integer arguments only.
        let timer = owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        let timer = TimerFd(timer.into());
        timer.settime(Duration::ZERO).map_err(|error| {
            let text = format!("timerfd_settime: {error}: allow it in the seccomp filter");
            io::Error::new(error.kind(), text)
        })?;
        Ok(timer)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Makes it readable after `delay`. Returns the time before which it does not expire
    /// ([`timer_now_ns`]).
    ///
    /// # Errors
    /// The OS error if a seccomp filter forbids it by now. The timer continues as before.
    pub(crate) fn start(&self, delay: Duration) -> io::Result<u64> {
        let now_ns = timer_now_ns();
        // Zero would stop it.
        self.settime(delay.max(Duration::from_nanos(1)))?;
        Ok(now_ns.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Makes it unreadable. Returns false if it still runs because a seccomp filter forbids
    /// stopping it: it becomes readable later.
    pub(crate) fn stop(&self) -> bool {
        // If the timer has expired, reading it makes it unreadable too.
        self.settime(Duration::ZERO).is_ok() || (&self.0).read(&mut [0; 8]).is_ok()
    }

    fn settime(&self, value: Duration) -> io::Result<()> {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = libc::itimerspec { it_interval: zero, it_value: timespec(value) };
        let fd = self.0.as_raw_fd();
        // SAFETY: an open descriptor, a structure that the kernel reads, and none that it writes.
        let answer = unsafe { libc::timerfd_settime(fd, 0, &raw const spec, std::ptr::null_mut()) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Several descriptors as one: readable while one of them is.
#[derive(Debug)]
pub(crate) struct AnyOf {
    epoll: OwnedFd,
}

impl AnyOf {
    /// Watches these descriptors, which must stay open as long as the result.
    ///
    /// # Errors
    /// The OS error if the epoll descriptor or a watch cannot be created.
    pub(crate) fn new<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>) -> io::Result<AnyOf> {
        // SAFETY: integer arguments only.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        for fd in fds {
            let mut what = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            let (epoll, add) = (epoll.as_raw_fd(), libc::EPOLL_CTL_ADD);
            // SAFETY: open descriptors, and a structure that the kernel reads.
            if unsafe { libc::epoll_ctl(epoll, add, fd.as_raw_fd(), &raw mut what) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(AnyOf { epoll })
    }

    /// Sets the events that are watched on `fd`, which is one of the descriptors: input if
    /// `for_input`, room for output if `for_room`.
    pub(crate) fn change(&self, fd: BorrowedFd<'_>, for_input: bool, for_room: bool) {
        let flag = |wanted: bool, flag: i32| if wanted { flag as u32 } else { 0 };
        let events = flag(for_input, libc::EPOLLIN) | flag(for_room, libc::EPOLLOUT);
        let change = |call| {
            let mut what = libc::epoll_event { events, u64: 0 };
            // SAFETY: open descriptors, and a structure that the kernel reads.
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), call, fd.as_raw_fd(), &raw mut what) }
        };
        // With an empty event mask epoll would still report a hang-up. So the descriptor is removed
        // then, and added again with the next change.
        match events {
            0 => change(libc::EPOLL_CTL_DEL),
            _ if change(libc::EPOLL_CTL_MOD) == 0 => 0,
            _ => change(libc::EPOLL_CTL_ADD),
        };
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.epoll)
    }

    /// Returns whether one of the descriptors is readable now.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_readable(&self) -> bool {
        let (fd, events) = (self.epoll.as_raw_fd(), libc::POLLIN);
        let mut poll = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: one structure that the kernel writes to.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    }
}

/// Converts a time limit to the kernel's form.
pub(crate) fn timespec(limit: Duration) -> libc::timespec {
    libc::timespec {
        // 68 years, in the type of the field, which depends on the C library.
        tv_sec: limit.as_secs().min(i32::MAX as u64) as _,
        tv_nsec: limit.subsec_nanos().into(),
    }
}

/// Returns the descriptor that a system call has created, or its error.
fn owned(fd: i32) -> io::Result<OwnedFd> {
    match fd {
        // SAFETY: the descriptor is new, and has no other owner.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
