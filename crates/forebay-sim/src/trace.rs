//! The trace: a hash over everything that happens, and the last of it in words.

use std::collections::VecDeque;
use std::fmt;

/// How many events a violation shows.
const NR_SHOWN: usize = 60;

/// How many kinds of events there are.
pub(crate) const NR_KINDS: usize = Kind::PlaceError as usize + 1;

/// What happened. The meaning of the two numbers stands with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A task began; its number twice.
    Start,
    /// A task has ended.
    Exit,
    /// A bio was queued: box, first byte.
    Queue,
    /// A bio was refused: box, first byte.
    Refuse,
    /// The plug was emptied: level, whether something left it.
    Unplug,
    /// The token was taken: context, 0.
    Take,
    /// A run was left to the token's holder: context, 0.
    Skip,
    /// The token was given back: context, whether it was to wait.
    Release,
    /// A turn: context, requests at the driver after it.
    Turn,
    /// A command was handed to the device: tag, first byte.
    Issue,
    /// The device was busy: tag, first byte.
    Busy,
    /// The device refused a command: tag, first byte.
    Fail,
    /// Commands began: context, how many.
    Commit,
    /// A command is done: tag, bytes or a status.
    Done,
    /// A completion was handed over: tag, bytes or a status.
    Complete,
    /// A bio ended: box, bytes or a status.
    End,
    /// Bios were delivered: owner, how many.
    Deliver,
    /// Somebody leads: context, 0.
    Lead,
    /// Somebody follows: context, 0.
    Follow,
    /// The baton was passed: context, to whom.
    Baton,
    /// A waiting leader was kicked: context, 0.
    Kick,
    /// A task waits in the driver: context, for how many completions.
    Wait,
    /// A task was woken: whom.
    Wake,
    /// Tags of the budget were taken: how many, after how many waits.
    Charge,
    /// Tags of the budget were put: how many.
    Refund,
    /// Bios of a task begin to lack tags, or do not any more: whose, 1 or 0.
    Lack,
    /// A task is to be woken for tags of its context: whom, whether it slept.
    TagWake,
    /// A turn tries for the line of a task: context, whose.
    Ask,
    /// How many tags may be in use is changed: context, how many.
    Resize,
    /// A gate was closed: context.
    Close,
    /// A gate was opened: context.
    Open,
    /// The device was said to be back.
    Revive,
    /// A loss was acknowledged: after this durable point, up to that one.
    Acknowledge,
    /// The write-back of a file has failed: block, 0.
    WriteBackError,
    /// Another program synced the file: 0, 0.
    SyncElsewhere,
    /// A sync found an error of the file: context, 0.
    SyncError,
    /// A check of the place found an error that no description may report: task, 0.
    PlaceError,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    step: u64,
    now: u64,
    task: usize,
    kind: Kind,
    a: u64,
    b: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { step, now, task, kind, a, b } = self;
        match *task {
            DEVICE => write!(f, "step {step}, {now} ns, device: {kind:?} {a} {b}"),
            task => write!(f, "step {step}, {now} ns, task {task}: {kind:?} {a} {b}"),
        }
    }
}

/// The task of an event that is the device's.
pub(crate) const DEVICE: usize = usize::MAX;

/// The trace of one run.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    last: VecDeque<Event>,
    /// Where time and task stand; set by the scheduler.
    pub(crate) step: u64,
    pub(crate) now: u64,
    pub(crate) task: usize,
    /// How many events of each kind there were.
    pub(crate) counts: [u64; NR_KINDS],
}

impl Trace {
    pub(crate) fn new(seed: u64) -> Trace {
        let last = VecDeque::with_capacity(NR_SHOWN);
        Trace { hash: mix(0, seed), last, step: 0, now: 0, task: DEVICE, counts: [0; NR_KINDS] }
    }

    #[inline]
    pub(crate) fn note(&mut self, kind: Kind, a: u64, b: u64) {
        self.note_of(self.task, kind, a, b);
    }

    #[inline]
    pub(crate) fn note_of(&mut self, task: usize, kind: Kind, a: u64, b: u64) {
        let head = (kind as u64) << 32 ^ task as u64 & 0xffff_ffff;
        self.hash = mix(mix(mix(mix(self.hash, head), a), b), self.now);
        self.counts[kind as usize] += 1;
        if self.last.len() == NR_SHOWN {
            self.last.pop_front();
        }
        self.last.push_back(Event { step: self.step, now: self.now, task, kind, a, b });
    }

    pub(crate) fn hash(&self) -> u64 {
        mix(self.hash, self.step)
    }

    pub(crate) fn last(&self) -> Vec<String> {
        self.last.iter().map(Event::to_string).collect()
    }
}

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// A result as one number, for events.
pub(crate) fn code(result: Result<u64, forebay_core::BlockStatus>) -> u64 {
    result.unwrap_or_else(|status| u64::MAX - status as u64)
}
