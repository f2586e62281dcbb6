//! Lifecycle of connections: accept, evict, close, and log.

use super::conn::{Conn, Phase, Transport};
use super::ending::Ending;
use super::inbox::NewConnection;
use super::slots::Key;
use super::{IDLE_TICKS, Worker};
use crate::config::Limits;
use crate::log::Closed;
use forebay_nbd::server::Handshake;
use rustix::event::epoll::{self, EventData, EventFlags};

/// Time limit for a client to choose an export, ns. It usually takes milliseconds; over a bad line
/// and with TLS, a second or two.
const HANDSHAKE_NS: u64 = 10_000_000_000;
/// Time limit for the last replies of a connection, ns. A client that reads at all takes what fits
/// into a socket in less. It is a small part of the time limit of the shutdown.
pub(super) const DRAIN_NS: u64 = 5_000_000_000;
/// Time limit for a client to send a piece of a payload while other clients wait for memory, ns. A
/// piece has at most 256 KiB, so a client must send at least 9 kB/s to keep its connection.
const PIECE_NS: u64 = 30_000_000_000;
/// Least number of connections without an export that are allowed: enough for a client that opens
/// several at once, and for slow clients beside it.
const MIN_HALF_OPEN: usize = 100;

/// Returns how many connections without an export one thread may have.
///
/// All threads together allow as many as may choose an export, so a burst of all allowed clients is
/// accepted, and each has its full time. The limit per thread evicts none of them early: a new
/// connection goes to the thread with the fewest (`Threads::bring`). So if one thread exceeds the
/// limit, every other thread has at least as many, and the sum, rounded up, exceeds the limit of
/// the server.
fn max_half_open(limits: &Limits) -> usize {
    limits.connections.max(MIN_HALF_OPEN).div_ceil(limits.threads.max(1))
}

impl Worker {
    /// Closes a connection. Its I/O in flight completes without it.
    pub(super) fn close(&mut self, key: Key) {
        let Some(mut conn) = self.conns.remove(key) else { return };
        self.rest_bytes -= conn.rest_counted;
        conn.say_goodbye();
        self.report_end(&conn);
        let pool = &mut self.disks.pool;
        conn.output.clear(pool, &mut conn.held);
        let payload = conn.payload.take();
        if let Some(payload) = payload {
            if let Some(buf) = payload.buf {
                pool.give(buf, &mut conn.held);
            }
            pool.leave(&mut conn.held, conn.seat.take());
            self.settle(payload.flight);
        } else {
            pool.leave(&mut conn.held, conn.seat.take());
        }
        for flight in conn.paused.drain(..).chain(conn.held_back.drain(..)) {
            self.settle(flight);
        }
        self.inbox.closed();
    }

    /// Logs and counts the end of a connection, with its reason.
    fn report_end(&self, conn: &Conn) {
        let export = match &conn.phase {
            Phase::Transmission(transmission) => Some(transmission.export()),
            Phase::Handshake(_) => None,
        };
        if export.is_none() {
            let is_tls = matches!(conn.transport, Transport::Tls(_));
            let ending = conn.ending.as_ref();
            let failure = ending.and_then(|ending| ending.handshake_failure(is_tls));
            if let Some(failure) = failure {
                self.shared.counters.server().fail_handshake(failure);
            }
        }
        let closed = Closed {
            id: conn.counters.id(),
            peer: conn.peer,
            export: export.map(|export| self.shared.infos[export].name.as_str()),
            why: conn.ending.as_ref().map_or("closed", Ending::why),
            traffic: conn.counters.sum(),
            open_ns: self.disks.now_ns.saturating_sub(conn.opened_ns),
        };
        self.shared.log.line(self.disks.now_ns, closed);
    }

    /// Handles the inbox: new connections, answers, and the order to stop.
    pub(super) fn open_door(&mut self) {
        let waiting = self.inbox.take();
        for NewConnection { fd, peer } in waiting.new_connections {
            let mut greeting = Vec::new();
            let handshake = Handshake::new(self.shared.tls_policy, &mut greeting);
            let (counters, now_ns) = (self.shared.counters.open_connection(), self.disks.now_ns);
            let key = self.conns.insert_with(|key| {
                Box::new(Conn::new(key, (fd, peer), counters, now_ns, handshake, &greeting))
            });
            let conn = self.conns.get_mut(key).expect("inserted above");
            conn.deadline_ns = Some(self.disks.now_ns + HANDSHAKE_NS);
            conn.interest = EventFlags::IN;
            let data = EventData::new_u64(key.to_u64());
            if let Err(error) = epoll::add(&self.epoll, &conn.fd, data, conn.interest) {
                conn.break_off(error.to_string());
            }
            self.nr_deadlines += 1;
            self.in_handshake.push_back(key);
            self.mark_dirty(key);
        }
        self.take_answers();
        self.evict();
        if waiting.is_closing && !self.is_stopping {
            self.is_stopping = true;
            let mut at = 0;
            while let Some(key) = self.conns.next_key(&mut at) {
                let conn = self.conns.get_mut(key).expect("just found");
                conn.ending.get_or_insert(Ending::ServerEnds);
                self.mark_dirty(key);
            }
        }
    }

    /// Evicts the oldest connections without an export if there are too many: a client that opens
    /// connections and sends nothing must not keep other clients out.
    fn evict(&mut self) {
        let max = max_half_open(&self.shared.limits);
        let conns = &mut self.conns;
        if self.in_handshake.len() > max {
            let mut is_one = |key: &Key| {
                conns.get_mut(*key).is_some_and(|conn| matches!(conn.phase, Phase::Handshake(_)))
            };
            self.in_handshake.retain(&mut is_one);
        }
        while self.in_handshake.len() > max {
            let Some(key) = self.in_handshake.pop_front() else { break };
            let conn = self.conns.get_mut(key).expect("retained above");
            conn.ending = Some(Ending::Late("no export chosen, and other clients need the place"));
            self.mark_dirty(key);
        }
    }

    /// Closes connections that hold memory for a payload that does not arrive.
    fn end_stalled_payloads(&mut self) {
        let now = self.disks.now_ns;
        let mut at = 0;
        while let Some(key) = self.conns.next_key(&mut at) {
            let conn = self.conns.get_mut(key).expect("just found");
            if conn.payload.as_ref().is_some_and(|payload| payload.is_stalled(now, PIECE_NS)) {
                let why = "payload stalled while other clients wait for memory";
                conn.ending = Some(Ending::Late(why));
                self.mark_dirty(key);
            }
        }
    }

    /// Closes connections whose deadline has passed, and frees unused memory after some idle ticks.
    pub(super) fn tick(&mut self) {
        self.timer.disarm();
        self.nr_idle_ticks = if self.disks.is_idle() { self.nr_idle_ticks + 1 } else { 0 };
        if self.nr_idle_ticks >= IDLE_TICKS {
            self.disks.pool.trim();
        }
        if self.disks.pool.take_shortage() {
            self.end_stalled_payloads();
        }
        let now = self.disks.now_ns;
        if self.nr_deadlines == 0 {
            return;
        }
        self.nr_deadlines = 0;
        let mut at = 0;
        while let Some(key) = self.conns.next_key(&mut at) {
            let conn = self.conns.get_mut(key).expect("just found");
            match conn.deadline_ns {
                Some(deadline) if deadline <= now => {
                    let what = match conn.phase {
                        Phase::Handshake(_) => "no export chosen in time",
                        Phase::Transmission(_) => "last replies not read in time",
                    };
                    conn.ending = Some(Ending::Late(what));
                    self.mark_dirty(key);
                }
                Some(_) => self.nr_deadlines += 1,
                None => {}
            }
        }
    }
}

/// Signals a panic before the queues are dropped: their drop waits for I/O in flight, and a disk
/// may never complete it.
impl Drop for Worker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.inbox.report_panic();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_together_have_room_for_all_clients_that_may_choose_an_export() {
        for threads in 0..300 {
            for (connections, at_least) in [(1, 100), (100, 100), (101, 101), (1000, 1000)] {
                let limits = Limits { connections, threads, ..Limits::default() };
                let room = max_half_open(&limits) * threads.max(1);
                assert!(room >= at_least, "{threads} threads have room for {room}: {limits:?}");
                assert!(room < at_least + threads.max(1), "{room}: {limits:?}");
            }
        }
    }
}
