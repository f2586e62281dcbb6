//! The servers: how each is started for a run, with the settings that served it best.
//!
//! Each appears under its usual name with those settings, and again under other names with others,
//! so that anybody may see what the choice rests on (`--servers`).

use super::process;
use super::rounds::Place;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Medium {
    /// The file, through the page cache, where it is in pages of 4k.
    Cached,
    /// The same, of a file that is there in large folios.
    Folios,
    /// The file, with direct I/O.
    Direct,
    /// Nothing: it measures the server.
    Null,
}

/// A server, with its settings.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    program: Program,
    /// Words of its command for each medium: `{file}` and `{socket}` are put in. None where it has
    /// no such thing.
    cached: Option<&'static str>,
    direct: Option<&'static str>,
    null: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Program {
    Ours,
    Named(&'static str),
}

/// Those that are measured if nothing else is said. The first is compared with the others.
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

/// The file is opened without locks, since qemu is alone on it.
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
    ($name:literal, $driver:literal) => {
        Server {
            name: $name,
            program: Program::Ours,
            cached: Some(concat!("serve ", $driver, "{file} --nbd unix:{socket}")),
            direct: Some(concat!("serve ", $driver, "{file}?direct=on --nbd unix:{socket}")),
            null: Some("serve null:8G --nbd unix:{socket}"),
        }
    };
}

/// All servers, ours first.
pub(crate) static ALL: &[Server] = &[
    forebay!("forebay", ""),
    forebay!("forebay-aio", "aio:"),
    forebay!("forebay-psync", "psync:"),
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

/// A server that listens. It ends with this value.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    folder: PathBuf,
}

impl Server {
    /// Whether it has something of this kind.
    pub(crate) fn serves(&self, medium: Medium) -> bool {
        self.words(medium).is_some()
    }

    /// Whether it is built here.
    pub(crate) fn is_ours(&self) -> bool {
        self.program == Program::Ours
    }

    /// Its command, for the table.
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

    /// Starts it, and waits until it listens.
    pub(crate) fn start(&self, place: &Place<'_>, medium: Medium) -> Result<Running> {
        let words = self.words(medium).context("it has no such thing")?;
        let program = match self.program {
            Program::Ours => place.forebay,
            Program::Named(name) => Path::new(name),
        };
        // A socket's path has to be short.
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

    /// The URI of its only export, the default one.
    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    /// The processor time that it has had so far, all threads together.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.child.id())
    }

    /// Its share of memory (PSS), bytes.
    pub(crate) fn memory_bytes(&self) -> Result<u64> {
        process::memory_bytes(self.child.id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; what it had to say was said where that was noticed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The servers of these names, in this order.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Server>> {
    let find = |name: &String| {
        let found = ALL.iter().find(|server| server.name == name);
        found.with_context(|| format!("no server is called {name}; see --list"))
    };
    names.iter().map(find).collect()
}
