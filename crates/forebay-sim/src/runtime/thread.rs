//! State of a task for the disk: its plug, its software queue, and its ended bios.

use crate::check::{broken, rules};
use crate::coroutine::Cpu;
use crate::plant::Plant;
use crate::runtime::hctx::Hctx;
use crate::runtime::host::{At, Token};
use crate::runtime::mailbox::Goal;
use crate::runtime::spare;
use crate::runtime::turn::Own;
use crate::trace::Kind;
use crate::world::World;
use forebay_core::wait::{self, RESOURCE_DELAY};
use forebay_core::{
    BioFlags, BlockStatus, Commit, Op, PlugPolicy, Priority, QueuedBio, Request, SoftwareQueue,
    Tag, Turned, UnplugCause, WaitId,
};
use std::collections::VecDeque;
use std::rc::Rc;

/// An I/O to be submitted. Positions and lengths are in blocks.
#[derive(Clone, Debug)]
pub(crate) struct Io {
    pub(crate) op: Op,
    pub(crate) flags: BioFlags,
    pub(crate) block: u64,
    pub(crate) nr: u64,
    /// The offsets at which its memory is cut into segments.
    pub(crate) cuts: Vec<u64>,
    /// A tag of the budget, put when it ends.
    pub(crate) charge: Option<Tag>,
    /// The durable point of a flush up to one.
    pub(crate) point: u64,
    pub(crate) priority: Priority,
}

/// An I/O that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// The number of its box, which the task may fill again.
    pub(crate) slot: u32,
    /// The number that its submission returned.
    pub(crate) serial: u64,
    pub(crate) len: u64,
    /// The time at which the layer ended it, before its owner reaped it.
    pub(crate) ended_ns: u64,
    /// How long it waited for a tag.
    pub(crate) waited_ns: u64,
    pub(crate) latency_ns: u64,
    pub(crate) result: Result<u64, BlockStatus>,
}

/// The state of a task for the disk.
pub(crate) struct Thread<'a> {
    pub(crate) cpu: Cpu<'a>,
    pub(crate) world: Rc<World>,
    pub(crate) id: usize,
    hctx: Rc<Hctx>,
    pub(crate) queue: SoftwareQueue,
    /// The number of the owner of its next bios; 0: none.
    pub(crate) owner: u32,
    /// The number of open plugs.
    pub(crate) level: u32,
    /// The boxes in the plug, with their levels, and those that have left it.
    pub(super) plugged: Vec<(u32, u32)>,
    pub(super) outgoing: Vec<u32>,
    pub(super) free: Vec<Box<QueuedBio>>,
    pub(crate) ready: VecDeque<Box<QueuedBio>>,
    pub(crate) nr_in_layer: usize,
    pub(super) nr_mailed: u64,
    /// When a wait for its own bios ends at the latest, ns; `u64::MAX`: never.
    pub(super) wait_until_ns: u64,
    /// The newest durable point of its own writes.
    pub(crate) point: u64,
    /// The bios that the last turn has ended; empty between turns.
    pub(crate) ended: Vec<Box<QueuedBio>>,
    /// Tasks to wake once the token is released.
    pub(crate) wakes: Vec<usize>,
    /// Lists of [`Thread::wake_for_tags`], empty between its calls: the tasks that begin to lack
    /// tags or no longer do, and the tasks to wake.
    pub(super) tag_changes: Vec<(u64, bool)>,
    pub(super) tag_wakes: Vec<u64>,
    /// Lists of [`Thread::refund`] and its callers, empty between their calls: tags of the budget,
    /// and the waits that get some.
    pub(super) charges: Vec<Tag>,
    pub(super) woken: Vec<WaitId>,
    /// The shared context must run, because its leader must be kicked.
    pub(crate) owes_run: bool,
    /// How many calls the task may still make itself in this wait, and whether it has offered one.
    pub(crate) nr_offers_left: u32,
    pub(crate) offers: bool,
    /// The task makes calls itself in this wait.
    pub(crate) makes_calls: bool,
    pub(crate) nr_waits_for_tags: u64,
    /// Whether the task is within a turn, or within a submission.
    pub(crate) is_in_turn: bool,
    pub(crate) is_submitting: bool,
}

impl Drop for Thread<'_> {
    fn drop(&mut self) {
        spare::keep_boxes(&mut self.free);
    }
}

impl<'a> Thread<'a> {
    /// Creates the state of a task that uses the disk for the first time.
    pub(crate) fn new(cpu: Cpu<'a>) -> Thread<'a> {
        let mut thread = Thread::of_disk(cpu);
        thread.assign();
        thread
    }

    /// Creates the state of a task that serves the disk and has no bios of its own.
    pub(crate) fn of_disk(cpu: Cpu<'a>) -> Thread<'a> {
        let (world, id) = (Rc::clone(&cpu.world), cpu.id);
        let counters = Rc::clone(&world).new_plug_counters();
        let mut queue = SoftwareQueue::new(world.disk.limits, world.disk.policy, counters);
        queue.set_trace(world.stages.as_ref().map(|stages| stages.of_task(id)));
        Thread {
            hctx: Rc::clone(&world.hctxs[0]),
            queue,
            world,
            id,
            cpu,
            owner: 0,
            level: 0,
            plugged: Vec::new(),
            outgoing: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            nr_in_layer: 0,
            nr_mailed: 0,
            wait_until_ns: u64::MAX,
            point: 0,
            ended: Vec::new(),
            wakes: Vec::new(),
            tag_changes: Vec::new(),
            tag_wakes: Vec::new(),
            charges: Vec::new(),
            woken: Vec::new(),
            owes_run: false,
            nr_offers_left: 0,
            offers: false,
            makes_calls: false,
            nr_waits_for_tags: 0,
            is_in_turn: false,
            is_submitting: false,
        }
    }

    /// Assigns a hardware context to the task: an owned one if one is free. The task has no bios in
    /// the layer.
    pub(crate) fn assign(&mut self) {
        let hctxs = &self.world.hctxs;
        let hctx = hctxs.iter().find(|hctx| !hctx.is_owned.get()).unwrap_or(&hctxs[0]);
        self.hctx = Rc::clone(hctx);
        if !hctx.is_shared {
            hctx.is_owned.set(true);
            hctx.open(&self.world);
            if !self.world.plants(Plant::UncheckedOpen) {
                self.world.check_place();
            }
        }
    }

    pub(crate) fn hctx(&self) -> Rc<Hctx> {
        Rc::clone(&self.hctx)
    }

    #[inline]
    pub(crate) fn step(&self) {
        self.cpu.step();
    }

    pub(crate) fn begin_plug(&mut self) {
        self.level += 1;
    }

    /// Ends the innermost plug.
    pub(crate) fn end_plug(&mut self) {
        let level = self.level;
        self.level -= 1;
        if level == 1 {
            self.unplug(UnplugCause::Outermost, 1);
        } else if self.world.disk.policy.plug == PlugPolicy::PerLevel {
            self.unplug(UnplugCause::Level, level);
        }
    }

    /// Unplugs the requests of `level` and above, and sends them.
    pub(crate) fn unplug(&mut self, cause: UnplugCause, level: u32) {
        self.detach(cause, level);
        if self.queue.has_outgoing() {
            self.turn(Commit::Now, Own::Mail);
        }
    }

    pub(super) fn detach(&mut self, cause: UnplugCause, level: u32) {
        self.queue.unplug(cause, level, self.world.now());
        self.world.note(Kind::Unplug, level.into(), self.queue.has_outgoing().into());
        let first = self.plugged.partition_point(|(_, of)| *of < level);
        self.outgoing.extend(self.plugged.drain(first..).map(|(slot, _)| slot));
    }

    pub(crate) fn is_plugged(&self) -> bool {
        self.queue.is_plugged()
    }

    /// Runs one or more turns of the hardware context with the outgoing requests. Returns the
    /// result of the first one; `None` if another task holds the token and turns in place of this
    /// one.
    pub(crate) fn turn(&mut self, commit: Commit, own: Own) -> Option<Turned> {
        let hctx = self.hctx();
        let turned = self.turn_and_hold(&hctx, commit, own)?;
        self.finish(&hctx);
        Some(turned)
    }

    /// Releases the token; runs turns first as long as something is published meanwhile.
    fn finish(&mut self, hctx: &Rc<Hctx>) {
        wait::finish(&mut self.at(hctx), Token::of_holder());
    }

    /// Same as [`Thread::turn`], but runs one turn and keeps the token.
    pub(crate) fn turn_and_hold(
        &mut self,
        hctx: &Rc<Hctx>,
        commit: Commit,
        own: Own,
    ) -> Option<Turned> {
        let with_outgoing = self.try_take(hctx);
        if !with_outgoing {
            self.step();
            let nr_publishing = &hctx.nr_publishing;
            nr_publishing.set(nr_publishing.get() + 1);
            let token = wait::publish(&mut self.at(hctx), At::push_outgoing);
            nr_publishing.set(nr_publishing.get() - 1);
            self.check_inbox(hctx);
            token?;
        }
        Some(self.turn_once(hctx, commit, with_outgoing, own))
    }

    /// Checks that no bio is still in the plug, where no other task issues it (I4). In a wait for
    /// tags of the budget this breaks T9: the bio may have one of them.
    fn check_has_sent(&self) {
        let Some(&(slot, _)) = self.plugged.first() else { return };
        let rule = match self.world.mailboxes[self.id].goal.get() {
            Goal::TagsOfBudget(_) => rules::T9,
            _ => rules::I4,
        };
        let mut checks = self.world.checks();
        let name = checks.bios.row(slot).name();
        checks.expect(broken(rule, format!("task {} waits, and has {name} in its plug", self.id)));
    }

    /// Publishes the outgoing requests. A run must follow.
    pub(super) fn push_outgoing(&mut self, hctx: &Hctx) {
        if self.queue.has_outgoing() {
            self.world.checks().runs.published(hctx.at, self.id);
        }
        let mut inbox = hctx.inbox.borrow_mut();
        inbox.requests.extend(self.queue.outgoing().map(Request::into_bios));
        inbox.slots.append(&mut self.outgoing);
    }

    /// Checks that the task may wait: not within a submit (T11) or a turn (T12), and with an empty
    /// plug.
    pub(crate) fn check_may_wait(&self) {
        let verdict = match (self.is_in_turn, self.is_submitting) {
            (true, _) => broken(rules::T12, format!("task {} is about to", self.id)),
            (_, true) => broken(rules::T11, format!("that of task {} is about to", self.id)),
            _ => Ok(()),
        };
        self.world.fail(verdict);
        self.check_has_sent();
    }

    /// Acknowledges the loss of a failed flush, if there is one.
    pub(crate) fn acknowledge(&self) {
        let world = &self.world;
        if world.device_state.durability().lost().is_some() {
            world.check_place();
        }
        if let Some(lost) = world.device_state.durability().acknowledge_loss() {
            let mut checks = world.checks();
            checks.note(Kind::Acknowledge, lost.after, lost.up_to);
            checks.acknowledge(lost);
        }
    }

    /// Leaves the disk: the task's plugged bios are submitted and end, and another task may take
    /// its context.
    pub(crate) fn retire(&mut self, out: &mut Vec<Ended>) {
        self.level = 0;
        let nr = self.nr_in_layer + self.ready.len();
        self.reap(nr, usize::MAX, out);
        self.unplug(UnplugCause::Wait, 1);
        let hctx = self.hctx();
        if hctx.is_shared {
            return;
        }
        wait::drain_owned(&mut self.at(&hctx));
        // Wait until requests that were given up have completed. Their events will come.
        while hctx.with_inner(|inner| inner.core.has_only_given_up()) {
            self.cpu.park_for(RESOURCE_DELAY.as_nanos() as u64);
            self.turn(Commit::Now, Own::Mail);
        }
        assert!(self.try_take(&hctx), "no other task uses an owned context");
        let drained = crate::check::drained::inner(hctx.at, &hctx);
        self.world.fail(drained);
        hctx.inner.borrow_mut().take();
        let kept = wait::release(&mut self.at(&hctx), Token::of_holder());
        assert!(kept.is_none(), "no other task uses an owned context");
        hctx.is_owned.set(false);
    }
}
