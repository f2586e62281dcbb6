//! System calls that waiting threads make themselves: one request, one call.
//!
//! A thread that waits for a single request gains nothing from a ring: the ring adds a wake-up and,
//! if other threads use the disk, a second and third system call. So the thread offers to make the
//! I/O itself. The request passes through the context like any other: merging, gates, tags,
//! retries, time limits and statistics apply. Instead of starting the I/O, the driver leaves a
//! description of it to the thread and returns [`Issue::Begun`](forebay_core::Issue::Begun). The
//! thread releases the context, makes the system call, adds the result to [`OwnCalls`] and requests
//! a turn, which reaps it.
//!
//! The offer and the description are state of the thread. So only the thread that made the offer
//! gets the request, only in a turn of its own, and no lock is needed. Between that turn and the
//! call the thread must run no foreign code. If it has to, the driver first takes the description
//! back and starts the I/O as usual ([`Driver::withdraw`](forebay_core::Driver::withdraw)).
//!
//! This applies to flushes, and to reads and writes of one bio with one segment of memory.
// It makes system calls.
#![allow(unsafe_code)]

use crate::driver::syscall::{lacks_durable_write, made, sync, write_durable};
use crate::errno;
use crate::sys::primitive::{AtomicBool, AtomicU32, Ordering, guess};
use forebay_core::{Bio, BioFlags, BlockStatus, IssuedRequest, Op, Segments, Tag};
use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsRawFd;

/// A request that was left to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnCall {
    pub(in crate::driver) tag: Tag,
    pub(in crate::driver) op: Op,
    pub(in crate::driver) fua: bool,
    /// Whether a flush includes all metadata.
    pub(in crate::driver) metadata: bool,
    pub(in crate::driver) start: u64,
    /// The address of the memory, and its length in bytes.
    pub(in crate::driver) addr: usize,
    pub(in crate::driver) len: usize,
}

/// The requests that a thread offers to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// A read or write of this owner.
    pub(crate) data_of: Option<u64>,
    /// A flush. Other threads may wait for it, too.
    pub(crate) flush: bool,
}

impl Offer {
    /// No request.
    pub(crate) const NONE: Offer = Offer { data_of: None, flush: false };

    /// Returns the offer of a thread that waits for a bio of `owner` to end.
    pub(crate) fn of(bio: &Bio, owner: u64) -> Offer {
        let is_one = matches!(bio.segments, Segments::One(_));
        Offer {
            data_of: (is_one && bio.op.moves_data()).then_some(owner),
            flush: bio.op == Op::Flush || bio.flags.contains(BioFlags::FUA),
        }
    }

    /// Updates the offer after a turn that has left `left` to the thread. A thread makes at most
    /// one call for its data, and then one flush. If a turn has left it no request, its own request
    /// has to wait, and the offer ends.
    pub(crate) fn made(&mut self, left: Option<&OwnCall>) {
        match left {
            Some(call) if call.op.moves_data() => self.data_of = None,
            _ => *self = Offer::NONE,
        }
    }
}

thread_local! {
    static OFFER: Cell<Offer> = const { Cell::new(Offer::NONE) };
    static LEFT: Cell<Option<OwnCall>> = const { Cell::new(None) };
}

/// Sets the requests that the calling thread offers to make, until [`end_offer`].
pub(crate) fn offer(offer: Offer) {
    OFFER.set(offer);
}

/// Returns whether the calling thread offers to make a flush.
#[inline]
pub(crate) fn offers_flush() -> bool {
    OFFER.get().flush
}

/// Ends the offer of the calling thread. Returns the request that was left to it, if there is one.
/// The caller must then make it ([`crate::driver::Waiter::make_own_call`]), or begin it in the
/// driver as usual.
pub(crate) fn end_offer() -> Option<OwnCall> {
    OFFER.set(Offer::NONE);
    LEFT.take()
}

/// Leaves a request to the calling thread if that thread has offered to make it. Returns whether it
/// did.
#[inline]
fn leave(rq: &IssuedRequest<'_>) -> bool {
    let offer = OFFER.get();
    if offer == Offer::NONE {
        return false;
    }
    leave_offered(offer, rq)
}

fn leave_offered(offer: Offer, rq: &IssuedRequest<'_>) -> bool {
    let mut segments = rq.segments();
    let (addr, len) = match (rq.op, segments.next(), segments.next()) {
        (Op::Flush, ..) if offer.flush => (0, 0),
        (Op::Read | Op::Write, Some(one), None)
            if offer.data_of == Some(rq.owner()) && rq.nr_bios == 1 =>
        {
            (one.addr, one.len as usize)
        }
        _ => return false,
    };
    if LEFT.get().is_some() {
        return false;
    }
    let &IssuedRequest { tag, op, fua, metadata, start, .. } = rq;
    LEFT.set(Some(OwnCall { tag, op, fua, metadata, start, addr, len }));
    true
}

impl OwnCall {
    /// Makes the system call. Returns the number of bytes moved, or a negative errno. Adds the
    /// system calls to `nr_syscalls`.
    fn make(&self, file: &File, nr_syscalls: &mut u32) -> i32 {
        let answer = match self.op {
            Op::Read | Op::Write => self.move_data(file, nr_syscalls),
            _ => sync(file, self.metadata, nr_syscalls),
        };
        match answer {
            // A request is at most `max_sectors` long, far below 2 GiB.
            Ok(moved) => moved as i32,
            Err(errno) => -errno,
        }
    }

    fn move_data(&self, file: &File, nr_syscalls: &mut u32) -> Result<u64, i32> {
        let (fd, start) = (file.as_raw_fd(), self.start as libc::off_t);
        let memory = std::ptr::with_exposed_provenance_mut::<libc::c_void>(self.addr);
        let vector = libc::iovec { iov_base: memory, iov_len: self.len };
        let call = |fua: bool| {
            // SAFETY: the descriptor is open. The memory stays valid, and nothing else uses it,
            // until the completion is reaped (K2), which this thread's result precedes.
            unsafe {
                match self.op {
                    Op::Read => libc::pread(fd, memory, self.len, start),
                    _ if fua => write_durable(fd, &raw const vector, 1, self.start),
                    _ => libc::pwrite(fd, memory, self.len, start),
                }
            }
        };
        match made(nr_syscalls, || call(self.fua)) {
            // As for the calls of `psync`.
            Err(libc::ENOSYS) if self.fua && lacks_durable_write() => {
                let moved = made(nr_syscalls, || call(false))?;
                sync(file, false, nr_syscalls)?;
                Ok(moved)
            }
            answer => answer,
        }
    }
}

/// Returns whether a call has failed because it is forbidden (seccomp), and not by the file.
///
/// The result of a sync is final: the kernel reports a failed write-back once for each open file,
/// with the number that the file system has recorded (`errseq_t`), and FUSE passes on any number. A
/// second sync would succeed over lost data. So a call without a file decides.
#[cold]
pub(super) fn is_forbidden(call: &OwnCall, answer: i32) -> bool {
    if !matches!(-answer, libc::EPERM | libc::ENOSYS) {
        return false;
    }
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    // SAFETY: no descriptor has the number -1, so the kernel does nothing.
    let probe = |op: Op, fua: bool| unsafe {
        match op {
            Op::Flush if call.metadata => libc::fsync(-1) as isize,
            Op::Flush => libc::fdatasync(-1) as isize,
            Op::Read => libc::pread(-1, std::ptr::null_mut(), 0, 0),
            _ if fua => write_durable(-1, &raw const nothing, 1, 0),
            _ => libc::pwrite(-1, std::ptr::null(), 0, 0),
        }
    };
    let fails = |op: Op, fua: bool| made(&mut 0, || probe(op, fua)) == Err(-answer);
    match call.op {
        // The write and the sync were made as two calls instead.
        Op::Write if call.fua && lacks_durable_write() => {
            fails(Op::Write, false) || fails(Op::Flush, false)
        }
        op => fails(op, call.fua),
    }
}

/// The link of the oldest result: the end of the list.
const NO_TAG: u32 = u32::MAX;

/// Lock-free list of the results of calls that threads have made themselves, for one queue. Many
/// threads add results; the thread that uses the driver takes them.
///
/// The results are a list of tags that begins at `newest`, linked by `older`. A tag is in the list
/// at most once, because it is in flight until its result was taken. All entries are taken at once,
/// so there is no ABA problem. Source: as for the stack of bios (`runtime/stack.rs`).
#[derive(Debug)]
pub(crate) struct OwnCalls {
    newest: AtomicU32,
    /// For each tag: the next older tag with a result, and the result.
    older: Box<[AtomicU32]>,
    answers: Box<[AtomicU32]>,
    /// System calls beyond the first one of each result.
    nr_more_syscalls: AtomicU32,
    /// The queue can also make a request without the thread's own call.
    has_other_way: bool,
    /// A call was forbidden.
    is_forbidden: AtomicBool,
}

/// A result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) enum Made {
    /// The number of bytes, or a negative errno.
    Answer(i32),
    /// The call is forbidden (seccomp), so the driver has to make the request.
    Forbidden,
}

impl Made {
    /// Returns the result of the request; `None` if the call is forbidden.
    pub(in crate::driver) fn result(self) -> Option<Result<u64, BlockStatus>> {
        match self {
            Made::Answer(answer @ 0..) => Some(Ok(answer as u64)),
            Made::Answer(answer) => Some(Err(errno::to_status(-answer))),
            Made::Forbidden => None,
        }
    }
}

/// The answer that stands for a forbidden call. No system call returns it.
const FORBIDDEN: i32 = i32::MIN;

impl OwnCalls {
    /// Creates the list for a queue of `depth` tags. `has_other_way`: the queue can make a request
    /// whose own call is forbidden.
    pub(in crate::driver) fn new(depth: u32, has_other_way: bool) -> OwnCalls {
        OwnCalls {
            newest: AtomicU32::new(NO_TAG),
            older: (0..depth).map(|_| AtomicU32::new(NO_TAG)).collect(),
            answers: (0..depth).map(|_| AtomicU32::new(0)).collect(),
            nr_more_syscalls: AtomicU32::new(0),
            has_other_way,
            is_forbidden: AtomicBool::new(false),
        }
    }

    /// Leaves a request to the calling thread if that thread has offered to make it. Returns
    /// whether it did. For [`Driver::queue_rq`](forebay_core::Driver::queue_rq).
    #[inline]
    pub(in crate::driver) fn leave(&self, rq: &IssuedRequest<'_>) -> bool {
        // Relaxed: if this misses the store, the call is made and is forbidden again.
        leave(rq) && !(self.is_forbidden.load(Ordering::Relaxed) && end_offer().is_some())
    }

    /// Makes a call that was left to the calling thread, and adds its result. A turn must follow.
    pub(in crate::driver) fn make(&self, call: OwnCall, file: &File) {
        let mut nr_syscalls = 0;
        let mut answer = call.make(file, &mut nr_syscalls);
        if self.has_other_way && is_forbidden(&call, answer) {
            self.is_forbidden.store(true, Ordering::Relaxed);
            answer = FORBIDDEN;
        }
        if nr_syscalls > 1 {
            // Relaxed: a count.
            self.nr_more_syscalls.fetch_add(nr_syscalls - 1, Ordering::Relaxed);
        }
        self.push(call.tag, answer);
    }

    fn push(&self, tag: Tag, answer: i32) {
        let at = tag.index();
        // Relaxed, here and for the link: the exchange below publishes both.
        self.answers[at].store(answer.cast_unsigned(), Ordering::Relaxed);
        let mut newest = guess!(self.newest, NO_TAG - 1);
        loop {
            self.older[at].store(newest, Ordering::Relaxed);
            // Release: the thread that takes the list sees the result, and the bytes read.
            let orders = (Ordering::Release, Ordering::Relaxed);
            let swap = self.newest.compare_exchange_weak(newest, at as u32, orders.0, orders.1);
            match swap {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Returns whether there may be results. If this misses one, the turn that the result's thread
    /// requests afterwards finds it: the run word orders the two.
    #[inline]
    pub(in crate::driver) fn has_results(&self) -> bool {
        self.newest.load(Ordering::Relaxed) != NO_TAG
    }

    /// Takes all results and passes them to `out`, newest first. Adds the system calls made for
    /// them to `nr_syscalls`.
    #[inline]
    pub(in crate::driver) fn take(&self, nr_syscalls: &mut u64, mut out: impl FnMut(Tag, Made)) {
        if !self.has_results() {
            return;
        }
        // Acquire: pairs with the release of each push (each exchange in between is part of the
        // release sequence of the earlier ones).
        let mut next = self.newest.swap(NO_TAG, Ordering::Acquire);
        *nr_syscalls += u64::from(self.nr_more_syscalls.swap(0, Ordering::Relaxed));
        while next != NO_TAG {
            let at = next as usize;
            next = self.older[at].load(Ordering::Relaxed);
            let answer = self.answers[at].load(Ordering::Relaxed).cast_signed();
            *nr_syscalls += 1;
            let made = if answer == FORBIDDEN { Made::Forbidden } else { Made::Answer(answer) };
            out(Tag::from_index(at), made);
        }
    }
}

#[cfg(test)]
mod models;
