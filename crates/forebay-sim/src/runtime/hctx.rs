//! A hardware context: the token, the inbox, and the turn.

use crate::check::broken;
use crate::driver::{DriverState, Port};
use crate::plant::Plant;
use crate::runtime::mailbox::Tell;
use crate::runtime::thread::Thread;
use crate::trace::Kind;
use crate::world::World;
use forebay_core::{Commit, Gates, HardwareContext, QueuedBio, RunCounters, RunState, TagSet};
use forebay_core::{Tag, Turned};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Turns between two looks at the whole structure.
const TURNS_PER_CHECK: u64 = 16;

/// The bios of a request that is published, as a list, and the numbers of their boxes.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) requests: Vec<Box<QueuedBio>>,
    pub(crate) slots: Vec<u32>,
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox { requests: Vec::new(), slots: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// One of the disk's hardware contexts. The first is shared; the others are owned by one task at a
/// time.
#[derive(Debug)]
pub(crate) struct Hctx {
    pub(crate) at: usize,
    pub(crate) run: RunState,
    pub(crate) is_shared: bool,
    pub(crate) is_owned: Cell<bool>,
    pub(crate) inbox: RefCell<Inbox>,
    /// A leader was told from outside its context's turns, and must be kicked.
    pub(crate) tell_leader: Cell<bool>,
    pub(crate) followers: RefCell<Vec<usize>>,
    /// Who waits in the driver.
    pub(crate) waiter: Cell<Option<(usize, u32)>>,
    /// Whether the last turn left nothing that was let in.
    pub(crate) is_drained: Cell<bool>,
    pub(crate) nr_skipped: Cell<u64>,
    /// Tasks that have published something and not asked for a run yet.
    pub(crate) nr_publishing: Cell<u32>,
    nr_turns: Cell<u64>,
    pub(crate) counters: Arc<RunCounters>,
    pub(crate) inner: RefCell<Option<Inner>>,
}

/// What the holder of the token has.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) core: HardwareContext,
    pub(crate) driver: DriverState,
    pub(crate) tags: Arc<TagSet>,
    is_kicked: bool,
}

impl Hctx {
    pub(crate) fn new(at: usize) -> Hctx {
        Hctx {
            at,
            run: RunState::new(),
            is_shared: at == 0,
            is_owned: Cell::new(at == 0),
            inbox: RefCell::new(Inbox::new()),
            tell_leader: Cell::new(false),
            followers: RefCell::default(),
            waiter: Cell::new(None),
            is_drained: Cell::new(true),
            nr_skipped: Cell::new(0),
            nr_publishing: Cell::new(0),
            nr_turns: Cell::new(0),
            counters: Arc::default(),
            inner: RefCell::new(None),
        }
    }

    /// Puts a new inner part in place.
    pub(crate) fn open(&self, world: &World) {
        let depth = world.disk.policy.queue_depth;
        let tags = Arc::new(TagSet::new(depth));
        let core = HardwareContext::new(
            world.disk.limits,
            world.disk.policy,
            self.at as u32,
            Arc::clone(&world.device_state),
            Arc::clone(&tags),
            Arc::clone(&self.counters),
        );
        let driver = DriverState::new(self.at, depth);
        *self.inner.borrow_mut() = Some(Inner { core, driver, tags, is_kicked: false });
    }

    /// Calls `act` with the inner part and its driver.
    pub(crate) fn with_port<T>(
        &self,
        world: &World,
        act: impl FnOnce(&mut HardwareContext, &mut Port<'_>) -> T,
    ) -> T {
        let mut inner = self.inner.borrow_mut();
        let inner = inner.as_mut().expect("a context in use has an inner part");
        let mut device = world.device.borrow_mut();
        let mut checks = world.checks();
        let mut heap = world.scheduler.heap.borrow_mut();
        let mut port = Port {
            state: &mut inner.driver,
            device: &mut device,
            checks: &mut checks,
            heap: &mut heap,
            now: world.now(),
            is_kicked: self.run.is_kicked(),
        };
        act(&mut inner.core, &mut port)
    }

    /// Calls `act` with the inner part.
    pub(crate) fn with_inner<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.borrow_mut();
        act(inner.as_mut().expect("a context in use has an inner part"))
    }
}

/// Which way the ends of a turn's own task take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// Straight to the task.
    Direct,
    /// Through its mailbox.
    Mail,
}

impl Thread {
    /// Asks for a turn after something was published.
    pub(crate) fn run(&self, hctx: &Hctx) -> bool {
        let mut checks = self.world.checks();
        let is_ours = hctx.run.run() || self.world.plants(Plant::RunWithoutToken);
        if is_ours {
            hctx.counters.count_run();
            checks.note(Kind::Take, hctx.at as u64, 0);
            let taken = checks.gates.take(hctx.at, self.id);
            checks.expect(taken);
        } else {
            hctx.nr_skipped.set(hctx.nr_skipped.get() + 1);
            checks.note(Kind::Skip, hctx.at as u64, 0);
        }
        is_ours
    }

    /// Takes the token if it is free.
    pub(crate) fn try_take(&self, hctx: &Hctx) -> bool {
        let is_ours = hctx.run.try_take();
        if is_ours {
            hctx.counters.count_run();
            let mut checks = self.world.checks();
            checks.note(Kind::Take, hctx.at as u64, 0);
            let taken = checks.gates.take(hctx.at, self.id);
            checks.expect(taken);
        }
        is_ours
    }

    /// Gives the token back, to wait in the driver or not, and wakes whom the turns were about; or
    /// keeps it.
    pub(crate) async fn release(&mut self, hctx: &Hctx, to_wait: bool) -> bool {
        let is_released = self.give_back(hctx, to_wait);
        if is_released {
            self.wake().await;
        }
        is_released
    }

    fn give_back(&self, hctx: &Hctx, to_wait: bool) -> bool {
        let mut checks = self.world.checks();
        let held = checks.gates.check_holder(hctx.at, self.id);
        checks.expect(held);
        let released = if to_wait { hctx.run.release_to_wait() } else { hctx.run.release() };
        if released {
            checks.gates.give(hctx.at);
            if !hctx.inbox.borrow().is_empty() && hctx.nr_publishing.get() == 0 {
                let what = format!("context {}: its inbox is not empty, and nobody runs", hctx.at);
                checks.expect(broken("no run is lost (R2)", what));
            }
            checks.note(Kind::Release, hctx.at as u64, to_wait.into());
        }
        released
    }

    /// The token was given back: wakes whom it is about.
    pub(crate) async fn wake(&mut self) {
        for task in std::mem::take(&mut self.wakes) {
            self.step().await;
            self.world.wake(task);
        }
    }

    /// Says that the leader, who does not hold the token, is going to wait; or gives it the token,
    /// since nobody holds it any more, and a turn is due.
    pub(crate) async fn block(&self, hctx: &Hctx) -> bool {
        hctx.run.block();
        if self.world.plants(Plant::BlockUnasked) {
            return false;
        }
        self.step().await;
        let is_ours = self.run(hctx);
        if is_ours {
            self.step().await;
            hctx.run.unblock();
        }
        is_ours
    }

    /// Turns, and gives the token back, until nothing was published meanwhile.
    pub(crate) async fn finish(&mut self, hctx: &Hctx) {
        loop {
            self.step().await;
            let early = match self.world.plants(Plant::InboxBeforeRun) {
                true => Some(hctx.inbox.replace(Inbox::new())),
                false => None,
            };
            if early.is_some() {
                self.step().await;
            }
            if self.release(hctx, false).await {
                if let Some(mut early) = early {
                    let mut inbox = hctx.inbox.borrow_mut();
                    inbox.requests.append(&mut early.requests);
                    inbox.slots.append(&mut early.slots);
                }
                return self.settle().await;
            }
            self.turn_once(hctx, Commit::Now, false, Own::Mail, early).await;
        }
    }

    /// One turn: takes in what others have published and what this task sends, does all that can
    /// be done, and delivers the ends.
    pub(crate) async fn turn_once(
        &mut self,
        hctx: &Hctx,
        commit: Commit,
        with_outgoing: bool,
        own: Own,
        early: Option<Inbox>,
    ) -> Turned {
        let gates = self.gates(hctx);
        let commit = match commit {
            // Without a leader in the driver nobody commits what is left.
            Commit::Unless(_) if !hctx.run.is_blocked() => Commit::Now,
            commit => commit,
        };
        self.step().await;
        let inbox = early.unwrap_or_else(|| hctx.inbox.replace(Inbox::new()));
        let outgoing = if with_outgoing { self.take_outgoing_slots() } else { Vec::new() };
        {
            let mut checks = self.world.checks();
            let held = checks.gates.check_holder(hctx.at, self.id);
            checks.expect(held);
            let checks = &mut *checks;
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
        let turned = self.turn_core(hctx, gates, commit, &mut ended);
        self.step().await;
        let mut kick = turned.work_left && turned.nr_in_flight == 0;
        kick |= self.deliver(hctx, own, &mut ended).await;
        self.ended = ended;
        kick |= hctx.tell_leader.take();
        if kick && hctx.is_shared && !self.world.plants(Plant::SkipKick) && hctx.run.kick() {
            hctx.with_inner(|inner| inner.is_kicked = true);
            hctx.with_port(&self.world, |_, port| forebay_core::Driver::kick(port));
            self.world.note(Kind::Kick, hctx.at as u64, 0);
            self.world.wake_waiter(hctx);
        }
        turned
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
    fn turn_core(
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
            let turned = core.turn(port, now, gates, commit, ended);
            let checks = &mut *port.checks;
            checks.note(Kind::Turn, hctx.at as u64, turned.nr_in_flight.into());
            for bio in ended.iter() {
                checks.note(Kind::End, bio.number().into(), crate::trace::code(bio.result()));
                checks.progress_at = checks.trace.step;
                let verdict = checks.bios.end(bio, &mut checks.register);
                checks.expect(verdict);
            }
            let verdict = checks.order.turned(hctx.at, &checks.bios);
            checks.expect(verdict);
            turned
        });
        hctx.is_drained.set(turned.is_drained);
        hctx.nr_turns.set(hctx.nr_turns.get() + 1);
        if hctx.nr_turns.get().is_multiple_of(TURNS_PER_CHECK) {
            hctx.with_inner(|inner| inner.core.check_invariants());
        }
        turned
    }

    /// Delivers what has ended. Says whether the leader of this context must be told.
    async fn deliver(&mut self, hctx: &Hctx, own: Own, ended: &mut Vec<Box<QueuedBio>>) -> bool {
        let mut to_leader = false;
        let charges: Vec<Tag> = {
            let mut checks = self.world.checks();
            ended.iter().filter_map(|bio| checks.bios.row_mut(bio.number()).charge.take()).collect()
        };
        if !charges.is_empty() {
            self.refund(charges).await;
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
            self.step().await;
            world.note(Kind::Deliver, owner, nr);
            match mailbox.count(nr) {
                Tell::Nobody => {}
                Tell::Kick if hctx.is_shared => to_leader = true,
                Tell::Kick => self
                    .world
                    .fail(broken("an owned context has no leader", format!("context {}", hctx.at))),
                Tell::Wake if world.plants(Plant::SkipWake) => {}
                Tell::Wake => self.wakes.push(to),
            }
        }
        to_leader
    }
}
