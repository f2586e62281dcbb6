//! Checkers of held bios: which are held, for how long, and the end of each.
//!
//! A memory address has the number of its bio, so a request shows its bios by its segments.

use super::met::{Counts, Met};
use super::program::ADDR_SHIFT;
use super::rules;
use crate::check::Broken;
use crate::check::rules as layer_rules;
use crate::trace::{Kind, Trace, code};
use forebay_core::{Bio, BioFlags, BlockStatus, HoldLimits, IssuedRequest, Op, QueuedBio};

/// A bio of the program. Its place in the list is its number.
#[derive(Debug)]
struct BioState {
    op: Op,
    start: u64,
    len: u64,
    flags: BioFlags,
    /// The bytes that were issued, those of repeats included.
    nr_issued: u64,
    has_ended: bool,
}

/// The state of the policy's user after a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding<'a> {
    /// The numbers of the held bios, oldest first.
    pub(super) held: &'a [u32],
    /// The number that the policy reports.
    pub(super) nr_of_policy: u32,
    /// Before the call: other bios that had not ended, and requests at the device.
    pub(super) outstanding: u32,
    pub(super) in_flight: u32,
}

/// The state of all checkers.
#[derive(Debug)]
pub(super) struct Checks {
    pub(super) trace: Trace,
    counts: Counts,
    limits: HoldLimits,
    late_ns: u64,
    bios: Vec<BioState>,
    /// When the oldest held bio was queued.
    held_since: Option<u64>,
    /// The newest bio without a flag that was issued.
    newest: Option<u32>,
    /// The device had no fault so far.
    is_calm: bool,
    broken: Option<Broken>,
}

impl Checks {
    pub(super) fn new(seed: u64, limits: HoldLimits, late_ns: u64) -> Checks {
        Checks {
            trace: Trace::new(seed),
            counts: Counts::default(),
            limits,
            late_ns,
            bios: Vec::new(),
            held_since: None,
            newest: None,
            is_calm: true,
            broken: None,
        }
    }

    pub(super) fn met(&mut self, met: Met) {
        self.counts.note(met);
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(super) fn take_broken(&mut self) -> Option<Broken> {
        self.broken.take()
    }

    /// Records a broken rule. The first one stays.
    #[cold]
    pub(super) fn fail(&mut self, rule: &'static str, what: String) {
        self.broken.get_or_insert_with(|| Broken::new(rule, what));
    }

    /// Records a fault of the device: from now on bios may overtake each other and fail.
    pub(super) fn fault(&mut self, met: Met) {
        self.counts.note(met);
        self.is_calm = false;
    }

    /// Checks that the held bios may stay held until `at`. `idle_since`: when the device has
    /// become idle, if it is.
    pub(super) fn pass_to(&mut self, at: u64, idle_since: Option<u64>) {
        self.trace.step += 1;
        self.trace.now = at;
        let Some(since) = self.held_since else { return };
        let age = at - since;
        if age > self.limits.time_ns.saturating_add(self.late_ns) {
            self.fail(rules::I9, format!("a bio is held for {age} ns"));
        }
        if let Some(idle_since) = idle_since
            && at > idle_since + self.late_ns
        {
            self.fail(rules::I10, format!("bios are held, and the device is idle at {idle_since}"));
        }
    }

    /// Records a new bio. Returns its number.
    pub(super) fn queue(&mut self, bio: &Bio) -> u32 {
        let number = self.bios.len() as u32;
        self.trace.note(Kind::Queue, number.into(), bio.start);
        let &Bio { op, start, len, flags, .. } = bio;
        self.bios.push(BioState { op, start, len, flags, nr_issued: 0, has_ended: false });
        number
    }

    /// Returns whether the newest bio may be held (I7).
    fn may_hold_newest(&self) -> bool {
        let [.., before, bio] = &self.bios[..] else { return false };
        let may_be_held = bio.op == Op::Read || bio.op == Op::Write && self.limits.writes;
        may_be_held
            && bio.flags == BioFlags::NONE
            && (before.op, before.start + before.len) == (bio.op, bio.start)
    }

    /// Checks the held bios after a call that has submitted the newest bio.
    pub(super) fn after_submit(&mut self, holding: Holding<'_>, now: u64) {
        let newest = self.bios.len() as u32 - 1;
        match holding.held {
            [.., last] if *last == newest => self.check_group(holding, now),
            [oldest, ..] => {
                self.fail(rules::I9, format!("bio {oldest} is held behind bio {newest}"));
            }
            [] => self.held_since = None,
        }
        self.check_policy(holding);
    }

    fn check_group(&mut self, holding: Holding<'_>, now: u64) {
        let Holding { held, outstanding, in_flight, .. } = holding;
        let limits = self.limits;
        self.counts.note(Met::Held);
        if self.bios[held[held.len() - 1] as usize].op == Op::Write {
            self.counts.note(Met::Write);
        }
        self.held_since.get_or_insert(now);
        if !self.may_hold_newest() {
            self.fail(rules::I7, format!("bio {} is held", held[held.len() - 1]));
        }
        if outstanding < limits.outstanding_min || in_flight == 0 {
            let what = format!("{outstanding} others, {in_flight} requests at the device");
            self.fail(rules::I8, what);
        }
        let nr_bytes: u64 = held.iter().map(|number| self.bios[*number as usize].len).sum();
        let nr_max = limits.bios_max.min((outstanding + 1) / limits.groups);
        if held.len() >= nr_max as usize || nr_bytes >= limits.bytes_max {
            let what = format!("{} bios of {nr_bytes} bytes are held", held.len());
            self.fail(rules::I9, what);
        }
    }

    /// Checks that nothing is held after the end of a plug.
    pub(super) fn after_plug(&mut self, holding: Holding<'_>) {
        match holding.held {
            [] => self.held_since = None,
            [oldest, ..] => self.fail(rules::I10, format!("bio {oldest} stays in a plug")),
        }
        self.check_policy(holding);
    }

    /// Records that the held bios were passed on.
    pub(super) fn after_release(&mut self, holding: Holding<'_>) {
        self.held_since = None;
        self.check_policy(holding);
    }

    fn check_policy(&mut self, holding: Holding<'_>) {
        let Holding { held, nr_of_policy, .. } = holding;
        if nr_of_policy as usize != held.len() {
            let nr = held.len();
            self.fail(rules::I10, format!("{nr} bios are held, {nr_of_policy} by the policy"));
        }
    }

    /// Checks a request that the driver accepts: its bios, and their order.
    pub(super) fn issue(&mut self, rq: &IssuedRequest<'_>) {
        self.trace.note(Kind::Issue, rq.tag.index() as u64, rq.start);
        if rq.nr_bios > 1 {
            self.counts.note(Met::Merged);
        }
        let (mut at, newest_before) = (rq.start, self.newest);
        for segment in rq.segments() {
            let number = (segment.addr >> ADDR_SHIFT) as u32 - 1;
            let offset = segment.addr as u64 & ((1 << ADDR_SHIFT) - 1);
            let Some(bio) = self.bios.get_mut(number as usize) else {
                return self.fail(layer_rules::COVERS, format!("{rq:?} has foreign memory"));
            };
            let is_first = bio.nr_issued == 0;
            bio.nr_issued += u64::from(segment.len);
            let covers = bio.op == rq.op && bio.start + offset == at && !bio.has_ended;
            let is_plain = bio.flags == BioFlags::NONE;
            at += u64::from(segment.len);
            if !covers {
                self.fail(layer_rules::COVERS, format!("bio {number} at {offset} in {rq:?}"));
            }
            if !is_first || !is_plain || !self.is_calm {
                continue;
            }
            if newest_before.is_some_and(|newest| newest > number) {
                self.fail(rules::I9, format!("bio {number} is issued after {newest_before:?}"));
            }
            self.newest = self.newest.max(Some(number));
        }
    }

    /// Checks the end of a bio.
    pub(super) fn end(&mut self, queued: &QueuedBio) {
        let (number, result) = (queued.number(), queued.result());
        self.trace.note(Kind::End, number.into(), code(result));
        let bio = &mut self.bios[number as usize];
        if std::mem::replace(&mut bio.has_ended, true) {
            return self.fail(layer_rules::ENDS_ONCE, format!("bio {number} ends again"));
        }
        let good: Result<u64, BlockStatus> = Ok(bio.len);
        if self.is_calm && (result != good || bio.op.moves_data() && bio.nr_issued != bio.len) {
            let what = format!("bio {number} ends with {result:?}: {bio:?}");
            self.fail(layer_rules::OWN_RESULT, what);
        }
    }

    /// Checks that all bios have ended.
    pub(super) fn finish(&mut self) {
        if let Some(number) = self.bios.iter().position(|bio| !bio.has_ended) {
            self.fail(layer_rules::ENDS_ONCE, format!("bio {number} does not end"));
        }
    }
}
