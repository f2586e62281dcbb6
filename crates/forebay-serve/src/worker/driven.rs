//! A worker that a test runs round by round, on its own thread.

use super::Worker;
use super::inbox::WorkerInbox;
use crate::block_status::BlockStatusThreads;
use crate::closing::Closing;
use crate::config::{ExportOptions, Limits};
use crate::device::DeviceList;
use crate::export::Export;
use crate::exports::Exports;
use crate::listen::Peer;
use crate::log::{Log, LogFormat, LogLevel};
use crate::metrics::{CountedExport, Counters};
use crate::shared::Shared;
use crate::sizes::Sizes;
use crate::traces::Traces;
use forebay::Disk;
use forebay_front::PollMode;
use forebay_front::stream::Budget;
use forebay_nbd::server::TlsPolicy;
use rustix::event::{EventfdFlags, eventfd};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// The header of a simple reply, bytes.
pub(super) const REPLY_LEN: usize = 16;

pub(super) struct Driven {
    pub(super) worker: Worker,
    inbox: Arc<WorkerInbox>,
    pub(super) disk: Disk,
}

impl Driven {
    /// Creates a worker with one export, which `change` may modify.
    pub(super) fn new(spec: &str, limits: Limits, change: impl FnOnce(&mut Export)) -> Driven {
        let options = ExportOptions { spec: spec.to_owned(), ..ExportOptions::default() };
        let (mut export, info) = Export::open(&options, None).unwrap();
        change(&mut export);
        let disk = export.disk.clone();
        let counted = CountedExport::of(&export.name, disk.clone());
        let budget = Budget::new(&limits.capacity(), export.block_bytes).unwrap();
        let log = Arc::new(Log::to(None, LogFormat::Text, LogLevel::Info));
        let shared = Arc::new(Shared {
            sizes: Sizes::new([info].into()),
            max_block: export.block_bytes,
            exports: Exports::new(vec![export]),
            tls: None,
            tls_policy: TlsPolicy::Off,
            devices: DeviceList::new(Vec::new()),
            register_memory: false,
            poll: PollMode::Off,
            limits,
            nr_workers: 1,
            budget,
            nr_open: Arc::default(),
            counters: Counters::new(vec![counted]),
            log: Arc::clone(&log),
            status: BlockStatusThreads::default(),
            traces: Traces::new(None, &log).unwrap(),
            closing: Closing::new(false).unwrap(),
        });
        let panicked = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let inbox = Arc::new(WorkerInbox::new(panicked).unwrap());
        shared.status.start(0, &shared.exports.get(0), limits.connections).unwrap();
        let epoll = Worker::epoll(&inbox).unwrap();
        let worker = Worker::new(shared, Arc::clone(&inbox), epoll);
        Driven { worker, inbox, disk }
    }

    /// Runs one round, which handles all events and waits for nothing.
    pub(super) fn round(&mut self) {
        self.worker.wait(true);
        self.worker.round();
    }

    /// Connects a client to the export, with simple replies.
    pub(super) fn connect(&mut self) -> UnixStream {
        let (mut client, there) = UnixStream::pair().unwrap();
        for socket in [&client, &there] {
            socket.set_nonblocking(true).unwrap();
        }
        self.inbox.accept(there.into(), Peer::Unix);
        // The client flags (fixed newstyle, no zeroes), and EXPORT_NAME with the default export.
        let choice = [&3_u32.to_be_bytes()[..], b"IHAVEOPT", &[0, 0, 0, 1], &[0; 4]].concat();
        client.write_all(&choice).unwrap();
        // The greeting; then size and flags.
        let mut left = 18 + 10;
        while left > 0 {
            self.round();
            left -= received(&mut client, left);
        }
        client
    }
}

/// Reads up to `max` bytes that have arrived.
fn received(client: &mut UnixStream, max: usize) -> usize {
    match client.read(&mut vec![0; max]) {
        Ok(nr) => nr,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    }
}

/// Sends a request.
pub(super) fn send(client: &mut UnixStream, command: u16, offset: u64, len: u32) {
    client.write_all(&request(command, offset, len)).unwrap();
}

/// Returns the header of a request.
pub(super) fn request(command: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(command.to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// Returns whether the whole reply to a request has arrived, with this many bytes of data.
pub(super) fn is_answered(client: &mut UnixStream, data_len: usize) -> bool {
    let nr = received(client, REPLY_LEN + data_len);
    assert!(nr == 0 || nr == REPLY_LEN + data_len, "a part of a reply: {nr} bytes");
    nr > 0
}
