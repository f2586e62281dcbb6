//! The server: a thread for each ring, with a front that serves it.

use super::met::Met;
use super::queue::Queue;
use super::rings::{Rings, SharedRings, SimRing};
use super::rules::{X4, Y3};
use crate::check::{Verdict, broken};
use crate::server::{SimHost, Worker};
use forebay_front::Host;
use forebay_front::blk::{BlkDisk, BlkFront, BlkSession};
use std::rc::Rc;

/// Time between two looks of a thread that polls, ns.
const LOOK_NS: u64 = 1_000;
/// The most looks of a thread that polls.
const NR_LOOKS_MAX: u64 = 5;

/// A command of the message channel to the thread of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Start,
    Enable(bool),
    /// The thread stops the ring, and reports that when its last request is answered.
    Stop,
}

/// The thread of a ring.
#[derive(Debug)]
struct RingWorker {
    worker: Worker<BlkSession<SimHost<Rings>>>,
    commands: Vec<Command>,
    is_stopping: bool,
    /// Something has happened that epoll reports.
    has_event: bool,
    /// The thread polls, and looks this many times more.
    nr_looks: Option<u64>,
}

/// The threads of the server.
#[derive(Debug)]
pub(crate) struct Workers {
    pub(super) outside: SharedRings,
    workers: Vec<RingWorker>,
    /// How often a thread polls before it sleeps: percent of its rounds.
    polls: u32,
    /// The server is stopped.
    is_stopping: bool,
}

impl Workers {
    pub(super) fn new(
        outside: &SharedRings,
        device: &BlkDisk,
        nr_queues: usize,
        polls: u32,
    ) -> Workers {
        let worker = |at| RingWorker {
            worker: Worker::new(at, BlkFront::blk(SimHost::new(outside, at), device.clone())),
            commands: Vec::new(),
            is_stopping: false,
            has_event: false,
            nr_looks: None,
        };
        let workers = (0..nr_queues).map(worker).collect();
        Workers { outside: Rc::clone(outside), workers, polls, is_stopping: false }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// Returns whether a ring is broken.
    pub(super) fn is_broken(&self) -> bool {
        let rings = &self.outside.borrow().transport;
        rings.queues.iter().any(|queue| queue.fault.is_some() || queue.checks.is_reported())
    }

    /// Sends a command to the thread of a ring.
    pub(super) fn command(&mut self, at: usize, command: Command) {
        self.workers[at].commands.push(command);
        self.wake(at);
    }

    /// Wakes the thread of a ring.
    pub(super) fn wake(&mut self, at: usize) {
        let cx = &mut self.outside.borrow_mut().cx;
        self.workers[at].has_event = true;
        self.workers[at].worker.wake(cx);
    }

    /// Stops the server.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
        for queue in &mut self.outside.borrow_mut().transport.queues {
            queue.checks.stops();
        }
        (0..self.workers.len()).for_each(|at| self.wake(at));
    }

    /// Handles the timer of a thread.
    pub(super) fn tick(&mut self, at: usize) {
        self.workers[at].has_event = true;
        self.workers[at].worker.tick(&mut self.outside.borrow_mut().cx);
    }

    /// Runs the thread of a ring once. Returns whether its ring has stopped.
    pub(super) fn work(&mut self, at: usize) -> bool {
        let Workers { outside, workers, is_stopping, polls } = self;
        let ring = &mut workers[at];
        ring.worker.begin();
        if ring.nr_looks.is_some() && ring.looks_again(outside) {
            return false;
        }
        ring.round(at, outside, *is_stopping);
        ring.check_closed(outside, *is_stopping);
        if ring.is_stopping && ring.worker.front.has_drained() {
            ring.is_stopping = false;
            return true;
        }
        let may_poll = !ring.worker.front.is_unfinished() && !ring.is_stopping && !*is_stopping;
        let polls = may_poll && outside.borrow_mut().cx.random.chance(*polls, 100);
        match polls {
            true => ring.begin_poll(outside),
            false => ring.sleep(outside),
        }
        false
    }

    /// Checks that nothing is left of any ring.
    pub(super) fn check_drained(&self, rule: &'static str) -> Verdict {
        for (at, RingWorker { worker, .. }) in self.workers.iter().enumerate() {
            let front = &worker.front;
            if !front.has_drained() {
                let what =
                    format!("{} clients, {} requests", front.nr_clients(), front.nr_flights());
                return broken(rule, format!("thread {at} has {what}"));
            }
        }
        Ok(())
    }
}

impl RingWorker {
    /// Begins to poll.
    fn begin_poll(&mut self, outside: &SharedRings) {
        let cx = &mut outside.borrow_mut().cx;
        cx.note(Met::Poll, self.worker.at() as u64, 0);
        self.nr_looks = Some(cx.random.below(NR_LOOKS_MAX));
        self.worker.work_after(LOOK_NS, cx);
    }

    /// Looks for work while the thread polls. Returns whether it looks again, or sleeps.
    fn looks_again(&mut self, outside: &SharedRings) -> bool {
        let at = self.worker.at();
        let front = &mut self.worker.front;
        let note = |met| outside.borrow_mut().cx.note(met, at as u64, 0);
        if self.has_event || front.has_available() || front.host().wants_reap() {
            note(Met::PollFinds);
            self.nr_looks = None;
            return false;
        }
        let nr_looks = self.nr_looks.expect("checked by the caller");
        if nr_looks > 0 {
            self.nr_looks = Some(nr_looks - 1);
            self.worker.work_after(LOOK_NS, &mut outside.borrow_mut().cx);
            return true;
        }
        self.nr_looks = None;
        note(Met::PollEnds);
        if front.prepare_sleep() {
            note(Met::LookAfterPoll);
            return false;
        }
        self.check_sleep(outside);
        true
    }

    /// Sleeps, unless there is work.
    fn sleep(&mut self, outside: &SharedRings) {
        if self.worker.front.is_unfinished() || self.has_event {
            return;
        }
        match self.worker.front.prepare_sleep() {
            true => self.worker.wake(&mut outside.borrow_mut().cx),
            false => self.check_sleep(outside),
        }
    }

    /// Checks that the thread may sleep (Y3). If the disk is busy, it wakes the thread later.
    fn check_sleep(&self, outside: &SharedRings) {
        let front = &self.worker.front;
        if front.is_unfinished() || self.has_event || front.host().is_busy() {
            return;
        }
        let transport = &mut outside.borrow_mut().transport;
        let is_right = transport.queues.get(self.worker.at()).is_none_or(Queue::may_sleep);
        if front.nr_clients() > 0 && !is_right {
            let what = format!("ring {} has requests, and its thread sleeps", self.worker.at());
            transport.note(broken(Y3, what));
        }
    }

    /// Checks that a ring that stops is closed when its last request is answered.
    fn check_closed(&self, outside: &SharedRings, is_server_stopping: bool) {
        let front = &self.worker.front;
        let transport = &mut outside.borrow_mut().transport;
        let queue = transport.queues.get(self.worker.at());
        let is_answered = queue.is_none_or(|queue| queue.taken.is_empty());
        let must_close = self.is_stopping || is_server_stopping;
        if must_close && is_answered && front.nr_clients() > 0 && !front.is_unfinished() {
            let what = format!("ring {} has nothing to answer, and is open", self.worker.at());
            transport.note(broken(X4, what));
        }
    }

    /// Makes a round.
    fn round(&mut self, at: usize, outside: &SharedRings, is_server_stopping: bool) {
        self.has_event = false;
        let RingWorker { worker, commands, is_stopping, .. } = self;
        worker.round(outside, |front, is_tick_due| {
            if is_tick_due {
                front.tick();
            }
            for command in commands.drain(..) {
                match command {
                    // After a stop of the server, nothing is accepted any more.
                    Command::Start if is_server_stopping => {}
                    Command::Start => front.accept(SimRing::new(outside, at)),
                    Command::Enable(is_enabled) => front.change_rings(|ring| {
                        ring.set_enabled(is_enabled);
                        Ok(())
                    }),
                    Command::Stop => {
                        front.stop_rings();
                        outside.borrow_mut().transport.queues[at].checks.stops();
                        *is_stopping = true;
                    }
                }
            }
            if is_server_stopping {
                front.stop();
            }
            front.look_at_rings();
        });
        let is_last = !self.worker.front.is_unfinished();
        let transport = &mut outside.borrow_mut().transport;
        if let Some(queue) = transport.queues.get_mut(at) {
            let verdict = queue.checks.ends_round(is_last);
            transport.note(verdict);
        }
    }
}
