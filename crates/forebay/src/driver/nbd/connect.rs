//! Connection setup for an export: connect and handshake, with one deadline.
// It passes its own buffers to system calls.
#![allow(unsafe_code)]

use super::stream::{Credentials, Stream};
use crate::driver::deadline::Deadline;
use crate::driver::refusal::Refusal;
use crate::driver::socket::Socket;
use crate::driver::vectors::Vector;
use forebay_nbd::client::{Handshake, Negotiated, Next};
use forebay_nbd::uri::{Address, Uri};
use std::io;
use std::time::Duration;

/// The time limit of a connection and its handshake. It does not limit the name lookup.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit of a further connection to a server that has answered before. Some servers
/// announce several connections and then make one of them wait. A thread that wants one can use the
/// shared one.
pub(super) const MORE_TIMEOUT: Duration = Duration::from_secs(3);

/// The bytes of a handshake received at once: the maximum length of one reply.
const ROOM: usize = 33 << 10;

/// Connects to the server of a URI, within a time limit; with `credentials` over TLS.
///
/// # Errors
/// Returns what failed, and what to do.
pub(super) fn connect(
    uri: &Uri,
    credentials: Option<&Credentials>,
    timeout: Duration,
) -> Result<(Stream, Negotiated), Refusal> {
    let deadline = Deadline::after(Some(timeout));
    let socket = Socket::connect(&uri.address, deadline).map_err(|error| {
        let why = cannot_connect(&uri.address, &error);
        Refusal::by(error, why)
    })?;
    handshake(uri, credentials, socket, deadline)
}

/// Runs the handshake over a connected socket.
///
/// # Errors
/// Fails as [`connect`] does.
pub(super) fn handshake(
    uri: &Uri,
    credentials: Option<&Credentials>,
    socket: Socket,
    deadline: Deadline,
) -> Result<(Stream, Negotiated), Refusal> {
    let mut handshake = Handshake::new(&uri.export, credentials.is_some());
    let mut stream = Stream::Plain(socket);
    let (mut out, mut input) = (Vec::new(), Vec::new());
    loop {
        let fed = handshake.feed(&input, &mut out).map_err(|error| refused(uri, &error))?;
        input.drain(..fed.consumed);
        match fed.next {
            Next::More => {}
            Next::StartTls => {
                if !input.is_empty() {
                    return Err(Refusal::from(
                        "data arrived before the TLS session began; an attacker may have sent it",
                    ));
                }
                let credentials = credentials.expect("TLS is asked for with credentials only");
                stream = stream.start_tls(credentials, deadline)?;
                handshake.tls_started(&mut out);
            }
            Next::Ready(export) => {
                if !input.is_empty() {
                    return Err(Refusal::from("the server sent data before any request"));
                }
                stream.socket().set_timeout(None)?;
                return Ok((stream, export));
            }
        }
        let broken = |error: &io::Error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => format!(
                "no answer within {} s: check that it is an NBD server, and not busy with others",
                TIMEOUT.as_secs()
            ),
            io::ErrorKind::UnexpectedEof => format!(
                "the server has closed the connection during the handshake: it may have no export \
                 `{}`, or no room for another client",
                uri.export
            ),
            // A server that requires client certificates refuses only after the session has begun.
            _ if uri.tls => format!(
                "the connection is lost during the handshake ({error}); the server may want a \
                 certificate of ours: client-cert.pem and client-key.pem in tls-certificates=DIR"
            ),
            _ => format!("the connection is lost during the handshake ({error})"),
        };
        exchange(&mut stream, deadline, &mut out, &mut input).map_err(|error| {
            let why = broken(&error);
            Refusal::by(error, why)
        })?;
    }
}

/// Sends all pending data, then receives some.
fn exchange(
    stream: &mut Stream,
    deadline: Deadline,
    out: &mut Vec<u8>,
    input: &mut Vec<u8>,
) -> io::Result<()> {
    let mut rest = out.as_slice();
    while !rest.is_empty() {
        stream.socket().set_timeout(Some(deadline.time_left()?))?;
        // SAFETY: the buffer is local.
        match unsafe { stream.send(&[Vector::of(rest)], true) } {
            Ok(len) => rest = &rest[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    out.clear();
    let begin = input.len();
    input.resize(begin.max(ROOM) + 1, 0);
    loop {
        stream.socket().set_timeout(Some(deadline.time_left()?))?;
        let place = Vector::of_mut(&mut input[begin..]);
        // SAFETY: as above.
        match unsafe { stream.recv(&[place], true) } {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                input.truncate(begin + len);
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn cannot_connect(address: &Address, error: &io::Error) -> String {
    let hint = match (error.kind(), address) {
        (io::ErrorKind::NotFound, Address::Unix(_)) => {
            "; there is no such socket: start the server"
        }
        (io::ErrorKind::ConnectionRefused, _) => "; no program listens there: start the server",
        (io::ErrorKind::PermissionDenied, Address::Unix(_)) => {
            "; the socket's permissions do not allow it"
        }
        (io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock, _) => {
            return format!("cannot connect within {} s", TIMEOUT.as_secs());
        }
        _ => "",
    };
    format!("cannot connect: {error}{hint}")
}

fn refused(uri: &Uri, error: &forebay_nbd::client::HandshakeError) -> String {
    use forebay_nbd::client::HandshakeError;
    use forebay_nbd::wire::numbers::REP_ERR_UNKNOWN;
    match error {
        HandshakeError::Refused { reply: REP_ERR_UNKNOWN, message, .. } => {
            let says = match message.is_empty() {
                true => String::new(),
                false => format!(" (its message: {message})"),
            };
            format!("the server has no export `{}`{says}; `nbdinfo --list` shows all", uri.export)
        }
        _ => error.to_string(),
    }
}
