//! Adaptive hold: a plug that stays open between calls, for programs that submit bios one by one.
//!
//! Such a program opens no plug, so its bios never meet a neighbour. A program that keeps many
//! sequential reads outstanding will submit the next one soon, and is not waiting for any single
//! one. So a bio that continues its stream waits in the plug for the next one, while the device is
//! busy with earlier ones. [`Hold`] decides; its user has the plug, and passes the held bios on.
//!
//! - I7 A bio continues the stream if the previous bio had the same operation and ended where
//!   this one starts, and if it has no flag except OWNED. The other flags forbid a delay or a
//!   merge. Only reads are held, unless [`HoldLimits::writes`] is set: a write that is held is lost
//!   if its program is killed.
//! - I8 A bio is held only if it continues the stream, [`HoldLimits::outstanding_min`] others have
//!   not ended, and a request is at the device. The first shows that the program reads ahead. The
//!   second is a completion that will release it, so nothing is held while the device is idle.
//! - I9 Held bios are passed on (a) before a bio that does not continue the stream; (b) with one
//!   that does but may not wait (I8); (c) when they reach [`HoldLimits::bytes_max`] or
//!   [`HoldLimits::time_ns`]; (d) when their number is [`HoldLimits::bios_max`], or the part of the
//!   outstanding bios that [`HoldLimits::groups`] gives. If that part is one bio, nothing is held.
//!   So the device still has several requests at once.
//! - I10 The user passes them on when a completion leaves nothing at the device, before its thread
//!   waits for more bios than are at the device, before a flush, and at the end of a plug. It then
//!   calls [`Hold::release`].

use crate::bio::{Bio, BioFlags, Op};
use crate::plant::plants;

/// Bounds of the adaptive hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// The fewest other bios of the submitter that have not ended.
    pub outstanding_min: u32,
    /// The most bios held at once. They are passed on with the last one.
    pub bios_max: u32,
    /// A group has at most `1 / groups` of the outstanding bios.
    pub groups: u32,
    /// The most bytes held at once. A bio that exceeds them is passed on with those before it.
    pub bytes_max: u64,
    /// The longest time that a bio is held, in nanoseconds.
    pub time_ns: u64,
    /// Also hold writes.
    pub writes: bool,
}

impl Default for HoldLimits {
    /// At least 4 outstanding; at most 16 bios, an eighth of the outstanding ones, 1 MiB and
    /// 200 us; only reads.
    fn default() -> HoldLimits {
        HoldLimits {
            outstanding_min: 4,
            bios_max: 16,
            groups: 8,
            bytes_max: 1 << 20,
            time_ns: 200_000,
            writes: false,
        }
    }
}

/// The steps for a bio, in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldStep {
    /// Pass the held bios on first.
    pub release_before: bool,
    /// Add the bio to the plug. Otherwise it goes past it.
    pub hold: bool,
    /// Pass the held bios on, and this one with them.
    pub release_after: bool,
}

/// The hold of one submitter on one disk.
#[derive(Debug)]
pub struct Hold {
    limits: HoldLimits,
    /// The operation and the end of the bio before.
    last: Option<(Op, u64)>,
    nr_held: u32,
    nr_bytes: u64,
    /// When the first of the held bios came.
    since_ns: u64,
}

impl Hold {
    /// Creates a hold without bios.
    pub const fn new(limits: HoldLimits) -> Hold {
        Hold { limits, last: None, nr_held: 0, nr_bytes: 0, since_ns: 0 }
    }

    /// Returns whether a bio continues the stream of those before it (I7). If not, the answer of
    /// [`Hold::next`] is that the bio goes past the plug.
    pub fn continues(&self, bio: &Bio) -> bool {
        let is_held = bio.op == Op::Read || bio.op == Op::Write && self.limits.writes;
        is_held
            && (bio.flags.without(BioFlags::OWNED) == BioFlags::NONE || plants!(HoldFlagged))
            && self.last == Some((bio.op, bio.start))
    }

    /// Decides about a bio before it is queued.
    ///
    /// `outstanding` is the number of other bios of this submitter on this disk that have not
    /// ended, held ones included. `in_flight` is the number of requests at the device. `now_ns` is
    /// a time in nanoseconds of any monotonic clock.
    pub fn next(&mut self, bio: &Bio, outstanding: u32, in_flight: u32, now_ns: u64) -> HoldStep {
        let continues = self.continues(bio);
        self.last = Some((bio.op, bio.start.saturating_add(bio.len)));
        let is_any_held = self.nr_held > 0;
        if !continues {
            self.release();
            let release_before = is_any_held && !plants!(OvertakeHeld);
            return HoldStep { release_before, hold: false, release_after: false };
        }
        let part = outstanding.saturating_add(1) / self.limits.groups.max(1);
        let bios_max = self.limits.bios_max.min(part);
        let has_others = outstanding >= self.limits.outstanding_min || plants!(HoldFew);
        let is_busy = in_flight > 0 || plants!(HoldIdle);
        let may_wait = has_others && is_busy && bios_max > 1;
        if !may_wait && !is_any_held {
            return HoldStep { release_before: false, hold: false, release_after: false };
        }
        if !is_any_held || plants!(RenewAge) {
            self.since_ns = now_ns;
        }
        self.nr_held += 1;
        self.nr_bytes += bio.len;
        let extra = u32::from(plants!(HoldOneMore));
        let is_full = self.nr_held >= bios_max + extra || self.nr_bytes >= self.limits.bytes_max;
        let is_due = self.deadline().is_some_and(|deadline| now_ns >= deadline);
        let release_after = !may_wait || is_full || is_due;
        if release_after {
            self.release();
        }
        HoldStep { release_before: false, hold: true, release_after }
    }

    /// Records that the held bios were passed on.
    pub fn release(&mut self) {
        (self.nr_held, self.nr_bytes) = (0, 0);
    }

    /// Returns the number of held bios.
    pub const fn nr_held(&self) -> u32 {
        self.nr_held
    }

    /// Returns the latest time at which the held bios are passed on. `None` if there is none.
    pub const fn deadline(&self) -> Option<u64> {
        match self.nr_held {
            0 => None,
            _ => Some(self.since_ns.saturating_add(self.limits.time_ns)),
        }
    }
}

#[cfg(test)]
mod tests;
