//! The server: workers, with the clients and answers that wait for their next rounds.

use super::conns::{self, Conns, SharedConns, SimPeer};
use super::settings::Settings;
use crate::check::{Verdict, broken};
use crate::server::{Outside, SimHost, Way, Worker};
use forebay_front::nbd::{Conn, NbdFront, StatusAnswer};
use std::rc::Rc;
use std::sync::Arc;

/// A worker of the server.
#[derive(Debug)]
struct NbdWorker {
    worker: Worker<Conn<SimHost<Conns>>>,
    /// Connections that the front has not accepted yet.
    arriving: Vec<usize>,
    answers: Vec<StatusAnswer>,
}

/// The workers of the server.
#[derive(Debug)]
pub(crate) struct Workers {
    outside: SharedConns,
    workers: Vec<NbdWorker>,
    /// The workers must end all connections.
    is_stopping: bool,
}

impl Workers {
    pub(crate) fn new(settings: &Settings, outside: &SharedConns) -> Workers {
        let mut of_server = settings.front.clone();
        of_server.nr_open = Arc::default();
        let worker = |at| NbdWorker {
            worker: Worker::new(at, NbdFront::nbd(SimHost::new(outside, at), of_server.clone())),
            arriving: Vec::new(),
            answers: Vec::new(),
        };
        let workers = (0..settings.nr_workers).map(worker).collect();
        Workers { outside: Rc::clone(outside), workers, is_stopping: false }
    }

    /// Accepts the client of a connection.
    pub(crate) fn accept(&mut self, conn: usize) {
        if self.is_stopping {
            let Outside { cx, transport, .. } = &mut *self.outside.borrow_mut();
            let closed = &mut transport.conns[conn];
            closed.down.close();
            return closed.start(conn, Way::Down, cx);
        }
        let worker = conn % self.workers.len();
        self.workers[worker].arriving.push(conn);
        self.wake(conn);
    }

    /// Makes all workers end their connections.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
        (0..self.workers.len()).for_each(|worker| self.wake_worker(worker));
    }

    /// Wakes the worker of a connection.
    pub(crate) fn wake(&mut self, conn: usize) {
        self.wake_worker(conn % self.workers.len());
    }

    pub(crate) fn wake_worker(&mut self, at: usize) {
        let cx = &mut self.outside.borrow_mut().cx;
        self.workers[at].worker.wake(cx);
    }

    /// Answers a query of a client.
    pub(crate) fn answer(&mut self) {
        let (worker, answer) = conns::answer(&self.outside);
        self.workers[worker].answers.push(answer);
        self.wake_worker(worker);
    }

    /// Handles the timer of a worker.
    pub(crate) fn tick(&mut self, at: usize) {
        let cx = &mut self.outside.borrow_mut().cx;
        self.workers[at].worker.tick(cx);
    }

    /// Makes a round of a worker.
    pub(crate) fn work(&mut self, at: usize) {
        let events = {
            let Outside { cx, transport, .. } = &mut *self.outside.borrow_mut();
            transport.events(at, cx)
        };
        let Workers { outside, workers, is_stopping } = self;
        let NbdWorker { worker, arriving, answers } = &mut workers[at];
        worker.begin();
        worker.round(outside, |front, is_tick_due| {
            for conn in arriving.drain(..) {
                front.accept(SimPeer::new(outside, conn));
            }
            answers.drain(..).for_each(|answer| front.answer(answer));
            front.evict();
            if *is_stopping {
                front.stop();
            }
            if is_tick_due {
                front.tick();
            }
            events.into_iter().for_each(|(key, readiness)| front.look_at(key, readiness));
        });
    }

    /// Checks that nothing is left of any connection.
    pub(crate) fn check_drained(&self, rule: &'static str) -> Verdict {
        for (at, NbdWorker { worker, .. }) in self.workers.iter().enumerate() {
            let front = &worker.front;
            match (front.nr_clients(), front.nr_flights(), front.has_all_memory()) {
                (0, 0, true) => {}
                left => {
                    let what = "has clients and requests left, or lacks memory";
                    return broken(rule, format!("worker {at} {what}: {left:?}"));
                }
            }
        }
        Ok(())
    }
}
