//! A small in-process NBD server: memory behind a socket, with one thread per connection.
//!
//! It is made for tests of the protocol, not for speed. It answers a batch of requests out of
//! order, and answers reads in several chunks, as the protocol allows. It declines the options that
//! it is given.

use forebay_nbd::export::{Abilities, ExportInfo};
use forebay_nbd::server::{Command, Handshake, Next, Request, TlsPolicy, Transmission};
use forebay_nbd::wire::numbers::{
    REP_ERR_UNSUP, REPLY_FLAG_DONE, REPLY_OFFSET_HOLE, STATE_HOLE, STATE_ZERO,
};
use forebay_nbd::wire::{BlockSizes, ChunkHeader, Framing, Hole, OptionHeader, OptionReplyHeader};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A server. It stops when this is dropped; a connection ends when its client disconnects.
pub(crate) struct NbdServer {
    pub(crate) socket: PathBuf,
    served: Arc<Served>,
    _folder: tempfile::TempDir,
}

/// Replaces the serving of a connection, once the export is chosen.
pub(crate) type Script =
    dyn Fn(&mut BufReader<&UnixStream>, &Transmission) -> io::Result<()> + Send + Sync;

/// State shared by all connections.
struct Served {
    export: ExportInfo,
    /// Options that the server does not support.
    declined: Vec<u32>,
    memory: Mutex<Vec<u8>>,
    is_over: AtomicBool,
    nr_connections: AtomicUsize,
    /// All commands that the server has served.
    commands: Mutex<Vec<Command>>,
    script: Option<Box<Script>>,
}

/// Returns an export of `len` bytes that supports every command.
pub(crate) fn export(len: u64) -> ExportInfo {
    let can = Abilities {
        flush: true,
        fua: true,
        trim: true,
        write_zeroes: true,
        multi_conn: true,
        ..Abilities::default()
    };
    ExportInfo {
        name: String::from("disk"),
        description: String::new(),
        size_bytes: len,
        can,
        block_size: BlockSizes { min: 512, preferred: 4096, max: 32 << 20 },
    }
}

impl NbdServer {
    /// Serves this export without support for these options.
    pub(crate) fn new(export: ExportInfo, declined: &[u32]) -> NbdServer {
        NbdServer::start(export, declined, None, usize::MAX)
    }

    /// Starts a server that runs `script` on each connection, once the export is chosen.
    pub(crate) fn scripted(
        export: ExportInfo,
        declined: &[u32],
        script: impl Fn(&mut BufReader<&UnixStream>, &Transmission) -> io::Result<()>
        + Send
        + Sync
        + 'static,
    ) -> NbdServer {
        NbdServer::start(export, declined, Some(Box::new(script)), usize::MAX)
    }

    /// Serves this export to at most `nr_connections_max` clients, and hangs up on further ones.
    pub(crate) fn limited(export: ExportInfo, nr_connections_max: usize) -> NbdServer {
        NbdServer::start(export, &[], None, nr_connections_max)
    }

    fn start(
        export: ExportInfo,
        declined: &[u32],
        script: Option<Box<Script>>,
        nr_connections_max: usize,
    ) -> NbdServer {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let socket = folder.path().join("nbd.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let served = Arc::new(Served {
            memory: Mutex::new(vec![0; export.size_bytes as usize]),
            export,
            declined: declined.to_vec(),
            is_over: AtomicBool::new(false),
            nr_connections: AtomicUsize::new(0),
            commands: Mutex::default(),
            script,
        });
        let serving = Arc::clone(&served);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.is_over.load(Ordering::Acquire) {
                    return;
                }
                let (served, stream) = (Arc::clone(&serving), stream.expect("a connection"));
                if served.nr_connections.fetch_add(1, Ordering::Relaxed) >= nr_connections_max {
                    continue;
                }
                // An error of a client that disconnects is ignored.
                std::thread::spawn(move || served.serve(&stream));
            }
        });
        NbdServer { socket, served, _folder: folder }
    }

    /// Returns the URI of the export, with no key but its socket.
    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///{}?socket={}", self.served.export.name, self.socket.display())
    }

    /// Returns how many connections there have been.
    pub(crate) fn nr_connections(&self) -> usize {
        self.served.nr_connections.load(Ordering::Relaxed)
    }

    /// Takes the commands served since the last call, oldest first.
    #[allow(dead_code, reason = "the unit tests do not need it")]
    pub(crate) fn take_commands(&self) -> Vec<Command> {
        let mut commands = self.served.commands.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *commands)
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.served.is_over.store(true, Ordering::Release);
        let _ = UnixStream::connect(&self.socket);
    }
}

impl Served {
    fn memory(&self) -> MutexGuard<'_, Vec<u8>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: &UnixStream) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(1 << 20, stream);
        let Some(transmission) = self.shake(stream, &mut reader)? else { return Ok(()) };
        if let Some(script) = &self.script {
            return script(&mut reader, &transmission);
        }
        let mut header = vec![0; transmission.header_len()];
        let mut seed = 1u64;
        let mut replies: Vec<Vec<u8>> = Vec::new();
        loop {
            reader.read_exact(&mut header)?;
            let rq =
                transmission.parse(&header).map_err(|why| io::Error::other(why.to_string()))?;
            let mut payload = vec![0; rq.payload_len as usize];
            reader.read_exact(&mut payload)?;
            if rq.command == Ok(Command::Disconnect) {
                return Ok(());
            }
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let mut reply = Vec::new();
            self.handle(&transmission, &rq, &payload, seed >> 40, &mut reply);
            let at = (seed >> 33) as usize % (replies.len() + 1);
            replies.insert(at, reply);
            // A batch ends when the buffer has no more input.
            if reader.buffer().is_empty() {
                (&*stream).write_all(&replies.concat())?;
                replies.clear();
            }
        }
    }

    fn shake(
        &self,
        mut stream: &UnixStream,
        reader: &mut BufReader<&UnixStream>,
    ) -> io::Result<Option<Transmission>> {
        let mut out = Vec::new();
        let mut half = Handshake::new(TlsPolicy::Off, &mut out);
        stream.write_all(&out)?;
        let exports = [self.export.clone()];
        let mut flags = [0; 4];
        reader.read_exact(&mut flags)?;
        half.feed(&exports, &flags, &mut out);
        loop {
            out.clear();
            let input = reader.fill_buf()?;
            if input.is_empty() {
                return Ok(None);
            }
            // The client sends one option at a time.
            let len = input.len();
            let declined =
                OptionHeader::parse(input).filter(|header| self.declined.contains(&header.option));
            if let Some(header) = declined {
                OptionReplyHeader::emit_with(header.option, REP_ERR_UNSUP, b"no", &mut out);
                reader.consume(len);
                stream.write_all(&out)?;
                continue;
            }
            let fed = half.feed(&exports, input, &mut out);
            reader.consume(fed.consumed);
            stream.write_all(&out)?;
            match fed.next {
                Next::More => {}
                Next::Transmission(transmission) => return Ok(Some(transmission)),
                Next::StartTls | Next::Close(_) => return Ok(None),
            }
        }
    }

    fn handle(
        &self,
        transmission: &Transmission,
        rq: &Request,
        payload: &[u8],
        seed: u64,
        out: &mut Vec<u8>,
    ) {
        let range = rq.offset as usize..(rq.offset + rq.len) as usize;
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).extend(rq.command);
        match rq.command {
            Err(refused) => return transmission.error(rq, refused.error, refused.message, out),
            Ok(Command::Read { .. }) => return self.read(transmission, rq, seed, out),
            Ok(Command::BlockStatus { .. }) => {
                let memory = self.memory();
                let extents: Vec<(u64, u32)> = memory[range]
                    .chunks(4096)
                    .map(|page| {
                        let is_zero = page.iter().all(|&byte| byte == 0);
                        (page.len() as u64, if is_zero { STATE_HOLE | STATE_ZERO } else { 0 })
                    })
                    .collect();
                return transmission.extents(rq, &extents, out);
            }
            Ok(Command::Write { .. }) => self.memory()[range].copy_from_slice(payload),
            Ok(Command::Trim { .. } | Command::WriteZeroes { .. }) => self.memory()[range].fill(0),
            Ok(Command::Flush | Command::Cache | Command::Disconnect) => {}
        }
        out.extend(transmission.done(rq).as_slice());
    }

    /// Answers a read in up to three chunks. Chunks of zeroes are sent as holes, if the framing
    /// can.
    fn read(&self, transmission: &Transmission, rq: &Request, seed: u64, out: &mut Vec<u8>) {
        let memory = self.memory();
        let is_whole = !transmission.can_fail_late() || seed.is_multiple_of(3) || rq.len < 3;
        let (cut, other) = (1 + seed % (rq.len - 1).max(1), rq.len / 2);
        let mut cuts = if is_whole {
            vec![0, rq.len]
        } else {
            vec![0, cut.min(other), cut.max(other), rq.len]
        };
        cuts.dedup();
        let mut pieces: Vec<(u64, u64)> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
        if seed.is_multiple_of(2) && !is_whole {
            pieces.reverse();
        }
        let nr = pieces.len();
        for (nth, (from, to)) in pieces.into_iter().enumerate() {
            let (at, len, is_last) = (rq.offset + from, (to - from) as u32, nth + 1 == nr);
            let bytes = &memory[at as usize..(rq.offset + to) as usize];
            if bytes.iter().all(|&byte| byte == 0) && !is_whole {
                put_hole(transmission.framing(), rq, at, len, is_last, out);
                continue;
            }
            out.extend(transmission.data(rq, at, len, nth == 0, is_last).as_slice());
            out.extend(bytes);
        }
    }
}

/// Sends a hole instead of zero bytes. Simple replies have no holes.
pub(crate) fn put_hole(
    framing: Framing,
    rq: &Request,
    at: u64,
    len: u32,
    is_last: bool,
    out: &mut Vec<u8>,
) {
    let (flags, kind) = (if is_last { REPLY_FLAG_DONE } else { 0 }, REPLY_OFFSET_HOLE);
    let Request { cookie, offset, .. } = *rq;
    ChunkHeader { flags, kind, cookie, offset, len: Hole::LEN }.emit(framing, out);
    Hole { offset: at, len }.emit(out);
}
