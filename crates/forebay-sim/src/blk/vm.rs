//! A guest and its front end: they start and stop the rings, and sometimes they die.

use super::driver::Driver;
use super::met::Met;
use super::queue::{Latencies, Queue};
use super::requests::{F_DISCARD, F_FLUSH, F_WRITE_ZEROES};
use super::rings::Rings;
use super::rules::{X1, X3, Y3, Y4};
use super::scenario::{Action, Scenario};
use super::shared::Shared;
use super::workers::{Command, Workers};
use crate::check::{Verdict, broken};
use crate::server::{Context, Event, Log, Outside};

/// Mean time until a front end notices that a ring is broken, ns.
const NOTICE_NS: u64 = 10_000;
/// Mean time until a stopped guest starts again, ns.
const START_NS: u64 = 5_000;

/// State of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Off,
    /// Its rings are started.
    Running,
    /// This many rings are still to stop.
    Stopping(usize, Then),
    /// All rings have stopped.
    Stopped(Then),
}

/// Step that follows when all rings have stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The guest is off.
    Off,
    /// The same guest, or another one, starts with new rings.
    Boot,
    /// The guest goes on with the same rings.
    Resume,
}

/// The guest.
#[derive(Debug)]
pub(super) struct Vm {
    state: State,
    drivers: Vec<Driver>,
    pub(super) shared: Shared,
    nr_actions: u32,
    latencies: Latencies,
    /// A ring that is disabled.
    disabled: Option<usize>,
    /// An event of the front end is scheduled.
    is_due: bool,
}

impl Vm {
    pub(super) fn new(scenario: &Scenario) -> Vm {
        let shared = Shared {
            load: scenario.load.clone(),
            device: scenario.device.clone(),
            queue_size: scenario.queue_size,
            may_fail: scenario.disk.has_faults,
            log: Log::default(),
            nr_toggles: 0,
            nr_unpromised: 0,
            repeated: Vec::new(),
        };
        Vm {
            state: State::Off,
            drivers: (0..scenario.nr_queues).map(Driver::new).collect(),
            shared,
            nr_actions: 0,
            latencies: scenario.latencies,
            disabled: None,
            is_due: false,
        }
    }

    /// Schedules an event of the front end.
    fn soon(&mut self, mean_ns: u64, cx: &mut Context) {
        if !std::mem::replace(&mut self.is_due, true) {
            cx.soon(mean_ns, Event::Act(self.drivers.len()));
        }
    }

    /// Begins a phase. No event is scheduled.
    pub(super) fn begin(&mut self, server: &mut Workers) {
        {
            let cx = &mut server.outside.borrow_mut().cx;
            let nr_requests = self.shared.load.nr_requests;
            self.drivers.iter_mut().for_each(|driver| driver.begin(nr_requests, cx));
            self.nr_actions = self.shared.load.nr_actions;
            self.is_due = false;
            if self.state == State::Running {
                self.soon(self.shared.load.action_ns, cx);
            }
        }
        if self.state == State::Off {
            self.boot(server);
        }
    }

    /// Starts the guest, with new rings.
    fn boot(&mut self, server: &mut Workers) {
        {
            let Outside { cx, transport, .. } = &mut *server.outside.borrow_mut();
            let load = &self.shared.load;
            let mut features = 0;
            let can =
                [(F_FLUSH, true), (F_DISCARD, load.can_discard), (F_WRITE_ZEROES, load.can_zero)];
            for (feature, is_offered) in can {
                if is_offered && cx.random.chance(3, 4) {
                    features |= feature;
                }
            }
            let has_event_index = cx.random.chance(1, 2);
            cx.note(Met::Boot, features, 0);
            if features & F_FLUSH == 0 {
                cx.note(Met::BootWithoutFlush, features, 0);
            }
            if has_event_index {
                cx.note(Met::BootWithEventIndex, features, 0);
            }
            let queue = |id| {
                let start = u16::MAX - cx.random.below(8) as u16;
                Queue::new(id, features, has_event_index, start, self.latencies)
            };
            transport.queues = (0..self.drivers.len()).map(queue).collect();
            transport.write_cache = true;
            self.shared.nr_toggles += 1;
        }
        self.start(server);
    }

    /// Starts the rings.
    fn start(&mut self, server: &mut Workers) {
        self.state = State::Running;
        self.disabled = None;
        self.soon(self.shared.load.action_ns, &mut server.outside.borrow_mut().cx);
        for (at, driver) in self.drivers.iter_mut().enumerate() {
            driver.resume(&mut server.outside.borrow_mut().cx);
            server.command(at, Command::Start);
        }
    }

    /// Stops the rings.
    fn stop(&mut self, then: Then, server: &mut Workers) {
        let nr = self.drivers.len();
        self.state = State::Stopping(nr, then);
        (0..nr).for_each(|at| server.command(at, Command::Stop));
    }

    /// Handles the stop of a ring.
    pub(super) fn stopped(&mut self, server: &mut Workers) {
        let State::Stopping(nr, then) = self.state else { return };
        self.state = if nr > 1 { State::Stopping(nr - 1, then) } else { State::Stopped(then) };
        if nr == 1 {
            self.is_due = false;
            self.soon(START_NS, &mut server.outside.borrow_mut().cx);
        }
    }

    /// Goes on after all rings have stopped.
    fn go_on(&mut self, then: Then, server: &mut Workers) {
        if then == Then::Resume {
            {
                let Outside { cx, transport, .. } = &mut *server.outside.borrow_mut();
                for (driver, queue) in self.drivers.iter().zip(&mut transport.queues) {
                    driver.is_repeated(&queue.taken, &mut self.shared);
                    queue.restart(cx);
                }
            }
            return self.start(server);
        }
        {
            let Outside { cx, transport, .. } = &mut *server.outside.borrow_mut();
            for (driver, queue) in self.drivers.iter_mut().zip(&mut transport.queues) {
                let untaken = queue.drop_untaken();
                if !untaken.is_empty() {
                    cx.note(Met::NotTaken, queue.id as u64, untaken.len() as u64);
                }
                driver.drop_requests(&untaken, &mut self.shared);
            }
            transport.queues.clear();
        }
        self.state = State::Off;
        if then == Then::Boot {
            self.boot(server);
        }
    }

    /// Handles the death of everything by a loss of power.
    pub(super) fn forget(&mut self, rings: &mut Rings) {
        for driver in &mut self.drivers {
            driver.drop_requests(&[], &mut self.shared);
            driver.retire();
        }
        rings.queues.clear();
        (self.state, self.shared.nr_unpromised) = (State::Off, 0);
        self.shared.repeated.clear();
    }

    /// Goes on with a new server. All scheduled events are lost.
    pub(super) fn reconnect(&mut self, server: &mut Workers) {
        let is_broken = server.is_broken();
        match self.state {
            State::Off => {}
            State::Running if is_broken => self.go_on(Then::Boot, server),
            State::Running => self.go_on(Then::Resume, server),
            State::Stopping(_, then) | State::Stopped(then) => self.go_on(then, server),
        }
    }

    /// Makes no more requests.
    pub(super) fn retire(&mut self) {
        self.drivers.iter_mut().for_each(Driver::retire);
        self.nr_actions = 0;
    }

    /// Handles a step of a driver or of the front end.
    pub(super) fn act(&mut self, at: usize, server: &mut Workers) -> Verdict {
        if at == self.drivers.len() {
            self.is_due = false;
            self.act_as_front_end(server);
        } else if self.state == State::Running {
            let Outside { cx, transport, .. } = &mut *server.outside.borrow_mut();
            self.drivers[at].act(transport, &mut self.shared, cx)?;
        }
        self.leave_if_done(server);
        Ok(())
    }

    /// Handles an interrupt.
    pub(super) fn interrupted(&mut self, at: usize, server: &mut Workers) -> Verdict {
        if self.state == State::Running {
            let Outside { cx, transport, .. } = &mut *server.outside.borrow_mut();
            cx.note(Met::Interrupt, at as u64, 0);
            self.drivers[at].interrupted(transport, &mut self.shared, cx)?;
        }
        self.leave_if_done(server);
        Ok(())
    }

    /// Makes the front end look for a ring that is broken.
    pub(super) fn notice(&mut self, server: &mut Workers) {
        if self.state == State::Running && server.is_broken() {
            self.soon(NOTICE_NS, &mut server.outside.borrow_mut().cx);
        }
    }

    /// Shuts the guest down when all requests are answered.
    fn leave_if_done(&mut self, server: &mut Workers) {
        let is_done = self.drivers.iter().all(Driver::is_over);
        if self.state == State::Running && is_done && !server.is_stopping() {
            self.stop(Then::Off, server);
        }
    }

    fn act_as_front_end(&mut self, server: &mut Workers) {
        match self.state {
            State::Stopped(then) => self.go_on(then, server),
            State::Running if server.is_stopping() => {}
            State::Running if server.is_broken() => {
                let met = if self.is_busy() { Met::ResetBusy } else { Met::Reset };
                server.outside.borrow_mut().cx.note(met, 0, 1);
                self.stop(Then::Boot, server);
            }
            State::Running => {
                if let Some(at) = self.disabled.take() {
                    server.command(at, Command::Enable(true));
                } else if self.nr_actions > 0 {
                    self.nr_actions -= 1;
                    self.take_action(server);
                }
            }
            State::Off | State::Stopping(..) => {}
        }
        let has_more = self.nr_actions > 0 || self.disabled.is_some();
        if self.state == State::Running && has_more && !server.is_stopping() {
            self.soon(self.shared.load.action_ns, &mut server.outside.borrow_mut().cx);
        }
    }

    fn is_busy(&self) -> bool {
        self.drivers.iter().any(Driver::is_busy)
    }

    fn take_action(&mut self, server: &mut Workers) {
        let is_busy = self.is_busy();
        let met = |busy, idle| if is_busy { busy } else { idle };
        let action = {
            let Outside { cx, disk, transport } = &mut *server.outside.borrow_mut();
            let action = cx.random.pick(&self.shared.load.actions);
            match action {
                Action::ToggleCache => {
                    cx.note(Met::CacheToggled, (!transport.write_cache).into(), 0);
                    transport.write_cache = !transport.write_cache;
                    self.shared.nr_toggles += 1;
                }
                Action::Reset => cx.note(met(Met::ResetBusy, Met::Reset), 0, 0),
                Action::Pause => cx.note(met(Met::PauseBusy, Met::Pause), 0, 0),
                Action::Die => {
                    cx.note(met(Met::DeathBusy, Met::Death), 0, 0);
                    // The dead guest publishes nothing more.
                    for (driver, queue) in self.drivers.iter_mut().zip(&mut transport.queues) {
                        let untaken = queue.drop_prepared();
                        driver.drop_requests(&untaken, &mut self.shared);
                    }
                }
                Action::Disable => cx.note(Met::Disabled, 0, 0),
                Action::AcknowledgeLoss if disk.acknowledge_loss() => {
                    cx.note(Met::LossAcknowledged, 0, 0);
                    self.shared.promise_nothing();
                }
                Action::AcknowledgeLoss => {}
            }
            action
        };
        match action {
            Action::Reset | Action::Die => self.stop(Then::Boot, server),
            Action::Pause => self.stop(Then::Resume, server),
            Action::Disable => {
                let nr = self.drivers.len() as u64;
                let at = server.outside.borrow_mut().cx.random.below(nr) as usize;
                self.disabled = Some(at);
                server.command(at, Command::Enable(false));
            }
            Action::ToggleCache | Action::AcknowledgeLoss => {}
        }
    }

    /// Checks that the guest has finished. No event is left.
    pub(super) fn check_over(&self, server: &Workers) -> Verdict {
        let rings = &server.outside.borrow().transport;
        if server.is_stopping() {
            return Ok(()); // the workers are checked
        }
        if self.state == State::Off {
            return match self.drivers.iter().all(Driver::is_over) {
                true => Ok(()),
                false => broken(X3, format!("the guest is off: {self:?}")),
            };
        }
        for queue in &rings.queues {
            let id = queue.id;
            if queue.nr_available() > 0 && queue.taken.is_empty() {
                let nr = queue.nr_available();
                return broken(Y3, format!("ring {id} has {nr} requests, and the device sleeps"));
            }
            if queue.has_used() {
                return broken(Y4, format!("ring {id} has used entries, and the driver sleeps"));
            }
            if !queue.taken.is_empty() {
                return broken(X1, format!("ring {id}: {:?} are not answered", queue.taken));
            }
        }
        let what = format!("the guest waits forever: {:?}, {:?}", self.state, self.drivers);
        broken(X3, what.chars().take(600).collect())
    }
}
