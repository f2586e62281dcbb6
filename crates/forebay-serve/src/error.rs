//! Errors of a server.

use crate::config::Limits;
use forebay_front::stream::TooLittleMemory;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;
use thiserror::Error;

/// Error of starting or running a server.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A disk cannot be opened.
    #[error("{}", of_spec(.spec, &.source.to_string()))]
    Open {
        /// Spec of the disk.
        spec: String,
        /// The cause.
        source: forebay::OpenError,
    },
    /// The limits of an export cannot be set.
    #[error("{}", of_spec(.spec, &.source.to_string()))]
    Limits {
        /// Spec of the disk.
        spec: String,
        /// The cause.
        source: forebay::OwnerError,
    },
    /// A trace cannot be written to its directory.
    #[error("trace: {0}")]
    Trace(String),
    /// The control socket cannot be opened or served.
    #[error(transparent)]
    Control(#[from] crate::own_socket::ControlError),
    /// A read-only export whose spec makes the disk writable.
    #[error("{spec}: the export is read-only, but its key read_only is off: leave out the key")]
    Writable {
        /// Spec of the disk.
        spec: String,
    },
    /// A disk without a fixed size.
    #[error("{spec}: cannot export a disk without a fixed size: leave out capacity=growing")]
    Grows {
        /// Spec of the disk.
        spec: String,
    },
    /// An export that the protocol cannot describe.
    #[error("{spec}: cannot export this disk: {why}")]
    NotOffered {
        /// Spec of the disk.
        spec: String,
        /// The rule of the protocol that it breaks.
        why: &'static str,
    },
    /// A disk that does not include the end of its file or device.
    #[error(
        "{spec}: the last {out_of_reach} bytes are not a whole block of {block} bytes, so clients \
         would not see them: extend the file to whole blocks, or leave out direct=on"
    )]
    OutOfReach {
        /// Spec of the disk.
        spec: String,
        /// Bytes behind the last whole block.
        out_of_reach: u64,
        /// Logical block size, bytes.
        block: u32,
    },
    /// A disk whose new size cannot be served. The server continues with the former size.
    #[error("{}: {why}", target_of(.spec))]
    Resize {
        /// Spec of the disk.
        spec: String,
        /// The reason.
        why: String,
    },
    /// No export.
    #[error("no disk to serve: name at least one")]
    NoExport,
    /// Less memory than the connections need.
    #[error(
        "{} MiB of memory is too little: {connections} connections on {threads} threads need {} \
         MiB, so that each has at least {} KiB",
        .given >> 20, .needed.div_ceil(1 << 20), .piece >> 10
    )]
    Memory {
        /// The memory of the limits, bytes.
        given: usize,
        /// The least that would do, bytes.
        needed: usize,
        /// Connections of the limits.
        connections: usize,
        /// Threads of the limits.
        threads: usize,
        /// Smallest share of a connection, bytes.
        piece: usize,
    },
    /// Too few open files of a disk whose file the server may not open.
    #[error(
        "{}: the server is confined and may not open it: open the file {nr} times, and send all \
         {nr} descriptors with the request, or restart the server with --allow-path DIR, where DIR \
         contains the file",
        target_of(.spec)
    )]
    FewFiles {
        /// Spec of the disk.
        spec: String,
        /// The number that it needs.
        nr: usize,
    },
    /// An export that no client can reach.
    #[error("{spec}: this disk has no address and no device: give it one, or leave out the disk")]
    Unreachable {
        /// Spec of the disk.
        spec: String,
    },
    /// A device with options that no driver could use.
    #[error("{spec}: cannot serve this disk as vhost-user-blk: {why}")]
    Device {
        /// Spec of the disk.
        spec: String,
        /// The reason.
        why: String,
    },
    /// Two exports with the same name.
    #[error("two exports have the name `{0}`")]
    SameName(String),
    /// A socket cannot listen.
    #[error(transparent)]
    Listen(#[from] crate::listen::ListenError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] crate::tls::TlsError),
    /// Metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] crate::metrics::EndpointError),
    /// Neither an address nor a socket.
    #[error("no address to listen at: name at least one")]
    NoSocket,
    /// A thread of the server has panicked. This is a bug in the server.
    #[error("a thread of the server has panicked: this is a bug, please report it")]
    Panicked,
    /// A socket that was passed in cannot be used.
    #[error("cannot use descriptor {fd}, which was passed in as a listening socket: {source}")]
    PassedSocket {
        /// Number of the descriptor.
        fd: RawFd,
        /// The cause.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A disk does not complete its I/O.
    #[error(
        "a disk has not completed its I/O within {} s: writes in flight may be lost",
        .limit.as_secs()
    )]
    Hangs {
        /// The time limit.
        limit: Duration,
    },
    /// The last flush of a disk does not complete.
    #[error(
        "{spec}: the last flush has not completed within {} s: writes that no client has flushed \
         may be lost",
        .limit.as_secs()
    )]
    FlushHangs {
        /// Spec of the disk.
        spec: String,
        /// The time limit.
        limit: Duration,
    },
    /// The last flush of a disk failed, and writes may be lost.
    #[error("{spec}: the last flush failed, and writes may be lost: {source}")]
    LastFlush {
        /// Spec of the disk.
        spec: String,
        /// The cause.
        source: forebay::IoError,
    },
}

impl ServeError {
    /// Returns the error for limits whose memory is too little.
    pub(crate) fn of_memory(error: TooLittleMemory, limits: &Limits) -> ServeError {
        let TooLittleMemory { given, needed, piece } = error;
        let &Limits { connections, threads, .. } = limits;
        ServeError::Memory {
            given,
            needed,
            connections: connections.max(1),
            threads: threads.max(1),
            piece,
        }
    }
}

/// Returns a function that names the operation of a failed system call.
pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> ServeError {
    move |source| ServeError::System { what, source }
}

/// Returns a function that names the descriptor of a socket that was passed in.
pub(crate) fn passed_socket(fd: RawFd) -> impl Fn(io::Error) -> ServeError {
    move |source| ServeError::PassedSocket { fd, source }
}

/// Returns an error with the spec in front, unless it begins with the file already.
fn of_spec(spec: &str, error: &str) -> String {
    let target = target_of(spec);
    match target.is_empty() || error.starts_with(target) {
        true => error.to_owned(),
        false => format!("{spec}: {error}"),
    }
}

/// Returns a spec without its keys.
fn target_of(spec: &str) -> &str {
    spec.split_once('?').map_or(spec, |(target, _)| target)
}
