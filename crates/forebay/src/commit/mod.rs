//! Group commit: threads that need durability share the syncs of a file, without timers.
//!
//! It is the flush machine cut down to what a file needs, for those who do not want the rest of
//! the layer. As there, one sync runs at a time and two generations of callers exist: the
//! *running* one, whose tickets were taken before the sync began, and the *pending* one. Rules:
//!
//! - G1: a ticket is covered by a sync that began after it was taken. So who comes while a sync
//!   runs waits for the next: the running one may have passed its write already.
//! - G2: a pending generation that a thread waits for has a leader, or a sync runs, whose end calls
//!   exactly one of them to lead. The called thread owns the right to sync from then on.
//! - G3: a sync that fails fails its generation, and the pending one: what was written while it ran
//!   may have been given up with the rest. An outcome never changes.
//! - G4: a leader that unwinds is a sync that failed.
//!
//! The files: this one has who leads; [`generation`] who waits, and how they are woken; [`thread`]
//! the thread that makes the syncs of futures; [`sync_file`] what can be synced.

mod error;
mod generation;
mod sync_file;
mod thread;

use crate::runtime::primitive::{Condvar, Mutex, MutexGuard, lock};
pub use error::CommitError;
use generation::{Generation, Outcome, Woken};
use std::fs::File;
use std::io;
use std::mem::replace;
use std::sync::Arc;
pub use sync_file::{SyncFile, SyncKind};
pub use thread::{CommitFuture, CommitThread};

/// Group commit for a file of the caller's: one sync makes the writes of many threads durable.
///
/// A thread writes to the file in any way it likes. When its write has returned it calls
/// [`commit`](GroupCommit::commit), which returns when a sync that *began after that* has
/// succeeded. One sync runs at a time, made by one of the threads that wait; all that come
/// meanwhile share the next one. No thread runs in the background, and nobody waits for company: a
/// thread alone pays for its own sync and nothing else. The longest wait is the rest of a running
/// sync and one more.
///
/// ```
/// use forebay::GroupCommit;
/// use std::io::Write;
///
/// # let path = std::env::temp_dir().join(format!("forebay-doc-commit-{}", std::process::id()));
/// let log = GroupCommit::new(std::fs::File::create(&path)?);
/// std::thread::scope(|scope| {
///     for n in 0..8 {
///         let log = &log;
///         scope.spawn(move || {
///             let point = log.point();
///             log.file().write_all(&[n; 512]).unwrap();
///             log.commit_since(point).unwrap(); // these 512 bytes are on stable storage
///         });
///     }
/// });
/// assert_eq!(log.stats().commits, 8);
/// assert!(log.stats().syncs <= 8);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What a failure means
/// A sync that fails fails everybody who may rest on it: those it was for, and those whose tickets
/// were taken while it ran. It is not tried again, because **a sync that succeeds after one that
/// failed proves nothing** of what was written before: the kernel reports a failed write-back once,
/// and marks the pages clean. What was written and not yet committed when the failed sync ended may
/// be lost, and only writing it anew can help.
///
/// So a loss is sticky. [`commit`](GroupCommit::commit) does not know when the write began, and
/// fails until somebody calls [`acknowledge_loss`](GroupCommit::acknowledge_loss).
/// [`commit_since`](GroupCommit::commit_since) knows: it fails if a sync has failed since the point
/// that was taken before the write, acknowledged or not, and does not if all that failed had ended
/// by then. Prefer it where threads may be in the midst of a write when another acknowledges.
///
/// All syncs of the open file have to go through one `GroupCommit`: an error that another caller
/// of `fsync` on the same open file is told is told to nobody else.
///
/// # Threads
/// Every method may be called by any thread. The calls that wait block their thread and so must not
/// be made by a task of an executor: see [`CommitThread`] for futures. A [`SyncFile`] must not
/// commit to its own `GroupCommit`: that waits for itself.
///
/// Source: the double-buffered flush machine of Linux (`block/blk-flush.c`), "block: hold queue if
/// flush is running for non-queueable flush drive" (2011) for why joining pays.
#[derive(Debug)]
pub struct GroupCommit<F = File> {
    file: F,
    kind: SyncKind,
    state: Mutex<State>,
    /// Wakes the threads that sync for futures: the pending generation is wanted, or they are over.
    wanted: Condvar,
}

/// What has been shared so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitStats {
    /// Tickets taken: calls of `commit`, `ticket` and their like.
    pub commits: u64,
    /// Syncs begun.
    pub syncs: u64,
    /// Syncs that have failed.
    pub losses: u64,
}

/// A moment in the life of a [`GroupCommit`], before a write. See [`GroupCommit::point`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitPoint {
    /// Syncs that had failed by then.
    nr_losses: u64,
}

#[derive(Debug)]
struct State {
    leader: Leader,
    /// Of tickets that are taken now: no sync has begun for it.
    pending: Arc<Generation>,
    /// A future rests on the pending generation.
    is_wanted: bool,
    /// The generation of the last sync that failed, for tickets that are lost when they are taken.
    lost: Option<Arc<Generation>>,
    nr_acknowledged: u64,
    stats: CommitStats,
}

/// Who may begin a sync.
#[derive(Debug)]
enum Leader {
    /// Whoever comes.
    Nobody,
    /// A thread of the pending generation, which has been called and does not sync yet.
    Called,
    /// A thread that syncs for this generation.
    Syncing(Arc<Generation>),
}

impl State {
    /// No tickets are added to the pending generation any more.
    fn next_generation(&mut self) -> Arc<Generation> {
        self.is_wanted = false;
        replace(&mut self.pending, Arc::new(Generation::new()))
    }

    /// The last loss, if it is not acknowledged.
    fn loss(&self) -> Option<CommitError> {
        let is_open = self.stats.losses > self.nr_acknowledged;
        self.lost.as_ref().filter(|_| is_open)?.outcome()?.err()
    }
}

impl<F: SyncFile> GroupCommit<F> {
    /// Group commit by `fdatasync`: the data, and of the metadata what it takes to read it.
    pub fn new(file: F) -> GroupCommit<F> {
        GroupCommit::with_kind(file, SyncKind::Data)
    }

    /// Group commit by a sync of that kind.
    pub fn with_kind(file: F, kind: SyncKind) -> GroupCommit<F> {
        let state = State {
            leader: Leader::Nobody,
            pending: Arc::new(Generation::new()),
            is_wanted: false,
            lost: None,
            nr_acknowledged: 0,
            stats: CommitStats::default(),
        };
        GroupCommit { file, kind, state: Mutex::new(state), wanted: Condvar::new() }
    }

    /// The file, to write to.
    pub fn file(&self) -> &F {
        &self.file
    }

    /// Returns when all writes to the file that had returned before this call are on stable
    /// storage. May make the sync, for others as well. Blocks.
    ///
    /// # Errors
    /// A sync that may have been about these writes has failed, or one that nobody has acknowledged
    /// yet.
    ///
    /// # Panics
    /// Only if the file's own `sync` does, on this thread. The others get an error.
    pub fn commit(&self) -> Result<(), CommitError> {
        self.ticket().wait()
    }

    /// As [`commit`](GroupCommit::commit), for writes that began after `point` was taken: exact
    /// about losses.
    ///
    /// # Errors
    /// A sync has failed since that point, or fails now.
    ///
    /// # Panics
    /// As [`commit`](GroupCommit::commit).
    pub fn commit_since(&self, point: CommitPoint) -> Result<(), CommitError> {
        self.ticket_since(point).wait()
    }

    /// The first half of [`commit`](GroupCommit::commit): says which writes are meant, and does not
    /// block. Take it when the write has returned, do something else, and wait later.
    pub fn ticket(&self) -> Ticket<'_, F> {
        Ticket { commit: self, generation: self.join(None) }
    }

    /// The first half of [`commit_since`](GroupCommit::commit_since).
    pub fn ticket_since(&self, point: CommitPoint) -> Ticket<'_, F> {
        Ticket { commit: self, generation: self.join(Some(point)) }
    }

    /// Now. Take it before a write, to commit the write by
    /// [`commit_since`](GroupCommit::commit_since). Costs nothing to drop.
    pub fn point(&self) -> CommitPoint {
        CommitPoint { nr_losses: lock(&self.state).stats.losses }
    }

    /// The error of the last sync that failed, if nobody has acknowledged it.
    pub fn loss(&self) -> Option<CommitError> {
        lock(&self.state).loss()
    }

    /// Takes note of what was lost, so that [`commit`](GroupCommit::commit) works again; returns
    /// the error. Call it when what was not committed is written anew, or given up, and no thread
    /// is about to commit a write from before. Tickets that are lost stay lost.
    pub fn acknowledge_loss(&self) -> Option<CommitError> {
        let mut state = lock(&self.state);
        let loss = state.loss();
        state.nr_acknowledged = state.stats.losses;
        loss
    }

    /// What has been shared so far.
    pub fn stats(&self) -> CommitStats {
        lock(&self.state).stats
    }

    /// The generation whose outcome is that of a write that has ended, and began after that point.
    /// Without one it may have begun at any time, so any loss may be about it.
    fn join(&self, point: Option<CommitPoint>) -> Arc<Generation> {
        let mut state = lock(&self.state);
        state.stats.commits += 1;
        let nr_known = point.map_or(state.nr_acknowledged, |point| point.nr_losses);
        let lost = state.lost.as_ref().filter(|_| state.stats.losses > nr_known);
        // G1: not the generation of a sync that runs.
        Arc::clone(lost.unwrap_or(&state.pending))
    }

    /// Waits until the generation has ended, or leads it there.
    fn wait_for(&self, generation: &Arc<Generation>) -> Outcome {
        let state = lock(&self.state);
        if let Some(outcome) = generation.outcome() {
            return outcome;
        }
        if matches!(state.leader, Leader::Nobody) {
            return self.lead(generation, state);
        }
        // Under the lock: who ends the sync that runs sees that somebody waits (G2).
        generation.announce();
        drop(state);
        match generation.sleep() {
            Woken::Ended(outcome) => outcome,
            Woken::Called => {
                let state = lock(&self.state);
                assert!(
                    matches!(state.leader, Leader::Called),
                    "a thread leads without being called"
                );
                self.lead(generation, state)
            }
        }
    }

    /// Syncs for the pending generation.
    fn lead(&self, generation: &Arc<Generation>, mut state: MutexGuard<'_, State>) -> Outcome {
        let running = state.next_generation();
        assert!(Arc::ptr_eq(&running, generation), "a generation that is over has no outcome");
        state.leader = Leader::Syncing(Arc::clone(&running));
        state.stats.syncs += 1;
        drop(state);
        let mut sync = RunningSync { commit: self, result: None };
        sync.result = Some(self.file.sync(self.kind));
        drop(sync);
        generation.outcome().expect("its sync has ended")
    }

    /// The sync that runs has ended: gives each of its generation the outcome, and the lead to one
    /// of the next.
    fn end_sync(&self, result: io::Result<()>) {
        let outcome = result.map_err(CommitError::new);
        let mut state = lock(&self.state);
        let Leader::Syncing(running) = replace(&mut state.leader, Leader::Nobody) else {
            unreachable!("a sync ends that nobody leads");
        };
        running.end(&outcome);
        let mut lost_too = None;
        if outcome.is_err() {
            // G3. Who writes now, and takes a ticket later, is found by `join`.
            let pending = state.next_generation();
            pending.end(&outcome);
            lost_too = Some(pending);
            state.stats.losses += 1;
            state.lost = Some(Arc::clone(&running));
        }
        // First of all, so that the next sync begins soon.
        if state.pending.call() {
            state.leader = Leader::Called;
        }
        drop(state);
        let of_running = running.wake_threads();
        let of_pending = lost_too.map(|pending| pending.wake_threads());
        drop((of_running, of_pending));
    }
}

/// A sync that runs. However it ends, those who wait hear of it (G4).
struct RunningSync<'a, F: SyncFile> {
    commit: &'a GroupCommit<F>,
    result: Option<io::Result<()>>,
}

impl<F: SyncFile> Drop for RunningSync<'_, F> {
    fn drop(&mut self) {
        let panicked = || Err(io::Error::other("the sync panicked"));
        self.commit.end_sync(self.result.take().unwrap_or_else(panicked));
    }
}

/// Writes that are to be durable. Made by [`GroupCommit::ticket`]; nothing happens to those of one
/// that is dropped, but what others do for theirs.
#[derive(Debug)]
#[must_use = "nobody syncs for a ticket that nobody waits for"]
pub struct Ticket<'a, F: SyncFile = File> {
    commit: &'a GroupCommit<F>,
    generation: Arc<Generation>,
}

impl<F: SyncFile> Ticket<'_, F> {
    /// Returns when the writes are on stable storage. Blocks, and may make the sync.
    ///
    /// # Errors
    /// As [`GroupCommit::commit`] or [`GroupCommit::commit_since`], whichever it is a half of.
    ///
    /// # Panics
    /// As [`GroupCommit::commit`].
    pub fn wait(self) -> Result<(), CommitError> {
        self.commit.wait_for(&self.generation)
    }

    /// What became of the writes, if that is known already. Does not block.
    pub fn outcome(&self) -> Option<Result<(), CommitError>> {
        self.generation.outcome()
    }
}

#[cfg(test)]
mod models;
