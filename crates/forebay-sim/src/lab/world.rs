//! The simulated world of jobs and a device, with the event loop.

use super::costs::Costs;
use super::job::{Doing, Job};
use super::measured::Measured;
use super::port::Port;
use super::work::{Work, Worker};
use crate::heap::EventHeap;
use forebay_core::{
    Bio, Commit, DeviceState, Gates, HardwareContext, Histogram, Op, Policy, QueueLimits,
    QueuedBio, RunCounters, SECTOR_SHIFT, Segment, TagNeed, TagSet, WaitId, WakePolicy,
};
use forebay_model::{Random, machines::Preset};
use std::sync::Arc;

/// Jobs that need more tags than exist.
#[derive(Clone, Copy, Debug)]
pub struct TagLoad {
    /// The device.
    pub device: &'static Preset,
    /// The number of jobs.
    pub nr_jobs: u32,
    /// The number of I/Os that all jobs together keep in flight. Each job has an equal share, at
    /// least one.
    pub depth: u32,
    /// The size of each I/O, bytes: random reads, aligned to the size. I/Os above the device's
    /// largest request are split.
    pub block_bytes: u64,
    /// The number of tags.
    pub nr_tags: u32,
    /// The tag wait policy: bios or threads wait for a tag, and which waiter a freed tag wakes.
    pub wake: WakePolicy,
    /// How many tags a split bio waits for, if bios and not threads wait.
    pub tag_need: TagNeed,
    /// Every second job reads 4 KiB at a time, whatever `block_bytes` is.
    pub is_mixed: bool,
    /// The costs of the threads' work.
    pub costs: Costs,
    /// The work that is left to a worker, under the policies where threads wait.
    pub worker: Worker,
    /// The warm-up time, ns, which is not measured.
    pub warm_up_ns: u64,
    /// The measured time after that, ns.
    pub run_ns: u64,
    /// The seed: the same seed draws the same places and times.
    pub seed: u64,
}

/// Runs a load.
///
/// # Panics
/// If the load has no jobs, tags or time, if a block is not a whole number of requests, or if a
/// mixed load has threads that wait for tags.
pub fn measure_tags(load: &TagLoad) -> Measured {
    World::new(load).run()
}

/// The numbers of the random streams. The streams of the jobs begin at the last one.
const MACHINE_STREAM: u64 = 0;
const WORLD_STREAM: u64 = 1;
const FIRST_JOB_STREAM: u64 = 16;

/// The size of the reads of every second job in a mixed load.
pub(super) const SMALL_BYTES: u64 = 4096;

impl TagLoad {
    /// Returns whether threads wait for tags. Such a thread takes tags one by one, with some time
    /// in between, so that other threads can take tags too: it submits an I/O request by request.
    /// If the bios wait, the layer splits them.
    pub(super) fn is_thread_waiting(&self) -> bool {
        self.wake != WakePolicy::Fair
    }

    /// Returns the end of the measurement, ns.
    pub(super) fn end_ns(&self) -> u64 {
        self.warm_up_ns + self.run_ns
    }

    /// Returns whether a job reads 4 KiB at a time in a mixed load.
    pub(super) fn is_small(&self, job: usize) -> bool {
        self.is_mixed && !job.is_multiple_of(2)
    }
}

/// The address of all reads; it is never dereferenced.
const ADDR: usize = 1 << 20;

/// The simulated world of a run.
struct World<'a> {
    load: &'a TagLoad,
    part_bytes: u64,
    hctx: HardwareContext,
    port: Port,
    jobs: Vec<Job>,
    /// Pending steps of threads, by the number of the job.
    ready: EventHeap<usize>,
    random: Random,
    work: Work,
    nr_in_flight: u32,
    ended: Vec<Box<QueuedBio>>,
    woken: Vec<usize>,
    measured: Measured,
}

impl<'a> World<'a> {
    fn new(load: &'a TagLoad) -> World<'a> {
        assert!(load.nr_jobs > 0 && load.run_ns > 0, "there is something to measure");
        let capacity_bytes = Some(load.device.capacity_bytes);
        let limits = load.device.limits(QueueLimits::default().capacity_bytes(capacity_bytes));
        let request_bytes = u64::from(load.device.max_sectors) << SECTOR_SHIFT;
        let is_thread_waiting = load.is_thread_waiting();
        let part_bytes = match is_thread_waiting {
            true => load.block_bytes.min(request_bytes),
            false => load.block_bytes,
        };
        assert!(load.block_bytes.is_multiple_of(part_bytes), "an I/O is whole requests");
        assert!(!(load.is_mixed && is_thread_waiting), "each job has its own number of parts");
        let parts = (load.block_bytes / part_bytes) as u32;
        let &TagLoad { nr_tags: queue_depth, wake, tag_need, .. } = load;
        let policy = Policy::default().queue_depth(queue_depth).wake(wake).tag_need(tag_need);
        let depth = (load.depth / load.nr_jobs).max(1);
        let stream = |nr| Random::new(load.seed, nr);
        let job = |id: usize| {
            let random = stream(FIRST_JOB_STREAM + id as u64);
            Job::new(id, depth, parts, limits, policy, random)
        };
        let tags = Arc::new(TagSet::new(load.nr_tags));
        let counters = Arc::new(RunCounters::default());
        let device = Arc::new(DeviceState::new(1));
        World {
            load,
            part_bytes,
            hctx: HardwareContext::new(limits, policy, 0, device, tags, counters),
            port: Port::new(load.device.machine(), stream(MACHINE_STREAM)),
            jobs: (0..load.nr_jobs as usize).map(job).collect(),
            ready: EventHeap::default(),
            random: stream(WORLD_STREAM),
            work: Work::new(if is_thread_waiting { load.worker } else { Worker::Absent }),
            nr_in_flight: 0,
            ended: Vec::new(),
            woken: Vec::new(),
            measured: Measured {
                run_ns: load.run_ns,
                ios_of_jobs: Vec::new(),
                nr_tag_sleeps: 0,
                nr_completion_sleeps: 0,
                nr_vain_wakes: 0,
                nr_worker_runs: 0,
                tag_waits: Histogram::default(),
                latencies: [Histogram::default(), Histogram::default()],
            },
        }
    }

    /// Runs the load to its end.
    fn run(mut self) -> Measured {
        let end = self.load.warm_up_ns + self.load.run_ns;
        for job in 0..self.jobs.len() {
            // The jobs begin at different times.
            let at = self.random.below(1_000_000);
            self.ready.add(at, job);
        }
        loop {
            let thread_at = self.ready.next_at().unwrap_or(u64::MAX);
            let device_at = self.port.next_at_ns().unwrap_or(u64::MAX);
            let now = thread_at.min(device_at);
            if now >= end {
                return self.finish(end);
            }
            if device_at <= thread_at {
                self.turn(now);
            } else if let Some(job) = self.ready.pop() {
                self.step(job, now);
            }
        }
    }

    fn finish(mut self, end: u64) -> Measured {
        for job in &self.jobs {
            let waits = matches!(job.doing, Doing::WaitingForTag | Doing::WokenForTag);
            if let Some(waited_ns) = job.submitting_ns(end).filter(|_| waits) {
                self.measured.tag_waits.record(waited_ns);
            }
        }
        self.measured.ios_of_jobs = self.jobs.iter().map(|job| job.nr_ios).collect();
        self.measured.nr_worker_runs = self.work.nr_runs;
        self.measured
    }

    fn is_measured(&self, now: u64) -> bool {
        now >= self.load.warm_up_ns
    }

    fn wake_up_ns(&mut self) -> u64 {
        let Costs { wake_min_ns, wake_max_ns, .. } = self.load.costs;
        self.random.between(wake_min_ns, wake_max_ns)
    }

    /// Makes a turn of the context, for a thread or for the device's interrupt.
    fn turn(&mut self, now: u64) {
        self.port.now = now;
        let mut ended = std::mem::take(&mut self.ended);
        let before = self.nr_in_flight;
        let turned = self.hctx.turn(&mut self.port, now, Gates::OPEN, Commit::Now, &mut ended);
        self.nr_in_flight = turned.nr_in_flight;
        if before > turned.nr_in_flight {
            let latency_ns = self.wake_up_ns();
            let is_counted = self.is_measured(now);
            self.work.done(turned.nr_in_flight, now, latency_ns, is_counted);
        }
        for queued in ended.drain(..) {
            self.end(queued, now);
        }
        self.ended = ended;
        let mut woken = std::mem::take(&mut self.woken);
        self.hctx.take_woken(&mut |WaitId(owner)| woken.push(owner as usize));
        for job in woken.drain(..) {
            assert_eq!(self.jobs[job].doing, Doing::WaitingForTag);
            self.jobs[job].doing = Doing::WokenForTag;
            let at = now + self.wake_up_ns();
            self.ready.add(at, job);
        }
        self.woken = woken;
    }

    fn end(&mut self, queued: Box<QueuedBio>, now: u64) {
        let id = queued.owner() as usize;
        let is_measured = self.is_measured(now);
        let job = &mut self.jobs[id];
        let Some((waited_ns, took_ns)) = job.end(queued, now) else { return };
        if is_measured {
            job.nr_ios += 1;
            let is_small = usize::from(self.load.is_small(id));
            self.measured.latencies[is_small].record(took_ns);
            self.measured.tag_waits.record(waited_ns);
        }
        if job.doing == Doing::WaitingForEnd {
            job.doing = Doing::Running;
            let at = now + self.wake_up_ns();
            self.ready.add(at, id);
        }
    }

    /// Performs one action of a thread, which takes some time.
    fn step(&mut self, id: usize, now: u64) {
        let costs = self.load.costs;
        let job = &mut self.jobs[id];
        if job.doing == Doing::WokenForTag {
            job.doing = Doing::Running;
            self.hctx.awake(WaitId(id as u64));
            self.turn(now);
            self.after_submission(id, now, 0, true);
        } else if job.can_submit() {
            let submit_ns = if job.is_between() { costs.submit_ns } else { 0 };
            self.submit(id, now);
            self.after_submission(id, now, submit_ns, false);
        } else {
            match job.reap() {
                0 => {
                    job.doing = Doing::WaitingForEnd;
                    self.measured.nr_completion_sleeps += u64::from(self.is_measured(now));
                }
                nr => self.ready.add(now + nr * costs.reap_ns, id),
            }
        }
    }

    fn submit(&mut self, id: usize, now: u64) {
        let (block_bytes, part_bytes) = match self.load.is_small(id) {
            true => (SMALL_BYTES, SMALL_BYTES),
            false => (self.load.block_bytes, self.part_bytes),
        };
        let nr_places = self.load.device.capacity_bytes / block_bytes;
        let job = &mut self.jobs[id];
        let place = |random: &mut Random| random.below(nr_places) * block_bytes;
        let (mut queued, start, user_data) = job.next_part(now, part_bytes, place);
        let segment = Segment { addr: ADDR, len: part_bytes as u32 };
        queued.fill(Bio { user_data, ..Bio::data(Op::Read, start, segment) });
        let refused = job.ctx.queue_bio(queued, 0, now);
        assert!(refused.is_ok(), "the device takes what the load asks for");
        self.hctx.accept_from(&mut job.ctx, true);
        self.turn(now);
    }

    /// Continues after a request was submitted or tried again: the thread sleeps if there was no
    /// tag, or goes on.
    fn after_submission(&mut self, id: usize, now: u64, submit_ns: u64, was_woken: bool) {
        let is_measured = self.is_measured(now);
        if !self.hctx.lacks_tags(WaitId(id as u64)) {
            self.jobs[id].nr_plugged += 1;
            let took_ns = submit_ns + self.nr_requests_of_bio() * self.load.costs.tag_ns;
            return self.ready.add(now + took_ns, id);
        }
        let job = &mut self.jobs[id];
        job.doing = Doing::WaitingForTag;
        if std::mem::take(&mut job.nr_plugged) > 0 {
            let latency_ns = self.wake_up_ns();
            self.work.plug_left(now, latency_ns, is_measured);
        }
        if is_measured {
            self.measured.nr_tag_sleeps += 1;
            self.measured.nr_vain_wakes += u64::from(was_woken);
        }
    }

    fn nr_requests_of_bio(&self) -> u64 {
        let request_bytes = u64::from(self.load.device.max_sectors) << SECTOR_SHIFT;
        self.part_bytes.div_ceil(request_bytes)
    }
}
