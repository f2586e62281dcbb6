//! A driver that records its requests, and completes them when and how a test requests it.

use forebay_core::{
    Bio, BioFlags, BlockStatus, Commit, Completions, DeviceState, Driver, Gates, HardwareContext,
    Issue, IssuedRequest, Op, PlugCounters, Policy, QueueLimits, QueueStats, QueuedBio, Reap,
    RunCounters, Segment, SoftwareQueue, SubmitErrorKind, Tag, TagSet, Turned, UnplugCause,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A request as it was issued.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) tag: Tag,
    pub(crate) op: Op,
    pub(crate) fua: bool,
    pub(crate) metadata: bool,
    pub(crate) owner: u64,
    /// No other request follows in the same turn, as far as the layer can determine.
    pub(crate) last: bool,
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) nr_bios: u32,
    pub(crate) nr_segments: u32,
    pub(crate) segments: Vec<Segment>,
    pub(crate) ranges: Vec<(u64, u64)>,
}

/// The test driver.
#[derive(Debug, Default)]
pub(crate) struct Toy {
    pub(crate) seen: Vec<Seen>,
    /// The requests that are issued and not completed: indices in `seen`.
    pub(crate) running: Vec<usize>,
    pub(crate) done: Vec<(Tag, Result<u64, BlockStatus>)>,
    /// The results of the next `queue_rq` calls; `Queued` when none are left.
    pub(crate) answers: VecDeque<Issue>,
    pub(crate) nr_commits: usize,
    /// How thoroughly each `reap` call looked.
    pub(crate) reaps: Vec<Reap>,
    /// The requests that the layer has asked to cancel, and the answer.
    pub(crate) cancelled: Vec<Tag>,
    pub(crate) can_cancel: bool,
}

impl Toy {
    /// Completes the `nth` of the running requests.
    pub(crate) fn complete(&mut self, nth: usize, result: Result<u64, BlockStatus>) {
        let seen = &self.seen[self.running.remove(nth)];
        self.done.push((seen.tag, result));
    }

    /// Completes the oldest request in full.
    pub(crate) fn complete_oldest(&mut self) {
        let len = self.seen[self.running[0]].len;
        self.complete(0, Ok(len));
    }

    /// Returns the operation, start and length of each issued request.
    pub(crate) fn issued(&self) -> Vec<(Op, u64, u64)> {
        self.seen.iter().map(|seen| (seen.op, seen.start, seen.len)).collect()
    }
}

impl Driver for Toy {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, last: bool) -> Issue {
        let answer = self.answers.pop_front().unwrap_or(Issue::Queued);
        if answer.is_accepted() {
            self.running.push(self.seen.len());
            self.seen.push(Seen {
                tag: rq.tag,
                op: rq.op,
                fua: rq.fua,
                metadata: rq.metadata,
                owner: rq.owner(),
                last,
                start: rq.start,
                len: rq.len,
                nr_bios: rq.nr_bios,
                nr_segments: rq.nr_segments,
                segments: rq.segments().collect(),
                ranges: rq.ranges().collect(),
            });
        }
        answer
    }

    fn commit_rqs(&mut self) {
        self.nr_commits += 1;
    }

    fn reap(&mut self, done: &mut Completions, how: Reap) {
        self.reaps.push(how);
        self.done.drain(..).for_each(|(tag, result)| done.push(tag, result));
    }

    fn wait(&mut self, _nr_completions: u32, _timeout: Option<Duration>) {}

    fn cancel(&mut self, tag: Tag) -> bool {
        self.cancelled.push(tag);
        self.can_cancel
    }
}

/// A software queue and a hardware context, on one thread.
#[derive(Debug)]
pub(crate) struct TestQueue {
    pub(crate) ctx: SoftwareQueue,
    pub(crate) hctx: HardwareContext,
    pub(crate) gates: Gates,
    pub(crate) commit: Commit,
    pub(crate) device: Arc<DeviceState>,
    plugs: Arc<PlugCounters>,
    runs: Arc<RunCounters>,
    nr_bios: usize,
}

impl TestQueue {
    pub(crate) fn new(limits: QueueLimits, policy: Policy) -> TestQueue {
        let device = Arc::new(DeviceState::new(1));
        TestQueue::with_device(limits, policy, 0, &device)
    }

    /// Creates a queue with the hardware context `index` of a device.
    pub(crate) fn with_device(
        limits: QueueLimits,
        policy: Policy,
        index: u32,
        device: &Arc<DeviceState>,
    ) -> TestQueue {
        let (plugs, runs) = (Arc::default(), Arc::default());
        let tags = Arc::new(TagSet::new(policy.queue_depth));
        TestQueue {
            ctx: SoftwareQueue::new(limits, policy, Arc::clone(&plugs)),
            hctx: HardwareContext::new(
                limits,
                policy,
                index,
                Arc::clone(device),
                tags,
                Arc::clone(&runs),
            ),
            gates: Gates::OPEN,
            commit: Commit::Now,
            device: Arc::clone(device),
            plugs,
            runs,
            nr_bios: 0,
        }
    }

    pub(crate) fn stats(&self) -> QueueStats {
        let mut stats = QueueStats::default();
        stats.add_plugs(&self.plugs);
        stats.add_runs(&self.runs);
        stats
    }

    pub(crate) fn runs(&self) -> &RunCounters {
        &self.runs
    }

    pub(crate) fn is_plugged(&self) -> bool {
        self.ctx.is_plugged()
    }

    pub(crate) fn nr_bios(&self) -> usize {
        self.nr_bios
    }

    /// Returns whether a turn is due.
    pub(crate) fn queue_bio(
        &mut self,
        bio: Bio,
        level: u32,
        now: u64,
    ) -> Result<bool, (SubmitErrorKind, Bio)> {
        let mut queued = QueuedBio::new(0, 0);
        queued.fill(bio);
        let refused = self.ctx.queue_bio(queued, level, now);
        refused.map_err(|(refusal, mut queued)| (refusal, queued.take_bio()))?;
        self.nr_bios += 1;
        Ok(self.take_outgoing())
    }

    /// Queues a bio without a plug, and records it in the trace of the queue. Returns whether a
    /// turn is due.
    pub(crate) fn queue_traced_bio(&mut self, bio: Bio, now: u64) -> bool {
        let mut queued = QueuedBio::new(0, 0);
        queued.fill(bio);
        self.ctx.queue_traced_bio(queued, 0, now).expect("a good bio");
        self.nr_bios += 1;
        self.take_outgoing()
    }

    /// Queues the bio of a box.
    pub(crate) fn queue_box(&mut self, queued: Box<QueuedBio>, level: u32) {
        self.ctx.queue_bio(queued, level, 0).expect("a good bio");
        self.nr_bios += 1;
        self.take_outgoing();
    }

    /// Returns whether anything was unplugged.
    pub(crate) fn unplug(&mut self, cause: UnplugCause, level: u32, now: u64) -> bool {
        self.ctx.unplug(cause, level, now);
        self.take_outgoing()
    }

    /// Moves outgoing requests to the context. Every other one takes the path between threads.
    fn take_outgoing(&mut self) -> bool {
        let any = self.ctx.has_outgoing();
        for (nth, rq) in self.ctx.outgoing().enumerate() {
            match nth % 2 {
                0 => self.hctx.accept(rq, self.gates.enter),
                _ => self.hctx.accept_bios(rq.into_bios(), self.gates.enter),
            }
        }
        any
    }

    pub(crate) fn turn(&mut self, toy: &mut Toy, now: u64, ended: &mut Vec<Ended>) -> Turned {
        let mut boxes = Vec::new();
        let turned = self.hctx.turn(toy, now, self.gates, self.commit, &mut boxes);
        self.nr_bios -= boxes.len();
        ended.extend(boxes.iter().map(|queued| Ended {
            user_data: queued.bio().user_data,
            result: queued.result(),
            has_waited: queued.tag_wait().is_some(),
        }));
        turned
    }

    /// Turns with another driver. Returns the bios that ended: user data, operation, result, and
    /// durable point.
    pub(crate) fn turn_on(
        &mut self,
        driver: &mut dyn Driver,
        now: u64,
    ) -> Vec<(u64, Op, Result<u64, BlockStatus>, u64)> {
        let mut boxes = Vec::new();
        self.hctx.turn(driver, now, self.gates, Commit::Now, &mut boxes);
        self.nr_bios -= boxes.len();
        self.check_invariants();
        let ended = |queued: &QueuedBio| {
            let bio = queued.bio();
            (bio.user_data, bio.op, queued.result(), queued.durable_point())
        };
        boxes.iter().map(|queued| ended(queued)).collect()
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.hctx.check_invariants() <= self.nr_bios);
        assert!(self.is_plugged() || self.hctx.check_invariants() == self.nr_bios);
    }
}

/// The end of a bio.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    pub(crate) user_data: u64,
    pub(crate) result: Result<u64, BlockStatus>,
    pub(crate) has_waited: bool,
}

/// A queue with a test driver. Its invariants are checked after every step.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) queue: TestQueue,
    pub(crate) toy: Toy,
    pub(crate) ended: Vec<Ended>,
    /// The number of requests that a test has checked.
    pub(crate) nr_checked: usize,
    now: u64,
    next_addr: usize,
}

/// Returns the limits of a disk of 1 GiB.
pub(crate) fn limits() -> QueueLimits {
    QueueLimits::default().capacity_bytes(Some(1 << 30))
}

impl Bench {
    pub(crate) fn new(limits: QueueLimits, policy: Policy) -> Bench {
        let queue = TestQueue::new(limits, policy);
        let (toy, ended) = (Toy::default(), Vec::new());
        Bench { queue, toy, ended, nr_checked: 0, now: 0, next_addr: 1 << 20 }
    }

    /// Returns memory that no other bio uses.
    pub(crate) fn memory(&mut self, len: u64) -> Segment {
        let addr = self.next_addr;
        self.next_addr += (len as usize).next_multiple_of(1 << 16) + (1 << 16);
        Segment { addr, len: len as u32 }
    }

    /// Returns a bio, with memory of its own if its operation needs memory.
    pub(crate) fn bio(&mut self, op: Op, start: u64, len: u64, user_data: u64) -> Bio {
        let bio = match op.moves_data() && len > 0 {
            true => Bio::data(op, start, self.memory(len)),
            false => Bio::range(op, start, len),
        };
        Bio { user_data, ..bio }
    }

    pub(crate) fn queue_bio(&mut self, bio: Bio, level: u32) -> bool {
        self.now += 10;
        let turn_due = self.queue.queue_bio(bio, level, self.now).expect("a good bio");
        self.queue.check_invariants();
        turn_due
    }

    /// Queues a bio in the plug of level 1.
    pub(crate) fn plug(&mut self, op: Op, start: u64, len: u64, user_data: u64) -> bool {
        let bio = self.bio(op, start, len, user_data);
        self.queue_bio(bio, 1)
    }

    /// Queues the numbered pages of 4 KiB in the plug, one bio each.
    pub(crate) fn plug_each(&mut self, op: Op, pages: impl IntoIterator<Item = u64>) {
        for page in pages {
            self.plug(op, page * 4096, 4096, page);
        }
    }

    /// Queues a bio without a plug, and issues it.
    pub(crate) fn issue(&mut self, op: Op, flags: BioFlags, start: u64, len: u64, user_data: u64) {
        let bio = Bio { flags, ..self.bio(op, start, len, user_data) };
        assert!(self.queue_bio(bio, 0));
        self.turn();
    }

    pub(crate) fn unplug(&mut self) {
        self.now += 10;
        self.queue.unplug(UnplugCause::Outermost, 1, self.now);
        self.turn();
    }

    /// Takes a turn after so many nanoseconds.
    pub(crate) fn turn_after(&mut self, ns: u64) -> Turned {
        self.now += ns;
        self.turn()
    }

    pub(crate) fn turn(&mut self) -> Turned {
        self.now += 10;
        let turned = self.queue.turn(&mut self.toy, self.now, &mut self.ended);
        self.queue.check_invariants();
        turned
    }

    /// Returns the time of the last turn.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Takes a turn at this time, which is not before that of the last turn.
    pub(crate) fn turn_at(&mut self, now: u64) -> Turned {
        self.now = now - 10;
        self.turn()
    }

    /// Completes the `nth` of the running requests, and takes a turn.
    pub(crate) fn complete(&mut self, nth: usize, result: Result<u64, BlockStatus>) {
        self.toy.complete(nth, result);
        self.turn();
    }

    /// Completes everything at the driver in full, oldest first, until nothing is there.
    pub(crate) fn finish_running(&mut self) {
        while !self.toy.running.is_empty() {
            self.toy.complete_oldest();
            self.turn();
        }
    }

    /// Completes everything in full, oldest first, until nothing is left.
    pub(crate) fn finish(&mut self) {
        self.finish_running();
        assert_eq!(self.queue.nr_bios(), usize::from(self.queue.is_plugged()));
    }

    /// Returns the first page of 4 KiB of each request issued since the last call.
    pub(crate) fn first_pages(&mut self) -> Vec<u64> {
        let seen = &self.toy.seen[self.nr_checked..];
        self.nr_checked = self.toy.seen.len();
        seen.iter().map(|seen| seen.start / 4096).collect()
    }

    /// Returns the user data and results of the bios that ended since the last call, in order.
    pub(crate) fn ends(&mut self) -> Vec<(u64, Result<u64, BlockStatus>)> {
        self.ended.drain(..).map(|ended| (ended.user_data, ended.result)).collect()
    }
}
