//! The control socket of a server.

use crate::failure::Failure;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most descriptors of one request.
pub(super) const MAX_DESCRIPTORS: usize = 64;

/// Sends a request with these descriptors, and returns the reply.
pub(crate) fn ask(
    path: &Path,
    request: &Value,
    descriptors: &[BorrowedFd<'_>],
) -> Result<Value, Failure> {
    let failed = |what: &str, why: &dyn std::fmt::Display| {
        Failure::Run(format!("{}: {what}: {why}", path.display()))
    };
    let socket = UnixStream::connect(path).map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "run this as the user of the server, or as root".to_owned()
            }
            _ => format!("start the server with --control {}", path.display()),
        };
        failed("cannot connect to the control socket", &format!("{error}: {remedy}"))
    })?;
    let mut line = String::new();
    let mut exchange = || {
        // A removal takes as long as the clients of the export do.
        let waits = request["command"] == "remove";
        socket.set_read_timeout((!waits).then_some(PATIENCE))?;
        send(&socket, format!("{request}\n").as_bytes(), descriptors)?;
        BufReader::new(&socket).read_line(&mut line)
    };
    let received = exchange().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            failed("no reply from the server", &format!("it took longer than {PATIENCE:?}"))
        }
        _ => failed("no reply from the server", &error),
    })?;
    if received == 0 {
        let why = "it closed the connection: check that it still runs";
        return Err(failed("no reply from the server", &why));
    }
    let reply: Value =
        serde_json::from_str(&line).map_err(|error| failed("not a control socket", &error))?;
    match reply["error"].as_str() {
        Some(error) => Err(failed("refused", &error)),
        None => Ok(reply),
    }
}

/// Sends a line, and descriptors with its first byte.
fn send(mut socket: &UnixStream, line: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut sent = 0;
    if !descriptors.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "so many fit");
        sent = sendmsg(socket, &[IoSlice::new(line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    }
    socket.write_all(&line[sent..])
}
