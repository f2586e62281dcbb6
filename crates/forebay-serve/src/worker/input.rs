//! Input: parses received bytes to requests.
//!
//! A worker has one receive buffer, whatever the number of its clients. Received bytes are parsed
//! immediately; only an incomplete header, or the bytes behind a request that waits, are kept with
//! the connection. The payload of a large write is received where it stays.
//!
//! A small payload is copied once. Guessing from the last requests where headers and payloads will
//! lie, in order to receive a small payload in place, was tried: it costs as many instructions as
//! the copy of 4 KiB.

use super::Worker;
use super::conn::{Conn, Phase, REST_MIN, kind_of};
use super::disks::{Begun, Disks};
use super::ending::Ending;
use super::negotiate::negotiate;
use super::output::HEADS_MAX;
use super::slots::Key;
use crate::config::MAX_IN_FLIGHT;
use crate::shared::Shared;
use forebay_nbd::server::{Command, Request};
use std::io::{self, IoSliceMut};

/// Most that is received at once, bytes.
pub(super) const SCRATCH_LEN: usize = 256 << 10;

/// Limit of the kept bytes of all connections. Beyond it, less is received at once.
const REST_MAX: usize = 4 << 20;

/// Most reads from one connection in a row, while others wait.
const READS_IN_A_ROW: usize = 4;

/// Length from which the rest of a payload is received with few bytes after it: most of what
/// follows is the next payload, which would have to be copied.
const LARGE: usize = 16 << 10;
const A_LITTLE: usize = 4 << 10;

impl Worker {
    /// Reads from a connection, and begins its requests.
    pub(super) fn receive(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        for _ in 0..READS_IN_A_ROW {
            if !conn.may_read() {
                break;
            }
            // Bytes that cannot be parsed yet are kept, outside the pool.
            let room = if self.rest_bytes < REST_MAX { SCRATCH_LEN } else { A_LITTLE };
            let scratch = &mut self.scratch[..room.max(conn.rest.len() + A_LITTLE)];
            let disks = &mut self.disks;
            let is_drained = match receive_once(conn, scratch) {
                Ok(Received { nr: 0, .. }) => {
                    conn.ending = Some(Ending::Eof);
                    break;
                }
                Ok(Received { in_scratch, is_drained, .. }) => {
                    conn.is_stalled = disks.submit_piece_if_full(conn) == Begun::NoRoom;
                    let bytes = &self.scratch[..in_scratch];
                    let taken = match conn.is_stalled {
                        true => 0,
                        false => consume(disks, &self.shared, conn, bytes),
                    };
                    conn.rest.extend_from_slice(&bytes[taken..]);
                    is_drained && !conn.has_plaintext()
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    conn.break_off(error.to_string());
                    break;
                }
            };
            if is_drained {
                break;
            }
        }
        if conn.has_plaintext() && conn.may_read() {
            self.again.push(key);
        }
        self.rest_bytes += conn.rest.len();
        self.rest_bytes -= std::mem::replace(&mut conn.rest_counted, conn.rest.len());
        self.wait_if_due(key);
        self.mark_dirty(key);
    }

    /// Adds a connection to the `waiting` list if it waits.
    pub(super) fn wait_if_due(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let is_due = conn.is_stalled || !conn.paused.is_empty();
        if is_due && !std::mem::replace(&mut conn.is_waiting, true) {
            self.waiting.push_back(key);
        }
    }

    /// Resumes connections that waited. Returns whether any made progress.
    pub(super) fn resume(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.waiting.len() {
            let Some(key) = self.waiting.pop_front() else { break };
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.is_waiting = false;
            moved |= self.guard(key, |worker| worker.resume_one(key));
            self.wait_if_due(key);
        }
        moved
    }

    /// Resumes one connection. Returns whether it made progress.
    fn resume_one(&mut self, key: Key) -> bool {
        let Some(conn) = self.conns.get_mut(key) else { return false };
        let could = resume_portions(&mut self.disks, conn)
            | resume_input(&mut self.disks, &self.shared, conn);
        if could && !conn.is_stalled && conn.has_plaintext() {
            self.again.push(key);
        }
        if could {
            self.rest_bytes += conn.rest.len();
            self.rest_bytes -= std::mem::replace(&mut conn.rest_counted, conn.rest.len());
            self.mark_dirty(key);
        }
        could
    }
}

/// Resumes large reads that waited for memory. Returns whether any made progress.
fn resume_portions(disks: &mut Disks, conn: &mut Conn) -> bool {
    let before = conn.paused.len();
    for flight in std::mem::take(&mut conn.paused) {
        if disks.next_portion(conn, flight) == Begun::NoRoom {
            conn.paused.push(flight);
        }
    }
    conn.paused.len() < before
}

/// Resumes parsing of input that waited. Returns whether it made progress.
fn resume_input(disks: &mut Disks, shared: &Shared, conn: &mut Conn) -> bool {
    if !std::mem::take(&mut conn.is_stalled) {
        return false;
    }
    let rest = std::mem::take(&mut conn.rest);
    let taken = consume(disks, shared, conn, &rest);
    conn.rest = rest;
    conn.rest.drain(..taken);
    if !conn.is_stalled {
        conn.rest.shrink_to(REST_MIN); // the client may become idle
    }
    taken > 0 || !conn.is_stalled
}

/// Result of one receive call.
#[derive(Debug)]
struct Received {
    /// Number of bytes received; 0 at the end of the stream.
    nr: usize,
    /// Number of bytes to parse in the scratch buffer, including those kept before.
    in_scratch: usize,
    /// Whether the socket has no more bytes.
    is_drained: bool,
}

/// Receives once into `scratch`; the payload that is being received goes to its own buffer.
fn receive_once(conn: &mut Conn, scratch: &mut [u8]) -> io::Result<Received> {
    let kept = conn.rest.len();
    if kept == 0
        && let Some(mut buf) = conn.payload.as_mut().and_then(|payload| payload.buf.take())
    {
        let payload = conn.payload.as_ref().expect("its buffer was there");
        let (at, len) = (payload.filled, payload.piece_len);
        let behind = match len - at {
            _ if !payload.is_last_piece() => 0,
            LARGE.. => A_LITTLE,
            _ => scratch.len(),
        };
        let asked = len - at + behind;
        let mut slices =
            [IoSliceMut::new(&mut buf[at..len]), IoSliceMut::new(&mut scratch[..behind])];
        let received = conn.receive(&mut slices);
        let payload = conn.payload.as_mut().expect("as above");
        payload.buf = Some(buf);
        let nr = received?;
        return Ok(Received { nr, in_scratch: nr - payload.received(nr), is_drained: nr < asked });
    }
    scratch[..kept].copy_from_slice(&conn.rest);
    let asked = scratch.len() - kept;
    let nr = conn.receive(&mut [IoSliceMut::new(&mut scratch[kept..])])?;
    conn.rest.clear();
    Ok(Received { nr, in_scratch: kept + nr, is_drained: nr < asked })
}

/// Parses bytes, in order, and begins their requests. Returns the number of bytes consumed; the
/// caller keeps the rest until more bytes arrive or the connection is not stalled any more.
fn consume(disks: &mut Disks, shared: &Shared, conn: &mut Conn, bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        if conn.ending.is_some() {
            return bytes.len();
        }
        if conn.skip > 0 {
            let now = conn.skip.min((bytes.len() - at) as u64);
            conn.skip -= now;
            at += now as usize;
        } else if conn.payload.is_some() {
            let (taken, begun) = disks.fill(conn, &bytes[at..]);
            at += taken;
            conn.is_stalled = begun == Begun::NoRoom;
        }
        if conn.skip > 0 || conn.payload.is_some() || at == bytes.len() {
            return at;
        }
        if !may_begin(conn) {
            conn.is_stalled = true;
            return at;
        }
        match &conn.phase {
            Phase::Handshake(_) => {
                let taken = negotiate(disks, shared, conn, &bytes[at..]);
                at += taken;
                if taken == 0 && conn.ending.is_none() {
                    return at;
                }
            }
            Phase::Transmission(transmission) => {
                if bytes.len() - at < transmission.header_len() {
                    return at;
                }
                let len = transmission.header_len();
                match transmission.parse(&bytes[at..]) {
                    Ok(rq) => match take_up(disks, conn, rq) {
                        Begun::Yes => at += len,
                        Begun::NoRoom => {
                            conn.is_stalled = true;
                            return at;
                        }
                    },
                    Err(reason) => conn.ending = Some(Ending::Nonsense(reason.to_string())),
                }
            }
        }
    }
}

/// Returns whether a connection may begin another request.
#[inline]
fn may_begin(conn: &Conn) -> bool {
    conn.nr_in_flight < MAX_IN_FLIGHT && conn.output.heads_len() < HEADS_MAX && !conn.is_exclusive
}

/// Begins one request: answers it, or submits it to the disk.
#[inline]
fn take_up(disks: &mut Disks, conn: &mut Conn, rq: Request) -> Begun {
    let Some(kind) = kind_of(&rq) else {
        conn.ending = Some(Ending::Bye);
        return Begun::Yes;
    };
    let begun = match rq.command {
        Ok(Command::BlockStatus { .. }) => disks.ask(conn, rq),
        Ok(_) => disks.begin(conn, rq),
        Err(refused) => {
            conn.skip = rq.payload_len.into();
            conn.counters.fail();
            conn.reply_error(&rq, refused.error, refused.message);
            Begun::Yes
        }
    };
    if begun == Begun::Yes {
        conn.counters.begin(kind);
    }
    begun
}
