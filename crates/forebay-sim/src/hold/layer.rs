//! The user of the policy: a software queue, a hardware context, and the hold between them.
//!
//! Counterpart in the product: the contexts and files of the drop-in for libaio (`aio/`).

use super::checks::Holding;
use super::io::Io;
use super::load::HoldLoad;
use super::met::Met;
use super::plant::HoldPlant;
use crate::check::rules as layer_rules;
use forebay_core::{
    Bio, Commit, DeviceState, Gates, HardwareContext, Hold, HoldLimits, HoldStep, Op, Policy,
    QueueLimits, QueuedBio, SoftwareQueue, TagSet, UnplugCause,
};
use std::sync::Arc;

/// The time after which a busy driver is tried again, ns.
const BUSY_PAUSE_NS: u64 = 10_000;

/// The layer of one disk, with the bios of one program.
#[derive(Debug)]
pub(super) struct Layer {
    queue: SoftwareQueue,
    hctx: HardwareContext,
    limits: HoldLimits,
    /// `None`: nothing is held.
    hold: Option<Hold>,
    passes_on_before_waits: bool,
    plant: Option<HoldPlant>,
    /// The numbers of the bios that wait in the plug, oldest first.
    held: Vec<u32>,
    /// Bios that have not ended.
    nr_out: u32,
    /// Bios that have ended, and were not taken.
    nr_ready: u32,
    /// Requests at the device, as the last turn reports.
    nr_in_flight: u32,
    /// When a turn is due even if nothing happens.
    turn_at: Option<u64>,
    ended: Vec<Box<QueuedBio>>,
}

impl Layer {
    pub(super) fn new(load: &HoldLoad, limits: QueueLimits, plant: Option<HoldPlant>) -> Layer {
        let policy = Policy::default().queue_depth(load.queue_depth);
        let device = Arc::new(DeviceState::new(1));
        let tags = Arc::new(TagSet::new(load.queue_depth));
        Layer {
            queue: SoftwareQueue::new(limits, policy, Arc::default()),
            hctx: HardwareContext::new(limits, policy, 0, device, tags, Arc::default()),
            limits: load.hold.unwrap_or_default(),
            hold: load.hold.map(Hold::new),
            passes_on_before_waits: load.passes_on_before_waits,
            plant,
            held: Vec::new(),
            nr_out: 0,
            nr_ready: 0,
            nr_in_flight: 0,
            turn_at: None,
            ended: Vec::new(),
        }
    }

    /// Submits a bio by a call of its own.
    pub(super) fn submit(&mut self, io: &mut Io, bio: Bio) {
        let (outstanding, in_flight) = (self.nr_out, self.nr_in_flight);
        let step = self.next_step(io, &bio);
        if step.release_before {
            io.checks.met(if bio.op == Op::Flush { Met::Flush } else { Met::Elsewhere });
            self.release(io);
        }
        self.queue_bio(io, bio, step.hold);
        if step.release_after {
            let may_wait = in_flight > 0 && outstanding >= self.limits.outstanding_min;
            io.checks.met(if may_wait { Met::Full } else { Met::LastOne });
            self.release(io);
        } else if !step.hold {
            self.pass(io);
        }
        let holding = Holding { outstanding, in_flight, ..self.holding() };
        io.checks.after_submit(holding, io.now);
    }

    /// Submits bios under a plug. Its end passes on what is held (I10).
    pub(super) fn plug(&mut self, io: &mut Io, bios: Vec<Bio>) {
        if !self.held.is_empty() {
            io.checks.met(Met::Plug);
        }
        for bio in bios {
            let step = self.next_step(io, &bio);
            if step.release_before {
                self.release(io);
            }
            self.queue_bio(io, bio, true);
        }
        if self.plant != Some(HoldPlant::SkipPlugEnd) {
            self.release(io);
        }
        io.checks.after_plug(self.holding());
    }

    fn next_step(&mut self, io: &Io, bio: &Bio) -> HoldStep {
        let (outstanding, in_flight) = (self.nr_out, self.nr_in_flight);
        match &mut self.hold {
            Some(hold) => hold.next(bio, outstanding, in_flight, io.now),
            None => HoldStep { release_before: false, hold: false, release_after: false },
        }
    }

    fn queue_bio(&mut self, io: &mut Io, bio: Bio, is_plugged: bool) {
        let number = io.checks.queue(&bio);
        let mut queued = QueuedBio::new(0, number);
        queued.fill(bio);
        if let Err((refusal, queued)) = self.queue.queue_bio(queued, is_plugged.into(), io.now) {
            let what = format!("bio {number} is refused: {refusal:?}: {:?}", queued.bio());
            return io.checks.fail(layer_rules::NOT_REFUSED, what);
        }
        self.nr_out += 1;
        if is_plugged {
            self.held.push(number);
        }
    }

    /// Passes the held bios on.
    fn release(&mut self, io: &mut Io) {
        self.queue.unplug(UnplugCause::Outermost, 1, io.now);
        if let Some(hold) = &mut self.hold
            && self.plant != Some(HoldPlant::SkipRelease)
        {
            hold.release();
        }
        self.held.clear();
        self.pass(io);
        io.checks.after_release(self.holding());
    }

    /// Passes the outgoing requests to the hardware context.
    fn pass(&mut self, io: &mut Io) {
        for rq in self.queue.outgoing() {
            self.hctx.accept(rq, true);
        }
        self.turn(io);
    }

    fn turn(&mut self, io: &mut Io) {
        let now = io.now;
        let turned = self.hctx.turn(io, now, Gates::OPEN, Commit::Now, &mut self.ended);
        self.nr_in_flight = turned.nr_in_flight();
        let busy = turned.is_stuck().then_some(now + BUSY_PAUSE_NS);
        self.turn_at = turned.deadline().into_iter().chain(busy).min();
        for queued in self.ended.drain(..) {
            io.checks.end(&queued);
            self.nr_out -= 1;
            self.nr_ready += 1;
        }
    }

    /// Processes completions, or makes a turn that is due. If nothing is left at the device, passes
    /// the held bios on (I10).
    pub(super) fn reap(&mut self, io: &mut Io) {
        self.turn(io);
        if self.nr_in_flight == 0
            && !self.held.is_empty()
            && self.plant != Some(HoldPlant::SkipIdle)
        {
            io.checks.met(Met::Idle);
            self.release(io);
        }
    }

    /// Returns when a turn is due even if nothing happens.
    pub(super) fn turn_at(&self) -> Option<u64> {
        self.turn_at
    }

    /// Returns the latest time at which the held bios are passed on.
    pub(super) fn deadline(&self) -> Option<u64> {
        let is_skipped = self.plant == Some(HoldPlant::SkipDeadline);
        self.hold.as_ref().filter(|_| !is_skipped)?.deadline()
    }

    /// Passes the held bios on at their deadline.
    pub(super) fn expire(&mut self, io: &mut Io) {
        io.checks.met(Met::Deadline);
        self.release(io);
    }

    /// Prepares a wait for so many bios that have ended. Passes the held bios on if it needs them,
    /// and if the load's user does so.
    pub(super) fn prepare_wait(&mut self, io: &mut Io, nr_awaited: u32) {
        self.reap(io);
        let nr_sent = self.nr_owned() - self.held.len() as u32;
        if self.passes_on_before_waits && nr_awaited > nr_sent {
            io.checks.met(Met::Wait);
            self.release(io);
        }
    }

    /// Returns whether bios are held.
    pub(super) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the number of bios that the program has not taken back.
    pub(super) fn nr_owned(&self) -> u32 {
        self.nr_out + self.nr_ready
    }

    /// Returns the number of bios that have ended, and were not taken.
    pub(super) fn nr_ready(&self) -> u32 {
        self.nr_ready
    }

    /// Takes all bios that have ended.
    pub(super) fn take_ready(&mut self) {
        self.nr_ready = 0;
    }

    /// Returns the number of bios in the hardware context.
    pub(super) fn check_invariants(&self) -> usize {
        self.hctx.check_invariants()
    }

    fn holding(&self) -> Holding<'_> {
        let nr_of_policy = self.hold.as_ref().map_or(0, Hold::nr_held);
        Holding { held: &self.held, nr_of_policy, outstanding: self.nr_out, in_flight: 0 }
    }
}
