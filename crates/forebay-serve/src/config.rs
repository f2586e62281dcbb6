//! What a server is to do.

use crate::listen::Address;
use forebay_nbd::server::TlsPolicy;
use std::path::PathBuf;

/// One disk that is served.
#[derive(Clone, Debug)]
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

/// TLS: whether, and with which certificates.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// Whether clients may, or must, use it.
    pub policy: TlsPolicy,
    /// Where `server-cert.pem`, `server-key.pem` and `ca-cert.pem` are.
    pub certificates: Option<PathBuf>,
    /// Whether clients must have a certificate of the same authority.
    pub verify_peer: bool,
}

/// What a server is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The disks.
    pub exports: Vec<ExportOptions>,
    /// Where clients come in. None, and no socket from the system's manager: `unix:./forebay.sock`.
    pub listen: Vec<Address>,
    /// TLS.
    pub tls: TlsOptions,
    /// How much clients may ask of it.
    pub limits: Limits,
    /// Where metrics are served.
    pub metrics: Option<String>,
}

/// What clients may ask of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once that have chosen an export; more are closed as they come.
    pub connections: usize,
    /// Connections at once that have not chosen an export; where there are more, the oldest is
    /// closed.
    pub half_open: usize,
    /// Threads that serve connections.
    pub threads: usize,
    /// Requests of one connection that are under way at once; more wait in its socket.
    pub in_flight: u32,
    /// Memory for payloads, bytes, of all connections together.
    pub memory_bytes: usize,
    /// How long a client may take to choose an export, ns.
    pub handshake_ns: u64,
    /// How long a connection that ends may take to send its last replies, ns.
    pub drain_ns: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Limits {
            connections: 100,
            half_open: 100,
            threads,
            in_flight: 512,
            memory_bytes: 64 << 20,
            handshake_ns: 10_000_000_000,
            drain_ns: 5_000_000_000,
        }
    }
}
