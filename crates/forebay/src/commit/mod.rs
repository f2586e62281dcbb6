//! Group commit: threads that need durability share the syncs of a file, without timers.
//!
//! This is the flush machine reduced to what one file needs, for programs that do not use the rest
//! of the layer. One sync runs at a time, and there are two generations of callers. The *running*
//! generation took its tickets before the sync began; the *pending* one took them later. Rules:
//!
//! - G1: a ticket is covered by a sync that began after the ticket was taken. A caller that arrives
//!   during a sync waits for the next one, because the running sync may have passed its write
//!   already.
//! - G2: while a thread waits for the pending generation, that generation has a leader, or a sync
//!   is running that selects exactly one of its threads when it ends. From then on the selected
//!   thread has the right to sync.
//! - G3: a failed sync fails its own generation and the pending one, because what was written while
//!   it ran may have been dropped too. An outcome never changes.
//! - G4: a leader that unwinds counts as a failed sync.
//!
//! This file decides which thread leads. [`generation`] has the waits and wake-ups, [`thread`] the
//! thread that syncs for futures, and [`sync_file`] the trait of what can be synced.

mod error;
mod generation;
mod sync_file;
mod thread;

use crate::sys::fork::Origin;
use crate::sys::primitive::{Condvar, Mutex, MutexGuard, lock};
pub use error::CommitError;
use generation::{Generation, Outcome, Woken};
use std::fs::File;
use std::io;
use std::mem::replace;
use std::sync::Arc;
pub use sync_file::{SyncFile, SyncKind};
pub use thread::{CommitFuture, CommitThread};

/// Group commit for a file of the caller: one sync makes the writes of many threads durable.
///
/// A thread writes to the file in any way. After its write has returned, it calls
/// [`commit`](GroupCommit::commit), which returns when a sync that *began after that* has
/// succeeded. One sync runs at a time, made by one of the waiting threads. All callers that arrive
/// during it share the next one. There is no background thread, and no caller waits for company: a
/// single thread pays for its own sync and nothing else. The longest wait is the rest of a running
/// sync plus one more.
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
/// A failed sync fails every caller that may depend on it: those it was for, and those whose
/// tickets were taken while it ran. It is not retried, because **a sync that succeeds after a
/// failed one proves nothing** about earlier writes: the kernel reports a failed write-back once
/// and marks the pages clean. Data written and not committed when the failed sync ended may be
/// lost. Only writing it again helps.
///
/// So a loss is sticky. [`commit`](GroupCommit::commit) has no record of when the write began, so
/// it fails until [`acknowledge_loss`](GroupCommit::acknowledge_loss) is called.
/// [`commit_since`](GroupCommit::commit_since) has the point that was taken before the write. It
/// fails if a sync has failed since that point, acknowledged or not. It does not fail for syncs
/// that had already failed by then. Prefer it if threads may be writing while another thread
/// acknowledges a loss.
///
/// All syncs of the open file have to go through one `GroupCommit`: the kernel reports an error to
/// one caller of `fsync` on an open file, and to no other.
///
/// # Threads
/// Any thread may call any method. Calls that wait block their thread, so tasks of an executor must
/// not make them; [`CommitThread`] has futures. A [`SyncFile`] must not commit to its own
/// `GroupCommit`, nor drop a [`CommitThread`] of it: it would wait for itself.
///
/// In a child of a fork, every commit to a `GroupCommit` of its parent fails: the threads that made
/// its syncs do not exist there.
///
/// Source: the double-buffered flush machine of Linux (`block/blk-flush.c`); "block: hold queue if
/// flush is running for non-queueable flush drive" (2011) for the benefit of joining.
#[derive(Debug)]
pub struct GroupCommit<F = File> {
    file: F,
    kind: SyncKind,
    origin: Origin,
    state: Mutex<State>,
    /// Wakes the threads that sync for futures when the pending generation is wanted, or at their
    /// end.
    wanted: Condvar,
}

/// Counters of a [`GroupCommit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitStats {
    /// Tickets taken: calls of `commit`, `ticket` and their variants.
    pub commits: u64,
    /// Syncs begun.
    pub syncs: u64,
    /// Syncs that failed.
    pub losses: u64,
}

/// A point in time before a write. See [`GroupCommit::point`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitPoint {
    /// The number of syncs that had failed at that time.
    nr_losses: u64,
}

impl CommitPoint {
    /// Returns the point as a number, for callers that keep it outside of Rust.
    pub const fn to_bits(self) -> u64 {
        self.nr_losses
    }

    /// Returns the point of a number that [`to_bits`](CommitPoint::to_bits) returned. It has a
    /// meaning only for the same [`GroupCommit`].
    pub const fn from_bits(bits: u64) -> CommitPoint {
        CommitPoint { nr_losses: bits }
    }
}

#[derive(Debug)]
struct State {
    leader: Leader,
    /// The generation of new tickets. No sync has begun for it.
    pending: Arc<Generation>,
    /// A future depends on the pending generation.
    is_wanted: bool,
    /// A future depends on the generation of the running sync.
    is_running_wanted: bool,
    /// The generation of the last failed sync, for tickets that are already lost when they are
    /// taken.
    lost: Option<Arc<Generation>>,
    nr_acknowledged: u64,
    stats: CommitStats,
}

/// Which thread may begin a sync.
#[derive(Debug)]
enum Leader {
    /// Any thread.
    Free,
    /// A thread of the pending generation that was called and has not begun its sync.
    Called,
    /// A thread that syncs for this generation.
    Syncing(Arc<Generation>),
}

impl State {
    /// Closes the pending generation for new tickets and returns it.
    fn next_generation(&mut self) -> Arc<Generation> {
        self.is_wanted = false;
        replace(&mut self.pending, Arc::new(Generation::new()))
    }

    /// Takes a ticket: returns the generation that decides the outcome of a write that has ended
    /// and began after `point`. Without a point the write may have begun at any time, so any loss
    /// may concern it.
    fn join(&mut self, point: Option<CommitPoint>) -> Arc<Generation> {
        self.stats.commits += 1;
        let nr_known = point.map_or(self.nr_acknowledged, |point| point.nr_losses);
        let lost = self.lost.as_ref().filter(|_| self.stats.losses > nr_known);
        // G1: not the generation of the running sync.
        Arc::clone(lost.unwrap_or(&self.pending))
    }

    /// Returns the last loss if it is not acknowledged.
    fn loss(&self) -> Option<CommitError> {
        let is_open = self.stats.losses > self.nr_acknowledged;
        self.lost.as_ref().filter(|_| is_open)?.outcome()?.err()
    }
}

impl<F: SyncFile> GroupCommit<F> {
    /// Creates a group commit by `fdatasync`: the data, and the metadata needed to read it.
    pub fn new(file: F) -> GroupCommit<F> {
        GroupCommit::with_kind(file, SyncKind::Data)
    }

    /// Creates a group commit by a sync of the given kind.
    pub fn with_kind(file: F, kind: SyncKind) -> GroupCommit<F> {
        let state = State {
            leader: Leader::Free,
            pending: Arc::new(Generation::new()),
            is_wanted: false,
            is_running_wanted: false,
            lost: None,
            nr_acknowledged: 0,
            stats: CommitStats::default(),
        };
        let (state, origin) = (Mutex::new(state), Origin::here());
        GroupCommit { file, kind, origin, state, wanted: Condvar::new() }
    }

    /// Returns the file, for writing.
    pub fn file(&self) -> &F {
        &self.file
    }

    /// Waits until all writes to the file that returned before this call are on stable storage. May
    /// make the sync, also for other callers. Blocks.
    ///
    /// # Errors
    /// Fails if a sync that may have covered these writes failed, or if an earlier loss is not
    /// acknowledged. Always fails in a child of a fork.
    ///
    /// # Panics
    /// Panics only if the file's `sync` panics on this thread. Other callers get an error.
    pub fn commit(&self) -> Result<(), CommitError> {
        self.ticket().wait()
    }

    /// Waits like [`commit`](GroupCommit::commit) for writes that began after `point` was taken,
    /// and reports exactly the losses that concern them.
    ///
    /// # Errors
    /// Fails if a sync has failed since that point, or fails now.
    ///
    /// # Panics
    /// Same as [`commit`](GroupCommit::commit).
    pub fn commit_since(&self, point: CommitPoint) -> Result<(), CommitError> {
        self.ticket_since(point).wait()
    }

    /// Takes a ticket: the first half of [`commit`](GroupCommit::commit). It marks the writes and
    /// does not block. Call it when the write has returned, and wait later.
    pub fn ticket(&self) -> Ticket<'_, F> {
        Ticket { commit: self, generation: self.join(None) }
    }

    /// Takes a ticket: the first half of [`commit_since`](GroupCommit::commit_since).
    pub fn ticket_since(&self, point: CommitPoint) -> Ticket<'_, F> {
        Ticket { commit: self, generation: self.join(Some(point)) }
    }

    /// Returns the current point. Take it before a write that is committed by
    /// [`commit_since`](GroupCommit::commit_since). A point costs nothing to drop.
    pub fn point(&self) -> CommitPoint {
        CommitPoint { nr_losses: self.stats().losses }
    }

    /// Returns the error of the last failed sync if it is not acknowledged. In a child of a fork,
    /// returns the error of all commits.
    pub fn loss(&self) -> Option<CommitError> {
        self.state().map_or_else(Some, |state| state.loss())
    }

    /// Acknowledges the loss, so that [`commit`](GroupCommit::commit) works again, and returns the
    /// error. Call it when the uncommitted data is written again or given up, and no thread is
    /// about to commit a write from before. Lost tickets stay lost. In a child of a fork, commits
    /// fail all the same.
    pub fn acknowledge_loss(&self) -> Option<CommitError> {
        let mut state = match self.state() {
            Ok(state) => state,
            Err(error) => return Some(error),
        };
        let loss = state.loss();
        state.nr_acknowledged = state.stats.losses;
        loss
    }

    /// Returns the counters; zeroes in a child of a fork.
    pub fn stats(&self) -> CommitStats {
        self.state().map_or_else(|_| CommitStats::default(), |state| state.stats)
    }

    /// Locks the state.
    ///
    /// # Errors
    /// Fails in a child of a fork: another thread may have held the lock at the fork, or made the
    /// sync that the child would wait for.
    fn state(&self) -> Result<MutexGuard<'_, State>, CommitError> {
        match self.origin.is_elsewhere() {
            true => Err(CommitError::forked()),
            false => Ok(lock(&self.state)),
        }
    }

    fn join(&self, point: Option<CommitPoint>) -> Arc<Generation> {
        match self.state() {
            Ok(mut state) => state.join(point),
            Err(error) => Arc::new(Generation::failed(error)),
        }
    }

    /// Returns the outcome of a generation if it is known.
    fn outcome_of(&self, generation: &Generation) -> Option<Outcome> {
        match self.origin.is_elsewhere() {
            true => Some(Err(CommitError::forked())),
            false => generation.outcome(),
        }
    }

    /// Waits until the generation has ended, or leads its sync.
    fn wait_for(&self, generation: &Arc<Generation>) -> Outcome {
        let state = self.state()?;
        if let Some(outcome) = generation.outcome() {
            return outcome;
        }
        if matches!(state.leader, Leader::Free) {
            return self.lead(generation, state);
        }
        // Under the lock, so that the end of the running sync sees this waiter (G2).
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
        state.is_running_wanted = state.is_wanted;
        let running = state.next_generation();
        assert!(Arc::ptr_eq(&running, generation), "a generation that is over has no outcome");
        state.leader = Leader::Syncing(Arc::clone(&running));
        state.stats.syncs += 1;
        drop(state);
        let mut sync = RunningSync { commit: self, result: None };
        sync.result = Some(self.file.sync(self.kind));
        drop(sync);
        self.outcome_of(generation).expect("its sync has ended")
    }

    /// Ends the running sync: gives the outcome to its generation, and the lead to a thread of the
    /// next one.
    fn end_sync(&self, result: io::Result<()>) {
        let outcome = result.map_err(CommitError::new);
        // The sync may have forked. In the child there is nothing to end.
        let Ok(mut state) = self.state() else { return };
        let Leader::Syncing(running) = replace(&mut state.leader, Leader::Free) else {
            unreachable!("the sync that ends has no leader");
        };
        running.end(&outcome);
        let mut lost_too = None;
        if outcome.is_err() {
            // G3. `join` fails tickets that are taken later for writes that have already begun.
            let pending = state.next_generation();
            pending.end(&outcome);
            lost_too = Some(pending);
            state.stats.losses += 1;
            state.lost = Some(Arc::clone(&running));
        }
        // Called first, so that the next sync begins soon.
        if state.pending.call() {
            state.leader = Leader::Called;
        }
        drop(state);
        let of_running = running.wake_threads();
        let of_pending = lost_too.map(|pending| pending.wake_threads());
        drop((of_running, of_pending));
    }
}

/// A running sync. It reports its end to all waiters in every case, even on a panic (G4).
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

/// Writes to be made durable, from [`GroupCommit::ticket`]. Dropping a ticket does not affect its
/// writes: syncs of other callers still cover them.
#[derive(Debug)]
#[must_use = "a ticket makes no sync unless it is waited for"]
pub struct Ticket<'a, F: SyncFile = File> {
    commit: &'a GroupCommit<F>,
    generation: Arc<Generation>,
}

impl<F: SyncFile> Ticket<'_, F> {
    /// Waits until the writes are on stable storage. Blocks, and may make the sync.
    ///
    /// # Errors
    /// Same as [`GroupCommit::commit`] or [`GroupCommit::commit_since`], depending on how the
    /// ticket was taken.
    ///
    /// # Panics
    /// Same as [`GroupCommit::commit`].
    pub fn wait(self) -> Result<(), CommitError> {
        self.commit.wait_for(&self.generation)
    }

    /// Returns the outcome of the writes if it is known. Does not block.
    pub fn outcome(&self) -> Option<Result<(), CommitError>> {
        self.commit.outcome_of(&self.generation)
    }
}

#[cfg(test)]
mod models;
