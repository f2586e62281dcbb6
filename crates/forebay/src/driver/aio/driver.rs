//! Driver of a file through a Linux AIO context.
//!
//! Queued requests are submitted with one system call per batch. The kernel may accept only some of
//! them, or none for now; the rest stay here, in order, for the next call. Completions are read
//! from the ring in memory. Only the owner of a context waits with a system call that also takes
//! completions. If the kernel refuses a request at once, no part of it was started: it has failed,
//! except for an unsupported flush, which the helper makes.
//!
//! A completion signals the eventfd only if a thread may listen: in a shared context, after a
//! caller has asked for the descriptor, or after the helper was used. Requests submitted before
//! that are *quiet*.
// It hands addresses to the kernel.
#![allow(unsafe_code)]

use super::context::{Command, Context, IoEvent, Iocb, RESFD};
use super::waiter::AioWaiter;
use crate::driver::deadline::Deadline;
use crate::driver::own_call;
use crate::driver::psync::call::Call;
use crate::driver::psync::pool::Pool;
use crate::driver::psync::queue::Done;
use crate::driver::vectors::Vectors;
use crate::driver::{Mode, Waiter};
use crate::errno;
use forebay_core::{Completions, Driver, Issue, IssuedRequest, Op, Reap, Tag};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// The submit function: the system call, or a test's replacement that accepts less.
pub(super) type Submit = unsafe fn(&Context, &mut [*mut Iocb]) -> io::Result<usize>;

pub(super) struct AioDriver {
    waiter: Arc<AioWaiter>,
    pool: Arc<Pool>,
    mode: Mode,
    pub(super) submit: Submit,
    /// The slot of each tag. The helper borrows its vectors for a call.
    slots: Box<[Slot]>,
    /// Requests that are not submitted yet, in order.
    pending: Vec<Iocb>,
    pointers: Pointers,
    /// Completions to be reaped: those that a wait has taken, and refused requests.
    taken: Vec<IoEvent>,
    /// Finished calls of the helper; empty between reaps.
    helped: Vec<Done>,
    nr_in_kernel: usize,
    /// The number of those whose completion does not signal the eventfd.
    nr_quiet: usize,
    nr_helped: usize,
    /// Results of the requests that threads make themselves.
    nr_own: usize,
    /// New requests signal the eventfd on completion.
    tells: bool,
    /// The kernel has not accepted all committed requests.
    is_short: bool,
    nr_syscalls: u64,
}

#[derive(Debug)]
struct Slot {
    vectors: Option<Vectors>,
    op: Op,
    /// For a flush: all metadata as well.
    metadata: bool,
    fua: bool,
    start: u64,
    is_quiet: bool,
}

/// Scratch space for the pointers of a batch; meaningless between calls.
struct Pointers(Vec<*mut Iocb>);

// SAFETY: the pointers are used only within one call of `submit_pending`, which fills them in.
unsafe impl Send for Pointers {}

impl AioDriver {
    pub(super) fn new(
        waiter: Arc<AioWaiter>,
        pool: Arc<Pool>,
        mode: Mode,
        max_segments: u32,
        depth: u32,
    ) -> AioDriver {
        let slot = || {
            let vectors = Some(Vectors::new(max_segments));
            Slot { vectors, op: Op::Flush, metadata: false, fua: false, start: 0, is_quiet: false }
        };
        let nr = depth as usize;
        AioDriver {
            waiter,
            pool,
            mode,
            submit: Context::submit,
            slots: (0..depth).map(|_| slot()).collect(),
            pending: Vec::with_capacity(nr),
            pointers: Pointers(Vec::with_capacity(nr)),
            taken: Vec::with_capacity(nr),
            helped: Vec::with_capacity(nr),
            nr_in_kernel: 0,
            nr_quiet: 0,
            nr_helped: 0,
            nr_own: 0,
            tells: mode == Mode::Shared,
            is_short: false,
            nr_syscalls: 0,
        }
    }

    /// Adds the request in the slot of a tag to those to be submitted.
    fn push_pending(&mut self, tag: Tag) {
        self.slots[tag.index()].is_quiet = !self.tells;
        let mut iocb = self.iocb(tag);
        if self.tells {
            iocb.flags = RESFD;
            iocb.resfd = self.waiter.event.fd().as_raw_fd() as u32;
        }
        self.pending.push(iocb);
    }

    /// Takes the results of requests that threads have made themselves. A request whose call was
    /// forbidden is submitted instead.
    fn take_own(&mut self, done: &mut Completions) {
        let Some(own) = &self.waiter.own else { return };
        let mut forbidden = Vec::new();
        own.take(&mut self.nr_syscalls, |tag, made| {
            self.nr_own -= 1;
            match made.result() {
                Some(result) => done.push(tag, result),
                None => forbidden.push(tag),
            }
        });
        if !forbidden.is_empty() {
            forbidden.into_iter().for_each(|tag| self.push_pending(tag));
            self.submit_pending();
        }
    }

    /// Returns the control block of the request in the slot of a tag.
    fn iocb(&self, tag: Tag) -> Iocb {
        let slot = &self.slots[tag.index()];
        let vectors = slot.vectors.as_ref().expect("not at the helper").as_slice();
        let (command, buf, nbytes) = match (slot.op, vectors) {
            (Op::Read, [one]) => (Command::Pread, one.addr().addr(), one.len()),
            (Op::Write, [one]) => (Command::Pwrite, one.addr().addr(), one.len()),
            (Op::Read, many) => (Command::Preadv, many.as_ptr().addr(), many.len()),
            (Op::Write, many) => (Command::Pwritev, many.as_ptr().addr(), many.len()),
            (_, _) if slot.metadata => (Command::Fsync, 0, 0),
            (_, _) => (Command::Fdsync, 0, 0),
        };
        let fd = self.waiter.helper.target().file.as_raw_fd();
        let mut iocb = Iocb::new(command, fd, tag.index() as u64);
        iocb.buf = buf as u64;
        iocb.nbytes = nbytes as u64;
        iocb.offset = slot.start as i64;
        iocb.rw_flags = if slot.fua { libc::RWF_DSYNC } else { 0 };
        iocb
    }

    /// Submits the pending requests. If the kernel refuses some for now and completions are still
    /// to come, those requests stay pending and are retried later.
    fn submit_pending(&mut self) {
        let mut first = 0;
        self.is_short = false;
        while first < self.pending.len() {
            let rest = &mut self.pending[first..];
            self.pointers.0.clear();
            self.pointers.0.extend(rest.iter_mut().map(std::ptr::from_mut));
            self.nr_syscalls += 1;
            // SAFETY: the pointers are to control blocks of this driver. The memory of the segments
            // stays valid until the completion is reaped (K2), and the vectors stay with the tag
            // until then.
            let answer = unsafe { (self.submit)(&self.waiter.context, &mut self.pointers.0) };
            match answer {
                Ok(nr) => {
                    self.nr_in_kernel += nr;
                    self.nr_quiet += rest[..nr].iter().filter(|iocb| iocb.flags == 0).count();
                    first += nr;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // A shortage: it ends with a completion, or passes.
                    Some(libc::EAGAIN | libc::ENOMEM) if self.nr_in_kernel > 0 => {
                        self.is_short = true;
                        break;
                    }
                    Some(libc::EAGAIN | libc::ENOMEM) => std::thread::yield_now(),
                    errno => {
                        self.refuse(first, errno.unwrap_or(libc::EIO));
                        first += 1;
                    }
                },
            }
        }
        self.pending.drain(..first);
    }

    /// Handles the request at index `at`, which the kernel refuses to start. A flush that the
    /// kernel does not support (before Linux 4.18) goes to the helper. Any other request fails.
    #[cold]
    fn refuse(&mut self, at: usize, errno: i32) {
        let Iocb { data, .. } = self.pending[at];
        let tag = Tag::from_index(data as usize);
        let slot = &mut self.slots[tag.index()];
        if slot.op == Op::Flush && errno == libc::EINVAL {
            let vectors = slot.vectors.take().expect("not at the helper");
            let call = Call::flush(tag, slot.metadata, vectors);
            self.help(call);
            self.pool.begin(&self.waiter.helper);
            return;
        }
        self.taken.push(IoEvent { data, obj: 0, res: -i64::from(errno), res2: 0 });
    }

    fn help(&mut self, call: Call) {
        self.tells = true;
        self.nr_helped += 1;
        self.waiter.helper.push(call);
    }

    /// Waits in the kernel until `min` completions are present or `timeout` has passed, and takes
    /// all that are present.
    fn get(&mut self, min: usize, timeout: Option<Duration>) {
        self.nr_syscalls += 1;
        let before = self.taken.len();
        self.waiter.context.get(min, timeout, &mut self.taken);
        for at in before..self.taken.len() {
            self.note_taken(self.taken[at]);
        }
    }

    /// Waits until the event is signalled. With a timeout, ignores a signal of completions that
    /// were reaped already.
    fn wait_for_event(&self, timeout: Option<Duration>) {
        let AioWaiter { context, helper, .. } = &*self.waiter;
        let until = Deadline::after(timeout);
        loop {
            self.waiter.wait(until.left());
            let is_outdated = context.has_ring() && !context.has_events() && !helper.has_done();
            if !is_outdated || timeout.is_none() || until.is_over() {
                return;
            }
        }
    }

    #[inline]
    fn note_taken(&mut self, event: IoEvent) {
        self.nr_in_kernel -= 1;
        self.nr_quiet -= usize::from(self.slots[event.data as usize].is_quiet);
    }

    /// Reports one completion of the kernel, or a refused request.
    #[inline]
    fn complete(&self, event: IoEvent, done: &mut Completions) {
        let result = match event.res {
            moved @ 0.. if self.slots[event.data as usize].op.moves_data() => Ok(moved as u64),
            0.. => Ok(0),
            failure => Err(errno::to_status(-failure as i32)),
        };
        done.push(Tag::from_index(event.data as usize), result);
    }
}

impl Driver for AioDriver {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        let slot = &mut self.slots[rq.tag.index()];
        (slot.op, slot.metadata) = (rq.op, rq.metadata);
        if matches!(rq.op, Op::Discard | Op::WriteZeroes) {
            let vectors = slot.vectors.take().expect("a tag is issued once (K1)");
            self.help(Call::new(rq, vectors));
            return Issue::Queued;
        }
        slot.vectors.as_mut().expect("a tag is issued once (K1)").fill(rq.segments());
        (slot.start, slot.fua) = (rq.start, rq.fua);
        if self.waiter.own.as_ref().is_some_and(|own| own.leave(rq)) {
            self.nr_own += 1;
            return Issue::Begun;
        }
        self.push_pending(rq.tag);
        Issue::Queued
    }

    fn commit_rqs(&mut self) {
        self.submit_pending();
        if self.nr_helped > 0 {
            self.pool.begin(&self.waiter.helper);
        }
    }

    fn reap(&mut self, done: &mut Completions, how: Reap) {
        let is_polled = self.waiter.is_polled();
        if is_polled && how == Reap::Full {
            // Later completions signal the event again.
            self.nr_syscalls += 1;
            self.waiter.event.clear();
        }
        if self.nr_in_kernel > 0 && !self.waiter.context.has_ring() {
            self.get(0, None);
        }
        for at in 0..self.taken.len() {
            self.complete(self.taken[at], done);
        }
        self.taken.clear();
        if self.nr_own > 0 {
            self.take_own(done);
        }
        while self.nr_in_kernel > 0
            && let Some(event) = self.waiter.context.pop()
        {
            self.note_taken(event);
            self.complete(event, done);
        }
        if self.nr_helped > 0 {
            self.waiter.helper.reap(&mut self.helped);
            self.nr_helped -= self.helped.len();
            for one in self.helped.drain(..) {
                self.slots[one.tag.index()].vectors = Some(one.vectors);
                done.push(one.tag, one.result);
            }
        }
        if self.is_short {
            self.submit_pending();
        }
        if is_polled {
            self.tells = true;
            if self.nr_quiet > 0 {
                // Completions of quiet requests send no signal, so a polling caller must reap
                // again.
                self.nr_syscalls += 1;
                self.waiter.event.signal();
            }
        }
    }

    fn wait(&mut self, nr_completions: u32, timeout: Option<Duration>) {
        self.submit_pending();
        let missing = (nr_completions as usize).saturating_sub(self.taken.len());
        let waiter = Arc::clone(&self.waiter);
        if missing == 0 {
            return self.pool.begin(&waiter.helper);
        }
        match (self.nr_in_kernel, self.nr_helped) {
            // Only the timeout can end this wait.
            (0, 0) => self.get(usize::from(timeout.is_some()), timeout),
            // Requests that the kernel does not accept now are submitted later.
            (in_kernel, 0) => self.get(missing.min(in_kernel), timeout),
            (0, _) => {
                let list = || self.pool.list(&waiter.helper);
                waiter.helper.wait_as_owner(missing, list, timeout);
            }
            (_, _) => {
                self.pool.begin(&waiter.helper);
                match self.nr_quiet {
                    0 => self.wait_for_event(timeout),
                    // The wait ends only with a completion of the kernel, so perhaps later than
                    // necessary.
                    _ => self.get(1, timeout),
                }
            }
        }
    }

    fn withdraw(&mut self) {
        if let Some(call) = own_call::end_offer() {
            self.nr_own -= 1;
            self.push_pending(call.tag);
            self.submit_pending();
        }
    }

    fn kick(&mut self) {
        if self.mode == Mode::Shared {
            self.nr_syscalls += 1;
            self.waiter.event.signal();
        }
    }

    fn has_ready(&self) -> bool {
        !self.taken.is_empty()
    }

    fn nr_syscalls(&self) -> u64 {
        self.nr_syscalls + self.waiter.helper.nr_syscalls()
    }
}

impl Drop for AioDriver {
    /// The layer drains a driver before it drops it. After a panic, requests may still be in
    /// flight: this waits for them, because their memory may go away next.
    fn drop(&mut self) {
        let nr_elsewhere = self.nr_helped + self.nr_own;
        let is_idle = (self.nr_in_kernel, nr_elsewhere, self.pending.len()) == (0, 0, 0);
        assert!(is_idle || std::thread::panicking(), "a driver is drained before it is dropped");
        if self.nr_helped > 0 {
            self.pool.begin(&self.waiter.helper);
            self.waiter.helper.wait_until_idle();
        }
        while self.nr_in_kernel > 0 {
            self.taken.clear();
            self.get(1, None);
        }
    }
}
