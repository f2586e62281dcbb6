//! The submit-and-reap interface: a queue of completions on a disk.
// It vouches for owned memory, and passes on what its callers vouch for.
#![allow(unsafe_code)]

use crate::buf::Buf;
use crate::driver::Waiter;
use crate::error::SubmitError;
use crate::io::{Completion, Io};
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::ctx::Ctx;
use crate::runtime::event::{AnyOf, Event};
use crate::runtime::hctx::now_ns;
use crate::runtime::ready::Ready;
use crate::runtime::shared::Shared;
use crate::runtime::{thread, wait};
use forebay_core::{Bio, Commit, QueuedBio, Refusal, Turned, UnplugCause};
use std::cell::Cell;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;

/// A queue of completions on a disk: I/O is submitted to it, and its ends are reaped from it, in
/// the order in which they happened. Made by [`Disk::queue`](crate::Disk::queue).
///
/// It stays on the thread that made it. At most `nr_bios` I/Os are in it at once, submitted and not
/// reaped. Dropping it waits for its I/O in flight.
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
    ctx: Rc<Ctx>,
    /// What has ended and was not reaped.
    ready: Rc<RefCell<Ready>>,
    /// Boxes that hold no bio.
    free: Vec<Box<QueuedBio>>,
    /// The buffers of bios that were submitted and not reaped, by the number of the box.
    bufs: Vec<Option<Buf>>,
    /// How many were submitted and not reaped.
    len: usize,
    /// Made when somebody asks for a descriptor.
    poll: Option<QueuePoll>,
}

/// What tells an event loop that a queue wants to be reaped.
struct QueuePoll {
    event: Arc<Event>,
    any: AnyOf,
    waiter: Arc<dyn Waiter>,
    /// Nobody waits for it before what has ended was reaped: this thread's own calls need not
    /// signal that.
    is_attended: bool,
    /// The driver has no descriptor: while anything is in the layer, the event is signalled.
    is_mute: bool,
    /// This thread has signalled it, and nobody has cleared it since: it need not do so again.
    /// Only this thread clears it.
    is_signalled: Cell<bool>,
}

impl QueuePoll {
    fn signal(&self) {
        if !self.is_signalled.replace(true) {
            self.event.signal();
        }
    }

    fn clear(&self) {
        self.is_signalled.set(false);
        self.event.clear();
    }
}

impl BioQueue {
    pub(crate) fn new(shared: Arc<Shared>) -> BioQueue {
        let ctx = thread::queue_ctx_of(&shared);
        BioQueue::on(shared, ctx)
    }

    fn on(shared: Arc<Shared>, ctx: Rc<Ctx>) -> BioQueue {
        let ready = Ready::of_thread();
        ctx.open_queue(&shared, &ready);
        BioQueue { shared, ctx, ready, free: Vec::new(), bufs: Vec::new(), len: 0, poll: None }
    }

    /// Submits an I/O. Never waits. Within a plug of this thread it stays there, so that its
    /// neighbours can join it; otherwise it is issued before this returns, if there is a tag.
    ///
    /// # Errors
    /// Why the I/O was refused, and the I/O back. After [`Refusal::WouldBlock`], reap and try
    /// again: there are `nr_bios` in this queue.
    #[inline]
    pub fn submit(&mut self, io: Io) -> Result<(), SubmitError> {
        let now = now_ns(self.shared.info().is_timed());
        self.submit_at(io, now)
    }

    /// As [`submit`](BioQueue::submit), for a caller who has just read the clock: `now` is what
    /// [`now_ns`](crate::now_ns()) gave it. The layer's own latencies begin there, and it does not
    /// read the clock once more.
    ///
    /// # Errors
    /// As `submit`.
    #[inline]
    pub fn submit_at(&mut self, io: Io, now: u64) -> Result<(), SubmitError> {
        let (bio, buf) = io.into_parts();
        // SAFETY: the bio's memory, if it has any, is all of `buf`, which is owned, and held until
        // the completion is reaped.
        let submitted = unsafe { self.submit_with(bio, buf, now) };
        submitted.map_err(|(refusal, bio, buf)| SubmitError { refusal, io: Io::of_parts(bio, buf) })
    }

    /// Submits a bio whose memory belongs to the caller.
    ///
    /// # Errors
    /// Why the bio was refused, and the bio back.
    ///
    /// # Safety
    /// Every segment of `bio` must be memory that is valid for reads (of a write) or for writes
    /// (of a read), and that nobody else writes to (or, for a read, looks at), until the bio's
    /// completion has been reaped from this queue, or this queue has been dropped. Its address
    /// must come from a pointer whose provenance is exposed.
    #[inline]
    pub unsafe fn submit_raw(&mut self, bio: Bio) -> Result<(), (Refusal, Bio)> {
        let now = now_ns(self.shared.info().is_timed());
        // SAFETY: the caller's obligations are passed on; dropping the queue waits.
        let submitted = unsafe { self.submit_with(bio, None, now) };
        submitted.map_err(|(refusal, bio, _)| (refusal, bio))
    }

    /// # Safety
    /// As [`BioQueue::submit_raw`].
    #[inline]
    unsafe fn submit_with(
        &mut self,
        bio: Bio,
        buf: Option<Buf>,
        now: u64,
    ) -> Result<(), (Refusal, Bio, Option<Buf>)> {
        if self.shared.is_foreign() {
            return Err((Refusal::Forked, bio, buf));
        }
        let Some(mut boxed) = self.free.pop().or_else(|| self.new_box()) else {
            return Err((Refusal::WouldBlock, bio, buf));
        };
        boxed.fill(bio);
        let number = boxed.number() as usize;
        match self.ctx.queue_bio(boxed, now) {
            Ok(turn_due) => {
                if buf.is_some() {
                    self.bufs[number] = buf;
                }
                self.len += 1;
                if turn_due {
                    self.turn(now, None);
                }
                self.signal(false);
                Ok(())
            }
            Err((refusal, mut boxed)) => {
                let bio = boxed.take_bio();
                self.free.push(boxed);
                Err((refusal, bio, buf))
            }
        }
    }

    /// One more box, while there may be more.
    #[cold]
    fn new_box(&mut self) -> Option<Box<QueuedBio>> {
        let number = self.bufs.len();
        if number == self.shared.info().policy.nr_bios as usize {
            return None;
        }
        self.bufs.push(None);
        let mut ready = self.ready.borrow_mut();
        ready.make_room(self.bufs.len());
        Some(QueuedBio::new(ready.owner(), number as u32))
    }

    /// A turn of the hardware context.
    #[inline]
    fn turn(&self, now: u64, commit: Option<Commit>) -> Option<Turned> {
        self.ctx.turn_for(&self.ready, &self.shared, now, commit)
    }

    /// Takes what others' turns have delivered. Says how many are ready.
    #[inline]
    fn take_mail(&self) -> usize {
        let mut ready = self.ready.borrow_mut();
        ready.take_mail();
        ready.len()
    }

    /// Adds at most `max` completions to `out`, oldest first, and says how many. Waits until there
    /// are `min`, or nothing of this queue is left in the layer. Everything that this thread has
    /// plugged is unplugged first, unless enough has completed already.
    ///
    /// In a child of a fork it gives only what had been delivered before.
    ///
    /// # Panics
    /// If `min` is over `max`.
    #[inline]
    pub fn reap(&mut self, min: usize, max: usize, out: &mut Vec<Completion>) -> usize {
        self.reap_with(min, max, |completion| out.push(completion))
    }

    /// As [`reap`](BioQueue::reap), but each completion is handed to `each`, oldest first, once
    /// there are enough.
    ///
    /// # Panics
    /// As `reap`. If `each` panics, what it was not given is given by the next call.
    #[inline]
    pub fn reap_with(&mut self, min: usize, max: usize, each: impl FnMut(Completion)) -> usize {
        // A child's descriptors are its parent's as well: it must not take its signals back.
        if let Some(poll) = &self.poll
            && !self.shared.is_foreign()
        {
            poll.waiter.told();
            poll.clear();
        }
        self.reap_now(min, max, each)
    }

    /// As [`reap`](BioQueue::reap) without waiting, for an event loop that watches this queue's
    /// descriptor and whose last poll did not report it: then nothing has to be taken back, which
    /// saves system calls. Where it became readable meanwhile, the next poll reports it, and then
    /// `reap` is due; as always after a poll that reports it.
    #[inline]
    pub fn reap_untold(&mut self, max: usize, out: &mut Vec<Completion>) -> usize {
        self.reap_now(0, max, |completion| out.push(completion))
    }

    #[inline]
    fn reap_now(&mut self, min: usize, max: usize, mut each: impl FnMut(Completion)) -> usize {
        assert!(min <= max);
        let nr_ready = self.take_mail();
        if nr_ready < max && (nr_ready < min || min == 0) && !self.shared.is_foreign() {
            thread::unplug_all(UnplugCause::Wait, Some(&self.ctx));
            self.wait(min);
        } else if self.poll.is_some() {
            self.signal_alarm();
        }
        let nr = self.ready.borrow().len().min(max);
        // If `each` panics, too: the descriptor was acknowledged, and something may be left.
        let reaping = Reaping { queue: self };
        for _ in 0..nr {
            let queue = &mut *reaping.queue;
            let Some(boxed) = queue.ready.borrow_mut().pop() else { break };
            let completion = Completion::of(&boxed, queue.bufs[boxed.number() as usize].take());
            queue.free.push(boxed);
            queue.len -= 1;
            each(completion);
        }
        nr
    }

    /// Turns once at least, then until `min` are ready or nothing is left in the layer.
    #[inline]
    fn wait(&mut self, min: usize) {
        let is_timed = self.shared.info().is_timed();
        loop {
            let is_shared = self.shared.hctx(self.ctx.hctx()).is_shared;
            let later = self.ready.borrow().len() < min && !is_shared;
            let commit = if later { Commit::Later } else { Commit::Now };
            let turned = self.turn(now_ns(is_timed), Some(commit));
            if min > 0 {
                self.wait_for_tags();
            }
            let nr_ready = self.take_mail();
            let nr_in_layer = self.len - nr_ready;
            if nr_ready >= min || nr_in_layer == 0 {
                if later {
                    self.ctx.commit(&self.shared);
                }
                return;
            }
            let missing = min - nr_ready;
            if is_shared {
                let (mailbox, nr_mailed) = {
                    let ready = self.ready.borrow();
                    (Arc::clone(ready.mailbox()), ready.nr_mailed())
                };
                let goal = nr_mailed + missing.min(nr_in_layer) as u64;
                wait::wait_shared(&self.shared, &self.ctx, &mailbox, goal);
                self.take_mail();
            } else if let Some(turned) = turned {
                // Completions of others do not count; with others about, each one may be.
                let all_ours = nr_in_layer as u64 >= turned.nr_in_flight.into();
                let nr = if all_ours { missing.try_into().unwrap_or(u32::MAX) } else { 1 };
                wait::wait_as_owner(&self.shared, self.ctx.hctx(), turned, nr);
            }
        }
    }

    /// Where threads wait for tags (`wake=` other than `fair`): until nothing that this queue has
    /// submitted lacks one, as a thread of Linux waits within its submission. Elsewhere it returns
    /// at once. What the thread has plugged goes first, as before any wait.
    /// [`reap`](BioQueue::reap) does so by itself; who calls this after each submission submits
    /// nothing while it lacks tags.
    #[inline]
    pub fn wait_for_tags(&self) {
        if !self.shared.hctx(self.ctx.hctx()).is_shared {
            return;
        }
        let mailbox = {
            let ready = self.ready.borrow();
            ready.mailbox().lacks_tags().then(|| Arc::clone(ready.mailbox()))
        };
        if let Some(mailbox) = mailbox {
            // I4, D5.
            thread::unplug_all(UnplugCause::Wait, Some(&self.ctx));
            wait::wait_for_tags(&self.shared, &self.ctx, &mailbox);
        }
    }

    /// A descriptor for an event loop: when it is readable, [`reap`](BioQueue::reap) is due, even
    /// if that gives nothing. Valid while the queue is. Where the driver cannot tell (`ram`), and
    /// no thread of the disk does so in its place (`service=on`), it is readable while anything is
    /// in the layer.
    ///
    /// # Errors
    /// The system's, where there is no room for a descriptor; [`Refusal::Forked`] in a child of a
    /// fork.
    pub fn poll_fd(&mut self) -> io::Result<BorrowedFd<'_>> {
        self.poll_with(false)
    }

    /// As [`poll_fd`](BioQueue::poll_fd), for a loop that never waits while
    /// [`has_ended`](BioQueue::has_ended) says that there is something to reap: the descriptor need
    /// not tell of what this thread's own calls have completed, and a batch that completes at once
    /// costs no system call for it. A loop that waits all the same may wait for ever. Whichever of
    /// the two is called first decides, as long as the queue lives.
    ///
    /// # Errors
    /// As `poll_fd`.
    pub fn poll_fd_after_reap(&mut self) -> io::Result<BorrowedFd<'_>> {
        self.poll_with(true)
    }

    fn poll_with(&mut self, is_attended: bool) -> io::Result<BorrowedFd<'_>> {
        if self.poll.is_none() {
            if self.shared.is_foreign() {
                return Err(io::Error::other(Refusal::Forked));
            }
            let event = Arc::new(Event::new()?);
            let hctx = self.shared.hctx(self.ctx.hctx());
            let waiter = match hctx.is_shared {
                true => Arc::clone(self.shared.waiter()),
                false => {
                    let Some(token) = hctx.try_take() else {
                        return Err(io::Error::other(Refusal::Forked));
                    };
                    let waiter = Arc::clone(&token.waiter);
                    token.finish();
                    waiter
                }
            };
            let driver = waiter.poll_fd();
            let has_driver = driver.is_some();
            let any = hctx.watch(std::iter::once(event.fd()).chain(driver))?;
            self.ready.borrow_mut().set_event(&event, is_attended);
            // The thread of the disk makes the progress, and each delivery signals.
            let tells = has_driver || hctx.is_shared && self.shared.has_service();
            let is_signalled = Cell::new(false);
            let is_mute = !tells;
            let poll = QueuePoll { event, any, waiter, is_attended, is_mute, is_signalled };
            // What was delivered before told nobody.
            poll.signal();
            self.poll = Some(poll);
        }
        Ok(self.poll.as_ref().expect("just made").any.fd())
    }

    /// Keeps the descriptor readable while there is something to reap that nothing else signals. If
    /// the owner reaps before it polls, what its own calls complete is signalled only after a reap
    /// (`is_reaped`). Work that no completion moves on is the alarm's business.
    fn signal(&self, is_reaped: bool) {
        if let Some(poll) = &self.poll {
            let ready = self.ready.borrow();
            let is_waiting = self.len > ready.len() && poll.is_mute;
            let has_left = !ready.is_empty() && (is_reaped || !poll.is_attended);
            if has_left || is_waiting {
                poll.signal();
            }
        }
    }

    /// A reap makes no turn, so the alarm stays as it is. A loop that waits for changes of the
    /// descriptor (`EPOLLET`) has to see one.
    #[cold]
    fn signal_alarm(&self) {
        if let Some(poll) = &self.poll
            && !self.shared.is_foreign()
            && self.shared.hctx(self.ctx.hctx()).alarm.is_set()
        {
            poll.signal();
        }
    }

    /// Whether something has ended that was not reaped, as far as this thread knows without a look
    /// at the device.
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// How many I/Os were submitted and not reaped yet.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether everything that was submitted has been reaped.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A reap that is under way. Whatever ends it, the descriptor stays readable if something is left.
struct Reaping<'a> {
    queue: &'a mut BioQueue,
}

impl Drop for Reaping<'_> {
    #[inline]
    fn drop(&mut self) {
        self.queue.signal(true);
    }
}

impl fmt::Debug for QueuePoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePoll").field("event", &self.event).finish_non_exhaustive()
    }
}

impl Drop for BioQueue {
    fn drop(&mut self) {
        // The caller's memory may be freed once this returns, so it must not unwind before.
        AbortOnUnwind::guard(|| {
            let nr_ready = self.take_mail();
            if self.shared.is_foreign() {
                // What is in flight is the parent's: its memory is left alone.
                std::mem::forget(std::mem::take(&mut self.bufs));
            } else if self.len > nr_ready {
                thread::unplug_all(UnplugCause::Wait, Some(&self.ctx));
                self.wait(self.len());
            }
            // Who delivered what was taken may still be at the mailbox, which goes now.
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
#[path = "queue_models.rs"]
mod models;
