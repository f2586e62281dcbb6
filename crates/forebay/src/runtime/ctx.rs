//! A thread's part of a disk: its software queue, and the hardware context that it leads to.

use crate::runtime::fork;
use crate::runtime::hctx::{Own, now_ns};
use crate::runtime::shared::Shared;
use crate::runtime::thread;
use forebay_core::{
    Commit, PlugCounters, PlugPolicy, QueuedBio, Refusal, SoftwareQueue, Turned, UnplugCause,
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
    /// Which of the disk's hardware contexts.
    hctx: Cell<usize>,
    queue: RefCell<SoftwareQueue>,
    counters: Arc<PlugCounters>,
    plug_policy: PlugPolicy,
    iostats: bool,
    /// Whether the thread's plug knows of this disk.
    in_plug: Cell<bool>,
}

impl Ctx {
    pub(crate) fn new(shared: &Arc<Shared>, hctx: usize) -> Rc<Ctx> {
        let counters = shared.new_plug_counters();
        let info = shared.info();
        let queue = SoftwareQueue::new(info.limits, info.policy, Arc::clone(&counters));
        Rc::new(Ctx {
            shared: Arc::downgrade(shared),
            hctx: Cell::new(hctx),
            queue: RefCell::new(queue),
            counters,
            plug_policy: info.policy.plug,
            iostats: info.policy.iostats,
            in_plug: Cell::new(false),
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

    /// Takes a bio in: into the plug, or on its way to the hardware context, and then
    /// [`Ctx::send`] is due.
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

    /// One turn, or several, of the hardware context, with what is outgoing; the last of them
    /// says what is left. None where another thread holds the token, and turns in our place.
    #[inline]
    pub(crate) fn turn(
        &self,
        shared: &Shared,
        now: u64,
        commit: Commit,
        own: Option<Own<'_>>,
    ) -> Option<Turned> {
        if fork::is_child() {
            return None;
        }
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
        let turned = token.turn(now, commit, ctx, own);
        token.finish(self.iostats);
        Some(turned)
    }

    /// Commits what a turn with [`Commit::Later`] has issued.
    pub(crate) fn commit(&self, shared: &Shared) {
        // Where another holds the token, it commits.
        if let Some(mut token) = shared.hctx(self.hctx()).try_take() {
            token.commit();
            token.finish(self.iostats);
        }
    }

    /// Unplugs the requests of `level` and above and sends them. Says whether others stay in the
    /// plug.
    pub(crate) fn unplug(&self, cause: UnplugCause, level: u32) -> bool {
        let now = now_ns(self.iostats);
        let is_due = {
            let mut queue = self.queue.borrow_mut();
            queue.unplug(cause, level, now);
            self.in_plug.set(queue.is_plugged());
            queue.has_outgoing()
        };
        if is_due {
            match self.shared.upgrade() {
                Some(shared) => drop(self.turn(&shared, now, Commit::Now, None)),
                // Bios of futures that were dropped, as the disk was: they are forgotten.
                None => self.queue.borrow_mut().outgoing().for_each(drop),
            }
        }
        self.in_plug.get()
    }

    /// Unplugs the requests, for the turn that the caller makes next.
    pub(crate) fn detach(&self, cause: UnplugCause) {
        self.queue.borrow_mut().unplug(cause, 1, now_ns(self.iostats));
        self.in_plug.set(false);
    }

    pub(crate) fn plug_policy(&self) -> PlugPolicy {
        self.plug_policy
    }

    /// The thread ends: what it has plugged goes, and its hardware context is given up.
    pub(crate) fn retire(&self) {
        if fork::is_child() {
            return;
        }
        self.unplug(UnplugCause::Wait, 1);
        if let Some(shared) = self.shared.upgrade() {
            shared.retire(self.hctx.replace(0), &self.counters);
        }
    }
}

impl fmt::Debug for Ctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx").field("hctx", &self.hctx).finish_non_exhaustive()
    }
}
