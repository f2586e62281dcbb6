//! The flush machine of a hardware context: it coalesces flushes and keeps at most one at the
//! device.
//!
//! Counterpart in Linux: `struct blk_flush_queue` (`block/blk-flush.c`), one for each hardware
//! queue since 3.18. A request takes up to three steps ([`steps`]). A request that needs a flush as
//! its next step waits here, without a tag. The device is given a command of the machine's own,
//! under a tag beyond those of the set. So a flush never waits for tags, and a request that waits
//! for a flush takes no tag from others.
//!
//! - F1 at most one flush of the machine is at the device.
//! - F2 it ends the requests that were waiting when it was issued (*pending* becomes *running*):
//!   the writes that had ended when they arrived had completed at the device before. A later
//!   request is pending again, for the next flush. One exception: a request that needs no more than
//!   the running flush was issued for joins it ([`Durability`](crate::Durability)).
//! - F3 if it fails, exactly the running requests fail, and the requests that cover lost writes.
//!   A command that was given up (H5) counts as failed. Until it completes, pending requests fail,
//!   too: no other flush may be issued (F1), and the command may receive an error of the file that
//!   a later flush would not get.
//! - F4 a PREFLUSH orders its data after the writes that had ended when it arrived, and after
//!   nothing else.
//! - F5 some devices execute a flush only while nothing else is in flight. While a flush runs on
//!   such a device, the policy decides what happens to other requests. They are held as long as
//!   there is a running list, so its end releases them: there is no second flag that could be
//!   forgotten.
//! - F6 a request waits for two flushes of its context at most: the one that is at the device when
//!   the context lets the request in, and the next one. Therefore the turn that lets requests in
//!   moves all that need a flush to the machine before it issues one, whatever their class, their
//!   thread and NOWAIT. (A flush that the driver refuses at once is not counted.) Pending flushes
//!   wait for writes at the device that will need one as well, but no longer than
//!   `flush_pending_ns`, which is a deadline of the context (W7). And flushes do not starve other
//!   requests, however many flushes come ([`NR_IN_A_ROW`]).
//! - F7 a bio ends once: with the last step of its request.
//! - F8 where a FUA write is a sync of the file, a failed FUA write is a failed flush, and a flush
//!   that was at the device with it ends after it ([`fua`]).
//! - F9 where a device executes a flush alone, and a scheduler has an order of classes, a flush
//!   goes after the queued requests of a higher class than all of its waiters, unless it has waited
//!   as long as a request of its class would have to.

mod fua;
mod turn;

use crate::durability::Wanted;
use crate::hctx::turned::NO_DEADLINE;
use crate::limits::QueueLimits;
use crate::policy::{FlushPolicy, Policy};
use crate::request::{QueuedBio, Request, Steps};
use crate::split::Front;
use crate::tag::Tag;
use alloc::vec::Vec;
use fua::FuaWrites;

pub(super) use turn::needs_point;

/// The number of flushes in a row before other waiting requests have a turn. (Without this limit,
/// one thread that only flushes could starve a device that executes flushes alone.)
pub(super) const NR_IN_A_ROW: u32 = 4;

/// A request that waits for a flush as its current step.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) rq: Request,
    wanted: Wanted,
    /// The number of losses when the request arrived.
    nr_losses: u64,
}

/// The flush machine.
#[derive(Debug)]
pub(super) struct FlushMachine {
    /// Requests that wait for the next flush.
    pending: Vec<Waiting>,
    /// Requests that wait for the flush at the device.
    running: Vec<Waiting>,
    /// The time since which the oldest request is pending.
    pending_since_ns: u64,
    /// The time at which the pending requests wait for no other writes any more (F6), as long as
    /// nothing else keeps their flush back.
    due_ns: u64,
    /// The newest durable point when the running flush was issued.
    in_hand: u64,
    /// The command, while it is not at the device.
    command: Option<Request>,
    /// The tag of the command.
    tag: Tag,
    is_running: bool,
    /// The command has succeeded, but its end waits for FUA writes (F8).
    is_settling: bool,
    fua: FuaWrites,
    /// The device executes a flush only alone, and the queue is held meanwhile.
    holds: bool,
    /// The policy lets requests that were queued again go before a flush.
    is_tail: bool,
    /// The flushes since another request was issued, and the issue counter as of the last flush.
    nr_in_a_row: u32,
    nr_issued: u64,
    /// In this turn other requests go first.
    lets_through: bool,
    /// This turn may leave the next flush to a thread that waits for it.
    may_leave: bool,
    /// A turn has left it; and whether no turn has followed that one.
    is_left: bool,
    is_newly_left: bool,
    /// Requests at the device that a flush will follow.
    nr_before_flush: u32,
    /// Whether completed writes may be lost, because the device has a volatile cache.
    is_needed: bool,
    /// Completions are being reaped; and the durable point of the writes that end meanwhile, or 0.
    is_reaping: bool,
    batch_point: u64,
    /// FUA writes at the device that sync the file and were given up (H5).
    nr_syncs_given_up: u32,
    /// The number of failed flushes up to which the writes at the device were marked as in doubt.
    nr_failures: u64,
}

impl FlushMachine {
    /// Creates the machine for a device with these limits and a set of `depth` tags.
    pub(super) fn new(limits: &QueueLimits, policy: &Policy, depth: u32) -> FlushMachine {
        let front = Front { len: 0, nr_segments: 0 };
        let mut command = Request::of_bio(QueuedBio::new(0, 0), front, limits, 1);
        command.steps = Steps::PRE;
        FlushMachine {
            pending: Vec::new(),
            running: Vec::new(),
            pending_since_ns: 0,
            due_ns: NO_DEADLINE,
            in_hand: 0,
            command: Some(command),
            tag: Tag::from_index(depth as usize),
            is_running: false,
            is_settling: false,
            fua: FuaWrites::default(),
            holds: policy.flush == FlushPolicy::Hold && !limits.flush_queueable,
            is_tail: policy.flush == FlushPolicy::Tail,
            nr_in_a_row: 0,
            nr_issued: 0,
            lets_through: false,
            may_leave: false,
            is_left: false,
            is_newly_left: false,
            nr_before_flush: 0,
            is_needed: limits.volatile_cache,
            is_reaping: false,
            batch_point: 0,
            nr_syncs_given_up: 0,
            nr_failures: 0,
        }
    }

    /// Returns all requests that wait in it.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.pending.iter().chain(&self.running).map(|waiting| &waiting.rq)
    }

    /// Returns whether a request waits that no command at the device will end.
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns whether a turn has just left the flush to a thread.
    pub(super) fn is_newly_left(&self) -> bool {
        self.is_newly_left
    }

    /// Returns the time at which a turn issues the flush even if nothing happens until then;
    /// [`NO_DEADLINE`] if only events let it go on.
    #[inline]
    pub(super) fn due_ns(&self) -> u64 {
        if self.is_pending() { self.due_ns } else { NO_DEADLINE }
    }

    /// Returns whether its command is at the device.
    pub(super) fn is_at_device(&self) -> bool {
        self.is_running && !self.is_settling || self.is_given_up()
    }

    /// Returns whether its command is at the device although the requests that waited for it have
    /// ended (H5).
    fn is_given_up(&self) -> bool {
        self.command.is_none() && !self.is_running
    }

    /// Returns whether a flush would prove nothing now, because a sync that was given up is still
    /// at the device. That sync may receive the error that the flush should report.
    fn is_blocked(&self) -> bool {
        self.is_given_up() || self.nr_syncs_given_up > 0
    }

    /// Counts a FUA write that syncs the file and was given up.
    pub(super) fn sync_given_up(&mut self) {
        self.nr_syncs_given_up += 1;
    }

    /// Undoes [`sync_given_up`](Self::sync_given_up) after the write has completed.
    pub(super) fn sync_is_back(&mut self) {
        self.nr_syncs_given_up -= 1;
    }

    /// Stores the command for the next flush, after it was given up and has completed.
    pub(super) fn give_back(&mut self, command: Option<Request>) {
        self.command = command;
    }

    /// Returns how many requests wait for the command that was issued last and has not ended.
    pub(super) fn nr_running(&self) -> u32 {
        self.running.len() as u32
    }

    /// Returns how many of them are done when the command completes; `None` without such a command.
    /// Returns 0 if FUA writes have to complete instead.
    pub(super) fn nr_ending(&self) -> Option<u32> {
        let is_last = |waiting: &&Waiting| {
            let steps = waiting.rq.steps;
            steps.current().is_none_or(|step| steps.after(step).is_empty())
        };
        let nr_ending = || self.running.iter().filter(is_last).count() as u32;
        self.is_running.then(|| if self.is_settling { 0 } else { nr_ending() })
    }

    /// Returns the tag of its command.
    #[inline]
    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    /// Returns whether a turn has to check the machine before it issues a request.
    #[inline]
    pub(super) fn wants_a_look(&self) -> bool {
        self.is_pending() || self.is_running
    }

    /// Returns whether completed writes may be lost, because the device has a volatile cache.
    #[inline]
    pub(super) fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// Returns whether other requests go before a pending flush in this turn (F6).
    #[inline]
    pub(super) fn is_others_turn(&self) -> bool {
        self.lets_through
    }

    /// Ends the turn of the other requests.
    pub(super) fn end_others_turn(&mut self) {
        self.lets_through = false;
    }

    /// Marks the start of a batch of completions, which the driver has handed over.
    #[inline]
    pub(super) fn begin_reaping(&mut self) {
        (self.is_reaping, self.batch_point) = (true, 0);
    }

    /// Marks the end of a batch: each of its requests has ended or continues with another step.
    #[inline]
    pub(super) fn end_reaping(&mut self) {
        self.is_reaping = false;
    }

    /// Counts a request that was issued, if a flush will follow it or it is a native FUA write.
    #[inline]
    pub(super) fn count_issued(&mut self, steps: Steps) {
        if steps == Steps::DATA.and(Steps::POST) {
            self.nr_before_flush += 1;
        } else if steps.is_native_fua() {
            self.fua.issued(steps);
        }
    }

    /// Undoes [`count_issued`](Self::count_issued) after the request has completed.
    #[inline]
    pub(super) fn count_completed(&mut self, steps: Steps) {
        if steps == Steps::DATA.and(Steps::POST) {
            self.nr_before_flush -= 1;
        } else if steps.is_native_fua() {
            self.fua.completed(steps);
        }
    }
}
