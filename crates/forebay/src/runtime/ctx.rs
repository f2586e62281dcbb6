//! A thread's part of a disk: its software queue, and the hardware context that it leads to.

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
/// Counterpart in Linux: `struct blk_mq_ctx`, which is a processor's.
pub(crate) struct Ctx {
    shared: Weak<Shared>,
    /// A handle for as long as the thread has queues on it: then the disk is open, and does not
    /// have to be looked for.
    kept: Cell<Option<Arc<Shared>>>,
    nr_queues: Cell<u32>,
    /// The list of the queue that was made last: this thread's turns put its ends there.
    ready: RefCell<Option<Rc<RefCell<Ready>>>>,
    /// That queue has asked for the turn that is under way, and will look.
    is_attended: Cell<bool>,
    /// Which of the disk's hardware contexts.
    hctx: Cell<usize>,
    queue: RefCell<SoftwareQueue>,
    counters: Arc<PlugCounters>,
    plug_policy: PlugPolicy,
    kick: KickPolicy,
    /// Whether a commit was put off.
    is_deferred: Cell<bool>,
    /// Whether the device counts a section of this thread (`kick=per-device`).
    in_device_section: Cell<bool>,
    is_timed: bool,
    /// Whether the thread's plug knows of this disk.
    in_plug: Cell<bool>,
    /// What the thread's blocking calls use, one at a time.
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

    /// Whether the disk is open.
    pub(crate) fn is_live(&self) -> bool {
        self.shared.strong_count() > 0
    }

    #[inline]
    pub(crate) fn hctx(&self) -> usize {
        self.hctx.get()
    }

    /// The thread has one more queue on it.
    pub(crate) fn open_queue(&self, shared: &Arc<Shared>, ready: &Rc<RefCell<Ready>>) {
        assert!(self.is_of(shared));
        *self.ready.borrow_mut() = Some(Rc::clone(ready));
        self.nr_queues.update(|nr| nr + 1);
        self.kept.set(Some(Arc::clone(shared)));
    }

    /// The thread has one queue less on it.
    pub(crate) fn close_queue(&self, closed: &Rc<RefCell<Ready>>) {
        self.ready.borrow_mut().take_if(|ready| Rc::ptr_eq(ready, closed));
        self.nr_queues.update(|nr| nr - 1);
        if self.nr_queues.get() == 0 {
            self.kept.take();
        }
    }

    /// Does something with the disk, if it is open. What wakes somebody may come back here, and
    /// open and close queues: so the handle is taken out meanwhile.
    #[inline]
    fn with_shared<T>(&self, work: impl FnOnce(&Shared) -> T) -> Option<T> {
        let shared = self.kept.take().or_else(|| self.shared.upgrade())?;
        let result = work(&shared);
        if self.nr_queues.get() > 0 {
            self.kept.set(Some(shared));
        }
        Some(result)
    }

    /// What a blocking call uses. It is given back by [`Ctx::put_blocking`].
    pub(crate) fn take_blocking(&self) -> Blocking {
        self.blocking.take().unwrap_or_else(Blocking::new)
    }

    /// Keeps it for the next call.
    pub(crate) fn put_blocking(&self, blocking: Blocking) {
        self.blocking.set(Some(blocking));
    }

    /// Takes a bio in: into the plug, or on its way to the hardware context. True: something is on
    /// its way, and [`Ctx::turn`] is due.
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

    /// One turn, or several, of the hardware context, with what is outgoing; the first says what
    /// is left. What is issued is committed when `commit` says, or by the disk's policy. None
    /// where another thread holds the token, and turns in our place.
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

    /// As [`Ctx::turn`], for a queue, which looks at its ends after it.
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
        // Before wakers run.
        self.is_attended.set(false);
        let (token, turned) = turned?;
        token.finish();
        Some(turned)
    }

    /// As [`Ctx::turn`], one turn, and keeps the token.
    #[inline]
    pub(crate) fn turn_and_hold<'a>(
        self: &Rc<Ctx>,
        shared: &'a Shared,
        now: u64,
        commit: Option<Commit>,
    ) -> Option<(Token<'a>, Turned)> {
        let hctx = shared.hctx(self.hctx());
        let mut queue = self.queue.borrow_mut();
        // What was published before is taken in first; so nothing of this thread is overtaken.
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
            // Who waits in a shared context, as others do, waits for its mailbox.
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
            // What is put off is the thread's own; others may wait for what is theirs (I5).
            match token.core.nr_uncommitted() {
                0 => {}
                nr if hctx.is_shared && nr > nr_before + nr_own => token.commit(),
                _ => self.put_off(&mut token),
            }
        }
        Some((token, turned))
    }

    /// Whether a commit that could be made now is, by the disk's policy.
    #[inline]
    fn when_to_commit(&self, shared: &Shared) -> Commit {
        let later = match self.kick {
            // What is let through level by level goes level by level, as it did before that patch.
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

    /// Puts the commit off. (D6: there are at most as many requests in it as tags.)
    fn put_off(self: &Rc<Ctx>, token: &mut Token<'_>) {
        if self.is_deferred.get() {
            return;
        }
        match thread::defer_commit(self) {
            true => self.is_deferred.set(true),
            false => token.commit(),
        }
    }

    /// Whether commits are put off beyond the end of a section.
    pub(crate) fn commits_at_wait(&self) -> bool {
        self.kick == KickPolicy::LoopEnd
    }

    /// Makes a commit that was put off; or not, where the caller does so next.
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

    /// Commits what a turn with [`Commit::Later`] has issued.
    pub(crate) fn commit(&self, shared: &Shared) {
        let hctx = shared.hctx(self.hctx());
        match hctx.try_take() {
            Some(mut token) => {
                token.commit();
                token.finish();
            }
            // The holder turns once more, for this mark, and commits in that turn.
            None => hctx.run_turn(),
        }
    }

    /// Unplugs the requests of `level` and above and sends them. Says whether others stay in the
    /// plug.
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
                // Bios of futures that were dropped, as the disk was: they are forgotten.
                self.queue.borrow_mut().outgoing().for_each(drop);
            }
        }
        self.in_plug.get()
    }

    /// Whether the section that a commit would be put off to the end of ends with this plug: then
    /// it is made at once.
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

    /// The thread ends: what it has plugged goes, and its hardware context is given up.
    pub(crate) fn retire(self: &Rc<Ctx>) {
        self.unplug(UnplugCause::Wait, 1);
        self.with_shared(|shared| {
            if shared.is_foreign() {
                return;
            }
            // D5: what was put off is done.
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
