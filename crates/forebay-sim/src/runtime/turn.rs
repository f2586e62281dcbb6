//! A turn of a hardware context by a task: the steps of the core's outer turn, and their checks.

use crate::check::{broken, rules};
use crate::plant::Plant;
use crate::runtime::hctx::{Hctx, Inbox};
use crate::runtime::thread::Thread;
use crate::trace::Kind;
use forebay_core::wait::{self, Notice, RESOURCE_DELAY, Step, Turning};
use forebay_core::{BioFlags, Commit, Driver, Gates, Policy, QueuedBio, RunState, Turned};
use std::rc::Rc;

/// The fewest turns between two checks of the whole structure. There is one more for each bio in
/// it, so that the checks cost the same however long its queues are.
const TURNS_PER_CHECK: u64 = 16;

/// How late a task is where a planted bug makes it so.
pub(super) const LATE_NS: u64 = 20_000;

/// Where the ended bios of a turn's own task go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// Straight to the task.
    Direct,
    /// Through its mailbox.
    Mail,
}

/// A turn in progress.
struct TaskTurn<'t, 'a> {
    thread: &'t mut Thread<'a>,
    hctx: &'t Hctx,
    with_outgoing: bool,
    own: Own,
    /// The bios that the turn has ended.
    ended: Vec<Box<QueuedBio>>,
}

impl Thread<'_> {
    /// Runs one turn. The task holds the token.
    pub(crate) fn turn_once(
        &mut self,
        hctx: &Hctx,
        commit: Commit,
        with_outgoing: bool,
        own: Own,
    ) -> Turned {
        self.is_in_turn = true;
        let ended = std::mem::take(&mut self.ended);
        let mut turn = TaskTurn { thread: self, hctx, with_outgoing, own, ended };
        let turned = wait::turn(&mut turn, commit);
        self.ended = turn.ended;
        self.is_in_turn = false;
        // A thread that waits in the driver comes back in time for the deadline (W7).
        if hctx.waiter.get().is_some() && !hctx.run.is_kicked() {
            let until_ns = hctx.waits_until_ns.get();
            let verdict =
                self.world.checks().runs.check_deadline(hctx.at, until_ns, self.world.now());
            self.world.fail(verdict);
        }
        turned
    }
}

impl Turning for TaskTurn<'_, '_> {
    fn run_state(&self) -> &RunState {
        &self.hctx.run
    }

    fn is_shared(&self) -> bool {
        self.hctx.is_shared
    }

    fn step(&mut self, _made: Step) {
        self.thread.step();
    }

    fn apply_tag_calls(&mut self) {
        self.thread.read_tag_calls(self.hctx);
    }

    fn accept(&mut self, enter: bool) {
        let TaskTurn { thread, hctx, with_outgoing, .. } = self;
        let thread: &mut Thread<'_> = thread;
        let mut inbox = hctx.inbox.borrow_mut();
        let Inbox { requests, slots } = &mut *inbox;
        {
            let mut checks = thread.world.checks();
            let held = checks.gates.check_holder(hctx.at, thread.id);
            checks.expect(held);
            let checks = &mut *checks;
            checks.runs.read(hctx.at);
            let mut outside = hctx.outside.borrow_mut();
            if enter && !outside.is_empty() {
                // The turn reaps before it accepts these requests.
                let nr_flushes = hctx.with_inner(|inner| inner.driver.nr_flushes_after_reap());
                for slot in outside.drain(..) {
                    checks.bios.row_mut(slot).nr_flushes_before = nr_flushes;
                    checks.let_in(hctx.at, slot);
                }
            }
            let nr_sent = if *with_outgoing { thread.outgoing.len() } else { 0 };
            if slots.is_empty() && nr_sent == 0 {
                return;
            }
            let nr_flushes = hctx.with_inner(|inner| inner.driver.nr_flushes);
            for slot in slots.drain(..).chain(thread.outgoing.drain(..nr_sent)) {
                checks.order.arrive(hctx.at, slot, &checks.bios);
                checks.bios.row_mut(slot).nr_flushes_before = nr_flushes;
                match enter || checks.bios.row(slot).flags.contains(BioFlags::NOWAIT) {
                    true => checks.let_in(hctx.at, slot),
                    false => outside.push(slot),
                }
            }
        }
        hctx.with_inner(|inner| {
            for first in requests.drain(..) {
                inner.core.accept_bios(first, enter);
            }
            if *with_outgoing {
                inner.core.accept_from(&mut thread.queue, enter);
            }
        });
    }

    fn turn_core(&mut self, gates: Gates, commit: Commit) -> Turned {
        let (world, hctx) = (Rc::clone(&self.thread.world), self.hctx);
        let nr_before = world.count_commands();
        if world.makes_own_calls {
            let offered_by = self.thread.offers.then_some(self.thread.id);
            let may_leave = hctx.is_shared && offered_by.is_none();
            hctx.set_offer(offered_by, may_leave);
        }
        let turned = turn_core(&world, hctx, gates, commit, &mut self.ended);
        if world.makes_own_calls {
            hctx.set_offer(None, false);
        }
        let (nr_reaped, nr_issued) = world.count_commands();
        let (nr_reaped, nr_issued) = (nr_reaped - nr_before.0, nr_issued - nr_before.1);
        if hctx.is_shared
            && let Some(run_queue) = &world.run_queue
        {
            run_queue.turned(&world, (nr_reaped, nr_issued), turned.nr_in_flight());
        }
        // The token is held meanwhile.
        self.thread.cpu.spend(world.cpu.turn_of(nr_issued, nr_reaped));
        turned
    }

    fn takes_left_flush(&mut self) -> bool {
        self.thread.world.makes_own_calls
            && self.hctx.with_inner(|inner| inner.core.take_left_flush())
    }

    fn wake_for_flush(&mut self) -> bool {
        let mailboxes = &self.thread.world.mailboxes;
        let makes_it = |owner: &u64| mailboxes[*owner as usize].cell.wake_for_flush();
        let woken = self.hctx.with_inner(|inner| inner.core.waiters_of_flush().find(makes_it));
        let Some(task) = woken else { return false };
        self.thread.wakes.push(task as usize);
        true
    }

    fn serves_tag_waits(&self) -> bool {
        self.hctx.with_inner(|inner| inner.core.has_lines())
    }

    fn wake_for_tags(&mut self) -> bool {
        self.thread.wake_for_tags(self.hctx)
    }

    fn retry_for_awake(&mut self) -> bool {
        self.thread.retry_for_awake(self.hctx)
    }

    fn record(&mut self, gates: Gates, turned: Turned) {
        self.hctx.is_drained.set(turned.is_drained());
        self.hctx.is_stranded.set(turned.is_stuck() && !turned.is_drained());
        let (world, at) = (&self.thread.world, self.hctx.at);
        world.checks().runs.left(at, turned.deadline());
        // Only requests that wait for their owner are left.
        let is_held_back = turned.is_drained() && turned.work_left();
        self.hctx.is_held_back.set(is_held_back && turned.deadline().is_some());
        if is_held_back && gates.enter && gates.dispatch && turned.deadline().is_none() {
            world.fail(broken(rules::OW6, format!("context {at} has none")));
        }
    }

    fn deliver(&mut self) -> bool {
        let TaskTurn { thread, hctx, own, ended, .. } = self;
        if ended.is_empty() {
            return hctx.kick_leader.take();
        }
        let world = Rc::clone(&thread.world);
        let mut charges = std::mem::take(&mut thread.charges);
        if world.budget.is_some() {
            let mut checks = world.checks();
            let numbers = ended.iter().map(|bio| bio.number());
            charges.extend(numbers.filter_map(|nr| checks.bios.row_mut(nr).charge.take()));
        }
        if world.plants(Plant::WaitInTurn) {
            thread.check_may_wait();
            thread.cpu.park_for(LATE_NS);
        }
        if !charges.is_empty() {
            thread.refund(&charges);
            charges.clear();
        }
        thread.charges = charges;
        let to_leader = wait::deliver_each(ended, |owner, bios| {
            if *own == Own::Direct && owner == thread.id as u64 {
                let before = thread.ready.len();
                thread.ready.extend(bios);
                thread.nr_in_layer -= thread.ready.len() - before;
                return Notice::Nothing;
            }
            thread.deliver(hctx, owner, bios)
        });
        to_leader | hctx.kick_leader.take()
    }

    fn arm_delayed_run(&mut self) {
        let (world, timers) = (&self.thread.world, &self.hctx.timers);
        let now = world.now();
        let at_ns = now + RESOURCE_DELAY.as_nanos() as u64;
        timers.arm_delayed_run(at_ns);
        let verdict = world.checks().runs.delayed(now, at_ns, timers.left_ns(now));
        world.fail(verdict);
    }

    fn arm_deadline(&mut self, at_ns: u64) -> bool {
        self.hctx.is_shared && self.hctx.timers.arm_deadline(at_ns)
    }

    fn kick_driver(&mut self) {
        let (world, hctx) = (&self.thread.world, self.hctx);
        hctx.with_port(world, |core, port| {
            core.note_kick();
            port.kick();
        });
        world.note(Kind::Kick, hctx.at as u64, 0);
        world.wake_waiter(hctx);
    }
}

impl Thread<'_> {
    /// Delivers bios to their owner's mailbox.
    fn deliver(
        &mut self,
        hctx: &Hctx,
        owner: u64,
        bios: &mut dyn Iterator<Item = Box<QueuedBio>>,
    ) -> Notice {
        let world = Rc::clone(&self.world);
        let to = owner as usize;
        let mailbox = &world.mailboxes[to];
        let nr = {
            let mut ended = mailbox.ended.borrow_mut();
            let before = ended.len();
            ended.extend(bios);
            (ended.len() - before) as u64
        };
        self.step();
        world.note(Kind::Deliver, owner, nr);
        let notice = mailbox.cell.deliver(nr, || ());
        match notice {
            Notice::Kick if !hctx.is_shared => {
                world.fail(broken(rules::NO_LEADER, format!("context {}", hctx.at)));
            }
            Notice::Wake => self.wakes.push(to),
            _ => {}
        }
        notice
    }
}

/// Runs the core's turn, and checks its results.
fn turn_core(
    world: &crate::world::World,
    hctx: &Hctx,
    gates: Gates,
    commit: Commit,
    ended: &mut Vec<Box<QueuedBio>>,
) -> Turned {
    let now = world.now();
    let turned = hctx.with_port(world, |core, port| {
        if world.device_state.is_failed() {
            port.checks.bios.offline();
            port.checks.owners_gone(hctx.at);
        }
        let nr_before = ended.len();
        let nr_issued = port.checks.trace.counts[Kind::Issue as usize];
        let turned = core.turn(port, now, gates, commit, ended);
        if world.device_state.is_given_up() {
            port.checks.bios.offline();
        }
        if world.device_state.is_failed() {
            port.checks.owners_gone(hctx.at);
        }
        let checks = &mut *port.checks;
        checks.owner_depths.read();
        checks.note(Kind::Turn, hctx.at as u64, turned.nr_in_flight().into());
        let is_idle = checks.trace.counts[Kind::Issue as usize] == nr_issued;
        checks.runs.turned(hctx.at, is_idle && ended.len() == nr_before);
        let Policy { io_timeout_ns, io_timeout_grace_ns, .. } = world.disk.policy;
        let mut given_up = Vec::new();
        // A turn that may not reap does not check for overdue requests either.
        if io_timeout_ns > 0 && gates.reap {
            let nr = port.state.count_overdue(now, io_timeout_ns);
            let verdict = checks.runs.overdue(hctx.at, nr, &hctx.counters);
            checks.expect(verdict);
            let is_file = port.device.file.is_some();
            let nr_given_up = port.state.nr_given_up();
            given_up = port.state.give_up(now, io_timeout_grace_ns, checks, is_file);
            if port.state.nr_given_up() > nr_given_up && !world.device_state.is_failed() {
                checks.expect(broken(rules::H3, format!("context {} has such a request", hctx.at)));
            }
        }
        for bio in &mut ended[nr_before..] {
            checks.note(Kind::End, bio.number().into(), crate::trace::code(bio.result()));
            checks.progress_at = checks.trace.step;
            checks.bios.row_mut(bio.number()).ended_ns = now;
            checks.check_flush_wait(bio.number(), port.state.nr_flushes);
            let is_early = match io_timeout_ns {
                0 => Ok(false),
                _ => port.state.check_early_end(bio.number()),
            };
            let verdict = is_early.and_then(|is_early| checks.end_bio(bio, is_early));
            checks.expect(verdict);
            if let Some(hold) = bio.take_hold() {
                // A box that no command has may be used again before the memory is free.
                let is_used = checks.bios.row(bio.number()).is_kept;
                port.state.hold(is_used.then_some(bio.number()), hold);
            }
        }
        for slot in given_up {
            let verdict = checks.bios.check_given_up(slot);
            checks.expect(verdict);
        }
        let verdict = port.state.check_holds();
        checks.expect(verdict);
        let verdict = checks.order.turned(hctx.at, &checks.bios);
        checks.expect(verdict);
        let durability = world.device_state.durability();
        let verdict = checks.durable.check_durable_point(durability);
        checks.expect(verdict);
        turned
    });
    match hctx.nr_turns_to_check.get().checked_sub(1) {
        Some(nr_left) => hctx.nr_turns_to_check.set(nr_left),
        None => {
            let nr_bios = hctx.with_inner(|inner| inner.core.check_invariants());
            hctx.nr_turns_to_check.set(TURNS_PER_CHECK + nr_bios as u64);
        }
    }
    turned
}
