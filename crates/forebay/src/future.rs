//! Futures of I/O, for any executor.

mod plugged;

use crate::buf::Buf;
use crate::error::SubmitError;
use crate::io::{Completion, Io};
use crate::runtime::hctx::now_ns;
use crate::runtime::mailbox::Mailbox;
use crate::runtime::shared::Shared;
use crate::runtime::thread::Ctx;
use crate::runtime::{quarantine, thread};
use forebay_core::wait::WaitState;
use forebay_core::{Bio, Commit, KickPolicy, QueuedBio, SubmitErrorKind};
pub use plugged::plugged;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The future of an I/O. Created by [`Disk::start`](crate::Disk::start): then the first poll
/// submits the I/O, on the polling thread, and adds it to that thread's plug if one is open. Or
/// created by [`Disk::start_all`](crate::Disk::start_all), which has already submitted the I/O.
///
/// Any thread may poll it, and different polls may come from different threads. A poll also makes
/// progress on other I/O of the disk, without blocking. While tasks sleep, one of these makes
/// progress:
///
/// - A service thread of the disk. The first polled future starts it, unless it runs already
///   (`service=on`). One thread serves all futures of the disk. It sleeps while there is no work,
///   and ends when the disk is closed. It waits in the driver for all users of the shared hardware
///   context. So a blocking call on that context is woken by this thread, which costs two more
///   context switches. Disks that end all I/O at once (`null`, and `ram` without service times) get
///   no such thread.
/// - The caller's event loop, while it has a [`DiskPoll`](crate::DiskPoll), or after it has called
///   [`Disk::poll_fd`](crate::Disk::poll_fd). The loop must then watch that descriptor and call
///   [`DiskPoll::poll`](crate::DiskPoll::poll) or [`Disk::poll`](crate::Disk::poll), or futures
///   never become ready. No thread is started, and one that a future has started ends.
///
/// Dropping it does not cancel the I/O and does not block. The buffer is freed when the I/O ends.
///
/// The thread that reaps its I/O runs the waker. This may be the thread of the disk, on a stack of
/// 256 KiB. There a waker may wait for a blocking call of the same disk, in another thread for
/// instance, but not for another future.
#[must_use = "an I/O is submitted when its future is polled"]
pub struct IoFuture {
    shared: Arc<Shared>,
    state: State,
}

enum State {
    New(Io),
    /// Refused before the first poll, which returns the error.
    Refused(SubmitError),
    InLayer {
        mailbox: Arc<Mailbox>,
        buf: Option<Buf>,
    },
    Over,
}

impl IoFuture {
    pub(crate) fn new(shared: Arc<Shared>, io: Io) -> IoFuture {
        IoFuture { shared, state: State::New(io) }
    }

    /// Submits the I/O on this thread, and returns its future.
    pub(crate) fn started(shared: Arc<Shared>, io: Io) -> IoFuture {
        let mut future = IoFuture { shared, state: State::Over };
        if let Err(error) = future.submit(io) {
            future.state = State::Refused(error);
        }
        future
    }

    /// Submits the I/O on this thread.
    fn submit(&mut self, io: Io) -> Result<(), SubmitError> {
        let ctx = thread::shared_ctx_of(&self.shared);
        self.submit_in(&ctx, io)
    }

    /// Submits the I/O through `ctx`, the thread's context on this disk.
    fn submit_in(&mut self, ctx: &Rc<Ctx>, io: Io) -> Result<(), SubmitError> {
        let (bio, buf) = io.into_parts();
        let refused = |refusal, bio, buf| SubmitError { kind: refusal, io: Io::of_parts(bio, buf) };
        if self.shared.is_after_fork() {
            return Err(refused(SubmitErrorKind::Forked, bio, buf));
        }
        // Before the submission: a refused I/O must not be in flight.
        if let Err(error) = self.shared.drive() {
            let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
            return Err(refused(SubmitErrorKind::NoThread { errno }, bio, buf));
        }
        let mailbox = Arc::new(Mailbox::of_task());
        let mut boxed = QueuedBio::new(mailbox.owner(), 0);
        boxed.fill(bio);
        let now = now_ns(self.shared.is_timed());
        let turn_due = match ctx.queue_bio(boxed, now) {
            Ok(turn_due) => turn_due,
            Err((refusal, mut boxed)) => return Err(refused(refusal, boxed.take_bio(), buf)),
        };
        // From here on the mailbox and the buffer are kept until the bio has ended: by this future,
        // or by the mailbox itself if the future is dropped.
        self.state = State::InLayer { mailbox, buf };
        if turn_due {
            // `LoopEnd` commits at the end of a thread's loop; a future has no such loop.
            let is_loops = self.shared.info().policy.kick == KickPolicy::LoopEnd;
            ctx.turn(&self.shared, now, is_loops.then_some(Commit::Now));
        }
        Ok(())
    }
}

impl Future for IoFuture {
    /// The completion. If the I/O was refused: the error, which returns the I/O with its buffer.
    type Output = Result<Completion, SubmitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match std::mem::replace(&mut this.state, State::Over) {
            State::New(io) => {
                if let Err(error) = this.submit(io) {
                    return Poll::Ready(Err(error));
                }
            }
            State::Refused(error) => return Poll::Ready(Err(error)),
            State::InLayer { mailbox, buf } if this.shared.is_after_fork() => {
                // The bio in flight belongs to the parent; the buffer here is a copy.
                std::mem::forget(mailbox);
                let io = Io::of_parts(Bio::flush(), buf);
                return Poll::Ready(Err(SubmitError { kind: SubmitErrorKind::Forked, io }));
            }
            State::InLayer { mailbox, buf } => {
                mailbox.cell.end_wait();
                this.state = State::InLayer { mailbox, buf };
                this.shared.poll_shared();
            }
            State::Over => panic!("a future is not polled after it was ready"),
        }
        let State::InLayer { mailbox, buf } = &mut this.state else { unreachable!("submitted") };
        if mailbox.cell.nr_delivered() == 0 {
            mailbox.set_waker(context.waker());
            mailbox.cell.begin_wait(1, WaitState::Parked);
            // W2.
            if mailbox.cell.nr_delivered() == 0 {
                return Poll::Pending;
            }
        }
        let boxed = mailbox.take().and_then(|mut ended| ended.next());
        let mut boxed = boxed.expect("what was delivered is there");
        let mut buf = buf.take();
        if let Some(hold) = boxed.take_hold() {
            quarantine::keep(&hold, buf.take());
        }
        let completion = Completion { buf, ..Completion::of(&boxed) };
        this.state = State::Over;
        Poll::Ready(Ok(completion))
    }
}

impl Drop for IoFuture {
    fn drop(&mut self) {
        if let State::InLayer { mailbox, buf } = std::mem::replace(&mut self.state, State::Over) {
            if self.shared.is_after_fork() {
                return std::mem::forget((mailbox, buf));
            }
            mailbox.abandon(buf);
        }
    }
}

impl fmt::Debug for IoFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoFuture").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod models;
