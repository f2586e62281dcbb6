//! Front: the rounds of one worker, on all its clients and disks.
//!
//! A round receives from all clients that have sent something and submits their requests within one
//! plug, so that requests that arrive together are merged and reach the disk together. Then it
//! reaps completions and sends replies. A round never waits for a client; replies that a client has
//! not read yet hold memory, but no tag.

mod coalesce;
mod completions;
mod lifecycle;
#[cfg(test)]
mod tests;

pub(crate) use lifecycle::max_without_export;

use crate::flight::Answered;
use crate::host::{Host, Interest};
use crate::plant::plants;
use crate::session::{Clients, Desk, Progress, Session};
use crate::slots::{Key, Slots};
use coalesce::Coalesce;
use lifecycle::set_deadline;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Number of times that one round reaps, replies, and resumes waiting requests. If more is left,
/// the front looks at all clients before it continues: a client with thousands of requests must not
/// delay the others.
const TURNS_IN_A_ROUND: u32 = 4;

/// Capacity of the list of completions, before it grows.
const NR_DONE_USUAL: usize = 256;

/// State of a client that an event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It has sent something.
    Received,
    /// It has gone, or its transport has an error.
    Gone,
    /// It can take more output.
    Sendable,
}

/// The rounds of one worker.
pub struct Front<S: Session> {
    // Dropped before the queues of the host, which wait for I/O in flight: after a panic, clients
    // learn at once that their connections are closed.
    pub(crate) clients: Clients<S>,
    pub(crate) desk: Desk<S>,
    pub(crate) inbound: S::Inbound,
    /// Completions that are not turned into replies yet.
    pub(crate) done: Vec<<S::Host as Host>::Completion>,
    /// Clients that have to be flushed in this round.
    pub(crate) dirty: Vec<Key>,
    /// Clients that wait for memory, for the disk, or for their peer, the oldest first.
    waiting: VecDeque<Key>,
    /// Clients with input left that no event reports.
    again: Vec<Key>,
    /// The round has ended although more could be done.
    pub(crate) is_unfinished: bool,
    /// Clients without an export, the oldest first; some may have chosen one, or be closed.
    pub(crate) without_export: VecDeque<Key>,
    /// Upper bound of the number of clients with a deadline.
    pub(crate) nr_deadlines: usize,
    pub(crate) nr_idle_ticks: u32,
    /// Most clients without an export.
    pub(crate) max_without_export: usize,
    coalesce: Coalesce,
    /// Requests begun in all rounds so far, without background work.
    nr_begun: u64,
    /// Requests that were answered in this reap and have equal times, and their number.
    uncounted: Option<(Answered, u64)>,
    is_stopping: bool,
    /// A panic may have left requests of closed clients whose I/O never reached the disk.
    has_panicked: bool,
}

impl<S: Session> fmt::Debug for Front<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nr_clients = self.clients.len();
        f.debug_struct("Front")
            .field("desk", &self.desk)
            .field("clients", &nr_clients)
            .finish_non_exhaustive()
    }
}

impl<S: Session> Front<S> {
    /// Returns a front without clients. At most `max_without_export` of them may have no export.
    pub fn new(
        host: S::Host,
        common: S::Common,
        inbound: S::Inbound,
        max_without_export: usize,
    ) -> Front<S> {
        Front {
            desk: Desk::new(host, common),
            inbound,
            clients: Slots::new(),
            done: Vec::with_capacity(NR_DONE_USUAL),
            dirty: Vec::new(),
            waiting: VecDeque::new(),
            again: Vec::new(),
            is_unfinished: false,
            without_export: VecDeque::new(),
            nr_deadlines: 0,
            nr_idle_ticks: 0,
            max_without_export,
            coalesce: Coalesce::new(),
            nr_begun: 0,
            uncounted: None,
            is_stopping: false,
            has_panicked: false,
        }
    }

    /// Returns the host.
    #[inline]
    pub fn host(&self) -> &S::Host {
        &self.desk.host
    }

    /// Returns the host.
    #[inline]
    pub fn host_mut(&mut self) -> &mut S::Host {
        &mut self.desk.host
    }

    /// Returns the number of clients.
    #[inline]
    pub fn nr_clients(&self) -> usize {
        self.clients.len()
    }

    /// Returns the number of requests in flight, those of gone clients included.
    pub fn nr_flights(&self) -> usize {
        self.desk.flights.len()
    }

    /// Returns whether the front was stopped and has closed all clients.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_stopping && self.clients.len() == 0
    }

    /// Returns whether the front needs a tick.
    #[inline]
    pub fn wants_tick(&self) -> bool {
        self.nr_deadlines > 0 || self.is_stopping || S::wants_tick(&self.desk)
    }

    /// Returns whether there is work that no event reports, so that the next round must follow at
    /// once.
    #[inline]
    pub fn is_unfinished(&self) -> bool {
        self.is_unfinished || !self.again.is_empty()
    }

    /// Returns how long to sleep before the next round, ns, so that clients can send more requests;
    /// 0 if there is work to do. Called once after each round.
    #[inline]
    pub fn pause_ns(&mut self) -> u64 {
        let nr = self.desk.take_nr_begun();
        self.nr_begun += nr;
        let is_quiet = self.again.is_empty()
            && self.waiting.is_empty()
            && !self.is_stopping
            && !self.desk.host.is_busy();
        if is_quiet && nr > 0 { self.coalesce.pause_ns(nr) } else { 0 }
    }

    /// Returns the number of requests that began before the last call of [`Front::pause_ns`],
    /// without background work.
    #[inline]
    pub fn nr_begun(&self) -> u64 {
        self.nr_begun
    }

    /// Runs a round. `look` handles the events, with the functions of this type, under the plug of
    /// the round.
    pub fn round(&mut self, look: impl FnOnce(&mut Front<S>)) {
        self.desk.now_ns = self.desk.host.now_ns();
        self.desk.ended_ns = self.desk.now_ns;
        {
            let _plug = self.desk.host.plug();
            look(self);
            for key in std::mem::take(&mut self.again) {
                if let Some(session) = self.clients.get_mut(key) {
                    session.link_mut().listed.again = false;
                }
                self.guard(key, |front| front.receive(key));
            }
        }
        self.is_unfinished = true;
        for _ in 0..TURNS_IN_A_ROUND {
            let mut moved = self.reap();
            self.flush();
            if !self.waiting.is_empty() {
                let _plug = self.desk.host.plug();
                moved |= self.resume();
            }
            let may_go_on = moved && !self.waiting.is_empty();
            if !may_go_on && self.dirty.is_empty() && !self.desk.host.wants_reap() {
                self.is_unfinished = false;
                break;
            }
        }
        self.is_unfinished |= S::end_round(&mut self.desk, &mut self.clients);
    }

    /// Calls `look` for a client and catches a panic, which would be a bug in the server. The panic
    /// is counted and ends this client; the others go on. (Memory that the call held is lost.)
    #[inline]
    fn guard<R: Default>(&mut self, key: Key, look: impl FnOnce(&mut Front<S>) -> R) -> R {
        catch_unwind(AssertUnwindSafe(|| look(self))).unwrap_or_else(|panic| {
            self.desk.host.panicked(panic);
            if let Some(session) = self.clients.get_mut(key) {
                session.link_mut().break_off("internal error while serving this client".to_owned());
            }
            // Close at once: its counters may be wrong, so nothing more of it may be counted.
            self.close(key);
            self.has_panicked = true;
            R::default()
        })
    }

    /// Handles an event of a client.
    #[inline]
    pub fn look_at(&mut self, key: Key, readiness: Readiness) {
        self.guard(key, |front| front.look_at_one(key, readiness));
    }

    fn look_at_one(&mut self, key: Key, readiness: Readiness) {
        if readiness != Readiness::Sendable {
            let Some(session) = self.clients.get_mut(key) else { return };
            if session.may_receive() {
                return self.receive(key);
            }
            if readiness == Readiness::Gone {
                session.link_mut().break_off("the client has gone".to_owned());
            }
        }
        self.mark_dirty(key);
    }

    /// Receives from a client, and begins its requests.
    fn receive(&mut self, key: Key) {
        let Some(session) = self.clients.get_mut(key) else { return };
        if session.receive(&mut self.desk, &mut self.inbound) {
            self.receive_again(key);
        }
        self.wait_if_due(key);
        self.mark_dirty(key);
    }

    /// Adds a client to the `again` list: no event reports the input that it has left.
    fn receive_again(&mut self, key: Key) {
        if let Some(session) = self.clients.get_mut(key)
            && !plants!(ForgetUnreported)
            && !std::mem::replace(&mut session.link_mut().listed.again, true)
        {
            self.again.push(key);
        }
    }

    /// Adds a client to the `waiting` list if it waits.
    pub(crate) fn wait_if_due(&mut self, key: Key) {
        let Some(session) = self.clients.get_mut(key) else { return };
        let is_due = session.is_waiting() && !plants!(ForgetWaiting);
        if is_due && !std::mem::replace(&mut session.link_mut().listed.waiting, true) {
            self.waiting.push_back(key);
        }
    }

    /// Resumes clients that waited. Returns whether any made progress.
    fn resume(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.waiting.len() {
            let Some(key) = self.waiting.pop_front() else { break };
            let Some(session) = self.clients.get_mut(key) else { continue };
            session.link_mut().listed.waiting = false;
            moved |= self.guard(key, |front| front.resume_one(key));
            self.wait_if_due(key);
        }
        moved
    }

    /// Resumes one client. Returns whether it made progress.
    fn resume_one(&mut self, key: Key) -> bool {
        let Some(session) = self.clients.get_mut(key) else { return false };
        match session.resume(&mut self.desk, &mut self.inbound) {
            Progress::Stuck => return false,
            Progress::Moved => {}
            Progress::HasMore => self.receive_again(key),
        }
        self.mark_dirty(key);
        true
    }

    /// Adds a client to the `dirty` list, which is flushed before the round ends.
    #[inline]
    pub(crate) fn mark_dirty(&mut self, key: Key) {
        if let Some(session) = self.clients.get_mut(key)
            && !plants!(ForgetFlush)
            && !std::mem::replace(&mut session.link_mut().listed.dirty, true)
        {
            self.dirty.push(key);
        }
    }

    /// Sends queued output, and closes clients that are over.
    pub(crate) fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for key in dirty.drain(..) {
            let Some(session) = self.clients.get_mut(key) else { continue };
            session.link_mut().listed.dirty = false;
            if !session.link().is_given_up()
                && session.wants_send()
                && let Err(error) = session.send(&mut self.desk)
            {
                session.link_mut().break_off(error);
            }
            let is_over = session.link().is_given_up() || session.is_over();
            if is_over && !plants!(LeakConnection) {
                self.close(key);
                continue;
            }
            if session.link().is_ending() && set_deadline(&mut **session, self.desk.now_ns) {
                self.nr_deadlines += 1;
            }
            let interest = Interest { receive: session.may_receive(), send: session.wants_send() };
            let link = session.link_mut();
            if interest != link.interest {
                link.interest = interest;
                self.desk.host.change_watch(&mut link.peer, key, interest);
            }
        }
        if self.dirty.is_empty() {
            self.dirty = dirty; // its memory is used again
        }
    }
}
