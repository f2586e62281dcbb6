//! Input: parses received bytes to requests.
//!
//! A worker has one receive buffer, whatever the number of its clients. Received bytes are parsed
//! immediately; only an incomplete header, or the bytes behind a request that waits, are kept with
//! the connection. The payload of a large write is received where it stays.
//!
//! A small payload is copied once. Guessing from the last requests where headers and payloads will
//! lie, in order to receive a small payload in place, was tried: it costs as many instructions as
//! the copy of 4 KiB.

use super::conn::{Conn, Phase, REST_MIN, kind_of};
use super::negotiate::negotiate;
use super::{NbdDesk, NbdHost, Stream};
use crate::ending::Ending;
use crate::host::Peer;
use crate::plant::plants;
use crate::session::Begun;
use crate::session::Progress;
use crate::stream::output::HEADS_MAX;
use forebay_nbd::server::{Command, Request};
use std::io::{self, IoSliceMut};

/// Most requests of one client in flight; more wait in its stream. It is four times the deepest
/// queue that servers are measured with, so clients do not wait for it, and it bounds what the
/// server keeps for a client that sends more.
pub const MAX_IN_FLIGHT: u32 = 512;

/// Most that is received at once, bytes.
const SCRATCH_LEN: usize = 256 << 10;

/// Limit of the kept bytes of all connections. Beyond it, less is received at once.
const REST_MAX: usize = 4 << 20;

/// Most reads from one connection in a row, while others wait.
const READS_IN_A_ROW: usize = 4;

/// Length from which the rest of a payload is received with few bytes after it: most of what
/// follows is the next payload, which would have to be copied.
const LARGE: usize = 16 << 10;
const A_LITTLE: usize = 4 << 10;

/// State of receiving that all NBD sessions of a front share.
#[derive(Debug)]
pub struct Inbound {
    /// Receive buffer.
    scratch: Vec<u8>,
    /// Sum of the bytes in the `rest` of all clients.
    rest_bytes: usize,
}

impl Inbound {
    pub(super) fn new() -> Inbound {
        Inbound { scratch: vec![0; SCRATCH_LEN], rest_bytes: 0 }
    }

    /// Returns the sum of the bytes that are kept for all clients.
    pub(super) fn rest_bytes(&mut self) -> &mut usize {
        &mut self.rest_bytes
    }

    /// Reads from a client, and begins its requests. Returns whether bytes are left that no event
    /// reports.
    pub(super) fn receive<H: NbdHost>(
        &mut self,
        desk: &mut NbdDesk<H>,
        conn: &mut Conn<H>,
    ) -> bool {
        for _ in 0..READS_IN_A_ROW {
            if !conn.may_receive() {
                break;
            }
            // Bytes that cannot be parsed yet are kept, outside the pool.
            let room = if self.rest_bytes < REST_MAX { SCRATCH_LEN } else { A_LITTLE };
            let scratch = &mut self.scratch[..room.max(conn.rest.bytes.len() + A_LITTLE)];
            let is_drained = match receive_once(conn, scratch) {
                Ok(Received { nr: 0, .. }) => {
                    conn.link.end(Ending::Eof);
                    break;
                }
                Ok(Received { in_scratch, is_drained, .. }) => {
                    let begun = desk.submit_piece_if_full(conn);
                    conn.set_stalled(begun == Begun::NoRoom);
                    let bytes = &self.scratch[..in_scratch];
                    let taken = match conn.is_stalled() {
                        true => 0,
                        false => consume(desk, conn, bytes),
                    };
                    if !(conn.is_stalled() && plants!(DropRest)) {
                        conn.rest.bytes.extend_from_slice(&bytes[taken..]);
                    }
                    is_drained && !conn.link.peer.has_received()
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    conn.link.break_off(error.to_string());
                    break;
                }
            };
            if is_drained {
                break;
            }
        }
        conn.rest.count(&mut self.rest_bytes);
        conn.link.peer.has_received() && conn.may_receive()
    }

    /// Resumes a client that waited.
    pub(super) fn resume<H: NbdHost>(
        &mut self,
        desk: &mut NbdDesk<H>,
        conn: &mut Conn<H>,
    ) -> Progress {
        let could = resume_portions(desk, conn) | resume_input(desk, conn);
        if !could {
            return Progress::Stuck;
        }
        conn.rest.count(&mut self.rest_bytes);
        match !conn.is_stalled() && conn.link.peer.has_received() {
            true => Progress::HasMore,
            false => Progress::Moved,
        }
    }
}

/// Resumes large reads that waited for memory. Returns whether any made progress.
fn resume_portions<H: NbdHost>(desk: &mut NbdDesk<H>, conn: &mut Conn<H>) -> bool {
    let mut moved = false;
    for flight in conn.take_paused() {
        match desk.next_portion(conn, flight) {
            Begun::NoRoom => conn.pause(flight),
            Begun::Yes => moved = true,
        }
    }
    moved
}

/// Resumes parsing of input that waited. Returns whether it made progress.
fn resume_input<H: NbdHost>(desk: &mut NbdDesk<H>, conn: &mut Conn<H>) -> bool {
    if !conn.is_stalled() {
        return false;
    }
    conn.set_stalled(false);
    let rest = std::mem::take(&mut conn.rest.bytes);
    let taken = consume(desk, conn, &rest);
    conn.rest.bytes = rest;
    conn.rest.bytes.drain(..taken);
    if !conn.is_stalled() {
        conn.rest.bytes.shrink_to(REST_MIN); // the client may become idle
    }
    taken > 0 || !conn.is_stalled()
}

/// Result of one receive call.
#[derive(Debug)]
struct Received {
    /// Number of bytes received; 0 at the end of the stream.
    nr: usize,
    /// Number of bytes to parse in the scratch buffer, including those kept before.
    in_scratch: usize,
    /// Whether the stream has no more bytes.
    is_drained: bool,
}

/// Receives once into `scratch`; the payload that is being received goes to its own buffer.
fn receive_once<H: NbdHost>(conn: &mut Conn<H>, scratch: &mut [u8]) -> io::Result<Received> {
    let kept = conn.rest.bytes.len();
    if kept == 0
        && let Some(payload) = conn.payload_mut()
        && let Some(mut buf) = payload.take_buf()
    {
        let missing = payload.missing();
        let behind = match missing.len() {
            _ if !payload.is_last_piece() => 0,
            LARGE.. => A_LITTLE,
            _ => scratch.len(),
        };
        let asked = missing.len() + behind;
        let mut slices =
            [IoSliceMut::new(&mut buf[missing]), IoSliceMut::new(&mut scratch[..behind])];
        let received = conn.link.peer.receive(&mut slices);
        let payload = conn.payload_mut().expect("as above");
        payload.put_buf(Some(buf));
        let nr = received?;
        return Ok(Received { nr, in_scratch: nr - payload.received(nr), is_drained: nr < asked });
    }
    scratch[..kept].copy_from_slice(&conn.rest.bytes);
    let asked = scratch.len() - kept;
    let nr = conn.link.peer.receive(&mut [IoSliceMut::new(&mut scratch[kept..])])?;
    conn.rest.bytes.clear();
    Ok(Received { nr, in_scratch: kept + nr, is_drained: nr < asked })
}

/// Parses bytes, in order, and begins their requests. Returns the number of bytes consumed; the
/// caller keeps the rest until more bytes arrive or the client is not stalled any more.
fn consume<H: NbdHost>(desk: &mut NbdDesk<H>, conn: &mut Conn<H>, bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        if conn.link.is_ending() {
            return bytes.len();
        }
        if !conn.is_between_messages() {
            at += conn.skipped(bytes.len() - at);
            let (taken, begun) = desk.fill(conn, &bytes[at..]);
            at += taken;
            if begun == Begun::NoRoom {
                conn.set_stalled(true);
            }
        }
        if !conn.is_between_messages() || at == bytes.len() {
            return at;
        }
        if !may_begin(desk, conn) {
            conn.set_stalled(true);
            return at;
        }
        match conn.phase() {
            Phase::Handshake(_) => {
                let taken = negotiate(desk, conn, &bytes[at..]);
                at += taken;
                if taken == 0 && !conn.link.is_ending() {
                    return at;
                }
            }
            Phase::Transmission(transmission) => {
                let len = transmission.header_len();
                if bytes.len() - at < len {
                    return at;
                }
                match transmission.parse(&bytes[at..]) {
                    Ok(rq) => match take_up(desk, conn, rq) {
                        Begun::Yes => at += len,
                        Begun::NoRoom => {
                            conn.set_stalled(true);
                            return at;
                        }
                    },
                    Err(reason) => conn.link.end(Ending::Nonsense(reason.to_string())),
                }
            }
        }
    }
}

/// Returns whether a client may begin another request.
#[inline]
fn may_begin<H: NbdHost>(desk: &NbdDesk<H>, conn: &Conn<H>) -> bool {
    conn.link.nr_in_flight() < desk.common.max_in_flight
        && conn.heads_len() < HEADS_MAX
        && !conn.is_exclusive()
}

/// Begins one request: answers it, or submits it to the disk.
#[inline]
fn take_up<H: NbdHost>(desk: &mut NbdDesk<H>, conn: &mut Conn<H>, rq: Request) -> Begun {
    let Some(kind) = kind_of(&rq) else {
        conn.link.end(Ending::Bye);
        return Begun::Yes;
    };
    let begun = match rq.command {
        Ok(Command::BlockStatus { .. }) => desk.ask(conn, rq),
        Ok(_) => desk.begin(conn, rq),
        Err(refused) => {
            conn.skip(rq.payload_len.into());
            conn.link.peer.fail();
            match plants!(Obey) {
                true => conn.reply_done(&rq),
                false => conn.reply_error(&rq, refused.error, refused.message),
            }
            Begun::Yes
        }
    };
    if begun == Begun::Yes {
        conn.link.peer.begin(kind);
    }
    begun
}
