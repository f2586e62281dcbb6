//! State of an open disk, shared by all its handles and threads.

mod driving;
mod owners;
mod scheduling;
mod tracing;

use crate::arena::Arena;
use crate::claim::Claim;
use crate::driver::{Device, Mode, Waiter};
use crate::error::OpenError;
use crate::events;
use crate::info::{DiskInfo, DiskStats};
use crate::runtime::abort::AbortOnUnwind;
use crate::runtime::emulation::Emulator;
use crate::runtime::failures::Failures;
use crate::runtime::hctx::{Hctx, Inner, PoolUser, SHARED, drain_owned, now_ns};
use crate::runtime::late::LateList;
use crate::runtime::meters::Meters;
use crate::runtime::owners::OwnerList;
#[cfg(test)]
use crate::runtime::service::Service;
use crate::runtime::timed::Timed;
use crate::runtime::trace::DiskTrace;
use crate::runtime::{leak, quarantine};
use crate::sys::clock;
use crate::sys::fork::Origin;
use crate::sys::primitive::thread as runtime_thread;
use crate::sys::primitive::{AtomicBool, AtomicU32, Mutex, Ordering};
use crate::tag_pool::{PoolDisk, TagPool, Woken};
pub(crate) use driving::Watched;
use driving::{Driving, Seat};
use forebay_core::wait::{Holds, RESOURCE_DELAY};
use forebay_core::{
    Commit, DeviceState, HardwareContext, LateRequests, LostWrites, PlugCounters, SubmitErrorKind,
    TagSet,
};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// An open disk.
pub(crate) struct Shared {
    info: DiskInfo,
    device: Arc<dyn Device>,
    state: Arc<DeviceState>,
    hctxs: Arc<[Hctx]>,
    /// Whether each hardware context has an owner.
    is_owned: Box<[AtomicBool]>,
    /// Waits in the driver of the shared context.
    waiter: Arc<dyn Waiter>,
    /// See [`Waiter::leaves_own_calls`].
    leaves_own_calls: bool,
    meters: Arc<Meters>,
    origin: Origin,
    /// The service thread, and the descriptor for event loops.
    driving: Driving,
    /// The limit of tags of contexts that are opened from now on; 0 means that of the policy.
    nr_requests: AtomicU32,
    /// Present if the disk emulates an earlier system.
    emulator: Option<Box<Emulator>>,
    /// Overdue requests, for `Disk::take_late_requests`.
    late: Arc<LateList>,
    pub(crate) holds: Mutex<Holds>,
    timed: Timed,
    owners: Arc<OwnerList>,
    trace: Arc<DiskTrace>,
    /// Dropped last: the file is released only after everything else of this disk is gone.
    claim: Claim,
}

impl Shared {
    /// Opens a disk on a device: starts a service thread if `with_service`, and takes tags from the
    /// shared set `tags` if there is one.
    pub(crate) fn new(
        info: DiskInfo,
        device: Arc<dyn Device>,
        with_service: bool,
        tags: Option<Arc<TagPool>>,
        claim: Claim,
    ) -> Result<Arc<Shared>, OpenError> {
        let (origin, owners) = (Origin::here(), Arc::new(OwnerList::new(&info.policy)));
        let trace = Arc::new(DiskTrace::new(&info.spec));
        let nr_hctxs = info.policy.nr_hw_queues;
        let failures = Failures::new(&info, &device);
        let mut state = claim.new_state(nr_hctxs);
        failures.listen_to(&mut state);
        let state = Arc::new(state);
        let depth = info.policy.queue_depth;
        // One more than there are tags: for flushes.
        let queue = device.open_queue(depth + 1, Mode::Shared);
        let queue = queue.map_err(|source| device.refusal(source))?;
        state.check_for_losses(|durability| device.check_for_errors(durability));
        let waiter = Arc::clone(&queue.waiter);
        let emulator = Emulator::of(info.policy.emulation);
        let timed = Timed::new(info.is_timed(info.policy.scheduler));
        let hctxs: Arc<[Hctx]> = (0..nr_hctxs as usize)
            .map(|at| {
                let (owners, trace) = (Arc::clone(&owners), Arc::clone(&trace));
                Hctx::new(at, timed.clone(), origin, owners, trace, failures.clone())
            })
            .collect();
        let queue = match &emulator {
            Some(emulator) => emulator.wrap(queue),
            None => queue,
        };
        let mut shared = Shared {
            device,
            meters: Arc::new(Meters::new(&info, &state, &hctxs, &owners)),
            hctxs,
            is_owned: (0..nr_hctxs as usize).map(|at| AtomicBool::new(at == SHARED)).collect(),
            leaves_own_calls: waiter.leaves_own_calls(),
            waiter,
            origin,
            driving: Driving::new(with_service),
            nr_requests: AtomicU32::new(0),
            emulator,
            late: Arc::new(LateList::new(failures)),
            holds: Mutex::default(),
            timed,
            owners,
            trace,
            state,
            info,
            claim,
        };
        let own_set = || Arc::new(TagSet::new(depth));
        let set = tags.as_ref().map_or_else(own_set, |pool| Arc::clone(&pool.set));
        let core = shared.new_core(SHARED, set);
        shared.hctxs[SHARED].set_inner(Some(Inner::new(core, queue)));
        if with_service {
            let started = shared.driving.start_service(shared.seat());
            started.map_err(|source| OpenError::Service { source })?;
        }
        if let Some(emulator) = &mut shared.emulator {
            emulator.start(&shared.hctxs).map_err(|source| OpenError::Worker { source })?;
        }
        let shared = Arc::new(shared);
        if let Some(pool) = tags {
            shared.share_tags(&pool);
        }
        Ok(shared)
    }

    /// Makes this disk, which is not in use yet, a user of a shared tag set.
    fn share_tags(self: &Arc<Shared>, pool: &Arc<TagPool>) {
        let this: Weak<Shared> = Arc::downgrade(self);
        let user = PoolUser::new(pool, this);
        // A thread of the disk may hold the token.
        let mut token = loop {
            match self.hctxs[SHARED].try_take() {
                Some(token) => break token,
                None => runtime_thread::yield_now(),
            }
        };
        token.core.note_shared_tags();
        token.set_pool(user);
        token.finish();
    }

    /// Returns the state of a disk that emulates an earlier system.
    pub(crate) fn emulator(&self) -> Option<&Emulator> {
        self.emulator.as_deref()
    }

    fn new_core(&self, at: usize, tags: Arc<TagSet>) -> HardwareContext {
        let mut core = HardwareContext::new(
            self.info.limits,
            self.info.policy,
            at as u32,
            Arc::clone(&self.state),
            tags,
            Arc::clone(&self.hctxs[at].counters),
        );
        core.set_new_hold(quarantine::new_hold);
        core.set_late_requests(Arc::clone(&self.late) as Arc<dyn LateRequests>);
        // Relaxed: a limit that is set after this load reaches the next turn of the context.
        match self.nr_requests.load(Ordering::Relaxed) {
            0 => {}
            nr_requests => core.set_nr_requests(nr_requests),
        }
        self.owners.pass_to(&mut core);
        core.set_trace(self.trace.context_writer(at));
        core
    }

    pub(crate) fn info(&self) -> &DiskInfo {
        &self.info
    }

    /// Returns the size in bytes up to which the disk accepts I/O. `None`: it has no fixed size.
    pub(crate) fn capacity_bytes(&self) -> Option<u64> {
        self.meters.size().get()
    }

    /// Reads the size of the file or device again; see `Disk::reread_size`.
    pub(crate) fn reread_size(&self) -> io::Result<Option<u64>> {
        match self.claim.len_bytes()? {
            None => self.device.reread_len(),
            len => Ok(len),
        }
    }

    /// Accepts I/O up to a larger size; see `Disk::grow`.
    pub(crate) fn grow(&self, size_bytes: u64) -> io::Result<()> {
        let spec = &self.info.spec;
        let refused = |why| {
            let what = format!("{spec}: cannot grow to {size_bytes} bytes: {why}");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        };
        match self.reread_size()? {
            None => Err(refused("its size is fixed while it is open".to_owned())),
            Some(len) if len < size_bytes => {
                Err(refused(format!("it has {len} bytes: extend it first")))
            }
            Some(_) => {
                let block = u64::from(self.info.limits.logical_block_size);
                self.meters.size().grow(size_bytes - size_bytes % block);
                Ok(())
            }
        }
    }

    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Returns the arena that is registered with the device.
    pub(crate) fn arena(&self) -> Option<&Arc<Arena>> {
        self.device.arena()
    }

    /// Returns the right to the file or device.
    #[cfg(test)]
    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Records a loss that a file opened just now will not report (O2).
    fn check_after_open(&self) {
        self.state.check_for_losses(|durability| {
            self.claim.check_after_open();
            self.device.check_for_errors(durability);
        });
    }

    /// Records the losses that the kernel has recorded and not reported, and acknowledges all of
    /// them.
    pub(crate) fn acknowledge_loss(&self) -> Option<LostWrites> {
        if !self.is_after_fork() {
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

    pub(crate) fn late(&self) -> &LateList {
        &self.late
    }

    pub(crate) fn hctxs(&self) -> &[Hctx] {
        &self.hctxs
    }

    /// Returns whether callers can register memory with the queues of the device.
    pub(crate) fn can_register_memory(&self) -> bool {
        self.device.can_register_memory()
    }

    pub(crate) fn waiter(&self) -> &Arc<dyn Waiter> {
        &self.waiter
    }

    /// Returns whether an ancestor of this process opened the disk, which makes it unusable here.
    #[inline]
    pub(crate) fn is_after_fork(&self) -> bool {
        self.origin.is_elsewhere()
    }

    pub(crate) fn stats(&self) -> DiskStats {
        let mut stats = self.meters.stats();
        if let Some(emulator) = self.emulator() {
            emulator.add_to(&mut stats.queue.emulation);
        }
        stats
    }

    /// Returns the counters, for readers without a handle of the disk.
    pub(crate) fn meters(&self) -> &Arc<Meters> {
        &self.meters
    }

    pub(crate) fn new_plug_counters(&self) -> Arc<PlugCounters> {
        self.meters.add_thread()
    }

    /// Returns the parts of the disk that its service thread uses.
    fn seat(&self) -> Seat<'_> {
        // A limit holds back I/O that the device would end at once.
        let ends_at_once = self.device.ends_at_once() && !self.owners.is_used();
        Seat { hctxs: &self.hctxs, waiter: &self.waiter, ends_at_once }
    }

    /// Returns whether the service thread exists. It may be about to step down if the driver has a
    /// descriptor.
    pub(crate) fn has_service(&self) -> bool {
        self.driving.has_service()
    }

    /// Ensures progress on the shared context while tasks sleep: see [`Driving::drive`].
    ///
    /// # Errors
    /// The OS error if the thread cannot be started.
    pub(crate) fn drive(&self) -> io::Result<()> {
        self.driving.drive(self.seat())
    }

    #[cfg(test)]
    pub(crate) fn take_service(&self) -> Option<Service> {
        self.driving.take_service()
    }

    /// Assigns a hardware context to a thread that uses the disk for the first time: an owned one
    /// if one is free, otherwise the shared one.
    pub(crate) fn assign(&self) -> usize {
        if self.is_after_fork() {
            return SHARED;
        }
        // Acquire: pairs with the release in `retire`, so the writes of the last owner are visible.
        let claim = |owned: &AtomicBool| {
            let swap = (Ordering::Acquire, Ordering::Relaxed);
            owned.compare_exchange(false, true, swap.0, swap.1).is_ok()
        };
        let Some(at) = self.is_owned.iter().position(claim) else {
            return SHARED;
        };
        match self.device.open_queue(self.info.policy.queue_depth + 1, Mode::Owned) {
            Ok(queue) => {
                // The queue's file was opened later than other files of the same device.
                self.check_after_open();
                let tags = Arc::new(TagSet::new(self.info.policy.queue_depth));
                let inner = Inner::new(self.new_core(at, tags), queue);
                self.hctxs[at].set_inner(Some(inner));
                at
            }
            // Out of memory or descriptors: the thread uses the shared context instead.
            Err(_) => {
                self.is_owned[at].store(false, Ordering::Release);
                SHARED
            }
        }
    }

    /// Releases the per-thread state of a thread that ends: keeps its counters, and drains and
    /// frees the context that it owned.
    pub(crate) fn retire(&self, at: usize, counters: &Arc<PlugCounters>) {
        self.meters.retire_thread(counters);
        if at == SHARED {
            return;
        }
        // The context may still have bios, for example those of a queue that was leaked.
        AbortOnUnwind::guard(|| drain_owned(&self.hctxs[at]));
        self.close_hctx(at);
        self.is_owned[at].store(false, Ordering::Release);
    }

    /// Frees the inner part of a drained context. Leaks it if its driver still has requests that
    /// were given up ([`leak`]).
    fn close_hctx(&self, at: usize) {
        let inner = self.hctxs[at].set_inner(None);
        match inner.filter(|inner| inner.core.has_only_given_up()) {
            None => {}
            Some(inner) => leak::leak(inner, &self.device, &self.claim),
        }
    }

    /// Runs a turn of the shared context, which makes all progress that is possible without
    /// waiting.
    pub(crate) fn poll_shared(&self) {
        self.hctxs[SHARED].run_turn();
    }

    /// Sets the number of tags of each context that may be in use. An owned context applies it in
    /// its next turn.
    pub(crate) fn set_nr_requests(&self, nr_requests: u32) {
        self.nr_requests.store(nr_requests, Ordering::Relaxed);
        self.hctxs.iter().for_each(|hctx| hctx.set_nr_requests(nr_requests));
        self.run_for_changes();
    }

    /// Runs the shared context, and wakes the event loops of owned ones, because their next turn
    /// may have more to do.
    fn run_for_changes(&self) {
        self.poll_shared();
        self.hctxs.iter().filter(|hctx| !hctx.is_shared).for_each(Hctx::wake_loops);
    }

    /// Returns a descriptor that is readable when a turn of the shared context is due. It is
    /// readable at first, so that the first turn sees that the descriptor exists. From the first
    /// call on, an event loop drives the disk until it is closed.
    ///
    /// # Errors
    /// Same as [`Shared::begin_loop`].
    pub(crate) fn poll_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.check_not_forked()?;
        self.driving.poll_fd(self.seat())
    }

    /// Begins an event loop, which drives the disk until [`Shared::end_loop`]. Returns the
    /// descriptor that it watches, which is readable at first.
    ///
    /// # Errors
    /// The OS error if the system cannot create another descriptor. Fails in a child of a fork too:
    /// the descriptor belongs to the parent, and the parent's threads may hold its locks.
    pub(crate) fn begin_loop(&self) -> io::Result<Arc<Watched>> {
        self.check_not_forked()?;
        self.driving.begin_loop(self.seat())
    }

    /// Ends an event loop.
    pub(crate) fn end_loop(&self) {
        if !self.is_after_fork() {
            self.driving.end_loop(self.seat());
        }
    }

    fn check_not_forked(&self) -> io::Result<()> {
        match self.is_after_fork() {
            true => Err(io::Error::other(SubmitErrorKind::Forked)),
            false => Ok(()),
        }
    }

    /// Returns whether threads may make I/O of their own: see [`Waiter::leaves_own_calls`].
    pub(crate) fn leaves_own_calls(&self) -> bool {
        self.leaves_own_calls
    }
}

impl PoolDisk for Shared {
    fn run_for_tags(&self, woken: &mut Woken) {
        self.hctxs[SHARED].run_for_tags(woken);
    }
}

impl Drop for Shared {
    /// Waits for the bios in flight. They belong to dropped futures: all other submitters of bios
    /// in flight hold a handle of the disk.
    fn drop(&mut self) {
        self.meters.close();
        if self.is_after_fork() {
            // Rings and requests belong to the parent.
            std::mem::forget(Arc::clone(&self.hctxs));
            std::mem::forget(self.emulator.take());
            return self.driving.forget();
        }
        if let Some(emulator) = &mut self.emulator {
            emulator.end();
        }
        self.driving.end(&self.hctxs[SHARED], &*self.waiter);
        self.remove_owners();
        let is_timed = self.is_timed();
        AbortOnUnwind::guard(|| {
            while let Some(mut token) = self.hctxs[SHARED].try_take() {
                let turned = token.turn(now_ns(is_timed), Commit::Now);
                token.finish();
                if turned.is_drained() && !turned.work_left() {
                    break;
                }
                let delay = (turned.nr_in_flight() == 0).then_some(RESOURCE_DELAY);
                // W7.
                let left = |at_ns: u64| Duration::from_nanos(at_ns.saturating_sub(clock::now_ns()));
                let until_deadline = turned.deadline().map(left);
                self.waiter.wait(delay.into_iter().chain(until_deadline).min());
            }
            // The queues on owned contexts are gone, so these are drained as well. Their threads
            // may live on.
            (0..self.hctxs.len()).for_each(|at| self.close_hctx(at));
        });
        self.trace.close();
        events::closed(&self.info.spec);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("spec", &self.info.spec).finish_non_exhaustive()
    }
}
