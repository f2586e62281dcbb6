//! Futures of a group commit, and the thread that makes the syncs for them.
//!
//! A sync blocks, so no task may make it, and something else has to: a thread that sleeps until a
//! future rests on the pending generation, and then waits for that as any thread does (G2). So it
//! leads, or another does, and nothing here knows which. It outlives no promise: futures are made
//! by its handle alone, and when that is dropped it ends after the syncs of those that are left.

use super::generation::Generation;
use super::{CommitError, CommitPoint, GroupCommit, SyncFile};
use crate::runtime::primitive::{AtomicBool, Ordering, lock, thread};
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

/// A thread that makes syncs for futures. Threads that wait and futures share the same syncs.
///
/// Dropping it waits until all futures that it has made are ready.
///
/// ```
/// use forebay::{CommitThread, GroupCommit};
/// use std::sync::Arc;
///
/// # let path = std::env::temp_dir().join(format!("forebay-doc-thread-{}", std::process::id()));
/// let log = Arc::new(GroupCommit::new(std::fs::File::create(&path)?));
/// let thread = CommitThread::start(&log)?;
/// let task = async {
///     // ... a write that has ended, by whatever means ...
///     thread.commit().await
/// };
/// # let mut task = Box::pin(task);
/// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// # while task.as_mut().poll(&mut context).is_pending() {}
/// # drop(task);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct CommitThread<F: SyncFile + Send + Sync + 'static = File> {
    commit: Arc<GroupCommit<F>>,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl<F: SyncFile + Send + Sync + 'static> CommitThread<F> {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread to spare.
    pub fn start(commit: &Arc<GroupCommit<F>>) -> io::Result<CommitThread<F>> {
        let is_over = Arc::new(AtomicBool::new(false));
        let of_thread = (Arc::clone(commit), Arc::clone(&is_over));
        let serve = move || of_thread.0.serve(&of_thread.1);
        let thread = thread::Builder::new().name(String::from("forebay-commit")).spawn(serve)?;
        Ok(CommitThread { commit: Arc::clone(commit), is_over, thread: Some(thread) })
    }

    /// As [`GroupCommit::commit`], as a future. What has to have returned are the writes before
    /// this call, not those before the first poll; and the sync may begin right away.
    pub fn commit(&self) -> CommitFuture {
        self.future_of(None)
    }

    /// As [`GroupCommit::commit_since`], as a future.
    pub fn commit_since(&self, point: CommitPoint) -> CommitFuture {
        self.future_of(Some(point))
    }

    fn future_of(&self, point: Option<CommitPoint>) -> CommitFuture {
        let generation = self.commit.join(point);
        let mut state = lock(&self.commit.state);
        // Else its sync has begun, or it has ended.
        if Arc::ptr_eq(&generation, &state.pending) {
            state.is_wanted = true;
            self.commit.wanted.notify_all();
        }
        drop(state);
        CommitFuture { generation, place: None }
    }
}

impl<F: SyncFile + Send + Sync + 'static> Drop for CommitThread<F> {
    fn drop(&mut self) {
        let state = lock(&self.commit.state);
        // The lock orders it.
        self.is_over.store(true, Ordering::Relaxed);
        drop(state);
        self.commit.wanted.notify_all();
        let thread = self.thread.take().expect("it is taken here alone");
        // Unless a waker that the thread has woken drops this.
        if thread.thread().id() != thread::current().id() {
            // It catches all panics.
            let _ = thread.join();
        }
    }
}

impl<F: SyncFile> GroupCommit<F> {
    /// What the thread does until it is over.
    fn serve(&self, is_over: &AtomicBool) {
        loop {
            let mut state = lock(&self.state);
            while !state.is_wanted {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                state = self.wanted.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let generation = Arc::clone(&state.pending);
            drop(state);
            // A sync that panics is a loss, of which everybody was told (G4), and other futures
            // rest on this thread.
            let _ = catch_unwind(AssertUnwindSafe(|| self.wait_for(&generation)));
        }
    }
}

/// Writes that will be durable. Made by [`CommitThread::commit`], may be polled on any thread.
///
/// It never blocks. It is woken by the thread that made the sync, which may be the
/// [`CommitThread`] or any that waits in [`GroupCommit::commit`]; so its waker should be quick, as
/// wakers of executors are. Dropping it takes nothing back.
#[derive(Debug)]
#[must_use = "what it is about is not durable before it is ready"]
pub struct CommitFuture {
    generation: Arc<Generation>,
    place: Option<usize>,
}

impl Future for CommitFuture {
    type Output = Result<(), CommitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let CommitFuture { generation, place } = &mut *self;
        generation.poll(place, context.waker()).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for CommitFuture {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.generation.leave(place);
        }
    }
}
