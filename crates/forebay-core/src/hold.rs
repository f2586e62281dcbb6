//! Adaptive hold: a plug that stays open between calls, for programs that submit bios one by one.
//!
//! Such a program opens no plug, so its bios never meet a neighbour. A program that keeps many
//! sequential reads outstanding will submit the next one soon, and is not waiting for any single
//! one. So a bio that continues its stream waits in the plug for the next one, while the device is
//! busy with earlier ones. [`Hold`] decides; its user has the plug, and passes the held bios on.
//!
//! - I7 A bio continues the stream if the one before it had the same operation and ended where it
//!   starts, and if it carries no flag, all of which forbid a delay or a merge. Only reads are
//!   held, unless [`HoldLimits::writes`] is set: a write that is held is lost if its program is
//!   killed.
//! - I8 A bio is held only if it continues the stream, [`HoldLimits::outstanding_min`] others have
//!   not ended, and a request is at the device. The first shows that the program reads ahead. The
//!   second is a completion that will release it, so nothing is held while the device is idle.
//! - I9 Held bios are passed on before a bio that does not continue the stream; with a bio that
//!   does and is not held itself; and when they reach a number, a size or an age of
//!   [`HoldLimits`].
//! - I10 The user passes them on at every completion of the disk, before its thread waits with
//!   nothing at the device, before a flush, and at the end of a plug. It then calls
//!   [`Hold::release`].

use crate::bio::{Bio, BioFlags, Op};

/// Bounds of the adaptive hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    /// The fewest other bios of the submitter that have not ended.
    pub outstanding_min: u32,
    /// The most bios held at once. They are passed on with the last one.
    pub bios_max: u32,
    /// The most bytes held at once. A bio that exceeds them is passed on with those before it.
    pub bytes_max: u64,
    /// The longest time that a bio is held, in nanoseconds.
    pub time_ns: u64,
    /// Also hold writes.
    pub writes: bool,
}

impl Default for HoldLimits {
    /// At least 4 outstanding; at most 16 bios, 1 MiB and 200 us; only reads.
    fn default() -> HoldLimits {
        let (bytes_max, time_ns) = (1 << 20, 200_000);
        HoldLimits { outstanding_min: 4, bios_max: 16, bytes_max, time_ns, writes: false }
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
            && bio.flags.without(BioFlags::OWNED) == BioFlags::NONE
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
            return HoldStep { release_before: is_any_held, hold: false, release_after: false };
        }
        let may_wait = outstanding >= self.limits.outstanding_min && in_flight > 0;
        if !may_wait && !is_any_held {
            return HoldStep { release_before: false, hold: false, release_after: false };
        }
        if !is_any_held {
            self.since_ns = now_ns;
        }
        self.nr_held += 1;
        self.nr_bytes += bio.len;
        let is_full =
            self.nr_held >= self.limits.bios_max || self.nr_bytes >= self.limits.bytes_max;
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
mod tests {
    use super::*;
    use crate::bio::Segment;

    const PAST: HoldStep = HoldStep { release_before: false, hold: false, release_after: false };
    const HOLD: HoldStep = HoldStep { hold: true, ..PAST };
    const LAST: HoldStep = HoldStep { release_after: true, ..HOLD };
    const BREAK: HoldStep = HoldStep { release_before: true, ..PAST };

    fn read(block: u64) -> Bio {
        Bio::data(Op::Read, block * 4096, Segment { addr: 0, len: 4096 })
    }

    /// Returns a hold whose stream ends before block 1.
    fn started() -> Hold {
        let mut hold = Hold::new(HoldLimits::default());
        assert_eq!(hold.next(&read(0), 9, 9, 0), PAST, "the first bio of a stream is not held");
        hold
    }

    #[test]
    fn stream_is_passed_on_in_groups_of_sixteen() {
        let mut hold = started();
        for group in 0..3 {
            for nth in 0..16 {
                let step = hold.next(&read(1 + group * 16 + nth), 100, 1, 0);
                assert_eq!(step, if nth == 15 { LAST } else { HOLD });
                assert_eq!(u64::from(hold.nr_held()), (nth + 1) % 16);
            }
        }
    }

    #[test]
    fn few_outstanding_bios_or_an_idle_device_hold_nothing() {
        let mut hold = started();
        assert_eq!(hold.next(&read(1), 3, 1, 0), PAST);
        assert_eq!(hold.next(&read(2), 4, 0, 0), PAST);
        assert_eq!((hold.nr_held(), hold.deadline()), (0, None));
        assert_eq!(hold.next(&read(3), 4, 1, 0), HOLD);
        // A bio that may not wait takes the held ones with it.
        assert_eq!(hold.next(&read(4), 4, 0, 0), LAST);
        assert_eq!(hold.next(&read(5), 4, 1, 0), HOLD);
        assert_eq!(hold.next(&read(6), 3, 1, 0), LAST);
    }

    #[test]
    fn bio_elsewhere_passes_the_held_ones_on_and_starts_a_stream() {
        let mut hold = started();
        assert_eq!(hold.next(&read(1), 9, 1, 0), HOLD);
        assert_eq!(hold.next(&read(50), 9, 1, 0), BREAK);
        assert_eq!(hold.next(&read(51), 9, 1, 0), HOLD);
        assert_eq!(hold.next(&read(51), 9, 1, 0), BREAK, "it overlaps the one before");
        assert_eq!(hold.next(&read(3), 9, 1, 0), PAST);
    }

    #[test]
    fn writes_and_flags_end_the_stream() {
        let write = |block| Bio { op: Op::Write, ..read(block) };
        let mut hold = started();
        assert_eq!(hold.next(&read(1), 9, 1, 0), HOLD);
        assert_eq!(hold.next(&write(2), 9, 1, 0), BREAK);
        assert_eq!(hold.next(&write(3), 9, 1, 0), PAST);
        assert_eq!(hold.next(&read(4), 9, 1, 0), PAST, "the bio before it is a write");
        assert_eq!(hold.next(&read(5), 9, 1, 0), HOLD);
        let flagged = Bio { flags: BioFlags::NOMERGE, ..read(6) };
        assert_eq!(hold.next(&flagged, 9, 1, 0), BREAK);
        assert_eq!(hold.next(&Bio::flush(), 9, 1, 0), PAST);
        let mut hold = Hold::new(HoldLimits { writes: true, ..HoldLimits::default() });
        assert_eq!(hold.next(&write(0), 9, 1, 0), PAST);
        assert_eq!(hold.next(&write(1), 9, 1, 0), HOLD);
        assert_eq!(hold.next(&read(2), 9, 1, 0), BREAK);
    }

    #[test]
    fn size_and_age_are_bounded() {
        let mut hold = started();
        assert_eq!(hold.next(&read(1), 9, 1, 1000), HOLD);
        assert_eq!(hold.deadline(), Some(201_000));
        assert_eq!(hold.next(&read(2), 9, 1, 200_999), HOLD);
        assert_eq!(hold.next(&read(3), 9, 1, 201_000), LAST);
        assert_eq!(hold.deadline(), None);
        assert_eq!(hold.next(&read(4), 9, 1, 202_000), HOLD);
        hold.release();
        assert_eq!(hold.next(&read(5), 9, 1, 500_000), HOLD);
        assert_eq!(hold.deadline(), Some(700_000));
        let long = Bio::range(Op::Read, 6 * 4096, 1 << 20);
        assert_eq!(hold.next(&long, 9, 1, 500_000), LAST);
        let end = Bio::range(Op::Read, u64::MAX, 4096);
        assert_eq!(hold.next(&end, 9, 1, 0), PAST);
    }
}
