//! Connections come and go here: let in, evicted, given up on, closed, and told of in the log.

use super::conn::{Conn, Phase, Transport};
use super::door::Arrival;
use super::ending::Ending;
use super::slots::Key;
use super::{IDLE_TICKS, Worker};
use crate::config::Limits;
use crate::log::Closed;
use forebay_nbd::server::Handshake;
use rustix::event::epoll::{self, EventData, EventFlags};

/// How long a client may take to choose an export, ns. It takes milliseconds; over a bad line, and
/// with TLS, a second or two.
const HANDSHAKE_NS: u64 = 10_000_000_000;
/// How long a connection that ends may take to send its last replies, ns: what fits into a socket
/// takes a client that reads at all no longer. It is a small part of the time that the whole server
/// may take to end.
pub(super) const DRAIN_NS: u64 = 5_000_000_000;
/// How long a client may take to send a piece of a payload while other clients wait for memory, ns.
/// A piece has at most 256 KiB, so a client that keeps its connection sends 9 kB/s.
const PIECE_NS: u64 = 30_000_000_000;
/// So many connections that have not chosen an export may be there in any case: a client that opens
/// several at once, and slow ones beside it.
const MIN_HALF_OPEN: usize = 100;

/// How many connections of one thread may be there that have not chosen an export.
///
/// All threads together have room for as many as may choose one: so a burst of all clients that are
/// allowed comes in, each with the time to speak. That it is counted by thread cuts nobody off
/// earlier: an arrival goes to the thread with the fewest connections (`Threads::bring`), so where
/// it is one too many there, each other thread has at least this many, too, and the server more
/// than all of them may be, as this is rounded up.
fn max_half_open(limits: &Limits) -> usize {
    limits.connections.max(MIN_HALF_OPEN).div_ceil(limits.threads.max(1))
}

impl Worker {
    /// Closes a connection. What it has at the disks ends without it.
    pub(super) fn close(&mut self, key: Key) {
        let Some(mut conn) = self.conns.remove(key) else { return };
        self.rest_bytes -= conn.rest_counted;
        conn.say_goodbye();
        self.tell_end(&conn);
        let pool = &mut self.disks.pool;
        conn.output.clear(pool, &mut conn.held);
        let payload = conn.payload.take();
        if let Some(payload) = payload {
            if let Some(buf) = payload.buf {
                pool.give(buf, &mut conn.held);
            }
            pool.leave(&mut conn.held);
            self.settle(payload.flight);
        } else {
            pool.leave(&mut conn.held);
        }
        for flight in std::mem::take(&mut conn.paused) {
            self.settle(flight);
        }
        self.door.closed();
    }

    /// Says and counts that a connection has ended, and why.
    fn tell_end(&self, conn: &Conn) {
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

    /// Lets new connections in; or sees that it is time to stop.
    pub(super) fn open_door(&mut self) {
        let waiting = self.door.take();
        for Arrival { fd, peer } in waiting.arrivals {
            let mut greeting = Vec::new();
            let handshake = Handshake::new(self.shared.tls_policy, &mut greeting);
            let (counters, now_ns) = (self.shared.counters.open_connection(), self.disks.now_ns);
            let key = self.conns.insert_with(|key| {
                Box::new(Conn::new(key, (fd, peer), counters, now_ns, handshake, &greeting))
            });
            let conn = self.conns.get_mut(key).expect("just put there");
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
            for key in self.conns.keys() {
                let conn = self.conns.get_mut(key).expect("listed just now");
                conn.ending.get_or_insert(Ending::ServerEnds);
                self.mark_dirty(key);
            }
        }
    }

    /// Where too many have not chosen an export yet, the oldest of them has to go: whoever opens
    /// connections and says nothing keeps nobody else out.
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
            let conn = self.conns.get_mut(key).expect("kept just now");
            conn.ending = Some(Ending::Late("it has not chosen an export, and others want to"));
            self.mark_dirty(key);
        }
    }

    /// Closes connections that keep memory for a payload which does not come.
    fn end_stalled_payloads(&mut self) {
        let now = self.disks.now_ns;
        for key in self.conns.keys() {
            let conn = self.conns.get_mut(key).expect("listed just now");
            if conn.payload.as_ref().is_some_and(|payload| payload.is_stalled(now, PIECE_NS)) {
                let why = "its payload has stalled, and others wait for memory";
                conn.ending = Some(Ending::Late(why));
                self.mark_dirty(key);
            }
        }
    }

    /// Closes what has had its time; and gives up memory that nobody has used for a while.
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
        for key in self.conns.keys() {
            let conn = self.conns.get_mut(key).expect("listed just now");
            match conn.deadline_ns {
                Some(deadline) if deadline <= now => {
                    let what = match conn.phase {
                        Phase::Handshake(_) => "it has not chosen an export in time",
                        Phase::Transmission(_) => "it has not taken its last replies in time",
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

/// A panic is told before the queues are dropped: that waits for what is in flight, and a disk may
/// never answer.
impl Drop for Worker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.door.tell_panic();
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
