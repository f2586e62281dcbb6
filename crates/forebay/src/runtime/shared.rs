//! The state of an open disk: what all its handles and threads share.
// It passes on what its callers vouch for.
#![allow(unsafe_code)]

use crate::arena::Arena;
use crate::claim::Claim;
use crate::driver::{Device, Mode, Waiter};
use crate::error::OpenError;
use crate::info::{DiskInfo, DiskStats};
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::ctx::Ctx;
use crate::runtime::event::AnyOf;
use crate::runtime::fork::Origin;
use crate::runtime::hctx::{Hctx, Inner, PoolUser, now_ns};
use crate::runtime::mailbox::Mailbox;
use crate::runtime::primitive::thread as runtime_thread;
use crate::runtime::primitive::{AtomicBool, Mutex, Ordering, lock};
use crate::runtime::run_queue::{self, RunWork, Worker};
use crate::runtime::service::{self, Service};
use crate::runtime::tag_pool::{TagPool, Woken};
use crate::runtime::{thread, wait};
use forebay_core::{
    Bio, BlockStatus, Commit, DeviceState, HardwareContext, LostWrites, Op, PlugCounters,
    QueueStats, Refusal, RunQueuePolicy, TagSet, UnplugCause,
};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// The hardware context that threads share; the others are owned.
pub(crate) const SHARED: usize = 0;

/// An open disk.
pub(crate) struct Shared {
    info: DiskInfo,
    device: Arc<dyn Device>,
    state: Arc<DeviceState>,
    hctxs: Arc<[Hctx]>,
    /// Which of the contexts have an owner.
    is_owned: Box<[AtomicBool]>,
    /// Waits in the driver of the shared context.
    waiter: Arc<dyn Waiter>,
    /// The descriptor for an event loop, once it was asked for.
    poll: OnceLock<AnyOf>,
    plugs: Mutex<Plugs>,
    origin: Origin,
    /// The thread that makes progress when no other is inside: of a disk with `service=on`, or
    /// started by a future. It stays here after it has stepped down, until the disk is closed.
    service: Mutex<Option<Service>>,
    /// It was asked for by `service=on`: it does not step down.
    keeps_service: bool,
    /// A thread of the disk or an event loop makes progress on the shared context. Never cleared,
    /// and set under the lock of `service`.
    is_driven: AtomicBool,
    /// The thread of a disk with `run_queue=always`.
    worker: Option<Worker>,
    /// How many threads are in a section of this device (`kick=per-device`). Nobody asks: it is
    /// there for what it costs.
    nr_sections: Mutex<u32>,
    /// How many holds there are on each gate.
    pub(crate) holds: Mutex<[u32; 3]>,
    /// Ends after all else: nobody gets the file before nothing of this disk is left.
    claim: Claim,
}

/// The counters of the threads' software queues.
#[derive(Default)]
struct Plugs {
    live: Vec<Arc<PlugCounters>>,
    /// Of threads that have ended.
    retired: PlugCounters,
}

impl Shared {
    /// An open disk on a device; with a thread of its own, if wanted; with tags that it shares with
    /// others, if there are such.
    pub(crate) fn new(
        info: DiskInfo,
        device: Arc<dyn Device>,
        with_service: bool,
        tags: Option<Arc<TagPool>>,
        claim: Claim,
    ) -> Result<Arc<Shared>, OpenError> {
        let origin = Origin::here();
        let nr_hctxs = info.policy.nr_hw_queues;
        let state = Arc::new(claim.new_state(nr_hctxs));
        let depth = info.policy.queue_depth;
        // One more than there are tags: for flushes.
        let queue = device.open_queue(depth + 1, Mode::Shared);
        let queue = queue.map_err(|source| device.refusal(source))?;
        device.check_for_errors(state.durability());
        let waiter = Arc::clone(&queue.waiter);
        let works = info.policy.run_queue == RunQueuePolicy::Always;
        let run_work = works.then(Arc::<RunWork>::default);
        let mut hctxs: Vec<_> = (0..nr_hctxs as usize)
            .map(|at| Hctx::new(at == SHARED, info.is_timed(), origin))
            .collect();
        hctxs[SHARED].run_work.clone_from(&run_work);
        let queue = match &run_work {
            Some(work) => run_queue::rearming(queue, work),
            None => queue,
        };
        let mut shared = Shared {
            device,
            hctxs: hctxs.into(),
            is_owned: (0..nr_hctxs as usize).map(|at| AtomicBool::new(at == SHARED)).collect(),
            waiter,
            poll: OnceLock::new(),
            plugs: Mutex::default(),
            origin,
            service: Mutex::default(),
            keeps_service: with_service,
            is_driven: AtomicBool::new(with_service),
            worker: None,
            nr_sections: Mutex::default(),
            holds: Mutex::default(),
            state,
            info,
            claim,
        };
        let own_set = || Arc::new(TagSet::new(depth));
        let set = tags.as_ref().map_or_else(own_set, |pool| Arc::clone(&pool.set));
        let core = shared.new_core(SHARED, set);
        shared.hctxs[SHARED].set_inner(Some(Inner::new(core, queue)));
        if with_service {
            let is_timed = shared.info.is_timed();
            let started = service::start(&shared.hctxs, &shared.waiter, is_timed);
            let started = started.map_err(|source| OpenError::Service { source })?;
            shared.service = Mutex::new(Some(started));
        }
        if let Some(work) = &run_work {
            let started = run_queue::start(&shared.hctxs, work);
            shared.worker = Some(started.map_err(|source| OpenError::Worker { source })?);
        }
        let shared = Arc::new(shared);
        if let Some(pool) = tags {
            shared.share_tags(&pool);
        }
        Ok(shared)
    }

    /// The disk, which nobody has used yet, is one of those that share a set of tags.
    fn share_tags(self: &Arc<Shared>, pool: &Arc<TagPool>) {
        let user = PoolUser::new(pool, &Arc::downgrade(self));
        // A thread of the disk may be at it.
        let mut token = loop {
            match self.hctxs[SHARED].try_take() {
                Some(token) => break token,
                None => runtime_thread::yield_now(),
            }
        };
        token.pool = Some(user);
        token.finish();
    }

    /// Makes the progress that tags of a set, which others have put, allow. `woken` are others, for
    /// which there are tags then.
    pub(crate) fn run_for_tags(&self, woken: &mut Woken) {
        self.hctxs[SHARED].run_for_tags(woken);
    }

    /// `kick=per-device`: a turn in a section, the first of it or another.
    pub(crate) fn note_section(&self, is_first: bool) {
        *lock(&self.nr_sections) += u32::from(is_first);
    }

    /// `kick=per-device`: a thread's section ends.
    pub(crate) fn end_section(&self) {
        *lock(&self.nr_sections) -= 1;
    }

    fn new_core(&self, at: usize, tags: Arc<TagSet>) -> HardwareContext {
        HardwareContext::new(
            self.info.limits,
            self.info.policy,
            at as u32,
            Arc::clone(&self.state),
            tags,
            Arc::clone(&self.hctxs[at].counters),
        )
    }

    pub(crate) fn info(&self) -> &DiskInfo {
        &self.info
    }

    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Memory that is registered with the device.
    pub(crate) fn arena(&self) -> Option<&Arc<Arena>> {
        self.device.arena()
    }

    /// Records the losses that the kernel knows of, and acknowledges all of them.
    pub(crate) fn acknowledge_loss(&self) -> Option<LostWrites> {
        if !self.is_foreign() {
            self.claim.check_before_acknowledging();
            self.device.check_for_errors(self.state.durability());
        }
        self.state.durability().acknowledge_loss()
    }

    pub(crate) fn device_state(&self) -> &DeviceState {
        &self.state
    }

    #[inline]
    pub(crate) fn hctx(&self, at: usize) -> &Hctx {
        &self.hctxs[at]
    }

    pub(crate) fn hctxs(&self) -> &[Hctx] {
        &self.hctxs
    }

    pub(crate) fn waiter(&self) -> &Arc<dyn Waiter> {
        &self.waiter
    }

    /// Whether it was opened by an ancestor of this process, and cannot be used.
    #[inline]
    pub(crate) fn is_foreign(&self) -> bool {
        self.origin.is_elsewhere()
    }

    pub(crate) fn stats(&self) -> DiskStats {
        let mut queue = QueueStats::default();
        let plugs = lock(&self.plugs);
        plugs.live.iter().for_each(|counters| queue.add_plugs(counters));
        queue.add_plugs(&plugs.retired);
        drop(plugs);
        let mut nr_syscalls = self.waiter.nr_syscalls();
        let (mut skipped_runs, mut tag_sleeps, mut tag_rescues) = (0, 0, 0);
        for hctx in self.hctxs.iter() {
            queue.add_runs(&hctx.counters);
            nr_syscalls += hctx.nr_syscalls();
            skipped_runs += hctx.nr_skipped();
            tag_sleeps += hctx.nr_tag_sleeps();
            tag_rescues += hctx.nr_tag_rescues();
        }
        let run_work = self.hctxs[SHARED].run_work.as_ref();
        let run_queue = run_work.map_or_else(Default::default, |work| work.stats());
        DiskStats { queue, nr_syscalls, skipped_runs, tag_sleeps, tag_rescues, run_queue }
    }

    pub(crate) fn new_plug_counters(&self) -> Arc<PlugCounters> {
        let counters = Arc::default();
        lock(&self.plugs).live.push(Arc::clone(&counters));
        counters
    }

    /// Returns whether a thread of the disk makes progress on the shared context. It may be about
    /// to step down if the driver has a descriptor.
    pub(crate) fn has_service(&self) -> bool {
        lock(&self.service).is_some()
    }

    /// Makes sure that something makes progress on the shared context while tasks sleep: starts the
    /// thread of the disk, unless there is one, or an event loop has asked for the disk's
    /// descriptor. Nothing is needed if every request ends in the turn that issues it.
    ///
    /// # Errors
    /// The system's error if it starts no thread.
    pub(crate) fn drive(&self) -> io::Result<()> {
        // Relaxed: a false is looked at again under the lock; a true needs nothing else.
        match self.is_driven.load(Ordering::Relaxed) || self.device.ends_at_once() {
            true => Ok(()),
            false => self.start_service(),
        }
    }

    #[cfg(test)]
    pub(crate) fn take_service(&self) -> Option<Service> {
        lock(&self.service).take()
    }

    #[cold]
    fn start_service(&self) -> io::Result<()> {
        let mut service = lock(&self.service);
        if !self.is_driven.load(Ordering::Relaxed) {
            *service = Some(service::start(&self.hctxs, &self.waiter, self.info.is_timed())?);
            self.is_driven.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The hardware context for a thread that uses the disk for the first time: one of its own, if
    /// one is left.
    pub(crate) fn assign(&self) -> usize {
        if self.is_foreign() {
            return SHARED;
        }
        // Acquire, with the release in `retire`: what the last owner has left is seen.
        let claim = |owned: &AtomicBool| {
            let swap = (Ordering::Acquire, Ordering::Relaxed);
            owned.compare_exchange(false, true, swap.0, swap.1).is_ok()
        };
        let Some(at) = self.is_owned.iter().position(claim) else {
            return SHARED;
        };
        match self.device.open_queue(self.info.policy.queue_depth + 1, Mode::Owned) {
            Ok(queue) => {
                // Its file was opened later than others on the same place.
                self.claim.check_after_open();
                self.device.check_for_errors(self.state.durability());
                let tags = Arc::new(TagSet::new(self.info.policy.queue_depth));
                let inner = Inner::new(self.new_core(at, tags), queue);
                self.hctxs[at].set_inner(Some(inner));
                at
            }
            // Short of memory or descriptors: the shared one does as well.
            Err(_) => {
                self.is_owned[at].store(false, Ordering::Release);
                SHARED
            }
        }
    }

    /// A thread ends: its counters are kept, and what it owned is free for another, drained.
    pub(crate) fn retire(&self, at: usize, counters: &Arc<PlugCounters>) {
        {
            let mut plugs = lock(&self.plugs);
            plugs.live.retain(|live| !Arc::ptr_eq(live, counters));
            plugs.retired.take_over(counters);
        }
        if at == SHARED {
            return;
        }
        AbortOnUnwind::guard(|| self.drain_owned(at));
        drop(self.hctxs[at].set_inner(None));
        self.is_owned[at].store(false, Ordering::Release);
    }

    /// Runs an owned context, by its owner, until nothing is in it. (Bios of a queue that was
    /// forgotten, for instance.)
    fn drain_owned(&self, at: usize) {
        let is_timed = self.info.is_timed();
        loop {
            let Some(mut token) = self.hctxs[at].run() else { continue };
            let turned = token.turn(now_ns(is_timed), Commit::Now, None, None);
            token.finish();
            if turned.is_drained && !turned.work_left {
                return;
            }
            wait::wait_as_owner(self, at, turned, 1);
        }
    }

    /// Makes the progress that can be made at once on the shared context.
    pub(crate) fn poll_shared(&self) {
        self.hctxs[SHARED].run_turn();
    }

    /// Says how many tags of each context may be in use. An owned context hears of it at its next
    /// turn.
    pub(crate) fn set_nr_requests(&self, nr_requests: u32) {
        self.hctxs.iter().for_each(|hctx| hctx.set_nr_requests(nr_requests));
        self.poll_shared();
    }

    /// Returns a descriptor that is readable when a turn of the shared context is due. It is
    /// readable at first, for the turn that sees that it exists. None if the driver has no
    /// descriptor, or the system has no room for one; and in a child of a fork, where the
    /// descriptor is the parent's, and so are the threads that may hold its locks.
    pub(crate) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        if self.is_foreign() {
            return None;
        }
        if self.poll.get().is_none() {
            self.begin_poll();
        }
        self.poll.get().map(AnyOf::fd)
    }

    /// Makes the descriptor, if it can be made. From then on an event loop drives the disk, and the
    /// thread that a future has started steps down.
    #[cold]
    fn begin_poll(&self) {
        let service = lock(&self.service);
        let hctx = &self.hctxs[SHARED];
        let watched = self.waiter.poll_fd().and_then(|fd| hctx.watch([fd]).ok());
        let Some(any) = watched else { return };
        // It fails if another thread came first.
        if self.poll.set(any).is_err() {
            return;
        }
        self.is_driven.store(true, Ordering::Relaxed);
        if let Some(service) = service.as_ref().filter(|_| !self.keeps_service) {
            service.step_down(hctx);
        }
        hctx.wake_loops();
    }

    /// Takes a bio in, and waits for its end. Says what became of it.
    ///
    /// # Safety
    /// The memory of `bio` is valid for the operation, and nobody else uses it as the operation
    /// excludes, until this returns.
    pub(crate) unsafe fn run(
        self: &Arc<Shared>,
        bio: Bio,
    ) -> Result<Result<u64, BlockStatus>, Refusal> {
        if self.is_foreign() {
            return Err(Refusal::Forked);
        }
        let ctx = match bio.op {
            // Whatever the thread owns: in one machine all of them share what is flushed.
            Op::Flush => thread::shared_ctx_of(self),
            _ => thread::blocking_ctx_of(self),
        };
        // Unwinding would give the memory back while a device may still use it.
        AbortOnUnwind::guard(|| {
            // SAFETY: the caller's obligations are passed on.
            unsafe { self.run_in(&ctx, bio) }
        })
    }

    /// As [`run`](Self::run), in what is the thread's part of this disk.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    pub(crate) unsafe fn run_in(
        &self,
        ctx: &Rc<Ctx>,
        bio: Bio,
    ) -> Result<Result<u64, BlockStatus>, Refusal> {
        let mut blocking = ctx.take_blocking();
        let boxed = blocking.boxed(bio);
        if let Err((refusal, boxed)) = ctx.queue_bio(boxed, now_ns(self.info.is_timed())) {
            blocking.put_box(boxed);
            ctx.put_blocking(blocking);
            return Err(refusal);
        }
        blocking.nr_queued += 1;
        thread::unplug_all(UnplugCause::Wait, Some(ctx));
        self.wait(ctx, &blocking.mailbox, blocking.nr_queued);
        let mut ended = blocking.mailbox.take().into_iter().flatten();
        let boxed = ended.next().expect("what was delivered is there");
        let result = boxed.result();
        blocking.put_box(boxed);
        ctx.put_blocking(blocking);
        Ok(result)
    }

    /// Waits until `goal` bios were delivered to `mailbox`, ever. What `ctx` has detached goes
    /// first.
    pub(crate) fn wait(&self, ctx: &Rc<Ctx>, mailbox: &Arc<Mailbox>, goal: u64) {
        if self.hctx(ctx.hctx()).is_shared {
            return wait::wait_shared(self, ctx, mailbox, goal);
        }
        let is_timed = self.info.is_timed();
        loop {
            let turned = ctx.turn(self, now_ns(is_timed), Some(Commit::Later));
            let nr_delivered = mailbox.nr_delivered();
            if nr_delivered >= goal {
                return ctx.commit(self);
            }
            if let Some(turned) = turned {
                let nr = u32::try_from(goal - nr_delivered).unwrap_or(u32::MAX);
                wait::wait_as_owner(self, ctx.hctx(), turned, nr);
            }
        }
    }
}

impl Drop for Shared {
    /// Waits for what is in flight: of futures that were dropped. (Whoever else has bios in flight
    /// has a handle, too.)
    fn drop(&mut self) {
        if self.is_foreign() {
            // Rings and requests are the parent's.
            std::mem::forget(Arc::clone(&self.hctxs));
            std::mem::forget(self.worker.take());
            return std::mem::forget(std::mem::take(&mut self.service));
        }
        if let Some(worker) = self.worker.take() {
            worker.end();
        }
        let service = lock(&self.service).take();
        if let Some(service) = service {
            service.end(&self.hctxs[SHARED], &*self.waiter);
        }
        let is_timed = self.info.is_timed();
        AbortOnUnwind::guard(|| {
            while let Some(mut token) = self.hctxs[SHARED].try_take() {
                let turned = token.turn(now_ns(is_timed), Commit::Now, None, None);
                token.finish();
                if turned.is_drained && !turned.work_left {
                    return;
                }
                let timeout = (turned.nr_in_flight == 0).then_some(wait::RESOURCE_DELAY);
                self.waiter.wait(timeout);
            }
        });
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("spec", &self.info.spec).finish_non_exhaustive()
    }
}
