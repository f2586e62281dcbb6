//! The socket of a process, at which `forebay top` shows its disks.

use crate::lines::{Line, Lines, reply};
use crate::own_socket::{DirectoryError, OpenError, OwnSocket};
use crate::small::{Answer, Service, SmallServer};
use crate::socket_file::StaleError;
use crate::stats::{Process, answer, disks};
use forebay::errno_of;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A socket at which the disks of this process are shown. Dropping it ends its thread, and removes
/// the socket file. A child of a fork has no such thread: it may listen at another path.
#[derive(Debug)]
pub struct Insight {
    /// Not dropped in a child of a fork: the parent has the same socket file and descriptors.
    server: Option<SmallServer>,
    path: PathBuf,
    pid: u32,
}

/// The reason why a process cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {}: {cause}", path.display())]
pub struct ListenError {
    path: PathBuf,
    cause: OpenError,
}

impl ListenError {
    /// Returns the errno that comes nearest, for programs that report it.
    pub fn errno(&self) -> i32 {
        let errno = |errno: Errno| errno.raw_os_error();
        match &self.cause {
            OpenError::Directory(DirectoryError::Open { .. }) => errno(Errno::PERM),
            OpenError::Directory(DirectoryError::Missing { .. }) => errno(Errno::NOENT),
            OpenError::Stale(StaleError::InUse) => errno(Errno::ADDRINUSE),
            OpenError::Stale(StaleError::NoSocket) => errno(Errno::EXIST),
            OpenError::Directory(DirectoryError::System(error))
            | OpenError::Stale(StaleError::System(error))
            | OpenError::System(error) => errno_of(error),
        }
    }

    /// Returns the error of the system, or the kind of error that comes nearest.
    pub fn kind(&self) -> io::ErrorKind {
        match &self.cause {
            OpenError::Directory(DirectoryError::Open { .. }) => io::ErrorKind::PermissionDenied,
            OpenError::Directory(DirectoryError::Missing { .. }) => io::ErrorKind::NotFound,
            OpenError::Stale(StaleError::InUse) => io::ErrorKind::AddrInUse,
            OpenError::Stale(StaleError::NoSocket) => io::ErrorKind::AlreadyExists,
            OpenError::Directory(DirectoryError::System(error))
            | OpenError::Stale(StaleError::System(error))
            | OpenError::System(error) => error.kind(),
        }
    }
}

impl Insight {
    /// Listens at `path`, in a directory that other users cannot enter, and starts a thread that
    /// answers `forebay top PATH`. It shows all disks of the process, also those that are opened
    /// later. The thread sleeps while no client asks.
    ///
    /// Only the user of this process and root may connect. Clients read counters and names of
    /// disks, and can change nothing.
    ///
    /// # Errors
    /// Fails if the directory is missing or open to other users, if another process listens there,
    /// or if the path exists and is not a socket. The text of the error has the remedy.
    pub fn listen(path: impl AsRef<Path>) -> Result<Insight, ListenError> {
        let path = path.as_ref();
        let failed = |cause| ListenError { path: path.to_owned(), cause };
        let socket = OwnSocket::open(path).map_err(failed)?;
        let service = Stats { process: Process::here() };
        let server = SmallServer::start(socket, service).map_err(|error| failed(error.into()))?;
        Ok(Insight { server: Some(server), path: path.to_owned(), pid: std::process::id() })
    }

    /// Returns the path of the socket, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Insight {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            std::mem::forget(self.server.take());
        }
    }
}

impl fmt::Display for Insight {
    /// Shows the command that connects to the socket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "forebay top {}", self.path.display())
    }
}

/// The service at the socket.
struct Stats {
    process: Process,
}

impl Stats {
    fn answer(&self, line: &[u8]) -> Value {
        match command(line) {
            Ok(()) => answer(&self.process, disks(&forebay::open_disks()), Vec::new()),
            Err(error) => json!({ "error": error }),
        }
    }
}

/// Checks that a request is the one that there is.
fn command(line: &[u8]) -> Result<(), String> {
    let expected = "expected {\"command\": \"stats\"}";
    let request: Value =
        serde_json::from_slice(line).map_err(|error| format!("not a line of JSON: {error}"))?;
    let Value::Object(fields) = &request else {
        return Err(format!("not a JSON object: {expected}"));
    };
    if let Some(key) = fields.keys().find(|key| *key != "command") {
        return Err(format!("there is no field {key:?}: {expected}"));
    }
    match fields.get("command") {
        Some(Value::String(command)) if command == "stats" => Ok(()),
        Some(other) => Err(format!(
            "command {other}: this process is not a server, and its socket only shows counters: \
             watch it with `forebay top`; to trace a run of `bench`, start it with --trace, and in \
             a program use `forebay::Trace`; a program that reads the counters: {expected}"
        )),
        None => Err(format!("the field \"command\" is missing: {expected}")),
    }
}

impl Service for Stats {
    const NAME: &'static str = "insight";
    const DEADLINE: Duration = Duration::from_secs(60);
    type Client = Lines;

    fn accept(&self, socket: BorrowedFd<'_>) -> Lines {
        Lines::of(socket)
    }

    fn receive(&self, client: &mut Lines, bytes: &[u8]) -> Answer {
        match client.receive(bytes, "this process") {
            Line::Partial => Answer::More,
            Line::Refused(text) => Answer::Last(text),
            Line::Whole(line) => Answer::Reply(reply(&self.answer(&line))),
        }
    }
}
