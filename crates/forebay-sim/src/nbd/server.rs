//! The server: workers with their sessions, and the requests that the sessions have at the disk.
//!
//! It is no copy of the server of `forebay serve`, which has its own sockets, threads and memory.
//! But it does the same with the same protocol and the same layer. All input that a worker can read
//! from its sockets becomes one plug. Payloads go to the disk piece by piece as they arrive.
//! Replies are sent in the order in which requests end. The server does not read from a client that
//! does not read.

use super::conn::Conn;
use super::context::{Context, Event, Way};
use super::disk::{Disk, Ended};
use super::flight::Flight;
use super::memory::Memory;
use super::plant::NbdPlant;
use super::session::{Phase, Session};
use super::settings::Settings;
use super::trace::Met;
use crate::check::{Verdict, broken};
use forebay_nbd::server::{NbdError, Next};

/// The time until a worker wakes up, ns, on average.
const WAKE_NS: u64 = 800;
/// The maximum number of bytes in one read.
const READ_MAX: u64 = 3000;

/// The server, with its sessions and requests.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) settings: Settings,
    pub(super) sessions: Vec<Option<Session>>,
    pub(super) flights: Vec<Option<Flight>>,
    pub(crate) memory: Memory,
    is_woken: Vec<bool>,
    pub(super) nr_waiting_for_room: u64,
}

/// Result of an attempt to make progress with a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Moved,
    Stuck,
}

impl Server {
    pub(crate) fn new(settings: Settings) -> Server {
        let len = settings.exports[0].block_size.max as usize;
        Server {
            sessions: Vec::new(),
            flights: Vec::new(),
            memory: Memory::new(settings.nr_bufs, len),
            is_woken: vec![false; settings.nr_workers],
            nr_waiting_for_room: 0,
            settings,
        }
    }

    /// Accepts a client. The connection gets the next number.
    pub(crate) fn accept(&mut self, cx: &mut Context) {
        self.sessions.push(Some(Session::new()));
        self.wake(self.sessions.len() - 1, cx);
    }

    /// Wakes the worker of a connection.
    pub(crate) fn wake(&mut self, conn: usize, cx: &mut Context) {
        self.wake_worker(conn % self.settings.nr_workers, cx);
    }

    pub(crate) fn wake_worker(&mut self, worker: usize, cx: &mut Context) {
        if !std::mem::replace(&mut self.is_woken[worker], true) {
            cx.soon(WAKE_NS, Event::Work(worker));
        }
    }

    /// Serves all sockets of a worker and its disk queue, until nothing moves.
    pub(crate) fn work(
        &mut self,
        worker: usize,
        conns: &mut [Conn],
        disk: &mut Disk,
        cx: &mut Context,
    ) {
        self.is_woken[worker] = false;
        let mut ended: Vec<Ended> = Vec::new();
        loop {
            let mut has_moved = false;
            let nr_before = disk.nr_in_layer();
            let first = cx.random.below(self.sessions.len().max(1) as u64) as usize;
            for nth in 0..self.sessions.len() {
                let at = (first + nth) % self.sessions.len();
                if at % self.settings.nr_workers == worker {
                    has_moved |= self.read(at, &mut conns[at], disk, cx);
                }
            }
            if disk.nr_in_layer() > nr_before + 1 {
                cx.note(Met::Plugged, worker as u64, (disk.nr_in_layer() - nr_before) as u64);
            }
            disk.turn(worker, &mut self.memory, cx, &mut ended);
            has_moved |= !ended.is_empty();
            for (number, result) in ended.drain(..) {
                self.ended(number, result, cx);
            }
            for at in (worker..self.sessions.len()).step_by(self.settings.nr_workers) {
                has_moved |= self.send(at, &mut conns[at], cx);
            }
            if !has_moved {
                return;
            }
        }
    }

    /// Sends the output of a connection, and ends the connection if that was all. Returns whether
    /// anything moved.
    fn send(&mut self, at: usize, conn: &mut Conn, cx: &mut Context) -> bool {
        let Some(session) = &mut self.sessions[at] else { return false };
        // Output to a client that is gone is dropped, so its input may be read again.
        let has_forgotten = conn.is_gone && !session.has_sent_all();
        if has_forgotten {
            session.forget_output();
        }
        session.choose(cx);
        let nr = conn.down.write(&session.out);
        session.out.drain(..nr);
        if nr > 0 {
            conn.start(at, Way::Down, cx);
        }
        if session.is_closing && session.nr_flights == 0 && session.has_sent_all() {
            conn.down.close();
            conn.start(at, Way::Down, cx);
            cx.note(Met::Drained, at as u64, 0);
            self.sessions[at] = None;
        }
        nr > 0 || has_forgotten
    }

    /// Parses the input of a connection. Returns whether anything moved.
    fn read(&mut self, at: usize, conn: &mut Conn, disk: &mut Disk, cx: &mut Context) -> bool {
        let mut has_moved = false;
        loop {
            let Some(session) = &mut self.sessions[at] else { return has_moved };
            if session.is_closing {
                return has_moved;
            }
            let is_full = session.nr_flights >= self.settings.nr_flights_max;
            if session.is_behind() || (is_full && session.filling.is_none()) {
                cx.note(Met::HeldBack, at as u64, session.nr_flights as u64);
                return has_moved;
            }
            let max = cx.random.between(1, READ_MAX) as usize;
            let nr = conn.up.read(max, &mut session.input);
            let mut step = Step::Stuck;
            while self.step(at, disk, cx) == Step::Moved {
                step = Step::Moved;
            }
            has_moved |= nr > 0 || step == Step::Moved;
            if nr == 0 && step == Step::Stuck {
                if conn.up.is_over() && !self.is_waiting_for_room(at) {
                    self.hang_up(at, cx);
                }
                return has_moved;
            }
        }
    }

    /// Returns whether a whole request header has arrived. If no progress was made, the request
    /// waits for a buffer.
    fn is_waiting_for_room(&self, at: usize) -> bool {
        let Some(session) = &self.sessions[at] else { return false };
        match &session.phase {
            Phase::Transmission(transmission) => {
                session.filling.is_none() && session.input.len() >= transmission.header_len()
            }
            Phase::Handshake(_) => false,
        }
    }

    /// Handles the end of a client's stream.
    fn hang_up(&mut self, at: usize, cx: &mut Context) {
        let Some(session) = &mut self.sessions[at] else { return };
        session.is_leaked |= session.nr_flights > 0 && cx.plants(NbdPlant::LeakConnection);
        if session.is_leaked {
            return;
        }
        session.is_closing = true;
        if let Some(filling) = session.filling.take() {
            cx.note(Met::VanishInPayload, at as u64, filling.filled);
            let flight = self.flights[filling.flight].as_mut().expect("a payload has a flight");
            flight.is_all_there = true;
            flight.failed = Some(NbdError::Io);
            self.finish_if_over(filling.flight, cx);
        }
    }

    /// Handles one message of a client, or a part of a payload that is skipped or received.
    fn step(&mut self, at: usize, disk: &mut Disk, cx: &mut Context) -> Step {
        let Some(session) = &mut self.sessions[at] else { return Step::Stuck };
        if session.is_closing || session.input.is_empty() {
            return Step::Stuck;
        }
        if session.skip > 0 {
            let nr = session.skip.min(session.input.len() as u64);
            session.skip -= nr;
            session.input.drain(..nr as usize);
            return Step::Moved;
        }
        if session.filling.is_some() {
            return self.fill(at, disk, cx);
        }
        match &mut session.phase {
            Phase::Handshake(handshake) => {
                let fed = handshake.feed(&self.settings.exports, &session.input, &mut session.out);
                session.input.drain(..fed.consumed);
                match fed.next {
                    Next::More if fed.consumed == 0 => return Step::Stuck,
                    Next::More => {}
                    Next::StartTls => unreachable!("TLS is off"),
                    Next::Transmission(transmission) => {
                        session.phase = Phase::Transmission(transmission);
                    }
                    Next::Close(_) => session.is_closing = true,
                }
                Step::Moved
            }
            Phase::Transmission(transmission) => {
                let transmission = transmission.clone();
                self.request(at, &transmission, disk, cx)
            }
        }
    }

    /// Checks that nothing is left of any connection.
    pub(crate) fn check_drained(&self, rule: &'static str) -> Verdict {
        let nr_sessions = self.sessions.iter().flatten().count();
        let nr_flights = self.flights.iter().flatten().count();
        match (nr_sessions, nr_flights, self.memory.nr_taken()) {
            (0, 0, 0) => Ok(()),
            left => broken(rule, format!("sessions, requests and buffers are left: {left:?}")),
        }
    }
}
