//! The servers: how each is started for a run, with its best settings.

use super::loads::Medium;
use crate::process;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A server, with its settings.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    program: Program,
    /// Arguments for each medium, with placeholders `{file}` and `{folder}`. `None` if the server
    /// does not have the medium. The socket is [`SOCKET`] in the folder.
    null: Option<&'static str>,
    direct: Option<&'static str>,
    model: Option<&'static str>,
    /// A configuration file for each medium, with the same placeholders.
    config: Option<fn(Medium) -> &'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Program {
    Ours,
    Named(&'static str),
}

/// The servers measured by default. The first one is compared with the others.
pub(crate) const USUAL: [&str; 3] = ["forebay", "qsd", "spdk"];

/// The name of each server's socket in its folder.
const SOCKET: &str = "s";

/// The name of our server's metrics socket.
const METRICS: &str = "m";

macro_rules! forebay {
    ($name:literal, $options:literal) => {
        Server {
            name: $name,
            program: Program::Ours,
            null: Some(concat!("serve null:8G", forebay!(), $options)),
            direct: Some(concat!("serve {file}?direct=on", forebay!(), $options)),
            model: Some(concat!("serve model:nvme?data=off", forebay!(), $options)),
            config: None,
        }
    };
    () => {
        " --vhost-user-blk unix:{folder}/s --num-queues 4 --metrics unix:{folder}/m"
    };
}

/// qemu-storage-daemon with the main loop or with a thread of its own, which polls for up to 32 us.
macro_rules! qsd {
    ($name:literal, $object:literal, $thread:literal, $aio:literal) => {
        Server {
            name: $name,
            program: Program::Named("qemu-storage-daemon"),
            null: Some(concat!(
                $object,
                "--blockdev driver=null-co,size=8589934592,read-zeroes=off,node-name=disk",
                qsd!(),
                $thread
            )),
            direct: Some(concat!(
                $object,
                "--blockdev driver=file,filename={file},node-name=disk,cache.direct=on,aio=",
                $aio,
                qsd!(),
                $thread
            )),
            model: None,
            config: None,
        }
    };
    () => {
        " --export type=vhost-user-blk,id=e,node-name=disk,writable=on,num-queues=4,\
         addr.type=unix,addr.path={folder}/s"
    };
}

/// All servers, ours first.
pub(crate) static ALL: &[Server] = &[
    forebay!("forebay", " --poll adaptive"),
    forebay!("forebay-sleeps", " --poll off"),
    qsd!("qsd", "--object iothread,id=t ", ",iothread=t", "io_uring"),
    qsd!("qsd-native", "--object iothread,id=t ", ",iothread=t", "native"),
    qsd!("qsd-main", "", "", "io_uring"),
    // It polls all the time. Its socket is called after the controller.
    Server {
        name: "spdk",
        program: Program::Named("spdk_tgt"),
        null: Some("-m 0x1 --no-huge -s 512 -S {folder} -c {folder}/config"),
        direct: Some("-m 0x1 --no-huge -s 512 -S {folder} -c {folder}/config"),
        model: None,
        config: Some(spdk_config),
    },
];

/// Returns the configuration of SPDK: a disk, and a controller for it.
fn spdk_config(medium: Medium) -> &'static str {
    match medium {
        Medium::Direct => {
            r#"{"subsystems":[{"subsystem":"bdev","config":[{"method":"bdev_uring_create",
            "params":{"name":"disk","filename":"{file}","block_size":512}}]},{"subsystem":
            "vhost_blk","config":[{"method":"vhost_create_blk_controller","params":
            {"ctrlr":"s","dev_name":"disk"}}]}]}"#
        }
        _ => {
            r#"{"subsystems":[{"subsystem":"bdev","config":[{"method":"bdev_null_create",
            "params":{"name":"disk","num_blocks":16777216,"block_size":512}}]},{"subsystem":
            "vhost_blk","config":[{"method":"vhost_create_blk_controller","params":
            {"ctrlr":"s","dev_name":"disk"}}]}]}"#
        }
    }
}

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

    fn words(&self, medium: Medium) -> Option<&'static str> {
        match medium {
            Medium::Null => self.null,
            Medium::Direct => self.direct,
            Medium::Model => self.model,
        }
    }

    /// Returns the command for the table.
    pub(crate) fn shown(&self, medium: Medium) -> Option<String> {
        let program = match self.program {
            Program::Ours => "forebay",
            Program::Named(name) => name,
        };
        Some(format!("{program} {}", self.words(medium)?))
    }

    /// Starts the server, and waits until it listens.
    pub(crate) fn start(&self, forebay: &Path, file: &Path, medium: Medium) -> Result<Running> {
        let words = self.words(medium).context("it has no such storage")?;
        let program = match self.program {
            Program::Ours => forebay,
            Program::Named(name) => Path::new(name),
        };
        // The path of a socket has to be short.
        let folder = std::env::temp_dir().join(format!("figures-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let fill = |text: &str| {
            let text = text.replace("{file}", &file.display().to_string());
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
            .with_context(|| format!("{} cannot be run", program.display()))?;
        let mut running = Running { child, folder };
        running.wait_until_it_listens()?;
        Ok(running)
    }
}

impl Running {
    /// Waits for the socket. A connection would be that of the one client.
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

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(SOCKET)
    }

    /// Returns the CPU time used so far by all threads.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.child.id())
    }

    /// Returns the number of reads that our server has merged into other requests. `None` for other
    /// servers.
    pub(crate) fn nr_merged(&self) -> Option<f64> {
        let mut stream = UnixStream::connect(self.folder.join(METRICS)).ok()?;
        stream.set_read_timeout(Some(START)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let lines = text.lines().filter(|line| line.starts_with("forebay_disk_reads_merged_total"));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Some(values.sum())
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
