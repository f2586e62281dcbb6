//! Completion queue of a disk: the submit-and-reap interface.
// Submission passes the addresses of buffers, and of the memory of unsafe callers, to drivers.
#![allow(unsafe_code)]

mod poll;
mod reap;
mod registered;

use crate::buf::Buf;
use crate::driver::Waiter;
use crate::error::{RegisterError, SubmitError};
use crate::io::{Completion, Io};
use crate::owner::Owner;
use crate::poll_handle::QueuePoll;
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::hctx::now_ns;
use crate::runtime::ready::Ready;
use crate::runtime::shared::Shared;
use crate::runtime::thread::Ctx;
use crate::runtime::timed::Timed;
use crate::runtime::{quarantine, thread};
use forebay_core::cold_path;
use forebay_core::wait;
use forebay_core::{Bio, BioFlags, QueuedBio, Segments, SubmitErrorKind};
pub use poll::PollMode;
use poll::PollState;
use reap::QueueReaper;
pub use registered::RegisteredMemory;
use std::cell::RefCell;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;

/// A completion queue of a disk. A thread submits I/O to it and reaps the completions from it, in
/// the order in which the I/O ended. Made by [`Disk::queue`](crate::Disk::queue).
///
/// A queue is neither `Send` nor `Sync`: it stays on the thread that created it. It holds at most
/// `nr_bios` I/Os that are submitted and not yet reaped. Dropping it waits until its submitted I/O
/// has ended, because the device may use the buffers until then.
///
/// Counterpart in Linux: a pair of io_uring's submission and completion queues.
///
/// ```
/// use forebay::{Buf, Disk, Io};
///
/// let disk = Disk::open("ram:1M")?;
/// let mut queue = disk.queue();
/// queue.submit(Io::write(Buf::from(&[7; 4096][..]), 8192).user_data(1))?;
/// let mut done = Vec::new();
/// queue.reap(1, 1, &mut done);
/// assert_eq!((done[0].user_data, done[0].result), (1, Ok(4096)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BioQueue {
    shared: Arc<Shared>,
    /// Whether the disk needs the time.
    timed: Timed,
    ctx: Rc<Ctx>,
    /// Bios that have ended and are not reaped.
    ready: Rc<RefCell<Ready>>,
    /// Boxes that hold no bio.
    free: Vec<Box<QueuedBio>>,
    /// The buffers of bios that were submitted and not reaped, indexed by the number of the box.
    bufs: Vec<Option<Buf>>,
    /// The number of bios that were submitted and not reaped.
    len: usize,
    /// I/O was submitted since the last reap.
    has_submitted: bool,
    /// Created when the owner first requests a descriptor.
    poll: Option<PollState>,
    /// True if there is a descriptor with the mode [`PollMode::AnyTime`].
    acks_at_reap: bool,
}

impl BioQueue {
    pub(crate) fn new(shared: Arc<Shared>) -> BioQueue {
        let ctx = thread::queue_ctx_of(&shared);
        BioQueue::on(shared, ctx)
    }

    /// Creates a queue with this state of its thread.
    pub(crate) fn on(shared: Arc<Shared>, ctx: Rc<Ctx>) -> BioQueue {
        let ready = Ready::of_thread();
        ctx.open_queue(&shared, &ready);
        let (free, bufs, poll) = (Vec::new(), Vec::new(), None);
        let (has_submitted, acks_at_reap) = (false, false);
        let timed = shared.timed();
        BioQueue {
            shared,
            timed,
            ctx,
            ready,
            free,
            bufs,
            len: 0,
            has_submitted,
            poll,
            acks_at_reap,
        }
    }

    /// Submits an I/O. Never blocks. While this thread has a plug open, the I/O stays in it, so
    /// that neighbours can merge. Otherwise it is issued before this returns, if a tag is free. It
    /// may already have ended then.
    ///
    /// # Errors
    /// Fails if the I/O is refused. The error returns the I/O with its buffer. After
    /// [`SubmitErrorKind::WouldBlock`], reap and try again: the queue holds `nr_bios` I/Os.
    #[inline]
    pub fn submit(&mut self, io: Io) -> Result<(), SubmitError> {
        let (bio, buf) = undroppable(io);
        let now = now_ns(self.timed.get());
        // SAFETY: the bio's memory, if it has any, is all of `buf`, which is owned, and held until
        // the completion is reaped.
        unsafe { self.submit_with(bio, buf, now) }.map_err(refused)
    }

    /// Returns whether this is an owner of the queue's disk.
    pub fn accepts_owner(&self, owner: &Owner) -> bool {
        owner.is_of(&self.shared)
    }

    /// Submits an I/O of an owner, as [`submit`](BioQueue::submit) does. It counts against the
    /// owner's limits, and has its share.
    ///
    /// # Errors
    /// Same as `submit`.
    ///
    /// # Panics
    /// Panics if the owner is of another disk.
    #[inline]
    pub fn submit_for(&mut self, owner: &Owner, io: Io) -> Result<(), SubmitError> {
        let now = now_ns(self.timed.get());
        self.submit_for_at(owner, io, now)
    }

    /// Submits an I/O of an owner, as [`submit_for`](BioQueue::submit_for) does, without reading
    /// the clock again. `now` is as for [`submit_at`](BioQueue::submit_at).
    ///
    /// # Errors
    /// Same as `submit`.
    ///
    /// # Panics
    /// Panics if the owner is of another disk.
    #[inline]
    pub fn submit_for_at(&mut self, owner: &Owner, io: Io, now: u64) -> Result<(), SubmitError> {
        assert!(owner.is_of(&self.shared), "{owner:?} is of another disk than the queue");
        self.submit_at(io.of_owner(owner.origin()), now)
    }

    /// Submits an I/O as [`submit`](BioQueue::submit) does, without reading the clock again. `now`
    /// is a recent result of [`now_ns`](crate::now_ns()), in nanoseconds. The latencies that the
    /// disk records begin at that time.
    ///
    /// # Errors
    /// Same as `submit`.
    #[inline]
    pub fn submit_at(&mut self, io: Io, now: u64) -> Result<(), SubmitError> {
        let (bio, buf) = undroppable(io);
        // SAFETY: as in `submit`.
        unsafe { self.submit_with(bio, buf, now) }.map_err(refused)
    }

    /// Submits a bio whose memory belongs to the caller. Never blocks.
    ///
    /// # Errors
    /// Fails if the bio is refused, and returns the bio.
    ///
    /// # Safety
    /// These conditions must hold until the bio's completion has been reaped from this queue, or
    /// this queue has been dropped:
    ///
    /// - For a write, each segment is memory that is valid for reads, and no code writes to it.
    /// - For a read, each segment is memory that is valid for writes, and no other code reads it or
    ///   writes to it.
    ///
    /// Each address must come from a pointer whose provenance is exposed.
    #[inline]
    pub unsafe fn submit_raw(&mut self, bio: Bio) -> Result<(), (SubmitErrorKind, Bio)> {
        let now = now_ns(self.timed.get());
        // SAFETY: the caller keeps the conditions.
        unsafe { self.submit_raw_at(bio, now) }
    }

    /// Submits a bio as [`submit_raw`](BioQueue::submit_raw) does, without reading the clock again.
    /// `now` is as for [`submit_at`](BioQueue::submit_at).
    ///
    /// # Errors
    /// Same as `submit_raw`.
    ///
    /// # Safety
    /// Same as `submit_raw`.
    #[inline]
    pub unsafe fn submit_raw_at(
        &mut self,
        bio: Bio,
        now: u64,
    ) -> Result<(), (SubmitErrorKind, Bio)> {
        // The caller may use its memory again when the bio ends, so it must not end early (H2).
        let bio = Bio { flags: bio.flags.without(BioFlags::OWNED), ..bio };
        // SAFETY: the caller keeps the conditions; dropping the queue waits.
        let submitted = unsafe { self.submit_with(bio, ManuallyDrop::new(None), now) };
        submitted.map_err(|(refusal, bio, _)| (refusal, bio))
    }

    /// Submits a bio, with its buffer if the queue owns its memory. If this panics, the buffer
    /// leaks.
    ///
    /// # Safety
    /// Same as [`BioQueue::submit_raw`].
    // Always inlined: otherwise the bio and the buffer are passed through memory.
    #[inline(always)]
    unsafe fn submit_with(
        &mut self,
        bio: Bio,
        buf: ManuallyDrop<Option<Buf>>,
        now: u64,
    ) -> Result<(), (SubmitErrorKind, Bio, Option<Buf>)> {
        if self.shared.is_after_fork() {
            cold_path();
            return Err((SubmitErrorKind::Forked, bio, ManuallyDrop::into_inner(buf)));
        }
        let Some(mut boxed) = self.free.pop().or_else(|| self.new_box()) else {
            cold_path();
            return Err((SubmitErrorKind::WouldBlock, bio, ManuallyDrop::into_inner(buf)));
        };
        boxed.fill(bio);
        let number = boxed.number() as usize;
        match self.ctx.queue_bio(boxed, now) {
            Ok(turn_due) => {
                if buf.is_some() {
                    self.bufs[number] = ManuallyDrop::into_inner(buf);
                }
                self.len += 1;
                self.has_submitted = true;
                if turn_due {
                    self.ctx.turn_for(&self.ready, &self.shared, now, None);
                }
                self.signal(false);
                Ok(())
            }
            Err((refusal, mut boxed)) => {
                cold_path();
                let bio = boxed.take_bio();
                self.free.push(boxed);
                Err((refusal, bio, ManuallyDrop::into_inner(buf)))
            }
        }
    }

    /// Allocates another box. Returns `None` if there are `nr_bios` already.
    #[cold]
    fn new_box(&mut self) -> Option<Box<QueuedBio>> {
        let number = self.bufs.len();
        if number == self.shared.info().policy.nr_bios as usize {
            return None;
        }
        self.bufs.push(None);
        self.free.reserve(self.bufs.len() - self.free.len());
        let mut ready = self.ready.borrow_mut();
        ready.make_room(self.bufs.len());
        Some(QueuedBio::new(ready.owner(), number as u32))
    }

    /// Appends at most `max` completions to `out`, oldest first, and returns their number. Waits
    /// until `min` I/Os of this queue have ended, or all of them have. `min` = 0 never waits.
    /// Everything that this thread has plugged is unplugged first, unless enough I/O has ended
    /// already.
    ///
    /// In a child of a fork this returns only completions that were delivered before the fork.
    ///
    /// # Panics
    /// Panics if `min` is greater than `max`.
    #[inline]
    pub fn reap(&mut self, min: usize, max: usize, out: &mut Vec<Completion>) -> usize {
        self.clear_poll();
        self.reap_into(min, max, out)
    }

    /// Reaps as [`reap`](BioQueue::reap) does, but calls `each` with each completion, oldest first.
    /// The calls begin when the wait is over.
    ///
    /// # Panics
    /// Panics if `min` is greater than `max`, or if `each` panics. If `each` panics, the remaining
    /// completions stay in the queue for the next call, and the queue's descriptor is readable.
    #[inline(always)]
    pub fn reap_with(&mut self, min: usize, max: usize, mut each: impl FnMut(Completion)) -> usize {
        self.clear_poll();
        let nr = self.prepare_reap(min, max);
        let reaping = Reaping { queue: self };
        for _ in 0..nr {
            let BioQueue { ready, free, bufs, len, .. } = &mut *reaping.queue;
            *len -= 1;
            let completion = pop(&mut ready.borrow_mut(), free, bufs);
            each(completion);
        }
        nr
    }

    /// Reaps as [`reap_with`](BioQueue::reap_with) does, and passes each bio's segments too. So a
    /// caller of [`submit_raw`](BioQueue::submit_raw) gets its list back, and can fill it again.
    ///
    /// # Panics
    /// Same as `reap_with`.
    #[inline(always)]
    pub fn reap_raw_with(
        &mut self,
        min: usize,
        max: usize,
        each: impl FnMut(Completion, Segments),
    ) -> usize {
        self.clear_poll();
        self.reap_raw(min, max, each)
    }

    #[inline(always)]
    fn reap_raw(
        &mut self,
        min: usize,
        max: usize,
        mut each: impl FnMut(Completion, Segments),
    ) -> usize {
        let nr = self.prepare_reap(min, max);
        let reaping = Reaping { queue: self };
        for _ in 0..nr {
            let BioQueue { ready, free, bufs, len, .. } = &mut *reaping.queue;
            *len -= 1;
            let completion = pop(&mut ready.borrow_mut(), free, bufs);
            // `pop` has put the box there.
            let segments = free.last_mut().map(|boxed| boxed.take_segments());
            each(completion, segments.unwrap_or_default());
        }
        nr
    }

    /// Acknowledges the descriptor. With [`PollMode::AfterReap`], call it before the reap if the
    /// last wait has reported the descriptor, or the next wait reports it again. Costs a system
    /// call. With [`PollMode::AnyTime`] each reap does this.
    #[inline]
    pub fn ack_poll(&mut self) {
        // A child of a fork shares descriptors with its parent and must not clear their signals.
        if let Some(poll) = &self.poll
            && !self.shared.is_after_fork()
        {
            poll.clear();
        }
    }

    /// Clears the descriptor's signal before a reap, if the mode says so.
    #[inline]
    fn clear_poll(&mut self) {
        if self.acks_at_reap {
            self.ack_poll();
        }
    }

    #[inline]
    fn reap_into(&mut self, min: usize, max: usize, out: &mut Vec<Completion>) -> usize {
        let nr = self.prepare_reap(min, max);
        let reaping = Reaping { queue: self };
        let BioQueue { ready, free, bufs, len, .. } = &mut *reaping.queue;
        let mut ready = ready.borrow_mut();
        out.extend((0..nr).map(|_| {
            *len -= 1;
            pop(&mut ready, free, bufs)
        }));
        drop(ready);
        nr
    }

    /// Waits until `min` bios are ready, or all are. Returns how many of them to reap.
    #[inline(always)]
    fn prepare_reap(&mut self, min: usize, max: usize) -> usize {
        self.has_submitted = false;
        wait::reap(&mut QueueReaper(self), min, max)
    }

    /// Waits until all submitted I/O of this queue has tags. Has an effect only if threads wait for
    /// tags (`wake=` other than `fair`, on the shared hardware context); otherwise it returns at
    /// once. Everything that this thread has plugged is unplugged first.
    ///
    /// [`reap`](BioQueue::reap) waits in the same way when it has to wait. A caller that calls this
    /// after each submission blocks as a thread in Linux does: within its submission.
    #[inline]
    pub fn wait_for_tags(&self) {
        if self.shared.hctx(self.ctx.hctx()).is_shared {
            wait::wait_for_tags(&mut QueueReaper(self));
        }
    }

    /// Returns a handle of the queue's descriptor, for an event loop that reaps by the rules of
    /// `mode`. The descriptor is readable at first. All handles of a queue have the same mode.
    ///
    /// If a hold keeps I/O from the driver, the descriptor becomes readable when the hold is
    /// dropped. If the driver is busy with nothing in flight, it becomes readable every 3 ms. If
    /// the driver has no descriptor (`null`, and `ram` without service times), and the disk no
    /// thread (`service=on`), it stays readable while I/O of the queue is in the layer.
    ///
    /// # Errors
    /// Fails if the process or the system can open no more descriptors, and with
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) while a handle with the other mode exists. In
    /// a child of a fork it fails with an error that wraps [`SubmitErrorKind::Forked`].
    ///
    /// ```
    /// use forebay::{Buf, Disk, Io, PollMode};
    /// use std::os::fd::AsRawFd;
    ///
    /// let disk = Disk::open("ram:1M?req_ns=20000")?; // or "disk.img?direct=on", "/dev/vdb", ...
    /// let mut queue = disk.queue();
    /// let handle = queue.poll_handle(PollMode::AfterReap)?;
    /// queue.submit(Io::read(Buf::new(4096), 0))?;
    /// let mut done = Vec::new();
    /// while !queue.is_empty() {
    ///     queue.reap(0, usize::MAX, &mut done);
    ///     let timeout_ms = if queue.wants_reap() || queue.is_empty() { 0 } else { -1 };
    ///     let fd = handle.as_raw_fd();
    ///     let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    ///     // SAFETY: `poll` is one valid entry.
    ///     if unsafe { libc::poll(&mut poll, 1, timeout_ms) } > 0 {
    ///         queue.ack_poll();
    ///     }
    /// }
    /// assert_eq!(done[0].result, Ok(4096));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll_handle(&mut self, mode: PollMode) -> io::Result<QueuePoll> {
        Ok(self.poll_state(mode)?.handle())
    }

    /// Returns the descriptor as [`poll_handle`](BioQueue::poll_handle) does with
    /// [`PollMode::AnyTime`], for as long as the queue is borrowed.
    ///
    /// # Errors
    /// Same as `poll_handle`.
    pub fn poll_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.poll_state(PollMode::AnyTime)?.fd())
    }

    fn poll_state(&mut self, mode: PollMode) -> io::Result<&PollState> {
        if self.poll.is_none() {
            if self.shared.is_after_fork() {
                return Err(io::Error::other(SubmitErrorKind::Forked));
            }
            let Some(waiter) = self.waiter() else {
                return Err(io::Error::other(SubmitErrorKind::Forked));
            };
            let hctx = self.shared.hctx(self.ctx.hctx());
            // With a service thread each delivery signals the event.
            let has_service = hctx.is_shared && self.shared.has_service();
            let ready = &mut self.ready.borrow_mut();
            self.poll = Some(PollState::open((hctx, waiter), has_service, ready, mode)?);
        }
        let poll = self.poll.as_mut().expect("just made");
        poll.set_mode(mode, &mut self.ready.borrow_mut())?;
        self.acks_at_reap = mode == PollMode::AnyTime;
        Ok(poll)
    }

    /// Returns the waiter of the hardware context. `None`: another process has it.
    fn waiter(&self) -> Option<Arc<dyn Waiter>> {
        let hctx = self.shared.hctx(self.ctx.hctx());
        if hctx.is_shared {
            return Some(Arc::clone(self.shared.waiter()));
        }
        let token = hctx.try_take()?;
        let waiter = Arc::clone(&token.waiter);
        token.finish();
        Some(waiter)
    }

    /// Keeps the descriptor readable while there are bios to reap that no other code signals. If
    /// the owner reaps before it polls, only a reap (`is_reaped`) signals them. The alarm covers
    /// work that no completion continues.
    #[inline]
    fn signal(&self, is_reaped: bool) {
        if let Some(poll) = &self.poll
            && poll.signals_after(is_reaped)
        {
            let alarm = &self.shared.hctx(self.ctx.hctx()).alarm;
            poll.signal_for(&self.ready, self.len, alarm);
        }
    }

    /// Signals the descriptor again if the alarm is set. This reap makes no turn, so the alarm
    /// stays set, and an edge-triggered event loop (`EPOLLET`) needs another edge.
    #[cold]
    fn signal_alarm(&self) {
        if let Some(poll) = &self.poll
            && !self.shared.is_after_fork()
            && self.shared.hctx(self.ctx.hctx()).alarm.is_set()
        {
            poll.signal();
        }
    }

    /// Puts the buffers of bios that have ended early and are not reaped into quarantine (H5).
    fn keep_unreaped(&mut self) {
        let mut ready = self.ready.borrow_mut();
        while let Some(mut boxed) = ready.pop() {
            if boxed.has_hold() {
                keep_buf(&mut boxed, &mut self.bufs);
            }
        }
    }

    /// Registers `len` bytes at an exposed address with the device, until the returned value is
    /// dropped. The kernel then need not look up and pin their pages for each I/O of this queue. It
    /// locks the whole range at once, and allocates pages that are not there.
    ///
    /// Register a range once with each queue that uses it.
    ///
    /// # Errors
    /// Fails if the disk cannot register memory ([`Disk::can_register_memory`]), or if the kernel
    /// refuses it: because of the limit of locked memory, or the kind of memory.
    ///
    /// # Safety
    /// These conditions must hold until the returned value is dropped:
    ///
    /// - The range is mapped.
    /// - Its pages stay in place. If they are replaced, I/O of this queue on these addresses reads
    ///   and writes the former pages. That is allowed only for memory of another program, which may
    ///   change it at any time: no code may have a reference to the former or the new pages.
    ///
    /// When the returned value is dropped, no I/O of this queue may use the range.
    ///
    /// [`Disk::can_register_memory`]: crate::Disk::can_register_memory
    pub unsafe fn register_memory(
        &self,
        addr: usize,
        len: usize,
    ) -> Result<RegisteredMemory, RegisterError> {
        let waiter = self.waiter();
        let Some(memory) = waiter.as_ref().and_then(|waiter| waiter.memory()) else {
            return Err(RegisterError::Unsupported { spec: self.shared.info().spec.clone() });
        };
        RegisteredMemory::register(memory, addr, len)
    }

    /// Returns whether a reap is due before a wait for the descriptor with [`PollMode::AfterReap`]:
    /// I/O was submitted since the last reap, or completions are waiting. A refused submission does
    /// not count. Makes no system call, and does not query the device.
    #[inline]
    pub fn wants_reap(&self) -> bool {
        self.has_submitted || !self.ready.borrow().is_empty()
    }

    /// Returns the number of I/Os that were submitted and not reaped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether all submitted I/O has been reaped.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Takes an I/O apart without destructors. A destructor that runs if a submission panics would need
/// the address of the I/O, so each submission would copy it through memory.
#[inline]
fn undroppable(io: Io) -> (Bio, ManuallyDrop<Option<Buf>>) {
    let (bio, buf) = io.into_parts();
    (bio, ManuallyDrop::new(buf))
}

#[cold]
fn refused((refusal, bio, buf): (SubmitErrorKind, Bio, Option<Buf>)) -> SubmitError {
    SubmitError { kind: refusal, io: Io::of_parts(bio, buf) }
}

/// Removes the oldest bio that is ready, and frees its box.
// Always inlined: otherwise the completion is passed through memory.
#[inline(always)]
fn pop(ready: &mut Ready, free: &mut Vec<Box<QueuedBio>>, bufs: &mut [Option<Buf>]) -> Completion {
    let mut boxed = ready.pop().expect("only the owner reaps");
    if boxed.has_hold() {
        keep_buf(&mut boxed, bufs);
    }
    let completion = Completion::of(&boxed);
    let buf = &mut bufs[boxed.number() as usize];
    assert!(free.len() < free.capacity(), "`new_box` has reserved room for each box");
    free.push(boxed);
    // After the buffer is taken nothing panics, so the completion needs no place in memory.
    Completion { buf: buf.take(), ..completion }
}

/// Puts the buffer of a bio that has ended early into quarantine (H5).
#[cold]
fn keep_buf(boxed: &mut QueuedBio, bufs: &mut [Option<Buf>]) {
    let buf = bufs.get_mut(boxed.number() as usize).and_then(Option::take);
    if let Some(hold) = boxed.take_hold() {
        quarantine::keep(&hold, buf);
    }
}

/// A running reap. On drop, also after a panic, it makes the descriptor readable if bios are left:
/// it may be clear.
struct Reaping<'a> {
    queue: &'a mut BioQueue,
}

impl Drop for Reaping<'_> {
    #[inline]
    fn drop(&mut self) {
        self.queue.signal(true);
    }
}

impl Drop for BioQueue {
    fn drop(&mut self) {
        // The caller may free the memory after this returns, so an unwind must not skip the wait.
        AbortOnUnwind::guard(|| {
            self.ready.borrow_mut().take_mail();
            if self.shared.is_after_fork() {
                // I/O in flight belongs to the parent, so its buffers are not freed here.
                std::mem::forget(std::mem::take(&mut self.bufs));
            } else if self.len > self.ready.borrow().len() {
                wait::unplug_and_wait(&mut QueueReaper(self), self.len);
            }
            self.keep_unreaped();
            // A thread that delivered may still use the mailbox, which is freed now.
            let ready = self.ready.borrow();
            if ready.mailbox().settle(ready.nr_mailed()) {
                // W3, W6.
                let hctx = self.shared.hctx(self.ctx.hctx());
                if !hctx.hand_off() {
                    hctx.run_turn();
                }
            }
            drop(ready);
            self.ctx.close_queue(&self.ready);
        });
    }
}

#[cfg(test)]
mod models;
