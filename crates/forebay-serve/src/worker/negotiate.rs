//! The handshake: a client chooses its export, and perhaps encrypts.

use super::conn::{Conn, Phase, Transport};
use super::disks::Disks;
use super::ending::Ending;
use crate::log::Opened;
use crate::metrics::ConnectionRefusal;
use crate::server::Shared;
use crate::tls::TlsStream;
use forebay_nbd::server::{CloseReason, Next, Transmission};
use forebay_nbd::wire::Framing;
use std::sync::atomic::Ordering;

/// What the log says of a connection that comes in while others do, and finds the server full.
const TOO_MANY: &str = "there are as many connections as --max-connections allows";

/// Bytes of the handshake. Says how many were taken.
pub(super) fn negotiate(
    disks: &mut Disks,
    shared: &Shared,
    conn: &mut Conn,
    bytes: &[u8],
) -> usize {
    let Phase::Handshake(handshake) = &mut conn.phase else { unreachable!() };
    let is_full = shared.nr_open.load(Ordering::Relaxed) >= shared.limits.connections;
    handshake.set_full(is_full);
    let fed = conn.output.push_with(|out| handshake.feed(&shared.infos, bytes, out));
    match fed.next {
        Next::More => {}
        Next::StartTls => start_tls(disks, shared, conn, bytes.len() - fed.consumed),
        Next::Transmission(transmission) => {
            conn.deadline_ns = None;
            conn.counters.set_export(transmission.export());
            tell_opened(disks, shared, conn, &transmission);
            conn.phase = Phase::Transmission(transmission);
            if !conn.count_in(&shared.nr_open, shared.limits.connections) {
                shared.counters.server().refuse(ConnectionRefusal::TooMany);
                conn.ending = Some(Ending::TooMany(TOO_MANY.to_owned()));
            }
        }
        Next::Close(reason) => {
            let why = reason.to_string();
            // A client that is told that the server is full goes by ABORT: one that does so while
            // it is full is taken to go for that.
            if is_full && matches!(reason, CloseReason::Aborted | CloseReason::Full) {
                shared.counters.server().refuse(ConnectionRefusal::TooMany);
            }
            conn.ending = Some(match reason {
                CloseReason::Aborted => Ending::Aborted(why),
                CloseReason::Full => Ending::TooMany(why),
                CloseReason::TlsRequired => Ending::WithoutTls(why),
                _ => Ending::Nonsense(why),
            });
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
fn start_tls(disks: &mut Disks, shared: &Shared, conn: &mut Conn, nr_behind: usize) {
    let Some(tls) = &shared.tls else { unreachable!("TLS is offered only with a key") };
    if nr_behind > 0 {
        // Somebody on the way may have put it there, for us to take it for encrypted.
        conn.ending = Some(Ending::Nonsense("plaintext behind STARTTLS".to_owned()));
        return;
    }
    // Our answer goes in plaintext, before the stream changes.
    match (conn.send(&mut disks.pool), TlsStream::new(tls.config())) {
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
