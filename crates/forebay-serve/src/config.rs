//! What a server is to do.

use crate::listen::Address;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// One disk that is served.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// The disk.
    pub spec: String,
    /// What clients call it; the empty name is what they get who ask for none.
    pub name: String,
    /// What clients are told of it.
    pub description: String,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// TLS, for a server that has it.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Whether clients must use it; otherwise each decides.
    pub is_required: bool,
    /// Where `server-cert.pem`, `server-key.pem` and `ca-cert.pem` are.
    pub certificates: PathBuf,
    /// Whether clients must have a certificate of the same authority.
    pub verify_peer: bool,
}

/// What a server is to do.
#[derive(Debug, Default)]
pub struct Options {
    /// The disks: one at least.
    pub exports: Vec<ExportOptions>,
    /// Where clients come in.
    pub listen: Vec<Address>,
    /// Sockets where they come in as well, which listen already: unix or TCP. They are neither shut
    /// down nor unlinked. There must be one of these, or an address.
    pub sockets: Vec<OwnedFd>,
    /// TLS. None: clients that ask for it are refused it.
    pub tls: Option<TlsOptions>,
    /// How much clients may ask of it.
    pub limits: Limits,
    /// Where metrics are served.
    pub metrics: Option<Address>,
    /// Where a line goes for each connection, and for what fails. It is never waited for: a line
    /// that a full pipe does not take is left out.
    pub log: Option<OwnedFd>,
}

/// What clients may ask of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once that have chosen an export; more are refused in the handshake.
    pub connections: usize,
    /// Threads that serve connections; 0 is taken for 1.
    pub threads: usize,
    /// Memory for payloads, bytes, of all connections together. Each thread needs two pieces of 4
    /// KiB per connection, larger where a disk has larger blocks, and at least 1 MiB. `None`: 64
    /// MiB, or as much as that is.
    pub memory_bytes: Option<usize>,
}

/// Requests of one connection that are under way at once; more wait in its socket. Four times as
/// many as the deepest queues that servers are measured with, so clients do not wait for it; and
/// what the server keeps for one that asks for more has a bound.
pub(crate) const MAX_IN_FLIGHT: u32 = 512;

impl Default for Limits {
    fn default() -> Limits {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Limits { connections: 100, threads, memory_bytes: None }
    }
}
