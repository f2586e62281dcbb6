//! Completion of requests at the server: the ends of their bios, and the replies to clients.

use super::context::Context;
use super::flight::{Flight, PLACE_SHIFT};
use super::plant::NbdPlant;
use super::reply;
use super::server::Server;
use super::session::FlightId;
use super::session::{Phase, Session};
use forebay_core::BlockStatus;
use forebay_nbd::server::{Command, NbdError, Request};

impl Server {
    /// Records the end of a bio.
    pub(super) fn ended(
        &mut self,
        number: u64,
        result: Result<u64, BlockStatus>,
        cx: &mut Context,
    ) {
        let (id, place) = ((number & u64::from(u32::MAX)) as FlightId, number >> PLACE_SHIFT);
        let flight = self.flights[id].as_mut().expect("its request is in flight");
        flight.nr_in_disk -= 1;
        if let Err(status) = result {
            flight.failed.get_or_insert(NbdError::of(status));
            flight.good_len = flight.good_len.min(place);
        }
        self.finish_if_over(id, cx);
    }

    /// Answers a request whose bios have all ended, and removes it.
    pub(super) fn finish_if_over(&mut self, id: FlightId, cx: &mut Context) {
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
            match cx.plants(NbdPlant::StaleBuffer) {
                true => self.memory.give_as_it_is(buf),
                false => self.memory.give(buf),
            }
        }
        if std::mem::take(&mut self.nr_waiting_for_room) > 0 {
            (0..self.settings.nr_workers).for_each(|worker| self.wake_worker(worker, cx));
        }
    }

    /// Returns the connection that gets the reply: the request's own, except with a planted bug.
    fn answered_session(&self, conn: usize, cx: &mut Context) -> usize {
        let is_open = |session: &Session| {
            !session.is_closing && matches!(session.phase, Phase::Transmission(_))
        };
        let is_gone = self.sessions[conn].as_ref().is_some_and(|session| session.is_closing);
        if !is_gone || !cx.plants(NbdPlant::AnswerNext) {
            return conn;
        }
        let mut sessions = self.sessions.iter();
        sessions.position(|other| other.as_ref().is_some_and(is_open)).unwrap_or(conn)
    }

    pub(super) fn answer(&mut self, id: FlightId, cx: &mut Context) {
        let flight = self.flights[id].as_mut().expect("a request that is answered is in flight");
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
        if cx.plants(NbdPlant::SwapCookies) && is_write(&rq) {
            let mut others = self.flights.iter_mut().flatten();
            let is_like_it = |other: &&mut Flight| {
                other.conn == conn
                    && other.is_all_there
                    && !other.is_answered
                    && is_write(&other.rq)
            };
            if let Some(other) = others.find(is_like_it) {
                // The offset is swapped too, so that only the time reveals the bug.
                std::mem::swap(&mut rq.cookie, &mut other.rq.cookie);
                std::mem::swap(&mut rq.offset, &mut other.rq.offset);
            }
        }
        let answered = self.answered_session(conn, cx);
        let session = self.sessions[answered].as_mut().expect("it has something in flight");
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
}

fn is_write(rq: &Request) -> bool {
    matches!(rq.command, Ok(Command::Write { .. }))
}
