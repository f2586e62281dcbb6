//! Requests at the server: those answered at once, and those that become bios.

use super::context::Context;
use super::disk::Disk;
use super::flight::{Flight, PLACE_SHIFT};
use super::plant::NbdPlant;
use super::reply::{self, Messages};
use super::server::{Server, Step};
use super::session::{Filling, FlightId};
use super::store::SECTOR;
use super::trace::Met;
use forebay_core::{Bio, BioFlags, Op, SubmitErrorKind};
use forebay_nbd::server::{Command, NbdError, Request, Transmission};
use forebay_nbd::wire::numbers::{STATE_HOLE, STATE_ZERO};

impl Server {
    /// Parses a request if its header has arrived, and begins or answers it.
    pub(super) fn request(
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
        if needs_buf && self.memory.nr_free() == 0 {
            self.nr_waiting_for_room += 1;
            cx.note(Met::NoRoom, at as u64, 0);
            return Step::Stuck;
        }
        session.input.drain(..header_len);
        if let Some(reply) = self.reply_at_once(at, transmission, &rq, disk, cx) {
            let session = self.sessions[at].as_mut().expect("the caller has it");
            session.reply(reply);
        } else if let Ok(command) = rq.command {
            self.begin(at, rq, command, disk, cx);
        }
        Step::Moved
    }

    /// Returns the reply to a request that needs no I/O at the disk.
    fn reply_at_once(
        &mut self,
        at: usize,
        transmission: &Transmission,
        rq: &Request,
        disk: &Disk,
        cx: &mut Context,
    ) -> Option<Messages> {
        let session = self.sessions[at].as_mut().expect("the caller has it");
        let command = match rq.command {
            Ok(command) => command,
            Err(refused) => {
                session.skip = rq.payload_len.into();
                if rq.payload_len > 0 && cx.plants(NbdPlant::OutOfStep) {
                    session.skip -= 1;
                }
                return Some(match cx.plants(NbdPlant::Obey) {
                    true => reply::done(transmission, rq),
                    false => reply::error(transmission, rq, refused.error, refused.message),
                });
            }
        };
        match command {
            Command::Disconnect => {
                session.is_closing = true;
                Some(Messages::new())
            }
            Command::Cache => Some(reply::done(transmission, rq)),
            Command::Flush => {
                let is_early = cx.plants(NbdPlant::EarlyFlush)
                    || (!session.has_written && cx.plants(NbdPlant::OwnFlush));
                is_early.then(|| reply::done(transmission, rq))
            }
            Command::WriteZeroes { fast: true, .. } if !self.settings.is_zeroing_fast => {
                Some(reply::error(transmission, rq, NbdError::NotSup, "not fast"))
            }
            Command::BlockStatus { .. } => {
                let mut out = Vec::new();
                transmission.extents(rq, &extents(disk, rq), &mut out);
                Some([out].into())
            }
            _ => None,
        }
    }

    /// Begins a request that is not refused.
    fn begin(
        &mut self,
        at: usize,
        rq: Request,
        command: Command,
        disk: &mut Disk,
        cx: &mut Context,
    ) {
        let session = self.sessions[at].as_mut().expect("the caller has it");
        session.has_written |= !matches!(command, Command::Read { .. } | Command::Flush);
        session.has_written &= command != Command::Flush;
        session.nr_flights += 1;
        let needs_buf = matches!(command, Command::Read { .. } | Command::Write { .. });
        let buf = needs_buf.then(|| self.memory.take().expect("the caller has looked"));
        let id = self.insert(Flight {
            conn: at,
            rq,
            buf,
            nr_in_disk: 0,
            is_all_there: !matches!(command, Command::Write { .. }),
            failed: None,
            good_len: rq.len,
            is_answered: false,
        });
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
                unreachable!("answered without the disk's queue")
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
        if cx.plants(NbdPlant::StaleBuffer) {
            return;
        }
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

    /// Returns the distance to the next block after the request, or 0 if there is none.
    fn beside(&self, rq: &Request) -> u64 {
        let export = &self.settings.exports[0];
        let block = u64::from(export.block_size.min);
        if rq.offset + rq.len + block <= export.size_bytes { block } else { 0 }
    }

    /// Reads more of a payload, and submits the pieces that are complete.
    pub(super) fn fill(&mut self, at: usize, disk: &mut Disk, cx: &mut Context) -> Step {
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
            if cx.plants(NbdPlant::EarlyWrite) {
                self.answer(id, cx);
            }
            self.finish_if_over(id, cx);
        }
        Step::Moved
    }

    fn submit(&mut self, id: FlightId, bio: Bio, disk: &mut Disk, cx: &mut Context) {
        let flight = self.flights[id].as_mut().expect("what submits is in flight");
        let worker = flight.conn % self.settings.nr_workers;
        match disk.submit(worker, Bio { user_data: bio.user_data | id as u64, ..bio }, cx.now) {
            Ok(()) => flight.nr_in_disk += 1,
            Err(SubmitErrorKind::NotSupported(_)) => flight.failed = Some(NbdError::NotSup),
            Err(_) => flight.failed = Some(NbdError::Inval),
        }
    }
}

fn with_fua(bio: Bio, fua: bool, cx: &mut Context) -> Bio {
    match fua && !cx.plants(NbdPlant::ForgetFua) {
        true => Bio { flags: BioFlags::FUA, ..bio },
        false => bio,
    }
}

/// Returns extents for the device's present contents: zeroes, or data.
fn extents(disk: &Disk, rq: &Request) -> Vec<(u64, u32)> {
    let sectors = rq.offset / SECTOR..(rq.offset + rq.len) / SECTOR;
    sectors
        .map(|sector| {
            let is_zero = disk.device.store.read(sector).iter().all(|&byte| byte == 0);
            (SECTOR, if is_zero { STATE_HOLE | STATE_ZERO } else { 0 })
        })
        .collect()
}
