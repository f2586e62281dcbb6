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
use crate::small::{Answer, Service};
use crate::worker::inbox::WorkerInbox;
use request::Request;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde_json::{Value, json};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Longest line of a client, bytes.
const MAX_LINE_BYTES: usize = 16 << 10;

/// Most descriptors that a client may have sent before a request.
const MAX_DESCRIPTORS: usize = 64;

/// The service at the control socket.
#[derive(Debug)]
pub(crate) struct Control {
    server: Arc<Managed>,
}

impl Control {
    pub(crate) fn new(shared: &Arc<Shared>, workers: &[Arc<WorkerInbox>]) -> Control {
        Control { server: Arc::new(Managed::new(shared, workers)) }
    }

    /// Returns the answer to a line.
    fn answer(&self, text: &[u8], descriptors: Vec<OwnedFd>) -> Answer {
        let request = match Request::parse(text) {
            Ok(request) => request,
            Err(error) => return Answer::Reply(line(&json!({ "error": error }))),
        };
        let takes_long = request.takes_long();
        let server = Arc::clone(&self.server);
        let work = move || {
            let reply = commands::run(&server, request, descriptors);
            line(&reply.unwrap_or_else(|error| json!({ "error": error })))
        };
        if takes_long { Answer::Work(Box::new(work)) } else { Answer::Reply(work()) }
    }
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Bytes received and not answered.
    received: Vec<u8>,
    /// Descriptors received, for the next request that takes some.
    descriptors: Vec<OwnedFd>,
    /// The user of a client that is refused.
    refused: Option<u32>,
}

impl Service for Control {
    const NAME: &'static str = "control";
    const DEADLINE: Duration = Duration::from_secs(60);
    type Client = Client;

    fn accept(&self, socket: BorrowedFd<'_>) -> Client {
        // A peer is refused too if the kernel does not return its user.
        let uid = socket_peercred(socket).map_or(u32::MAX, |peer| peer.uid.as_raw());
        let may_connect = uid == 0 || uid == geteuid().as_raw();
        let refused = (!may_connect).then_some(uid);
        Client { received: Vec::new(), descriptors: Vec::new(), refused }
    }

    fn receive(&self, client: &mut Client, bytes: &[u8]) -> Answer {
        if let Some(uid) = client.refused {
            let error =
                format!("user {uid} may not control this server: only its own user and root");
            return Answer::Last(line(&json!({ "error": error })));
        }
        client.received.extend_from_slice(bytes);
        match client.received.iter().position(|byte| *byte == b'\n') {
            Some(len) if len <= MAX_LINE_BYTES => {
                let rest = client.received.split_off(len + 1);
                let request = std::mem::replace(&mut client.received, rest);
                self.answer(&request[..len], std::mem::take(&mut client.descriptors))
            }
            None if client.received.len() <= MAX_LINE_BYTES => Answer::More,
            _ => {
                let error = format!("a request is longer than {MAX_LINE_BYTES} bytes");
                Answer::Last(line(&json!({ "error": error })))
            }
        }
    }

    fn take_descriptors(&self, client: &mut Client, descriptors: Vec<OwnedFd>) {
        if client.refused.is_none() {
            let room = MAX_DESCRIPTORS.saturating_sub(client.descriptors.len());
            client.descriptors.extend(descriptors.into_iter().take(room));
        }
    }
}

/// Returns a reply as a line.
fn line(reply: &Value) -> Vec<u8> {
    let mut text = reply.to_string();
    text.push('\n');
    text.into_bytes()
}

#[cfg(test)]
mod tests;
