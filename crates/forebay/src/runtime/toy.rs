//! Toy disk for models: the model decides when its device completes requests, and the device waits
//! through primitives that a checker sees.
//!
//! It is as strict as a driver may be, and as the ring of `file` is. A wait returns as soon as the
//! total number of posted completions exceeds the number that had been reaped when the wait began.
//! A kick is a completion of the device's own: a kick that is reaped before the wait begins wakes
//! no thread, which K8 excludes.
//!
//! No time passes in a model. If the device is busy at times ([`How::nr_busy`]), a wait with a
//! timeout returns after a pause: then only the timeout ends it. Otherwise the timeout never ends a
//! wait: a lost wake-up must show as a deadlock, and not be hidden by a leader that tries again
//! every 3 ms. A wait with a deadline ([`How::flush_pending_ns`], [`How::io_timeout_ns`]) returns
//! after a pause, too.
//!
//! The pause ([`pause_for`]) is needed because such a timeout is as long as thousands of turns. The
//! leader of a context whose token another thread holds requests one more turn before each wait. If
//! its waits returned at once, a random scheduler would let it do so within nearly every turn, and
//! that thread would not get out of its loop of turns.
//!
//! Each bio has a page, which the device writes when it completes the request. So a checker sees
//! whether the device's write happens before the owner's read after the bio has ended.
// It dereferences the addresses of segments.
#![allow(unsafe_code)]

mod contents;

pub(crate) use contents::Contents;

use crate::claim::Claim;
use crate::driver::{Device, DriverQueue, Mode, Waiter};
use crate::info::{DiskFacts, DiskInfo, OpenedWith};
use crate::runtime::hctx::SHARED;
use crate::runtime::mailbox::Mailbox;
use crate::runtime::shared::Shared;
use crate::runtime::thread::Ctx;
use crate::sys::event::Event;
use crate::sys::primitive::{Condvar, Mutex, UnsafeCell, lock, pause_for};
use crate::tag_pool::TagPool;
use forebay_core::wait::RESOURCE_DELAY;
use forebay_core::{
    Bio, BioFlags, BlockStatus, Completions, Driver, Emulation, Issue, IssuedRequest, Op, Policy,
    QueueLimits, QueuedBio, Reap, Segment, Tag, WakePolicy,
};
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Behaviour of a toy device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// The first hardware context is shared, the others are owned.
    pub(crate) nr_hw_queues: u32,
    pub(crate) queue_depth: u32,
    /// Number of requests that the device completes at once, the newest first.
    pub(crate) batch: usize,
    /// Number of times that the device is busy at first.
    pub(crate) nr_busy: u32,
    pub(crate) by: By,
    /// A wait begins the requests that were left to it. Not for [`By::Silence`].
    pub(crate) begins: bool,
    pub(crate) wake: WakePolicy,
    /// Completions queue runs for a worker (`run_queue=always`).
    pub(crate) queues_runs: bool,
    /// The device has a volatile cache, and accepts a flush only when no other command is in
    /// flight.
    pub(crate) flushes_alone: bool,
    /// If not 0, the device has a volatile cache, and a pending flush waits for other writes at
    /// most this long (F6).
    pub(crate) flush_pending_ns: u64,
    /// If not 0, the time limit of requests; a request that is over it is given up at once.
    pub(crate) io_timeout_ns: u64,
    /// The device has a descriptor, which is never readable: models call [`Toy::has_done`] instead.
    pub(crate) has_fd: bool,
}

/// Completion mode of a toy device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The thread that commits it. The completion wakes the waiting thread.
    Commit,
    /// Same as `Commit`, but no wait reports the completion ([`Driver::has_ready`]).
    Silence,
    /// A thread of the device, which runs [`Toy::work`].
    Thread,
}

/// Completes each request on its own, when it is committed.
pub(crate) const AT_ONCE: How = How {
    nr_hw_queues: 1,
    queue_depth: 8,
    batch: 1,
    nr_busy: 0,
    by: By::Commit,
    begins: false,
    wake: WakePolicy::Fair,
    queues_runs: false,
    flushes_alone: false,
    flush_pending_ns: 0,
    io_timeout_ns: 0,
    has_fd: false,
};

/// A toy device.
pub(crate) struct Toy {
    how: How,
    limits: QueueLimits,
    has_contents: bool,
    state: Mutex<State>,
    /// Wakes the thread that waits beside the driver.
    completed: Condvar,
    /// Wakes the device's thread.
    committed: Condvar,
}

#[derive(Default)]
struct State {
    /// Requests left to the next wait, which begins them.
    left: Vec<AtDevice>,
    /// Requests left to a wait that did not follow. The next reap begins them.
    taken_back: Vec<AtDevice>,
    at_device: Vec<AtDevice>,
    done: Vec<AtDevice>,
    contents: Option<Contents>,
    /// The thread of the device ends once it has no requests.
    is_closed: bool,
    is_kicked: bool,
    /// Kicks have no effect from now on, and waits return at once ([`Toy::end_ring`]).
    has_ended: bool,
    /// Waits that began before return as well ([`Toy::exit`]).
    has_exited: bool,
    /// Total number of completions and kicks.
    nr_posted: u64,
    nr_reaped: u64,
}

struct AtDevice {
    tag: Tag,
    op: Op,
    start: u64,
    len: u64,
    /// The addresses of its pages, one for each sector. A flush has none.
    pages: Vec<usize>,
    result: Result<u64, BlockStatus>,
    /// For a device with contents: whether it has taken effect, and its place in the order.
    is_applied: bool,
    rank: u64,
}

/// The buffer of a read.
#[derive(Default)]
pub(crate) struct Page(UnsafeCell<u64>);

// SAFETY: the device accesses it from submission to end, and its owner before and after.
unsafe impl Sync for Page {}

impl Page {
    /// Returns a bio that reads into it.
    pub(crate) fn bio(&self) -> Bio {
        Bio::data(Op::Read, 0, Segment { addr: self.addr(), len: 512 })
    }

    /// Returns a page with a value, for a device with contents.
    pub(crate) fn of(value: u64) -> Page {
        Page(UnsafeCell::new(value))
    }

    /// Returns its address.
    pub(crate) fn addr(&self) -> usize {
        std::ptr::from_ref(self).expose_provenance()
    }

    /// Returns how often the device wrote it; or its value, if the device has contents.
    pub(crate) fn nr_written(&self) -> u64 {
        // SAFETY: called by the owner, which has seen the end of the bio.
        self.0.with(|nr| unsafe { *nr })
    }

    /// Writes the page. Called by the device.
    ///
    /// # Safety
    /// `addr` is the address of a page with a bio that is at the device.
    unsafe fn write(addr: usize) {
        // SAFETY: the caller's obligation.
        let page = unsafe { &*std::ptr::with_exposed_provenance::<Page>(addr) };
        // SAFETY: the device has exclusive access to the page.
        page.0.with_mut(|nr| unsafe { *nr += 1 });
    }

    /// Sets the value of a page. Called by the device.
    ///
    /// # Safety
    /// `addr` is the address of a page of a read that is at the device.
    unsafe fn set(addr: usize, value: u64) {
        // SAFETY: the caller's obligation.
        let page = unsafe { &*std::ptr::with_exposed_provenance::<Page>(addr) };
        // SAFETY: the device has exclusive access to the page.
        page.0.with_mut(|place| unsafe { *place = value });
    }

    /// Returns the value of a page. Called by the device.
    ///
    /// # Safety
    /// `addr` is the address of a page of a write that is at the device.
    unsafe fn get(addr: usize) -> u64 {
        // SAFETY: the caller's obligation.
        let page = unsafe { &*std::ptr::with_exposed_provenance::<Page>(addr) };
        page.nr_written()
    }
}

impl Toy {
    pub(crate) fn new(how: How) -> Arc<Toy> {
        let limits = QueueLimits::default()
            .capacity_bytes(None)
            .volatile_cache(how.flushes_alone || how.flush_pending_ns > 0)
            .flush_queueable(!how.flushes_alone);
        Toy::with(how, limits, None)
    }

    /// Creates a device with contents. [`Toy::serve`] completes its requests.
    pub(crate) fn with_contents(limits: QueueLimits, how: How, contents: Contents) -> Arc<Toy> {
        Toy::with(How { by: By::Thread, ..how }, limits, Some(contents))
    }

    fn with(how: How, limits: QueueLimits, contents: Option<Contents>) -> Arc<Toy> {
        let has_contents = contents.is_some();
        let state = Mutex::new(State { contents, ..State::default() });
        let (completed, committed) = (Condvar::new(), Condvar::new());
        Arc::new(Toy { how, limits, has_contents, state, completed, committed })
    }

    /// Opens a disk on a new device with this behaviour.
    pub(crate) fn disk(how: How) -> Arc<Shared> {
        Toy::open(&Toy::new(how))
    }

    pub(crate) fn open(toy: &Arc<Toy>) -> Arc<Shared> {
        Toy::open_with(toy, None)
    }

    /// Same as [`Toy::open`], with a tag set that other disks use as well.
    pub(crate) fn open_with(toy: &Arc<Toy>, tags: Option<Arc<TagPool>>) -> Arc<Shared> {
        let How { nr_hw_queues, queue_depth, wake, queues_runs, .. } = toy.how;
        let emulation = Emulation::default().wake(wake).run_queue_always(queues_runs);
        let iostats = false;
        let default = Policy::default();
        let mut policy = default
            .nr_hw_queues(nr_hw_queues)
            .queue_depth(queue_depth)
            .emulation(emulation)
            .iostats(iostats);
        if toy.how.flush_pending_ns > 0 {
            policy.flush_pending_ns = toy.how.flush_pending_ns;
        }
        (policy.io_timeout_ns, policy.io_timeout_grace_ns) = (toy.how.io_timeout_ns, 0);
        let info = DiskInfo {
            spec: String::from("toy"),
            driver: "toy",
            limits: toy.limits,
            policy,
            exclusive: false,
            lock: None,
            takeover_wait_ms: None,
            service: false,
            tag_set: None,
            facts: DiskFacts::default(),
            features: Vec::new(),
            notice: None,
            opened_with: OpenedWith::default(),
        };
        let device = Arc::new(ToyDevice(Arc::clone(toy)));
        Shared::new(info, device, false, tags, Claim::memory())
            .expect("a toy has no system to fail")
    }

    /// Returns whether the driver's descriptor would be readable, because a completion or a kick
    /// was posted. Always false under [`By::Silence`].
    pub(crate) fn has_done(&self) -> bool {
        let state = lock(&self.state);
        self.how.by != By::Silence && state.nr_posted > state.nr_reaped
    }

    /// Completes `nr` requests, as they come. Called by the device's thread.
    pub(crate) fn work(&self, nr: usize) {
        let mut nr_done = 0;
        while nr_done < nr {
            let mut state = lock(&self.state);
            while state.at_device.len() < self.how.batch {
                state = self.committed.wait(state).expect("no thread panics under the lock");
            }
            let nr_before = state.at_device.len();
            self.complete(&mut state);
            nr_done += nr_before - state.at_device.len();
        }
    }

    /// Waits until `nr` requests are at the device. Called by the device's thread.
    pub(crate) fn await_requests(&self, nr: usize) {
        let mut state = lock(&self.state);
        while state.at_device.len() < nr {
            state = self.committed.wait(state).expect("no thread panics under the lock");
        }
    }

    /// Waits until a read is at the device, and completes it. Called by the device's thread.
    #[cfg(not(blk_loom))]
    pub(crate) fn await_read(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(place) = state.at_device.iter().position(|rq| rq.op == Op::Read) {
                state.at_device.swap(0, place);
                Toy::complete_batch(&mut state, 1);
                return self.completed.notify_one();
            }
            state = self.committed.wait(state).expect("no thread panics under the lock");
        }
    }

    /// Returns the number of requests that were begun and have not completed.
    pub(crate) fn nr_at_device(&self) -> usize {
        lock(&self.state).at_device.len()
    }

    /// Begins all requests that were committed, taken back, or left to a wait.
    fn begin(&self, state: &mut State) {
        let State { left, taken_back, at_device, contents, .. } = state;
        let nr_before = at_device.len();
        at_device.append(taken_back);
        at_device.append(left);
        if let Some(contents) = contents {
            at_device[nr_before..].iter_mut().for_each(|rq| contents.begin(rq));
        }
        if self.how.by == By::Thread {
            self.committed.notify_one();
        } else if state.at_device.len() >= self.how.batch {
            self.complete(state);
        }
    }

    /// Completes the request that was begun first. Called by the device's thread.
    #[cfg(not(blk_shuttle))]
    pub(crate) fn complete_one(&self) {
        Toy::complete_batch(&mut lock(&self.state), 1);
        self.completed.notify_one();
    }

    fn complete_batch(state: &mut State, nr: usize) {
        let State { at_device, done, nr_posted, contents, .. } = state;
        for mut rq in at_device.drain(..nr).rev() {
            match contents {
                Some(contents) => contents.complete(&mut rq),
                // SAFETY: the request is at the device.
                None => rq.pages.iter().for_each(|page| unsafe { Page::write(*page) }),
            }
            done.push(rq);
            *nr_posted += 1;
        }
    }

    fn complete(&self, state: &mut State) {
        while state.at_device.len() >= self.how.batch {
            Toy::complete_batch(state, self.how.batch);
        }
        if self.how.by != By::Silence {
            self.completed.notify_one();
        }
    }

    /// Completes requests one by one, with contents in a random order, until the device is closed
    /// and has none. Called by the device's thread.
    pub(crate) fn serve(&self) {
        loop {
            let mut state = lock(&self.state);
            while state.at_device.is_empty() {
                if state.is_closed {
                    return;
                }
                state = self.committed.wait(state).expect("no thread panics under the lock");
            }
            let State { contents, at_device, .. } = &mut *state;
            let place = contents.as_mut().map_or(0, |contents| contents.pick(at_device));
            at_device.swap(0, place);
            Toy::complete_batch(&mut state, 1);
            self.completed.notify_one();
        }
    }

    /// Takes a command, unless the device has one beside which it does not.
    fn take(&self, op: Op) -> bool {
        lock(&self.state).contents.as_mut().is_none_or(|contents| contents.take(op))
    }

    /// Ends the ring of the device, as a filter does that forbids its system call: no kick ends a
    /// wait that has begun, and later waits return at once.
    pub(crate) fn end_ring(&self) {
        lock(&self.state).has_ended = true;
    }

    /// Ends a wait that no kick has ended, as the end of the process does.
    pub(crate) fn exit(&self) {
        lock(&self.state).has_exited = true;
        self.completed.notify_one();
    }

    /// Ends the device's thread. Returns the contents.
    pub(crate) fn close(&self) -> Vec<u64> {
        let mut state = lock(&self.state);
        state.is_closed = true;
        self.committed.notify_one();
        state.contents.as_ref().map_or_else(Vec::new, Contents::sectors)
    }
}

struct ToyDevice(Arc<Toy>);

impl Device for ToyDevice {
    fn limits(&self) -> QueueLimits {
        self.0.limits
    }

    fn open_queue(&self, _: u32, mode: Mode) -> std::io::Result<DriverQueue> {
        let toy = match mode {
            Mode::Shared => Arc::clone(&self.0),
            // Tags belong to one context, so each owned context has a device of its own.
            Mode::Owned => Toy::new(self.0.how),
        };
        let event = toy.how.has_fd.then(|| Event::new().expect("a descriptor"));
        let waiter = Arc::new(ToyWaiter(Arc::clone(&toy), event));
        let nr_busy = toy.how.nr_busy;
        let driver = ToyDriver { toy, queued: Vec::new(), nr_busy, nr_ready: 0 };
        Ok(DriverQueue { driver: Box::new(driver), waiter })
    }
}

struct ToyDriver {
    toy: Arc<Toy>,
    queued: Vec<AtDevice>,
    nr_busy: u32,
    /// Number of completions that no wait reports.
    nr_ready: usize,
}

impl Driver for ToyDriver {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        if self.nr_busy > 0 {
            self.nr_busy -= 1;
            return Issue::Busy;
        }
        if self.toy.has_contents && !self.toy.take(rq.op) {
            return Issue::Busy;
        }
        let pages = |segment: Segment| (0..segment.len).step_by(512).map(move |at| (segment, at));
        let pages = rq.segments().flat_map(pages).map(|(segment, at)| segment.addr + at as usize);
        let &IssuedRequest { tag, op, start, len, .. } = rq;
        let pages = pages.collect();
        let (result, is_applied, rank) = (Ok(len), false, 0);
        self.queued.push(AtDevice { tag, op, start, len, pages, result, is_applied, rank });
        Issue::Queued
    }

    fn commit_rqs(&mut self) {
        let mut state = lock(&self.toy.state);
        // Requests left to a wait go first, in the order in which they were queued.
        state.left.append(&mut self.queued);
        self.toy.begin(&mut state);
        self.nr_ready = state.done.len();
    }

    fn leave_to_wait(&mut self) {
        if !self.toy.how.begins {
            return self.commit_rqs();
        }
        lock(&self.toy.state).left.append(&mut self.queued);
    }

    fn reap(&mut self, done: &mut Completions, _: Reap) {
        let mut state = lock(&self.toy.state);
        if !state.taken_back.is_empty() {
            self.toy.begin(&mut state);
        }
        state.nr_reaped = state.nr_posted;
        state.is_kicked = false;
        state.done.drain(..).for_each(|rq| done.push(rq.tag, rq.result));
        self.nr_ready = 0;
    }

    fn wait(&mut self, _: u32, _: Option<Duration>) {
        unreachable!("the owner of a context does not wait in it");
    }

    fn kick(&mut self) {
        let mut state = lock(&self.toy.state);
        if !state.has_ended && !std::mem::replace(&mut state.is_kicked, true) {
            state.nr_posted += 1;
            self.toy.completed.notify_one();
        }
    }

    fn has_ready(&self) -> bool {
        self.toy.how.by == By::Silence && self.nr_ready > 0
    }
}

struct ToyWaiter(Arc<Toy>, Option<Event>);

impl Waiter for ToyWaiter {
    fn wait(&self, timeout: Option<Duration>) {
        let mut state = lock(&self.0.state);
        if !state.left.is_empty() {
            self.0.begin(&mut state);
        }
        let How { nr_busy, flush_pending_ns, io_timeout_ns, .. } = self.0.how;
        let has_deadlines = flush_pending_ns > 0 || io_timeout_ns > 0;
        let is_deadline = |timeout| has_deadlines && timeout < RESOURCE_DELAY / 2;
        let is_limited = timeout.is_some_and(|timeout| nr_busy > 0 || is_deadline(timeout));
        if is_limited || self.0.how.by == By::Silence || state.has_ended {
            drop(state);
            return pause_for(timeout.unwrap_or_default());
        }
        let nr_reaped = state.nr_reaped;
        while state.nr_posted <= nr_reaped && !state.has_exited {
            state = self.0.completed.wait(state).expect("no thread panics under the lock");
        }
    }

    fn poll_fd(&self) -> io::Result<Option<BorrowedFd<'_>>> {
        Ok(self.1.as_ref().map(Event::fd))
    }

    fn misses_kicks(&self) -> bool {
        lock(&self.0.state).has_ended
    }

    fn begins(&self) -> bool {
        self.0.how.begins
    }

    fn take_back(&self) -> bool {
        let mut state = lock(&self.0.state);
        let State { left, taken_back, .. } = &mut *state;
        taken_back.append(left);
        !taken_back.is_empty()
    }
}

/// A thread that makes blocking calls on a disk. Its state is here and not in thread-locals: a
/// model's threads may be coroutines of one OS thread, and share its thread-locals.
pub(crate) struct Caller {
    ctx: Rc<Ctx>,
    page: Box<Page>,
}

impl Caller {
    /// Creates the state for the calling thread.
    pub(crate) fn new(shared: &Arc<Shared>) -> Caller {
        Caller { ctx: Ctx::new(shared, SHARED), page: Box::default() }
    }

    /// Makes one blocking read. Checks that the page was written once.
    pub(crate) fn read(&mut self, shared: &Shared) {
        let nr_written = self.page.nr_written();
        // SAFETY: the page lives as long as `self`, and is not accessed meanwhile.
        let result = unsafe { shared.run_in(&self.ctx, self.page.bio(), None) };
        assert_eq!(result, Ok(Ok(512)));
        assert_eq!(self.page.nr_written(), nr_written + 1);
    }

    /// Makes one durable write, which a flush follows.
    pub(crate) fn write_fua(&mut self, shared: &Shared) {
        let nr_written = self.page.nr_written();
        let bio = Bio { op: Op::Write, flags: BioFlags::FUA, ..self.page.bio() };
        // SAFETY: the page lives as long as `self`, and is not accessed meanwhile.
        let result = unsafe { shared.run_in(&self.ctx, bio, None) };
        assert_eq!(result, Ok(Ok(512)));
        assert_eq!(self.page.nr_written(), nr_written + 1, "the data went to the device once");
    }

    /// Makes one blocking flush.
    pub(crate) fn flush(&mut self, shared: &Shared) {
        // SAFETY: a flush has no memory.
        let result = unsafe { shared.run_in(&self.ctx, Bio::flush(), None) };
        assert_eq!(result, Ok(Ok(0)));
    }
}

/// A read that its submitter does not wait for.
pub(crate) struct Posted {
    disk: Arc<Shared>,
    // Not a `Box`: moving a `Box` asserts unique access to its contents, which the device accesses.
    kept: Option<Arc<(Page, Arc<Mailbox>)>>,
}

impl Posted {
    /// Submits a read.
    pub(crate) fn submit(disk: &Arc<Shared>) -> Posted {
        let kept = Arc::new((Page::default(), Arc::new(Mailbox::of_thread())));
        let mut boxed = QueuedBio::new(kept.1.owner(), 0);
        boxed.fill(kept.0.bio());
        let ctx = Ctx::new(disk, SHARED);
        ctx.queue_bio(boxed, 0).expect("a toy takes every read");
        ctx.turn(disk, 0, None);
        Posted { disk: Arc::clone(disk), kept: Some(kept) }
    }

    /// Returns whether the read has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.1.cell.nr_delivered() == 1)
    }

    /// Checks that the read has ended, or that only its completion is left to reap. Checks that the
    /// device has written the page once.
    pub(crate) fn check(mut self) {
        self.disk.poll_shared();
        assert!(self.has_ended(), "a read has not ended");
        let kept = self.kept.take().expect("it is checked once");
        let (page, mailbox) = &*kept;
        let boxed = mailbox.take().and_then(|mut ended| ended.next());
        assert_eq!(boxed.map(|boxed| boxed.result()), Some(Ok(512)));
        assert_eq!(page.nr_written(), 1);
    }
}

impl Drop for Posted {
    /// Leaks the memory that a read in flight uses, and its disk, because closing the disk would
    /// wait for the read. This happens only after a check has failed.
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take() {
            std::mem::forget((kept, Arc::clone(&self.disk)));
        }
    }
}
