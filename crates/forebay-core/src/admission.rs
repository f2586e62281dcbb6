//! How requests come into a hardware context, and wait there for tags.
//!
//! Under `wake=fair` bios wait, in the backlog, in the order of their arrival, and are given tags
//! without anybody being woken for it. Under the other policies threads wait ([`crate::lines`]).
//! Bios of a class that may not have every tag wait in [`crate::classes`]. Where no policy asks for
//! either there is no [`Admission`], and one look at that is all it costs.

use crate::bio::BioFlags;
use crate::classes::Classes;
use crate::ctx::SoftwareQueue;
use crate::hctx::{HardwareContext, Turn};
use crate::lines::Lines;
use crate::policy::Policy;
use crate::queued::QueuedBio;
use crate::request::Request;
use crate::tag::{Tag, WaitId};
use alloc::boxed::Box;

/// What waits for tags elsewhere than in the backlog.
#[derive(Debug)]
pub(crate) struct Admission {
    classes: Classes,
    /// None where bios wait.
    lines: Option<Lines>,
}

/// What became of a request that was to have a tag.
pub(crate) enum Admitted {
    /// It has this one; and whether it had to wait for it in a line.
    Tag(Tag, bool),
    /// There is none. It stays where it is.
    NoTag,
    /// It may have none, and has made way for others.
    WaitsElsewhere,
}

impl Admission {
    /// For `nr_requests` tags that may be in use of `depth`; none if the policy needs none.
    pub(crate) fn new(policy: &Policy, depth: u32, nr_requests: u32) -> Option<Box<Admission>> {
        let nr_reserved = policy.nr_reserved.min(nr_requests - 1);
        let lines = Lines::new(policy.wake, nr_requests - nr_reserved);
        let is_needed = lines.is_some() || policy.nr_reserved > 0 || policy.async_depth < depth;
        let classes = Classes::new(nr_reserved, policy.async_depth.max(1));
        is_needed.then(|| Box::new(Admission { classes, lines }))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.classes.is_empty() && self.lines.as_ref().is_none_or(Lines::is_empty)
    }

    /// All requests in it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.classes.iter().chain(self.lines.iter().flat_map(Lines::iter))
    }
}

impl HardwareContext {
    /// Takes a request in. It stays outside where `enter` is false, or others do.
    #[inline]
    pub fn accept(&mut self, rq: Request, enter: bool) {
        if rq.is_nowait() {
            self.nowait.push_back(rq);
        } else if enter && self.outside.is_empty() {
            self.let_in(rq);
        } else {
            self.outside.push_back(rq);
        }
    }

    /// Takes a request in that is to wait for its tag.
    #[inline]
    pub(crate) fn let_in(&mut self, rq: Request) {
        let Some(admission) = &mut self.admission else { return self.backlog.push_back(rq) };
        let Some(rq) = admission.classes.keep_reserved(rq) else { return };
        match &mut admission.lines {
            None => self.backlog.push_back(rq),
            Some(lines) => lines.push(rq, &self.splits),
        }
    }

    /// Takes in all that is outgoing from a software queue, as [`accept`](Self::accept) does one by
    /// one.
    #[inline]
    pub fn accept_from(&mut self, ctx: &mut SoftwareQueue, enter: bool) {
        let is_empty = self.outside.is_empty() && self.backlog.is_empty();
        if enter && is_empty && !ctx.has_nowait() && self.admission.is_none() {
            ctx.move_outgoing(&mut self.backlog);
        } else {
            ctx.outgoing().for_each(|rq| self.accept(rq, enter));
        }
    }

    /// Takes in a list of bios that came from another thread.
    pub fn accept_bios(&mut self, first: Box<QueuedBio>, enter: bool) {
        self.accept(Request::of_bios(first), enter);
    }

    /// Whether a request waits that goes before a new one.
    pub(crate) fn has_elder(&self, rq: &Request) -> bool {
        if let Some(Admission { classes, .. }) = self.admission.as_deref()
            && classes.may_reserve(rq.flags)
        {
            return classes.has_reserved();
        }
        // Background bios wait for their own kind, and hold up nobody.
        !self.backlog.is_empty() || self.lines().is_some_and(|lines| !lines.is_empty())
    }

    /// Gives back the tag of a request of these flags.
    #[inline]
    pub(crate) fn put_tag(&mut self, tag: Tag, flags: BioFlags) {
        self.tags.put(tag);
        if let Some(admission) = &mut self.admission {
            admission.classes.note_put(flags);
        }
    }

    /// How many tags a request of these flags may have now.
    pub(crate) fn nr_free_tags_of(&self, flags: BioFlags) -> u32 {
        match &self.admission {
            None => self.tags.nr_free(0),
            Some(admission) => admission.classes.nr_free(&self.tags, flags),
        }
    }

    fn lines(&self) -> Option<&Lines> {
        self.admission.as_ref()?.lines.as_ref()
    }

    fn lines_mut(&mut self) -> Option<&mut Lines> {
        self.admission.as_mut()?.lines.as_mut()
    }

    /// The thread of `id` (the owner of its bios) is running, and asks for tags again: for what it
    /// has left in its line. A turn is due.
    pub fn awake(&mut self, id: WaitId) {
        if let Some(lines) = self.lines_mut() {
            lines.awake(id);
        }
    }

    /// Whether bios of this owner wait in the line of their thread, which sleeps until it is woken
    /// for them. Never under `wake=fair`.
    pub fn lacks_tags(&self, id: WaitId) -> bool {
        self.lines().is_some_and(|lines| lines.has(id))
    }

    /// Whether threads wait for tags, and not their bios.
    #[inline]
    pub fn has_lines(&self) -> bool {
        self.lines().is_some()
    }

    /// Hands out the owners that have begun to lack tags (true), or do not any more, since this was
    /// last asked, in order.
    pub fn take_changes(&mut self, out: &mut impl FnMut(WaitId, bool)) {
        if let Some(lines) = self.lines_mut() {
            lines.take_changes(out);
        }
    }

    /// Hands out the owners whose threads are to be woken for tags, as the wake policy says, since
    /// this was last asked: after each turn, and after [`set_nr_requests`](Self::set_nr_requests).
    pub fn take_woken(&mut self, out: &mut impl FnMut(WaitId)) {
        if let Some(lines) = self.lines_mut() {
            lines.take_woken(out);
        }
    }

    /// Says how many tags may be in use from now on. Those in use stay so until they are given
    /// back. A turn is due. Counterpart in Linux: `blk_mq_update_nr_requests`.
    ///
    /// # Panics
    /// If it is none, or more than the depth.
    pub fn set_nr_requests(&mut self, nr_requests: u32) {
        let nr_reserved = self.policy.nr_reserved.min(nr_requests.saturating_sub(1));
        let nr_more = nr_requests.saturating_sub(self.tags.nr_requests());
        if let Some(lines) = self.lines_mut() {
            // T6: the batch first.
            let nr_woken = lines.resize(nr_requests - nr_reserved) + lines.wake(nr_more);
            self.counters.tag_wakeups.add(nr_woken);
        }
        self.tags.set_nr_requests(nr_requests);
        if let Some(admission) = &mut self.admission {
            admission.classes.set_nr_reserved(nr_reserved);
        }
    }
}

/// For a context that shares its tags with others, whose holder looks after that.
impl HardwareContext {
    /// Says how many tags it may have for now, beside what `nr_requests` says.
    pub fn set_tag_limit(&mut self, limit: u32) {
        self.tags.set_limit(limit);
    }

    /// Gives the tags that it does not use back to the set, and says how many those are. Then look
    /// for waiters (T2).
    pub fn give_back_tags(&mut self) -> u32 {
        self.tags.give_back()
    }

    /// Whether a turn since this was last asked found no tag for something, and one is wanted
    /// still.
    pub fn wants_tags(&mut self) -> bool {
        self.tags.take_short() && self.has_waiting()
    }

    /// How many tags are in use.
    pub fn nr_busy_tags(&self) -> u32 {
        self.tags.nr_busy()
    }
}

impl Turn<'_> {
    /// Sees to it that what waits elsewhere and may be issued is in the backlog. Says whether
    /// anything is.
    #[inline]
    pub(crate) fn stock_backlog(&mut self) -> bool {
        if self.hctx.admission.is_some() {
            self.stock_from_elsewhere();
        }
        !self.hctx.backlog.is_empty()
    }

    #[cold]
    fn stock_from_elsewhere(&mut self) {
        let HardwareContext { admission, backlog, counters, .. } = &mut *self.hctx;
        let Some(Admission { classes, lines }) = admission.as_deref_mut() else { return };
        classes.move_one(backlog);
        if let Some(lines) = lines
            && backlog.is_empty()
        {
            counters.tag_wakeups.add(lines.move_one(backlog));
        }
    }

    /// A tag for the oldest request of the backlog, which has these flags.
    #[cold]
    pub(crate) fn get_tag(&mut self, flags: BioFlags) -> Admitted {
        let HardwareContext { admission, backlog, tags, .. } = &mut *self.hctx;
        let Some(Admission { classes, lines }) = admission.as_deref_mut() else {
            return Admitted::NoTag;
        };
        if classes.must_wait(flags) {
            if let Some(rq) = self.hctx.pop_backlog()
                && let Some(Admission { classes, .. }) = self.hctx.admission.as_deref_mut()
            {
                classes.keep_background(rq);
            }
            self.stock_backlog();
            return Admitted::WaitsElsewhere;
        }
        match classes.get(tags, flags) {
            None => Admitted::NoTag,
            Some(tag) => Admitted::Tag(tag, {
                lines.as_mut().is_some_and(|lines| lines.took_one(backlog.len()))
            }),
        }
    }

    /// After what could be issued was: the lines of threads get back what has no tag, and who has
    /// found none sleeps. (Behind a closed gate, or with a busy driver, nobody has looked.)
    #[cold]
    pub(crate) fn settle_lines(&mut self, is_busy: bool) {
        let HardwareContext { admission, backlog, counters, tags, splits, .. } = &mut *self.hctx;
        let Some(Admission { lines: Some(lines), .. }) = admission.as_deref_mut() else { return };
        for _ in 0..backlog.len() {
            match backlog.pop_front() {
                Some(rq) if Classes::are_of(rq.flags) => backlog.push_back(rq),
                Some(rq) => lines.take_back(rq, splits),
                None => {}
            }
        }
        counters.tag_wakeups.add(lines.remove_empty());
        if !is_busy && self.gates.dispatch {
            counters.vain_wakeups.add(lines.sleep_all());
        }
        // What failed when it was to be issued has given its tag back; no other turn may be near.
        counters.tag_wakeups.add(lines.freed(tags.nr_busy()));
    }

    /// Says whom the tags wake that were given back since the last turn.
    #[inline]
    pub(crate) fn wake(&mut self) {
        let nr_busy = self.hctx.tags.nr_busy();
        if self.hctx.admission.is_some()
            && let Some(lines) = self.hctx.lines_mut()
        {
            let nr_woken = lines.freed(nr_busy);
            self.hctx.counters.tag_wakeups.add(nr_woken);
        }
    }
}
