//! The server of a guest's disk: forebay, or qemu-storage-daemon for a comparison.

use crate::common::folder;
use crate::serve::server::Server;
use crate::storage_daemon::StorageDaemon;
use std::fs::{File, read};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use tempfile::TempDir;

/// The server under test: `forebay` or `qemu-storage-daemon`. After a failure, the other one shows
/// whether the server is the reason, or QEMU and the guest are.
const VARIABLE: &str = "FOREBAY_GUEST_SERVER";

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
    StorageDaemon(StorageDaemon),
}

/// A server of one disk, which is a file in a folder of its own. Dropping this value kills the
/// server.
pub(super) struct Export {
    program: Program,
    folder: TempDir,
    nr_queues: u32,
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
        let path = folder.path().join("disk.img");
        let mut file = File::create(&path).expect("a file");
        file.set_len(disk.len_bytes).expect("room for it");
        fill(&mut file);
        drop(file);
        let program = if is_forebay() {
            Program::Forebay(Server::start(&folder, &args(disk)))
        } else {
            let writable = if disk.is_read_only { "off" } else { "on" };
            let options = format!(
                "writable={writable},num-queues={},logical-block-size={}",
                disk.nr_queues, disk.block_size
            );
            Program::StorageDaemon(
                StorageDaemon::with_options(&path, &options).expect("it is installed"),
            )
        };
        Export { program, folder, nr_queues: disk.nr_queues }
    }

    /// Ends the server, which must still be in order.
    #[track_caller]
    pub(super) fn end(self) {
        if let Program::Forebay(server) = self.program {
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
        let socket = match &self.program {
            Program::Forebay(_) => self.folder.path().join("guest.sock").display().to_string(),
            Program::StorageDaemon(daemon) => daemon.spec().replace("vhost-user:", ""),
        };
        vec![
            "-chardev".to_owned(),
            format!("socket,id={id},path={socket},reconnect=1"),
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

fn args(disk: &Disk<'_>) -> String {
    let read_only = if disk.is_read_only { " --read-only" } else { "" };
    format!(
        "disk.img --vhost-user-blk=unix:guest.sock --metrics=unix:metrics.sock --num-queues={} \
         --block-size={} --serial={}{read_only}",
        disk.nr_queues, disk.block_size, disk.serial
    )
}
