//! The hardware context: from a request without a tag to the driver and back, by one function.
//!
//! Counterpart in Linux: `struct blk_mq_hw_ctx` (`block/blk-mq.c`).

use crate::admission::Admission;
use crate::device::DeviceState;
use crate::driver::{Completions, Driver};
use crate::flush::FlushMachine;
use crate::limits::QueueLimits;
use crate::plug::list_capacity;
use crate::policy::Policy;
use crate::queued::QueuedBio;
use crate::request::Request;
use crate::retry::WriteLog;
use crate::splits::Splits;
use crate::stats::RunCounters;
use crate::tag::{Tag, TagCache, TagSet};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The part of a hardware context that only the holder of its token touches.
///
/// # The order of calls
/// - [`accept`](Self::accept) takes a request in; a turn is due.
/// - [`turn`](Self::turn) does all the rest, in one fixed order, and hands over the bios that have
///   ended. Nothing makes progress outside of it.
/// - The times given must not go backwards. They are nanoseconds of any clock.
///
/// # Invariants
/// - Q1 each part of a bio is in exactly one request, which is in a plug, in an inbox, in the
///   backlog or in the request table; the bio ends once, when the last of these requests is done.
/// - Q2 a request in the backlog, or in the flush machine, has no tag; one in the table has
///   exactly one.
/// - Q3 the depth bounds the table, for ever. The backlog has room for what its users may have in
///   the layer at once: it grows with their number, and never per I/O.
#[derive(Debug)]
pub struct HardwareContext {
    pub(crate) limits: QueueLimits,
    pub(crate) policy: Policy,
    pub(crate) device: Arc<DeviceState>,
    /// Which of the disk's hardware contexts it is.
    pub(crate) index: u32,
    pub(crate) counters: Arc<RunCounters>,
    /// Let in, and without a tag yet.
    pub(crate) backlog: VecDeque<Request>,
    /// How many of them, from the oldest on, an earlier turn has left there.
    pub(crate) nr_waited: usize,
    /// What waits for tags elsewhere than in the backlog; none where nothing ever does.
    pub(crate) admission: Option<Box<Admission>>,
    /// Let in, and not to wait for a tag.
    pub(crate) nowait: VecDeque<Request>,
    /// Not let in: the disk is frozen.
    pub(crate) outside: VecDeque<Request>,
    pub(crate) tags: TagCache,
    pub(crate) flush: FlushMachine,
    /// One row for each tag, and one for the command of the flush machine.
    pub(crate) table: Box<[Slot]>,
    pub(crate) splits: Splits,
    /// Tagged, and to be issued (again) before anything of the backlog.
    pub(crate) dispatch: VecDeque<Tag>,
    /// Tagged, and held back by a retry (A1).
    pub(crate) held: Vec<Tag>,
    pub(crate) completions: Completions,
    pub(crate) writes: WriteLog,
    pub(crate) nr_in_flight: u32,
    /// No request at the driver joins more bios than this.
    pub(crate) bios_per_request_max: u32,
    /// Requests at the driver whose completion is followed by another command.
    pub(crate) nr_with_more_commands: u32,
    /// The next turn asks the driver for completions even if none can have come.
    pub(crate) reap_kick: bool,
    /// How many were issued since the last commit.
    pub(crate) nr_uncommitted: u32,
    pub(crate) busy_since_ns: u64,
}

/// Where a tag stands. Counterpart in Linux: `enum mq_rq_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Idle,
    /// Has a request that is not at the driver: on the dispatch list, or held.
    Waiting,
    /// At the driver.
    Issued,
}

/// One row of the request table.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) state: SlotState,
    pub(crate) rq: Option<Request>,
}

/// When a turn commits what it has issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// At the end of the turn.
    Now,
    /// Not in this turn: the caller commits soon ([`HardwareContext::commit`]), or means to wait in
    /// the driver next ([`HardwareContext::prepare_wait`]), which does both with one system call.
    Later,
    /// At the end of the turn; but if at least so many requests are at the driver already, not in
    /// this turn: somebody waits for their completions, and commits when one comes.
    Unless(u32),
}

/// What a turn may do. Each is the opposite of a gate that somebody has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// Let requests in: not frozen.
    pub enter: bool,
    /// Hand requests to the driver: neither quiesced nor stopped.
    pub dispatch: bool,
    /// Take completions: no kick is on its way to a waiting thread.
    pub reap: bool,
}

impl Gates {
    /// All open.
    pub const OPEN: Gates = Gates { enter: true, dispatch: true, reap: true };
}

/// What a turn leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turned {
    /// Requests at the driver.
    pub nr_in_flight: u32,
    /// Whether requests are left that could not be issued: for want of tags, or because the
    /// driver was busy, or held back.
    pub work_left: bool,
    /// Whether nothing is in the context that was let in.
    pub is_drained: bool,
}

impl HardwareContext {
    /// Number `index` of a disk of these limits, with the tags of `tags`.
    ///
    /// # Panics
    /// If `limits` contradict themselves.
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
        let nr_requests = policy.nr_requests.unwrap_or(depth).clamp(1, depth);
        let idle = || Slot { state: SlotState::Idle, rq: None };
        HardwareContext {
            limits,
            policy,
            device,
            index,
            counters,
            backlog: VecDeque::with_capacity(list_capacity(policy.queue_depth)),
            nr_waited: 0,
            admission: Admission::new(&policy, depth, nr_requests),
            nowait: VecDeque::new(),
            outside: VecDeque::new(),
            tags: TagCache::new(tags, nr_requests),
            flush: FlushMachine::new(&limits, &policy, depth),
            table: (0..=depth).map(|_| idle()).collect(),
            splits: Splits::new(depth),
            dispatch: VecDeque::with_capacity(depth as usize),
            held: Vec::with_capacity(depth as usize),
            completions: Completions::new(depth + 1),
            writes: WriteLog::new(),
            nr_in_flight: 0,
            bios_per_request_max: 1,
            nr_with_more_commands: 0,
            reap_kick: false,
            nr_uncommitted: 0,
            busy_since_ns: 0,
        }
    }

    /// A thread that was kicked out of the driver is back: the next turn takes what the kick has
    /// left in the driver (K8).
    pub fn reap_kick(&mut self) {
        self.reap_kick = true;
    }

    /// Does everything that can be done now, in one fixed order: takes the driver's completions and
    /// ends their bios; issues what waits, oldest first, while there are tags; commits the
    /// batch. The bios that ended are added to `ended`, in the order of ending.
    ///
    /// This is the one driving order: whoever runs a queue, under whatever clock, calls this.
    #[inline]
    pub fn turn<D: Driver + ?Sized>(
        &mut self,
        driver: &mut D,
        now: u64,
        gates: Gates,
        commit: Commit,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> Turned {
        let (issued_before, ended_before) = (self.counters.issued.get(), ended.len());
        let mut turn = Turn { hctx: self, now, gates, ended };
        turn.reap(driver);
        turn.wake();
        turn.dispatch(driver);
        let is_due = match commit {
            Commit::Now => true,
            Commit::Later => false,
            Commit::Unless(nr) => self.nr_in_flight.saturating_sub(self.nr_uncommitted) < nr,
        };
        if is_due {
            self.commit(driver);
        }
        self.counters.turns.add(1);
        let was_empty = self.counters.issued.get() == issued_before && ended.len() == ended_before;
        if was_empty {
            self.counters.empty_turns.add(1);
        }
        let work_left = self.has_waiting();
        Turned {
            nr_in_flight: self.nr_in_flight,
            work_left: work_left || !self.outside.is_empty(),
            is_drained: self.nr_in_flight == 0 && !work_left,
        }
    }

    /// Whether something that was let in is not at the driver.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.backlog.is_empty()
            || !self.dispatch.is_empty()
            || !self.held.is_empty()
            || self.flush.is_pending()
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

    /// For a leader that waits beside the driver next: what was issued and not committed is begun
    /// by that wait, if the driver can do so ([`Driver::leave_to_wait`]), or now.
    #[inline]
    pub fn leave_to_wait<D: Driver + ?Sized>(&mut self, driver: &mut D) {
        if self.nr_uncommitted > 0 {
            self.nr_uncommitted = 0;
            self.counters.commits.add(1);
            driver.leave_to_wait();
        }
    }

    /// How many commands were issued and not committed.
    #[inline]
    pub fn nr_uncommitted(&self) -> u32 {
        self.nr_uncommitted
    }

    /// For a caller that waits in the driver next, which commits the batch: how many completions to
    /// wait for, so that `nr_bios` bios may have ended, whosever they are. It is as many as that
    /// takes at least, where all of them are in flight; where something waits for a completion
    /// before it can be issued, it is one. A turn is due after the wait.
    ///
    /// # Panics
    /// If nothing is at the driver.
    #[inline]
    pub fn prepare_wait(&mut self, nr_bios: u32) -> u32 {
        assert!(self.nr_in_flight > 0, "there is something to wait for");
        if self.nr_uncommitted > 0 {
            self.nr_uncommitted = 0;
            self.counters.commits.add(1);
        }
        if self.has_waiting() || self.nr_with_more_commands > 0 {
            return 1;
        }
        let (is_flushing, nr_flushed) = match self.flush.nr_ending() {
            None => (0, 0),
            // Others have their data to write then.
            Some(nr) if nr < self.flush.nr_running() => return 1,
            Some(nr) => (1, nr),
        };
        // Another request may end more bios than the flush does, and come before it.
        let nr_first = nr_flushed.max(is_flushing * self.bios_per_request_max);
        let nr_others = nr_bios.saturating_sub(nr_first).div_ceil(self.bios_per_request_max);
        (is_flushing + nr_others).clamp(1, self.nr_in_flight)
    }

    /// How many of its tags can be had: those at hand here, and those of the set.
    pub fn nr_free_tags(&self) -> u32 {
        self.tags.nr_free(0)
    }

    /// Asserts that the structure is whole (Q1 to Q3), and says how many bios are in it. For tests:
    /// it looks at everything.
    ///
    /// # Panics
    /// If it is not.
    pub fn check_invariants(&self) -> usize {
        let (rows, row_of_flush) = self.table.split_at(self.flush.tag().index());
        let tagged = rows.iter().filter(|slot| slot.state != SlotState::Idle);
        let nr_tagged = tagged.clone().count() as u32;
        assert_eq!(nr_tagged, self.tags.nr_busy());
        let issued = tagged.clone().filter(|slot| slot.state == SlotState::Issued).count() as u32;
        let is_flushing = row_of_flush[0].state == SlotState::Issued;
        assert_eq!(is_flushing, self.flush.is_running());
        assert_eq!(issued + u32::from(is_flushing), self.nr_in_flight);
        assert_eq!((self.dispatch.len() + self.held.len()) as u32 + issued, nr_tagged);
        let waiting = self.backlog.iter().chain(&self.nowait).chain(&self.outside);
        let waiting = waiting.chain(self.flush.iter());
        let waiting = waiting.chain(self.admission.iter().flat_map(|admission| admission.iter()));
        let requests = tagged.filter_map(|slot| slot.rq.as_ref()).chain(waiting);
        let (mut nr_whole, mut nr_parts) = (0, 0);
        for rq in requests {
            if rq.part_of.is_some() {
                nr_parts += 1;
            } else {
                assert_eq!(rq.bios().count(), rq.nr_bios as usize, "the list is whole");
                nr_whole += rq.nr_bios;
            }
        }
        let (nr_split, parts) = self.splits.count();
        assert_eq!(parts, nr_parts, "parts are counted");
        (nr_whole + nr_split) as usize
    }
}

/// A turn: the context, and what it was given.
pub(crate) struct Turn<'a> {
    pub(crate) hctx: &'a mut HardwareContext,
    pub(crate) now: u64,
    pub(crate) gates: Gates,
    pub(crate) ended: &'a mut Vec<Box<QueuedBio>>,
}
