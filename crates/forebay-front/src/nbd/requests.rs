//! Disk side of NBD sessions: turns requests of clients into I/O.
//!
//! A request of up to the size of the largest piece is one I/O. A larger one is split into pieces,
//! so that its memory is bounded: a write is submitted piece by piece as its payload arrives
//! (`writes`), a read in portions of a few pieces (`portions`). The layer merges the pieces again.
//! `cache` is read-ahead with the lowest priority; `status` is BLOCK_STATUS.

use super::conn::Conn;
use super::in_flight::{InFlight, NbdFlight};
use super::payload::Payload;
use super::planted::next_block;
use super::{NbdDesk, NbdHost};
use crate::flight::Flight;
use crate::host::Io;
use crate::plant::plants;
use crate::session::Begun;
use crate::slots::Key;
use forebay_core::{Op, SubmitErrorKind};
use forebay_nbd::server::{Command, Request};

impl<H: NbdHost> NbdDesk<H> {
    /// Begins a request. A write begins when its payload begins to arrive; [`NbdDesk::fill`] does
    /// the rest.
    #[inline]
    pub(super) fn begin(&mut self, conn: &mut Conn<H>, rq: Request) -> Begun {
        self.nr_begun += 1;
        let export = conn.transmission().export();
        let flight = self.flight(conn.link.key(), export, InFlight::new(rq, None));
        match rq.command {
            Ok(Command::Read { .. }) => self.begin_read(conn, flight),
            Ok(Command::Cache) => {
                self.nr_begun -= 1;
                self.begin_cache(conn, flight)
            }
            Ok(Command::Write { .. }) => {
                let flight = self.flights.insert(Flight { is_all_there: false, ..flight });
                conn.link.begun();
                conn.begin_payload(Payload::new(flight, rq.offset, rq.len));
                Begun::Yes
            }
            Ok(Command::Flush) if Self::skips_flush(conn) => {
                conn.reply_done(&rq);
                Begun::Yes
            }
            Ok(Command::Flush) => self.begin_whole(conn, flight, Io::range(Op::Flush, 0, 0)),
            Ok(Command::Trim { fua }) => {
                let io = Io::range(Op::Discard, rq.offset, rq.len);
                self.begin_whole(conn, flight, io.fua_if(fua))
            }
            Ok(Command::WriteZeroes { fua, no_hole, .. }) => {
                let op = match !no_hole && self.common.facts[export].discards_to_zeroes {
                    true => Op::Discard,
                    false => Op::WriteZeroes,
                };
                self.begin_whole(conn, flight, Io::range(op, rq.offset, rq.len).fua_if(fua))
            }
            Ok(Command::BlockStatus { .. } | Command::Disconnect) | Err(_) => {
                unreachable!("answered without the queue of the disk")
            }
        }
    }

    /// Returns whether a flush is answered at once: two planted bugs.
    #[inline]
    fn skips_flush(conn: &Conn<H>) -> bool {
        if plants!(EarlyFlush) {
            return true;
        }
        plants!(IdleFlush) && conn.link.nr_in_flight() == 0
    }

    /// Begins a request without data.
    fn begin_whole(
        &mut self,
        conn: &mut Conn<H>,
        flight: NbdFlight<H::Memory>,
        io: Io<H::Memory>,
    ) -> Begun {
        let export = flight.export;
        let key = self.flights.insert(Flight { in_disk: 1, ..flight });
        let submitted = self.submit(&conn.link.peer, export, io.user_data(key.to_u64()));
        self.begun(conn, key, submitted.map_err(|(refusal, _)| refusal))
    }

    /// Handles the submission of a request of a single I/O.
    #[inline]
    fn begun(
        &mut self,
        conn: &mut Conn<H>,
        key: Key,
        submitted: Result<(), SubmitErrorKind>,
    ) -> Begun {
        if submitted == Err(SubmitErrorKind::WouldBlock) {
            self.flights.remove(key);
            return Begun::NoRoom;
        }
        conn.link.begun();
        if let Err(refusal) = submitted {
            self.flights.get_mut(key).expect("inserted by the caller").in_disk = 0;
            self.refused(key, refusal);
        }
        Begun::Yes
    }

    #[inline]
    fn begin_read(&mut self, conn: &mut Conn<H>, flight: NbdFlight<H::Memory>) -> Begun {
        let rq = flight.rq.rq;
        if rq.len <= self.common.pool.piece_max() as u64 {
            let Some(buf) = self.common.pool.take(rq.len as usize, conn.held()) else {
                return Begun::NoRoom;
            };
            if buf.len() >= rq.len as usize {
                return self.begin_piece(conn, flight, buf);
            }
            self.common.pool.give(buf, conn.held());
        }
        if conn.must_be_contiguous(&rq) && !self.has_room_for_all(conn, &flight) {
            // Nothing else may be sent between its portions: so it begins when all earlier requests
            // are answered, and later ones wait. A CACHE may take minutes, and other clients
            // postpone it, so the read does not wait for it; its reply waits for the read.
            if conn.has_more_than_cache() {
                return Begun::NoRoom;
            }
            conn.begin_exclusive();
        }
        let key = self.flights.insert(Flight {
            is_all_there: false,
            rq: InFlight::new(rq, Some(Box::default())),
            ..flight
        });
        if self.next_portion(conn, key) == Begun::NoRoom {
            self.flights.remove(key);
            conn.end_exclusive();
            return Begun::NoRoom;
        }
        conn.link.begun();
        Begun::Yes
    }

    /// Begins a read of one piece.
    #[inline]
    fn begin_piece(
        &mut self,
        conn: &mut Conn<H>,
        flight: NbdFlight<H::Memory>,
        buf: H::Memory,
    ) -> Begun {
        let (export, rq) = (flight.export, flight.rq.rq);
        if plants!(StaleBuffer) {
            conn.reply_head(&rq, (rq.offset, rq.len), (true, true));
            conn.reply_data(buf, rq.len as usize);
            return Begun::Yes;
        }
        let key = self.flights.insert(Flight { in_disk: 1, ..flight });
        let at = match plants!(MisplacedRead) {
            true => next_block(&self.common.infos[export], rq.offset, rq.len),
            false => rq.offset,
        };
        let io = Io::data(Op::Read, buf, at, rq.len as usize).user_data(key.to_u64());
        let submitted = self.submit(&conn.link.peer, export, io).map_err(|(refusal, buf)| {
            self.give_back(buf, conn);
            refusal
        });
        if submitted.is_ok() && plants!(EarlyRead) {
            self.answer_early(conn, key);
        }
        self.begun(conn, key, submitted)
    }

    /// Returns the memory of a refused I/O to the pool.
    pub(super) fn give_back(&mut self, buf: Option<H::Memory>, conn: &mut Conn<H>) {
        if let Some(buf) = buf {
            self.common.pool.give(buf, conn.held());
        }
    }
}
