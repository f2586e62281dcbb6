//! Admission of requests to a hardware context, and the places where they wait for tags.
//!
//! Under `wake=fair` bios wait for tags in the backlog, in the order of arrival, and no thread is
//! woken for a tag. Under the other policies threads wait ([`thread_queues`]). Bios of a class that
//! may not have every tag wait in [`classes`], and those of a disk with owners in [`owned`] before
//! that. If neither the policies nor owners need it, there is no [`Admission`], and a turn costs a
//! few checks of an `Option`.

mod classes;
pub(super) mod gather;
mod outstanding;
mod owned;
mod owner_queues;
mod thread_queues;

use crate::bio::{BioFlags, Op};
use crate::cost::{CostModel, WeightBy};
use crate::ctx::SoftwareQueue;
use crate::hctx::admission::classes::TagClasses;
use crate::hctx::admission::owned::{Cause, OwnedQueues, Released};
use crate::hctx::admission::thread_queues::ThreadQueues;
use crate::hctx::turned::NO_DEADLINE;
use crate::hctx::{FastTurn, HardwareContext, Turn};
use crate::owner::{OwnerCharge, Owners};
use crate::plant::plants;
use crate::policy::Policy;
use crate::request::{QueuedBio, Request, Steps};
use crate::sched::Elevator;
use crate::tag::{Tag, WaitId};
use crate::trace::TraceEvent;
use alloc::boxed::Box;

/// The requests that wait for tags, or for their owner, outside the backlog.
#[derive(Debug)]
pub(super) struct Admission {
    classes: TagClasses,
    /// `None` if bios wait.
    threads: Option<ThreadQueues>,
    /// `None` if the disk has no owners.
    owned: Option<OwnedQueues>,
    /// Some requests may not have every tag.
    has_classes: bool,
}

/// The outcome of an attempt to get a tag for a request.
pub(super) enum Admitted {
    /// The tag, and whether the request waited for it in the queue of its thread.
    Tag(Tag, bool),
    /// There is no tag. The request stays in the backlog.
    NoTag,
    /// Its class may have no tag now. The request was moved out of the backlog and made way for
    /// others.
    WaitsElsewhere,
}

impl Admission {
    /// Creates it for a set of `depth` tags of which `nr_requests` may be in use. Returns `None` if
    /// the policy does not need it.
    pub(super) fn new(policy: &Policy, depth: u32, nr_requests: u32) -> Option<Box<Admission>> {
        let nr_reserved = policy.nr_reserved.min(nr_requests - 1);
        let threads = ThreadQueues::new(policy.emulation.wake_policy(), nr_requests - nr_reserved);
        let has_classes = policy.nr_reserved > 0 || policy.async_depth < depth;
        let is_needed = has_classes || threads.is_some();
        let classes = || TagClasses::new(nr_reserved, policy.async_depth.max(1));
        is_needed
            .then(|| Box::new(Admission { classes: classes(), threads, owned: None, has_classes }))
    }

    /// Creates it where the policy does not need it: for owners, or for requests that a scheduler
    /// limits.
    fn unneeded(policy: &Policy) -> Box<Admission> {
        let classes = TagClasses::new(0, policy.async_depth.max(1));
        Box::new(Admission { classes, threads: None, owned: None, has_classes: false })
    }

    /// Returns whether split bios may gather tags (T14).
    pub(super) fn may_gather(&self) -> bool {
        !self.has_classes && self.threads.is_none()
    }

    /// Returns whether some requests may not have every tag.
    pub(super) fn has_classes(&self) -> bool {
        self.has_classes
    }

    /// Returns whether a new request may pass: none waits here, and no class has tags of its own.
    pub(super) fn is_idle(&self) -> bool {
        !self.has_classes
            && self.classes.is_empty()
            && self.threads.is_none()
            && self.owned.as_ref().is_none_or(OwnedQueues::may_pass)
    }

    /// Returns whether no admitted request waits here. Requests that wait for their owner are not
    /// admitted yet (OW3).
    pub(super) fn is_empty(&self) -> bool {
        self.classes.is_empty()
            && self.threads.as_ref().is_none_or(ThreadQueues::is_empty)
            && (!plants!(HoldFreeze) || self.owned.as_ref().is_none_or(OwnedQueues::is_empty))
    }

    /// Returns all requests that wait here.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        let admitted = self.classes.iter().chain(self.threads.iter().flat_map(ThreadQueues::iter));
        admitted.chain(self.owned.iter().flat_map(OwnedQueues::iter))
    }
}

impl HardwareContext {
    /// Accepts a request. It stays outside if `enter` is false, or if others are outside already.
    /// NOWAIT requests have a list of their own.
    #[inline]
    pub fn accept(&mut self, rq: Request, enter: bool) {
        if rq.is_nowait() {
            self.fast_turn = FastTurn::None;
            self.nowait.push_back(rq);
        } else if enter && (self.outside.is_empty() || plants!(PassOutside)) {
            self.let_in(rq);
        } else {
            self.fast_turn = FastTurn::None;
            self.outside.push_back(rq);
        }
    }

    /// Lets a request in, to wait for its tag.
    #[inline]
    pub(super) fn let_in(&mut self, rq: Request) {
        let Some(admission) = &mut self.admission else {
            let is_special = !rq.is_whole_data();
            self.has_special |= is_special;
            if is_special {
                self.fast_turn = FastTurn::None;
            }
            return self.incoming.push(rq);
        };
        self.fast_turn = FastTurn::None;
        if let Some(owned) = &mut admission.owned
            && rq.op != Op::Flush
            && !admission.classes.may_reserve(rq.flags)
        {
            return owned.keep(rq);
        }
        if rq.steps.current() == Some(Steps::PRE) {
            // A flush takes no tag, so it waits for none (F6). This turn moves it to the machine.
            return self.backlog.push_back(rq);
        }
        let Some(rq) = admission.classes.keep_reserved(rq) else { return };
        match &mut admission.threads {
            None => self.backlog.push_back(rq),
            Some(threads) => threads.push(rq, &self.splits),
        }
    }

    /// Sets the owners of the disk, and the measure of their weights. The caller runs a turn
    /// afterwards, because a limit may have become higher.
    ///
    /// # Panics
    /// Panics if threads wait for tags ([`has_lines`](Self::has_lines)).
    pub fn set_owners(&mut self, owners: Owners, by: WeightBy, model: CostModel) {
        assert!(!self.has_lines(), "owners need wake=fair");
        self.keep_incoming();
        if let Some(elevator) = &mut self.elevator {
            elevator.set_owners(&owners);
        }
        let policy = &self.policy;
        let admission = self.admission.get_or_insert_with(|| Admission::unneeded(policy));
        match &mut admission.owned {
            Some(owned) => owned.set_owners(owners, by, model),
            None => {
                let nr_tags = self.tags.nr_requests();
                admission.owned = Some(OwnedQueues::new(owners, by, model, nr_tags));
            }
        }
        self.fast_turn = FastTurn::None;
    }

    /// Returns whether requests wait for their owner. They are not admitted yet (OW3).
    #[inline]
    pub(super) fn has_owned(&self) -> bool {
        self.owned().is_some_and(|owned| !owned.is_empty())
    }

    /// Moves the incoming requests to the queues of their owners. Returns false if the disk has no
    /// owners.
    pub(super) fn keep_incoming_of_owners(&mut self) -> bool {
        let HardwareContext { admission, incoming, .. } = self;
        let Some(Admission { owned: Some(owned), .. }) = admission.as_deref_mut() else {
            return false;
        };
        incoming.drain(..).for_each(|rq| owned.keep(rq));
        true
    }

    /// Charges a new request to its owner, if the disk has owners. No request waits for its owner,
    /// and the device is not gone. Returns false if a limit refuses the request.
    #[inline]
    pub(super) fn passes_owners(&mut self, rq: &mut Request, now: u64) -> bool {
        match self.admission.as_deref_mut() {
            Some(Admission { owned: Some(owned), .. }) => owned.pass(rq, now),
            _ => true,
        }
    }

    /// Returns the time at which a limit may let a request go (OW6). At once, if nothing else
    /// brings a turn, and a depth has become free after the last request was tried.
    #[inline]
    pub(super) fn limits_next_ns(&self, now: u64) -> u64 {
        match self.owned() {
            Some(owned)
                if owned.is_depth_freed() && self.nr_awaited() == 0 && !self.has_waiting() =>
            {
                now + 1
            }
            Some(owned) if !plants!(ForgetDeadline) => owned.next_ns(),
            _ => NO_DEADLINE,
        }
    }

    /// Returns the owners of the disk, if it has or had any.
    pub(super) fn owners(&self) -> Option<&Owners> {
        self.owned().map(OwnedQueues::owners)
    }

    /// Records that a bio has ended that was marked when it left the queue of its owner. Its
    /// request left the plug, or the last limit released it, at `unplugged_ns`. If the bio joined
    /// an older request in a scheduler, that time may be before the submission of the bio.
    pub(super) fn end_outstanding(&mut self, bio: &QueuedBio, unplugged_ns: u64, now: u64) {
        if let Some(node) = bio.outstanding()
            && let Some(Admission { owned: Some(owned), .. }) = self.admission.as_deref_mut()
        {
            let is_timed = bio.result().is_ok() && unplugged_ns != 0;
            let latency_ns = is_timed.then(|| now.saturating_sub(unplugged_ns));
            if bio.is_watched() {
                let begin_ns = unplugged_ns.max(bio.queued_ns);
                let total_ns = is_timed.then(|| now.saturating_sub(begin_ns));
                let driver_ns = total_ns.and_then(|_| bio.driver_ns(now));
                owned.end_watched(node, total_ns, driver_ns);
            }
            owned.end_outstanding(node, latency_ns, now);
        }
    }

    #[inline]
    fn owned(&self) -> Option<&OwnedQueues> {
        self.admission.as_ref()?.owned.as_ref()
    }

    /// Records that a turn has dispatched what it could: requests that still wait for their owner
    /// have waited.
    #[inline]
    pub(super) fn end_dispatch(&mut self, now: u64) {
        if self.trace.is_on() {
            self.trace_sleepers(now);
        }
        self.nr_waited = self.backlog.len();
        if let Some(Admission { owned: Some(owned), .. }) = self.admission.as_deref_mut() {
            owned.begin_turn();
        }
    }

    /// Records which requests of the backlog have begun to wait in this turn.
    #[cold]
    fn trace_sleepers(&mut self, now: u64) {
        for rq in self.backlog.iter().skip(self.nr_waited) {
            self.trace.request(TraceEvent::Sleep, rq, now);
        }
    }

    /// Charges a NOWAIT request to its owner. Returns `None` if it would have to wait.
    pub(super) fn charge_nowait(&mut self, rq: &mut Request, now: u64) -> Option<OwnerCharge> {
        let admission = self.admission.as_deref_mut();
        match admission {
            Some(Admission { owned: Some(owned), classes, .. })
                if !classes.may_reserve(rq.flags) && !self.device.is_failed() =>
            {
                owned.charge_nowait(rq, now)
            }
            _ => Some(OwnerCharge::NONE),
        }
    }

    /// Takes back the charge of a NOWAIT request that was not issued. `number` is that of its
    /// owner.
    #[cold]
    pub(super) fn refund_nowait(&mut self, number: u32, charge: OwnerCharge) {
        if let Some(owned) = self.owned() {
            owned.refund_nowait(number, charge);
        }
    }

    /// Counts a NOWAIT request that was issued for its owner, of which `number` is the number.
    pub(super) fn count_nowait(&self, number: u32, flags: BioFlags, nr_ios: u32, bytes: u64) {
        if let Some(Admission { owned: Some(owned), classes, .. }) = self.admission.as_deref()
            && !classes.may_reserve(flags)
        {
            owned.note_start(number, nr_ios, bytes);
        }
    }

    /// Counts for its owner that a request has waited for its tag.
    pub(super) fn count_owners_wait(&self, rq: &Request, waited_ns: u64) {
        if let Some(owned) = self.owned() {
            owned.note_tag_wait(rq.origin.owner(), rq.nr_bios, waited_ns);
        }
    }

    /// Counts for its owner that a request has waited in the scheduler until `now`.
    #[inline]
    pub(super) fn count_owners_scheduler_wait(&self, rq: &Request, now: u64) {
        let owner = rq.origin.owner();
        // A turn may have received no time.
        if owner != 0
            && rq.tagged_ns != 0
            && now > rq.tagged_ns
            && let Some(owned) = self.owned()
        {
            owned.note_scheduler_wait(owner, rq.nr_bios, now - rq.tagged_ns);
        }
    }

    /// Accepts all outgoing requests of a software queue, as [`accept`](Self::accept) does for one.
    #[inline(always)]
    pub fn accept_from(&mut self, ctx: &mut SoftwareQueue, enter: bool) {
        let is_usual = enter && self.fast_turn != FastTurn::None && !ctx.has_special();
        if is_usual && self.incoming.is_empty() {
            ctx.move_outgoing(&mut self.incoming);
        } else {
            self.accept_all(ctx, enter);
        }
    }

    #[inline(never)]
    fn accept_all(&mut self, ctx: &mut SoftwareQueue, enter: bool) {
        let is_empty = self.outside.is_empty() && self.incoming.is_empty();
        if enter && is_empty && !ctx.has_special() && self.admission.is_none() {
            ctx.move_outgoing(&mut self.incoming);
        } else {
            ctx.outgoing().for_each(|rq| self.accept(rq, enter));
        }
    }

    /// Accepts a list of bios that came from another thread.
    pub fn accept_bios(&mut self, first: Box<QueuedBio>, enter: bool) {
        self.accept(Request::of_bios(first), enter);
    }

    /// Returns whether a request waits that goes before `rq`, a new one.
    pub(super) fn has_elder(&self, rq: &Request) -> bool {
        if let Some(Admission { classes, .. }) = self.admission.as_deref()
            && classes.may_reserve(rq.flags)
        {
            return classes.has_reserved();
        }
        if Elevator::limits(rq.op, rq.flags)
            && self.admission.as_ref().is_some_and(|admission| admission.classes.has_writes())
        {
            return true;
        }
        // Background bios wait for their own class, and hold up no others.
        !self.backlog.is_empty() || self.threads().is_some_and(|threads| !threads.is_empty())
    }

    /// Puts the tag of a request that has these flags.
    #[inline(always)]
    pub(super) fn put_tag(&mut self, tag: Tag, flags: BioFlags) {
        self.tags.put(tag);
        if self.counts_puts {
            self.count_put(tag, flags);
        }
    }

    // A call, so that the common case keeps its registers.
    #[cold]
    #[inline(never)]
    fn count_put(&mut self, tag: Tag, flags: BioFlags) {
        if let Some(elevator) = &mut self.elevator {
            elevator.put(tag);
        }
        if let Some(admission) = &mut self.admission
            && admission.has_classes
        {
            admission.classes.note_put(flags);
        }
    }

    /// Returns whether tags that are put are counted.
    pub(super) fn has_puts_to_count(&self) -> bool {
        let has_classes = self.admission.as_ref().is_some_and(|admission| admission.has_classes());
        has_classes || self.elevator.is_some() && !plants!(KeepCounts)
    }

    /// Returns how many tags a request of the kind of `rq` could get now.
    pub(super) fn nr_free_tags_of(&self, rq: &Request) -> u32 {
        let nr_free = match &self.admission {
            None => self.tags.nr_free(0),
            Some(admission) => admission.classes.nr_free(&self.tags, rq.flags),
        };
        match &self.elevator {
            Some(elevator) if Elevator::limits(rq.op, rq.flags) => {
                nr_free.min(elevator.nr_limited_left())
            }
            _ => nr_free,
        }
    }

    fn threads(&self) -> Option<&ThreadQueues> {
        self.admission.as_ref()?.threads.as_ref()
    }

    /// Marks all threads that wait for tags as running (H3).
    pub(super) fn awake_all(&mut self) {
        let HardwareContext { admission, splits, .. } = self;
        if let Some(threads) = admission.as_mut().and_then(|admission| admission.threads.as_mut()) {
            threads.awake_all(splits);
        }
    }

    fn threads_mut(&mut self) -> Option<&mut ThreadQueues> {
        self.admission.as_mut()?.threads.as_mut()
    }

    /// Sets the policy by which threads wait for tags to the first version of stash-and-wake, which
    /// can hang ([`TagWaits::stash_v1`](crate::TagWaits::stash_v1)). For simulators only.
    ///
    /// # Panics
    /// Panics if threads wait for tags already.
    pub fn emulate_stash_v1(&mut self) {
        if let Some(threads) = self.threads_mut() {
            threads.emulate_stash_v1();
        }
    }

    /// Marks the thread of `id`, the owner of its bios, as running. The thread tries again to get
    /// tags for the requests left in its queue. The caller runs a turn afterwards.
    pub fn awake(&mut self, id: WaitId) {
        if let Some(threads) = self.threads_mut() {
            threads.awake(id);
        }
    }

    /// Returns whether bios of this owner wait in the queue of their thread. The thread sleeps
    /// until it is woken for them. Always false under `wake=fair`.
    pub fn lacks_tags(&self, id: WaitId) -> bool {
        self.threads().is_some_and(|threads| threads.has(id))
    }

    /// Returns whether threads wait for tags, instead of their bios.
    #[inline]
    pub fn has_lines(&self) -> bool {
        self.threads().is_some()
    }

    /// Returns whether [`take_changes`](Self::take_changes) or [`take_woken`](Self::take_woken) has
    /// owners to pass.
    pub fn has_tag_calls(&self) -> bool {
        self.threads().is_some_and(ThreadQueues::has_calls)
    }

    /// Passes to `out` the owners that began (true) or ceased (false) to lack tags since the last
    /// call, in order.
    pub fn take_changes(&mut self, out: &mut impl FnMut(WaitId, bool)) {
        if let Some(threads) = self.threads_mut() {
            threads.take_changes(out);
        }
    }

    /// Passes to `out` the owners whose threads the wake policy has chosen since the last call.
    /// Called after each turn, and after [`set_nr_requests`](Self::set_nr_requests).
    pub fn take_woken(&mut self, out: &mut impl FnMut(WaitId)) {
        if let Some(threads) = self.threads_mut() {
            threads.take_woken(out);
        }
    }

    /// Sets how many tags may be in use. Tags beyond the new limit stay in use until they are put.
    /// The caller runs a turn afterwards. Counterpart in Linux: `blk_mq_update_nr_requests`.
    ///
    /// # Panics
    /// Panics if `nr_requests` is 0 or more than the depth.
    pub fn set_nr_requests(&mut self, nr_requests: u32) {
        let nr_reserved = self.policy.nr_reserved.min(nr_requests.saturating_sub(1));
        let nr_more = nr_requests.saturating_sub(self.tags.nr_requests());
        if let Some(threads) = self.threads_mut() {
            // T6: the batch shrinks first.
            let nr_woken = threads.resize(nr_requests - nr_reserved) + threads.wake(nr_more);
            self.counters.tag_wakeups.add(nr_woken);
        }
        self.tags.set_nr_requests(nr_requests);
        if let Some(elevator) = &mut self.elevator {
            elevator.set_nr_requests(&self.policy, nr_requests);
        }
        if let Some(admission) = &mut self.admission {
            admission.classes.set_nr_reserved(nr_reserved);
            if let Some(owned) = &mut admission.owned {
                owned.set_nr_tags(nr_requests);
            }
        }
    }
}

/// For a context that shares its tags with others. The code that enforces the shares calls these
/// functions.
impl HardwareContext {
    /// Limits the tags that the context may have for now, in addition to the limit of
    /// `nr_requests`.
    pub fn set_tag_limit(&mut self, limit: u32) {
        self.tags.set_limit(limit);
    }

    /// Gives the tags that the context does not use back to the set, and returns their number. The
    /// caller then checks for waiters (T2).
    pub fn give_back_tags(&mut self) -> u32 {
        self.tags.give_back()
    }

    /// Returns whether a turn since the last call found no tag for a request, and requests still
    /// wait.
    pub fn wants_tags(&mut self) -> bool {
        self.tags.take_short() && self.has_waiting()
    }

    /// Returns the number of tags in use.
    pub fn nr_busy_tags(&self) -> u32 {
        self.tags.nr_busy()
    }
}

impl Turn<'_> {
    /// Moves a request to the backlog that waits elsewhere and may be issued now. Returns whether
    /// the backlog has any.
    #[inline]
    pub(super) fn stock_backlog(&mut self) -> bool {
        if self.hctx.admission.is_some() {
            self.stock_from_elsewhere();
        }
        !self.hctx.backlog.is_empty()
    }

    #[cold]
    fn stock_from_elsewhere(&mut self) {
        let HardwareContext { admission, backlog, counters, device, elevator, nr_waited, .. } =
            &mut *self.hctx;
        let Some(admission) = admission.as_deref_mut() else { return };
        let Admission { classes, threads, owned, .. } = admission;
        classes.move_one(backlog, device.is_failed());
        let may_write = elevator.as_ref().is_none_or(|elevator| elevator.nr_limited_left() > 0);
        if (may_write || device.is_failed()) && classes.move_write(backlog) {
            *nr_waited += 1;
        }
        if let Some(threads) = threads
            && backlog.is_empty()
        {
            counters.tag_wakeups.add(threads.move_one(backlog));
        }
        if let Some(owned) = owned
            && backlog.is_empty()
            && (self.gates.enter || plants!(LeaveFrozen))
            && let Some(released) = owned.release(self.now, device.is_failed())
        {
            self.released(released);
        }
    }

    /// Moves a request that has left the queue of its owner to the backlog, which is empty.
    fn released(&mut self, Released { mut rq, cause }: Released) {
        let (hctx, now) = (&mut *self.hctx, self.now);
        if cause == Cause::Limit {
            rq.seal();
            let nr_ns = rq.waited_ns(now);
            hctx.counters.limit_waits.add(rq.nr_bios.into());
            hctx.counters.limit_wait_ns.add(nr_ns * u64::from(rq.nr_bios));
            rq.note_limit_wait(nr_ns);
            hctx.trace.limit_wait(&rq, nr_ns, now);
            // The wait for its tag begins now.
            rq.unplugged_ns = now;
        }
        hctx.nr_waited = usize::from(cause == Cause::Turn);
        hctx.backlog.push_back(rq);
    }

    /// Gets a tag for the oldest request of the backlog, which has these flags.
    #[cold]
    pub(super) fn get_tag(&mut self, flags: BioFlags) -> Admitted {
        let HardwareContext { admission, backlog, tags, device, .. } = &mut *self.hctx;
        let Some(Admission { classes, threads, has_classes, .. }) = admission.as_deref_mut() else {
            return Admitted::NoTag;
        };
        if *has_classes && classes.must_wait(flags) && !device.is_failed() {
            self.wait_for_class();
            return Admitted::WaitsElsewhere;
        }
        // Without classes no tag is counted.
        let tag = if *has_classes { classes.get(tags, flags) } else { tags.get(0) };
        match tag {
            None => Admitted::NoTag,
            Some(tag) => Admitted::Tag(tag, {
                threads.as_mut().is_some_and(|threads| threads.took_one(backlog.len()))
            }),
        }
    }

    /// Moves the oldest request of the backlog, whose class has too few tags, to the queue of its
    /// class.
    pub(super) fn wait_for_class(&mut self) {
        let hctx = &mut *self.hctx;
        if let Some(rq) = hctx.pop_backlog()
            && let Some(Admission { classes, .. }) = hctx.admission.as_deref_mut()
        {
            hctx.trace.request(TraceEvent::Sleep, &rq, self.now);
            classes.keep_background(rq);
        }
        self.stock_backlog();
    }

    /// Moves the oldest request of the backlog out of the way of reads, if it is none and others of
    /// its kind have as many tags as they may (Q9). Returns whether it did.
    pub(super) fn hold_write(&mut self) -> bool {
        let hctx = &mut *self.hctx;
        let Some(rq) = hctx.backlog.front() else { return false };
        let is_full = hctx.elevator.as_ref().is_some_and(|elevator| elevator.is_full_for(rq));
        if !is_full
            || rq.steps.current() != Some(Steps::DATA)
            || hctx.device.is_failed()
            || plants!(PassAsyncDepth)
        {
            return false;
        }
        let Some(rq) = hctx.pop_backlog() else { return false };
        hctx.trace.request(TraceEvent::Sleep, &rq, self.now);
        let policy = &hctx.policy;
        let admission = hctx.admission.get_or_insert_with(|| Admission::unneeded(policy));
        admission.classes.keep_write(rq);
        hctx.fast_turn = FastTurn::None;
        true
    }

    /// Settles the queues of the threads after dispatch. Requests without a tag return to their
    /// queues, and threads that found no tag go to sleep. (Behind a closed gate, or with a busy
    /// driver, no thread has tried to get a tag, so none goes to sleep.)
    #[cold]
    pub(super) fn settle_threads(&mut self, is_busy: bool) {
        let HardwareContext { admission, backlog, counters, tags, splits, trace, .. } =
            &mut *self.hctx;
        let Some(Admission { threads: Some(threads), .. }) = admission.as_deref_mut() else {
            return;
        };
        for _ in 0..backlog.len() {
            match backlog.pop_front() {
                Some(rq) if TagClasses::is_special(rq.flags) => backlog.push_back(rq),
                Some(rq) => threads.take_back(rq, splits),
                None => {}
            }
        }
        counters.tag_wakeups.add(threads.remove_empty());
        if !is_busy && self.gates.dispatch {
            counters.vain_wakeups.add(threads.sleep_all());
            if trace.is_on() {
                threads.note_waits(|rq| trace.request(TraceEvent::Sleep, rq, self.now));
            }
        }
        // A request that failed when it was issued has put its tag, and the next turn may be far
        // off.
        counters.tag_wakeups.add(threads.freed(tags.nr_busy()));
    }

    /// Wakes threads for the tags that were put since the last turn, as the wake policy decides.
    #[inline]
    pub(super) fn wake(&mut self) {
        let nr_busy = self.hctx.tags.nr_busy();
        if self.hctx.admission.is_some()
            && let Some(threads) = self.hctx.threads_mut()
        {
            let nr_woken = threads.freed(nr_busy);
            self.hctx.counters.tag_wakeups.add(nr_woken);
        }
    }
}
