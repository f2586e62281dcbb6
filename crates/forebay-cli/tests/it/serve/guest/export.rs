//! The server of a guest's disk: forebay, or qemu-storage-daemon for a comparison.

use crate::common::folder;
use crate::serve::server::Server;
use crate::storage_daemon::StorageDaemon;
use std::fs::{File, read, remove_file};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use tempfile::TempDir;

/// The server under test: `forebay` or `qemu-storage-daemon`. After a failure, the other one shows
/// whether the server is the reason, or QEMU and the guest are.
const VARIABLE: &str = "FOREBAY_GUEST_SERVER";

/// The name of the disk's socket in its folder.
const SOCKET: &str = "guest.sock";

/// Properties of a disk.
#[derive(Clone, Copy)]
pub(super) struct Disk<'a> {
    pub(super) len_bytes: u64,
    pub(super) nr_queues: u32,
    pub(super) block_size: u32,
    pub(super) is_read_only: bool,
    /// The serial number. The other server has no such option.
    pub(super) serial: &'a str,
}

impl Default for Disk<'_> {
    fn default() -> Self {
        Disk {
            len_bytes: 64 << 20,
            nr_queues: 4,
            block_size: 512,
            is_read_only: false,
            serial: "forebay",
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
    pub(super) fn restart(&mut self) {
        self.program = None;
        self.program = Some(start(&self.folder, &self.args));
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

    /// Returns QEMU's arguments for this disk, with these properties of the device besides.
    pub(super) fn device(&self, id: &str, properties: &str) -> Vec<String> {
        let socket = self.folder.path().join(SOCKET);
        vec![
            "-chardev".to_owned(),
            format!("socket,id={id},path={},reconnect=1", socket.display()),
            "-device".to_owned(),
            format!("vhost-user-blk-pci,chardev={id},num-queues={}{properties}", self.nr_queues),
        ]
    }

    /// Returns the sum of a counter over its labels.
    pub(super) fn counter(&self, name: &str) -> u64 {
        let socket = self.folder.path().join("metrics.sock");
        let mut stream = UnixStream::connect(socket).expect("the server's metrics");
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
    std::env::var_os(VARIABLE).is_some_and(|value| value == "forebay")
}

/// Starts the program that the variable names.
#[track_caller]
fn start(folder: &TempDir, args: &str) -> Program {
    if is_forebay() {
        return Program::Forebay(Server::start(folder, args));
    }
    let daemon = StorageDaemon::with_options(&folder.path().join("disk.img"), args);
    let daemon = daemon.expect("it is installed");
    let at = folder.path().join(SOCKET);
    let _ = remove_file(&at);
    symlink(daemon.spec().replace("vhost-user:", ""), at).expect("a link to its socket");
    Program::StorageDaemon(daemon)
}

fn args(disk: &Disk<'_>) -> String {
    let read_only = if disk.is_read_only { " --read-only" } else { "" };
    format!(
        "disk.img --vhost-user-blk=unix:{SOCKET} --metrics=unix:metrics.sock --num-queues={} \
         --block-size={} --serial={}{read_only}",
        disk.nr_queues, disk.block_size, disk.serial
    )
}

fn daemon_options(disk: &Disk<'_>) -> String {
    let writable = if disk.is_read_only { "off" } else { "on" };
    format!(
        "writable={writable},num-queues={},logical-block-size={}",
        disk.nr_queues, disk.block_size
    )
}
