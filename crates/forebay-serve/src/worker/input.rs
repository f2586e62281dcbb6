//! Bytes of clients become requests here.
//!
//! A worker has one place to receive into, whatever the number of its clients. What lies there is
//! looked at at once; only what cannot be (the begin of a header, or what is behind a request that
//! has to wait) is kept with its connection. The payload of a large write is received where it
//! stays.

use super::Worker;
use super::conn::{Conn, Ending, Phase, Transport};
use super::disks::{Begun, Disks};
use super::output::HEADS_MAX;
use super::slots::Key;
use crate::log::Opened;
use crate::metrics::{Refusal, RequestKind};
use crate::server::Shared;
use crate::tls::TlsStream;
use forebay_nbd::server::{CloseReason, Command, NbdError, Next, Request, Transmission};
use forebay_nbd::wire::Framing;
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How much is received at once, bytes.
pub(super) const SCRATCH_LEN: usize = 256 << 10;

/// When so much is kept for connections that wait, less is received at once, bytes.
const REST_MAX: usize = 4 << 20;

/// How often one connection is read in a row, while others wait.
const READS_IN_A_ROW: usize = 4;

/// From this length on, the rest of a payload is received alone, but for a little: most of what
/// would come behind it is the next payload, and had to be copied.
const LARGE: usize = 16 << 10;
const A_LITTLE: usize = 4 << 10;

impl Worker {
    /// Reads what a connection has, and begins the requests in it.
    pub(super) fn receive(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        for _ in 0..READS_IN_A_ROW {
            if !conn.may_read() {
                break;
            }
            // What cannot be looked at yet is kept, and is not of the pool.
            let room = if self.rest_bytes < REST_MAX { SCRATCH_LEN } else { A_LITTLE };
            let scratch = &mut self.scratch[..room.max(conn.rest.len() + A_LITTLE)];
            let is_drained = match receive_once(conn, scratch) {
                Ok((0, ..)) => {
                    conn.ending = Some(Ending::Eof);
                    break;
                }
                Ok((_, in_scratch, is_drained)) => {
                    if conn.filling.as_ref().is_some_and(|filling| filling.is_full()) {
                        let begun = self.disks.piece_is_full(conn);
                        conn.is_stalled = begun == Begun::NoRoom;
                    }
                    let bytes = &self.scratch[..in_scratch];
                    let taken = match conn.is_stalled {
                        true => 0,
                        false => consume(&mut self.disks, &self.shared, conn, key, bytes),
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

    /// Puts a connection on the list of those that wait, if it does.
    pub(super) fn wait_if_due(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let is_due = conn.is_stalled || !conn.paused.is_empty();
        if is_due && !std::mem::replace(&mut conn.is_waiting, true) {
            self.waiting.push_back(key);
        }
    }

    /// Goes on with connections that had to wait. Says whether any could.
    pub(super) fn resume(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.waiting.len() {
            let Some(key) = self.waiting.pop_front() else { break };
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.is_waiting = false;
            let could = resume_waves(&mut self.disks, conn)
                | resume_input(&mut self.disks, &self.shared, conn, key);
            if could && !conn.is_stalled && conn.has_plaintext() {
                self.again.push(key);
            }
            if could {
                self.rest_bytes += conn.rest.len();
                self.rest_bytes -= std::mem::replace(&mut conn.rest_counted, conn.rest.len());
                self.mark_dirty(key);
            }
            self.wait_if_due(key);
            moved |= could;
        }
        moved
    }
}

/// Goes on with large reads that waited for memory. Says whether any could.
fn resume_waves(disks: &mut Disks, conn: &mut Conn) -> bool {
    let before = conn.paused.len();
    for flight in std::mem::take(&mut conn.paused) {
        if disks.next_wave(conn, flight) == Begun::NoRoom {
            conn.paused.push(flight);
        }
    }
    conn.paused.len() < before
}

/// Goes on with what was received and had to wait. Says whether anything of it could.
fn resume_input(disks: &mut Disks, shared: &Arc<Shared>, conn: &mut Conn, key: Key) -> bool {
    if !std::mem::take(&mut conn.is_stalled) {
        return false;
    }
    let rest = std::mem::take(&mut conn.rest);
    let taken = consume(disks, shared, conn, key, &rest);
    conn.rest = rest;
    conn.rest.drain(..taken);
    if !conn.is_stalled {
        conn.rest.shrink_to_fit(); // the client may be idle from now on
    }
    taken > 0 || !conn.is_stalled
}

/// One system call: how many bytes came, how many of them are in `scratch`, with those that were
/// kept in front, and whether the socket has no more.
fn receive_once(conn: &mut Conn, scratch: &mut [u8]) -> io::Result<(usize, usize, bool)> {
    let kept = conn.rest.len();
    if kept == 0
        && let Some(mut buf) = conn.filling.as_mut().and_then(|filling| filling.buf.take())
    {
        let (at, len, has_more_pieces) = {
            let filling = conn.filling.as_ref().expect("its buffer was there");
            (filling.filled, filling.piece_len, filling.left > filling.piece_len as u64)
        };
        let behind = match len - at {
            _ if has_more_pieces => 0,
            LARGE.. => A_LITTLE,
            _ => scratch.len(),
        };
        let asked = len - at + behind;
        let mut slices =
            [IoSliceMut::new(&mut buf[at..len]), IoSliceMut::new(&mut scratch[..behind])];
        let received = conn.receive(&mut slices);
        let filling = conn.filling.as_mut().expect("as above");
        filling.buf = Some(buf);
        let received = received?;
        let direct = received.min(len - at);
        filling.filled += direct;
        return Ok((received, received - direct, received < asked));
    }
    scratch[..kept].copy_from_slice(&conn.rest);
    let asked = scratch.len() - kept;
    let received = conn.receive(&mut [IoSliceMut::new(&mut scratch[kept..])])?;
    conn.rest.clear();
    Ok((received, kept + received, received < asked))
}

/// Looks at bytes, in order, and begins what they ask for. Says how many were taken: the others are
/// to be kept, until more come, or until the connection is no longer stalled.
fn consume(
    disks: &mut Disks,
    shared: &Arc<Shared>,
    conn: &mut Conn,
    key: Key,
    bytes: &[u8],
) -> usize {
    let mut at = 0;
    loop {
        if conn.ending.is_some() {
            return bytes.len();
        }
        if conn.skip > 0 {
            let now = conn.skip.min((bytes.len() - at) as u64);
            conn.skip -= now;
            at += now as usize;
        } else if conn.filling.is_some() {
            let (taken, begun) = disks.fill(conn, &bytes[at..]);
            at += taken;
            conn.is_stalled = begun == Begun::NoRoom;
        }
        if conn.skip > 0 || conn.filling.is_some() || at == bytes.len() {
            return at;
        }
        if conn.nr_in_flight >= crate::config::MAX_IN_FLIGHT
            || conn.output.heads_len() >= HEADS_MAX
            || conn.is_exclusive
        {
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
                let (export, len) = (transmission.export(), transmission.header_len());
                match transmission.parse(&bytes[at..]) {
                    Ok(rq) => match take_up(disks, conn, key, export, rq) {
                        Begun::Yes => at += len,
                        Begun::NoRoom => {
                            conn.is_stalled = true;
                            return at;
                        }
                    },
                    Err(reason) => conn.ending = Some(Ending::Told(reason.to_string())),
                }
            }
        }
    }
}

/// Takes up one request: answers it, or hands it to the disk.
#[inline]
fn take_up(disks: &mut Disks, conn: &mut Conn, key: Key, export: usize, rq: Request) -> Begun {
    let Some(kind) = kind_of(&rq) else {
        conn.ending = Some(Ending::Bye);
        return Begun::Yes;
    };
    let begun = take_up_io(disks, conn, key, export, rq);
    if begun == Begun::Yes {
        conn.counters.begin(kind);
    }
    begun
}

/// What a request asks for, as it is counted; `None`: to end.
pub(super) fn kind_of(rq: &Request) -> Option<RequestKind> {
    Some(match rq.command {
        Ok(Command::Read { .. }) => RequestKind::Read,
        Ok(Command::Write { .. }) => RequestKind::Write,
        Ok(Command::Flush) => RequestKind::Flush,
        Ok(Command::Trim { .. }) => RequestKind::Trim,
        Ok(Command::WriteZeroes { .. }) => RequestKind::WriteZeroes,
        Ok(Command::Cache) => RequestKind::Cache,
        Ok(Command::BlockStatus { .. }) => RequestKind::BlockStatus,
        Ok(Command::Disconnect) => return None,
        Err(_) => RequestKind::Refused,
    })
}

#[inline]
fn take_up_io(disks: &mut Disks, conn: &mut Conn, key: Key, export: usize, rq: Request) -> Begun {
    match rq.command {
        Ok(Command::Disconnect) => unreachable!("the caller has seen to it"),
        Ok(Command::BlockStatus { .. }) => return disks.ask(conn, key, export, rq),
        Ok(Command::Flush) => return disks.begin(conn, key, export, rq),
        Ok(_) => return disks.begin(conn, key, export, rq),
        Err(refused) => {
            conn.skip = rq.payload_len.into();
            reply_error(conn, &rq, refused.error, refused.message);
        }
    }
    Begun::Yes
}

pub(super) fn reply_error(conn: &mut Conn, rq: &Request, error: NbdError, message: &str) {
    conn.counters.fail();
    let Phase::Transmission(transmission) = &conn.phase else { unreachable!() };
    let mut bytes = std::mem::take(&mut conn.scribble);
    transmission.error(rq, error, message, &mut bytes);
    conn.output.push(&bytes);
    bytes.clear();
    conn.scribble = bytes;
}

/// What the log says of a connection that comes in while others do, and finds the server full.
const TOO_MANY: &str = "there are as many connections as --max-connections allows";

/// Bytes of the handshake. Says how many were taken.
fn negotiate(disks: &mut Disks, shared: &Arc<Shared>, conn: &mut Conn, bytes: &[u8]) -> usize {
    let Phase::Handshake(handshake) = &mut conn.phase else { unreachable!() };
    let mut bytes_out = std::mem::take(&mut conn.scribble);
    let is_full = shared.nr_open.load(Ordering::Relaxed) >= shared.limits.connections;
    handshake.set_full(is_full);
    let fed = handshake.feed(&shared.infos, bytes, &mut bytes_out);
    conn.output.push(&bytes_out);
    bytes_out.clear();
    conn.scribble = bytes_out;
    match fed.next {
        Next::More => {}
        Next::StartTls => start_tls(disks, shared, conn, bytes.len() - fed.consumed),
        Next::Transmission(transmission) => {
            conn.deadline_ns = None;
            conn.counters.set_export(transmission.export());
            tell_opened(disks, shared, conn, &transmission);
            conn.phase = Phase::Transmission(transmission);
            if !conn.count_in(&shared.nr_open, shared.limits.connections) {
                shared.counters.server().refuse(Refusal::TooMany);
                conn.ending = Some(Ending::Told(TOO_MANY.to_owned()));
            }
        }
        Next::Close(reason) => {
            conn.is_polite = matches!(reason, CloseReason::Aborted);
            if is_full {
                shared.counters.server().refuse(Refusal::TooMany);
            }
            conn.ending = Some(Ending::Told(reason.to_string()));
        }
    }
    fed.consumed
}

/// Says that a connection has chosen its export.
fn tell_opened(disks: &Disks, shared: &Shared, conn: &Conn, transmission: &Transmission) {
    let tls = match &conn.transport {
        Transport::Plain => None,
        Transport::Tls(tls) => Some(tls.description()),
    };
    let opened = Opened {
        id: conn.counters.id(),
        peer: conn.peer,
        export: &shared.infos[transmission.export()].name,
        tls: tls.as_deref(),
        mode: match transmission.framing() {
            Framing::Simple => "simple replies",
            Framing::Structured => "structured replies",
            Framing::Extended => "extended headers",
        },
    };
    shared.log.line(disks.now_ns, opened);
}

/// The client and we have agreed on TLS: what comes next is encrypted.
fn start_tls(disks: &mut Disks, shared: &Arc<Shared>, conn: &mut Conn, nr_behind: usize) {
    let Some(config) = &shared.tls else { unreachable!("TLS is offered only with a key") };
    if nr_behind > 0 {
        // Somebody on the way may have put it there, for us to take it for encrypted.
        conn.ending = Some(Ending::Told("plaintext behind STARTTLS".to_owned()));
        return;
    }
    // Our answer goes in plaintext, before the stream changes.
    match (conn.send(&mut disks.pool), TlsStream::new(Arc::clone(config))) {
        (Ok(()), Ok(tls)) if conn.output.is_empty() => {
            conn.transport = Transport::Tls(Box::new(tls));
            let Phase::Handshake(handshake) = &mut conn.phase else { unreachable!() };
            handshake.tls_started();
        }
        (Err(error), _) => conn.break_off(error.to_string()),
        (_, Err(error)) => conn.break_off(format!("TLS: {error}")),
        (Ok(()), Ok(_)) => conn.break_off("the client does not take its replies".to_owned()),
    }
}
