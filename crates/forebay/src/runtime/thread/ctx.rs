//! Per-thread state of a disk: the software queue and the hardware context that it maps to.

use crate::runtime::hctx::{At, Hctx, Token, now_ns};
use crate::runtime::ready::Ready;
use crate::runtime::shared::Shared;
use crate::runtime::thread::Blocking;
use crate::runtime::timed::Timed;
use crate::runtime::trace::{self, DiskTrace};
use crate::runtime::{spare, thread};
use forebay_core::cold_path;
use forebay_core::wait;
use forebay_core::{
    Commit, KickPolicy, PlugCounters, PlugPolicy, Policy, QueuedBio, SoftwareQueue,
    SubmitErrorKind, Turned, UnplugCause,
};
use std::cell::{Cell, RefCell, RefMut};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Weak};

/// The state of one thread for one disk. It stays on its thread.
///
/// Counterpart in Linux: `struct blk_mq_ctx`, which is per CPU.
pub(crate) struct Ctx {
    shared: Weak<Shared>,
    /// A handle of the disk while the thread has queues on it: then the disk is open, and no
    /// upgrade of `shared` is needed.
    kept: Cell<Option<Arc<Shared>>>,
    nr_queues: Cell<u32>,
    /// The list of the queue that was created last: turns of this thread put its ended bios there.
    ready: RefCell<Option<Rc<RefCell<Ready>>>>,
    /// That queue has requested the current turn, and checks the list afterwards.
    is_turn_of_queue: Cell<bool>,
    /// Index of the hardware context.
    hctx: Cell<usize>,
    queue: RefCell<SoftwareQueue>,
    counters: Arc<PlugCounters>,
    plug_policy: PlugPolicy,
    kick: KickPolicy,
    /// The thread kicks at the end of its section, and the disk emulates no lock for it.
    has_own_sections: bool,
    /// When to commit at the end of the thread's last open section, unless as ever.
    commit_at_end: Option<Commit>,
    /// Whether a commit was deferred.
    is_deferred: Cell<bool>,
    /// Whether the device counts a section of this thread (`kick=per-device`).
    in_device_section: Cell<bool>,
    timed: Timed,
    trace: Arc<DiskTrace>,
    /// The period of probes for which this thread has marked the contexts.
    probed: Cell<Option<u32>>,
    /// Whether the thread's plug lists this disk.
    in_plug: Cell<bool>,
    /// State of the thread's blocking calls, one at a time.
    blocking: Cell<Option<Blocking>>,
}

impl Ctx {
    pub(crate) fn new(shared: &Arc<Shared>, hctx: usize) -> Rc<Ctx> {
        spare::reserve_spare();
        if shared.info().policy.plug == PlugPolicy::PerLevel {
            thread::use_levels();
        }
        let counters = shared.new_plug_counters();
        let info = shared.info();
        let queue = SoftwareQueue::new(info.limits, info.policy, Arc::clone(&counters));
        let Policy { kick, emulation, .. } = info.policy;
        let has_own_sections = kick == KickPolicy::Deferred && !emulation.locks_device();
        Rc::new(Ctx {
            shared: Arc::downgrade(shared),
            kept: Cell::new(None),
            nr_queues: Cell::new(0),
            ready: RefCell::new(None),
            is_turn_of_queue: Cell::new(false),
            hctx: Cell::new(hctx),
            queue: RefCell::new(queue),
            counters,
            plug_policy: info.policy.plug,
            kick,
            has_own_sections,
            commit_at_end: has_own_sections.then_some(Commit::Now),
            is_deferred: Cell::new(false),
            in_device_section: Cell::new(false),
            timed: shared.timed(),
            trace: Arc::clone(shared.trace()),
            probed: Cell::new(None),
            in_plug: Cell::new(false),
            blocking: Cell::new(None),
        })
    }

    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        std::ptr::eq(self.shared.as_ptr(), Arc::as_ptr(shared))
    }

    /// Returns whether the disk is open.
    pub(crate) fn is_live(&self) -> bool {
        self.shared.strong_count() > 0
    }

    #[inline]
    pub(crate) fn hctx(&self) -> usize {
        self.hctx.get()
    }

    /// Registers a new queue of this thread.
    pub(crate) fn open_queue(&self, shared: &Arc<Shared>, ready: &Rc<RefCell<Ready>>) {
        assert!(self.is_of(shared));
        *self.ready.borrow_mut() = Some(Rc::clone(ready));
        self.nr_queues.update(|nr| nr + 1);
        self.kept.set(Some(Arc::clone(shared)));
    }

    /// Unregisters a queue of this thread.
    pub(crate) fn close_queue(&self, closed: &Rc<RefCell<Ready>>) {
        self.ready.borrow_mut().take_if(|ready| Rc::ptr_eq(ready, closed));
        self.nr_queues.update(|nr| nr - 1);
        if self.nr_queues.get() == 0 {
            self.kept.take();
        }
    }

    /// Returns the disk if it is open. A waker may re-enter this `Ctx`, and open and close queues,
    /// so the handle is taken out of the cell until [`Ctx::keep_shared`].
    #[inline]
    fn take_shared(&self) -> Option<Arc<Shared>> {
        self.kept.take().or_else(|| self.shared.upgrade())
    }

    #[inline]
    fn keep_shared(&self, shared: Arc<Shared>) {
        if self.nr_queues.get() > 0 {
            self.kept.set(Some(shared));
        }
    }

    /// Runs `work` on the disk, if the disk is open.
    fn with_shared(&self, work: impl FnOnce(&Shared)) {
        if let Some(shared) = self.take_shared() {
            work(&shared);
            self.keep_shared(shared);
        }
    }

    /// Takes the state for a blocking call. [`Ctx::put_blocking`] returns it.
    pub(crate) fn take_blocking(&self) -> Blocking {
        self.blocking.take().unwrap_or_else(Blocking::new)
    }

    /// Keeps the state for the next call.
    pub(crate) fn put_blocking(&self, blocking: Blocking) {
        self.blocking.set(Some(blocking));
    }

    /// Accepts a bio: into the plug, or into the list of outgoing requests. Returns true if there
    /// are outgoing requests; then the caller calls [`Ctx::turn`].
    #[inline(always)]
    pub(crate) fn queue_bio(
        self: &Rc<Ctx>,
        bio: Box<QueuedBio>,
        now: u64,
    ) -> Result<bool, (SubmitErrorKind, Box<QueuedBio>)> {
        match trace::is_any() {
            false => self.queue_bio_as::<false>(bio, now),
            true => self.queue_traced_bio(bio, now),
        }
    }

    /// Takes a writer of records if the thread has none, and queues a bio.
    // A call, so that the usual case keeps its registers.
    #[cold]
    #[inline(never)]
    fn queue_traced_bio(
        self: &Rc<Ctx>,
        bio: Box<QueuedBio>,
        now: u64,
    ) -> Result<bool, (SubmitErrorKind, Box<QueuedBio>)> {
        self.join_trace(&mut self.queue.borrow_mut());
        self.queue_bio_as::<true>(bio, now)
    }

    #[inline(always)]
    fn queue_bio_as<const TRACED: bool>(
        self: &Rc<Ctx>,
        bio: Box<QueuedBio>,
        now: u64,
    ) -> Result<bool, (SubmitErrorKind, Box<QueuedBio>)> {
        let mut queue = self.queue.borrow_mut();
        let level = thread::level();
        let queued = match TRACED {
            false => queue.queue_bio(bio, level, now),
            true => queue.queue_traced_bio(bio, level, now),
        };
        if let Err(refused) = queued {
            self.queue_after_growth(&mut queue, refused, level, now)?;
        }
        // Without an open plug the bio is outgoing.
        if level > 0 && !self.in_plug.get() && queue.is_plugged() {
            self.in_plug.set(true);
            thread::join_plug(self);
        }
        Ok(queue.has_outgoing())
    }

    /// Takes a writer of records for the thread if the disk is traced or probed, and the thread has
    /// none.
    fn join_trace(&self, queue: &mut SoftwareQueue) {
        if let Some(period) = self.trace.probed_period() {
            if !queue.has_trace() {
                queue.set_trace(self.trace.thread_writer());
            }
            if self.probed.replace(Some(period)) != Some(period) {
                self.with_shared(Shared::note_probes);
            }
        } else if !queue.is_traced() && self.trace.is_on() {
            queue.set_trace(self.trace.thread_writer());
        }
    }

    /// Queues a refused bio again if it was behind the end of the disk and the disk has grown since
    /// this thread last compared.
    ///
    /// # Errors
    /// Returns the refusal and the bio otherwise.
    #[cold]
    #[inline(never)]
    fn queue_after_growth(
        &self,
        queue: &mut SoftwareQueue,
        (refusal, bio): (SubmitErrorKind, Box<QueuedBio>),
        level: u32,
        now: u64,
    ) -> Result<(), (SubmitErrorKind, Box<QueuedBio>)> {
        let mut has_grown = false;
        if matches!(refusal, SubmitErrorKind::OutOfRange { .. }) {
            self.with_shared(|shared| {
                has_grown = shared.capacity_bytes().is_some_and(|capacity| queue.grow(capacity));
            });
        }
        match has_grown {
            false => Err((refusal, bio)),
            true if queue.is_traced() => queue.queue_traced_bio(bio, level, now),
            true => queue.queue_bio(bio, level, now),
        }
    }

    /// Runs one or more turns of the hardware context with the outgoing requests. Returns the
    /// result of the first one. `commit` says when issued requests are committed; `None` uses the
    /// disk's policy. Returns `None` if another thread holds the token: it turns in place of the
    /// caller.
    pub(crate) fn turn(
        self: &Rc<Ctx>,
        shared: &Shared,
        now: u64,
        commit: Option<Commit>,
    ) -> Option<Turned> {
        let queue = self.queue.borrow_mut();
        let hctx = shared.hctx(self.hctx());
        let Some(mut token) = hctx.try_take() else {
            return self.turn_through_inbox(shared, queue, now, commit);
        };
        let turned = self.turn_with((&mut token, hctx), shared, queue, true, now, commit);
        token.finish();
        Some(turned)
    }

    /// Same as [`Ctx::turn`], for a queue that checks its ended bios afterwards. A caller that sets
    /// no `commit` has just checked that the disk is not foreign.
    #[inline(never)]
    pub(crate) fn turn_for(
        self: &Rc<Ctx>,
        ready: &Rc<RefCell<Ready>>,
        shared: &Shared,
        now: u64,
        commit: Option<Commit>,
    ) -> Option<Turned> {
        let is_usual = match commit {
            None => self.has_own_sections && !self.commits_later(shared),
            Some(_) => !shared.is_after_fork(),
        };
        let hctx = shared.hctx(self.hctx());
        let commit_now = commit.unwrap_or(Commit::Now);
        if is_usual && let Some(mut token) = hctx.take_as_owner() {
            let turned = self.turn_as_owner(&mut token, hctx, ready, now, commit_now);
            token.finish();
            return Some(turned);
        }
        cold_path();
        self.turn_for_any(ready, shared, now, commit)
    }

    /// Runs one turn of an owned context that needs nothing uncommon
    /// ([`Token::turn_as_owner`]).
    #[inline(always)]
    fn turn_as_owner<'a>(
        &self,
        token: &mut Token<'a>,
        hctx: &'a Hctx,
        ready: &RefCell<Ready>,
        now: u64,
        commit: Commit,
    ) -> Turned {
        // Dropped before wakers run.
        let (mut queue, mut own) = (self.queue.borrow_mut(), ready.borrow_mut());
        token.turn_as_owner(hctx, now, &mut queue, &mut own, commit)
    }

    /// Continues [`Ctx::turn_for`] for any context.
    #[inline(never)]
    fn turn_for_any(
        self: &Rc<Ctx>,
        ready: &Rc<RefCell<Ready>>,
        shared: &Shared,
        now: u64,
        commit: Option<Commit>,
    ) -> Option<Turned> {
        let is_last = self.ready.borrow().as_ref().is_some_and(|last| Rc::ptr_eq(last, ready));
        self.is_turn_of_queue.set(is_last);
        let queue = self.queue.borrow_mut();
        let hctx = shared.hctx(self.hctx());
        let Some(mut token) = hctx.try_take() else {
            return self.turn_through_inbox(shared, queue, now, commit);
        };
        let turned = self.turn_with((&mut token, hctx), shared, queue, true, now, commit);
        // Cleared before wakers run.
        self.is_turn_of_queue.set(false);
        token.finish();
        Some(turned)
    }

    /// Same as [`Ctx::turn`], but runs one turn and keeps the token.
    pub(crate) fn turn_and_hold<'a>(
        self: &Rc<Ctx>,
        shared: &'a Shared,
        now: u64,
        commit: Option<Commit>,
    ) -> Option<(Token<'a>, Turned)> {
        let mut queue = self.queue.borrow_mut();
        let hctx = shared.hctx(self.hctx());
        let (mut token, is_held) = match hctx.try_take() {
            Some(token) => (token, true),
            None => (Ctx::publish(hctx, &mut queue)?, false),
        };
        let turned = self.turn_with((&mut token, hctx), shared, queue, is_held, now, commit);
        Some((token, turned))
    }

    /// Moves the outgoing requests to the inbox, because another thread holds the token. Returns
    /// the token if it is free by now.
    #[cold]
    fn publish<'a>(hctx: &'a Hctx, queue: &mut SoftwareQueue) -> Option<Token<'a>> {
        // Requests published earlier are accepted first, so none of this thread's requests is
        // overtaken.
        wait::publish(&mut At::new(hctx), |_| hctx.push_outgoing(queue))
    }

    /// Continues [`Ctx::turn`] and [`Ctx::turn_for`] if another thread holds the token.
    #[cold]
    fn turn_through_inbox(
        self: &Rc<Ctx>,
        shared: &Shared,
        mut queue: RefMut<'_, SoftwareQueue>,
        now: u64,
        commit: Option<Commit>,
    ) -> Option<Turned> {
        let hctx = shared.hctx(self.hctx());
        let token = Ctx::publish(hctx, &mut queue);
        let turned = token.map(|mut token| {
            let turned = self.turn_with((&mut token, hctx), shared, queue, false, now, commit);
            // Cleared before wakers run.
            self.is_turn_of_queue.set(false);
            token.finish();
            turned
        });
        self.is_turn_of_queue.set(false);
        turned
    }

    /// Runs one turn of the hardware context `hctx`, with the outgoing requests of `queue` if they
    /// are still there (`is_held`). Bios of the thread's last queue go to it directly.
    fn turn_with(
        self: &Rc<Ctx>,
        (token, hctx): (&mut Token<'_>, &Hctx),
        shared: &Shared,
        mut queue: RefMut<'_, SoftwareQueue>,
        is_held: bool,
        now: u64,
        commit: Option<Commit>,
    ) -> Turned {
        if commit.is_none() && self.commits_later(shared) {
            return self.turn_deferred((token, hctx), shared, queue, is_held, now);
        }
        let commit = commit.unwrap_or(Commit::Now);
        let outgoing = is_held.then_some(&mut *queue);
        match &*self.ready.borrow() {
            // A thread that waits in a shared context, as others do, waits on its mailbox.
            Some(ready) if !hctx.is_shared || self.is_turn_of_queue.get() => {
                let mut ready = ready.borrow_mut();
                ready.take_mail();
                let own = Some(&mut *ready);
                let turned = token.turn_with(now, outgoing, own, commit);
                if !self.is_turn_of_queue.get() {
                    ready.signal();
                }
                turned
            }
            _ => token.turn_with(now, outgoing, None, commit),
        }
    }

    /// Runs one turn, and defers the commit of the thread's own requests.
    #[inline(never)]
    fn turn_deferred(
        self: &Rc<Ctx>,
        (token, hctx): (&mut Token<'_>, &Hctx),
        shared: &Shared,
        queue: RefMut<'_, SoftwareQueue>,
        is_held: bool,
        now: u64,
    ) -> Turned {
        let nr_own = if is_held { queue.nr_outgoing() } else { 0 };
        let nr_covered = token.core.nr_uncommitted() + nr_own as u32;
        let later = Some(Commit::Later);
        let turned = self.turn_with((token, hctx), shared, queue, is_held, now, later);
        // Only the thread's own requests are deferred. Others may wait for theirs (I5).
        match token.core.nr_uncommitted() {
            0 => {}
            nr if hctx.is_shared && nr > nr_covered => token.commit(),
            _ => self.put_off(token),
        }
        turned
    }

    /// Returns whether the disk's policy commits the requests of a turn after the turn.
    #[inline]
    fn commits_later(&self, shared: &Shared) -> bool {
        match self.has_own_sections {
            // Under `plug=per-level` each level is committed separately, as in Linux before the
            // patch that `PlugPolicy` cites.
            true => thread::nr_sections() > 0 && self.plug_policy != PlugPolicy::PerLevel,
            false => self.commits_later_by_policy(shared),
        }
    }

    #[inline(never)]
    fn commits_later_by_policy(&self, shared: &Shared) -> bool {
        match self.kick {
            KickPolicy::Deferred => {
                let is_in_section = thread::nr_sections() > 0;
                if is_in_section && let Some(emulator) = shared.emulator() {
                    emulator.note_section(!self.in_device_section.replace(true));
                }
                is_in_section
            }
            kick => kick == KickPolicy::LoopEnd,
        }
    }

    /// Defers the commit. (D6: it covers at most as many requests as there are tags.)
    fn put_off(self: &Rc<Ctx>, token: &mut Token<'_>) {
        if self.is_deferred.get() {
            return;
        }
        match thread::defer_commit(self) {
            true => self.is_deferred.set(true),
            false => token.commit(),
        }
    }

    /// Returns whether commits are deferred beyond the end of a section.
    pub(crate) fn commits_at_wait(&self) -> bool {
        self.kick == KickPolicy::LoopEnd
    }

    /// Makes a deferred commit, or skips it if the caller commits next (`is_next`).
    pub(crate) fn commit_deferred(&self, is_next: bool) {
        self.is_deferred.set(false);
        // The disk may be closed (D7).
        self.with_shared(|shared| {
            if self.in_device_section.replace(false)
                && let Some(emulator) = shared.emulator()
                && !shared.is_after_fork()
            {
                emulator.end_section();
            }
            if !is_next {
                self.commit(shared);
            }
        });
    }

    /// Commits the requests that a turn with [`Commit::Later`] has issued.
    pub(crate) fn commit(&self, shared: &Shared) {
        wait::commit_all(&mut At::new(shared.hctx(self.hctx())));
    }

    /// Unplugs the requests of `level` and above and sends them. Returns whether other requests
    /// stay in the plug. If the thread's last open section ends next (`ends_sections`), the commit
    /// would be deferred for nothing, and is made at once.
    pub(crate) fn unplug(
        self: &Rc<Ctx>,
        cause: UnplugCause,
        level: u32,
        ends_sections: bool,
    ) -> bool {
        let now = now_ns(self.timed.get());
        let mut queue = self.queue.borrow_mut();
        queue.unplug(cause, level, now);
        self.in_plug.set(queue.is_plugged());
        if queue.has_outgoing() {
            let commit = if ends_sections { self.commit_at_end } else { None };
            let Some(shared) = self.take_shared() else {
                // Bios of dropped futures of a disk that is closed: they are discarded.
                queue.outgoing().for_each(drop);
                return self.in_plug.get();
            };
            drop(queue);
            self.turn_unplugged(&shared, now, commit);
            self.keep_shared(shared);
        }
        self.in_plug.get()
    }

    /// Runs a turn with requests that have left the plug.
    #[inline(always)]
    fn turn_unplugged(self: &Rc<Ctx>, shared: &Shared, now: u64, commit: Option<Commit>) {
        if let Some(commit) = commit
            && !shared.is_after_fork()
            && let Some(token) = self.turn_for_last(shared.hctx(self.hctx()), now, commit)
        {
            return token.finish();
        }
        self.turn(shared, now, commit);
    }

    /// Runs one turn of an owned context, for the queue that was created last.
    #[inline(always)]
    fn turn_for_last<'a>(&self, hctx: &'a Hctx, now: u64, commit: Commit) -> Option<Token<'a>> {
        let last = self.ready.borrow();
        let ready = last.as_ref()?;
        let mut token = hctx.take_as_owner()?;
        self.turn_as_owner(&mut token, hctx, ready, now, commit);
        Some(token)
    }

    /// Unplugs the requests, for the turn that the caller makes next.
    pub(crate) fn detach(&self, cause: UnplugCause) {
        self.queue.borrow_mut().unplug(cause, 1, now_ns(self.timed.get()));
        self.in_plug.set(false);
    }

    pub(crate) fn plug_policy(&self) -> PlugPolicy {
        self.plug_policy
    }

    /// Cleans up when the thread ends: sends the plugged requests and gives up the hardware
    /// context.
    pub(crate) fn retire(self: &Rc<Ctx>) {
        self.unplug(UnplugCause::Wait, 1, false);
        self.with_shared(|shared| {
            if shared.is_after_fork() {
                return;
            }
            // D5: deferred commits are made.
            self.commit(shared);
            shared.retire(self.hctx.replace(0), &self.counters);
        });
    }
}

impl fmt::Debug for Ctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx").field("hctx", &self.hctx).finish_non_exhaustive()
    }
}
