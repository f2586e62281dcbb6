//! Options of a server.

use crate::export_limits::ExportLimits;
use crate::listen::Address;
use crate::log::{LogFormat, LogLevel};
use forebay::{Disk, Priority};
use forebay_front::PollMode;
use forebay_front::stream::Capacity;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// An export: one disk that is served.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Device spec of the disk, such as `disk.img?direct=on`.
    pub spec: String,
    /// An open disk, which is exported in the place of the one that `spec` names: a disk on a
    /// [`Backend`](forebay::Backend), for example. Its limits and settings stay as they are. It
    /// needs a fixed size. Errors and reports use `spec`, or the disk's own if that is empty.
    pub disk: Option<Disk>,
    /// The spec as its user wrote it, which errors name. `None`: as `spec`. For programs that add
    /// keys of their own.
    pub written: Option<String>,
    /// Name that clients ask for. A client that asks for none gets the export with the empty name.
    pub name: String,
    /// Description that is sent to clients.
    pub description: String,
    /// Whether the disk is opened read-only and writes are refused.
    pub read_only: bool,
    /// The limits on I/O of all clients of the export together, and of each.
    pub limits: ExportLimits,
    /// The priority of their I/O. Only `mq-deadline` and `bfq` order by its class.
    pub priority: Priority,
}

impl ExportOptions {
    /// Returns the spec for errors.
    pub(crate) fn written(&self) -> String {
        match &self.disk {
            Some(disk) if self.spec.is_empty() => disk.info().spec.clone(),
            _ => self.written.as_ref().unwrap_or(&self.spec).clone(),
        }
    }
}

/// TLS options.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Whether clients must use TLS. If not, each client may choose.
    pub is_required: bool,
    /// Directory with `server-cert.pem`, `server-key.pem` and `ca-cert.pem`.
    pub certificates: PathBuf,
    /// Whether clients must have a certificate that `ca-cert.pem` has signed.
    pub verify_peer: bool,
}

/// Socket at which a device listens.
#[derive(Debug)]
pub enum DeviceSocket {
    /// A path. The server creates the socket there, and removes it at its end.
    Path(PathBuf),
    /// A unix socket that listens already.
    Passed(OwnedFd),
}

/// A device for one virtual machine at a time: an export that is served as vhost-user-blk.
#[derive(Debug)]
pub struct DeviceOptions {
    /// Index of the export.
    pub export: usize,
    /// Socket of the device.
    pub socket: DeviceSocket,
    /// Number of request queues, 1 to [`DeviceOptions::MAX_QUEUES`]. Each has a thread.
    pub nr_queues: u16,
    /// Largest queue, in descriptors: a power of two, [`DeviceOptions::MIN_QUEUE_SIZE`] to
    /// [`DeviceOptions::MAX_QUEUE_SIZE`].
    pub queue_size: u16,
    /// Block size that the virtual machine sees, bytes: a power of two, 512 to
    /// [`DeviceOptions::MAX_BLOCK`], and not smaller than that of the disk. `None`: that of the
    /// disk.
    pub block_size: Option<u32>,
    /// Serial number, at most [`DeviceOptions::MAX_SERIAL`] bytes.
    pub serial: String,
}

impl DeviceOptions {
    /// Most request queues.
    pub const MAX_QUEUES: u16 = forebay_vhost_user::MAX_QUEUES;
    /// Smallest limit of the queue size.
    pub const MIN_QUEUE_SIZE: u16 = forebay_vhost_user::MIN_QUEUE_SIZE;
    /// Largest limit of the queue size.
    pub const MAX_QUEUE_SIZE: u16 = forebay_vhost_user::MAX_QUEUE_SIZE;
    /// Largest block, bytes.
    pub const MAX_BLOCK: u32 = 4096;
    /// Length of the longest serial number, bytes.
    pub const MAX_SERIAL: usize = forebay_front::blk::ID_LEN;
}

/// Options of a server.
#[derive(Debug, Default)]
pub struct Options {
    /// The exports: at least one.
    pub exports: Vec<ExportOptions>,
    /// Addresses to listen at.
    pub listen: Vec<Address>,
    /// Further sockets, unix or TCP, that listen already. The server neither shuts them down nor
    /// unlinks them. It needs one of these, an address, or a device for each export.
    pub sockets: Vec<OwnedFd>,
    /// Devices for virtual machines. An export may have several.
    pub devices: Vec<DeviceOptions>,
    /// Whether devices register the memory of their virtual machines with io_uring. Their disks
    /// must be able to ([`Disk::can_register_memory`]). I/O in memory that the kernel refuses
    /// continues without registration, and the log has a line.
    ///
    /// [`Disk::can_register_memory`]: forebay::Disk::can_register_memory
    pub register_memory: bool,
    /// TLS. `None`: the server refuses TLS to clients that ask for it.
    pub tls: Option<TlsOptions>,
    /// Limits on what clients may use.
    pub limits: Limits,
    /// Whether a thread polls before it sleeps.
    pub poll: PollMode,
    /// Address where metrics are served.
    pub metrics: Option<Address>,
    /// Path of a control socket, in a directory that only the user of this process may enter.
    /// Clients manage the server there.
    pub control: Option<PathBuf>,
    /// Whether the server ends when its last client has left, after at least one has chosen an
    /// export.
    pub exit_last: bool,
    /// Directories whose files may be added as exports while the server runs, by their paths. They
    /// are added to [`Needs::writable`](crate::Needs::writable).
    pub allowed: Vec<PathBuf>,
    /// Directory for traces of all exports, each in a directory with a number. A trace begins with
    /// the server; later ones begin by requests at the control socket. Created if it does not
    /// exist, and added to [`Needs::created`](crate::Needs::created).
    pub trace: Option<PathBuf>,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Lowest severity of the log lines that are written.
    pub log_level: LogLevel,
    /// Descriptor for log lines: one per connection, and one per failure. Writes never block: a
    /// line that a full pipe does not take is dropped.
    pub log: Option<OwnedFd>,
}

/// Limits on what clients may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections that have chosen an export. Others are refused in the
    /// handshake.
    pub connections: usize,
    /// Threads that serve connections; 0 counts as 1.
    pub threads: usize,
    /// Memory for payloads, bytes, of all connections together. Each thread needs two pieces of 4
    /// KiB per connection, larger where a disk has larger blocks, and at least 1 MiB. `None`: 64
    /// MiB, or as much as that is.
    pub memory_bytes: Option<usize>,
}

impl Limits {
    /// Returns the limits in the front's form.
    pub(crate) fn capacity(&self) -> Capacity {
        let &Limits { connections, threads, memory_bytes } = self;
        Capacity { connections, threads, memory_bytes }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Limits { connections: 100, threads, memory_bytes: None }
    }
}
