//! A turn of a hardware context: what its holder does with it, and whom it tells of that. The
//! library's `hctx/token.rs`.

use crate::check::{broken, rules};
use crate::plant::Plant;
use crate::runtime::hctx::{Hctx, Inbox};
use crate::runtime::mailbox::Tell;
use crate::runtime::thread::Thread;
use crate::runtime::wait::{LATE_NS, RESOURCE_DELAY_NS};
use crate::trace::Kind;
use forebay_core::{Commit, Gates, QueuedBio, Tag, Turned};

/// Turns between two looks at the whole structure.
const TURNS_PER_CHECK: u64 = 16;

/// Which way the ends of a turn's own task take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// Straight to the task.
    Direct,
    /// Through its mailbox.
    Mail,
}

impl Thread<'_> {
    /// One turn: takes in what others have published and what this task sends, does all that can
    /// be done, and delivers the ends.
    pub(crate) fn turn_once(
        &mut self,
        hctx: &Hctx,
        commit: Commit,
        with_outgoing: bool,
        own: Own,
        early: Option<Inbox>,
    ) -> Turned {
        self.is_in_turn = true;
        let gates = self.gates(hctx);
        let commit = match commit {
            // Without a leader in the driver nobody commits what is left.
            Commit::Unless(_) if !hctx.run.is_blocked() => Commit::Now,
            commit => commit,
        };
        self.step();
        self.hear_of_tags(hctx);
        let mut inbox = early.unwrap_or_else(|| hctx.inbox.replace(Inbox::new()));
        if self.world.plants(Plant::NewestFirst) {
            inbox.requests.reverse();
        }
        let outgoing = if with_outgoing { self.take_outgoing_slots() } else { Vec::new() };
        {
            let mut checks = self.world.checks();
            let held = checks.gates.check_holder(hctx.at, self.id);
            checks.expect(held);
            let checks = &mut *checks;
            checks.runs.read(hctx.at);
            for slot in inbox.slots.into_iter().chain(outgoing) {
                checks.order.arrive(hctx.at, slot, &checks.bios);
            }
        }
        hctx.with_inner(|inner| {
            for first in inbox.requests {
                inner.core.accept_bios(first, gates.enter);
            }
            if with_outgoing {
                for rq in self.queue.outgoing() {
                    inner.core.accept(rq, gates.enter);
                }
            }
            if inner.is_kicked && gates.reap {
                inner.is_kicked = false;
                inner.core.reap_kick();
            }
        });
        let mut ended = std::mem::take(&mut self.ended);
        let mut turned = self.turn_core(hctx, gates, commit, &mut ended);
        self.step();
        let mut kick = false;
        if hctx.with_inner(|inner| inner.core.has_lines()) {
            kick = self.tell_of_tags(hctx, gates, commit, &mut ended, &mut turned);
        }
        hctx.is_drained.set(turned.is_drained);
        kick |= turned.work_left && turned.nr_in_flight == 0;
        kick |= self.deliver(hctx, own, &mut ended);
        self.ended = ended;
        kick |= hctx.tell_leader.take();
        if kick && hctx.is_shared {
            if turned.work_left && turned.nr_in_flight == 0 {
                // Before the leader is told of it.
                self.delay_run(hctx);
            }
            self.kick(hctx);
        }
        self.is_in_turn = false;
        turned
    }

    fn kick(&self, hctx: &Hctx) {
        if !self.world.plants(Plant::SkipKick) && hctx.run.kick() {
            hctx.with_inner(|inner| inner.is_kicked = true);
            hctx.with_port(&self.world, |_, port| forebay_core::Driver::kick(port));
            self.world.note(Kind::Kick, hctx.at as u64, 0);
            self.world.wake_waiter(hctx);
        }
    }

    /// A turn has left work at a busy driver with nothing in flight: another is due after a while.
    fn delay_run(&self, hctx: &Hctx) {
        let at_ns = self.world.now() + RESOURCE_DELAY_NS;
        if self.world.plants(Plant::ExtendDelay) {
            hctx.timer.cancel();
        }
        hctx.timer.delay(at_ns);
        let now = self.world.now();
        let left_ns = hctx.timer.left_ns(now);
        let verdict = self.world.checks().runs.delayed(now, at_ns, left_ns);
        self.world.fail(verdict);
    }

    fn gates(&self, hctx: &Hctx) -> Gates {
        let (gates, world) = (hctx.run.gates(), &self.world);
        Gates {
            enter: gates.enter || world.plants(Plant::EnterFrozen),
            dispatch: gates.dispatch || world.plants(Plant::DispatchQuiesced),
            reap: gates.reap || world.plants(Plant::ReapKicked),
        }
    }

    /// The core's turn, and what the checkers say to it.
    pub(super) fn turn_core(
        &self,
        hctx: &Hctx,
        gates: Gates,
        commit: Commit,
        ended: &mut Vec<Box<QueuedBio>>,
    ) -> Turned {
        let now = self.world.now();
        let turned = hctx.with_port(&self.world, |core, port| {
            if self.world.device_state.is_failed() {
                port.checks.bios.offline();
            }
            let nr_before = ended.len();
            let nr_issued = port.checks.trace.counts[Kind::Issue as usize];
            let turned = core.turn(port, now, gates, commit, ended);
            let checks = &mut *port.checks;
            checks.note(Kind::Turn, hctx.at as u64, turned.nr_in_flight.into());
            let is_idle = checks.trace.counts[Kind::Issue as usize] == nr_issued;
            checks.runs.turned(hctx.at, is_idle && ended.len() == nr_before);
            for bio in &ended[nr_before..] {
                checks.note(Kind::End, bio.number().into(), crate::trace::code(bio.result()));
                checks.progress_at = checks.trace.step;
                let verdict = checks.end_bio(bio);
                checks.expect(verdict);
            }
            let verdict = checks.order.turned(hctx.at, &checks.bios);
            checks.expect(verdict);
            let durability = self.world.device_state.durability();
            let verdict = checks.durable.check_durable_point(durability);
            checks.expect(verdict);
            turned
        });
        hctx.nr_turns.set(hctx.nr_turns.get() + 1);
        if hctx.nr_turns.get().is_multiple_of(TURNS_PER_CHECK) {
            hctx.with_inner(|inner| inner.core.check_invariants());
        }
        turned
    }

    /// Delivers what has ended. Says whether the leader of this context must be told.
    fn deliver(&mut self, hctx: &Hctx, own: Own, ended: &mut Vec<Box<QueuedBio>>) -> bool {
        let mut to_leader = false;
        let charges: Vec<Tag> = {
            let mut checks = self.world.checks();
            ended.iter().filter_map(|bio| checks.bios.row_mut(bio.number()).charge.take()).collect()
        };
        if self.world.plants(Plant::WaitInTurn) && !ended.is_empty() {
            self.check_may_wait();
            self.cpu.park_for(LATE_NS);
        }
        if !charges.is_empty() {
            self.refund(charges);
        }
        let mut bios = std::mem::take(ended).into_iter().peekable();
        while let Some(bio) = bios.next() {
            let owner = bio.owner();
            if own == Own::Direct && owner == self.id as u64 {
                self.ready.push_back(bio);
                self.nr_in_layer -= 1;
                continue;
            }
            let same = std::iter::from_fn(|| bios.next_if(|bio| bio.owner() == owner));
            let group: Vec<_> = std::iter::once(bio).chain(same).collect();
            let nr = group.len() as u64;
            let to = match self.world.plants(Plant::WrongMailbox) {
                true => (owner as usize + 1) % self.world.mailboxes.len(),
                false => owner as usize,
            };
            let world = std::rc::Rc::clone(&self.world);
            let mailbox = &world.mailboxes[to];
            mailbox.ended.borrow_mut().extend(group);
            self.step();
            world.note(Kind::Deliver, owner, nr);
            match mailbox.count(nr) {
                Tell::Nobody => {}
                Tell::Kick if hctx.is_shared => to_leader = true,
                Tell::Kick => {
                    self.world.fail(broken(rules::NO_LEADER, format!("context {}", hctx.at)))
                }
                Tell::Wake if world.plants(Plant::SkipWake) => {}
                Tell::Wake => self.wakes.push(to),
            }
        }
        to_leader
    }
}
