//! The trace: a hash over all events, and the last events as text.

use std::fmt;

/// How many events a violation shows; a power of two.
const NR_SHOWN: usize = 64;

/// The number of kinds of events.
pub(crate) const NR_KINDS: usize = Kind::Owner as usize + 1;

/// The kind of an event. Each variant documents the meaning of the two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A task began; its number twice.
    Start,
    /// A task ended.
    Exit,
    /// A bio was queued: box, first byte.
    Queue,
    /// A bio was refused: box, first byte.
    Refuse,
    /// The plug was emptied: level, whether any request left it.
    Unplug,
    /// The token was taken: context, 0.
    Take,
    /// A run was left to the token's holder: context, 0.
    Skip,
    /// The token was given back: context, whether the task was to wait.
    Release,
    /// A turn: context, requests at the driver after it.
    Turn,
    /// A command was issued to the device: tag, first byte.
    Issue,
    /// The device was busy: tag, first byte.
    Busy,
    /// The device refused a command: tag, first byte.
    Fail,
    /// Commands were committed: context, number.
    Commit,
    /// A command completed: tag, bytes or a status.
    Done,
    /// A completion was reaped: tag, bytes or a status.
    Complete,
    /// A bio ended: box, bytes or a status.
    End,
    /// Bios were delivered: owner, number.
    Deliver,
    /// A task became leader: context, 0.
    Lead,
    /// A task became follower: context, 0.
    Follow,
    /// The baton was passed: context, receiving task.
    Baton,
    /// A waiting leader was kicked: context, 0.
    Kick,
    /// A task waits in the driver: context, number of completions.
    Wait,
    /// A task was woken: the task.
    Wake,
    /// Tags of the budget were taken: number, number of waits before.
    Charge,
    /// Tags of the budget were freed: number.
    Refund,
    /// Bios of a task begin to lack tags, or no longer do: task, 1 or 0.
    Lack,
    /// A task is to be woken for tags of its context: task, whether it slept.
    TagWake,
    /// A turn tries for the line of a task: context, task.
    Ask,
    /// The limit of tags in use was changed: context, limit.
    Resize,
    /// The scheduler was changed: context, device depth, or 0 without one.
    Scheduler,
    /// A gate was closed: context.
    Close,
    /// A gate was opened: context.
    Open,
    /// A freeze failed, because another gate strands a request: that gate.
    Strand,
    /// The device was declared available again.
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
    /// The worker of `run_queue=always` runs the shared context: 0, 0.
    Work,
    /// A fault rule changes a command: tag, first byte.
    Inject,
    /// A task makes a command itself: context, tag.
    OwnCall,
    /// The driver begins a command that was left to a task: context, tag.
    Withdraw,
    /// An owner was changed, added or removed: its number, 0.
    Owner,
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

impl Event {
    /// The place of an event that has not happened.
    const NONE: Event = Event { step: 0, now: 0, task: DEVICE, kind: Kind::Start, a: 0, b: 0 };
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

/// The task of an event of the device.
pub(crate) const DEVICE: usize = usize::MAX;

/// The trace of one run.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    /// The last events. The event number `n` of the run is at `n % NR_SHOWN`.
    last: Box<[Event; NR_SHOWN]>,
    nr_events: usize,
    /// The present step, time and task; set by `World::checks`.
    pub(crate) step: u64,
    pub(crate) now: u64,
    pub(crate) task: usize,
    /// The number of events of each kind.
    pub(crate) counts: [u64; NR_KINDS],
}

impl Trace {
    pub(crate) fn new(seed: u64) -> Trace {
        Trace {
            hash: mix(0, seed),
            last: Box::new([Event::NONE; NR_SHOWN]),
            nr_events: 0,
            step: 0,
            now: 0,
            task: DEVICE,
            counts: [0; NR_KINDS],
        }
    }

    /// Removes all events, and keeps the allocated memory.
    pub(crate) fn reset(&mut self) {
        self.hash = 0;
        self.nr_events = 0;
        (self.step, self.now, self.task) = (0, 0, DEVICE);
        self.counts = [0; NR_KINDS];
    }

    #[inline]
    pub(crate) fn note(&mut self, kind: Kind, a: u64, b: u64) {
        self.note_of(self.task, kind, a, b);
    }

    #[inline]
    pub(crate) fn note_of(&mut self, task: usize, kind: Kind, a: u64, b: u64) {
        // Each half has its own bits of a word, unless a number is unusually large.
        let head = (kind as u64) << 56 ^ (task as u64 & 0xffff) << 40;
        self.hash = mix(mix(self.hash, head ^ a), self.now ^ b.rotate_left(40));
        self.counts[kind as usize] += 1;
        let event = Event { step: self.step, now: self.now, task, kind, a, b };
        self.last[self.nr_events % NR_SHOWN] = event;
        self.nr_events += 1;
    }

    pub(crate) fn hash(&self) -> u64 {
        mix(self.hash, self.step)
    }

    pub(crate) fn last(&self) -> Vec<String> {
        let first = self.nr_events.saturating_sub(NR_SHOWN);
        (first..self.nr_events).map(|nth| self.last[nth % NR_SHOWN].to_string()).collect()
    }
}

/// Adds a word to a hash.
#[inline]
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Encodes a result as one number, for events.
pub(crate) fn code(result: Result<u64, forebay_core::BlockStatus>) -> u64 {
    result.unwrap_or_else(|status| u64::MAX - status as u64)
}
