//! The server: sessions, which workers read, and the requests that they have in flight at the disk.
//!
//! It is no copy of the one that `forebay serve` is, which has sockets, threads and memory of its
//! own; but it does the same with the same protocol and the same layer: all that can be read from
//! the sockets of a worker becomes one plug, payloads go to the disk piece by piece as they come,
//! replies go out in the order in which requests end, and a client that does not read is not read.

use super::context::{Context, Event, Way};
use super::disk::{Disk, Ended};
use super::memory::{BufId, Memory};
use super::plant::NbdPlant;
use super::reply;
use super::session::{Filling, Phase, Session};
use super::trace::Met;
use super::world::Conn;
use crate::check::{Verdict, broken};
use forebay_core::{Bio, BioFlags, BlockStatus, Op, Refusal};
use forebay_nbd::export::ExportInfo;
use forebay_nbd::server::{Command, NbdError, Next, Request, Transmission};

/// How long a worker takes to wake up, ns, on average.
const WAKE_NS: u64 = 800;
/// Bytes that are read at once.
const READ_MAX: u64 = 3000;

/// Where the number of a bio has the place of its data in their request, in bytes.
const PLACE_SHIFT: u32 = 32;

/// A request at the disk, by its place.
pub(crate) type FlightId = usize;

/// What the server is told.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) exports: Vec<ExportInfo>,
    pub(crate) nr_workers: usize,
    /// The longest bio.
    pub(crate) piece_bytes: u64,
    /// Requests of a connection at once.
    pub(crate) nr_flights_max: usize,
    pub(crate) nr_bufs: usize,
    /// Zeroes can be written fast.
    pub(crate) is_zeroing_fast: bool,
}

/// A request that has bios at the disk.
#[derive(Debug)]
struct Flight {
    conn: usize,
    rq: Request,
    buf: Option<BufId>,
    nr_in_disk: u32,
    /// No more bios follow.
    is_all_there: bool,
    failed: Option<NbdError>,
    /// Of a read: what lies before the first piece that failed.
    good_len: u64,
    /// The reply is there already: a planted bug.
    is_answered: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) settings: Settings,
    sessions: Vec<Option<Session>>,
    flights: Vec<Option<Flight>>,
    pub(crate) memory: Memory,
    is_woken: Vec<bool>,
    nr_waiting_for_room: u64,
}

/// What came of an attempt to go on with a session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
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

    /// A client connects. The connection's number is the next one.
    pub(crate) fn accept(&mut self, cx: &mut Context) {
        self.sessions.push(Some(Session::new()));
        self.wake(self.sessions.len() - 1, cx);
    }

    /// Something has happened to a connection.
    pub(crate) fn wake(&mut self, conn: usize, cx: &mut Context) {
        self.wake_worker(conn % self.settings.nr_workers, cx);
    }

    pub(crate) fn wake_worker(&mut self, worker: usize, cx: &mut Context) {
        if !std::mem::replace(&mut self.is_woken[worker], true) {
            cx.soon(WAKE_NS, Event::Work(worker));
        }
    }

    /// A worker goes round its sockets, and to the disk, until nothing moves.
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

    /// Sends what a connection has for its client, and ends it if that was all. Whether anything
    /// moved.
    fn send(&mut self, at: usize, conn: &mut Conn, cx: &mut Context) -> bool {
        let Some(session) = &mut self.sessions[at] else { return false };
        if conn.is_gone {
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
        nr > 0
    }

    /// Takes apart what a client has sent. Whether anything moved.
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

    /// Whether a request is whole, or more of a payload is there, and no buffer is free for it.
    fn is_waiting_for_room(&self, at: usize) -> bool {
        let Some(session) = &self.sessions[at] else { return false };
        match &session.phase {
            Phase::Transmission(transmission) => {
                session.filling.is_none() && session.input.len() >= transmission.header_len()
            }
            Phase::Handshake(_) => false,
        }
    }

    /// The client sends no more.
    fn hang_up(&mut self, at: usize, cx: &mut Context) {
        let Some(session) = &mut self.sessions[at] else { return };
        if session.nr_flights > 0 && cx.plants(NbdPlant::LeakConnection) {
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

    /// One message of a client, or a part of what is skipped or filled.
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

    /// A request, if its header is there.
    fn request(
        &mut self,
        at: usize,
        transmission: &Transmission,
        disk: &mut Disk,
        cx: &mut Context,
    ) -> Step {
        let session = self.sessions[at].as_mut().expect("the caller has it");
        let header_len = transmission.header_len();
        if session.input.len() < header_len || session.nr_flights >= self.settings.nr_flights_max {
            return Step::Stuck;
        }
        let Ok(rq) = transmission.parse(&session.input[..header_len]) else {
            session.is_closing = true;
            return Step::Moved;
        };
        let needs_buf = matches!(rq.command, Ok(Command::Read { .. } | Command::Write { .. }));
        let mut buf = None;
        if needs_buf {
            buf = self.memory.take();
            if buf.is_none() {
                self.nr_waiting_for_room += 1;
                cx.note(Met::NoRoom, at as u64, 0);
                return Step::Stuck;
            }
        }
        session.input.drain(..header_len);
        let command = match rq.command {
            Ok(command) => command,
            Err(refused) => {
                session.skip = rq.payload_len.into();
                if rq.payload_len > 0 && cx.plants(NbdPlant::OutOfStep) {
                    session.skip -= 1;
                }
                let reply = match cx.plants(NbdPlant::Obey) {
                    true => reply::done(transmission, &rq),
                    false => reply::error(transmission, &rq, refused.error, refused.message),
                };
                session.reply(reply);
                return Step::Moved;
            }
        };
        self.begin(at, transmission, rq, command, buf, disk, cx);
        Step::Moved
    }

    #[allow(clippy::too_many_arguments, reason = "all that a request is about")]
    fn begin(
        &mut self,
        at: usize,
        transmission: &Transmission,
        rq: Request,
        command: Command,
        buf: Option<BufId>,
        disk: &mut Disk,
        cx: &mut Context,
    ) {
        let session = self.sessions[at].as_mut().expect("the caller has it");
        let is_fast_refused = matches!(command, Command::WriteZeroes { fast: true, .. })
            && !self.settings.is_zeroing_fast;
        let is_flush_planted = command == Command::Flush
            && (cx.plants(NbdPlant::EarlyFlush)
                || (!session.has_written && cx.plants(NbdPlant::OwnFlush)));
        match command {
            Command::Disconnect => return session.is_closing = true,
            Command::Cache => return session.reply(reply::done(transmission, &rq)),
            Command::Flush if is_flush_planted => {
                return session.reply(reply::done(transmission, &rq));
            }
            Command::WriteZeroes { .. } if is_fast_refused => {
                let error = reply::error(transmission, &rq, NbdError::NotSup, "not fast");
                return session.reply(error);
            }
            Command::BlockStatus { .. } => {
                let extents = extents(disk, &rq);
                let mut out = Vec::new();
                transmission.extents(&rq, &extents, &mut out);
                return session.reply([out].into());
            }
            _ => {}
        }
        session.has_written |= !matches!(command, Command::Read { .. } | Command::Flush);
        session.has_written &= command != Command::Flush;
        session.nr_flights += 1;
        let is_all_there = !matches!(command, Command::Write { .. });
        let (conn, failed) = (at, None);
        let flight = Flight {
            conn,
            rq,
            buf,
            nr_in_disk: 0,
            is_all_there,
            failed,
            good_len: rq.len,
            is_answered: false,
        };
        let id = self.insert(flight);
        match command {
            Command::Read { .. } => self.begin_read(id, rq, disk, cx),
            Command::Write { .. } => {
                let session = self.sessions[at].as_mut().expect("as above");
                let filling = Filling { flight: id, filled: 0, submitted: 0, len: rq.len };
                session.filling = Some(filling);
            }
            Command::Flush => self.submit(id, Bio::flush(), disk, cx),
            Command::Trim { fua } => {
                let bio = with_fua(Bio::range(Op::Discard, rq.offset, rq.len), fua, cx);
                self.submit(id, bio, disk, cx);
            }
            Command::WriteZeroes { fua, .. } => {
                let bio = with_fua(Bio::range(Op::WriteZeroes, rq.offset, rq.len), fua, cx);
                self.submit(id, bio, disk, cx);
            }
            Command::Cache | Command::BlockStatus { .. } | Command::Disconnect => {
                unreachable!("answered above")
            }
        }
        self.finish_if_over(id, cx);
    }

    fn insert(&mut self, flight: Flight) -> FlightId {
        match self.flights.iter().position(Option::is_none) {
            Some(id) => {
                self.flights[id] = Some(flight);
                id
            }
            None => {
                self.flights.push(Some(flight));
                self.flights.len() - 1
            }
        }
    }

    fn begin_read(&mut self, id: FlightId, rq: Request, disk: &mut Disk, cx: &mut Context) {
        let buf = self.flights[id].as_ref().and_then(|flight| flight.buf).expect("a read has one");
        let step = self.settings.piece_bytes;
        if rq.len > step {
            cx.note(Met::Split, rq.offset, rq.len);
        }
        let shift = if cx.plants(NbdPlant::MisplacedRead) { self.beside(&rq) } else { 0 };
        for from in (0..rq.len).step_by(step as usize) {
            let segment = self.memory.segment(buf, from, step.min(rq.len - from));
            let bio = Bio::data(Op::Read, rq.offset + from + shift, segment);
            let bio = Bio { user_data: from << PLACE_SHIFT, ..bio };
            self.submit(id, bio, disk, cx);
        }
        if cx.plants(NbdPlant::EarlyRead) {
            self.answer(id, cx);
        }
    }

    /// How far the block beside is, if there is one.
    fn beside(&self, rq: &Request) -> u64 {
        let export = &self.settings.exports[0];
        let block = u64::from(export.block_size.min);
        if rq.offset + rq.len + block <= export.size_bytes { block } else { 0 }
    }

    /// More of a payload. Pieces that are whole go to the disk.
    fn fill(&mut self, at: usize, disk: &mut Disk, cx: &mut Context) -> Step {
        let session = self.sessions[at].as_mut().expect("the caller has it");
        let filling = session.filling.as_mut().expect("the caller has looked");
        let id = filling.flight;
        let flight = self.flights[id].as_ref().expect("a payload has a flight");
        let (rq, buf) = (flight.rq, flight.buf.expect("a write has one"));
        let nr = (filling.len - filling.filled).min(session.input.len() as u64);
        let place = &mut self.memory.bytes(buf)[filling.filled as usize..][..nr as usize];
        place.copy_from_slice(&session.input[..nr as usize]);
        session.input.drain(..nr as usize);
        filling.filled += nr;
        let mut pieces = Vec::new();
        let is_torn = cx.plants(NbdPlant::TornPayload);
        while filling.submitted < filling.len {
            let end = (filling.submitted + self.settings.piece_bytes).min(filling.len);
            if end > filling.filled && !is_torn {
                break;
            }
            pieces.push((filling.submitted, end));
            filling.submitted = end;
        }
        let is_submitted = filling.submitted == filling.len;
        let is_over = filling.filled == filling.len;
        if is_over {
            session.filling = None;
        }
        let fua = rq.command == Ok(Command::Write { fua: true });
        for (from, end) in pieces {
            if cx.plants(NbdPlant::LostWrite) {
                continue;
            }
            let shift = if cx.plants(NbdPlant::MisplacedWrite) { self.beside(&rq) } else { 0 };
            let segment = self.memory.segment(buf, from, end - from);
            let bio = Bio::data(Op::Write, rq.offset + from + shift, segment);
            let bio = with_fua(bio, fua, cx);
            self.submit(id, bio, disk, cx);
        }
        if is_over && is_submitted {
            self.flights[id].as_mut().expect("as above").is_all_there = true;
            self.finish_if_over(id, cx);
        }
        Step::Moved
    }

    fn submit(&mut self, id: FlightId, bio: Bio, disk: &mut Disk, cx: &mut Context) {
        let flight = self.flights[id].as_mut().expect("what submits is in flight");
        let worker = flight.conn % self.settings.nr_workers;
        match disk.submit(worker, Bio { user_data: bio.user_data | id as u64, ..bio }, cx.now) {
            Ok(()) => flight.nr_in_disk += 1,
            Err(Refusal::NotSupported(_)) => flight.failed = Some(NbdError::NotSup),
            Err(_) => flight.failed = Some(NbdError::Inval),
        }
    }

    /// A bio has ended.
    fn ended(&mut self, number: u64, result: Result<u64, BlockStatus>, cx: &mut Context) {
        let (id, place) = ((number & u64::from(u32::MAX)) as FlightId, number >> PLACE_SHIFT);
        let flight = self.flights[id].as_mut().expect("its request is in flight");
        flight.nr_in_disk -= 1;
        if let Err(status) = result {
            flight.failed.get_or_insert(NbdError::of(status));
            flight.good_len = flight.good_len.min(place);
        }
        self.finish_if_over(id, cx);
    }

    /// Answers a request whose bios have all ended, and forgets it.
    fn finish_if_over(&mut self, id: FlightId, cx: &mut Context) {
        let Some(flight) = &self.flights[id] else { return };
        if flight.nr_in_disk > 0 || !flight.is_all_there {
            return;
        }
        self.answer(id, cx);
        let flight = self.flights[id].take().expect("looked at above");
        let session = self.sessions[flight.conn].as_mut();
        let session = session.expect("a session stays while it has something in flight");
        session.nr_flights -= 1;
        let is_leaving = session.is_closing;
        if let Some(buf) = flight.buf
            && !(is_leaving && cx.plants(NbdPlant::LeakBuffer))
        {
            self.memory.give(buf);
        }
        if std::mem::take(&mut self.nr_waiting_for_room) > 0 {
            (0..self.settings.nr_workers).for_each(|worker| self.wake_worker(worker, cx));
        }
    }

    fn answer(&mut self, id: FlightId, cx: &mut Context) {
        let flight = self.flights[id].as_mut().expect("who answers has it");
        if std::mem::replace(&mut flight.is_answered, true) {
            return;
        }
        let (conn, mut rq, buf, mut failed) = (flight.conn, flight.rq, flight.buf, flight.failed);
        let good_len = flight.good_len as usize;
        if failed.is_some() && cx.plants(NbdPlant::HideFailure) {
            failed = None;
        }
        if cx.plants(NbdPlant::OtherCookie) {
            let others = self.flights.iter().flatten();
            let mut others = others.filter(|other| other.conn == conn && other.rq != rq);
            rq.cookie = others.next().map_or(rq.cookie ^ 1, |other| other.rq.cookie);
        }
        let session = self.sessions[conn].as_mut().expect("it has something in flight");
        let Phase::Transmission(transmission) = &session.phase else { return };
        let is_read = matches!(rq.command, Ok(Command::Read { .. }));
        let data = buf.map(|buf| &self.memory.bytes(buf)[..rq.len as usize]);
        let messages = match (failed, data) {
            (None, Some(data)) if is_read => reply::data(transmission, &rq, data, cx),
            (None, _) => reply::done(transmission, &rq),
            (Some(error), Some(data)) if is_read && cx.random.chance(1, 2) => {
                reply::late_error(transmission, &rq, &data[..good_len], error, cx)
            }
            (Some(error), _) => reply::error(transmission, &rq, error, "the disk failed"),
        };
        if cx.plants(NbdPlant::AnswerTwice) {
            session.reply(messages.clone());
        }
        if !cx.plants(NbdPlant::AnswerNever) {
            session.reply(messages);
        }
    }

    /// Nothing is left of any connection.
    pub(crate) fn check_drained(&self, rule: &'static str) -> Verdict {
        let nr_sessions = self.sessions.iter().flatten().count();
        let nr_flights = self.flights.iter().flatten().count();
        match (nr_sessions, nr_flights, self.memory.nr_taken()) {
            (0, 0, 0) => Ok(()),
            left => broken(rule, format!("sessions, requests and buffers are left: {left:?}")),
        }
    }
}

fn with_fua(bio: Bio, fua: bool, cx: &mut Context) -> Bio {
    match fua && !cx.plants(NbdPlant::ForgetFua) {
        true => Bio { flags: BioFlags::FUA, ..bio },
        false => bio,
    }
}

/// What the device holds now: zeroes, or data.
fn extents(disk: &Disk, rq: &Request) -> Vec<(u64, u32)> {
    use super::store::SECTOR;
    use forebay_nbd::wire::numbers::{STATE_HOLE, STATE_ZERO};
    let sectors = rq.offset / SECTOR..(rq.offset + rq.len) / SECTOR;
    sectors
        .map(|sector| {
            let is_zero = disk.device.store.read(sector).iter().all(|&byte| byte == 0);
            (SECTOR, if is_zero { STATE_HOLE | STATE_ZERO } else { 0 })
        })
        .collect()
}
