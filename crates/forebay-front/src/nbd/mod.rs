//! NBD sessions: bytes of clients in, I/O out, completions in, replies out.
//!
//! - `input`: parses bytes to requests; `negotiate`: the handshake;
//! - `requests`: turns requests into I/O, large ones in pieces (`writes`, `portions`); `cache`:
//!   read-ahead, with the lowest priority; `status`: BLOCK_STATUS;
//! - `payload`: progress of a write whose data are being received;
//! - `completions`: turns completions into replies.

mod cache;
mod completions;
mod conn;
mod in_flight;
mod input;
mod negotiate;
mod payload;
mod planted;
mod portions;
mod requests;
mod session;
mod status;
mod writes;

pub use conn::Conn;
pub use in_flight::InFlight;
pub use input::{Inbound, MAX_IN_FLIGHT};
pub use negotiate::Opened;
pub use session::{Common, ExportFacts, Settings};
pub use status::{QUESTIONS_MAX, StatusAnswer, StatusQuery};

use crate::front::Front;
use crate::host::{Host, Peer};
use crate::session::{Clients, Desk};
use crate::stream::Piece;
use std::io::{self, IoSlice, IoSliceMut};

/// Front of an NBD server.
pub type NbdFront<H> = Front<Conn<H>>;

type NbdDesk<H> = Desk<Conn<H>>;
type NbdClients<H> = Clients<Conn<H>>;

/// The host of NBD sessions.
pub trait NbdHost: Host<Memory: Piece, Peer: Stream> {
    /// Allocates a piece of memory of this many bytes.
    fn allocate(len: usize) -> Self::Memory;

    /// Switches the stream of a client to TLS: all further bytes are encrypted.
    ///
    /// # Errors
    /// Returns the reason if that fails.
    fn start_tls(&mut self, peer: &mut Self::Peer) -> Result<(), String>;

    /// Reports that a client has chosen its export.
    fn opened(&mut self, peer: &mut Self::Peer, opened: &Opened, now_ns: u64);

    /// Counts a client that was refused, because the limit of connections is reached.
    fn refused(&mut self);

    /// Queues a query of what a range of a disk contains. Returns whether there was room. The
    /// answer is passed to the front later.
    fn query_status(&mut self, query: StatusQuery) -> bool;
}

/// The byte stream of a client.
pub trait Stream: Peer {
    /// Receives into the slices, in order. Returns 0 if the client has closed its side.
    ///
    /// # Errors
    /// Returns `WouldBlock` if nothing has arrived, and otherwise the error of the stream.
    fn receive(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Returns whether bytes are left that no event reports.
    fn has_received(&self) -> bool;

    /// Sends from the slices, in order. Returns the number of bytes taken.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the stream is full, and otherwise its error.
    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Sends bytes that were taken, and that the stream holds itself.
    ///
    /// # Errors
    /// As [`Stream::send`].
    fn flush(&mut self) -> io::Result<()>;

    /// Returns whether the stream holds bytes that were taken.
    fn wants_send(&self) -> bool;
}
