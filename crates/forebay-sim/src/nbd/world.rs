//! The simulated world of NBD: clients, connections, and the server.

use super::client::{Client, Shared};
use super::conn::Conn;
use super::conns::Conns;
use super::met::Met;
use super::pipe::Pipe;
use super::rules::{N6, N7};
use super::scenario::Scenario;
use super::settings::Settings;
use super::workers::Workers;
use crate::check::{Verdict, broken};
use crate::server::{self, Context, Event, Log, Outside, Stage, Way};

/// The simulated world of a run.
#[derive(Debug)]
pub(crate) struct World {
    stage: Stage<Conns>,
    settings: Settings,
    clients: Vec<Client>,
    shared: Shared,
    server: Workers,
    pipe: (usize, u64, u64),
    /// How many percent of the connections report no event for bytes that a read has left.
    unreported: u32,
}

impl World {
    pub(crate) fn new(scenario: Scenario, cx: Context) -> World {
        let shared = Shared::new(&scenario);
        let Scenario { disk, settings, .. } = scenario;
        let conns = Conns::new(settings.nr_workers, settings.may_fail);
        let stage = Stage::new(cx, disk, conns, scenario.endings);
        World {
            clients: (0..scenario.nr_clients).map(Client::new).collect(),
            shared,
            server: Workers::new(&settings, &stage.outside),
            stage,
            pipe: (scenario.pipe_bytes, scenario.piece_max, scenario.pipe_ns),
            unreported: scenario.unreported,
            settings,
        }
    }

    fn connect(&mut self, client: usize) {
        let (room, piece_max, pipe_ns) = self.pipe;
        let (up, down) = (Pipe::new(room), Pipe::new(room));
        let conn = {
            let Outside { cx, transport, .. } = &mut *self.stage.outside.borrow_mut();
            let is_unreported = cx.random.chance(self.unreported, 100);
            let conn = Conn::new((up, down), client, (piece_max, pipe_ns), is_unreported);
            transport.conns.push(conn);
            transport.conns.len() - 1
        };
        self.server.accept(conn);
    }

    /// Delivers a piece of a stream.
    fn advance(&mut self, at: usize, way: Way) -> Verdict {
        let client = {
            let Outside { cx, transport, .. } = &mut *self.stage.outside.borrow_mut();
            let conn = &mut transport.conns[at];
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
            let Outside { cx, transport, .. } = &mut *self.stage.outside.borrow_mut();
            let conn = &mut transport.conns[at];
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
}

impl server::World for World {
    type Transport = Conns;
    type Met = Met;
    const ENDS: &'static str = N6;
    const DRAINS: &'static str = N7;
    const CLIENTS_OUTLIVE_SERVER: bool = false;

    fn stage(&self) -> &Stage<Conns> {
        &self.stage
    }

    fn stage_mut(&mut self) -> &mut Stage<Conns> {
        &mut self.stage
    }

    fn log_mut(&mut self) -> &mut Log {
        &mut self.shared.log
    }

    fn begin(&mut self) {
        let nr_requests = self.shared.load.nr_requests;
        for client in &mut self.clients {
            self.stage.with_context(|cx| client.begin(nr_requests, cx));
        }
    }

    fn fire(&mut self, event: Event) -> Verdict {
        match event {
            Event::Act(client) => {
                let connects = {
                    let Outside { cx, transport, .. } = &mut *self.stage.outside.borrow_mut();
                    self.clients[client].act(transport.conns.len(), &mut self.shared, cx)
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
                self.stage.done(hctx, tag);
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

    fn stop(&mut self) {
        self.shared.is_stopping = true;
        self.clients.iter_mut().for_each(Client::retire);
        self.server.stop();
    }

    fn check_over(&self) -> Verdict {
        for client in &self.clients {
            if !client.is_over() {
                let what = format!("client {} waits forever: {:?}", client.id, client.live);
                return broken(N6, what.chars().take(600).collect());
            }
        }
        self.server.check_drained(N7)
    }

    fn forget(&mut self) {
        self.shared.is_stopping = false;
    }

    fn restart(&mut self) {
        self.stage.outside.borrow_mut().transport.forget();
        self.server = Workers::new(&self.settings, &self.stage.outside);
    }
}
