//! A client: it connects, negotiates, and sends good and bad requests. It checks every byte that it
//! receives, and logs what it has done and seen.
//!
//! It has a parser of its own, which shares only the codecs of single messages with the server's
//! and the client's half: so a mistake in those does not hide here. On other connections it uses
//! the library's client half (`library.rs`), for the handshake, for the requests or for both.

pub(super) mod library;

use super::ask::{self, Ask};
use super::conn::Conn;
use super::met::Met;
use super::pending::Pending;
use super::recut::Recut;
use super::scenario::{ClientLoad, Scenario};
use crate::check::Verdict;
use crate::server::{Context, Event, Log, Way};
use forebay_nbd::client::Handshake;
use forebay_nbd::wire::Framing;
use library::Library;
use std::collections::{BTreeMap, VecDeque};

/// How long a client does not read when it sleeps, ns, on average.
const SLEEP_NS: u64 = 1_000_000;
/// The maximum number of connections that a client makes in one phase.
const NR_CONNECTS_MAX: u32 = 30;

/// State of a connection, at its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Greeting,
    Options,
    Ready,
    /// The client has sent its disconnect request; the outstanding replies arrive.
    Leaving,
    /// The server must close the connection.
    Doomed,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) conn: usize,
    pub(crate) phase: Phase,
    pub(crate) input: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) asks: VecDeque<Ask>,
    pub(crate) no_zeroes: bool,
    pub(crate) framing: Framing,
    /// The number of the context `base:allocation`, if it was negotiated.
    pub(crate) allocation: Option<u32>,
    /// The library's handshake, while it negotiates.
    pub(crate) handshake: Option<Box<Handshake>>,
    /// After the handshake the library makes the requests and parses the replies.
    pub(crate) has_library: bool,
    pub(crate) library: Option<Box<Library>>,
    /// A proxy that changes the form of the replies.
    pub(crate) recut: Option<Recut>,
    /// Whole replies that the client has received.
    pub(crate) nr_answers: u32,
    /// By their cookies, or the library's slots.
    pub(crate) pending: BTreeMap<u64, Pending>,
    /// The client vanishes when it has sent, or received, so many bytes.
    sends_max: u64,
    gets_max: u64,
}

/// State that all clients share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) load: ClientLoad,
    pub(crate) can: forebay_nbd::export::Abilities,
    pub(crate) nr_exports: usize,
    pub(crate) payload_max: u64,
    pub(crate) size_bytes: u64,
    pub(crate) may_fail: bool,
    pub(crate) log: Log,
    /// The server ends all connections.
    pub(crate) is_stopping: bool,
}

impl Shared {
    pub(crate) fn new(scenario: &Scenario) -> Shared {
        let export = &scenario.settings.front.infos[0];
        Shared {
            load: scenario.load.clone(),
            can: export.can,
            nr_exports: scenario.settings.front.infos.len(),
            payload_max: export.block_size.max.into(),
            size_bytes: export.size_bytes,
            may_fail: scenario.disk.has_faults,
            log: Log::default(),
            is_stopping: false,
        }
    }
}

/// A client, with its connection if it has one.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: usize,
    pub(crate) live: Option<Live>,
    pub(crate) nr_left: u32,
    pub(crate) nr_written: u64,
    nr_connects: u32,
    sleeps_until: u64,
    /// An event of this client is scheduled.
    is_due: bool,
}

impl Client {
    pub(crate) fn new(id: usize) -> Client {
        let live = None;
        Client {
            id,
            live,
            nr_left: 0,
            nr_written: 0,
            nr_connects: 0,
            sleeps_until: 0,
            is_due: false,
        }
    }

    /// Begins a phase.
    pub(crate) fn begin(&mut self, nr_requests: u32, cx: &mut Context) {
        (self.live, self.nr_left, self.nr_connects) = (None, nr_requests, 0);
        (self.sleeps_until, self.is_due) = (0, false);
        self.soon(1_000, cx);
    }

    /// Makes no more requests and connections.
    pub(crate) fn retire(&mut self) {
        self.nr_left = 0;
    }

    pub(crate) fn soon(&mut self, mean_ns: u64, cx: &mut Context) {
        if !std::mem::replace(&mut self.is_due, true) {
            cx.soon(mean_ns, Event::Act(self.id));
        }
    }

    /// Returns whether the client has finished.
    pub(crate) fn is_over(&self) -> bool {
        self.live.is_none() && (self.nr_left == 0 || self.nr_connects >= NR_CONNECTS_MAX)
    }

    /// Takes the client's next step. Returns whether it connects; `next` is the number of that
    /// connection.
    pub(crate) fn act(&mut self, next: usize, shared: &mut Shared, cx: &mut Context) -> bool {
        self.is_due = false;
        if self.live.is_none() {
            let connects = !self.is_over();
            if connects {
                self.connect(next, shared, cx);
            }
            return connects;
        }
        if cx.now < self.sleeps_until {
            let left_ns = self.sleeps_until - cx.now;
            self.is_due = true;
            cx.after(left_ns, Event::Act(self.id));
            return false;
        }
        let live = self.live.as_ref().expect("looked at above");
        if live.phase != Phase::Ready {
            return false;
        }
        let nr = cx.random.between(1, shared.load.burst_max);
        for _ in 0..nr {
            self.request_or_leave(shared, cx);
        }
        let live = self.live.as_ref().expect("looked at above");
        if cx.random.chance(shared.load.sleeps, 100) {
            cx.note(Met::SlowClient, self.id as u64, 0);
            let time_ns = cx.random.exponential(SLEEP_NS) + 1;
            self.sleeps_until = cx.now + time_ns;
            self.is_due = true;
            cx.after(time_ns, Event::Act(self.id));
        } else if live.phase == Phase::Ready
            && live.pending.len() < shared.load.depth
            && self.nr_left > 0
        {
            self.soon(shared.load.think_ns, cx);
        }
        // With no requests left, replies wake the client.
        false
    }

    fn request_or_leave(&mut self, shared: &mut Shared, cx: &mut Context) {
        let Some(live) = &mut self.live else { return };
        if live.phase != Phase::Ready || live.pending.len() >= shared.load.depth {
            return;
        }
        let is_busy = !live.pending.is_empty();
        let leaves_busy = is_busy && cx.random.chance(shared.load.leaves_busy, 1_000);
        if leaves_busy || (self.nr_left == 0 && !is_busy) {
            let met = if is_busy { Met::LeaveBusy } else { Met::Leave };
            cx.note(met, self.id as u64, live.pending.len() as u64);
            return live.leave();
        }
        if self.nr_left > 0 {
            self.nr_left -= 1;
            self.request(shared, cx);
        }
    }

    fn connect(&mut self, conn: usize, shared: &Shared, cx: &mut Context) {
        let load = &shared.load;
        self.nr_connects += 1;
        let met = if self.nr_connects > 1 { Met::Reconnect } else { Met::Connect };
        cx.note(met, self.id as u64, conn as u64);
        let (mut sends_max, mut gets_max) = (u64::MAX, u64::MAX);
        if cx.random.chance(load.vanishes, 100) {
            let bytes = cx.random.pick(&[40, 300, 3_000, 30_000]);
            let place = cx.random.below(bytes);
            match cx.random.chance(1, 2) {
                true => sends_max = place,
                false => gets_max = place,
            }
        }
        // The library's handshake is used half as often as its requests, because it only ever
        // negotiates extended headers.
        let negotiates = cx.random.chance(load.library, 200);
        let (handshake, asks) = match negotiates {
            true => (Some(Box::new(Handshake::new("main", false))), VecDeque::new()),
            false => (None, ask::draw(load, shared.nr_exports, &mut cx.random)),
        };
        self.live = Some(Live {
            conn,
            phase: Phase::Greeting,
            input: Vec::new(),
            out: Vec::new(),
            asks,
            no_zeroes: cx.random.chance(1, 2),
            framing: Framing::Simple,
            allocation: None,
            handshake,
            has_library: cx.random.chance(load.library, 100),
            library: None,
            recut: None,
            nr_answers: 0,
            pending: BTreeMap::new(),
            sends_max,
            gets_max,
        });
    }

    /// Returns whether the client reads its input.
    pub(crate) fn is_awake(&self, cx: &Context) -> bool {
        cx.now >= self.sleeps_until
    }

    /// Reads the input that has arrived, and writes as much output as fits.
    pub(crate) fn pump(
        &mut self,
        conn: &mut Conn,
        shared: &mut Shared,
        cx: &mut Context,
    ) -> Verdict {
        if self.is_awake(cx) {
            self.get(conn, shared, cx)?;
        }
        self.put(conn, cx);
        Ok(())
    }

    fn get(&mut self, conn: &mut Conn, shared: &mut Shared, cx: &mut Context) -> Verdict {
        let Some(live) = &mut self.live else { return Ok(()) };
        let max = live.gets_max.min(usize::MAX as u64) as usize;
        let nr = match &mut live.recut {
            None => conn.down.read(max, &mut live.input) as u64,
            Some(recut) => {
                let mut bytes = Vec::new();
                conn.down.read(max, &mut bytes);
                recut.feed(&bytes, &live.pending, &mut live.input, cx);
                bytes.len() as u64
            }
        };
        if live.gets_max != u64::MAX {
            live.gets_max -= nr;
            if live.gets_max == 0 {
                if live.phase == Phase::Ready && !live.input.is_empty() {
                    cx.note(Met::VanishInReply, self.id as u64, live.input.len() as u64);
                }
                self.vanish(conn, cx);
                return Ok(());
            }
        }
        if nr == 0 && !conn.down.is_over() {
            return Ok(());
        }
        while self.take(shared, cx)? {}
        let Some(live) = &self.live else { return Ok(()) };
        if conn.down.is_over() {
            self.ended(conn, shared, cx)?;
        } else if live.phase == Phase::Ready {
            self.soon(shared.load.think_ns, cx);
        }
        Ok(())
    }

    fn put(&mut self, conn: &mut Conn, cx: &mut Context) {
        let Some(live) = &mut self.live else { return };
        let may_send = (live.out.len() as u64).min(live.sends_max) as usize;
        let nr = conn.up.write(&live.out[..may_send]);
        live.out.drain(..nr);
        if nr > 0 {
            conn.start(live.conn, Way::Up, cx);
        }
        if live.sends_max != u64::MAX {
            live.sends_max -= nr as u64;
            if live.sends_max == 0 && !live.out.is_empty() {
                self.vanish(conn, cx);
            }
        }
    }

    /// Breaks the connection without notice; the client reconnects later.
    fn vanish(&mut self, conn: &mut Conn, cx: &mut Context) {
        let Some(live) = self.live.take() else { return };
        let met = match live.phase {
            Phase::Greeting | Phase::Options => Met::VanishInHandshake,
            _ => Met::VanishBusy,
        };
        cx.note(met, self.id as u64, live.pending.len() as u64);
        conn.up.cut(&mut cx.random);
        conn.hang_up(live.conn, cx);
        self.soon(10_000, cx);
    }

    /// Checks the end of a connection that the server has closed.
    fn ended(&mut self, conn: &mut Conn, shared: &Shared, cx: &mut Context) -> Verdict {
        let Some(live) = self.live.take() else { return Ok(()) };
        live.check_end(conn, shared, cx)?;
        conn.up.close();
        conn.hang_up(live.conn, cx);
        self.soon(10_000, cx);
        Ok(())
    }
}
