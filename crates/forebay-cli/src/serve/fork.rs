//! `--fork`: the server continues in the background.
//!
//! The program starts itself once more, so that the server has neither threads nor rings from
//! before. The child gets one end of a pair of sockets as its standard input. It sends a byte there
//! when it serves. If it ends before that, it has printed the error, and the parent returns its
//! exit code.

use super::manners::keeps_standard_error;
use crate::failure::Failure;
use rustix::process::{getppid, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

/// Environment variable of the child: the number of its parent.
const PARENT: &str = "FOREBAY_FORKED_BY";

/// Starts the server in the background, and returns the exit code when it serves or has failed.
pub(super) fn parent() -> Result<ExitCode, Failure> {
    if std::env::var_os("LISTEN_FDS").is_some() {
        let why = "--fork: a service manager has passed sockets (LISTEN_FDS), and waits for this \
                   process: leave out --fork";
        return Err(Failure::Usage(why.to_owned()));
    }
    let failed = |error: io::Error| Failure::Run(format!("--fork: cannot start it: {error}"));
    let (mut parent, child) = UnixStream::pair().map_err(failed)?;
    let mut args = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(args.next().unwrap_or_else(|| "forebay".into())).args(args);
    command.env(PARENT, std::process::id().to_string());
    command.stdin(Stdio::from(OwnedFd::from(child)));
    let mut server = command.spawn().map_err(failed)?;
    // It has the other end of the pair.
    drop(command);
    if parent.read_exact(&mut [0]).is_ok() {
        return Ok(ExitCode::SUCCESS);
    }
    let status = server.wait().map_err(failed)?;
    match status.code() {
        Some(code @ 1..=255) => Ok(ExitCode::from(code as u8)),
        _ => Err(Failure::Run(format!("--fork: the server has ended with {status}"))),
    }
}

/// The process in the background.
#[derive(Debug)]
pub(super) struct Background {
    parent: UnixStream,
    null: File,
    keeps_standard_error: bool,
}

impl Background {
    /// Returns the process, if this one is in the background. It leaves the session of its parent.
    pub(super) fn enter() -> Result<Option<Background>, Failure> {
        let parent = getppid().map(|parent| parent.as_raw_nonzero().to_string());
        if parent.is_none() || std::env::var(PARENT).ok() != parent {
            return Ok(None);
        }
        let enter = || -> io::Result<Background> {
            // Opened before the process is confined.
            let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
            let parent = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
            dup2_stdin(&null)?;
            // It is a new process, so it leads no group.
            setsid()?;
            Ok(Background { parent, null, keeps_standard_error: keeps_standard_error() })
        };
        let entered = enter();
        entered.map(Some).map_err(|error| Failure::Run(format!("--fork: {error}")))
    }

    /// Returns whether the log is written.
    pub(super) fn has_log(&self) -> bool {
        self.keeps_standard_error
    }

    /// Reports to the parent that the server serves, and releases its terminal.
    pub(super) fn ready(mut self) {
        // The process has no other use for these, so an error has no effect.
        let _ = dup2_stdout(&self.null);
        if !self.keeps_standard_error {
            let _ = dup2_stderr(&self.null);
        }
        let _ = self.parent.write_all(&[1]);
    }
}
