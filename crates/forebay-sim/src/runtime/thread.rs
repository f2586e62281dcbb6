//! State of a task for the disk: its plug, its software queue, and its ended bios.

use crate::check::{broken, rules};
use crate::coroutine::Cpu;
use crate::plant::Plant;
use crate::runtime::hctx::Hctx;
use crate::runtime::host::Token;
use crate::runtime::mailbox::Goal;
use crate::runtime::turn::Own;
use crate::trace::Kind;
use crate::world::World;
use forebay_core::wait;
use forebay_core::{
    BioFlags, BlockStatus, Commit, Op, PlugPolicy, QueuedBio, Request, SoftwareQueue, Tag, Turned,
    UnplugCause,
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
}

/// An I/O that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) len: u64,
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
    /// The number of open plugs.
    pub(crate) level: u32,
    /// The boxes in the plug, with their levels, and those that have left it.
    pub(super) plugged: Vec<(u32, u32)>,
    pub(super) outgoing: Vec<u32>,
    pub(super) free: Vec<Box<QueuedBio>>,
    pub(crate) ready: VecDeque<Box<QueuedBio>>,
    pub(crate) nr_in_layer: usize,
    pub(super) nr_mailed: u64,
    /// The newest durable point of its own writes.
    pub(crate) point: u64,
    /// The bios that the last turn has ended; empty between turns.
    pub(crate) ended: Vec<Box<QueuedBio>>,
    /// Tasks to wake once the token is released.
    pub(crate) wakes: Vec<usize>,
    /// The shared context must run, because its leader must be kicked.
    pub(crate) owes_run: bool,
    pub(crate) nr_waits_for_tags: u64,
    /// Whether the task is within a turn, or within a submission.
    pub(crate) is_in_turn: bool,
    pub(crate) is_submitting: bool,
}

impl<'a> Thread<'a> {
    /// Creates the state of a task that uses the disk for the first time.
    pub(crate) fn new(cpu: Cpu<'a>) -> Thread<'a> {
        let (world, id) = (Rc::clone(&cpu.world), cpu.id);
        let counters = Rc::clone(&world).new_plug_counters();
        let mut thread = Thread {
            hctx: Rc::clone(&world.hctxs[0]),
            queue: SoftwareQueue::new(world.disk.limits, world.disk.policy, counters),
            world,
            id,
            cpu,
            level: 0,
            plugged: Vec::new(),
            outgoing: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            nr_in_layer: 0,
            nr_mailed: 0,
            point: 0,
            ended: Vec::new(),
            wakes: Vec::new(),
            owes_run: false,
            nr_waits_for_tags: 0,
            is_in_turn: false,
            is_submitting: false,
        };
        thread.assign();
        thread
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

    pub(crate) fn take_outgoing_slots(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.outgoing)
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

    fn detach(&mut self, cause: UnplugCause, level: u32) {
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
        hctx: &Hctx,
        commit: Commit,
        own: Own,
    ) -> Option<Turned> {
        let with_outgoing = self.try_take(hctx);
        if !with_outgoing {
            self.step();
            if !self.publish(hctx) {
                return None;
            }
        }
        Some(self.turn_once(hctx, commit, with_outgoing, own))
    }

    /// Publishes the outgoing requests, and requests a run. Returns whether the task has the token.
    fn publish(&mut self, hctx: &Hctx) -> bool {
        if self.world.plants(Plant::RunFirst) {
            let is_ours = self.run(hctx);
            self.step();
            self.push_outgoing(hctx);
            hctx.nr_publishing.set(hctx.nr_publishing.get() - 1);
            self.check_inbox(hctx);
            return is_ours;
        }
        self.push_outgoing(hctx);
        self.step();
        hctx.nr_publishing.set(hctx.nr_publishing.get() - 1);
        self.run(hctx)
    }

    /// Checks that no bio with a tag of the budget is still in the plug, where no other task issues
    /// it (T9).
    pub(crate) fn check_has_sent(&self) {
        let mut checks = self.world.checks();
        let kept = self.plugged.iter().map(|(slot, _)| slot).chain(&self.outgoing);
        let kept = kept.copied().find(|&slot| checks.bios.row(slot).charge.is_some());
        if let Some(slot) = kept {
            let what = format!("task {} waits, and has {} in its plug", self.id, {
                checks.bios.row(slot).name()
            });
            checks.expect(broken(rules::T9, what));
        }
    }

    /// Publishes the outgoing requests. A run must follow.
    fn push_outgoing(&mut self, hctx: &Hctx) {
        if self.queue.has_outgoing() {
            self.world.checks().runs.published(hctx.at, self.id);
        }
        let mut inbox = hctx.inbox.borrow_mut();
        inbox.requests.extend(self.queue.outgoing().map(Request::into_bios));
        inbox.slots.append(&mut self.outgoing);
        hctx.nr_publishing.set(hctx.nr_publishing.get() + 1);
    }

    /// Commits the requests that turns with `Commit::Later` have issued.
    pub(crate) fn commit(&mut self) {
        let hctx = self.hctx();
        wait::commit_all(&mut self.at(&hctx));
    }

    /// Checks that the task may wait: not within a submit (T11) or a turn (T12).
    pub(crate) fn check_may_wait(&self) {
        let verdict = match (self.is_in_turn, self.is_submitting) {
            (true, _) => broken(rules::T12, format!("task {} is about to", self.id)),
            (_, true) => broken(rules::T11, format!("that of task {} is about to", self.id)),
            _ => Ok(()),
        };
        self.world.fail(verdict);
    }

    fn take_mail(&mut self) {
        let mut mail = self.world.mailboxes[self.id].ended.borrow_mut();
        self.nr_in_layer -= mail.len().min(self.nr_in_layer);
        self.nr_mailed += mail.len() as u64;
        self.ready.extend(mail.drain(..));
    }

    /// Takes at most `max` ended bios. Waits until there are `min`, or no bio of this task is left
    /// in the layer.
    pub(crate) fn reap(&mut self, min: usize, max: usize, out: &mut Vec<Ended>) {
        self.step();
        self.take_mail();
        if self.ready.len() < max && (self.ready.len() < min || min == 0) {
            self.detach(UnplugCause::Wait, 1);
            self.wait(min);
        }
        let nr = self.ready.len().min(max);
        let world = Rc::clone(&self.world);
        let mut checks = world.checks();
        for boxed in self.ready.drain(..nr) {
            let slot = boxed.number();
            let row = checks.bios.row(slot);
            let latency_ns = world.now() - row.queued_ns;
            self.point = self.point.max(boxed.durable_point());
            let bio = boxed.bio();
            out.push(Ended { len: bio.len, latency_ns, result: boxed.result() });
            let reaped = checks.bios.reap(slot, self.id);
            checks.expect(reaped);
            // A command may still have the memory that the box stands for (H5).
            if !checks.bios.row(slot).is_kept {
                self.free.push(boxed);
            }
        }
    }

    /// Turns once at least, then until `min` are ready or nothing is left in the layer.
    fn wait(&mut self, min: usize) {
        loop {
            let hctx = self.hctx();
            let later = self.ready.len() < min && !hctx.is_shared;
            let commit = if later { Commit::Later } else { Commit::Now };
            let turned = self.turn(commit, Own::Direct);
            if hctx.is_shared && min > 0 && self.world.mailboxes[self.id].cell.lacks_tags() {
                // As a thread in Linux, which sleeps in its submission.
                self.wait_for(Goal::TagsOfContext);
            }
            self.take_mail();
            if self.ready.len() >= min || self.nr_in_layer == 0 {
                if later {
                    self.commit();
                }
                return;
            }
            let missing = min - self.ready.len();
            if hctx.is_shared {
                let goal = self.nr_mailed + missing.min(self.nr_in_layer) as u64;
                self.wait_for(Goal::Delivered(goal));
                self.take_mail();
            } else if let Some(turned) = turned {
                let all_ours = self.nr_in_layer as u64 >= turned.nr_in_flight.into();
                let nr = if all_ours { missing.try_into().unwrap_or(u32::MAX) } else { 1 };
                self.wait_as_owner(turned, nr);
            }
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
        while let Some(turned) = self.turn(Commit::Now, Own::Mail) {
            // Not before requests that were given up have completed: their events come.
            if turned.is_idle() {
                break;
            }
            self.wait_as_owner(turned, 1);
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
