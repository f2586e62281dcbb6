//! Handshake of a connection: choice of an export, and TLS.

use super::conn::{Conn, Phase, Transport};
use super::disks::Disks;
use super::ending::Ending;
use crate::log::Opened;
use crate::metrics::ConnectionRefusal;
use crate::shared::Shared;
use crate::tls::TlsStream;
use forebay_nbd::server::{CloseReason, Next, Transmission};
use forebay_nbd::wire::Framing;
use std::sync::atomic::Ordering;

/// Log text of a connection that chooses its export while others do, and exceeds the limit.
const TOO_MANY: &str = "the limit of connections is reached (--max-connections)";

/// Processes bytes of the handshake. Returns the number of bytes consumed.
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
            report_opened(disks, shared, conn, &transmission);
            conn.phase = Phase::Transmission(transmission);
            if !conn.count_in(&shared.nr_open, shared.limits.connections) {
                shared.counters.server().refuse(ConnectionRefusal::TooMany);
                conn.ending = Some(Ending::TooMany(TOO_MANY.to_owned()));
            }
        }
        Next::Close(reason) => {
            let why = reason.to_string();
            // A client that learns that the server is full ends by ABORT. So an ABORT while the
            // server is full counts as a refusal.
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

/// Logs that a connection has chosen its export.
fn report_opened(disks: &Disks, shared: &Shared, conn: &Conn, transmission: &Transmission) {
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

/// Switches to TLS, as agreed with the client: all further bytes are encrypted.
fn start_tls(disks: &mut Disks, shared: &Shared, conn: &mut Conn, nr_behind: usize) {
    let Some(tls) = &shared.tls else { unreachable!("TLS is offered only if it is configured") };
    if nr_behind > 0 {
        // An attacker may have injected these bytes, to have them taken for encrypted ones.
        conn.ending = Some(Ending::Nonsense("plaintext after STARTTLS".to_owned()));
        return;
    }
    // The reply is sent in plaintext, before the stream is encrypted.
    match (conn.send(&mut disks.pool), TlsStream::new(tls.config())) {
        (Ok(()), Ok(tls)) if conn.output.is_empty() => {
            conn.transport = Transport::Tls(Box::new(tls));
            let Phase::Handshake(handshake) = &mut conn.phase else { unreachable!() };
            handshake.tls_started();
        }
        (Err(error), _) => conn.break_off(error.to_string()),
        (_, Err(error)) => conn.break_off(format!("TLS: {error}")),
        (Ok(()), Ok(_)) => conn.break_off("the client does not read its replies".to_owned()),
    }
}
