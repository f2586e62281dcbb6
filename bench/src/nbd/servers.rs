//! The servers: how each is started for a run, with its best settings.
//!
//! Each server has its usual name with those settings, and further names with other settings.
//! `--servers` selects them, so that readers can check the choice.

use super::rounds::Place;
use crate::process;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The storage behind an export.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Medium {
    /// The file, through the page cache, cached in pages of 4k.
    Cached,
    /// The same, cached in large folios.
    Folios,
    /// The file, with direct I/O.
    Direct,
    /// No storage: it measures the server itself.
    Null,
}

/// A server, with its settings.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    program: Program,
    /// Arguments for each medium, with placeholders `{file}` and `{socket}`. `None` if the server
    /// does not support the medium.
    cached: Option<&'static str>,
    direct: Option<&'static str>,
    null: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Program {
    Ours,
    Named(&'static str),
}

/// The servers measured by default. The first one is compared with the others.
pub(crate) const USUAL: [&str; 4] = ["forebay", "nbdkit", "qemu-nbd", "qsd"];

macro_rules! nbdkit {
    ($name:literal, $options:literal, $file:literal) => {
        Server {
            name: $name,
            program: Program::Named("nbdkit"),
            cached: Some(concat!("-f -U {socket} ", $options, " file {file} ", $file)),
            direct: None,
            null: Some(concat!("-f -U {socket} ", $options, " null size=8G")),
        }
    };
}

/// `qemu-nbd` opens the file without locks, because no other program uses it.
macro_rules! qemu_nbd {
    ($name:literal, $cached:literal, $direct:literal) => {
        Server {
            name: $name,
            program: Program::Named("qemu-nbd"),
            cached: Some(concat!(
                "-t -e 0 -k {socket} -f raw --cache=writeback ",
                $cached,
                " {file}"
            )),
            direct: Some(concat!("-t -e 0 -k {socket} -f raw --cache=none ", $direct, " {file}")),
            null: Some("-t -e 0 -k {socket} --image-opts driver=null-co,size=8G,read-zeroes=off"),
        }
    };
}

macro_rules! qsd {
    ($name:literal, $cached:literal, $direct:literal) => {
        Server {
            name: $name,
            program: Program::Named("qemu-storage-daemon"),
            cached: Some(qsd!("driver=file,filename={file},cache.direct=off,aio=", $cached)),
            direct: Some(qsd!("driver=file,filename={file},cache.direct=on,aio=", $direct)),
            null: Some(qsd!("driver=null-co,size=8589934592,read-zeroes=off", "")),
        }
    };
    ($node:literal, $aio:literal) => {
        concat!(
            "--blockdev ",
            $node,
            $aio,
            ",node-name=disk --nbd-server addr.type=unix,addr.path={socket},max-connections=0 \
             --export type=nbd,id=export,node-name=disk,name=,writable=on"
        )
    };
}

macro_rules! forebay {
    ($name:literal, $driver:literal, $options:literal) => {
        Server {
            name: $name,
            program: Program::Ours,
            cached: Some(concat!("serve ", $driver, "{file} --nbd unix:{socket}", $options)),
            direct: Some(concat!(
                "serve ",
                $driver,
                "{file}?direct=on --nbd unix:{socket}",
                $options
            )),
            null: Some(concat!("serve null:8G --nbd unix:{socket}", $options)),
        }
    };
}

/// All servers, ours first.
pub(crate) static ALL: &[Server] = &[
    forebay!("forebay", "", ""),
    forebay!("forebay-aio", "aio:", ""),
    forebay!("forebay-psync", "psync:", ""),
    forebay!("forebay-sleeps", "", " --poll=off"),
    nbdkit!("nbdkit", "-t 4", ""),
    nbdkit!("nbdkit-1", "-t 1", ""),
    nbdkit!("nbdkit-2", "-t 2", ""),
    nbdkit!("nbdkit-16", "-t 16", ""),
    nbdkit!("nbdkit-sequential", "-t 4", "fadvise=sequential"),
    nbdkit!("nbdkit-random", "-t 4", "fadvise=random"),
    Server {
        name: "nbdkit-memory",
        program: Program::Named("nbdkit"),
        cached: None,
        direct: None,
        null: Some("-f -U {socket} memory size=1G"),
    },
    qemu_nbd!("qemu-nbd", "--aio=io_uring", "--aio=native"),
    qemu_nbd!("qemu-nbd-threads", "--aio=threads", "--aio=threads"),
    qemu_nbd!("qemu-nbd-io_uring", "--aio=io_uring", "--aio=io_uring"),
    qsd!("qsd", "io_uring", "native"),
    qsd!("qsd-threads", "threads", "threads"),
    qsd!("qsd-io_uring", "io_uring", "io_uring"),
];

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(10);

/// A listening server. Dropping this value stops it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    folder: PathBuf,
}

impl Server {
    /// Returns whether the server supports this medium.
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
        match medium {
            Medium::Cached | Medium::Folios => self.cached,
            Medium::Direct => self.direct,
            Medium::Null => self.null,
        }
    }

    /// Starts the server, and waits until it listens.
    pub(crate) fn start(&self, place: &Place<'_>, medium: Medium) -> Result<Running> {
        let words = self.words(medium).context("it has no such thing")?;
        let program = match self.program {
            Program::Ours => place.forebay,
            Program::Named(name) => Path::new(name),
        };
        // The path of a socket has to be short.
        let folder = std::env::temp_dir().join(format!("figures-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let socket = folder.join("nbd.sock");
        let fill = |word: &str| {
            let word = word.replace("{file}", &place.file.display().to_string());
            word.replace("{socket}", &socket.display().to_string())
        };
        let log = std::fs::File::create(folder.join("log"))?;
        let child = Command::new(program)
            .args(words.split_whitespace().map(fill))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("{}: is it installed?", program.display()))?;
        let mut running = Running { child, folder };
        running.wait_until_it_listens()?;
        Ok(running)
    }
}

impl Running {
    fn wait_until_it_listens(&mut self) -> Result<()> {
        let until = Instant::now() + START;
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}: {}", log().trim());
            }
            ensure!(Instant::now() < until, "the server does not listen: {}", log().trim());
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("nbd.sock")
    }

    /// Returns the URI of the only export, the default one.
    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
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
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Server>> {
    let find = |name: &String| {
        let found = ALL.iter().find(|server| server.name == name);
        found.with_context(|| format!("no server is called {name}; see --list"))
    };
    names.iter().map(find).collect()
}
