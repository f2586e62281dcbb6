//! Per-thread state of a disk: the software queue and the hardware context that it maps to.

use crate::runtime::blocking::Blocking;
use crate::runtime::hctx::{Token, now_ns};
use crate::runtime::ready::Ready;
use crate::runtime::shared::Shared;
use crate::runtime::thread;
use forebay_core::{
    Commit, KickPolicy, PlugCounters, PlugPolicy, QueuedBio, Refusal, SoftwareQueue, Turned,
    UnplugCause,
};
use std::cell::{Cell, RefCell};
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
    is_attended: Cell<bool>,
    /// Index of the hardware context.
    hctx: Cell<usize>,
    queue: RefCell<SoftwareQueue>,
    counters: Arc<PlugCounters>,
    plug_policy: PlugPolicy,
    kick: KickPolicy,
    /// Whether a commit was deferred.
    is_deferred: Cell<bool>,
    /// Whether the device counts a section of this thread (`kick=per-device`).
    in_device_section: Cell<bool>,
    is_timed: bool,
    /// Whether the thread's plug lists this disk.
    in_plug: Cell<bool>,
    /// State of the thread's blocking calls, one at a time.
    blocking: Cell<Option<Blocking>>,
}

impl Ctx {
    pub(crate) fn new(shared: &Arc<Shared>, hctx: usize) -> Rc<Ctx> {
        thread::reserve_spare();
        let counters = shared.new_plug_counters();
        let info = shared.info();
        let queue = SoftwareQueue::new(info.limits, info.policy, Arc::clone(&counters));
        Rc::new(Ctx {
            shared: Arc::downgrade(shared),
            kept: Cell::new(None),
            nr_queues: Cell::new(0),
            ready: RefCell::new(None),
            is_attended: Cell::new(false),
            hctx: Cell::new(hctx),
            queue: RefCell::new(queue),
            counters,
            plug_policy: info.policy.plug,
            kick: info.policy.kick,
            is_deferred: Cell::new(false),
            in_device_section: Cell::new(false),
            is_timed: info.is_timed(),
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

    /// Runs `work` on the disk, if the disk is open. A waker may re-enter this `Ctx`, and open and
    /// close queues, so the handle is taken out of the cell meanwhile.
    #[inline]
    fn with_shared<T>(&self, work: impl FnOnce(&Shared) -> T) -> Option<T> {
        let shared = self.kept.take().or_else(|| self.shared.upgrade())?;
        let result = work(&shared);
        if self.nr_queues.get() > 0 {
            self.kept.set(Some(shared));
        }
        Some(result)
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
    #[inline]
    pub(crate) fn queue_bio(
        self: &Rc<Ctx>,
        bio: Box<QueuedBio>,
        now: u64,
    ) -> Result<bool, (Refusal, Box<QueuedBio>)> {
        let mut queue = self.queue.borrow_mut();
        queue.queue_bio(bio, thread::level(), now)?;
        if !self.in_plug.get() && queue.is_plugged() {
            self.in_plug.set(true);
            thread::join_plug(self);
        }
        Ok(queue.has_outgoing())
    }

    /// Runs one or more turns of the hardware context with the outgoing requests. Returns the
    /// result of the first one. `commit` says when issued requests are committed; `None` uses the
    /// disk's policy. Returns `None` if another thread holds the token: it turns in place of the
    /// caller.
    #[inline]
    pub(crate) fn turn(
        self: &Rc<Ctx>,
        shared: &Shared,
        now: u64,
        commit: Option<Commit>,
    ) -> Option<Turned> {
        let (token, turned) = self.turn_and_hold(shared, now, commit)?;
        token.finish();
        Some(turned)
    }

    /// Same as [`Ctx::turn`], for a queue that checks its ended bios afterwards.
    #[inline]
    pub(crate) fn turn_for(
        self: &Rc<Ctx>,
        ready: &Rc<RefCell<Ready>>,
        shared: &Shared,
        now: u64,
        commit: Option<Commit>,
    ) -> Option<Turned> {
        let is_last = self.ready.borrow().as_ref().is_some_and(|last| Rc::ptr_eq(last, ready));
        self.is_attended.set(is_last);
        let turned = self.turn_and_hold(shared, now, commit);
        // Cleared before wakers run.
        self.is_attended.set(false);
        let (token, turned) = turned?;
        token.finish();
        Some(turned)
    }

    /// Same as [`Ctx::turn`], but runs one turn and keeps the token.
    #[inline]
    pub(crate) fn turn_and_hold<'a>(
        self: &Rc<Ctx>,
        shared: &'a Shared,
        now: u64,
        commit: Option<Commit>,
    ) -> Option<(Token<'a>, Turned)> {
        let hctx = shared.hctx(self.hctx());
        let mut queue = self.queue.borrow_mut();
        // Requests published earlier are accepted first, so none of this thread's requests is
        // overtaken.
        let (mut token, ctx) = match hctx.try_take() {
            Some(token) => (token, Some(&mut *queue)),
            None => {
                hctx.push_outgoing(&mut queue);
                (hctx.run()?, None)
            }
        };
        let by_policy = commit.is_none();
        let commit = commit.unwrap_or_else(|| self.when_to_commit(shared));
        let nr_own = ctx.as_ref().map_or(0, |queue| queue.nr_outgoing()) as u32;
        let nr_before = token.core.nr_uncommitted();
        let turned = match &*self.ready.borrow() {
            // A thread that waits in a shared context, as others do, waits on its mailbox.
            Some(ready) if !hctx.is_shared || self.is_attended.get() => {
                let mut ready = ready.borrow_mut();
                ready.take_mail();
                let turned = token.turn(now, commit, ctx, Some(&mut ready));
                if !self.is_attended.get() {
                    ready.signal();
                }
                turned
            }
            _ => token.turn(now, commit, ctx, None),
        };
        drop(queue);
        if by_policy && commit == Commit::Later {
            // Only the thread's own requests are deferred. Others may wait for theirs (I5).
            match token.core.nr_uncommitted() {
                0 => {}
                nr if hctx.is_shared && nr > nr_before + nr_own => token.commit(),
                _ => self.put_off(&mut token),
            }
        }
        Some((token, turned))
    }

    /// Returns when the disk's policy commits requests that could be committed now.
    #[inline]
    fn when_to_commit(&self, shared: &Shared) -> Commit {
        let later = match self.kick {
            // Under `plug=per-level` each level is committed separately, as in Linux before the
            // patch that `PlugPolicy` cites.
            KickPolicy::Deferred => {
                self.plug_policy != PlugPolicy::PerLevel && thread::nr_sections() > 0
            }
            KickPolicy::PerDevice => {
                let is_in_section = thread::nr_sections() > 0;
                if is_in_section {
                    shared.note_section(!self.in_device_section.replace(true));
                }
                is_in_section
            }
            KickPolicy::PerRequest => false,
            KickPolicy::LoopEnd => true,
        };
        if later { Commit::Later } else { Commit::Now }
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
            if self.in_device_section.replace(false) {
                shared.end_section();
            }
            if !is_next {
                self.commit(shared);
            }
        });
    }

    /// Commits the requests that a turn with [`Commit::Later`] has issued.
    pub(crate) fn commit(&self, shared: &Shared) {
        let hctx = shared.hctx(self.hctx());
        match hctx.try_take() {
            Some(mut token) => {
                token.commit();
                token.finish();
            }
            // The token holder turns once more, because of this mark, and commits in that turn.
            None => hctx.run_turn(),
        }
    }

    /// Unplugs the requests of `level` and above and sends them. Returns whether other requests
    /// stay in the plug.
    pub(crate) fn unplug(self: &Rc<Ctx>, cause: UnplugCause, level: u32) -> bool {
        let now = now_ns(self.is_timed);
        let is_due = {
            let mut queue = self.queue.borrow_mut();
            queue.unplug(cause, level, now);
            self.in_plug.set(queue.is_plugged());
            queue.has_outgoing()
        };
        if is_due {
            let commit = self.ends_section(cause).then_some(Commit::Now);
            let turned = self.with_shared(|shared| self.turn(shared, now, commit));
            if turned.is_none() {
                // Bios of dropped futures of a disk that is closed: they are discarded.
                self.queue.borrow_mut().outgoing().for_each(drop);
            }
        }
        self.in_plug.get()
    }

    /// Returns whether the end of this plug also ends the outermost section. Then the commit would
    /// be deferred for nothing, and is made at once.
    fn ends_section(&self, cause: UnplugCause) -> bool {
        self.kick == KickPolicy::Deferred
            && cause == UnplugCause::Outermost
            && thread::nr_sections() == 1
    }

    /// Unplugs the requests, for the turn that the caller makes next.
    pub(crate) fn detach(&self, cause: UnplugCause) {
        self.queue.borrow_mut().unplug(cause, 1, now_ns(self.is_timed));
        self.in_plug.set(false);
    }

    pub(crate) fn plug_policy(&self) -> PlugPolicy {
        self.plug_policy
    }

    /// Cleans up when the thread ends: sends the plugged requests and gives up the hardware
    /// context.
    pub(crate) fn retire(self: &Rc<Ctx>) {
        self.unplug(UnplugCause::Wait, 1);
        self.with_shared(|shared| {
            if shared.is_foreign() {
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
