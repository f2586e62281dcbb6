//! Group commit, on files whose syncs return the results that a test chooses.

use crate::common::Scratch;
use crate::forked::in_child;
use forebay::{
    CommitError, CommitFuture, CommitStats, CommitThread, GroupCommit, SyncFile, SyncKind,
};
use std::fs::{File, read};
use std::future::Future;
use std::io::{self, ErrorKind, Write};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

/// A file without data. Each sync reports that it has begun, and returns the result it then
/// receives.
struct ControlledFile {
    begun: Mutex<Sender<SyncKind>>,
    results: Mutex<Receiver<io::Result<()>>>,
}

/// The test's end of the channels of [`ControlledFile`].
struct Control {
    begun: Receiver<SyncKind>,
    send_result: Sender<io::Result<()>>,
}

impl SyncFile for ControlledFile {
    fn sync(&self, kind: SyncKind) -> io::Result<()> {
        self.begun.lock().unwrap().send(kind).expect("a test");
        self.results.lock().unwrap().recv().expect("a test")
    }
}

fn controlled_file() -> (ControlledFile, Control) {
    let (begin, begun) = channel();
    let (send_result, results) = channel();
    let file = ControlledFile { begun: Mutex::new(begin), results: Mutex::new(results) };
    (file, Control { begun, send_result })
}

fn bad() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EIO))
}

/// A file whose sync results are a function of the number of earlier syncs.
struct Scripted<S>(S, AtomicU64);

impl<S: Fn(u64) -> io::Result<()>> SyncFile for Scripted<S> {
    fn sync(&self, _: SyncKind) -> io::Result<()> {
        (self.0)(self.1.fetch_add(1, SeqCst))
    }
}

fn scripted<S: Fn(u64) -> io::Result<()>>(sync: S) -> GroupCommit<Scripted<S>> {
    GroupCommit::new(Scripted(sync, AtomicU64::new(0)))
}

/// Waits until `nr` tickets have been taken.
fn wait_for_tickets<F: SyncFile>(commit: &GroupCommit<F>, nr: u64) {
    while commit.stats().commits < nr {
        thread::yield_now();
    }
}

#[test]
fn commits_during_a_sync_share_the_next_one() {
    const THREADS: u64 = if cfg!(miri) { 8 } else { 64 };
    let (file, control) = controlled_file();
    let commit = GroupCommit::new(file);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| commit.commit().expect("a sync that succeeds"));
        }
        control.begun.recv().expect("a sync");
        wait_for_tickets(&commit, THREADS);
        (0..2).for_each(|_| control.send_result.send(Ok(())).expect("a sync"));
    });
    let stats = commit.stats();
    assert_eq!((stats.commits, stats.syncs, stats.losses), (THREADS, 2, 0));
}

#[test]
fn a_ticket_that_is_taken_while_a_sync_runs_is_not_covered_by_it() {
    let (file, control) = controlled_file();
    let commit = GroupCommit::new(file);
    thread::scope(|scope| {
        let before = commit.ticket();
        let first = scope.spawn(|| commit.commit());
        control.begun.recv().expect("a sync");
        let during = commit.ticket();
        control.send_result.send(Ok(())).expect("a sync");
        first.join().expect("a thread").expect("it led the sync");
        assert!(matches!(before.outcome(), Some(Ok(()))), "it was there when the sync began");
        assert!(during.outcome().is_none(), "the sync may have passed its write");
        control.send_result.send(Ok(())).expect("a sync");
        during.wait().expect("a sync of its own");
    });
    assert_eq!(commit.stats().syncs, 2);
}

#[test]
fn failed_sync_fails_all_commits_before_its_end() {
    let (file, control) = controlled_file();
    let commit = GroupCommit::new(file);
    thread::scope(|scope| {
        let first = scope.spawn(|| commit.commit());
        control.begun.recv().expect("a sync");
        let point = commit.point();
        let during = commit.ticket_since(point);
        let second = scope.spawn(|| commit.commit());
        wait_for_tickets(&commit, 3);
        control.send_result.send(bad()).expect("a sync");
        for thread in [first, second] {
            let error = thread.join().expect("a thread").expect_err("the sync failed");
            assert_eq!(error.io_error().raw_os_error(), Some(libc::EIO));
        }
        assert!(during.wait().is_err(), "its write may have been given up with the others");
        // A late thread: its write ended while the sync ran, and it has no ticket yet.
        assert!(commit.commit_since(point).is_err());
    });
    assert_eq!(commit.stats().syncs, 1, "nothing is tried again");
}

#[test]
fn loss_is_reported_until_acknowledged_and_its_tickets_stay_lost() {
    let commit = scripted(|nth| if nth == 0 { bad() } else { Ok(()) });
    let (lost, before) = (commit.ticket(), commit.point());
    assert!(commit.loss().is_none());
    assert!(commit.commit().is_err());
    assert!(commit.commit().is_err(), "it is not known when the write began");
    assert!(commit.loss().is_some());
    commit.commit_since(commit.point()).expect("it began after the failed sync");
    assert!(commit.acknowledge_loss().is_some());
    assert!(commit.acknowledge_loss().is_none() && commit.loss().is_none());
    commit.commit().expect("the loss is acknowledged");
    assert!(commit.commit_since(before).is_err(), "what it is about is not");
    assert!(lost.wait().is_err());
    let stats = commit.stats();
    assert_eq!((stats.syncs, stats.losses), (3, 1));
}

#[test]
fn an_error_says_what_to_do_and_becomes_one_of_io() {
    let commit = scripted(|_| Err(io::Error::new(ErrorKind::StorageFull, "planned")));
    let error: CommitError = commit.commit().expect_err("the sync failed");
    assert_eq!(
        error.to_string(),
        "a sync failed: planned; uncommitted writes may be lost even if a later sync succeeds: \
         write them again, then call acknowledge_loss()"
    );
    assert_eq!(io::Error::from(error).kind(), ErrorKind::StorageFull);
}

#[test]
fn panic_in_a_sync_is_a_loss_and_no_thread_hangs() {
    let (file, control) = controlled_file();
    let commit = GroupCommit::new(file);
    thread::scope(|scope| {
        let first = scope.spawn(|| commit.commit());
        control.begun.recv().expect("a sync");
        let second = scope.spawn(|| commit.commit());
        wait_for_tickets(&commit, 2);
        // The sync waits for its result. The closed channel makes it panic.
        drop(control);
        assert!(first.join().is_err(), "the panic goes on in the thread that made the sync");
        let error = second.join().expect("a thread").expect_err("the sync panicked");
        assert_eq!(error.io_error().to_string(), "the sync panicked");
    });
    assert_eq!(commit.loss().map(|loss| loss.io_error().kind()), Some(ErrorKind::Other));
}

#[test]
fn dropped_ticket_costs_no_sync_and_delays_no_other() {
    let commit = scripted(|_| Ok(()));
    drop(commit.ticket());
    assert_eq!(commit.stats().syncs, 0);
    let (one, other) = (commit.ticket(), commit.ticket());
    drop(one);
    other.wait().expect("a sync");
    assert_eq!(commit.stats().syncs, 1);
}

#[test]
fn the_sync_is_of_the_kind_that_was_asked_for() {
    for (kind, commit) in [
        (SyncKind::Data, GroupCommit::new as fn(_) -> _),
        (SyncKind::All, |file| GroupCommit::with_kind(file, SyncKind::All)),
    ] {
        let (file, control) = controlled_file();
        control.send_result.send(Ok(())).expect("a sync");
        GroupCommit::commit(&commit(file)).expect("a sync");
        assert_eq!(control.begun.recv(), Ok(kind));
    }
}

/// A task run by a thread. Its waker uses the group commit, which wakers may do.
struct Task<F> {
    thread: thread::Thread,
    commit: Arc<GroupCommit<F>>,
}

impl<F: SyncFile + Send + Sync> Wake for Task<F> {
    fn wake(self: Arc<Self>) {
        drop(self.commit.ticket());
        self.thread.unpark();
    }
}

fn block_on<F, T>(commit: &Arc<GroupCommit<F>>, task: impl Future<Output = T>) -> T
where
    F: SyncFile + Send + Sync + 'static,
{
    let task_of = Task { thread: thread::current(), commit: Arc::clone(commit) };
    let (waker, mut task) = (Waker::from(Arc::new(task_of)), pin!(task));
    loop {
        if let Poll::Ready(value) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

#[test]
fn futures_and_threads_share_syncs_and_wakers_run_under_no_lock() {
    let (file, control) = controlled_file();
    let commit = Arc::new(GroupCommit::new(file));
    let server = CommitThread::start(&commit).expect("a thread");
    let first = server.commit();
    control.begun.recv().expect("a sync of the thread's");
    let futures = [server.commit(), server.commit(), server.commit_since(commit.point())];
    thread::scope(|scope| {
        let waiting = scope.spawn(|| commit.commit());
        wait_for_tickets(&commit, 5);
        (0..2).for_each(|_| control.send_result.send(Ok(())).expect("a sync"));
        block_on(&commit, first).expect("the first sync");
        futures.into_iter().for_each(|future| block_on(&commit, future).expect("the second"));
        waiting.join().expect("a thread").expect("the second");
    });
    assert_eq!(commit.stats().syncs, 2);
}

#[test]
fn a_future_is_woken_by_its_last_waker_and_one_that_is_dropped_is_not() {
    #[derive(Default)]
    struct Count(AtomicU64);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let (file, control) = controlled_file();
    let commit = Arc::new(GroupCommit::new(file));
    let server = CommitThread::start(&commit).expect("a thread");
    let (mut future, mut dropped) = (Box::pin(server.commit()), Box::pin(server.commit()));
    let counts: [Arc<Count>; 3] = Default::default();
    let wakers = counts.clone().map(Waker::from);
    for waker in &wakers[..2] {
        assert!(future.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    assert!(dropped.as_mut().poll(&mut Context::from_waker(&wakers[2])).is_pending());
    drop(dropped);
    (0..2).for_each(|_| control.send_result.send(Ok(())).expect("a sync"));
    drop(server);
    assert_eq!(counts.map(|count| count.0.load(SeqCst)), [0, 1, 0]);
    let ready = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(ready, Poll::Ready(Ok(()))));
}

/// A waker that waits for the test, on the thread that wakes the task.
struct Blocks(Mutex<Receiver<()>>);

impl Wake for Blocks {
    fn wake(self: Arc<Blocks>) {
        self.0.lock().unwrap().recv().expect("a test");
    }
}

#[test]
fn dropped_thread_waits_for_a_sync_that_another_thread_makes_for_a_future() {
    let (file, control) = controlled_file();
    let commit = Arc::new(GroupCommit::new(file));
    let server = CommitThread::start(&commit).expect("a thread");
    let (unblock, blocked) = channel();
    let (ticket, mut first) = (commit.ticket(), Box::pin(server.commit()));
    control.begun.recv().expect("a sync of the thread's");
    let waker = Waker::from(Arc::new(Blocks(Mutex::new(blocked))));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    control.send_result.send(Ok(())).expect("a sync");
    while ticket.outcome().is_none() {
        thread::yield_now();
    }
    // The thread is in the waker, so another one makes the next sync.
    let mut second = Box::pin(server.commit());
    thread::scope(|scope| {
        scope.spawn(|| commit.commit());
        control.begun.recv().expect("a sync of the other thread's");
        let dropper = scope.spawn(|| {
            drop(server);
            second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        });
        unblock.send(()).expect("the thread waits");
        // Long enough for a thread that does not wait.
        thread::sleep(Duration::from_millis(50));
        control.send_result.send(Ok(())).expect("a sync");
        assert!(dropper.join().expect("no panic"), "the drop has waited");
    });
}

#[test]
fn a_thread_whose_sync_panics_serves_on() {
    let commit = Arc::new(scripted(|nth| match nth {
        0 => panic!("planned: the first sync panics"),
        _ => Ok(()),
    }));
    let server = CommitThread::start(&commit).expect("a thread");
    assert!(block_on(&commit, server.commit()).is_err());
    assert!(block_on(&commit, server.commit()).is_err(), "the loss is not acknowledged");
    commit.acknowledge_loss();
    block_on(&commit, server.commit()).expect("the second sync");
}

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Panics>) {
        panic!("planned: a waker panics");
    }
}

#[test]
fn failed_sync_is_reported_despite_a_panicking_waker() {
    let (file, control) = controlled_file();
    let commit = Arc::new(GroupCommit::new(file));
    let thread = CommitThread::start(&commit).expect("a thread");
    let mut future = Box::pin(thread.commit());
    control.begun.recv().expect("a sync");
    let waker = Waker::from(Arc::new(Panics));
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // This commit waits for the next sync; the end of the current sync fails it with the loss.
    let next = {
        let commit = Arc::clone(&commit);
        thread::spawn(move || commit.commit())
    };
    wait_for_tickets(&commit, 2);
    (0..1000).for_each(|_| thread::yield_now());
    control.send_result.send(bad()).expect("a sync");
    next.join().expect("a thread").expect_err("the sync failed");
}

#[test]
fn records_appended_by_threads_are_in_the_file() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = if cfg!(miri) { 2 } else { 50 };
    let scratch = Scratch::new(0);
    let file = File::options().append(true).open(&scratch.path).expect("the scratch file");
    let commit = GroupCommit::new(Arc::new(file));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let point = commit.point();
                    commit.file().as_ref().write_all(&[7; 64]).expect("a write");
                    commit.commit_since(point).expect("a sync");
                }
            });
        }
    });
    let stats = commit.stats();
    assert_eq!(stats.commits, THREADS * ROUNDS);
    assert!(stats.syncs <= stats.commits);
    assert_eq!(read(&scratch.path).expect("the file").len() as u64, THREADS * ROUNDS * 64);
}

#[test]
fn commits_in_a_child_of_a_fork_are_refused_and_the_parent_goes_on() {
    if cfg!(miri) {
        return; // Miri has no `fork`.
    }
    let (file, control) = controlled_file();
    let commit = Arc::new(GroupCommit::new(file));
    let server = CommitThread::start(&commit).expect("a thread");
    let mut polled = Box::pin(server.commit());
    control.begun.recv().expect("a sync, which runs at the fork");
    let pending = |future: &mut std::pin::Pin<Box<CommitFuture>>| {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
    };
    assert!(pending(&mut polled));
    let (ticket, mut other) = (commit.ticket(), Box::pin(server.commit()));
    let server = std::cell::Cell::new(Some(server));
    let ok = in_child(|| {
        let error = commit.commit().expect_err("the sync that runs is the parent's").to_string();
        assert_eq!(
            error,
            "commit refused: the group commit was created by the parent of this process; open the \
             file again after the fork and create a group commit for it"
        );
        let server = server.take().expect("the child has a copy");
        assert!(commit.commit_since(commit.point()).is_err());
        assert!(ticket.outcome().is_some_and(|outcome| outcome.is_err()));
        assert!(ticket.wait().is_err());
        assert!(!pending(&mut polled) && !pending(&mut other));
        assert!(!pending(&mut Box::pin(server.commit())));
        assert!(commit.loss().is_some() && commit.acknowledge_loss().is_some());
        assert_eq!(commit.stats(), CommitStats::default());
        assert!(CommitThread::start(&commit).is_err());
        drop((server, polled, other));
        true
    });
    assert_eq!(commit.stats().syncs, 1);
    (0..3).for_each(|_| control.send_result.send(Ok(())).expect("a sync"));
    assert!(ok);
    commit.commit().expect("the parent's own syncs");
    drop(server);
    assert_eq!(commit.stats().losses, 0);
}
