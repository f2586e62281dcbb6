//! A hardware context: the token and the inbox.

use crate::check::stall;
use crate::driver::{DriverState, Port};
use crate::runtime::tags::TagCalls;
use crate::runtime::thread::Thread;
use crate::trace::Kind;
use crate::world::World;
use forebay_core::wait::Timers;
use forebay_core::{HardwareContext, QueuedBio, RunCounters, RunState, TagSet};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Published requests as lists of bios, and the numbers of their boxes.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) requests: Vec<Box<QueuedBio>>,
    pub(crate) slots: Vec<u32>,
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox { requests: Vec::new(), slots: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// One of the disk's hardware contexts. The first is shared; the others are owned by one task at a
/// time.
#[derive(Debug)]
pub(crate) struct Hctx {
    pub(crate) at: usize,
    pub(crate) run: RunState,
    pub(crate) is_shared: bool,
    pub(crate) is_owned: Cell<bool>,
    pub(crate) inbox: RefCell<Inbox>,
    pub(crate) tags: TagCalls,
    /// The delayed run, and the deadline.
    pub(crate) timers: Timers,
    /// The boxes of requests that wait for the end of a freeze.
    pub(crate) outside: RefCell<Vec<u32>>,
    /// A leader must be kicked for an event outside of its context's turns.
    pub(crate) kick_leader: Cell<bool>,
    pub(crate) followers: RefCell<Vec<usize>>,
    /// The task that waits in the driver, and for how many completions.
    pub(crate) waiter: Cell<Option<(usize, u32)>>,
    /// The time at which that wait ends by itself.
    pub(crate) waits_until_ns: Cell<Option<u64>>,
    /// Whether the last turn left no admitted request.
    pub(crate) is_drained: Cell<bool>,
    /// Whether the last turn left admitted requests, none of them at the device.
    pub(crate) is_stranded: Cell<bool>,
    /// Whether the last turn left nothing but requests that limits of owners hold back.
    pub(crate) is_held_back: Cell<bool>,
    /// The number of tasks that are publishing requests and have not yet requested a run.
    pub(crate) nr_publishing: Cell<u32>,
    /// The number of turns before the next check of the whole structure.
    pub(super) nr_turns_to_check: Cell<u64>,
    pub(crate) counters: Arc<RunCounters>,
    pub(crate) inner: RefCell<Option<Inner>>,
}

/// The part that only the holder of the token accesses.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) core: HardwareContext,
    pub(crate) driver: DriverState,
    /// The limit of tags in use.
    pub(crate) nr_requests: u32,
}

impl Hctx {
    pub(crate) fn new(at: usize) -> Hctx {
        Hctx {
            at,
            run: RunState::new(),
            is_shared: at == 0,
            is_owned: Cell::new(at == 0),
            inbox: RefCell::new(Inbox::new()),
            tags: TagCalls::default(),
            timers: Timers::new(),
            outside: RefCell::default(),
            kick_leader: Cell::new(false),
            followers: RefCell::default(),
            waiter: Cell::new(None),
            waits_until_ns: Cell::new(None),
            is_drained: Cell::new(true),
            is_stranded: Cell::new(false),
            is_held_back: Cell::new(false),
            nr_publishing: Cell::new(0),
            nr_turns_to_check: Cell::new(0),
            counters: Arc::default(),
            inner: RefCell::new(None),
        }
    }

    /// Puts a new inner part in place.
    pub(crate) fn open(&self, world: &World) {
        let depth = world.disk.policy.queue_depth;
        let mut core = HardwareContext::new(
            world.disk.limits,
            world.disk.policy,
            self.at as u32,
            Arc::clone(&world.device_state),
            Arc::new(TagSet::new(depth)),
            Arc::clone(&self.counters),
        );
        if world.disk.is_stash_v1 {
            core.emulate_stash_v1();
        }
        if world.disk.policy.io_timeout_ns > 0 {
            core.set_late_requests(Arc::new(world.late.clone()));
        }
        core.set_trace(world.stages.as_ref().map(|stages| stages.of_context(self.at)));
        if let Some(owners) = &world.owners {
            owners.pass_to(&mut core, self.at, &mut world.checks());
        }
        let mut driver = DriverState::new(self.at, depth + 1);
        // The owner of a context commits by itself.
        driver.begins_in_wait = world.begins_in_wait && self.is_shared;
        let device = &mut *world.device.borrow_mut();
        if let Some(file) = &mut device.file {
            file.errors.open(self.at);
        }
        device.stir(&mut world.checks());
        let nr_requests = world.disk.policy.nr_requests_of(&world.disk.limits);
        world.checks().gathers.limited(self.at, nr_requests);
        let inner = Inner { core, driver, nr_requests };
        *self.inner.borrow_mut() = Some(inner);
    }

    /// Calls `act` with the inner part and its driver.
    pub(crate) fn with_port<T>(
        &self,
        world: &World,
        act: impl FnOnce(&mut HardwareContext, &mut Port<'_>) -> T,
    ) -> T {
        let mut inner = self.inner.borrow_mut();
        let inner = inner.as_mut().expect("a context in use has an inner part");
        let mut device = world.device.borrow_mut();
        let mut checks = world.checks();
        let mut heap = world.scheduler.heap.borrow_mut();
        let mut port = Port {
            state: &mut inner.driver,
            device: &mut device,
            checks: &mut checks,
            heap: &mut heap,
            now: world.now(),
            is_kicked: self.run.is_kicked(),
        };
        let result = act(&mut inner.core, &mut port);
        if let Some(stages) = &world.stages {
            stages.drain();
        }
        result
    }

    /// Sets the task that offers to make a command of the next turn itself, and whether the turn
    /// may leave a flush to a task.
    pub(super) fn set_offer(&self, offered_by: Option<usize>, may_leave: bool) {
        self.with_inner(|inner| {
            inner.driver.own.set_offer(offered_by);
            inner.core.leave_flush(may_leave);
        });
    }

    /// Calls `act` with the inner part.
    pub(crate) fn with_inner<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.borrow_mut();
        act(inner.as_mut().expect("a context in use has an inner part"))
    }
}

impl Thread<'_> {
    /// Requests a turn after something was published.
    pub(crate) fn run(&self, hctx: &Hctx) -> bool {
        let is_ours = hctx.run.run();
        self.note_asked(hctx, is_ours);
        is_ours
    }

    /// Announces a wait in the driver by a leader without the token. Returns whether it has taken
    /// the token instead.
    pub(crate) fn block(&self, hctx: &Hctx) -> bool {
        let nr_before = hctx.run.nr_skipped();
        let is_ours = hctx.run.block();
        self.world.checks().runs.blocked(hctx.at);
        if is_ours || hctx.run.nr_skipped() > nr_before {
            self.note_asked(hctx, is_ours);
        }
        is_ours
    }

    /// Records that this task has requested a run, and whether it got the token.
    fn note_asked(&self, hctx: &Hctx, is_ours: bool) {
        let mut checks = self.world.checks();
        checks.runs.asked(hctx.at, self.id, !is_ours);
        if is_ours {
            hctx.counters.count_run();
            checks.note(Kind::Take, hctx.at as u64, 0);
            checks.runs.made(hctx.at);
            let taken = checks.gates.take(hctx.at, self.id);
            checks.expect(taken);
        } else {
            checks.note(Kind::Skip, hctx.at as u64, 0);
        }
    }

    /// Takes the token if it is free.
    pub(crate) fn try_take(&self, hctx: &Hctx) -> bool {
        let is_ours = hctx.run.try_take();
        if is_ours {
            hctx.counters.count_run();
            let mut checks = self.world.checks();
            checks.note(Kind::Take, hctx.at as u64, 0);
            checks.runs.made(hctx.at);
            let taken = checks.gates.take(hctx.at, self.id);
            checks.expect(taken);
        }
        is_ours
    }

    /// Checks that the inbox is empty or will be read, after this task has requested a run or
    /// released the token.
    pub(crate) fn check_inbox(&self, hctx: &Hctx) {
        let verdict = stall::lost_run(&self.world, hctx);
        self.world.fail(verdict);
    }

    /// Wakes the tasks that turns were about, after the token was released.
    pub(crate) fn wake(&mut self) {
        let mut wakes = std::mem::take(&mut self.wakes);
        for task in wakes.drain(..) {
            self.step();
            self.world.wake(task);
        }
        self.wakes = wakes;
    }
}
