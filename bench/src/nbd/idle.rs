//! Idle connections: a minimal client that opens a connection and reads once.
//!
//! Constants and layouts follow the NBD protocol specification, `doc/proto.md` of its reference
//! implementation: fixed newstyle negotiation, `NBD_OPT_GO`, and one simple read.

use super::Sample;
use crate::servers::Running;
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const GREETING: &[u8; 16] = b"NBDMAGICIHAVEOPT";
/// Client flags: fixed newstyle, no zeroes.
const CLIENT_FLAGS: [u8; 4] = 3_u32.to_be_bytes();
const OPT_GO: u32 = 7;
const REP_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REP_ACK: u32 = 1;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

/// Bytes that each connection reads before it idles: the size of a large I/O, so that the server
/// has allocated any buffers that it keeps for one.
const READ_BYTES: u32 = 128 << 10;

/// Measures the server's memory with `nr` connections, in MiB.
pub(crate) fn measure(server: &Running, nr: usize) -> Result<Sample> {
    let connections: Vec<UnixStream> =
        (0..nr).map(|_| connect(&server.socket())).collect::<Result<_>>()?;
    let memory = server.memory_bytes()?;
    drop(connections);
    let nothing = f64::NAN;
    Ok(Sample {
        value: memory as f64 / f64::from(1 << 20),
        p50_us: nothing,
        p99_us: nothing,
        server_us: nothing,
        client_us: nothing,
        client_busy: nothing,
    })
}

/// Connects to the default export and reads once.
fn connect(socket: &Path) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).context("no greeting")?;
    ensure!(greeting.starts_with(GREETING), "the server does not speak newstyle NBD");
    let mut go = CLIENT_FLAGS.to_vec();
    go.extend_from_slice(b"IHAVEOPT");
    go.extend_from_slice(&OPT_GO.to_be_bytes());
    go.extend_from_slice(&6_u32.to_be_bytes());
    // An empty name selects the default export. The client sends no information requests.
    go.extend_from_slice(&[0; 6]);
    stream.write_all(&go)?;
    while !is_acknowledged(&mut stream)? {}
    let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
    // Flags, command (read), cookie and offset are 0.
    request.extend_from_slice(&[0; 20]);
    request.extend_from_slice(&READ_BYTES.to_be_bytes());
    stream.write_all(&request)?;
    let mut reply = vec![0; 16 + READ_BYTES as usize];
    stream.read_exact(&mut reply).context("no reply to a read")?;
    ensure!(number(&reply[..4]) == u64::from(REPLY_MAGIC), "not a simple reply");
    ensure!(number(&reply[4..8]) == 0, "a read failed");
    Ok(stream)
}

/// Receives one reply to the option. Returns whether it was the last one.
fn is_acknowledged(stream: &mut UnixStream) -> Result<bool> {
    let mut head = [0; 20];
    stream.read_exact(&mut head).context("no reply to an option")?;
    ensure!(number(&head[..8]) == REP_MAGIC, "not a reply to an option");
    let kind = number(&head[12..16]);
    ensure!(kind < 1 << 31, "the export is refused: {kind:#x}");
    let mut rest = vec![0; number(&head[16..]) as usize];
    stream.read_exact(&mut rest)?;
    Ok(kind == u64::from(REP_ACK))
}

/// Decodes a big-endian number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}
