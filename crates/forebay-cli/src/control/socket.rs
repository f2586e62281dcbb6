//! The control socket of a server.

use crate::failure::Failure;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most descriptors of one request.
pub(super) const MAX_DESCRIPTORS: usize = 64;

/// Sends a request with these descriptors, and returns the reply.
///
/// # Errors
/// Fails without a reply, or if the reply is an error.
pub(crate) fn ask(
    path: &Path,
    request: &Value,
    descriptors: &[BorrowedFd<'_>],
) -> Result<Value, Failure> {
    let server = Connection::open(path)?;
    server.result(server.exchange(request, descriptors)?)
}

/// A connection to a server.
pub(super) struct Connection<'a> {
    path: &'a Path,
    socket: UnixStream,
}

impl Connection<'_> {
    fn failed(&self, what: &str, why: &dyn std::fmt::Display) -> Failure {
        failed(self.path, what, why)
    }

    /// Returns the error in a reply, if it has one.
    pub(super) fn result(&self, reply: Value) -> Result<Value, Failure> {
        match reply["error"].as_str() {
            Some(error) => Err(self.failed("refused", &error)),
            None => Ok(reply),
        }
    }

    /// Sends a request with these descriptors, and returns the reply, which may be an error.
    ///
    /// # Errors
    /// Fails without a reply. The server may still carry out the request.
    pub(super) fn exchange(
        &self,
        request: &Value,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Value, Failure> {
        let mut line = String::new();
        let socket = &self.socket;
        let mut exchange = || {
            // A removal takes as long as the clients of the export do.
            let waits = request["command"] == "remove";
            socket.set_read_timeout((!waits).then_some(PATIENCE))?;
            send(socket, format!("{request}\n").as_bytes(), descriptors)?;
            BufReader::new(socket).read_line(&mut line)
        };
        const NO_REPLY: &str = "no reply from the server";
        let received = exchange().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                self.failed(NO_REPLY, &format!("it took longer than {PATIENCE:?}"))
            }
            _ => self.failed(NO_REPLY, &error),
        })?;
        if received == 0 {
            let why = "it closed the connection: check that it still runs";
            return Err(self.failed(NO_REPLY, &why));
        }
        serde_json::from_str(&line).map_err(|error| self.failed("not a control socket", &error))
    }
}

fn failed(path: &Path, what: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::Run(format!("{}: {what}: {why}", path.display()))
}

impl<'a> Connection<'a> {
    /// Connects to the control socket at this path.
    pub(super) fn open(path: &'a Path) -> Result<Connection<'a>, Failure> {
        let socket = UnixStream::connect(path).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "run this as the user of the server, or as root".to_owned()
                }
                _ if is_other_file(path) => {
                    "this path is not a socket; use the socket of serve --control or bench \
                     --insight"
                        .to_owned()
                }
                _ => format!("start the server with --control {}", path.display()),
            };
            failed(path, "cannot connect to the control socket", &format!("{error}: {remedy}"))
        })?;
        Ok(Connection { path, socket })
    }
}

/// Returns whether the path exists and is not a socket.
fn is_other_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket())
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
