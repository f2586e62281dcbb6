//! Models of group commit on a device with a volatile cache. A sync makes durable only the writes
//! that it saw when it began, and a failed sync loses all writes before its end.
//!
//! The order comes from group commit alone. The device's words are relaxed, so a leader that did
//! not see a write of its generation would not make it durable either.

#[cfg(blk_loom)]
use super::Ticket;
use super::{CommitThread, GroupCommit, SyncFile, SyncKind};
use crate::sys::primitive::Ordering::Relaxed;
use crate::sys::primitive::{AtomicU64, Sleeper, check, check_within, thread};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// A device with a volatile cache. Each write is a bit.
struct Device {
    cache: AtomicU64,
    media: AtomicU64,
    /// Number of syncs that will still fail.
    nr_failures: AtomicU64,
}

type Commit = Arc<GroupCommit<Device>>;

impl Device {
    fn write(&self, bit: u64) {
        self.cache.fetch_or(bit, Relaxed);
    }

    fn has(&self, bit: u64) -> bool {
        self.media.load(Relaxed) & bit != 0
    }
}

impl SyncFile for Device {
    fn sync(&self, _: SyncKind) -> io::Result<()> {
        let seen = self.cache.load(Relaxed);
        // Only one sync runs at a time, so the load and the store need not be one step.
        let nr_failures = self.nr_failures.load(Relaxed);
        if nr_failures > 0 {
            self.nr_failures.store(nr_failures - 1, Relaxed);
            self.cache.swap(0, Relaxed);
            return Err(io::Error::other("the cache is gone"));
        }
        self.media.fetch_or(seen, Relaxed);
        Ok(())
    }
}

fn commit(nr_failures: u64) -> Commit {
    let [cache, media] = [AtomicU64::new(0), AtomicU64::new(0)];
    let nr_failures = AtomicU64::new(nr_failures);
    Arc::new(GroupCommit::new(Device { cache, media, nr_failures }))
}

/// Spawns a thread that writes and commits each bit. Checks that committed bits are on the media.
/// The thread returns the number of committed bits.
fn writer(commit: &Commit, bits: Vec<u64>) -> thread::JoinHandle<usize> {
    let commit = Arc::clone(commit);
    thread::spawn(move || bits.into_iter().filter(|&bit| write(&commit, bit)).count())
}

fn write(commit: &GroupCommit<Device>, bit: u64) -> bool {
    let point = commit.point();
    commit.file().write(bit);
    let is_durable = commit.commit_since(point).is_ok();
    assert!(!is_durable || commit.file().has(bit), "a write is acknowledged, and not there");
    is_durable
}

/// Runs `nr` writers of one bit each. Returns the number of committed bits.
fn write_each(commit: &Commit, nr: u64) -> usize {
    let threads: Vec<_> = (1..nr).map(|nth| writer(commit, vec![1 << nth])).collect();
    let mine = usize::from(write(commit, 1));
    mine + threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
}

#[test]
fn commits_of_two_threads_are_durable() {
    check(|| {
        let commit = commit(0);
        assert_eq!(write_each(&commit, 2), 2);
        let stats = commit.stats();
        assert_eq!((stats.commits, stats.losses), (2, 0));
        assert!((1..=2).contains(&stats.syncs));
    });
}

/// The third thread arrives while one syncs and one waits: exactly one waiter is called.
#[test]
fn commits_of_three_threads_are_durable() {
    check_within(3, || {
        let commit = commit(0);
        assert_eq!(write_each(&commit, 3), 3);
        assert!((1..=3).contains(&commit.stats().syncs));
    });
}

#[test]
fn threads_that_commit_again_do_not_wait_for_ever() {
    check_within(2, || {
        let commit = commit(0);
        let other = writer(&commit, vec![1, 2]);
        assert!(write(&commit, 4) && write(&commit, 8));
        assert_eq!(other.join().unwrap(), 2);
    });
}

/// G3: every write that the failed sync may have lost is reported as lost. A write that began later
/// is not.
#[test]
fn no_commit_relies_on_a_sync_after_a_failed_one() {
    check_within(3, || {
        let commit = commit(1);
        let nr_durable = write_each(&commit, 3);
        assert!(nr_durable < 3, "the leader of the failed sync got the error");
        assert!(commit.acknowledge_loss().is_some());
        assert!(write(&commit, 1 << 3), "what begins later is not lost");
    });
}

/// Without a point before the write, all commits fail until the loss is acknowledged.
#[test]
fn a_commit_without_a_point_fails_until_the_loss_is_acknowledged() {
    check(|| {
        let commit = commit(1);
        let other = {
            let commit = Arc::clone(&commit);
            thread::spawn(move || {
                commit.file().write(1);
                assert!(commit.commit().is_err());
            })
        };
        commit.file().write(2);
        assert!(commit.commit().is_err());
        other.join().unwrap();
        assert_eq!(commit.stats().syncs, 1, "nothing is tried again");
        commit.acknowledge_loss();
        commit.file().write(4);
        assert!(commit.commit().is_ok() && commit.file().has(4));
    });
}

/// A task on its own thread.
struct Task(Sleeper);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

fn block_on<T>(task: impl Future<Output = T>) -> T {
    let sleeper = Sleeper::of_this_thread();
    let waker = Waker::from(Arc::new(Task(sleeper.clone())));
    let mut task = pin!(task);
    loop {
        if let Poll::Ready(value) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        sleeper.sleep();
    }
}

#[test]
fn a_future_is_woken_by_a_sync_of_any_thread() {
    check_within(2, || {
        let commit = commit(0);
        let server = CommitThread::start(&commit).unwrap();
        let other = writer(&commit, vec![1]);
        commit.file().write(2);
        assert!(block_on(server.commit()).is_ok());
        assert!(commit.file().has(2), "a write is acknowledged, and not there");
        other.join().unwrap();
    });
}

#[test]
fn a_thread_that_ends_leaves_no_future_behind() {
    check_within(3, || {
        let commit = commit(0);
        let server = CommitThread::start(&commit).unwrap();
        commit.file().write(1);
        let future = server.commit();
        drop(server);
        assert!(block_on(future).is_ok() && commit.file().has(1));
    });
}

/// The thread of the handle or another one may make the sync of the future.
#[test]
fn futures_are_ready_once_their_thread_is_dropped() {
    check_within(2, || {
        let commit = commit(0);
        let server = CommitThread::start(&commit).unwrap();
        let other = writer(&commit, vec![1]);
        commit.file().write(2);
        let mut future = pin!(server.commit());
        drop(server);
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(()))) && commit.file().has(2));
        other.join().unwrap();
    });
}

/// The planted bug: a ticket for the running sync.
#[cfg(blk_loom)]
fn join_running(commit: &GroupCommit<Device>) -> Ticket<'_, Device> {
    let state = crate::sys::primitive::lock(&commit.state);
    let generation = match &state.leader {
        super::Leader::Syncing(running) => Arc::clone(running),
        _ => Arc::clone(&state.pending),
    };
    drop(state);
    Ticket { commit, generation }
}

#[cfg(blk_loom)]
#[test]
#[should_panic(expected = "joined, and not there")]
fn joining_the_running_sync_is_caught() {
    check_within(2, || {
        let commit = commit(0);
        let other = writer(&commit, vec![1]);
        commit.file().write(2);
        join_running(&commit).wait().unwrap();
        assert!(commit.file().has(2), "joined, and not there");
        other.join().unwrap();
    });
}
