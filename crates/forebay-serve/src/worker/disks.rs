//! The disks' side of a worker: requests of clients become I/O of the layer here.
//!
//! A request of up to [`PIECE_MAX`] bytes is one bio. A larger one goes in pieces, so that its
//! memory is bounded: a write piece by piece as its payload comes in, a read in waves of a few
//! pieces (`waves.rs`). The layer joins the pieces again.

use super::cache::Caching;
use super::conn::Conn;
use super::door::Door;
use super::payload::Payload;
use super::slots::{Key, Slots};
use super::status::Asker;
use super::waves::Wave;
use crate::export::Export;
use crate::pool::{Budget, PIECE_MAX, Pool};
use forebay::{BioQueue, Buf, Completion, Io, Refusal};
use forebay_nbd::server::{Command, NbdError, Request};
use std::sync::Arc;

/// A request that has begun and has not been answered.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Whose it is. The connection may be gone when the disk is done.
    pub(crate) conn: Key,
    pub(crate) export: usize,
    pub(crate) rq: Request,
    /// When it was looked at, ns.
    pub(crate) begun_ns: u64,
    /// When the last part of it was handed to the disk, ns.
    pub(crate) issued_ns: u64,
    /// Pieces that the disk has.
    pub(crate) in_disk: u32,
    /// Nothing of it will be handed to the disk any more.
    pub(crate) is_all_there: bool,
    /// The first failure.
    pub(crate) failed: Option<(NbdError, &'static str)>,
    /// A read of several pieces.
    pub(crate) wave: Option<Box<Wave>>,
}

/// What became of a request that a worker wanted to begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It is on its way, or answered.
    Yes,
    /// There is no room for it now: memory, or boxes for bios.
    NoRoom,
}

/// The disks, as one worker sees them.
#[derive(Debug)]
pub(crate) struct Disks {
    pub(crate) exports: Arc<[Export]>,
    asker: Arc<Asker>,
    door: Arc<Door>,
    /// This thread's queue on each export's disk. They are opened before anything is served: one on
    /// another server connects to it, and no client is to wait for that.
    queues: Vec<BioQueue>,
    /// Those whose descriptors were reported since they were last reaped.
    is_told: Vec<bool>,
    /// Queues whose descriptors nobody watches yet.
    unwatched: Vec<usize>,
    pub(crate) flights: Slots<Flight>,
    /// Requests that may be over though no completion will say so.
    pub(super) to_settle: Vec<Key>,
    /// CACHE requests, by export.
    pub(super) caching: Vec<Caching>,
    pub(crate) pool: Pool,
    /// Requests of this round, without CACHE.
    pub(super) nr_begun: u64,
    /// Whether there were any since the timer last looked.
    was_used: bool,
    /// When this round began, ns.
    pub(crate) now_ns: u64,
}

impl Disks {
    pub(crate) fn new(
        exports: Arc<[Export]>,
        (asker, door): (Arc<Asker>, Arc<Door>),
        budget: Budget,
    ) -> Disks {
        let queues = exports.iter().map(|export| export.disk.queue()).collect();
        let is_told = vec![false; exports.len()];
        let unwatched = (0..exports.len()).collect();
        let caching = exports.iter().map(|_| Caching::default()).collect();
        Disks {
            exports,
            asker,
            door,
            queues,
            is_told,
            unwatched,
            flights: Slots::new(),
            to_settle: Vec::new(),
            caching,
            pool: Pool::new(budget),
            nr_begun: 0,
            was_used: false,
            now_ns: 0,
        }
    }

    /// Whether an export's queue has boxes for so many bios more.
    pub(super) fn has_boxes(&self, export: usize, nr: usize) -> bool {
        let policy = &self.exports[export].disk.info().policy;
        self.queues[export].len() + nr <= policy.nr_bios as usize
    }

    /// A queue whose descriptor is to be watched, and is not yet.
    pub(crate) fn next_unwatched(&mut self) -> Option<(usize, &mut BioQueue)> {
        let export = self.unwatched.pop()?;
        Some((export, &mut self.queues[export]))
    }

    /// Its descriptor cannot be watched yet.
    pub(crate) fn put_unwatched(&mut self, export: usize) {
        self.unwatched.push(export);
    }

    /// A queue's descriptor was reported: it has to be reaped, whatever is in it.
    pub(crate) fn told(&mut self, export: usize) {
        self.is_told[export] = true;
    }

    /// Adds what has ended to `done`.
    pub(crate) fn reap(&mut self, done: &mut Vec<Completion>) {
        for (queue, is_told) in self.queues.iter_mut().zip(&mut self.is_told) {
            if std::mem::take(is_told) {
                queue.reap(0, usize::MAX, done);
            } else if !queue.is_empty() {
                queue.reap_untold(usize::MAX, done);
            }
        }
    }

    /// Whether anything has ended that was not reaped. No descriptor tells of it.
    pub(crate) fn has_ended(&self) -> bool {
        self.queues.iter().any(BioQueue::has_ended)
    }

    /// Whether the layer has anything of this worker's.
    pub(crate) fn is_busy(&self) -> bool {
        self.queues.iter().any(|queue| !queue.is_empty())
    }

    /// Returns whether the layer has I/O of this worker's for an export.
    pub(super) fn is_busy_with(&self, export: usize) -> bool {
        !self.queues[export].is_empty()
    }

    /// Whether no request has come since this was last asked.
    pub(crate) fn is_idle(&mut self) -> bool {
        !std::mem::take(&mut self.was_used)
    }

    /// How many requests have come since this was last asked.
    #[inline]
    pub(crate) fn take_nr_begun(&mut self) -> u64 {
        let nr = std::mem::take(&mut self.nr_begun);
        self.was_used |= nr > 0;
        nr
    }

    /// Has a client's question about a range answered.
    pub(crate) fn ask(&self, conn: &mut Conn, rq: Request) -> Begun {
        self.asker.ask(conn, rq, &self.door)
    }

    /// Begins a request. One with a payload is begun when its payload begins to come: the rest is
    /// [`Disks::fill`]'s.
    #[inline]
    pub(crate) fn begin(&mut self, conn: &mut Conn, rq: Request) -> Begun {
        self.nr_begun += 1;
        let export = conn.phase.transmission().export();
        let flight = Flight {
            conn: conn.key,
            export,
            rq,
            begun_ns: self.now_ns,
            issued_ns: self.now_ns,
            in_disk: 0,
            is_all_there: true,
            failed: None,
            wave: None,
        };
        match rq.command {
            Ok(Command::Read { .. }) => self.begin_read(conn, flight),
            Ok(Command::Cache) => {
                self.nr_begun -= 1;
                self.begin_cache(conn, flight)
            }
            Ok(Command::Write { .. }) => {
                let flight = self.flights.insert(Flight { is_all_there: false, ..flight });
                conn.nr_in_flight += 1;
                conn.payload = Some(Payload {
                    flight,
                    buf: None,
                    filled: 0,
                    piece_len: 0,
                    lent_ns: 0,
                    at: rq.offset,
                    left: rq.len,
                });
                Begun::Yes
            }
            Ok(Command::Flush) => self.begin_whole(conn, flight, Io::flush()),
            Ok(Command::Trim { fua }) => {
                let io = Io::discard(rq.offset, rq.len);
                self.begin_whole(conn, flight, if fua { io.fua() } else { io })
            }
            Ok(Command::WriteZeroes { fua, no_hole, .. }) => {
                let io = match !no_hole && self.exports[export].discards_to_zeroes {
                    true => Io::discard(rq.offset, rq.len),
                    false => Io::write_zeroes(rq.offset, rq.len),
                };
                self.begin_whole(conn, flight, if fua { io.fua() } else { io })
            }
            Ok(Command::BlockStatus { .. } | Command::Disconnect) | Err(_) => {
                unreachable!("answered without the disk's queue")
            }
        }
    }

    /// Begins a request that moves no data.
    fn begin_whole(&mut self, conn: &mut Conn, flight: Flight, io: Io) -> Begun {
        let export = flight.export;
        let key = self.flights.insert(Flight { in_disk: 1, ..flight });
        let submitted = self.submit(export, io.user_data(key.to_u64()));
        self.begun(conn, key, submitted.map_err(|(refusal, _)| refusal))
    }

    /// What has become of a request of a single bio.
    #[inline]
    fn begun(&mut self, conn: &mut Conn, key: Key, submitted: Result<(), Refusal>) -> Begun {
        if submitted == Err(Refusal::WouldBlock) {
            self.flights.remove(key);
            return Begun::NoRoom;
        }
        conn.nr_in_flight += 1;
        if let Err(refusal) = submitted {
            self.flights.get_mut(key).expect("the caller has put it there").in_disk = 0;
            self.refused(key, refusal);
        }
        Begun::Yes
    }

    #[inline]
    fn begin_read(&mut self, conn: &mut Conn, flight: Flight) -> Begun {
        let len = flight.rq.len;
        if len <= PIECE_MAX as u64 {
            let Some(buf) = self.pool.take(len as usize, &mut conn.held) else {
                return Begun::NoRoom;
            };
            if buf.len() >= len as usize {
                return self.begin_piece(conn, flight, buf);
            }
            self.pool.give(buf, &mut conn.held);
        }
        if conn.must_be_contiguous(&flight.rq) && !self.has_room_for_all(conn, &flight) {
            // Between its waves nothing else may be said: so it begins when everything before it
            // has been answered, and what comes behind it waits.
            if conn.nr_in_flight > 0 {
                return Begun::NoRoom;
            }
            conn.is_exclusive = true;
        }
        let wave = Some(Box::default());
        let key = self.flights.insert(Flight { is_all_there: false, wave, ..flight });
        if self.next_wave(conn, key) == Begun::NoRoom {
            self.flights.remove(key);
            conn.is_exclusive = false;
            return Begun::NoRoom;
        }
        conn.nr_in_flight += 1;
        Begun::Yes
    }

    /// Begins a read of one piece.
    #[inline]
    fn begin_piece(&mut self, conn: &mut Conn, flight: Flight, buf: Buf) -> Begun {
        let (export, rq) = (flight.export, flight.rq);
        let key = self.flights.insert(Flight { in_disk: 1, ..flight });
        let io = Io::read_part(buf, rq.len as usize, rq.offset).user_data(key.to_u64());
        let submitted = self.submit(export, io).map_err(|(refusal, io)| {
            self.give_back(io, conn);
            refusal
        });
        self.begun(conn, key, submitted)
    }

    #[inline]
    pub(super) fn submit(&mut self, export: usize, io: Io) -> Result<(), (Refusal, Io)> {
        let now_ns = self.now_ns;
        self.queues[export].submit_at(io, now_ns).map_err(|error| (error.refusal, error.io))
    }

    pub(super) fn give_back(&mut self, io: Io, conn: &mut Conn) {
        if let Some(buf) = io.into_buf() {
            self.pool.give(buf, &mut conn.held);
        }
    }

    /// The layer does not take a bio, and never will. No completion will say so: the request is put
    /// on the list of those to be looked at.
    pub(super) fn refused(&mut self, key: Key, refusal: Refusal) {
        let flight = self.flights.get_mut(key).expect("it has just been put there");
        if flight.wave.is_some() {
            flight.is_all_there = true;
        }
        flight.failed.get_or_insert(match refusal {
            Refusal::ReadOnly => (NbdError::Perm, "the disk is read-only"),
            Refusal::NotSupported(_) => (NbdError::NotSup, "the disk cannot do this"),
            _ => (NbdError::Inval, "the disk does not take this request"),
        });
        self.to_settle.push(key);
    }
}
