//! Changes of the scheduler of a frozen context (Q8).

use std::sync::Arc;
use std::sync::atomic::AtomicU32 as Ghost;

use forebay_core::{Gate, RunState};
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;

use crate::common::explore;

/// The number of no scheduler.
const NONE: u32 = u32::MAX;

/// A context with an inbox for one request. A turn queues the request in the scheduler, and the
/// next turn ends it.
struct Hctx {
    state: RunState,
    inbox: AtomicU32,
    /// The number of the scheduler, and the one in which the request is queued. Only the token
    /// holder accesses them, so a stale value shows that the token orders too little.
    scheduler: AtomicU32,
    queued_in: AtomicU32,
    /// Whether the last turn left no request, for other threads.
    is_drained: AtomicU32,
    nr_ended: Ghost,
    nr_changes: Ghost,
}

impl Hctx {
    fn new() -> Arc<Hctx> {
        Arc::new(Hctx {
            state: RunState::new(),
            inbox: AtomicU32::new(0),
            scheduler: AtomicU32::new(0),
            queued_in: AtomicU32::new(NONE),
            is_drained: AtomicU32::new(1),
            nr_ended: Ghost::new(0),
            nr_changes: Ghost::new(0),
        })
    }

    fn turn(&self) {
        let is_open = self.state.gates().enter;
        let queued_in = self.queued_in.load(Relaxed);
        let scheduler = self.scheduler.load(Relaxed);
        assert_eq!(scheduler, self.nr_changes.load(Relaxed), "a change is not seen");
        if queued_in != NONE {
            assert_eq!(queued_in, scheduler, "the request is in another scheduler");
            self.queued_in.store(NONE, Relaxed);
            self.nr_ended.fetch_add(1, Relaxed);
        }
        let has_queued = is_open && self.inbox.load(Relaxed) == 1;
        if has_queued {
            self.inbox.store(0, Relaxed);
            self.queued_in.store(scheduler, Relaxed);
        }
        self.is_drained.store(u32::from(!has_queued), Relaxed);
    }

    fn run(&self) {
        if self.state.run() {
            self.turn();
            self.finish();
        }
    }

    fn finish(&self) {
        while !self.state.release() {
            self.turn();
        }
    }

    /// Submits the request, which ends in a turn after that.
    fn produce(&self) {
        self.inbox.store(1, Relaxed);
        self.run();
    }

    /// Changes the scheduler in the order of `Disk::set_scheduler`; `waits` until the context is
    /// drained.
    fn change(&self, waits: bool) {
        self.state.close(Gate::Frozen);
        while waits {
            self.run();
            if !self.state.is_running() && self.is_drained.load(Relaxed) == 1 {
                break;
            }
            thread::yield_now();
        }
        while !self.state.try_take() {
            thread::yield_now();
        }
        let scheduler = self.scheduler.load(Relaxed);
        self.scheduler.store(scheduler + 1, Relaxed);
        self.nr_changes.fetch_add(1, Relaxed);
        self.finish();
        self.state.open(Gate::Frozen);
        self.run();
    }
}

fn check(bound: Option<usize>, steps: &'static [fn(&Hctx)]) {
    explore(bound, move || {
        let hctx = Hctx::new();
        let spawn = |step: &'static fn(&Hctx)| {
            let hctx = hctx.clone();
            thread::spawn(move || step(&hctx))
        };
        let others: Vec<_> = steps[1..].iter().map(spawn).collect();
        steps[0](&hctx);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        // The completion of a request that is still queued.
        hctx.run();
        assert_eq!(hctx.nr_ended.load(Relaxed), 1, "the request was lost");
    });
}

#[test]
fn request_is_in_one_scheduler_and_is_not_lost() {
    check(Some(4), &[|hctx| hctx.change(true), Hctx::produce]);
}

#[test]
fn change_beside_a_run_that_publishes_nothing() {
    check(Some(2), &[|hctx| hctx.change(true), Hctx::produce, Hctx::run]);
}

/// Q8, planted: the thread does not wait until the context is drained.
#[test]
#[should_panic(expected = "the request is in another scheduler")]
fn planted_change_of_a_busy_context() {
    check(Some(4), &[|hctx| hctx.change(false), Hctx::produce]);
}
