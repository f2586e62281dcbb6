//! Disk side of a worker: turns requests of clients into bios.
//!
//! A request of up to [`PIECE_MAX`] bytes is one bio. A larger one is split into pieces, so that
//! its memory is bounded: a write is submitted piece by piece as its payload arrives (`writes`), a
//! read in portions of a few pieces (`portions`). The layer merges the pieces again. `cache` is
//! read-ahead with the lowest priority; `status` has the threads that answer BLOCK_STATUS.

mod cache;
pub(super) mod portions;
pub(crate) mod status;
mod writes;

use self::cache::Caching;
use self::portions::Portion;
use self::status::BlockStatusThreads;
use super::conn::Conn;
use super::inbox::Inbox;
use super::payload::Payload;
use super::slots::{Key, Slots};
use crate::export::Export;
use crate::pool::{Budget, PIECE_MAX, Pool};
use forebay::{BioQueue, Buf, Completion, Io, SubmitErrorKind};
use forebay_nbd::server::{Command, NbdError, Request};
use std::sync::Arc;

/// A request in flight: begun, and not answered.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Connection of the request. It may have gone when the disk completes.
    pub(crate) conn: Key,
    pub(crate) export: usize,
    pub(crate) rq: Request,
    /// Time when the request was parsed, ns.
    pub(crate) begun_ns: u64,
    /// Time when its last part was submitted, ns.
    pub(crate) issued_ns: u64,
    /// Pieces that the disk has not completed.
    pub(crate) in_disk: u32,
    /// Whether all its pieces have been submitted.
    pub(crate) is_all_there: bool,
    /// First failure.
    pub(crate) failed: Option<(NbdError, &'static str)>,
    /// State of a read of several pieces.
    pub(crate) portion: Option<Box<Portion>>,
}

/// Result of an attempt to begin a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The request is in flight, or answered.
    Yes,
    /// No memory or no bio is free.
    NoRoom,
}

/// The disks, as used by one worker.
#[derive(Debug)]
pub(crate) struct Disks {
    pub(crate) exports: Arc<[Export]>,
    block_status: Arc<BlockStatusThreads>,
    inbox: Arc<Inbox>,
    /// This thread's queue for each export. They are opened before clients are served: a disk on an
    /// NBD server connects to it, and no client must wait for that.
    queues: Vec<BioQueue>,
    /// Whether the descriptor of a queue was reported since its last reap.
    is_readable: Vec<bool>,
    /// Queues whose descriptors are not registered at epoll yet.
    unwatched: Vec<usize>,
    pub(crate) flights: Slots<Flight>,
    /// Requests that may be over although no completion will report it.
    pub(super) to_settle: Vec<Key>,
    /// CACHE requests, by export.
    caching: Vec<Caching>,
    pub(crate) pool: Pool,
    /// Requests begun in this round, without CACHE.
    pub(super) nr_begun: u64,
    /// Whether any request began since the last tick.
    was_used: bool,
    /// Start of this round, ns.
    pub(crate) now_ns: u64,
}

impl Disks {
    pub(crate) fn new(
        exports: Arc<[Export]>,
        (block_status, inbox): (Arc<BlockStatusThreads>, Arc<Inbox>),
        budget: Budget,
    ) -> Disks {
        let queues = exports.iter().map(|export| export.disk.queue()).collect();
        let is_readable = vec![false; exports.len()];
        let unwatched = (0..exports.len()).collect();
        let caching = exports.iter().map(|_| Caching::default()).collect();
        Disks {
            exports,
            block_status,
            inbox,
            queues,
            is_readable,
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

    /// Returns whether an export's queue can take `nr` more bios.
    pub(super) fn has_boxes(&self, export: usize, nr: usize) -> bool {
        let policy = &self.exports[export].disk.info().policy;
        self.queues[export].len() + nr <= policy.nr_bios as usize
    }

    /// Returns a queue whose descriptor has to be registered at epoll.
    pub(crate) fn next_unwatched(&mut self) -> Option<(usize, &mut BioQueue)> {
        let export = self.unwatched.pop()?;
        Some((export, &mut self.queues[export]))
    }

    /// Returns a queue to the list of those to be registered.
    pub(crate) fn put_unwatched(&mut self, export: usize) {
        self.unwatched.push(export);
    }

    /// Records that the descriptor of a queue was reported: it must be reaped, even if it is empty.
    pub(crate) fn note_readable(&mut self, export: usize) {
        self.is_readable[export] = true;
    }

    /// Appends completions of all queues to `done`.
    pub(crate) fn reap(&mut self, done: &mut Vec<Completion>) {
        for (queue, is_readable) in self.queues.iter_mut().zip(&mut self.is_readable) {
            if std::mem::take(is_readable) {
                queue.reap(0, usize::MAX, done);
            } else if !queue.is_empty() {
                queue.reap_untold(usize::MAX, done);
            }
        }
    }

    /// Returns whether completions are waiting to be reaped. No descriptor reports them.
    pub(crate) fn has_ended(&self) -> bool {
        self.queues.iter().any(BioQueue::has_ended)
    }

    /// Returns whether any I/O of this worker is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.queues.iter().any(|queue| !queue.is_empty())
    }

    /// Returns whether any I/O of this worker is in flight on an export.
    pub(super) fn is_busy_with(&self, export: usize) -> bool {
        !self.queues[export].is_empty()
    }

    /// Returns whether no request has begun since the last call.
    pub(crate) fn is_idle(&mut self) -> bool {
        !std::mem::take(&mut self.was_used)
    }

    /// Returns the number of requests that have begun since the last call.
    #[inline]
    pub(crate) fn take_nr_begun(&mut self) -> u64 {
        let nr = std::mem::take(&mut self.nr_begun);
        self.was_used |= nr > 0;
        nr
    }

    /// Passes a BLOCK_STATUS request to the thread that answers them.
    pub(crate) fn ask(&self, conn: &mut Conn, rq: Request) -> Begun {
        self.block_status.ask(conn, rq, &self.inbox)
    }

    /// Begins a request. A write begins when its payload begins to arrive; [`Disks::fill`] does the
    /// rest.
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
            portion: None,
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
                unreachable!("answered without the queue of the disk")
            }
        }
    }

    /// Begins a request without data.
    fn begin_whole(&mut self, conn: &mut Conn, flight: Flight, io: Io) -> Begun {
        let export = flight.export;
        let key = self.flights.insert(Flight { in_disk: 1, ..flight });
        let submitted = self.submit(export, io.user_data(key.to_u64()));
        self.begun(conn, key, submitted.map_err(|(refusal, _)| refusal))
    }

    /// Handles the submission of a request of a single bio.
    #[inline]
    fn begun(
        &mut self,
        conn: &mut Conn,
        key: Key,
        submitted: Result<(), SubmitErrorKind>,
    ) -> Begun {
        if submitted == Err(SubmitErrorKind::WouldBlock) {
            self.flights.remove(key);
            return Begun::NoRoom;
        }
        conn.nr_in_flight += 1;
        if let Err(refusal) = submitted {
            self.flights.get_mut(key).expect("inserted by the caller").in_disk = 0;
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
            // Nothing else may be sent between its portions: so it begins when all earlier requests
            // are answered, and later ones wait. A CACHE may take minutes, and other clients
            // postpone it, so the read does not wait for it; its reply waits for the read.
            if conn.nr_in_flight > conn.nr_cache {
                return Begun::NoRoom;
            }
            conn.is_exclusive = true;
        }
        let portion = Some(Box::default());
        let key = self.flights.insert(Flight { is_all_there: false, portion, ..flight });
        if self.next_portion(conn, key) == Begun::NoRoom {
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
    pub(super) fn submit(&mut self, export: usize, io: Io) -> Result<(), (SubmitErrorKind, Io)> {
        let now_ns = self.now_ns;
        self.queues[export].submit_at(io, now_ns).map_err(|error| (error.kind, error.io))
    }

    pub(super) fn give_back(&mut self, io: Io, conn: &mut Conn) {
        if let Some(buf) = io.into_buf() {
            self.pool.give(buf, &mut conn.held);
        }
    }

    /// Fails a request whose bio the layer has refused for good. No completion reports that, so the
    /// request is added to the list of those to settle.
    pub(super) fn refused(&mut self, key: Key, refusal: SubmitErrorKind) {
        let flight = self.flights.get_mut(key).expect("inserted by the caller");
        if flight.portion.is_some() {
            flight.is_all_there = true;
        }
        flight.failed.get_or_insert(match refusal {
            SubmitErrorKind::ReadOnly => (NbdError::Perm, "the disk is read-only"),
            SubmitErrorKind::NotSupported(_) => {
                (NbdError::NotSup, "the disk does not support this")
            }
            _ => (NbdError::Inval, "the disk does not accept this request"),
        });
        self.to_settle.push(key);
    }
}
