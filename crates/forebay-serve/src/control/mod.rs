//! Control socket: a server is managed while it runs.
//!
//! It is a unix socket for the user that runs the server, and for root
//! ([`own_socket`](crate::own_socket)). A peer with another user is refused (`SO_PEERCRED`).
//! Requests and replies are lines of JSON ([`request`]).

mod commands;
mod describe;
mod policy;
mod request;

use crate::managed::Managed;
use crate::shared::Shared;
use crate::vhost_user::Devices;
use crate::worker::inbox::WorkerInbox;
use commands::ErrorReply;
use forebay_insight::lines::{Line, Lines, reply};
use forebay_insight::small::{Answer, Service};
use request::Request;
use serde_json::json;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Most descriptors that a client may have sent before a request.
const MAX_DESCRIPTORS: usize = 64;

/// The service at the control socket.
#[derive(Debug)]
pub(crate) struct Control {
    server: Arc<Managed>,
}

impl Control {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        workers: &[Arc<WorkerInbox>],
        devices: &Arc<Devices>,
    ) -> Control {
        Control { server: Arc::new(Managed::new(shared, workers, devices)) }
    }

    /// Returns the answer to a line.
    fn answer(&self, text: &[u8], received: &mut Vec<OwnedFd>) -> Answer {
        let parsed = Request::parse(text).and_then(|request| {
            let descriptors = request.take_descriptors(received)?;
            Ok((request, descriptors))
        });
        let (request, descriptors) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                let error = reply(&json!({ "error": error }));
                // The next request must not get the descriptors of this one.
                return match std::mem::take(received).is_empty() {
                    true => Answer::Reply(error),
                    false => Answer::Last(error),
                };
            }
        };
        let takes_long = request.takes_long();
        let server = Arc::clone(&self.server);
        let work = move || {
            let done = commands::run(&server, request, descriptors);
            reply(&done.unwrap_or_else(|ErrorReply(error)| error))
        };
        if takes_long { Answer::Work(Box::new(work)) } else { Answer::Reply(work()) }
    }
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    lines: Lines,
    /// Descriptors received, for the next request that takes some.
    descriptors: Vec<OwnedFd>,
}

impl Service for Control {
    const NAME: &'static str = "control";
    const DEADLINE: Duration = Duration::from_secs(60);
    type Client = Client;

    fn accept(&self, socket: BorrowedFd<'_>) -> Client {
        Client { lines: Lines::of(socket), descriptors: Vec::new() }
    }

    fn receive(&self, client: &mut Client, bytes: &[u8]) -> Answer {
        match client.lines.receive(bytes, "this server") {
            Line::Partial => Answer::More,
            Line::Refused(text) => Answer::Last(text),
            Line::Whole(line) => self.answer(&line, &mut client.descriptors),
        }
    }

    fn take_descriptors(&self, client: &mut Client, descriptors: Vec<OwnedFd>) {
        if !client.lines.is_refused() {
            let room = MAX_DESCRIPTORS.saturating_sub(client.descriptors.len());
            client.descriptors.extend(descriptors.into_iter().take(room));
        }
    }
}

#[cfg(test)]
mod tests;
