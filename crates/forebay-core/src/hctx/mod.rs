//! The hardware context. One function issues its requests to the driver and ends their bios.
//!
//! Counterpart in Linux: `struct blk_mq_hw_ctx` (`block/blk-mq.c`).

mod admission;
mod complete;
mod device;
mod dispatch;
mod failures;
mod flush;
mod ordered;
mod scheduled;
mod scheduler_change;
mod timeout;
mod turn;
mod turned;

pub use device::{Backing, DeviceState};
pub use failures::DeviceFailures;
pub use scheduler_change::SchedulerChange;
pub use timeout::{LateRequest, LateRequests, LateStage};
pub use turned::Turned;

use crate::driver::{Completions, Driver, Issue};
use crate::hctx::admission::Admission;
use crate::hctx::admission::gather::Gather;
use crate::hctx::flush::FlushMachine;
use crate::hctx::timeout::Timeouts;
use crate::hctx::turned::NO_DEADLINE;
use crate::limits::QueueLimits;
use crate::plug::list_capacity;
use crate::policy::Policy;
use crate::request::{QueuedBio, Request, Splits};
use crate::retry::{Retries, WriteLog};
use crate::sched::Elevator;
use crate::stats::RunCounters;
use crate::tag::{Tag, TagCache, TagSet};
use crate::trace::{Trace, TraceWriter};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The part of a hardware context that only the holder of its token accesses.
///
/// # The order of calls
/// - [`accept`](Self::accept) takes a request in. A turn is due afterwards.
/// - [`turn`](Self::turn) does all the rest in one fixed order and returns the bios that have
///   ended. Nothing makes progress outside of it.
/// - Times are nanoseconds of any monotonic clock.
///
/// # Invariants
/// - Q1 each part of a bio is in exactly one request, which is in a plug, in an inbox, in the
///   backlog or in the request table. The bio ends once, when the last of these requests is done.
/// - Q2 a request in the backlog or in the flush machine has no tag; one in the table has exactly
///   one. With a scheduler, requests wait in the table too (`scheduled.rs`).
/// - Q3 the size of the table is fixed by the depth. The backlog grows with the number of users,
///   never per I/O.
#[derive(Debug)]
pub struct HardwareContext {
    limits: QueueLimits,
    policy: Policy,
    device: Arc<DeviceState>,
    /// The retries and write counts of all disks on the same file or device.
    retries: Arc<Retries>,
    /// The index of this context's write count in `retries`.
    count_at: u32,
    counters: Arc<RunCounters>,
    /// Requests that were admitted since the last turn. Empty after a turn, and if `admission`
    /// places the requests.
    incoming: Vec<Request>,
    /// One of them may not be a single command for all of its data.
    has_special: bool,
    /// Admitted requests without a tag.
    backlog: VecDeque<Request>,
    /// The number of requests at the front of the backlog that an earlier turn left there.
    nr_waited: usize,
    /// Requests that wait for tags outside the backlog. `None` if no policy needs it.
    admission: Option<Box<Admission>>,
    /// The tags that are put are counted: by class, or in `elevator`.
    counts_puts: bool,
    /// Admitted requests that must not wait for a tag.
    nowait: VecDeque<Request>,
    /// Requests that may not enter because the disk is frozen.
    outside: VecDeque<Request>,
    tags: TagCache,
    /// `None` without a scheduler.
    elevator: Option<Box<Elevator>>,
    flush: FlushMachine,
    timeouts: Timeouts,
    /// One row per tag, and one for the command of the flush machine.
    table: Box<[Slot]>,
    splits: Splits,
    gather: Gather,
    /// Tagged requests that are issued (again) before anything in the backlog.
    dispatch: VecDeque<Tag>,
    /// Tagged requests that a retry holds back (A1).
    held: Vec<Tag>,
    completions: Completions,
    writes: WriteLog,
    nr_in_flight: u32,
    /// How many of these requests are I/O that threads make themselves ([`SlotState::Begun`]).
    nr_begun: u32,
    /// An upper bound of the bios per request at the driver.
    bios_per_request_max: u32,
    /// The number of requests at the driver that another command follows.
    nr_with_more_commands: u32,
    /// The fast path that the next turn may take (`turn.rs`). Set by full turns.
    fast_turn: FastTurn,
    /// The next turn reaps even if nothing is in flight.
    reap_kick: bool,
    /// A waiting thread was kicked and has not returned yet (K8).
    is_kicked: bool,
    /// The number of commands issued since the last commit.
    nr_uncommitted: u32,
    busy_since_ns: u64,
    trace: Trace,
}

/// The state of a tag. Counterpart in Linux: `enum mq_rq_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    Idle,
    /// The tag has a request that is in the scheduler (Q4).
    Queued,
    /// The tag has a request that is not at the driver: on the dispatch list, or held.
    Waiting,
    /// The request is at the driver.
    Issued,
    /// The request is at the driver, and the thread that issued it makes the I/O itself
    /// ([`Issue::Begun`]).
    Begun,
    /// The request is at the driver, and its bios have ended (H5).
    GivenUp,
}

impl SlotState {
    /// Returns the state of a tag after this answer of the driver; `None` if the driver has not
    /// accepted the request.
    #[inline]
    fn of_accepted(answer: Issue) -> Option<SlotState> {
        // Each test is one comparison. A match would first compute the number of the variant.
        if matches!(answer, Issue::Queued) {
            return Some(SlotState::Issued);
        }
        matches!(answer, Issue::Begun).then_some(SlotState::Begun)
    }

    /// Returns whether the request is at the driver.
    fn is_at_driver(self) -> bool {
        matches!(self, SlotState::Issued | SlotState::Begun | SlotState::GivenUp)
    }
}

/// Which fast path a turn may take (`turn.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FastTurn {
    /// None: something waits in the context, or a policy or a trace needs the full rules.
    None,
    /// New requests are issued as they come.
    Plain,
    /// The same, and the stages of requests are recorded.
    Traced,
    /// New requests pass a scheduler or the limits of their owners, where no request waits.
    Ordered,
}

/// A row of the request table.
#[derive(Debug)]
struct Slot {
    state: SlotState,
    rq: Option<Request>,
}

/// When a turn commits the requests that it has issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// At the end of the turn.
    Now,
    /// Not in this turn. The caller commits soon ([`HardwareContext::commit`]), or waits in the
    /// driver next ([`HardwareContext::prepare_wait`]), which commits and waits with one system
    /// call.
    Later,
    /// At the end of the turn, unless at least this many requests are already in flight. In that
    /// case a thread waits for their completions and commits when one arrives.
    Unless(u32),
}

/// The permissions of a turn. Each flag is false while the matching gate is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// Admit requests. False while frozen.
    pub enter: bool,
    /// Issue requests. False while quiesced or stopped.
    pub dispatch: bool,
    /// Reap completions. False while a kick is on its way to a waiting thread.
    pub reap: bool,
}

impl Gates {
    /// All gates open.
    pub const OPEN: Gates = Gates { enter: true, dispatch: true, reap: true };
}

impl HardwareContext {
    /// Creates the context with number `index` of a disk, with tags from `tags`.
    ///
    /// # Panics
    /// Panics if `limits` contradict themselves.
    pub fn new(
        limits: QueueLimits,
        policy: Policy,
        index: u32,
        device: Arc<DeviceState>,
        tags: Arc<TagSet>,
        counters: Arc<RunCounters>,
    ) -> HardwareContext {
        assert!(limits.validate().is_ok(), "limits are checked at open");
        let depth = tags.depth();
        let nr_requests = policy.nr_requests_of(&limits).clamp(1, depth);
        let admission = Admission::new(&policy, depth, nr_requests);
        let elevator = Elevator::new(&policy, &limits, depth, nr_requests);
        let has_classes = admission.as_ref().is_some_and(|admission| admission.has_classes());
        let idle = || Slot { state: SlotState::Idle, rq: None };
        HardwareContext {
            limits,
            policy,
            retries: Arc::clone(&device.retries),
            count_at: device.count_at(index),
            device,
            counters,
            incoming: Vec::with_capacity(list_capacity(policy.queue_depth)),
            has_special: false,
            backlog: VecDeque::with_capacity(list_capacity(policy.queue_depth)),
            nr_waited: 0,
            counts_puts: has_classes || elevator.is_some(),
            admission,
            nowait: VecDeque::new(),
            outside: VecDeque::new(),
            tags: TagCache::new(tags, nr_requests),
            elevator,
            flush: FlushMachine::new(&limits, &policy, depth),
            timeouts: Timeouts::new(&policy, depth),
            table: (0..=depth).map(|_| idle()).collect(),
            splits: Splits::new(depth),
            gather: Gather::new(&policy, &limits),
            dispatch: VecDeque::with_capacity(depth as usize),
            held: Vec::with_capacity(depth as usize),
            completions: Completions::new(depth + 1),
            writes: WriteLog::new(),
            nr_in_flight: 0,
            nr_begun: 0,
            bios_per_request_max: 1,
            nr_with_more_commands: 0,
            fast_turn: FastTurn::None,
            reap_kick: false,
            is_kicked: false,
            nr_uncommitted: 0,
            busy_since_ns: 0,
            trace: Trace::default(),
        }
    }

    /// Records the stages of requests from now on, or no longer. See [`TraceEvent`].
    ///
    /// [`TraceEvent`]: crate::TraceEvent
    pub fn set_trace(&mut self, writer: Option<TraceWriter>) {
        self.fast_turn = FastTurn::None;
        self.trace.set(writer);
    }

    /// Returns whether the stages of requests are recorded, and the reader of the records has not
    /// ended.
    pub fn is_traced(&self) -> bool {
        self.trace.is_read()
    }

    /// Makes the next turn reap even if nothing is in flight: the driver's descriptor may be
    /// readable for completions that were reaped already, and the driver clears it.
    pub fn reap_all(&mut self) {
        self.reap_kick = true;
    }

    /// Records that the caller has kicked the thread that waits beside the driver. Turns reap
    /// nothing until that thread has returned. Then one reaps even if nothing is in flight, because
    /// the driver may still hold the kick's completion (K8).
    pub fn note_kick(&mut self) {
        (self.is_kicked, self.fast_turn) = (true, FastTurn::None);
    }

    /// Returns how many requests at the driver were not given up (H5).
    #[inline]
    fn nr_awaited(&self) -> u32 {
        self.nr_in_flight - self.timeouts.nr_given_up()
    }

    /// Returns the time of the next deadline; [`NO_DEADLINE`] if there is none.
    #[inline]
    fn next_at_ns(&self, now: u64, gates: Gates) -> u64 {
        // An opened gate runs the context by itself.
        let flush_ns = if gates.dispatch { self.flush.due_ns() } else { NO_DEADLINE };
        // The time limit counts even with nothing at the driver. A request that is issued before
        // that time then finds a deadline armed, and need not kick the leader for its own.
        let scheduler_ns = match &self.elevator {
            Some(elevator) if gates.dispatch => elevator.next_at_ns(),
            _ => NO_DEADLINE,
        };
        // A time that has passed was of no use to this turn: no tag was free, or the driver was
        // busy. A completion or a delayed run brings the next turn.
        let limits_ns = match self.limits_next_ns(now) {
            at_ns if gates.enter && gates.dispatch && at_ns > now => at_ns,
            _ => NO_DEADLINE,
        };
        flush_ns.min(self.timeouts.next_ns()).min(scheduler_ns).min(limits_ns)
    }

    /// Returns whether an admitted request is not at the driver.
    #[inline]
    fn has_waiting(&self) -> bool {
        !self.backlog.is_empty()
            || !self.incoming.is_empty()
            || !self.dispatch.is_empty()
            || !self.held.is_empty()
            || self.flush.is_pending()
            || self.nr_scheduled() > 0
            || self.admission.as_ref().is_some_and(|admission| !admission.is_empty())
    }

    /// Commits what turns with [`Commit::Later`] have issued.
    #[inline]
    pub fn commit<D: Driver + ?Sized>(&mut self, driver: &mut D) {
        if self.nr_uncommitted > 0 {
            self.nr_uncommitted = 0;
            self.counters.commits.add(1);
            driver.commit_rqs();
        }
    }

    /// Prepares the wait of a leader beside the driver. That wait begins the uncommitted requests
    /// if the driver supports it ([`Driver::leave_to_wait`]); otherwise they begin now.
    #[inline]
    pub fn leave_to_wait<D: Driver + ?Sized>(&mut self, driver: &mut D) {
        if self.nr_uncommitted > 0 {
            self.nr_uncommitted = 0;
            self.counters.commits.add(1);
            driver.leave_to_wait();
        }
    }

    /// Returns the number of commands issued and not committed.
    #[inline]
    pub fn nr_uncommitted(&self) -> u32 {
        self.nr_uncommitted
    }

    /// Prepares a wait in the driver, which also commits the batch. Returns the number of
    /// completions to wait for, so that `nr_bios` bios of any owner may have ended.
    ///
    /// The number is a lower bound if all of them are in flight. It is 1 if a request waits for a
    /// completion before it can be issued. A turn is due after the wait.
    ///
    /// # Panics
    /// Panics if nothing is at the driver, or only requests that were given up (H5).
    #[inline]
    pub fn prepare_wait(&mut self, nr_bios: u32) -> u32 {
        let nr_awaited = self.nr_awaited();
        assert!(nr_awaited > 0, "there is something to wait for");
        if self.nr_uncommitted > 0 {
            self.nr_uncommitted = 0;
            self.counters.commits.add(1);
        }
        let has_outside = !self.outside.is_empty() || self.has_owned();
        if self.has_waiting() || has_outside || self.nr_with_more_commands > 0 {
            return 1;
        }
        let (is_flushing, nr_flushed) = match self.flush.nr_ending() {
            None => (0, 0),
            // The other requests that waited for the flush then have data to write.
            Some(nr) if nr < self.flush.nr_running() => return 1,
            Some(nr) => (1, nr),
        };
        // Another request may end more bios than the flush, and complete before it.
        let nr_first = nr_flushed.max(is_flushing * self.bios_per_request_max);
        let nr_others = nr_bios.saturating_sub(nr_first).div_ceil(self.bios_per_request_max);
        (is_flushing + nr_others).clamp(1, nr_awaited)
    }

    /// Returns the number of tags available: those cached here and those free in the set.
    pub fn nr_free_tags(&self) -> u32 {
        self.tags.nr_free(0)
    }

    /// Asserts the invariants Q1 to Q3 and returns the number of bios in the context. For tests: it
    /// visits everything.
    ///
    /// # Panics
    /// Panics if an invariant is violated.
    pub fn check_invariants(&self) -> usize {
        // A device may have a thousand tags, so one visit of the table counts everything.
        let (mut nr_tagged, mut nr_issued, mut nr_begun) = (0, 0, 0);
        let (mut nr_whole, mut nr_parts) = (0, 0);
        let mut count = |rq: &Request| {
            if rq.part_of.is_some() {
                nr_parts += 1;
            } else {
                assert_eq!(rq.count_bios(), rq.nr_bios as usize, "the list is whole");
                nr_whole += rq.nr_bios;
            }
        };
        let (rows, row_of_flush) = self.table.split_at(self.flush.tag().index());
        for slot in rows.iter().filter(|slot| slot.state != SlotState::Idle) {
            nr_tagged += 1;
            nr_issued += u32::from(slot.state.is_at_driver());
            nr_begun += u32::from(slot.state == SlotState::Begun);
            slot.rq.iter().for_each(&mut count);
        }
        assert_eq!(nr_tagged, self.tags.nr_busy());
        let state_of_flush = row_of_flush[0].state;
        let is_flushing = state_of_flush.is_at_driver();
        assert_eq!(is_flushing, self.flush.is_at_device());
        nr_begun += u32::from(state_of_flush == SlotState::Begun);
        assert_eq!(nr_begun, self.nr_begun);
        assert_eq!(nr_issued + u32::from(is_flushing), self.nr_in_flight);
        let nr_waiting = self.dispatch.len() + self.held.len() + self.nr_scheduled();
        assert_eq!(nr_waiting as u32 + nr_issued, nr_tagged);
        let waiting =
            self.backlog.iter().chain(&self.incoming).chain(&self.nowait).chain(&self.outside);
        let waiting = waiting.chain(self.flush.iter());
        let waiting = waiting.chain(self.admission.iter().flat_map(|admission| admission.iter()));
        waiting.for_each(count);
        let may_be_fast =
            self.fast_turn == FastTurn::None || self.fast_turn == self.find_fast_turn();
        assert!(may_be_fast, "the code that ends it clears the flag");
        let (nr_split, parts) = self.splits.count();
        assert_eq!(parts, nr_parts, "parts are counted");
        (nr_whole + nr_split) as usize
    }
}

/// A turn in progress: the context and its inputs.
struct Turn<'a> {
    hctx: &'a mut HardwareContext,
    now: u64,
    gates: Gates,
    ended: &'a mut Vec<Box<QueuedBio>>,
    /// The driver has accepted a request in this turn.
    has_issued: bool,
}
