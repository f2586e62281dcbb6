//! Kinds of events that random loads must meet.

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// A bio is held.
    Held,
    /// A request has several bios.
    Merged,
    /// The last bio of a group passes it on.
    Full,
    /// A bio that may not wait passes the held ones on.
    LastOne,
    /// A bio that does not continue the stream passes the held ones on.
    Elsewhere,
    /// A flush does.
    Flush,
    /// The deadline passes bios on.
    Deadline,
    /// A completion that leaves nothing at the device does.
    Idle,
    /// The end of a plug does.
    Plug,
    /// A wait that needs them does.
    Wait,
    /// A program pauses while bios are held.
    Pause,
    /// A write is held.
    Write,
    /// A request has failed or was short.
    Fault,
    /// The driver was busy.
    Busy,
}

/// All kinds, with their names, in order.
pub(super) const NAMES: [(Met, &str); 14] = [
    (Met::Held, "held"),
    (Met::Merged, "merged"),
    (Met::Full, "passed on: full"),
    (Met::LastOne, "passed on: may not wait"),
    (Met::Elsewhere, "passed on: elsewhere"),
    (Met::Flush, "passed on: flush"),
    (Met::Deadline, "passed on: deadline"),
    (Met::Idle, "passed on: idle"),
    (Met::Plug, "passed on: plug"),
    (Met::Wait, "passed on: wait"),
    (Met::Pause, "pause"),
    (Met::Write, "write"),
    (Met::Fault, "fault"),
    (Met::Busy, "busy"),
];

/// How often each kind of event happened.
#[derive(Debug, Default)]
pub(super) struct Counts([u64; NAMES.len()]);

impl Counts {
    pub(super) fn note(&mut self, met: Met) {
        self.0[met as usize] += 1;
    }

    /// Returns how often this kind of event happened.
    pub(super) fn of(&self, met: Met) -> u64 {
        self.0[met as usize]
    }

    pub(super) fn list(&self) -> Vec<(&'static str, u64)> {
        NAMES.iter().map(|(met, name)| (*name, self.0[*met as usize])).collect()
    }
}
