//! A server: how it is started for a run, and what it used.

use super::Medium;
use crate::process;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A server, with its settings.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    /// Arguments for each medium that the server has, with placeholders `{file}`, `{folder}`, and
    /// `{socket}`, which is [`SOCKET`] in the folder.
    pub(crate) words: &'static [(Medium, &'static str)],
    /// The configuration file `config` in the folder, with the same placeholders.
    pub(crate) config: Option<fn(Medium) -> &'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Program {
    Ours,
    Named(&'static str),
}

/// Paths of our program and of the file to serve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paths<'a> {
    pub(crate) forebay: &'a Path,
    pub(crate) file: &'a Path,
}

/// The name of each server's socket in its folder.
const SOCKET: &str = "s";

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(10);

/// A listening server. Dropping this value stops it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    folder: PathBuf,
}

impl Server {
    /// Returns whether the server has this medium.
    pub(crate) fn serves(&self, medium: Medium) -> bool {
        self.words(medium).is_some()
    }

    /// Returns whether this server is `forebay`.
    pub(crate) fn is_ours(&self) -> bool {
        self.program == Program::Ours
    }

    /// Returns the command for the table.
    pub(crate) fn shown(&self, medium: Medium) -> Option<String> {
        let program = match self.program {
            Program::Ours => "forebay",
            Program::Named(name) => name,
        };
        let words: Vec<&str> = self.words(medium)?.split_whitespace().collect();
        Some(format!("{program} {}", words.join(" ")))
    }

    fn words(&self, medium: Medium) -> Option<&'static str> {
        // How the file is cached does not concern the server.
        let medium = if medium == Medium::Folios { Medium::Cached } else { medium };
        self.words.iter().find(|(of, _)| *of == medium).map(|(_, words)| *words)
    }

    /// Starts the server, and waits until it listens.
    pub(crate) fn start(&self, paths: Paths<'_>, medium: Medium) -> Result<Running> {
        let words = self.words(medium).context("it has no such storage")?;
        let program = match self.program {
            Program::Ours => paths.forebay,
            Program::Named(name) => Path::new(name),
        };
        // The path of a socket has to be short.
        let folder = std::env::temp_dir().join(format!("figures-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let fill = |text: &str| {
            let text = text.replace("{file}", &paths.file.display().to_string());
            let text = text.replace("{socket}", &folder.join(SOCKET).display().to_string());
            text.replace("{folder}", &folder.display().to_string())
        };
        if let Some(config) = self.config {
            std::fs::write(folder.join("config"), fill(config(medium)))?;
        }
        let log = std::fs::File::create(folder.join("log"))?;
        let child = Command::new(program)
            .args(words.split_whitespace().map(fill))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} cannot be run: is it installed?", program.display()))?;
        let mut running = Running { child, folder };
        running.wait_until_it_listens()?;
        Ok(running)
    }
}

impl Running {
    /// Waits for the socket. A device serves one client, so a connection would be in its way.
    fn wait_until_it_listens(&mut self) -> Result<()> {
        let until = Instant::now() + START;
        while !self.is_listening()? {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            if let Some(status) = self.child.try_wait()? {
                let log = log();
                bail!("it ended with {status}: {}", log.lines().next().unwrap_or_default().trim());
            }
            ensure!(Instant::now() < until, "it does not listen: {}", log().trim());
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Returns whether a process listens at the socket. Source: proc(5), `/proc/net/unix`. The
    /// fourth field has the flag of sockets that listen.
    fn is_listening(&self) -> Result<bool> {
        let path = self.socket().display().to_string();
        let sockets = std::fs::read_to_string("/proc/net/unix")?;
        let mut those = sockets.lines().filter(|line| line.ends_with(&path));
        Ok(those.any(|line| line.split_whitespace().nth(3) == Some("00010000")))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(SOCKET)
    }

    /// Returns the CPU time used so far by all threads.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.child.id())
    }

    /// Returns the server's memory (PSS), in bytes.
    pub(crate) fn memory_bytes(&self) -> Result<u64> {
        process::memory_bytes(self.child.id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The server may have exited already; `start` has then reported its messages.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the servers with these names, in this order.
pub(crate) fn chosen(all: &'static [Server], names: &[String]) -> Result<Vec<&'static Server>> {
    let find = |name: &String| {
        let found = all.iter().find(|server| server.name == name);
        found.with_context(|| format!("no server is called {name}; see --list"))
    };
    names.iter().map(find).collect()
}
