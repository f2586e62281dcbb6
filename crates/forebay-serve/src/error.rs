//! Why a server cannot start.

use std::io;
use std::time::Duration;
use thiserror::Error;

/// Why a server cannot start, or ended badly.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A disk cannot be opened.
    #[error("{}", of_spec(.spec, &.source.to_string()))]
    Open {
        /// The disk.
        spec: String,
        /// Why.
        source: forebay::OpenError,
    },
    /// A disk without a size.
    #[error("{spec}: its size is not fixed; leave out capacity=growing: clients need a size")]
    Grows {
        /// The disk.
        spec: String,
    },
    /// An export that clients could not be told of.
    #[error("{spec}: it cannot be offered to clients: {why}")]
    NotOffered {
        /// The disk.
        spec: String,
        /// What about it the protocol does not allow.
        why: &'static str,
    },
    /// A disk that leaves out the end of what it is made of.
    #[error(
        "{spec}: its last {} bytes are no whole block of {}, so that clients would not see its \
         end; make it longer, or leave out direct=on if that is there",
        out_of_reach,
        block
    )]
    OutOfReach {
        /// The disk.
        spec: String,
        /// How many bytes it leaves out.
        out_of_reach: u64,
        /// Its logical block size, bytes.
        block: u32,
    },
    /// Nothing to serve.
    #[error("no disk to serve")]
    NoExport,
    /// Less memory than the connections need.
    #[error(
        "{} MiB of memory is too little: {connections} connections on {threads} threads need {} \
         MiB, so that each can always have {} KiB",
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
        /// What each connection must be able to have, bytes.
        piece: usize,
    },
    /// Two exports of one name.
    #[error("two exports are named `{0}`")]
    SameName(String),
    /// A socket cannot be listened on.
    #[error(transparent)]
    Listen(#[from] crate::listen::ListenError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] crate::tls::TlsError),
    /// Metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] crate::metrics::EndpointError),
    /// Nowhere to listen.
    #[error("no socket for clients to come in")]
    NoSocket,
    /// A thread of the server has panicked, which is a fault of the server's.
    #[error("serving: a thread of the server has panicked")]
    Panicked,
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What it was for.
        what: &'static str,
        /// How it failed.
        source: io::Error,
    },
    /// A disk does not answer any more.
    #[error("a disk has not finished what was begun, in {} s: it may be lost", .limit.as_secs())]
    Hangs {
        /// How long it was waited for.
        limit: Duration,
    },
    /// A flush at the end does not come back.
    #[error(
        "{spec}: the last flush has not come to its end, in {} s: what clients have not flushed \
         may be lost",
        .limit.as_secs()
    )]
    FlushHangs {
        /// The disk.
        spec: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// A flush at the end failed, and writes may be lost.
    #[error("{spec}: the last flush failed, and writes may be lost: {source}")]
    LastFlush {
        /// The disk.
        spec: String,
        /// How it failed.
        source: forebay::IoError,
    },
}

/// Names what the failed system call was for.
pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> ServeError {
    move |source| ServeError::System { what, source }
}

/// What is wrong with a disk, which is named once: most errors begin with the file already.
fn of_spec(spec: &str, told: &str) -> String {
    let target = spec.split_once('?').map_or(spec, |(target, _)| target);
    match target.is_empty() || told.starts_with(target) {
        true => told.to_owned(),
        false => format!("{spec}: {told}"),
    }
}
