//! Handshake of a client: choice of an export, and TLS.

use super::conn::Conn;
use super::{NbdDesk, NbdHost};
use crate::ending::Ending;
use forebay_nbd::server::{CloseReason, Next, Transmission};
use forebay_nbd::wire::Framing;
use std::sync::atomic::Ordering;

/// Log text of a client that chooses its export while others do, and exceeds the limit.
const TOO_MANY: &str = "the limit of connections is reached (--max-connections)";

/// The choice of a client, for the log.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// Index of the export.
    pub export: usize,
    /// Negotiated framing: simple replies, structured replies or extended headers.
    pub mode: &'static str,
}

/// Processes bytes of the handshake. Returns the number of bytes consumed.
pub(super) fn negotiate<H: NbdHost>(
    desk: &mut NbdDesk<H>,
    conn: &mut Conn<H>,
    bytes: &[u8],
) -> usize {
    let common = &desk.common;
    let is_full = common.nr_open.load(Ordering::Relaxed) >= common.capacity.connections;
    let (handshake, output) = conn.handshake();
    handshake.set_full(is_full);
    let fed = output.push_with(|out| handshake.feed(&common.infos, bytes, out));
    match fed.next {
        Next::More => {}
        Next::StartTls => start_tls(desk, conn, bytes.len() - fed.consumed),
        Next::Transmission(transmission) => {
            report_opened(desk, conn, &transmission);
            conn.begin_transmission(transmission);
            if !conn.count_in(&desk.common.nr_open, desk.common.capacity.connections) {
                desk.host.refused();
                conn.link.end(Ending::TooMany(TOO_MANY.to_owned()));
            }
        }
        Next::Close(reason) => {
            let why = reason.to_string();
            // A client that learns that the server is full ends by ABORT. So an ABORT while the
            // server is full counts as a refusal.
            if is_full && matches!(reason, CloseReason::Aborted | CloseReason::Full) {
                desk.host.refused();
            }
            conn.link.end(match reason {
                CloseReason::Aborted => Ending::Aborted(why),
                CloseReason::Full => Ending::TooMany(why),
                CloseReason::TlsRequired => Ending::WithoutTls(why),
                _ => Ending::Nonsense(why),
            });
        }
    }
    fed.consumed
}

/// Reports that a client has chosen its export.
fn report_opened<H: NbdHost>(
    desk: &mut NbdDesk<H>,
    conn: &mut Conn<H>,
    transmission: &Transmission,
) {
    let mode = match transmission.framing() {
        Framing::Simple => "simple replies",
        Framing::Structured => "structured replies",
        Framing::Extended => "extended headers",
    };
    let opened = Opened { export: transmission.export(), mode };
    desk.host.opened(&mut conn.link.peer, &opened, desk.now_ns);
}

/// Switches to TLS, as agreed with the client: all further bytes are encrypted.
fn start_tls<H: NbdHost>(desk: &mut NbdDesk<H>, conn: &mut Conn<H>, nr_behind: usize) {
    if nr_behind > 0 {
        // An attacker may have injected these bytes, to have them taken for encrypted ones.
        conn.link.end(Ending::Nonsense("plaintext after STARTTLS".to_owned()));
        return;
    }
    // The reply is sent in plaintext, before the stream is encrypted.
    let sent = conn.send(&mut desk.common.pool);
    let started = match sent {
        Err(error) => Err(error.to_string()),
        Ok(()) if !conn.has_sent_all() => Err("the client does not read its replies".to_owned()),
        Ok(()) => desk.host.start_tls(&mut conn.link.peer),
    };
    match started {
        Ok(()) => conn.handshake().0.tls_started(),
        Err(why) => conn.link.break_off(why),
    }
}
