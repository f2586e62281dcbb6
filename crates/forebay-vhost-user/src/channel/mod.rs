//! Message channel between a front end and a device: one connection from start to end.
//!
//! Source: QEMU's "Vhost-user Protocol" (docs/interop/vhost-user.rst). The crate `vhost` parses the
//! messages and sends the replies. Its calls block, so each device has a thread for its channel.
//! That thread does no I/O of the disk.
//!
//! The front end is not trusted. A message that breaks the protocol, or comes at a wrong time, gets
//! an error reply if it asks for one. Then the connection ends, with one reason for the log. The
//! rings of the device stop, and the next connection sets up everything again.
//!
//! - `session`: the state of a connection, with its `messages` and its `inflight` region;
//! - `ring`: the state of one ring;
//! - `regions`: memory regions; `events`: eventfds; `refusal`: a message that was refused;
//! - `backend_fd`: the message with the socket of the backend channel, which this crate receives.

mod backend_fd;
mod events;
mod refusal;
mod regions;
mod ring;
mod session;
#[cfg(test)]
mod tests;

use crate::config::{Config, WriteCache};
use crate::setup::RingCommand;
use backend_fd::SetBackendFd;
use session::Session;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use vhost::vhost_user::{BackendReqHandler, Error};

/// The threads of the rings of a device.
pub trait Rings {
    /// Sends a command to the thread of a ring. Returns whether that thread runs.
    fn send(&self, ring: u16, command: RingCommand) -> bool;

    /// Reports that a ring has stopped because of a message.
    fn stopped(&self, ring: u16);

    /// Reports that the connection takes no more messages, and sends no more replies. Its rings
    /// stop next.
    fn closing(&self) {}

    /// Counts a panic that ended a connection: a bug in this crate.
    fn panicked(&self);
}

/// Serves a connection until the front end closes it, or the stream is shut down. Then no ring of
/// the device runs. The stream must be blocking.
///
/// # Errors
/// Returns the reason if the connection ends because of an error.
pub fn serve(
    stream: UnixStream,
    config: &Config,
    cache: &WriteCache,
    rings: &impl Rings,
) -> Result<(), String> {
    // The write cache is on until a front end switches it off, or sets an in-flight region in which
    // that is recorded.
    cache.set(true);
    let session = Arc::new(Mutex::new(Session::new(config, cache, rings)));
    let own =
        stream.try_clone().map_err(|error| format!("cannot duplicate the socket: {error}"))?;
    let mut handler = BackendReqHandler::from_stream(stream, Arc::clone(&session));
    config.backend_channel().connect();
    let serve_all = AssertUnwindSafe(|| {
        loop {
            match backend_fd::receive(&own) {
                Ok(Some(message)) => set_backend_fd(&session, &own, message)?,
                // The crate meets the same error.
                Ok(None) | Err(_) => match handler.handle_request() {
                    Ok(()) => check_channel(&session)?,
                    Err(error) => return reason(&error),
                },
            }
        }
    });
    let ending = catch_unwind(serve_all).unwrap_or_else(|_| {
        rings.panicked();
        Err("internal error while serving this front end".to_owned())
    });
    config.backend_channel().disconnect();
    rings.closing();
    let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
    // The front end sees the end of the connection only when no ring uses its memory.
    session.stop_all();
    ending.and_then(|()| session.close())
}

/// Handles the message that passes the socket of the backend channel.
///
/// # Errors
/// Returns the reason if the message is refused.
fn set_backend_fd(
    session: &Mutex<Session<'_, impl Rings>>,
    stream: &UnixStream,
    mut message: SetBackendFd,
) -> Result<(), String> {
    let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
    let set = session.set_backend_fd(&mut message);
    if session.replies() {
        // Without a reply the front end waits until the connection ends, here or by its own end.
        let _ = message.reply(stream, set.is_ok());
    }
    set.map_err(|refusal| refusal.of("SET_BACKEND_REQ_FD").to_string())
}

/// Checks that the crate has not received the message with the socket of the backend channel.
///
/// # Errors
/// Returns the reason if it has, and has dropped the socket.
fn check_channel(session: &Mutex<Session<'_, impl Rings>>) -> Result<(), String> {
    let session = session.lock().unwrap_or_else(PoisonError::into_inner);
    match session.has_lost_channel() {
        true => Err("SET_BACKEND_REQ_FD: its socket was lost, because the number of the message \
                     arrived in two parts"
            .to_owned()),
        false => Ok(()),
    }
}

/// Returns why a connection ends after this error.
fn reason(error: &Error) -> Result<(), String> {
    match error {
        Error::Disconnected => Ok(()),
        // The front end was killed before it received a reply.
        Error::SocketBroken(_) => Ok(()),
        Error::ReqHandlerError(why) => Err(why.to_string()),
        Error::SocketRetry(_) => Err("too many descriptors with a message".to_owned()),
        other => Err(format!("the front end broke the protocol: {other}")),
    }
}
