//! Waits for the completions of a queue, in one of three ways.

use crate::driver::Waiter;
use crate::driver::kit::CompletionList;
use crate::sys::event::{Event, await_readable};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a thread waits for the completions of a queue.
///
/// A driver whose completions come from callbacks or threads has a
/// [`kit::CompletionList`](crate::driver::kit::CompletionList), which is a [`BlockingWait`].
#[non_exhaustive]
pub enum Wait {
    /// There is no wait: each accepted request can be reaped when `queue_rq` returns, and
    /// [`has_ready`](super::Queue::has_ready) reports it. The driver is never busy.
    AtOnce,
    /// A descriptor is readable while completions can be reaped. A full reap makes it unreadable.
    /// The layer polls it, alone or in the program's event loop.
    Descriptor(Arc<dyn AsFd + Send + Sync>),
    /// A call that blocks.
    Blocking(Arc<dyn BlockingWait>),
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wait::AtOnce => "AtOnce",
            Wait::Descriptor(_) => "Descriptor(..)",
            Wait::Blocking(_) => "Blocking(..)",
        })
    }
}

/// A blocking call that waits for the completions of a queue, beside the thread that uses the
/// queue. One thread at a time waits.
pub trait BlockingWait: Send + Sync {
    /// Waits until a completion can be reaped that was not reaped when the call began, a kick
    /// arrives, or `timeout` has passed. `nr_completions` is a hint: the caller needs that many, of
    /// those that were not reaped, and they are in flight or were completed. May return early on a
    /// signal, or once for an earlier completion or kick.
    fn wait(&self, nr_completions: usize, timeout: Option<Duration>);

    /// Ends the wait of the thread in [`wait`](BlockingWait::wait), now or when it next waits.
    /// Several kicks may count as one. Does not block.
    fn kick(&self);

    /// Returns a descriptor for event loops. It is readable while completions can be reaped, and a
    /// full reap makes it unreadable.
    ///
    /// # Errors
    /// The system's error if it has no resources, or [`io::ErrorKind::Unsupported`] if the queue
    /// cannot have one. Then only threads and futures wait for the disk.
    fn poll_fd(&self) -> io::Result<BorrowedFd<'_>>;

    /// Returns the number of system calls made for the queue that
    /// [`Queue::nr_syscalls`](super::Queue::nr_syscalls) does not count, for reports. By default 0.
    ///
    /// A queue whose turns make no system calls returns `None` there and counts those of its wait
    /// here. Then no turn asks for the number.
    fn nr_syscalls(&self) -> u64 {
        0
    }
}

impl<T: Send> BlockingWait for CompletionList<T> {
    fn wait(&self, nr_completions: usize, timeout: Option<Duration>) {
        self.wait_beside(nr_completions, timeout);
    }

    fn kick(&self) {
        CompletionList::kick(self);
    }

    fn poll_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.event_fd()
    }
}

/// The wait of a queue, for the layer.
pub(super) enum Beside {
    /// The list stays empty: only kicks and timeouts end its waits.
    AtOnce(CompletionList<()>),
    Descriptor(Descriptor),
    Blocking(Arc<dyn BlockingWait>),
}

impl Beside {
    /// Returns the wait of a queue. Other threads may wait and kick if it is shared.
    ///
    /// # Errors
    /// The system's error if it has no descriptor for kicks.
    pub(super) fn new(wait: Wait, is_shared: bool) -> io::Result<Beside> {
        Ok(match wait {
            Wait::AtOnce => Beside::AtOnce(CompletionList::new(0)),
            Wait::Descriptor(fd) => Beside::Descriptor(Descriptor::new(fd, is_shared)?),
            Wait::Blocking(wait) => Beside::Blocking(wait),
        })
    }

    /// Waits as the owner of the queue, which has found no completion ready.
    pub(super) fn wait_as_owner(&self, nr_completions: u32, timeout: Option<Duration>) {
        match self {
            // Nothing is in flight.
            Beside::AtOnce(_) if timeout.is_none() => {}
            Beside::AtOnce(list) => list.wait_for(1, timeout),
            Beside::Descriptor(descriptor) => descriptor.wait(timeout),
            Beside::Blocking(wait) => wait.wait(nr_completions as usize, timeout),
        }
    }

    pub(super) fn kick(&self) {
        match self {
            Beside::AtOnce(list) => list.kick(),
            Beside::Descriptor(descriptor) => descriptor.kick(),
            Beside::Blocking(wait) => wait.kick(),
        }
    }
}

impl Waiter for Beside {
    fn wait(&self, timeout: Option<Duration>) {
        match self {
            Beside::AtOnce(list) => list.wait_beside(1, timeout),
            Beside::Descriptor(descriptor) => descriptor.wait(timeout),
            Beside::Blocking(wait) => wait.wait(1, timeout),
        }
    }

    fn poll_fd(&self) -> io::Result<Option<BorrowedFd<'_>>> {
        match self {
            Beside::AtOnce(_) => Ok(None),
            Beside::Descriptor(descriptor) => Ok(Some(descriptor.fd.as_fd())),
            Beside::Blocking(wait) => wait.poll_fd().map(Some),
        }
    }

    fn nr_syscalls(&self) -> u64 {
        match self {
            Beside::Descriptor(descriptor) => descriptor.nr_syscalls.load(Ordering::Relaxed),
            // The queue counts those of its call, or `nr_uncounted_syscalls` does.
            Beside::AtOnce(_) | Beside::Blocking(_) => 0,
        }
    }

    fn nr_uncounted_syscalls(&self) -> u64 {
        match self {
            Beside::Blocking(wait) => wait.nr_syscalls(),
            Beside::AtOnce(_) | Beside::Descriptor(_) => 0,
        }
    }
}

/// A wait for a descriptor of the driver.
pub(super) struct Descriptor {
    fd: Arc<dyn AsFd + Send + Sync>,
    /// Signalled by kicks. `None` if only the owner waits, which no thread kicks.
    kick: Option<Event>,
    nr_syscalls: AtomicU64,
}

impl Descriptor {
    fn new(fd: Arc<dyn AsFd + Send + Sync>, is_shared: bool) -> io::Result<Descriptor> {
        let kick = is_shared.then(Event::new).transpose()?;
        Ok(Descriptor { fd, kick, nr_syscalls: AtomicU64::new(0) })
    }

    fn wait(&self, timeout: Option<Duration>) {
        self.count_syscall();
        let Some(kick) = &self.kick else {
            await_readable([self.fd.as_fd()], timeout);
            return;
        };
        if let Some([_, true]) = await_readable([self.fd.as_fd(), kick.fd()], timeout) {
            self.count_syscall();
            kick.clear();
        }
    }

    fn kick(&self) {
        if let Some(kick) = &self.kick {
            self.count_syscall();
            kick.signal();
        }
    }

    fn count_syscall(&self) {
        // Relaxed: a count.
        self.nr_syscalls.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Instant;

    /// A wait that nothing ends lasts this long; no other wait does.
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn kick_or_descriptor_ends_a_wait_now_or_later_and_a_kick_ends_one() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let beside = Beside::new(Wait::Descriptor(Arc::new(reader)), true).expect("a descriptor");
        let begin = Instant::now();
        beside.kick();
        beside.kick();
        beside.wait(Some(LONG));
        assert!(begin.elapsed() < LONG, "a kick before the wait");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| beside.wait(Some(LONG)));
            std::thread::sleep(Duration::from_millis(2));
            assert!(!waiting.is_finished(), "two kicks before a wait are one");
            beside.kick();
        });
        writer.write_all(&[0]).expect("room for a byte");
        beside.wait(Some(LONG));
        beside.wait_as_owner(1, None);
        assert!(begin.elapsed() < LONG, "the descriptor is readable");
    }

    #[test]
    fn wait_of_a_driver_that_completes_at_once_ends_with_a_kick_or_its_timeout() {
        let beside = Beside::new(Wait::AtOnce, true).expect("no descriptor");
        let begin = Instant::now();
        beside.kick();
        beside.wait(Some(LONG));
        beside.wait_as_owner(1, None);
        assert!(begin.elapsed() < LONG);
        beside.wait(Some(Duration::from_millis(3)));
        assert!(begin.elapsed() >= Duration::from_millis(3));
        assert!(beside.poll_fd().is_ok_and(|fd| fd.is_none()));
    }
}
