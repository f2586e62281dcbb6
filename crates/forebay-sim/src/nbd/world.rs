//! The simulated world: clients, connections, the server and its disk; the event loop; and crashes.

use super::client::{Client, Shared};
use super::conn::Conn;
use super::context::{Context, Event, Way};
use super::device::Device;
use super::disk::Disk;
use super::outside::{Outside, SharedOutside};
use super::pipe::Pipe;
use super::rules::{N6, N7, P2, P3};
use super::scenario::{Ending, Scenario};
use super::settings::Settings;
use super::store::SECTOR;
use super::trace::Met;
use super::workers::Workers;
use crate::check::{Broken, Verdict, broken};
use crate::sectors::{Anomaly, Crash, Rule, Sectors, Value};
use forebay_core::{Policy, QueueLimits};
use std::cell::RefCell;
use std::rc::Rc;

/// The limit of events: a run that has not ended by then never will.
const NR_EVENTS_MAX: u64 = 10_000_000;

/// The simulated world of a run.
#[derive(Debug)]
pub(crate) struct World {
    outside: SharedOutside,
    limits: QueueLimits,
    policy: Policy,
    settings: Settings,
    clients: Vec<Client>,
    shared: Shared,
    server: Workers,
    sectors: Sectors,
    endings: Vec<Ending>,
    pipe: (usize, u64, u64),
    /// How many percent of the connections report no event for bytes that a read has left.
    unreported: u32,
}

impl World {
    pub(crate) fn new(scenario: Scenario, cx: Context) -> World {
        let shared = Shared::new(&scenario);
        let Scenario { limits, policy, model, failure_loses, settings, .. } = scenario;
        let device = Device::new(model, &limits, failure_loses);
        let nr_sectors = device.store.nr_sectors();
        let disk = Disk::open(limits, policy, device, settings.nr_bios);
        let outside = Rc::new(RefCell::new(Outside::new(cx, disk, settings.may_fail)));
        World {
            clients: (0..scenario.nr_clients).map(Client::new).collect(),
            shared,
            server: Workers::new(&settings, &outside),
            outside,
            sectors: Sectors::new(nr_sectors),
            endings: scenario.endings,
            pipe: (scenario.pipe_bytes, scenario.piece_max, scenario.pipe_ns),
            unreported: scenario.unreported,
            limits,
            policy,
            settings,
        }
    }

    /// Calls `look` with the clock and the trace of the run.
    pub(crate) fn with_context<R>(&self, look: impl FnOnce(&Context) -> R) -> R {
        look(&self.outside.borrow().cx)
    }

    /// Runs all phases.
    pub(crate) fn run(&mut self) -> Verdict {
        for ending in std::mem::take(&mut self.endings) {
            let nr_requests = self.shared.load.nr_requests;
            self.shared.nr_answers = 0;
            for client in &mut self.clients {
                client.begin(nr_requests, &mut self.outside.borrow_mut().cx);
            }
            self.phase(ending)?;
            self.crash(ending)?;
        }
        Ok(())
    }

    /// Runs until no event is left, or the phase ends.
    fn phase(&mut self, ending: Ending) -> Verdict {
        let nr_answers_max = match ending {
            Ending::Quiet => u64::MAX,
            Ending::PowerCut(nr) | Ending::ServerDies(nr) | Ending::ServerStops(nr) => nr,
        };
        if self.run_until(nr_answers_max)? {
            return self.check_quiet();
        }
        match ending {
            Ending::ServerStops(_) => self.stop(),
            _ => Ok(()),
        }
    }

    /// Runs until the clients have received `nr_answers_max` replies, or no event is left. Returns
    /// whether no event is left.
    fn run_until(&mut self, nr_answers_max: u64) -> Result<bool, Broken> {
        let mut nr_events = 0;
        while self.shared.nr_answers < nr_answers_max {
            let event = self.outside.borrow_mut().cx.next();
            let Some(event) = event else { return Ok(true) };
            self.fire(event)?;
            nr_events += 1;
            if nr_events > NR_EVENTS_MAX {
                return Err(Broken::new(N6, "events without an end".into()));
            }
        }
        Ok(false)
    }

    /// Stops the server. It sends its last replies and closes all connections.
    fn stop(&mut self) -> Verdict {
        {
            let Outside { cx, disk, .. } = &mut *self.outside.borrow_mut();
            cx.note(Met::ServerStops, disk.is_busy().into(), 0);
        }
        self.shared.is_stopping = true;
        self.clients.iter_mut().for_each(Client::retire);
        self.server.stop();
        self.run_until(u64::MAX)?;
        self.check_quiet()?;
        self.shared.is_stopping = false;
        Ok(())
    }

    fn fire(&mut self, event: Event) -> Verdict {
        match event {
            Event::Act(client) => {
                let connects = {
                    let Outside { cx, conns, .. } = &mut *self.outside.borrow_mut();
                    self.clients[client].act(conns.len(), &mut self.shared, cx)
                };
                if connects {
                    self.connect(client);
                }
                self.pump(client)
            }
            Event::Move(conn, way) => self.advance(conn, way),
            Event::Work(worker) => {
                self.server.work(worker);
                // The pipes may have room again.
                (0..self.clients.len()).try_for_each(|client| self.pump(client))
            }
            Event::Done(hctx, tag) => {
                {
                    let Outside { cx, disk, .. } = &mut *self.outside.borrow_mut();
                    disk.done(hctx, tag, cx);
                }
                self.server.wake_worker(hctx);
                Ok(())
            }
            Event::Again(hctx) => {
                self.server.wake_worker(hctx);
                Ok(())
            }
            Event::Tick(worker) => {
                self.server.tick(worker);
                Ok(())
            }
            Event::Answer => {
                self.server.answer();
                Ok(())
            }
        }
    }

    fn connect(&mut self, client: usize) {
        let (room, piece_max, pipe_ns) = self.pipe;
        let (up, down) = (Pipe::new(room), Pipe::new(room));
        let conn = {
            let Outside { cx, conns, .. } = &mut *self.outside.borrow_mut();
            let is_unreported = cx.random.chance(self.unreported, 100);
            conns.push(Conn::new((up, down), client, (piece_max, pipe_ns), is_unreported));
            conns.len() - 1
        };
        self.server.accept(conn);
    }

    /// Delivers a piece of a stream.
    fn advance(&mut self, at: usize, way: Way) -> Verdict {
        let client = {
            let Outside { cx, conns, .. } = &mut *self.outside.borrow_mut();
            let conn = &mut conns[at];
            let piece_max = conn.piece_max;
            let pipe = conn.pipe(way);
            pipe.is_moving = false;
            let has_more = pipe.advance(&mut cx.random, piece_max);
            conn.has_new |= way == Way::Up;
            cx.note(Met::Move, at as u64, way as u64);
            if has_more {
                conn.start(at, way, cx);
            }
            conn.client
        };
        match way {
            Way::Up => {
                self.server.wake(at);
                Ok(())
            }
            Way::Down => self.pump(client),
        }
    }

    /// Lets a client read and write as much as it can.
    fn pump(&mut self, client: usize) -> Verdict {
        let client = &mut self.clients[client];
        let Some(live) = &client.live else { return Ok(()) };
        let at = live.conn;
        let has_read = {
            let Outside { cx, conns, .. } = &mut *self.outside.borrow_mut();
            let conn = &mut conns[at];
            let had_arrived = conn.down.has_arrived();
            client.pump(conn, &mut self.shared, cx)?;
            had_arrived && !conn.down.has_arrived()
        };
        if has_read {
            // The server may write again.
            self.server.wake(at);
        }
        Ok(())
    }

    /// Checks the final state: no event is left, so every client must have finished.
    fn check_quiet(&mut self) -> Verdict {
        for client in &self.clients {
            if !client.is_over() {
                let what = format!("client {} waits forever: {:?}", client.id, client.live);
                return broken(N6, what.chars().take(600).collect());
            }
        }
        self.server.check_drained(N7)?;
        let Outside { cx, disk, .. } = &mut *self.outside.borrow_mut();
        disk.check_drained(N7)?;
        let tally = self.sectors.check(&self.shared.log).map_err(|found| anomaly(&found))?;
        if tally.racing_reads > 0 {
            cx.note(Met::RacingReads, tally.racing_reads, tally.reads);
        }
        Ok(())
    }

    /// Cuts the power or kills the server, and then checks what the disk holds.
    fn crash(&mut self, ending: Ending) -> Verdict {
        let (crash, found) = {
            let Outside { cx, disk, .. } = &mut *self.outside.borrow_mut();
            let is_busy = disk.is_busy();
            if disk.nr_merged() > 0 {
                cx.note(Met::Merged, disk.nr_merged(), 0);
            }
            disk.abandon(cx);
            let crash = if let Ending::ServerDies(_) | Ending::ServerStops(_) = ending {
                if matches!(ending, Ending::ServerDies(_)) {
                    cx.note(Met::ServerDies, is_busy.into(), 0);
                }
                disk.device.store.forget_losses();
                Crash::Server
            } else {
                let nr_lost = disk.device.store.cut(&mut cx.random);
                cx.note(if is_busy { Met::PowerCutBusy } else { Met::PowerCut }, nr_lost, 0);
                if nr_lost > 0 {
                    cx.note(Met::PowerCutLoses, nr_lost, 0);
                }
                Crash::Power
            };
            (crash, found(disk))
        };
        let log = std::mem::take(&mut self.shared.log);
        self.sectors.crash(&log, crash, &found).map_err(|found| anomaly(&found))?;
        self.restart();
        Ok(())
    }

    /// Starts a new server on the same device.
    fn restart(&mut self) {
        {
            let mut outside = self.outside.borrow_mut();
            outside.forget();
            outside.disk.reopen(self.limits, self.policy);
        }
        self.server = Workers::new(&self.settings, &self.outside);
    }
}

/// Returns the value of every sector.
fn found(disk: &Disk) -> Vec<Value> {
    let store = &disk.device.store;
    (0..store.nr_sectors()).map(|sector| Value::of(sector, store.read(sector))).collect()
}

fn anomaly(anomaly: &Anomaly) -> Broken {
    let rule = if anomaly.rule == Rule::Durable { P2 } else { P3 };
    let Anomaly { sector, rule: which, what } = anomaly;
    Broken::new(rule, format!("sector {sector} (byte {}), {which:?}: {what}", sector * SECTOR))
}
