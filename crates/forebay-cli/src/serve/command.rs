//! `--run`: a shell command that uses the server, which ends with it.

use crate::failure::Failure;
use forebay_serve::Address;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, channel};

/// Where clients find the first export.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) uri: String,
    pub(super) address: Option<Address>,
    pub(super) export: String,
}

/// A private directory for a socket, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    /// Creates a directory that only this user may enter.
    pub(super) fn new() -> Result<PrivateDirectory, Failure> {
        let failed = |path: &Path, error: io::Error| {
            let path = path.display();
            Failure::Run(format!("{path}: cannot create a directory for the socket: {error}"))
        };
        let mut nr = 0;
        loop {
            let name = format!("forebay-run-{}-{nr}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(PrivateDirectory(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && nr < 100 => nr += 1,
                Err(error) => return Err(failed(&path, error)),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the address of a socket in it.
    pub(super) fn address(&self) -> Address {
        Address::Unix(self.0.join("socket"))
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // The server has removed its socket.
        let _ = fs::remove_dir(&self.0);
    }
}

/// A shell command that runs.
#[derive(Debug)]
pub(super) struct Running(Child);

/// Starts the command.
pub(super) fn start(text: &str, place: &Place) -> Result<Running, Failure> {
    let mut command = Command::new("sh");
    command.args(["-c", text]).envs(variables(place));
    let child = command.spawn();
    child.map(Running).map_err(|error| Failure::Run(format!("--run: cannot start sh: {error}")))
}

/// Returns the variables of the command.
fn variables(place: &Place) -> Vec<(&'static str, String)> {
    let mut all = vec![("uri", place.uri.clone()), ("exportname", place.export.clone())];
    match &place.address {
        Some(Address::Unix(path)) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let path = path.display().to_string();
            all.push(("nbd", format!("nbd:unix:{path}")));
            all.push(("unixsocket", path));
        }
        Some(Address::Tcp { port, .. }) => {
            all.push(("nbd", format!("nbd:localhost:{port}")));
            all.push(("port", port.to_string()));
        }
        None => {}
    }
    all
}

impl Running {
    /// Starts a thread that sends a byte to `stop` when the command has ended. Returns the receiver
    /// of its exit code.
    pub(super) fn watch(self, stop: UnixStream) -> io::Result<Receiver<ExitCode>> {
        let Running(mut child) = self;
        let (sender, ended) = channel();
        let body = move || {
            let code = child.wait().map_or(1, code_of);
            let _ = sender.send(ExitCode::from(code));
            // The server has ended if this fails.
            let _ = (&stop).write_all(&[1]);
        };
        std::thread::Builder::new().name("run".to_owned()).spawn(body)?;
        Ok(ended)
    }
}

/// Returns the exit code of the program, as a shell reports that of a command.
fn code_of(status: ExitStatus) -> u8 {
    let signal = || status.signal().map_or(1, |signal| 128 + signal);
    u8::try_from(status.code().unwrap_or_else(signal)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_gets_the_address_of_the_first_export() {
        let place = |address| Place {
            uri: "nbd+unix:///x?socket=/s".to_owned(),
            address: Some(address),
            export: "x".to_owned(),
        };
        let of = |place: &Place, name: &str| {
            variables(place).into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let unix = place(Address::Unix("/s".into()));
        assert_eq!(of(&unix, "uri").as_deref(), Some("nbd+unix:///x?socket=/s"));
        assert_eq!(of(&unix, "unixsocket").as_deref(), Some("/s"));
        assert_eq!(of(&unix, "nbd").as_deref(), Some("nbd:unix:/s"));
        assert_eq!(of(&unix, "exportname").as_deref(), Some("x"));
        assert_eq!(of(&unix, "port"), None);
        let tcp = place(Address::Tcp { host: "0.0.0.0".to_owned(), port: 7 });
        assert_eq!(of(&tcp, "port").as_deref(), Some("7"));
        assert_eq!(of(&tcp, "unixsocket"), None);
    }
}
