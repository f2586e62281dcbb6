//! Lifecycle of clients: accept, evict, close, deadlines, and the shutdown.

use super::Front;
use crate::ending::Ending;
use crate::host::{Closed, Host, Interest, Peer};
use crate::link::Link;
use crate::plant::plants;
use crate::session::Session;
use crate::slots::Key;

/// Time limit for a client to choose an export, ns. It usually takes milliseconds; over a bad line
/// and with TLS, a second or two.
const HANDSHAKE_NS: u64 = 10_000_000_000;
/// Time limit for the last replies of a client, ns. A client that reads at all takes what fits into
/// a socket in less. It is a small part of the time limit of the shutdown.
const DRAIN_NS: u64 = 5_000_000_000;
/// After this many ticks without a request, the sessions free unused memory.
const IDLE_TICKS: u32 = 4;
/// Least number of clients without an export that are allowed: enough for a client that opens
/// several connections at once, and for slow clients beside it.
const MIN_WITHOUT_EXPORT: usize = 100;

/// Returns how many clients without an export one thread may have.
///
/// All threads together allow as many as may choose an export, so a burst of all allowed clients is
/// accepted, and each has its full time. The limit per thread evicts none of them early if a new
/// client goes to the thread with the fewest. If one thread then exceeds the limit, every other
/// thread has at least as many, and the sum, rounded up, exceeds the limit of the server.
pub(crate) fn max_without_export(connections: usize, threads: usize) -> usize {
    connections.max(MIN_WITHOUT_EXPORT).div_ceil(threads.max(1))
}

impl<S: Session> Front<S> {
    /// Accepts a client, and begins its session.
    pub fn accept(&mut self, peer: <S::Host as Host>::Peer) {
        let now_ns = self.desk.now_ns;
        let desk = &mut self.desk;
        let key =
            self.clients.insert_with(|key| Box::new(S::open(desk, Link::new(key, peer, now_ns))));
        let session = self.clients.get_mut(key).expect("inserted above");
        let has_export = session.export().is_some();
        let link = session.link_mut();
        link.interest = Interest { receive: true, send: false };
        if let Err(error) = self.desk.host.watch(&mut link.peer, key, link.interest) {
            link.break_off(error.to_string());
        }
        if !has_export {
            link.deadline_ns = Some(now_ns + HANDSHAKE_NS);
            self.nr_deadlines += 1;
            self.without_export.push_back(key);
        }
        self.mark_dirty(key);
    }

    /// Evicts the oldest clients without an export if there are too many: a client that opens
    /// connections and sends nothing must not keep other clients out. Called after new clients were
    /// accepted.
    pub fn evict(&mut self) {
        let max = self.max_without_export;
        let clients = &mut self.clients;
        if self.without_export.len() > max {
            let mut is_one =
                |key: &Key| clients.get_mut(*key).is_some_and(|session| session.export().is_none());
            self.without_export.retain(&mut is_one);
        }
        while self.without_export.len() > max {
            let Some(key) = self.without_export.pop_front() else { break };
            let session = self.clients.get_mut(key).expect("retained above");
            let why = "no export chosen, and the limit of clients without an export is reached";
            session.link_mut().end(Ending::Late(why));
            self.mark_dirty(key);
        }
    }

    /// Ends all clients, after their last replies. None may be accepted afterwards.
    pub fn stop(&mut self) {
        if std::mem::replace(&mut self.is_stopping, true) {
            return;
        }
        let mut at = 0;
        while let Some(key) = self.clients.next_key(&mut at) {
            let session = self.clients.get_mut(key).expect("just found");
            session.link_mut().end_if_open(Ending::ServerEnds);
            if plants!(DropAtStop) {
                session.link_mut().break_off("the server shuts down".to_owned());
            }
            self.mark_dirty(key);
        }
    }

    /// Ends all clients of an export, after their last replies.
    pub fn end_clients_of(&mut self, export: usize) {
        let mut at = 0;
        while let Some(key) = self.clients.next_key(&mut at) {
            let session = self.clients.get_mut(key).expect("just found");
            if session.export() == Some(export) {
                session.link_mut().end_if_open(Ending::ExportRemoved);
                self.mark_dirty(key);
            }
        }
    }

    /// Returns whether no client uses an export, and no request of a former one is left.
    pub fn is_unused(&mut self, export: usize) -> bool {
        let mut at = 0;
        while let Some(key) = self.clients.next_key(&mut at) {
            if self.clients.get_mut(key).expect("just found").export() == Some(export) {
                return false;
            }
        }
        let mut at = 0;
        while let Some(key) = self.desk.flights.next_key(&mut at) {
            if self.desk.flights.get_mut(key).expect("just found").export == export {
                return false;
            }
        }
        true
    }

    /// Closes clients whose deadline has passed, and frees unused memory after some idle ticks.
    /// Called some time after [`Front::wants_tick`] returned true.
    pub fn tick(&mut self) {
        self.nr_idle_ticks = if self.desk.is_idle() { self.nr_idle_ticks + 1 } else { 0 };
        if S::tick(&mut self.desk, self.nr_idle_ticks >= IDLE_TICKS) {
            self.end_stuck();
        }
        let now = self.desk.now_ns;
        if self.nr_deadlines == 0 {
            return;
        }
        self.nr_deadlines = 0;
        let mut at = 0;
        while let Some(key) = self.clients.next_key(&mut at) {
            let session = self.clients.get_mut(key).expect("just found");
            let what = match session.export() {
                None => "no export chosen in time",
                Some(_) => "last replies not read in time",
            };
            let link = session.link_mut();
            match link.deadline_ns {
                Some(deadline) if deadline <= now => {
                    link.end(Ending::Late(what));
                    self.mark_dirty(key);
                }
                Some(_) => self.nr_deadlines += 1,
                None => {}
            }
        }
    }

    /// Ends clients that hold resources for too long while other clients wait for them.
    fn end_stuck(&mut self) {
        let mut at = 0;
        while let Some(key) = self.clients.next_key(&mut at) {
            let session = self.clients.get_mut(key).expect("just found");
            session.end_if_stuck(self.desk.now_ns);
            if session.link().is_ending() {
                self.mark_dirty(key);
            }
        }
    }

    /// Closes a client. Its I/O in flight completes without it.
    pub(crate) fn close(&mut self, key: Key) {
        let Some(mut session) = self.clients.remove(key) else { return };
        if !session.link().is_given_up() {
            session.link_mut().peer.say_goodbye();
        }
        let (now_ns, export) = (self.desk.now_ns, session.export());
        let link = session.link_mut();
        let ending = link.ending().cloned();
        let (ending, opened_ns) = (ending.as_ref(), link.opened_ns());
        // Without an export it has no I/O, and a client may come and go often.
        let nr_at_disk = export.map_or(0, |_| self.desk.nr_at_disk(key));
        let closed = Closed { export, ending, opened_ns, key, nr_at_disk };
        self.desk.host.closed(&mut link.peer, &closed, now_ns);
        for flight in session.close(&mut self.desk, &mut self.inbound) {
            self.settle(flight);
        }
        self.count_all();
    }
}

/// Sets the deadline for the last replies of a client that ends. If the server ends it, or its ring
/// stops, or its export is removed, it has no deadline until its disks have completed its I/O; the
/// time limit of the shutdown bounds that.
/// Returns whether the deadline is new.
pub(crate) fn set_deadline<S: Session>(session: &mut S, now_ns: u64) -> bool {
    let may_wait = matches!(
        session.link().ending(),
        Some(Ending::ServerEnds | Ending::RingStopped | Ending::ExportRemoved)
    );
    let is_given_time = may_wait && session.waits_for_disk();
    let link = session.link_mut();
    if is_given_time {
        link.deadline_ns = None;
        return false;
    }
    let is_new = link.deadline_ns.is_none();
    link.deadline_ns.get_or_insert(now_ns + DRAIN_NS);
    is_new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_together_have_room_for_all_clients_that_may_choose_an_export() {
        for threads in 0..300 {
            for (connections, at_least) in [(1, 100), (100, 100), (101, 101), (1000, 1000)] {
                let room = max_without_export(connections, threads) * threads.max(1);
                assert!(room >= at_least, "{threads} threads have room for {room}");
                assert!(room < at_least + threads.max(1), "{room} for {connections}");
            }
        }
    }
}
