//! The server: workers, each with the front that ships, and the events that begin their rounds.
//!
//! A worker is an event loop. An event wakes it; it collects the state of its connections, as epoll
//! does, and makes a round.

use super::context::{Context, Event, Way};
use super::host::{SimHost, SimPeer};
use super::outside::{Outside, SharedOutside};
use super::settings::Settings;
use crate::check::{Verdict, broken};
use forebay_front::nbd::{NbdFront, StatusAnswer};
use forebay_front::{Key, Readiness};
use std::rc::Rc;
use std::sync::Arc;

/// The time until a worker wakes up, ns, on average.
const WAKE_NS: u64 = 800;
/// The interval of ticks, ns.
const TICK_NS: u64 = 250_000_000;

/// A worker of the server.
#[derive(Debug)]
struct Worker {
    front: NbdFront<SimHost>,
    /// Connections that the front does not know yet.
    arriving: Vec<usize>,
    answers: Vec<StatusAnswer>,
    is_woken: bool,
    /// A tick is scheduled.
    is_tick_armed: bool,
    /// The time of the scheduled tick has come.
    is_tick_due: bool,
    /// The worker sleeps until this time, so that clients can send more.
    sleeps_until: u64,
}

/// The workers of the server.
#[derive(Debug)]
pub(crate) struct Workers {
    outside: SharedOutside,
    workers: Vec<Worker>,
    /// The workers must end all connections.
    is_stopping: bool,
}

impl Workers {
    pub(crate) fn new(settings: &Settings, outside: &SharedOutside) -> Workers {
        let mut of_server = settings.front.clone();
        of_server.nr_open = Arc::default();
        let worker = |at| Worker {
            front: NbdFront::nbd(SimHost::new(outside, at), of_server.clone()),
            arriving: Vec::new(),
            answers: Vec::new(),
            is_woken: false,
            is_tick_armed: false,
            is_tick_due: false,
            sleeps_until: 0,
        };
        let workers = (0..settings.nr_workers).map(worker).collect();
        Workers { outside: Rc::clone(outside), workers, is_stopping: false }
    }

    /// Accepts the client of a connection.
    pub(crate) fn accept(&mut self, conn: usize) {
        if self.is_stopping {
            let Outside { cx, conns, .. } = &mut *self.outside.borrow_mut();
            conns[conn].down.close();
            return conns[conn].start(conn, Way::Down, cx);
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

    pub(crate) fn wake_worker(&mut self, worker: usize) {
        let worker_at = worker;
        let worker = &mut self.workers[worker_at];
        if !std::mem::replace(&mut worker.is_woken, true) {
            let cx = &mut self.outside.borrow_mut().cx;
            let sleeps_ns = worker.sleeps_until.saturating_sub(cx.now);
            let delay_ns = sleeps_ns + cx.random.exponential(WAKE_NS);
            cx.after(delay_ns, Event::Work(worker_at));
        }
    }

    /// Answers a query of a client.
    pub(crate) fn answer(&mut self) {
        let (worker, answer) = self.outside.borrow_mut().answer();
        self.workers[worker].answers.push(answer);
        self.wake_worker(worker);
    }

    /// Handles the timer of a worker.
    pub(crate) fn tick(&mut self, worker: usize) {
        let ticked = &mut self.workers[worker];
        (ticked.is_tick_armed, ticked.is_tick_due) = (false, true);
        self.wake_worker(worker);
    }

    /// Makes a round of a worker.
    pub(crate) fn work(&mut self, at: usize) {
        let outside = Rc::clone(&self.outside);
        let (nr_workers, is_stopping) = (self.workers.len(), self.is_stopping);
        let worker = &mut self.workers[at];
        worker.is_woken = false;
        let events = events(&mut outside.borrow_mut(), at, nr_workers);
        let Worker { front, arriving, answers, is_tick_due, .. } = worker;
        front.round(|front| {
            for conn in arriving.drain(..) {
                front.accept(SimPeer::new(&outside, conn));
            }
            answers.drain(..).for_each(|answer| front.answer(answer));
            front.evict();
            if is_stopping {
                front.stop();
            }
            if std::mem::take(is_tick_due) {
                front.tick();
            }
            events.into_iter().for_each(|(key, readiness)| front.look_at(key, readiness));
        });
        let pause_ns = front.pause_ns();
        let (is_unfinished, wants_tick) =
            (front.is_unfinished(), front.wants_tick() && !front.is_over());
        let Outside { cx, conns, .. } = &mut *outside.borrow_mut();
        worker.sleeps_until = cx.now + pause_ns;
        if wants_tick && !std::mem::replace(&mut worker.is_tick_armed, true) {
            cx.after(TICK_NS, Event::Tick(at));
        }
        let mut own = conns.iter().skip(at).step_by(nr_workers);
        let has_more = is_unfinished || own.any(|conn| conn.readiness().is_some());
        if has_more && !std::mem::replace(&mut worker.is_woken, true) {
            let delay_ns = pause_ns + cx.random.exponential(WAKE_NS);
            cx.after(delay_ns, Event::Work(at));
        }
    }

    /// Checks that nothing is left of any connection.
    pub(crate) fn check_drained(&self, rule: &'static str) -> Verdict {
        for (at, Worker { front, .. }) in self.workers.iter().enumerate() {
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

/// Returns the events of a worker's connections, in any order.
fn events(outside: &mut Outside, worker: usize, nr_workers: usize) -> Vec<(Key, Readiness)> {
    let Outside { cx, conns, .. } = outside;
    let own = conns.iter().skip(worker).step_by(nr_workers);
    let mut events: Vec<_> = own.filter_map(|conn| Some((conn.key?, conn.readiness()?))).collect();
    shuffle(&mut events, cx);
    events
}

fn shuffle<T>(list: &mut [T], cx: &mut Context) {
    for nth in (1..list.len()).rev() {
        list.swap(nth, cx.random.below(nth as u64 + 1) as usize);
    }
}
