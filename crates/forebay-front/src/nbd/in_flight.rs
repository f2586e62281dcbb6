//! NBD requests in flight.

use crate::flight::Flight;
use forebay_nbd::server::{Command, Request};

/// Most pieces of a large read in flight.
pub(super) const NR_PIECES_MAX: usize = 4;

/// An NBD request in flight.
pub(super) type NbdFlight<M> = Flight<InFlight<M>>;

/// The protocol's part of a request in flight.
#[derive(Debug)]
pub struct InFlight<M> {
    pub(super) rq: Request,
    /// State of a read of several pieces.
    pub(super) portion: Option<Box<Portion<M>>>,
    /// The reply was sent already: a planted bug.
    #[cfg(forebay_plant)]
    pub(super) is_answered: bool,
}

impl<M> InFlight<M> {
    #[inline]
    pub(super) fn new(rq: Request, portion: Option<Box<Portion<M>>>) -> InFlight<M> {
        InFlight {
            rq,
            portion,
            #[cfg(forebay_plant)]
            is_answered: false,
        }
    }

    /// Records that the reply was sent already: a planted bug.
    pub(super) fn set_answered(&mut self) {
        #[cfg(forebay_plant)]
        {
            self.is_answered = true;
        }
    }

    /// Returns whether the reply was sent already.
    #[inline]
    pub(super) fn is_answered(&self) -> bool {
        #[cfg(forebay_plant)]
        let is_answered = self.is_answered;
        #[cfg(not(forebay_plant))]
        let is_answered = false;
        is_answered
    }
}

/// Returns whether the data of a read must be in one chunk, even if it is read in pieces.
pub(super) fn is_one_chunk(rq: &Request) -> bool {
    rq.command == Ok(Command::Read { df: true })
}

/// Progress of a read of several pieces.
#[derive(Debug)]
pub(crate) struct Portion<M> {
    /// Bytes that are queued for the client.
    pub(super) sent: u64,
    /// Bytes that were submitted to the disk: `sent`, and those of the pieces in flight.
    pub(super) asked: u64,
    /// Lengths of the pieces of this portion, bytes.
    pub(super) lens: [usize; NR_PIECES_MAX],
    /// Completed pieces, in the order of their offsets.
    pub(super) pieces: [Option<(M, usize)>; NR_PIECES_MAX],
}

impl<M> Default for Portion<M> {
    fn default() -> Portion<M> {
        Portion { sent: 0, asked: 0, lens: [0; NR_PIECES_MAX], pieces: [const { None }; _] }
    }
}

impl<M> Portion<M> {
    /// Returns the length of a piece, bytes.
    pub(super) fn len_of(&self, piece: usize) -> usize {
        self.lens[piece]
    }

    /// Keeps a complete piece until the portion is complete.
    pub(super) fn keep(&mut self, piece: usize, buf: M) {
        self.pieces[piece] = Some((buf, self.lens[piece]));
    }
}
