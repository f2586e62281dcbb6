//! The server of a guest's disk: forebay, or qemu-storage-daemon for a comparison.

use crate::common::folder;
use crate::serve::server::Server;
use crate::storage_daemon::StorageDaemon;
use std::fs::{File, read, remove_file};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take to serve its metrics, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Set to `qemu-storage-daemon`, the tests run against that server. After a failure, this shows
/// whether the server is the reason, or QEMU and the guest are.
const VARIABLE: &str = "FOREBAY_GUEST_SERVER";

/// The name of the disk's socket in its folder.
const SOCKET: &str = "guest.sock";

/// Properties of a disk.
#[derive(Clone, Copy)]
pub(super) struct Disk<'a> {
    pub(super) len_bytes: u64,
    pub(super) nr_queues: u32,
    /// `None` leaves it to the server.
    pub(super) block_size: Option<u32>,
    pub(super) is_read_only: bool,
    /// The serial number. The other server has no such option.
    pub(super) serial: &'a str,
    /// Keys of the driver `fault`, if any. The other server has no such driver.
    pub(super) faults: &'a str,
}

impl Default for Disk<'_> {
    fn default() -> Self {
        Disk {
            len_bytes: 64 << 20,
            nr_queues: 4,
            block_size: None,
            is_read_only: false,
            serial: "forebay",
            faults: "",
        }
    }
}

enum Program {
    Forebay(Server),
    StorageDaemon(#[expect(dead_code, reason = "its drop kills it")] StorageDaemon),
}

/// A server of one disk, which is a file in a folder of its own. Dropping this value kills the
/// server.
pub(super) struct Export {
    /// `None` only between two programs.
    program: Option<Program>,
    folder: TempDir,
    nr_queues: u32,
    args: String,
}

impl Export {
    /// Creates a file without data, and starts a server that exports it.
    #[track_caller]
    pub(super) fn start(disk: &Disk<'_>) -> Export {
        Export::of_file(disk, |_| {})
    }

    /// Does the same with a file that `fill` has filled.
    #[track_caller]
    pub(super) fn of_file(disk: &Disk<'_>, fill: impl FnOnce(&mut File)) -> Export {
        let folder = folder();
        let mut file = File::create(folder.path().join("disk.img")).expect("a file");
        file.set_len(disk.len_bytes).expect("room for it");
        fill(&mut file);
        let args = if is_forebay() { args(disk) } else { daemon_options(disk) };
        let program = Some(start(&folder, &args));
        Export { program, folder, nr_queues: disk.nr_queues, args }
    }

    /// Kills the server, whatever it is doing, and starts it again on the same socket.
    #[track_caller]
    pub(super) fn kill_and_restart(&mut self) {
        self.program = None;
        self.program = Some(start(&self.folder, &self.args));
    }

    /// Ends the server in order, and starts it again on the same socket.
    #[track_caller]
    pub(super) fn restart(&mut self) {
        if let Some(Program::Forebay(server)) = self.program.take() {
            let status = server.terminate();
            assert!(status.success(), "{status}");
        }
        self.program = Some(start(&self.folder, &self.args));
    }

    /// Changes the length of the disk's file.
    #[track_caller]
    pub(super) fn set_len(&self, len_bytes: u64) {
        let file = File::options().write(true).open(self.file()).expect("the file of the disk");
        file.set_len(len_bytes).expect("room for it");
    }

    /// Returns our server. The other one has no reload.
    #[track_caller]
    pub(super) fn server(&self) -> &Server {
        match &self.program {
            Some(Program::Forebay(server)) => server,
            _ => panic!("not our server"),
        }
    }

    /// Ends the server, which must still be in order.
    #[track_caller]
    pub(super) fn end(self) {
        if let Some(Program::Forebay(server)) = self.program {
            let status = server.terminate();
            assert!(status.success(), "{status}");
        }
    }

    /// Returns the path of the disk's file.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }

    /// Returns the folder of the disk's file.
    pub(super) fn folder(&self) -> &TempDir {
        &self.folder
    }

    /// Returns the contents of the disk's file.
    pub(super) fn contents(&self) -> Vec<u8> {
        read(self.file()).expect("the file of the disk")
    }

    /// Returns how many bytes of the file have blocks of the file system.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.file().metadata().expect("the file of the disk").blocks() * 512
    }

    /// Returns the path of the disk's socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    /// Returns the log of the server.
    pub(super) fn log(&self) -> String {
        match &self.program {
            Some(Program::Forebay(server)) => server.log(),
            _ => String::new(),
        }
    }

    /// Returns QEMU's arguments for this disk, with these properties of the device besides.
    pub(super) fn device(&self, id: &str, properties: &str) -> Vec<String> {
        self.device_at(&self.socket(), id, properties)
    }

    /// Does the same for a proxy of this disk at another socket.
    pub(super) fn device_at(&self, socket: &Path, id: &str, properties: &str) -> Vec<String> {
        vec![
            "-chardev".to_owned(),
            format!("socket,id={id},path={},reconnect=1", socket.display()),
            "-device".to_owned(),
            format!("vhost-user-blk-pci,chardev={id},num-queues={}{properties}", self.nr_queues),
        ]
    }

    /// Waits until the server has completed so many more requests, and calls `check` meanwhile.
    /// The other server has no counters: it gets some time for them.
    #[track_caller]
    pub(super) fn await_requests(&self, nr: u64, mut check: impl FnMut()) {
        if !is_forebay() {
            return sleep(Duration::from_millis(nr));
        }
        let names = ["forebay_disk_reads_completed_total", "forebay_disk_writes_completed_total"];
        let done = || names.iter().map(|name| self.counter(name)).sum::<u64>();
        let end = done() + nr;
        while done() < end {
            check();
            sleep(Duration::from_millis(5));
        }
    }

    /// Returns the sum of a counter over its labels.
    pub(super) fn counter(&self, name: &str) -> u64 {
        let socket = self.folder.path().join("metrics.sock");
        // A server that was just started listens for clients first, and for this afterwards.
        let start = Instant::now();
        let mut stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) => assert!(start.elapsed() < PATIENCE, "the server's metrics: {error}"),
            }
            sleep(Duration::from_millis(5));
        };
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        let value = |line: &str| {
            let rest = line.strip_prefix(name)?;
            let is_it = rest.starts_with('{') || rest.starts_with(' ');
            is_it.then(|| rest.rsplit(' ').next()?.parse::<u64>().ok()).flatten()
        };
        assert!(text.contains(name), "no {name}: {text}");
        text.lines().filter_map(value).sum()
    }
}

/// Returns whether the server under test is forebay.
pub(super) fn is_forebay() -> bool {
    std::env::var_os(VARIABLE).is_none_or(|value| value != "qemu-storage-daemon")
}

/// Starts the program that the variable names.
#[track_caller]
fn start(folder: &TempDir, args: &str) -> Program {
    if is_forebay() {
        return Program::Forebay(Server::start_without_terminal(folder, args));
    }
    let daemon = StorageDaemon::with_options(&folder.path().join("disk.img"), args);
    let daemon = daemon.expect("it is installed");
    let at = folder.path().join(SOCKET);
    let _ = remove_file(&at);
    symlink(daemon.spec().replace("vhost-user:", ""), at).expect("a link to its socket");
    Program::StorageDaemon(daemon)
}

fn args(disk: &Disk<'_>) -> String {
    let spec = match disk.faults {
        "" => "disk.img".to_owned(),
        faults => format!("fault:disk.img?{faults}"),
    };
    let read_only = if disk.is_read_only { " --read-only" } else { "" };
    let block_size = disk.block_size.map_or(String::new(), |size| format!(" --block-size={size}"));
    format!(
        "{spec} --vhost-user-blk=unix:{SOCKET} --metrics=unix:metrics.sock --num-queues={} \
         --serial={}{read_only}{block_size}",
        disk.nr_queues, disk.serial
    )
}

fn daemon_options(disk: &Disk<'_>) -> String {
    let writable = if disk.is_read_only { "off" } else { "on" };
    let block_size = disk.block_size.unwrap_or(512);
    let nr_queues = disk.nr_queues;
    format!("writable={writable},num-queues={nr_queues},logical-block-size={block_size}")
}
