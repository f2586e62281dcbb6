//! The simulated world of threads and a device, with the event loop.

use super::super::port::Port;
use super::shape::{FsyncTask, FsyncTasks};
use super::{FlushCounts, FlushLoad, FlushMeasured};
use crate::heap::EventHeap;
use forebay_core::{
    Bio, Commit, DeviceState, Gates, HardwareContext, Histogram, Op, Policy, QueueLimits,
    QueueStats, QueuedBio, RunCounters, Segment, SoftwareQueue, TagSet,
};
use forebay_model::Random;
use std::sync::Arc;

/// The numbers of the random streams. The streams of the threads begin at the last one.
const MACHINE_STREAM: u64 = 0;
const WORLD_STREAM: u64 = 1;
const FIRST_THREAD_STREAM: u64 = 16;

/// The address of all writes; it is never dereferenced.
const ADDR: usize = 1 << 20;

/// All threads begin within this time.
const START_NS: u64 = 1_000_000;

/// A thread, which performs one action at a time and waits for its end.
#[derive(Debug)]
struct Thread {
    ctx: SoftwareQueue,
    random: Random,
    /// Its box, while it has nothing in the layer.
    queued: Option<Box<QueuedBio>>,
    last: Option<FsyncTask>,
    begun_ns: u64,
    /// The number of flushes that had begun when its action began.
    nr_flushes: u64,
}

/// The simulated world of a run.
pub(super) struct World<'a> {
    load: &'a FlushLoad,
    hctx: HardwareContext,
    counters: Arc<RunCounters>,
    port: Port,
    threads: Vec<Thread>,
    tasks: FsyncTasks,
    /// Pending steps of threads, by the number of the thread.
    ready: EventHeap<usize>,
    random: Random,
    ended: Vec<Box<QueuedBio>>,
    nr_writes: u64,
    fsyncs: Histogram,
    flushes_of_fsync_max: u64,
    is_measuring: bool,
    before: FlushCounts,
}

impl<'a> World<'a> {
    pub(super) fn new(load: &'a FlushLoad) -> World<'a> {
        assert!(load.nr_threads > 0 && load.run_ns > 0, "there is something to measure");
        assert!(load.range_bytes >= load.block_bytes, "there is a place to write to");
        let preset = load.device;
        let capacity_bytes = Some(preset.capacity_bytes);
        let limits = preset.limits(QueueLimits { capacity_bytes, ..QueueLimits::default() });
        let policy = Policy {
            queue_depth: preset.queue_depth,
            flush: load.flush,
            elide: load.elide,
            ..Policy::default()
        };
        let stream = |nr| Random::new(load.seed, nr);
        let thread = |id: u64| Thread {
            ctx: SoftwareQueue::new(limits, policy, Arc::default()),
            random: stream(FIRST_THREAD_STREAM + id),
            queued: Some(QueuedBio::new(id, 0)),
            last: None,
            begun_ns: 0,
            nr_flushes: 0,
        };
        let tags = Arc::new(TagSet::new(preset.queue_depth));
        let counters = Arc::new(RunCounters::default());
        let device = Arc::new(DeviceState::new(1));
        World {
            load,
            hctx: HardwareContext::new(limits, policy, 0, device, tags, Arc::clone(&counters)),
            counters,
            port: Port::new(preset.machine(), stream(MACHINE_STREAM)),
            threads: (0..load.nr_threads.into()).map(thread).collect(),
            tasks: FsyncTasks::new(load.shape),
            ready: EventHeap::default(),
            random: stream(WORLD_STREAM),
            ended: Vec::new(),
            nr_writes: 0,
            fsyncs: Histogram::default(),
            flushes_of_fsync_max: 0,
            is_measuring: false,
            before: FlushCounts::default(),
        }
    }

    /// Runs the load to its end.
    pub(super) fn run(mut self) -> FlushMeasured {
        let end = self.load.warm_up_ns + self.load.run_ns;
        for thread in 0..self.threads.len() {
            let at = self.random.below(START_NS);
            self.ready.add(at, thread);
        }
        loop {
            let thread_at = self.ready.next_at().unwrap_or(u64::MAX);
            let device_at = self.port.next_at_ns().unwrap_or(u64::MAX);
            let now = thread_at.min(device_at);
            assert!(now < u64::MAX, "all threads wait, and the device has nothing to do");
            if !self.is_measuring && now >= self.load.warm_up_ns {
                self.is_measuring = true;
                self.before = self.counts();
            }
            if now >= end {
                return self.finish();
            }
            if device_at <= thread_at {
                self.turn(now);
            } else if let Some(thread) = self.ready.pop() {
                self.step(thread, now);
            }
        }
    }

    fn counts(&self) -> FlushCounts {
        let mut stats = QueueStats::default();
        stats.add_runs(&self.counters);
        FlushCounts::of(&stats)
    }

    fn finish(self) -> FlushMeasured {
        let counts = self.counts().since(self.before);
        FlushMeasured {
            run_ns: self.load.run_ns,
            nr_writes: self.nr_writes,
            fsyncs: self.fsyncs,
            flushes_of_fsync_max: self.flushes_of_fsync_max,
            counts,
        }
    }

    /// Makes a turn of the context, for a thread or for the device's interrupt. The threads whose
    /// requests have ended wake up, reap, and come with their next actions.
    fn turn(&mut self, now: u64) {
        self.port.now = now;
        let nr_flushes = self.port.nr_flushes;
        let mut ended = std::mem::take(&mut self.ended);
        self.hctx.turn(&mut self.port, now, Gates::OPEN, Commit::Now, &mut ended);
        let costs = self.load.costs;
        for queued in ended.drain(..) {
            assert_eq!(queued.result(), Ok(queued.bio().len), "a machine does not fail");
            let thread = queued.owner() as usize;
            let thread_of = &mut self.threads[thread];
            if queued.bio().op == Op::Flush && self.is_measuring {
                // A flush issued by this turn is not counted: it is for others.
                let nr = nr_flushes.saturating_sub(thread_of.nr_flushes);
                self.flushes_of_fsync_max = self.flushes_of_fsync_max.max(nr);
            }
            thread_of.queued = Some(queued);
            let mut at = now + self.random.between(costs.wake_min_ns, costs.wake_max_ns);
            if self.random.chance(self.load.late_per_million, 1_000_000) {
                at += self.load.late_ns;
            }
            self.ready.add(at + costs.reap_ns + costs.submit_ns + costs.tag_ns, thread);
        }
        self.ended = ended;
    }

    /// Ends a thread's action, and begins the next one.
    fn step(&mut self, id: usize, now: u64) {
        let FlushLoad { block_bytes, range_bytes, .. } = *self.load;
        let thread = &mut self.threads[id];
        match thread.last.filter(|_| self.is_measuring) {
            Some(FsyncTask::Write) => self.nr_writes += 1,
            Some(FsyncTask::Fsync) => self.fsyncs.record(now - thread.begun_ns),
            None => {}
        }
        let task = self.tasks.next(thread.last);
        let bio = match task {
            FsyncTask::Fsync => Bio::flush(),
            FsyncTask::Write => {
                let start = thread.random.below(range_bytes / block_bytes) * block_bytes;
                Bio::data(Op::Write, start, Segment { addr: ADDR, len: block_bytes as u32 })
            }
        };
        (thread.last, thread.begun_ns) = (Some(task), now);
        thread.nr_flushes = self.port.nr_flushes;
        let mut queued = thread.queued.take().expect("it does one thing at a time");
        queued.fill(bio);
        let refused = thread.ctx.queue_bio(queued, 0, now);
        assert!(refused.is_ok(), "the device takes what the load asks for");
        self.hctx.accept_from(&mut thread.ctx, true);
        self.turn(now);
    }
}
