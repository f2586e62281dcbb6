//! Linux AIO context, through its raw system calls.
//!
//! Source: <linux/aio_abi.h>, and `fs/aio.c` for the ring. Completions are in a ring in memory that
//! the kernel maps into the process. The ring's address is the context's id. The kernel advances
//! the tail after it has written the completion; the consumer advances the head. The kernel's own
//! consumer, `io_getevents`, and one in the process must not run at the same time: here the one
//! user of the driver calls both. The ring's magic number and feature flags confirm the known
//! layout. If they differ, the system call takes all completions.
// It makes system calls that no library wraps, and reads memory that the kernel writes.
#![allow(unsafe_code)]

use crate::sys::event;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The operation of a request (`IOCB_CMD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Command {
    Pread = 0,
    Pwrite = 1,
    Fsync = 2,
    Fdsync = 3,
    Preadv = 7,
    Pwritev = 8,
}

/// `IOCB_FLAG_RESFD`: the completion signals an eventfd.
pub(super) const RESFD: u32 = 1;

/// `struct iocb`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Iocb {
    pub(super) data: u64,
    #[cfg(target_endian = "big")]
    pub(super) rw_flags: i32,
    key: u32,
    #[cfg(target_endian = "little")]
    pub(super) rw_flags: i32,
    opcode: u16,
    reqprio: i16,
    fildes: u32,
    pub(super) buf: u64,
    pub(super) nbytes: u64,
    pub(super) offset: i64,
    reserved2: u64,
    pub(super) flags: u32,
    pub(super) resfd: u32,
}

impl Iocb {
    pub(super) fn new(command: Command, fd: RawFd, data: u64) -> Iocb {
        Iocb {
            data,
            rw_flags: 0,
            key: 0,
            opcode: command as u16,
            reqprio: 0,
            fildes: fd as u32,
            buf: 0,
            nbytes: 0,
            offset: 0,
            reserved2: 0,
            flags: 0,
            resfd: 0,
        }
    }

    /// Returns the operation.
    #[cfg(test)]
    pub(super) fn opcode(&self) -> u16 {
        self.opcode
    }
}

/// `struct io_event`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct IoEvent {
    pub(super) data: u64,
    pub(super) obj: u64,
    /// A number of bytes, or a negative errno.
    pub(super) res: i64,
    pub(super) res2: i64,
}

/// The head of `struct aio_ring`; events follow.
#[repr(C)]
struct RingHead {
    id: u32,
    nr: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compat_features: u32,
    incompat_features: u32,
    header_len: u32,
}

const MAGIC: u32 = 0xa10a_10a1;

/// An AIO context. Dropping it destroys the context, which waits for requests in flight.
#[derive(Debug)]
pub(super) struct Context {
    id: usize,
    /// The ring in memory has the known layout.
    has_ring: bool,
}

impl Context {
    /// Creates a context for `nr` requests at once.
    pub(super) fn new(nr: u32) -> io::Result<Context> {
        let mut id = 0usize;
        // SAFETY: the kernel writes one word, the context's id.
        let answer = unsafe { libc::syscall(libc::SYS_io_setup, nr, &raw mut id) };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut context = Context { id, has_ring: true };
        let ring = context.ring();
        context.has_ring = ring.is_some_and(|ring| {
            let known = (MAGIC, 0, size_of::<RingHead>() as u32);
            (ring.magic, ring.incompat_features, ring.header_len) == known && ring.nr > 0
        });
        Ok(context)
    }

    fn ring(&self) -> Option<&RingHead> {
        let ring = std::ptr::with_exposed_provenance::<RingHead>(self.id);
        // SAFETY: the kernel has mapped at least one readable and writable page there, and unmaps
        // it with the context. Only the two indices change, and they are atomic. (All kernels since
        // 2.6 use this layout. A change of the layout changes the magic number, which is checked
        // first.)
        self.has_ring.then(|| unsafe { &*ring })
    }

    /// Submits requests. Returns how many the kernel accepted.
    ///
    /// # Safety
    /// Each pointer points to an `Iocb`. The memory that the requests name stays valid, and nothing
    /// else uses it, until their completions are taken. The vectors stay valid until this returns.
    pub(super) unsafe fn submit(&self, iocbs: &mut [*mut Iocb]) -> io::Result<usize> {
        // SAFETY: the caller guarantees it. The kernel reads the pointers and what they point to,
        // and writes the field `key`.
        let answer =
            unsafe { libc::syscall(libc::SYS_io_submit, self.id, iocbs.len(), iocbs.as_mut_ptr()) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as usize) }
    }

    /// Waits until there are `min` completions or `timeout` has passed, and takes those present
    /// while `events` has room. Only the thread that also calls [`Context::pop`] may call this. May
    /// return early on a signal.
    pub(super) fn get(&self, min: usize, timeout: Option<Duration>, events: &mut Vec<IoEvent>) {
        let room = events.spare_capacity_mut();
        assert!(min <= room.len());
        let (id, first, nr) = (self.id, room.as_mut_ptr(), room.len());
        // With nothing to wait for, a zero timeout prevents a wait; only old kernels need it.
        let timeout = if min == 0 { Some(Duration::ZERO) } else { timeout };
        let limit = timeout.map(event::timespec);
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the kernel writes at most `nr` events, into the spare capacity of the list, and
        // reads a time, if any.
        let answer = unsafe { libc::syscall(libc::SYS_io_getevents, id, min, nr, first, limit) };
        match answer {
            // SAFETY: the kernel has written this many events.
            0.. => unsafe { events.set_len(events.len() + answer as usize) },
            _ => {
                let error = io::Error::last_os_error();
                let passes = error.raw_os_error() == Some(libc::EINTR);
                assert!(passes, "io_getevents on a context of our own: {error}");
            }
        }
    }

    /// Returns whether completions can be taken without a system call.
    pub(super) fn has_ring(&self) -> bool {
        self.has_ring
    }

    /// Takes the oldest completion from the ring. Only the thread that also calls [`Context::get`]
    /// may call this.
    #[inline]
    pub(super) fn pop(&self) -> Option<IoEvent> {
        let ring = self.ring()?;
        // Relaxed: only this side writes the head. Acquire pairs with the kernel's barrier between
        // an event and the tail behind it: the event is seen whole.
        let head = ring.head.load(Ordering::Relaxed);
        if head == ring.tail.load(Ordering::Acquire) {
            return None;
        }
        assert!(head < ring.nr, "the head of a ring is in it");
        let events = std::ptr::with_exposed_provenance::<IoEvent>(self.id + size_of::<RingHead>());
        // SAFETY: `nr` events follow the ring's head, all mapped. The kernel does not write to this
        // one until the head is past it.
        let event = unsafe { events.add(head as usize).read() };
        // Release: the event was read before the kernel sees the new head and overwrites it.
        ring.head.store((head + 1) % ring.nr, Ordering::Release);
        Some(event)
    }

    /// Returns whether there is a completion in the ring. Any thread may call this, so the
    /// completion may be gone already.
    pub(super) fn has_events(&self) -> bool {
        // Acquire: a completion found here can be taken.
        self.ring().is_some_and(|ring| {
            ring.head.load(Ordering::Acquire) != ring.tail.load(Ordering::Acquire)
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the argument is a number. The ring is unmapped, and no reference to it is left.
        let answer = unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
        // A child of a fork has none of its parent's contexts.
        debug_assert!(answer == 0 || std::thread::panicking(), "{}", io::Error::last_os_error());
    }
}
