//! The flush machine of a hardware context: flushes join, and one is at the device at a time.
//!
//! Counterpart in Linux: `struct blk_flush_queue` (`block/blk-flush.c`), one for each hardware
//! queue since 3.18. A request takes up to three steps ([`steps`]). One whose step is a flush waits
//! here, without a tag, and the device is given a command that is the machine's own, under a tag
//! beyond those of the set: so a flush never waits for tags, and who waits for it takes none from
//! others.
//!
//! - F1 at most one flush of the machine is at the device.
//! - F2 it ends those that were waiting when it was issued (*pending* becomes *running*): what had
//!   ended when they came had completed before. Who comes later is pending again, for the next
//!   one; except that who wants no more than the running one was issued for joins it
//!   ([`Durability`](crate::Durability)).
//! - F3 if it fails, exactly those that run fail; and whoever wants what is lost.
//! - F4 a PREFLUSH orders its data after what had ended when it came, and nothing else.
//! - F5 while one runs on a device that takes it only by itself, the policy says what happens to
//!   other requests. They are held for as long as there is a running list, so its end releases
//!   them: there is no second note that could be forgotten.
//! - F6 pending flushes wait for writes at the device that will need one as well, but no longer
//!   than `flush_pending_ns`; and they do not keep all others from the device, however many come
//!   ([`NR_IN_A_ROW`]).
//! - F7 a bio ends once: with the last step of its request.
//! - F8 where a FUA write is a sync of the file, one that fails is a failed flush, and a flush that
//!   was at the device with it ends after it ([`fua`]).

mod fua;
mod steps;
mod turn;

use crate::durability::Wanted;
use crate::limits::QueueLimits;
use crate::policy::{FlushPolicy, Policy};
use crate::queued::QueuedBio;
use crate::request::Request;
use crate::split::Front;
use crate::tag::Tag;
use alloc::vec::Vec;
use fua::FuaWrites;

pub(crate) use steps::Steps;
pub(crate) use turn::needs_point;

/// So many flushes go one after another before what waits behind them. (A device that takes them
/// only by itself would serve nothing else, if some thread did nothing but flush.)
pub(crate) const NR_IN_A_ROW: u32 = 4;

/// A request whose step is a flush.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) rq: Request,
    wanted: Wanted,
    /// How many losses there were when it came.
    nr_losses: u64,
}

/// The machine.
#[derive(Debug)]
pub(crate) struct FlushMachine {
    /// For the next flush.
    pending: Vec<Waiting>,
    /// For the one that is at the device.
    running: Vec<Waiting>,
    /// Since when the oldest is pending.
    pending_since_ns: u64,
    /// The newest point when the running flush was issued.
    in_hand: u64,
    /// The command, while it is not at the device.
    command: Option<Request>,
    /// The tag of the command.
    tag: Tag,
    is_running: bool,
    /// The command has succeeded, and its end waits for FUA writes (F8).
    is_settling: bool,
    fua: FuaWrites,
    /// The device takes a flush only by itself, and the queue is held meanwhile.
    holds: bool,
    /// The policy lets requests that were queued again go before a flush.
    is_tail: bool,
    /// Flushes since something else was issued; and how much had been issued with the last.
    nr_in_a_row: u32,
    nr_issued: u64,
    /// In this turn something else goes first.
    pub(crate) lets_through: bool,
    /// The oldest of the backlog has no data to be issued now.
    pub(crate) is_next: bool,
    /// Commands at the device that a flush will follow.
    nr_before_flush: u32,
    /// Whether writes that have ended may be lost.
    pub(crate) is_needed: bool,
    /// Completions are being taken; and the point of the writes that end meanwhile, if any has.
    is_reaping: bool,
    batch_point: u64,
    /// The failures of flushes that the writes at the device know of.
    nr_failures: u64,
}

impl FlushMachine {
    /// For a device of these limits, and a set of `depth` tags.
    pub(crate) fn new(limits: &QueueLimits, policy: &Policy, depth: u32) -> FlushMachine {
        let front = Front { len: 0, nr_segments: 0 };
        let mut command = Request::of_bio(QueuedBio::new(0, 0), front, limits, 1);
        command.steps = Steps::PRE;
        FlushMachine {
            pending: Vec::new(),
            running: Vec::new(),
            pending_since_ns: 0,
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
            is_next: false,
            nr_before_flush: 0,
            is_needed: limits.volatile_cache,
            is_reaping: false,
            batch_point: 0,
            nr_failures: 0,
        }
    }

    /// All that wait in it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.pending.iter().chain(&self.running).map(|waiting| &waiting.rq)
    }

    /// Whether something waits that no command at the device will end.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether its command is at the device.
    pub(crate) fn is_at_device(&self) -> bool {
        self.is_running && !self.is_settling
    }

    /// How many requests wait for the command that was issued last, and has not ended.
    pub(crate) fn nr_running(&self) -> u32 {
        self.running.len() as u32
    }

    /// How many of them are done when the command completes; `None` without such a command. Zero if
    /// FUA writes have to complete instead.
    pub(crate) fn nr_ending(&self) -> Option<u32> {
        let is_last = |waiting: &&Waiting| {
            let steps = waiting.rq.steps;
            steps.current().is_none_or(|step| steps.after(step).is_empty())
        };
        let nr_ending = || self.running.iter().filter(is_last).count() as u32;
        self.is_running.then(|| if self.is_settling { 0 } else { nr_ending() })
    }

    /// The tag of its command.
    #[inline]
    pub(crate) fn tag(&self) -> Tag {
        self.tag
    }

    /// Whether a turn has to look at it before it issues something.
    #[inline]
    pub(crate) fn wants_a_look(&self) -> bool {
        self.is_pending() || self.is_running
    }

    /// What the driver has handed over is about to end.
    #[inline]
    pub(crate) fn begin_reaping(&mut self) {
        (self.is_reaping, self.batch_point) = (true, 0);
    }

    /// All of it has ended, or goes on.
    #[inline]
    pub(crate) fn end_reaping(&mut self) {
        self.is_reaping = false;
    }

    /// Counts a request that was issued, if a flush will follow it or it is durable by itself.
    #[inline]
    pub(crate) fn count_issued(&mut self, steps: Steps) {
        if steps == Steps::DATA.and(Steps::POST) {
            self.nr_before_flush += 1;
        } else if steps.is_native_fua() {
            self.fua.issued(steps);
        }
    }

    /// Takes back what [`count_issued`](Self::count_issued) has counted: the request has completed.
    #[inline]
    pub(crate) fn count_completed(&mut self, steps: Steps) {
        if steps == Steps::DATA.and(Steps::POST) {
            self.nr_before_flush -= 1;
        } else if steps.is_native_fua() {
            self.fua.completed(steps);
        }
    }
}
