//! Gathering of tags for split bios under `wake=fair` (T14).
//!
//! Bios take tags in order of arrival. When a split bio is the oldest, it either takes each tag as
//! it is freed, or *gathers*: it waits until as many tags are free as it still needs, and then
//! takes them all. So its parts reach the device together. The arm of a rotational disk then serves
//! them one after another, and does not move away between two parts. A device without an arm gains
//! nothing, and is idle while tags are gathered. [`TagNeed`] is the setting.
//!
//! Counterpart in Linux: none that was merged. "blk-mq: provide more tags for woken-up process when
//! tag allocation is busy", 2020, and a series of 2022 on the needs of split bios have the same
//! aim for threads that wait.
//!
//! Gathered tags stay in the set: no other bio of the context takes them, because the oldest goes
//! first. So nothing has to be returned if the bio ends without being issued. Bios behind it wait
//! for at most `need` more completions than without gathering (T8). It needs at most half of the
//! depth (T10), so the missing tags always belong to requests in flight, which will free them (T1).
//!
//! If several disks share a set, the other disks take its free tags. In a set with reserved or
//! background tags, bios of these classes pass the oldest one, and could take each tag that is
//! freed while it waits for two. In both cases, and where threads wait for tags, a split bio does
//! not gather.

use crate::hctx::{HardwareContext, Turn};
use crate::limits::QueueLimits;
use crate::plant::plants;
use crate::policy::{Policy, TagNeed};
use crate::request::{Request, Splits, nr_parts_left};

/// The state of gathering in a hardware context.
#[derive(Debug)]
pub(in crate::hctx) struct Gather {
    is_on: bool,
    /// How many more tags the bio that has gathered takes without another check.
    nr_left: u32,
    /// The index of that bio in the list of split bios, once its first part was cut.
    bio: Option<u32>,
}

impl Gather {
    pub(in crate::hctx) fn new(policy: &Policy, limits: &QueueLimits) -> Gather {
        let is_wanted = match policy.tag_need {
            TagNeed::Auto => limits.rotational,
            TagNeed::One => false,
            TagNeed::Parts => true,
        };
        let is_on = is_wanted && !policy.emulation.threads_wait_for_tags();
        Gather { is_on, nr_left: 0, bio: None }
    }

    /// Turns gathering off, because other users of the tag set take free tags.
    pub(in crate::hctx) fn turn_off(&mut self) {
        *self = Gather { is_on: false, nr_left: 0, bio: None };
    }

    /// Records the index of the bio whose front was just cut.
    pub(in crate::hctx) fn note_cut(&mut self, bio: Option<u32>) {
        self.bio = bio;
    }
}

/// Whether the oldest request of the backlog may take a tag now.
pub(in crate::hctx) enum Gathered {
    /// As far as gathering is concerned, it may.
    Enough,
    /// It waits for more free tags.
    Short,
}

impl Gather {
    /// Returns how many tags must be free before a request takes one, if a bio may use at most
    /// `nr_tags` (T10). The depth may change at any time, so the result must not be stored.
    pub(in crate::hctx) fn need(
        &self,
        rq: &Request,
        splits: &Splits,
        limits: &QueueLimits,
        nr_tags: u32,
    ) -> u32 {
        if !rq.oversized || self.nr_left_of(rq) > 0 {
            return 1;
        }
        let nr_max = if plants!(NeedAll) { u32::MAX } else { (nr_tags / 2).max(1) };
        let nr = nr_parts_left(rq, splits, limits, nr_max);
        if plants!(NeedFewer) { nr.div_ceil(2) } else { nr }
    }

    fn nr_left_of(&self, rq: &Request) -> u32 {
        if rq.part_of.is_some() && rq.part_of == self.bio { self.nr_left } else { 0 }
    }
}

impl Turn<'_> {
    /// Checks whether the oldest request of the backlog, which is larger than a request may be, has
    /// to gather more tags.
    #[cold]
    pub(in crate::hctx) fn gather(&mut self) -> Gathered {
        let HardwareContext { gather, backlog, .. } = &*self.hctx;
        let Some(rq) = backlog.front().filter(|_| self.hctx.gathers()) else {
            return Gathered::Enough;
        };
        let nr_left = gather.nr_left_of(rq);
        if nr_left > 0 {
            self.hctx.gather.nr_left = nr_left - 1;
            return Gathered::Enough;
        }
        let need = self.hctx.need_of(rq);
        if self.hctx.tags.nr_free(0) < need && !plants!(SkipGather) {
            return Gathered::Short;
        }
        self.hctx.gather.nr_left = need - 1;
        Gathered::Enough
    }
}

impl HardwareContext {
    /// Returns whether split bios gather tags now. Tags of a device that is gone, of overdue
    /// requests, and of those that were given up (H5) may never come back. Where classes have tags
    /// of their own, the tags of others would come back only to be taken again by their class.
    fn gathers(&self) -> bool {
        self.gather.is_on
            && self.admission.as_ref().is_none_or(|admission| admission.may_gather())
            && !self.device.is_failed()
            && !self.timeouts.has_overdue()
            && self.timeouts.nr_given_up() == 0
    }

    fn need_of(&self, rq: &Request) -> u32 {
        self.gather.need(rq, &self.splits, &self.limits, self.tags.nr_requests())
    }

    /// Returns whether the oldest request gathers tags, and more than are free. For checkers: some
    /// tags are in use then (T10).
    pub fn gathers_more_tags(&self) -> bool {
        let oldest = self.backlog.front().filter(|_| self.gathers());
        oldest.is_some_and(|rq| self.tags.nr_free(0) < self.need_of(rq))
    }

    /// Records that other contexts take tags from the same set.
    pub fn note_shared_tags(&mut self) {
        self.gather.turn_off();
    }
}
