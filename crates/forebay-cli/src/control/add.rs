//! `forebay ctl add`: its options, its request, and the descriptors that it passes to the server.

use super::pairs;
use super::socket::MAX_DESCRIPTORS;
use crate::completed_values::completing;
use crate::failure::Failure;
use crate::serve::devices::{DeviceShape, check_serial, shortened, socket_path};
use clap::Args;
use forebay::{Class, Priority, Spec};
use forebay_insight::socket_file::{self, SocketFile};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Options of `forebay ctl add`.
#[derive(Args, Debug)]
pub(super) struct AddArgs {
    /// Name of the export
    #[arg(value_name = "NAME")]
    name: String,
    /// The disk, as in forebay serve
    #[arg(value_name = "SPEC")]
    spec: String,
    /// Description, sent to clients
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Refuse writes, and open the disk for reading only
    #[arg(long)]
    read_only: bool,
    /// Limits, as in forebay serve: iops=500,client_bps=10m
    #[arg(long, value_name = "KEY=VALUE,...")]
    limits: Option<String>,
    /// I/O priority, as in forebay serve
    #[arg(long, value_name = "CLASS[/LEVEL]", hide_possible_values = true)]
    #[arg(value_parser = completing(str::parse::<Priority>, Class::ALL.map(Class::name)))]
    priority: Option<Priority>,
    /// Serve it as vhost-user-blk at this socket, unix:PATH, to one virtual machine at a time; also
    /// over NBD, if the server has an NBD socket
    #[arg(long, value_name = "ADDRESS", value_parser = socket_path)]
    vhost_user_blk: Option<PathBuf>,
    #[command(flatten)]
    shape: DeviceShape,
    /// Serial number of the device, at most 20 bytes [default: NAME]
    #[arg(long, value_name = "TEXT", requires = "vhost_user_blk")]
    serial: Option<String>,
    /// Let the server open the file, by its path: it must be below a directory of --allow-path
    #[arg(long)]
    by_path: bool,
}

/// Returns the request.
pub(super) fn request(add: &AddArgs) -> Result<Value, Failure> {
    let AddArgs { name, spec, description, read_only, limits, priority, .. } = add;
    let limits: Vec<_> = limits.iter().flat_map(|text| text.split(',')).collect();
    let limits: Vec<_> = limits.into_iter().filter(|it| !it.is_empty()).map(Into::into).collect();
    let mut fields = Map::new();
    for (key, value) in [
        ("command", "add".into()),
        ("export", name.as_str().into()),
        ("spec", spec.as_str().into()),
        ("read_only", (*read_only).into()),
        ("limits", pairs(&limits, "a limit is KEY=VALUE, such as iops=500")?.into()),
    ] {
        fields.insert(key.to_owned(), value);
    }
    if let Some(text) = description {
        fields.insert("description".to_owned(), text.as_str().into());
    }
    if let Some(priority) = priority {
        fields.insert("priority".to_owned(), format!("{priority:?}").into());
    }
    if add.vhost_user_blk.is_some() {
        fields.insert("vhost_user_blk".to_owned(), device(add)?.into());
    } else if let Some(option) = add.shape.option() {
        return Err(Failure::Usage(format!(
            "{option} is for virtual machines: add --vhost-user-blk unix:PATH, or leave it out"
        )));
    }
    Ok(fields.into())
}

/// Returns the options of the device.
fn device(add: &AddArgs) -> Result<Map<String, Value>, Failure> {
    let serial = add.serial.clone().unwrap_or_else(|| shortened(&add.name));
    check_serial(&serial)?;
    let mut fields = Map::new();
    for (key, number) in add.shape.numbers() {
        if let Some(number) = number {
            fields.insert(key.to_owned(), number.into());
        }
    }
    fields.insert("serial".to_owned(), serial.into());
    Ok(fields)
}

/// The descriptors that this command opens and passes to the server.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// The socket of the device, and its file, which is removed if the server refuses it.
    socket: Option<(UnixListener, SocketFile)>,
    files: Vec<File>,
}

impl Passed {
    /// Opens the file of the disk, unless the server does that, and the socket of the device.
    pub(super) fn open(add: &AddArgs) -> Result<Passed, Failure> {
        let mut files = if add.by_path { Vec::new() } else { open(add)? };
        let socket = add.vhost_user_blk.as_deref().map(listen).transpose()?;
        files.truncate(MAX_DESCRIPTORS - usize::from(socket.is_some()));
        Ok(Passed { socket, files })
    }

    /// Returns the descriptors for the request, in their order.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let socket = self.socket.iter().map(|(socket, _)| socket.as_fd());
        socket.chain(self.files.iter().map(AsFd::as_fd)).collect()
    }

    /// Leaves the file of the socket in place: the server listens there.
    pub(super) fn keep_socket(self) {
        if let Some((_, file)) = self.socket {
            file.keep();
        }
    }
}

/// Opens a socket at this path, in the place of one at which no server listens.
fn listen(path: &Path) -> Result<(UnixListener, SocketFile), Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::Run(format!("--vhost-user-blk unix:{}: cannot listen: {why}", path.display()))
    };
    // The server reports the path, and has another working directory.
    let path = std::path::absolute(path).map_err(|error| failed(&error))?;
    let socket = match UnixListener::bind(&path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            socket_file::remove(&path).map_err(|error| failed(&error))?;
            UnixListener::bind(&path)
        }
        bound => bound,
    };
    let socket = socket.map_err(|error| failed(&error))?;
    let file = SocketFile::of(&path).map_err(|error| failed(&error))?;
    Ok((socket, file))
}

/// Opens the file of a disk as often as a request may have descriptors: each thread of the server
/// needs an open file of its own, and the server closes those that are left. Empty: the disk has
/// no file, or it is below a disk of another driver, which opens the file itself.
fn open(add: &AddArgs) -> Result<Vec<File>, Failure> {
    let spec = Spec::parse(&add.spec);
    let spec = spec.map_err(|error| Failure::Usage(error.to_string()))?;
    let takes_descriptor = matches!(spec.driver(), "file" | "aio" | "psync");
    let Some(path) = spec.file().filter(|_| takes_descriptor) else {
        return Ok(Vec::new());
    };
    let read_only = add.read_only || spec.switch("read_only") == Some(true);
    let flags = if spec.switch("direct") == Some(true) { OFlags::DIRECT } else { OFlags::empty() };
    let mut options = OpenOptions::new();
    let options = options.read(true).write(!read_only).custom_flags(flags.bits() as i32);
    let failed = |error: &dyn std::fmt::Display| {
        Failure::Run(format!("{}: cannot open it: {error}", path.display()))
    };
    let kind = std::fs::metadata(&path).map_err(|error| failed(&error))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        // Opening a pipe would wait for its other end.
        return Err(failed(&"it is neither a regular file nor a block device"));
    }
    let mut files = Vec::new();
    while files.len() < MAX_DESCRIPTORS {
        match options.open(&path) {
            Ok(file) => files.push(file),
            // The server needs one at least, and the request some for its sockets.
            Err(error) if files.len() > OTHERS && is_exhausted(&error) => {
                files.truncate(files.len() - OTHERS);
                break;
            }
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(files)
}

/// Descriptors that the request needs beside those of the file: its sockets.
const OTHERS: usize = 3;

/// Returns whether this process, or the machine, can open no more files.
fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE];
    exhausted.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_opened_here() {
        let add = |spec: &str| AddArgs {
            name: "a".to_owned(),
            spec: spec.to_owned(),
            description: None,
            read_only: true,
            limits: None,
            priority: None,
            vhost_user_blk: None,
            shape: DeviceShape::default(),
            serial: None,
            by_path: false,
        };
        for spec in ["ram:1M", "null:1M", "fault:Cargo.toml"] {
            assert!(open(&add(spec)).expect("no file").is_empty(), "{spec}");
        }
        for spec in ["Cargo.toml", "psync:Cargo.toml"] {
            assert_eq!(open(&add(spec)).expect("a file").len(), MAX_DESCRIPTORS, "{spec}");
        }
        let directory = open(&add("src")).expect_err("a directory").to_string();
        assert!(directory.contains("neither a regular file nor a block device"), "{directory}");
        let missing = open(&add("nowhere.img")).expect_err("no file").to_string();
        assert!(missing.starts_with("nowhere.img: cannot open it: No such file"), "{missing}");
    }
}
