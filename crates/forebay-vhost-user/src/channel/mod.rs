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
//! - `session`: the messages; `ring`: the state of one ring;
//! - `regions`: memory regions; `events`: eventfds; `refusal`: a message that was refused.

mod events;
mod refusal;
mod regions;
mod ring;
mod session;
#[cfg(test)]
mod tests;

use crate::config::{Config, WriteCache};
use crate::setup::RingCommand;
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
    let mut handler = BackendReqHandler::from_stream(stream, Arc::clone(&session));
    let serve_all = AssertUnwindSafe(|| {
        loop {
            match handler.handle_request() {
                Ok(()) => {}
                Err(error) => return reason(&error),
            }
        }
    });
    let ending = catch_unwind(serve_all).unwrap_or_else(|_| {
        rings.panicked();
        Err("internal error while serving this front end".to_owned())
    });
    rings.closing();
    let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
    // The front end sees the end of the connection only when no ring uses its memory.
    session.stop_all();
    ending.and_then(|()| session.close())
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
