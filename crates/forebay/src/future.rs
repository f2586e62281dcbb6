//! A future for each I/O, without a runtime.

use crate::buf::Buf;
use crate::error::SubmitError;
use crate::io::{Completion, Io};
use crate::runtime::hctx::now_ns;
use crate::runtime::mailbox::{Doing, Mailbox};
use crate::runtime::shared::Shared;
use crate::runtime::thread;
use forebay_core::{Bio, Commit, KickPolicy, QueuedBio, Refusal};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// An I/O that will have ended. Made by [`Disk::start`](crate::Disk::start); it is submitted when
/// it is polled first, on the thread that polls it, and joins that thread's plug if one is open.
///
/// It may be polled on any thread, and is woken by its waker. Something has to make progress
/// meanwhile: the thread of a disk that was opened with `service=on`; or an event loop that watches
/// [`Disk::poll_fd`](crate::Disk::poll_fd) and calls [`Disk::poll`](crate::Disk::poll); or other
/// threads that wait for I/O on the same disk. Polling it makes what progress can be made at once.
///
/// Dropping it does not cancel the I/O, and does not wait for it: its buffer is freed when it ends.
///
/// Whoever reaps its I/O runs the waker: under `service=on` that may be the disk's own thread,
/// which leads for all. There a waker must not wait for I/O of the same disk.
#[must_use = "an I/O is submitted when it is polled"]
pub struct IoFuture {
    shared: Arc<Shared>,
    state: State,
}

enum State {
    New(Io),
    InLayer { mailbox: Arc<Mailbox>, buf: Option<Buf> },
    Over,
}

impl IoFuture {
    pub(crate) fn new(shared: Arc<Shared>, io: Io) -> IoFuture {
        IoFuture { shared, state: State::New(io) }
    }

    /// Submits the I/O.
    fn submit(&mut self, io: Io) -> Result<(), SubmitError> {
        let (bio, buf) = io.into_parts();
        let refused = |refusal, bio, buf| SubmitError { refusal, io: Io::of_parts(bio, buf) };
        if self.shared.is_foreign() {
            return Err(refused(Refusal::Forked, bio, buf));
        }
        let mailbox = Arc::new(Mailbox::of_task());
        let mut boxed = QueuedBio::new(mailbox.owner(), 0);
        boxed.fill(bio);
        let ctx = thread::shared_ctx_of(&self.shared);
        let now = now_ns(self.shared.info().is_timed());
        let turn_due = match ctx.queue_bio(boxed, now) {
            Ok(turn_due) => turn_due,
            Err((refusal, mut boxed)) => return Err(refused(refusal, boxed.take_bio(), buf)),
        };
        // From here on the mailbox and the buffer are held until the bio has ended: by this, or,
        // if this is dropped, by the mailbox itself.
        self.state = State::InLayer { mailbox, buf };
        if turn_due {
            // A loop's end is a thread's; a future has none.
            let is_loops = self.shared.info().policy.kick == KickPolicy::LoopEnd;
            ctx.turn(&self.shared, now, is_loops.then_some(Commit::Now));
        }
        Ok(())
    }
}

impl Future for IoFuture {
    /// The completion; or why the I/O was refused, and the I/O back.
    type Output = Result<Completion, SubmitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match std::mem::replace(&mut this.state, State::Over) {
            State::New(io) => {
                if let Err(error) = this.submit(io) {
                    return Poll::Ready(Err(error));
                }
            }
            State::InLayer { mailbox, buf } if this.shared.is_foreign() => {
                // What is in the layer is the parent's; the buffer here is a copy.
                std::mem::forget(mailbox);
                let io = Io::of_parts(Bio::flush(), buf);
                return Poll::Ready(Err(SubmitError { refusal: Refusal::Forked, io }));
            }
            State::InLayer { mailbox, buf } => {
                mailbox.end_wait();
                this.state = State::InLayer { mailbox, buf };
                this.shared.poll_shared();
            }
            State::Over => panic!("a future is not polled after it was ready"),
        }
        let State::InLayer { mailbox, buf } = &mut this.state else { unreachable!("submitted") };
        if mailbox.nr_delivered() == 0 {
            mailbox.set_waker(context.waker());
            mailbox.begin_wait(1, Doing::Parked);
            // W2.
            if mailbox.nr_delivered() == 0 {
                return Poll::Pending;
            }
        }
        let boxed = mailbox.take().and_then(|mut ended| ended.next());
        let boxed = boxed.expect("what was delivered is there");
        let completion = Completion::of(&boxed, buf.take());
        this.state = State::Over;
        Poll::Ready(Ok(completion))
    }
}

impl Drop for IoFuture {
    fn drop(&mut self) {
        if let State::InLayer { mailbox, buf } = std::mem::replace(&mut self.state, State::Over) {
            if self.shared.is_foreign() {
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
