//! Futures of a group commit, and the thread that makes their syncs.
//!
//! A sync blocks, so no task may make it. A thread sleeps until a future depends on the pending
//! generation, and then waits for that generation like any other thread (G2). Either it or another
//! thread leads; this code works in both cases. Futures are created only through the thread's
//! handle. When the handle is dropped, the thread ends once all futures are ready. If another
//! thread makes the sync of one, the thread waits for that sync without leading.

use super::generation::Generation;
use super::{CommitError, CommitPoint, GroupCommit, Leader, State, SyncFile};
use crate::sys::fork::Origin;
use crate::sys::primitive::{AtomicBool, MutexGuard, Ordering, lock, thread};
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

/// A thread that makes syncs for futures. Waiting threads and futures share the same syncs.
///
/// Dropping it waits until its futures are ready, whichever threads make their syncs. A task may be
/// woken later. Only a waker that the thread itself runs may drop it without a wait.
///
/// ```
/// use forebay::{CommitThread, GroupCommit};
/// use std::sync::Arc;
///
/// # let path = std::env::temp_dir().join(format!("forebay-doc-thread-{}", std::process::id()));
/// let log = Arc::new(GroupCommit::new(std::fs::File::create(&path)?));
/// let thread = CommitThread::start(&log)?;
/// let task = async {
///     // ... a write that has ended, by any means ...
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
    /// Fails if the system cannot start a thread, or if this process is a child of the fork of the
    /// one that created the group commit.
    pub fn start(commit: &Arc<GroupCommit<F>>) -> io::Result<CommitThread<F>> {
        drop(commit.state()?);
        let is_over = Arc::new(AtomicBool::new(false));
        let of_thread = (Arc::clone(commit), Arc::clone(&is_over));
        let serve = move || of_thread.0.serve(&of_thread.1);
        let thread = thread::Builder::new().name(String::from("forebay-commit")).spawn(serve)?;
        Ok(CommitThread { commit: Arc::clone(commit), is_over, thread: Some(thread) })
    }

    /// Returns a future for [`GroupCommit::commit`]. It covers writes that returned before this
    /// call. Writes between this call and the first poll are not covered: the sync may begin at
    /// once.
    pub fn commit(&self) -> CommitFuture {
        self.future_of(None)
    }

    /// Returns a future for [`GroupCommit::commit_since`].
    pub fn commit_since(&self, point: CommitPoint) -> CommitFuture {
        self.future_of(Some(point))
    }

    fn future_of(&self, point: Option<CommitPoint>) -> CommitFuture {
        let generation = match self.commit.state() {
            Ok(mut state) => {
                let generation = state.join(point);
                // Otherwise it has ended.
                if Arc::ptr_eq(&generation, &state.pending) {
                    state.is_wanted = true;
                    self.commit.wanted.notify_all();
                }
                generation
            }
            Err(error) => Arc::new(Generation::failed(error)),
        };
        CommitFuture { generation, origin: self.commit.origin, place: None }
    }
}

impl<F: SyncFile + Send + Sync + 'static> Drop for CommitThread<F> {
    fn drop(&mut self) {
        let thread = self.thread.take().expect("it is taken here alone");
        let Ok(state) = self.commit.state() else {
            // The thread is the parent's. Not even its handle may be used here.
            return std::mem::forget(thread);
        };
        // Relaxed: the lock orders the store.
        self.is_over.store(true, Ordering::Relaxed);
        drop(state);
        self.commit.wanted.notify_all();
        // A waker that this thread runs may drop the handle. Then the thread must not join itself.
        if thread.thread().id() != thread::current().id() {
            // The thread catches all panics.
            let _ = thread.join();
        }
    }
}

impl<F: SyncFile> GroupCommit<F> {
    /// Serves futures until the handle is dropped.
    fn serve(&self, is_over: &AtomicBool) {
        loop {
            let mut state = lock(&self.state);
            while !state.is_wanted {
                // Relaxed: the lock orders the load.
                if is_over.load(Ordering::Relaxed) {
                    return self.finish(state);
                }
                state = self.wanted.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let generation = Arc::clone(&state.pending);
            drop(state);
            // A sync that panics is a loss that all its callers get (G4). Other futures still
            // depend on this thread.
            let _ = catch_unwind(AssertUnwindSafe(|| self.wait_for(&generation)));
        }
    }

    /// Waits for the running sync if a future depends on it. No future depends on a later one.
    fn finish(&self, state: MutexGuard<'_, State>) {
        if let Leader::Syncing(running) = &state.leader
            && state.is_running_wanted
        {
            let running = Arc::clone(running);
            running.announce();
            drop(state);
            // It has a leader, so this thread is not called.
            running.sleep();
        }
    }
}

/// A future that is ready when its writes are durable. Made by [`CommitThread::commit`]; any thread
/// may poll it.
///
/// It never blocks. The thread that made the sync wakes it: the [`CommitThread`], or any that waits
/// in [`GroupCommit::commit`]. So its waker should be quick, as wakers of executors are. Dropping
/// the future does not cancel the sync.
#[derive(Debug)]
#[must_use = "writes are not durable before their future is ready"]
pub struct CommitFuture {
    generation: Arc<Generation>,
    /// The process of the group commit. A child of a fork takes no lock of the generation.
    origin: Origin,
    place: Option<usize>,
}

impl Future for CommitFuture {
    type Output = Result<(), CommitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let CommitFuture { generation, origin, place } = &mut *self;
        if origin.is_elsewhere() {
            return Poll::Ready(Err(CommitError::forked()));
        }
        generation.poll(place, context.waker()).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for CommitFuture {
    fn drop(&mut self) {
        if let Some(place) = self.place
            && !self.origin.is_elsewhere()
        {
            self.generation.leave(place);
        }
    }
}
