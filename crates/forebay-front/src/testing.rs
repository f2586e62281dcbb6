//! A front that a test drives round by round: clients in memory, and a disk that completes each I/O
//! when it is submitted.

use crate::front::Readiness;
use crate::host::{Closed, Failed, Host, Interest, Io, Parts, Peer};
use crate::kinds::{RequestKind, Stage};
use crate::nbd::{
    ExportFacts, MAX_IN_FLIGHT, NbdFront, NbdHost, Opened, Settings, StatusQuery, Stream,
};
use crate::slots::Key;
use crate::stream::{Budget, Capacity};
use forebay_core::{BlockStatus, Op, SubmitErrorKind};
use forebay_nbd::export::{Abilities, ExportInfo};
use forebay_nbd::server::TlsPolicy;
use forebay_nbd::wire::BlockSizes;
use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;

/// The header of a simple reply, bytes.
pub(crate) const REPLY_LEN: usize = 16;
/// Bytes that a client's stream takes before the client reads them, as a socket does.
const STREAM_MAX: usize = 200 << 10;
/// Size of the disk, bytes.
const DISK_LEN: usize = 8 << 20;
const BLOCK: u32 = 512;

/// Both directions of a client's stream.
#[derive(Debug, Default)]
struct Streams {
    up: VecDeque<u8>,
    down: VecDeque<u8>,
    has_gone: bool,
}

/// The server's end of a client's stream.
#[derive(Debug)]
pub(crate) struct TestPeer(Rc<RefCell<Streams>>);

impl Peer for TestPeer {
    fn begin(&mut self, _kind: RequestKind) {}
    fn end(&mut self, _kind: RequestKind, _bytes: u64) {}
    fn fail(&mut self) {}
    fn set_export(&mut self, _export: usize) {}
    fn say_goodbye(&mut self) {}
}

impl Stream for TestPeer {
    fn receive(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut streams = self.0.borrow_mut();
        if streams.up.is_empty() && !streams.has_gone {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut nr = 0;
        for slice in slices {
            let now = slice.len().min(streams.up.len());
            for (place, byte) in slice.iter_mut().zip(streams.up.drain(..now)) {
                *place = byte;
            }
            nr += now;
        }
        Ok(nr)
    }

    fn has_received(&self) -> bool {
        false
    }

    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut streams = self.0.borrow_mut();
        if streams.has_gone {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let room = STREAM_MAX - streams.down.len();
        let bytes = slices.iter().flat_map(|slice| slice.iter()).take(room);
        let before = streams.down.len();
        streams.down.extend(bytes);
        match streams.down.len() - before {
            0 => Err(ErrorKind::WouldBlock.into()),
            nr => Ok(nr),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wants_send(&self) -> bool {
        false
    }
}

/// A client. It is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct TestClient(Rc<RefCell<Streams>>);

impl TestClient {
    /// Sends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.0.borrow_mut().up.extend(bytes);
    }

    /// Sends a request without a payload.
    pub(crate) fn send(&mut self, command: u16, offset: u64, len: u32) {
        self.write(&0x2560_9513_u32.to_be_bytes());
        self.write(&[0, 0]);
        self.write(&command.to_be_bytes());
        self.write(&[0; 8]);
        self.write(&offset.to_be_bytes());
        self.write(&len.to_be_bytes());
    }

    /// Receives up to `max` bytes that have arrived.
    pub(crate) fn read(&mut self, max: usize) -> Vec<u8> {
        let mut streams = self.0.borrow_mut();
        let nr = max.min(streams.down.len());
        streams.down.drain(..nr).collect()
    }

    /// Returns whether the whole reply to a request has arrived, with this many bytes of data.
    pub(crate) fn is_answered(&mut self, data_len: usize) -> bool {
        let nr = self.read(REPLY_LEN + data_len).len();
        assert!(nr == 0 || nr == REPLY_LEN + data_len, "a part of a reply: {nr} bytes");
        nr > 0
    }
}

impl Drop for TestClient {
    fn drop(&mut self) {
        self.0.borrow_mut().has_gone = true;
    }
}

/// A client that the front watches.
#[derive(Debug)]
struct Watched {
    key: Key,
    streams: Rc<RefCell<Streams>>,
    interest: Interest,
}

/// The host of the front.
#[derive(Debug)]
pub(crate) struct TestHost {
    pub(crate) now_ns: u64,
    pub(crate) bytes: Vec<u8>,
    /// A range whose reads fail.
    pub(crate) bad: std::ops::Range<u64>,
    /// Reads that were submitted.
    pub(crate) nr_reads: u64,
    /// An I/O at this offset panics, and the panics are counted.
    pub(crate) panics_at: Option<u64>,
    pub(crate) nr_panics: u32,
    /// I/Os of closed clients: in flight when these were closed, and reported as ended since.
    pub(crate) after_close: (u32, u32),
    done: Vec<Parts<Box<[u8]>>>,
    watched: Vec<Watched>,
}

impl Host for TestHost {
    type Memory = Box<[u8]>;
    type Peer = TestPeer;
    type Completion = Parts<Box<[u8]>>;
    type Plug = ();

    fn plug(&mut self) {}

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn submit(
        &mut self,
        _peer: &TestPeer,
        _export: usize,
        mut io: Io<Box<[u8]>>,
        _now_ns: u64,
    ) -> Result<(), (SubmitErrorKind, Option<Box<[u8]>>)> {
        assert!(self.panics_at != Some(io.offset), "a planned panic");
        let (from, to) = (io.offset as usize, (io.offset + io.len) as usize);
        let mut result = Ok(io.len);
        match (io.op, &mut io.memory) {
            (Op::Read, Some(memory)) => {
                self.nr_reads += 1;
                memory[..to - from].copy_from_slice(&self.bytes[from..to]);
                if io.offset < self.bad.end && self.bad.start < io.offset + io.len {
                    result = Err(BlockStatus::Medium);
                }
            }
            (Op::Write, Some(memory)) => {
                self.bytes[from..to].copy_from_slice(&memory[..to - from]);
            }
            _ => {}
        }
        self.done.push((io.user_data, result, io.memory));
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Parts<Box<[u8]>>>, _now_ns: u64) {
        done.append(&mut self.done);
    }

    fn parts(completion: Parts<Box<[u8]>>) -> Parts<Box<[u8]>> {
        completion
    }

    fn wants_reap(&self) -> bool {
        !self.done.is_empty()
    }

    fn is_busy(&self) -> bool {
        !self.done.is_empty()
    }

    fn is_busy_with(&self, _export: usize) -> bool {
        !self.done.is_empty()
    }

    fn has_room(&self, _export: usize, _nr: usize) -> bool {
        true
    }

    fn watch(&mut self, peer: &mut TestPeer, key: Key, interest: Interest) -> io::Result<()> {
        match self.watched.iter_mut().find(|watched| watched.key == key) {
            Some(watched) => watched.interest = interest,
            None => {
                let streams = Rc::clone(&peer.0);
                self.watched.push(Watched { key, streams, interest });
            }
        }
        Ok(())
    }

    fn record(&mut self, _export: usize, _stage: Stage, _ns: u64, _nr: u64) {}

    fn panicked(&mut self, panic: Box<dyn Any + Send>) {
        match self.panics_at {
            Some(_) => self.nr_panics += 1,
            None => resume_unwind(panic),
        }
    }

    fn failed(&mut self, _peer: &TestPeer, _failed: &Failed<'_>, _now_ns: u64) {}

    fn closed(&mut self, peer: &mut TestPeer, closed: &Closed<'_>, _now_ns: u64) {
        self.watched.retain(|watched| !Rc::ptr_eq(&watched.streams, &peer.0));
        self.after_close.0 += closed.nr_at_disk;
    }

    fn ended_after_close(&mut self, _client: Key) {
        self.after_close.1 += 1;
    }
}

impl NbdHost for TestHost {
    fn allocate(len: usize) -> Box<[u8]> {
        vec![0; len].into()
    }

    fn start_tls(&mut self, _peer: &mut TestPeer) -> Result<(), String> {
        unreachable!("TLS is off")
    }

    fn opened(&mut self, _peer: &mut TestPeer, _opened: &Opened, _now_ns: u64) {}

    fn refused(&mut self) {}

    fn query_status(&mut self, _query: StatusQuery) -> bool {
        false
    }
}

/// A front with one export.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) front: NbdFront<TestHost>,
    arriving: Vec<TestPeer>,
}

impl Driven {
    /// Creates a front without clients. Reads of its disk fill a cache, if `caches_reads`.
    pub(crate) fn new(caches_reads: bool, block: u32, capacity: Capacity) -> Driven {
        let facts = ExportFacts { discards_to_zeroes: false, keeps_data: true, caches_reads };
        Driven::with_facts(facts, block, capacity)
    }

    /// Creates a front for up to 100 clients of a disk without data.
    pub(crate) fn without_data() -> Driven {
        let capacity = Capacity { connections: 100, threads: 1, memory_bytes: None };
        let facts =
            ExportFacts { discards_to_zeroes: false, keeps_data: false, caches_reads: false };
        Driven::with_facts(facts, BLOCK, capacity)
    }

    fn with_facts(facts: ExportFacts, block: u32, capacity: Capacity) -> Driven {
        let can = Abilities { flush: true, fua: true, cache: true, ..Abilities::default() };
        let info = ExportInfo {
            name: String::new(),
            description: String::new(),
            size_bytes: DISK_LEN as u64,
            can,
            block_size: BlockSizes { min: block, preferred: 4096, max: 64 << 20 },
        };
        let settings = Settings {
            infos: [info].into(),
            facts: vec![facts],
            tls: TlsPolicy::Off,
            capacity,
            budget: Budget::new(&capacity, block).expect("enough memory"),
            nr_open: Arc::default(),
            max_in_flight: MAX_IN_FLIGHT,
        };
        let host = TestHost {
            now_ns: 0,
            bytes: vec![0; DISK_LEN],
            bad: 0..0,
            nr_reads: 0,
            panics_at: None,
            nr_panics: 0,
            after_close: (0, 0),
            done: Vec::new(),
            watched: Vec::new(),
        };
        Driven { front: NbdFront::nbd(host, settings), arriving: Vec::new() }
    }

    /// Creates a front for up to 100 clients.
    pub(crate) fn usual(caches_reads: bool) -> Driven {
        let capacity = Capacity { connections: 100, threads: 1, memory_bytes: None };
        Driven::new(caches_reads, BLOCK, capacity)
    }

    pub(crate) fn host(&mut self) -> &mut TestHost {
        self.front.host_mut()
    }

    /// Runs one round, which handles all events.
    pub(crate) fn round(&mut self) {
        self.round_with(|_| {});
    }

    /// Runs one round, which handles all events and then calls `then`.
    pub(crate) fn round_with(&mut self, then: impl FnOnce(&mut NbdFront<TestHost>)) {
        self.front.pause_ns();
        let arriving = std::mem::take(&mut self.arriving);
        let events = |watched: &Watched| {
            let streams = watched.streams.borrow();
            let event = if streams.has_gone {
                Readiness::Gone
            } else if watched.interest.receive && !streams.up.is_empty() {
                Readiness::Received
            } else if watched.interest.send && streams.down.len() < STREAM_MAX {
                Readiness::Sendable
            } else {
                return None;
            };
            Some((watched.key, event))
        };
        let events: Vec<_> = self.front.host().watched.iter().filter_map(events).collect();
        self.front.round(|front| {
            arriving.into_iter().for_each(|peer| front.accept(peer));
            events.into_iter().for_each(|(key, event)| front.look_at(key, event));
            then(front);
        });
    }

    /// Connects a client to the export, with simple replies.
    pub(crate) fn connect(&mut self) -> TestClient {
        let streams = Rc::new(RefCell::new(Streams::default()));
        self.arriving.push(TestPeer(Rc::clone(&streams)));
        let mut client = TestClient(streams);
        // The client flags (fixed newstyle, no zeroes), and EXPORT_NAME with the default export.
        client.write(&[&3_u32.to_be_bytes()[..], b"IHAVEOPT", &[0, 0, 0, 1], &[0; 4]].concat());
        // The greeting; then size and flags.
        let mut left = 18 + 10;
        while left > 0 {
            self.round();
            left -= client.read(left).len();
        }
        client
    }
}
