//! The disk: the real core over the device, with a software queue and a hardware context for each
//! worker of the server.

use super::context::{Context, Event};
use super::device::{Device, Port};
use super::memory::{Memories, Memory};
use super::trace::Met;
use crate::check::{Verdict, broken};
use forebay_core::{
    Bio, BioFlags, Commit, DeviceState, Gates, HardwareContext, MergeKind, Op, PlugCounters,
    Policy, QueueLimits, QueueStats, QueuedBio, RunCounters, SoftwareQueue, SubmitErrorKind,
    TagSet, UnplugCause,
};
use forebay_front::{Io, Parts};
use std::sync::Arc;

/// How long a context waits after the device was busy, ns, on average.
const BUSY_NS: u64 = 3_000;

#[derive(Debug)]
struct Queue<M> {
    ctx: SoftwareQueue,
    hctx: HardwareContext,
    nr_plugs: u32,
    /// Bios that were submitted and not reaped.
    len: usize,
    /// Bios that were submitted since the plug was opened.
    nr_plugged: u64,
    ended: Vec<Parts<M>>,
}

/// The disk of the server.
#[derive(Debug)]
pub(crate) struct Disk<M> {
    queues: Vec<Queue<M>>,
    depth: u32,
    /// The maximum length of each queue.
    nr_bios: usize,
    pub(crate) device: Device,
    memories: Memories<M>,
    boxes: Vec<Box<QueuedBio>>,
    nr_boxes: u32,
    plugs: Arc<PlugCounters>,
    state: Arc<DeviceState>,
}

impl<M: Memory> Disk<M> {
    pub(crate) fn open(
        limits: QueueLimits,
        policy: Policy,
        device: Device,
        nr_bios: usize,
    ) -> Disk<M> {
        let mut disk = Disk {
            queues: Vec::new(),
            depth: policy.queue_depth,
            nr_bios,
            device,
            memories: Memories::default(),
            boxes: Vec::new(),
            nr_boxes: 0,
            plugs: Arc::default(),
            state: Arc::new(DeviceState::new(policy.nr_hw_queues)),
        };
        disk.reopen(limits, policy);
        disk
    }

    /// Opens the same device again, after a crash.
    pub(crate) fn reopen(&mut self, limits: QueueLimits, policy: Policy) {
        let state = Arc::new(DeviceState::new(policy.nr_hw_queues));
        self.state = Arc::clone(&state);
        let plugs: Arc<PlugCounters> = Arc::default();
        self.plugs = Arc::clone(&plugs);
        let queue = |index| {
            let tags = Arc::new(TagSet::new(policy.queue_depth));
            let counters: Arc<RunCounters> = Arc::default();
            let plugs = Arc::clone(&plugs);
            let state = Arc::clone(&state);
            let hctx = HardwareContext::new(limits, policy, index, state, tags, counters);
            let ctx = SoftwareQueue::new(limits, policy, plugs);
            Queue { ctx, hctx, nr_plugs: 0, len: 0, nr_plugged: 0, ended: Vec::new() }
        };
        self.device.open(policy.nr_hw_queues, policy.queue_depth);
        self.queues = (0..policy.nr_hw_queues).map(queue).collect();
        (self.memories, self.boxes, self.nr_boxes) = (Memories::default(), Vec::new(), 0);
    }

    /// Submits an I/O of a worker. Without a plug it is issued at once.
    pub(crate) fn submit(
        &mut self,
        worker: usize,
        io: Io<M>,
        cx: &mut Context,
    ) -> Result<(), (SubmitErrorKind, Option<M>)> {
        if self.queues[worker].len == self.nr_bios {
            cx.note(Met::NoRoom, worker as u64, 0);
            return Err((SubmitErrorKind::WouldBlock, io.memory));
        }
        let mut boxed = self.boxes.pop().unwrap_or_else(|| {
            self.nr_boxes += 1;
            QueuedBio::new(0, self.nr_boxes - 1)
        });
        let Io { op, offset, len, flags, user_data, memory } = io;
        let bio = match memory {
            Some(memory) => {
                let segment = self.memories.put(boxed.number(), memory, len, op == Op::Read);
                Bio::data(op, offset, segment)
            }
            None if op == Op::Flush => Bio::flush(),
            None => Bio::range(op, offset, len),
        };
        let is_owned = matches!(op, Op::Read | Op::Write);
        let flags = if is_owned { flags.union(BioFlags::OWNED) } else { flags };
        boxed.fill(Bio { user_data, flags, ..bio });
        let queue = &mut self.queues[worker];
        if let Err((refusal, boxed)) = queue.ctx.queue_bio(boxed, 1, cx.now) {
            let memory = self.memories.take(boxed.number());
            self.boxes.push(boxed);
            return Err((refusal, memory));
        }
        queue.len += 1;
        queue.nr_plugged += 1;
        if queue.nr_plugs == 0 {
            self.turn(worker, cx);
        }
        Ok(())
    }

    /// Opens a plug of a worker.
    pub(crate) fn plug(&mut self, worker: usize) {
        self.queues[worker].nr_plugs += 1;
    }

    /// Closes a plug of a worker, and issues what it holds.
    pub(crate) fn unplug(&mut self, worker: usize, cx: &mut Context) {
        let queue = &mut self.queues[worker];
        queue.nr_plugs -= 1;
        let nr = std::mem::take(&mut queue.nr_plugged);
        if nr > 1 {
            cx.note(Met::Plugged, worker as u64, nr);
        }
        if nr > 0 && queue.nr_plugs == 0 {
            self.turn(worker, cx);
        }
    }

    /// Runs the context of a worker, and appends what has ended.
    pub(crate) fn reap(&mut self, worker: usize, cx: &mut Context, ended: &mut Vec<Parts<M>>) {
        self.turn(worker, cx);
        let queue = &mut self.queues[worker];
        queue.len -= queue.ended.len();
        ended.append(&mut queue.ended);
    }

    fn turn(&mut self, worker: usize, context: &mut Context) {
        let Queue { ctx, hctx, ended, .. } = &mut self.queues[worker];
        let now = context.now;
        ctx.unplug(UnplugCause::Outermost, 1, now);
        hctx.accept_from(ctx, true);
        let mut boxes = Vec::new();
        let memories = &mut self.memories;
        let mut port = Port { device: &mut self.device, memories, context, hctx: worker };
        let turned = hctx.turn(&mut port, now, Gates::OPEN, Commit::Now, &mut boxes);
        if turned.work_left() && turned.nr_in_flight() == 0 {
            context.soon(BUSY_NS, Event::Again(worker));
        }
        for boxed in boxes {
            let number = boxed.bio().user_data;
            context.note(Met::End, number, crate::trace::code(boxed.result()));
            ended.push((number, boxed.result(), self.memories.take(boxed.number())));
            self.boxes.push(boxed);
        }
    }

    /// Transfers the data of a command of the device that is done.
    pub(crate) fn done(&mut self, at: usize, tag: usize, cx: &mut Context) {
        self.device.done(at, tag, &mut self.memories, cx);
    }

    /// Drops every command at the device; some of them are done before.
    pub(crate) fn abandon(&mut self, cx: &mut Context) {
        self.device.abandon(&mut self.memories, cx);
    }

    /// Acknowledges that writes are lost, so that flushes do not fail because of them any more.
    /// Returns whether any were lost.
    pub(crate) fn acknowledge_loss(&self) -> bool {
        self.state.durability().acknowledge_loss().is_some()
    }

    /// Returns whether bios of a worker have ended and are not reaped.
    pub(crate) fn has_ended(&self, worker: usize) -> bool {
        !self.queues[worker].ended.is_empty()
    }

    /// Returns the number of bios of a worker that are not reaped.
    pub(crate) fn len(&self, worker: usize) -> usize {
        self.queues[worker].len
    }

    /// Returns whether a worker may submit `nr` more bios.
    pub(crate) fn has_room(&self, worker: usize, nr: usize) -> bool {
        self.queues[worker].len + nr <= self.nr_bios
    }

    /// Returns whether any bio has not ended.
    pub(crate) fn is_busy(&self) -> bool {
        self.queues.iter().any(|queue| queue.len > queue.ended.len())
    }

    /// Returns the number of merged bios since the disk was opened.
    pub(crate) fn nr_merged(&self) -> u64 {
        let mut stats = QueueStats::default();
        stats.add_plugs(&self.plugs);
        stats.merges(MergeKind::Back) + stats.merges(MergeKind::Front)
    }

    /// Checks that no bio is left: neither in the layer nor at the device, and no tag in use.
    pub(crate) fn check_drained(&self, rule: &'static str) -> Verdict {
        for (at, Queue { hctx, len, .. }) in self.queues.iter().enumerate() {
            let (nr_bios, nr_free) = (hctx.check_invariants(), hctx.nr_free_tags());
            if *len > 0 || nr_bios > 0 || nr_free != self.depth {
                let bios = format!("{len} bios, {nr_bios} of them in the layer");
                let what = format!("context {at} has {bios}, and {nr_free} free tags");
                return broken(rule, what);
            }
        }
        match self.device.nr_running() {
            0 => Ok(()),
            nr => broken(rule, format!("{nr} commands are at the device")),
        }
    }
}
