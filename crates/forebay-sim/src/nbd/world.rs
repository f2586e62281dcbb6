//! The simulated world: clients, connections, the server and its disk; the event loop; and crashes.

use super::client::{Client, Shared};
use super::conn::Conn;
use super::context::{Context, Event, Way};
use super::device::Device;
use super::disk::Disk;
use super::pipe::Pipe;
use super::rules::{N6, N7, P2, P3};
use super::scenario::{Ending, Scenario};
use super::server::Server;
use super::settings::Settings;
use super::store::SECTOR;
use super::trace::Met;
use crate::check::{Broken, Verdict, broken};
use crate::sectors::{Anomaly, Crash, Rule, Sectors, Value};
use forebay_core::{Policy, QueueLimits};

/// The limit of events: a run that has not ended by then never will.
const NR_EVENTS_MAX: u64 = 10_000_000;

/// The simulated world of a run.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) cx: Context,
    limits: QueueLimits,
    policy: Policy,
    settings: Settings,
    clients: Vec<Client>,
    shared: Shared,
    conns: Vec<Conn>,
    server: Server,
    disk: Disk,
    sectors: Sectors,
    endings: Vec<Ending>,
    pipe: (usize, u64, u64),
}

impl World {
    pub(crate) fn new(scenario: Scenario, cx: Context) -> World {
        let shared = Shared::new(&scenario);
        let Scenario { limits, policy, model, failure_loses, settings, .. } = scenario;
        let device = Device::new(model, &limits, failure_loses);
        let nr_sectors = device.store.nr_sectors();
        World {
            cx,
            clients: (0..scenario.nr_clients).map(Client::new).collect(),
            shared,
            conns: Vec::new(),
            server: Server::new(settings.clone()),
            disk: Disk::open(limits, policy, device),
            sectors: Sectors::new(nr_sectors),
            endings: scenario.endings,
            pipe: (scenario.pipe_bytes, scenario.piece_max, scenario.pipe_ns),
            limits,
            policy,
            settings,
        }
    }

    /// Runs all phases.
    pub(crate) fn run(&mut self) -> Verdict {
        for ending in std::mem::take(&mut self.endings) {
            let nr_requests = self.shared.load.nr_requests;
            self.shared.nr_answers = 0;
            let cx = &mut self.cx;
            self.clients.iter_mut().for_each(|client| client.begin(nr_requests, cx));
            self.phase(ending)?;
            self.crash(ending)?;
        }
        Ok(())
    }

    /// Runs until no event is left, or the phase ends.
    fn phase(&mut self, ending: Ending) -> Verdict {
        let nr_answers_max = match ending {
            Ending::Quiet => u64::MAX,
            Ending::PowerCut(nr) | Ending::ServerDies(nr) => nr,
        };
        let mut nr_events = 0;
        while self.shared.nr_answers < nr_answers_max {
            let Some(event) = self.cx.next() else { return self.check_quiet() };
            self.fire(event)?;
            nr_events += 1;
            if nr_events > NR_EVENTS_MAX {
                return broken(N6, "events without an end".into());
            }
        }
        Ok(())
    }

    fn fire(&mut self, event: Event) -> Verdict {
        match event {
            Event::Act(client) => {
                let next = self.conns.len();
                if self.clients[client].act(next, &mut self.shared, &mut self.cx) {
                    self.connect(client);
                }
                self.pump(client)
            }
            Event::Move(conn, way) => self.advance(conn, way),
            Event::Work(worker) => {
                let World { server, conns, disk, cx, .. } = self;
                server.work(worker, conns, disk, cx);
                // The pipes may have room again.
                (0..self.clients.len()).try_for_each(|client| self.pump(client))
            }
            Event::Done(hctx, tag) => {
                self.disk.device.done(hctx, tag, &mut self.server.memory, &mut self.cx);
                self.server.wake_worker(hctx, &mut self.cx);
                Ok(())
            }
            Event::Again(hctx) => {
                self.server.wake_worker(hctx, &mut self.cx);
                Ok(())
            }
        }
    }

    fn connect(&mut self, client: usize) {
        let (room, piece_max, pipe_ns) = self.pipe;
        let (up, down) = (Pipe::new(room), Pipe::new(room));
        self.conns.push(Conn::new((up, down), client, (piece_max, pipe_ns)));
        self.server.accept(&mut self.cx);
    }

    /// Delivers a piece of a stream.
    fn advance(&mut self, at: usize, way: Way) -> Verdict {
        let conn = &mut self.conns[at];
        let piece_max = conn.piece_max;
        let pipe = conn.pipe(way);
        pipe.is_moving = false;
        let has_more = pipe.advance(&mut self.cx.random, piece_max);
        self.cx.note(Met::Move, at as u64, way as u64);
        if has_more {
            conn.start(at, way, &mut self.cx);
        }
        match way {
            Way::Up => {
                self.server.wake(at, &mut self.cx);
                Ok(())
            }
            Way::Down => self.pump(self.conns[at].client),
        }
    }

    /// Lets a client read and write as much as it can.
    fn pump(&mut self, client: usize) -> Verdict {
        let client = &mut self.clients[client];
        let Some(live) = &client.live else { return Ok(()) };
        let at = live.conn;
        let conn = &mut self.conns[at];
        let had_arrived = conn.down.has_arrived();
        client.pump(conn, &mut self.shared, &mut self.cx)?;
        if had_arrived && !conn.down.has_arrived() {
            // The server may write again.
            self.server.wake(at, &mut self.cx);
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
        self.disk.check_drained(N7)?;
        let tally = self.sectors.check(&self.shared.log).map_err(|found| anomaly(&found))?;
        if tally.racing_reads > 0 {
            self.cx.note(Met::RacingReads, tally.racing_reads, tally.reads);
        }
        Ok(())
    }

    /// Cuts the power or kills the server, and then checks what the disk holds.
    fn crash(&mut self, ending: Ending) -> Verdict {
        let World { disk, server, cx, .. } = self;
        let is_busy = disk.nr_in_layer() > 0;
        if disk.nr_merged() > 0 {
            cx.note(Met::Merged, disk.nr_merged(), 0);
        }
        disk.device.abandon(&mut server.memory, cx);
        let crash = if let Ending::ServerDies(_) = ending {
            cx.note(Met::ServerDies, is_busy.into(), 0);
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
        let found = self.found();
        let log = std::mem::take(&mut self.shared.log);
        self.sectors.crash(&log, crash, &found).map_err(|found| anomaly(&found))?;
        self.restart();
        Ok(())
    }

    /// Returns the value of every sector.
    fn found(&self) -> Vec<Value> {
        let store = &self.disk.device.store;
        (0..store.nr_sectors()).map(|sector| Value::of(sector, store.read(sector))).collect()
    }

    /// Starts a new server on the same device.
    fn restart(&mut self) {
        self.cx.forget();
        self.conns.clear();
        self.server = Server::new(self.settings.clone());
        let World { limits, policy, .. } = *self;
        self.disk.reopen(limits, policy);
    }
}

fn anomaly(anomaly: &Anomaly) -> Broken {
    let rule = if anomaly.rule == Rule::Durable { P2 } else { P3 };
    let Anomaly { sector, rule: which, what } = anomaly;
    Broken::new(rule, format!("sector {sector} (byte {}), {which:?}: {what}", sector * SECTOR))
}
