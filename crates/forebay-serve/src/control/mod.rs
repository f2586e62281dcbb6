//! Control socket: limits of exports, changed while the server runs.
//!
//! It is a unix socket for the user that runs the server, and for root
//! ([`own_socket`](crate::own_socket)). A peer with another user is refused (`SO_PEERCRED`).
//! Requests and replies are lines of JSON ([`request`]).

mod request;

use crate::export::Export;
use crate::small::{Answer, Service};
use request::Request;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde_json::{Value, json};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Longest line of a client, bytes.
const MAX_LINE_BYTES: usize = 16 << 10;

/// The service at the control socket.
#[derive(Debug)]
pub(crate) struct Control {
    exports: Arc<[Export]>,
}

impl Control {
    pub(crate) fn new(exports: Arc<[Export]>) -> Control {
        Control { exports }
    }

    /// Returns the reply to a line.
    fn reply(&self, line: &[u8]) -> Value {
        let reply = Request::parse(line).and_then(|request| match request {
            Request::Exports => Ok(json!({ "exports": self.all() })),
            Request::Limits { export, changes } => {
                let export = self.named(&export)?;
                changes.apply(&export.tenant)?;
                Ok(request::describe(export))
            }
        });
        reply.unwrap_or_else(|error| json!({ "error": error }))
    }

    fn all(&self) -> Vec<Value> {
        self.exports.iter().map(request::describe).collect()
    }

    fn named(&self, name: &str) -> Result<&Export, String> {
        self.exports.iter().find(|export| export.name == name).ok_or_else(|| {
            let names: Vec<_> = self.exports.iter().map(|it| format!("{:?}", it.name)).collect();
            format!("there is no export {name:?}; there are: {}", names.join(", "))
        })
    }
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Bytes received and not answered.
    received: Vec<u8>,
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
        Client { received: Vec::new(), refused: (!may_connect).then_some(uid) }
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
                Answer::Reply(line(&self.reply(&request[..len])))
            }
            None if client.received.len() <= MAX_LINE_BYTES => Answer::More,
            _ => {
                let error = format!("a request is longer than {MAX_LINE_BYTES} bytes");
                Answer::Last(line(&json!({ "error": error })))
            }
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
