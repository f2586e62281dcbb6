//! The disk: the real core over the device, with a software queue and a hardware context for each
//! worker of the server.

use super::context::{Context, Event};
use super::device::{Device, Port};
use super::memory::Memory;
use super::trace::Met;
use crate::check::{Verdict, broken};
use forebay_core::{
    Bio, BlockStatus, Commit, DeviceState, Gates, HardwareContext, MergeKind, PlugCounters, Policy,
    QueueLimits, QueueStats, QueuedBio, RunCounters, SoftwareQueue, SubmitErrorKind, TagSet,
    UnplugCause,
};
use std::sync::Arc;

/// How long a context waits after the device was busy, ns, on average.
const BUSY_NS: u64 = 3_000;

#[derive(Debug)]
struct Queue {
    ctx: SoftwareQueue,
    hctx: HardwareContext,
}

/// A bio that has ended: its number and its result.
pub(crate) type Ended = (u64, Result<u64, BlockStatus>);

/// The disk of the server.
#[derive(Debug)]
pub(crate) struct Disk {
    queues: Vec<Queue>,
    depth: u32,
    pub(crate) device: Device,
    boxes: Vec<Box<QueuedBio>>,
    nr_in_layer: usize,
    plugs: Arc<PlugCounters>,
}

impl Disk {
    pub(crate) fn open(limits: QueueLimits, policy: Policy, device: Device) -> Disk {
        let (queues, depth) = (Vec::new(), policy.queue_depth);
        let (boxes, plugs) = (Vec::new(), Arc::default());
        let mut disk = Disk { queues, depth, device, boxes, nr_in_layer: 0, plugs };
        disk.reopen(limits, policy);
        disk
    }

    /// Opens the same device again, after a crash.
    pub(crate) fn reopen(&mut self, limits: QueueLimits, policy: Policy) {
        let state = Arc::new(DeviceState::new(policy.nr_hw_queues));
        let plugs: Arc<PlugCounters> = Arc::default();
        self.plugs = Arc::clone(&plugs);
        let queue = |index| {
            let tags = Arc::new(TagSet::new(policy.queue_depth));
            let counters: Arc<RunCounters> = Arc::default();
            let plugs = Arc::clone(&plugs);
            let state = Arc::clone(&state);
            let hctx = HardwareContext::new(limits, policy, index, state, tags, counters);
            Queue { ctx: SoftwareQueue::new(limits, policy, plugs), hctx }
        };
        self.device.open(policy.nr_hw_queues, policy.queue_depth);
        self.queues = (0..policy.nr_hw_queues).map(queue).collect();
        self.nr_in_layer = 0;
    }

    /// Queues a worker's bio in its plug.
    pub(crate) fn submit(
        &mut self,
        worker: usize,
        bio: Bio,
        now: u64,
    ) -> Result<(), SubmitErrorKind> {
        let mut boxed = self.boxes.pop().unwrap_or_else(|| QueuedBio::new(0, 0));
        boxed.fill(bio);
        match self.queues[worker].ctx.queue_bio(boxed, 1, now) {
            Ok(()) => self.nr_in_layer += 1,
            Err((refusal, boxed)) => {
                self.boxes.push(boxed);
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Ends a worker's plug, and runs its context.
    pub(crate) fn turn(
        &mut self,
        worker: usize,
        memory: &mut Memory,
        context: &mut Context,
        ended: &mut Vec<Ended>,
    ) {
        let Queue { ctx, hctx } = &mut self.queues[worker];
        let now = context.now;
        ctx.unplug(UnplugCause::Outermost, 1, now);
        hctx.accept_from(ctx, true);
        let mut boxes = Vec::new();
        let mut port = Port { device: &mut self.device, memory, context, hctx: worker };
        let turned = hctx.turn(&mut port, now, Gates::OPEN, Commit::Now, &mut boxes);
        if turned.work_left() && turned.nr_in_flight() == 0 {
            context.soon(BUSY_NS, Event::Again(worker));
        }
        self.nr_in_layer -= boxes.len();
        for boxed in boxes {
            let (number, len) = (boxed.bio().user_data, boxed.bio().len);
            context.note(Met::End, number, crate::trace::code(boxed.result()));
            // No request goes beyond the end of the disk, so a short completion is a failure.
            let result = boxed
                .result()
                .and_then(|moved| if moved == len { Ok(moved) } else { Err(BlockStatus::Io) });
            ended.push((number, result));
            self.boxes.push(boxed);
        }
    }

    /// Returns the number of bios that have not ended.
    pub(crate) fn nr_in_layer(&self) -> usize {
        self.nr_in_layer
    }

    /// Returns the number of merged bios since the disk was opened.
    pub(crate) fn nr_merged(&self) -> u64 {
        let mut stats = QueueStats::default();
        stats.add_plugs(&self.plugs);
        stats.merges(MergeKind::Back) + stats.merges(MergeKind::Front)
    }

    /// Checks that no bio is left: neither in the layer nor at the device, and no tag in use.
    pub(crate) fn check_drained(&self, rule: &'static str) -> Verdict {
        if self.nr_in_layer > 0 {
            return broken(rule, format!("{} bios are in the layer", self.nr_in_layer));
        }
        for (at, Queue { hctx, .. }) in self.queues.iter().enumerate() {
            let (nr_bios, nr_free) = (hctx.check_invariants(), hctx.nr_free_tags());
            if nr_bios > 0 || nr_free != self.depth {
                let what = format!("context {at} has {nr_bios} bios and {nr_free} free tags");
                return broken(rule, what);
            }
        }
        match self.device.nr_running() {
            0 => Ok(()),
            nr => broken(rule, format!("{nr} commands are at the device")),
        }
    }
}
