//! A front with one ring that a test drives: requests as bytes, and a disk in memory.

use super::ring::{Chain, GuestBytes, Ring};
use super::{BlkDisk, BlkFront, BlkHost};
use crate::host::{Closed, Failed, Host, Interest, Io, Parts, Peer};
use crate::kinds::{RequestKind, Stage};
use crate::slots::Key;
use forebay_core::{BioFlags, BlockStatus, Op, SubmitErrorKind};
use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::panic::resume_unwind;
use std::rc::Rc;

/// Sectors of the disk.
pub(super) const NR_SECTORS: u64 = 64;

/// One direction of a request. The test keeps the bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct TestBytes {
    bytes: Rc<RefCell<Vec<u8>>>,
    first: usize,
    end: usize,
}

impl TestBytes {
    pub(super) fn new(bytes: Vec<u8>) -> TestBytes {
        TestBytes { first: 0, end: bytes.len(), bytes: Rc::new(RefCell::new(bytes)) }
    }

    /// Returns a copy of all bytes.
    pub(super) fn copy(&self) -> Vec<u8> {
        self.bytes.borrow().clone()
    }
}

impl GuestBytes for TestBytes {
    fn len(&self) -> u64 {
        (self.end - self.first) as u64
    }

    fn take_front(&mut self, into: &mut [u8]) {
        let to = self.first + into.len();
        assert!(to <= self.end);
        into.copy_from_slice(&self.bytes.borrow()[self.first..to]);
        self.first = to;
    }

    fn fill_front(&mut self, from: &[u8]) {
        let to = self.first + from.len();
        assert!(to <= self.end);
        self.bytes.borrow_mut()[self.first..to].copy_from_slice(from);
        self.first = to;
    }
}

/// State of the ring, which the test and the front share.
#[derive(Debug)]
pub(super) struct State {
    pub(super) features: u64,
    pub(super) write_cache: bool,
    pub(super) is_enabled: bool,
    pub(super) available: VecDeque<Chain<TestBytes>>,
    /// Used entries: head, status, bytes written.
    pub(super) used: Vec<(u16, u8, u32)>,
    /// Answers that the driver does not see yet.
    unpublished: Vec<(u16, u8, u32)>,
    /// The number of used entries after each call that published some.
    pub(super) published_at: Vec<usize>,
    /// Requests that were in flight when the driver was notified, per notification.
    pub(super) notified_at: Vec<usize>,
    /// Whether the driver notifies the device.
    pub(super) kicks: bool,
    /// Added when notifications are enabled: a driver that is as quick as possible.
    pub(super) late: VecDeque<Chain<TestBytes>>,
    /// Memories that came back.
    pub(super) nr_recycled: usize,
    /// Error of the next request that is taken.
    pub(super) error: Option<String>,
    /// Reason why the host was asked to stop the ring.
    pub(super) broken: Vec<String>,
    pub(super) is_closed: bool,
}

#[derive(Debug)]
pub(super) struct TestRing(pub(super) Rc<RefCell<State>>);

impl Peer for TestRing {
    fn begin(&mut self, _kind: RequestKind) {}
    fn end(&mut self, _kind: RequestKind, _bytes: u64) {}
    fn fail(&mut self) {}
    fn set_export(&mut self, _export: usize) {}
    fn say_goodbye(&mut self) {}
}

impl Ring for TestRing {
    type Memory = TestBytes;
    type Error = String;

    fn features(&self) -> u64 {
        self.0.borrow().features
    }

    fn write_cache(&self) -> bool {
        self.0.borrow().write_cache
    }

    fn is_enabled(&self) -> bool {
        self.0.borrow().is_enabled
    }

    fn take(&mut self) -> Result<Option<Chain<TestBytes>>, String> {
        let state = &mut *self.0.borrow_mut();
        state.error.take().map_or_else(|| Ok(state.available.pop_front()), Err)
    }

    fn put(&mut self, head: u16, status: u8, written: u32) {
        self.0.borrow_mut().unpublished.push((head, status, written));
    }

    fn publish(&mut self) {
        let state = &mut *self.0.borrow_mut();
        if !state.unpublished.is_empty() {
            state.used.append(&mut state.unpublished);
            state.published_at.push(state.used.len());
        }
    }

    fn recycle(&mut self, _memory: TestBytes) {
        self.0.borrow_mut().nr_recycled += 1;
    }

    fn has_available(&self) -> bool {
        !self.0.borrow().available.is_empty()
    }

    fn disable_notifications(&mut self) {
        self.0.borrow_mut().kicks = false;
    }

    fn enable_notifications(&mut self) -> Result<bool, String> {
        let state = &mut *self.0.borrow_mut();
        state.kicks = true;
        state.available.append(&mut state.late);
        Ok(!state.available.is_empty())
    }

    fn notify(&mut self) {
        self.publish();
        let state = &mut *self.0.borrow_mut();
        state.notified_at.push(state.used.len());
    }
}

/// An I/O that was submitted: operation, first byte, length, and whether it had FUA.
pub(super) type Submitted = (Op, u64, u64, bool);

#[derive(Debug)]
pub(super) struct TestHost {
    pub(super) now_ns: u64,
    /// Added to the time by each reap.
    pub(super) reap_ns: u64,
    /// Added to the time by each submission.
    pub(super) submit_ns: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) submitted: Vec<Submitted>,
    /// I/Os that may be in flight.
    pub(super) room: usize,
    /// Whether the disk completes nothing.
    pub(super) is_held: bool,
    /// Most completions of one reap.
    pub(super) reap_max: usize,
    /// Result of each I/O; `None`: it succeeds.
    pub(super) failure: Option<BlockStatus>,
    pub(super) nr_failed: usize,
    /// A submission at this offset panics; `true`: the disk has the I/O.
    pub(super) panics_at: Option<(u64, bool)>,
    pub(super) nr_panics: usize,
    done: VecDeque<Parts<TestBytes>>,
    is_plugged: bool,
}

impl Host for TestHost {
    type Memory = TestBytes;
    type Peer = TestRing;
    type Completion = Parts<TestBytes>;
    type Plug = ();

    fn plug(&mut self) {
        self.is_plugged = true;
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn submit(
        &mut self,
        _peer: &TestRing,
        _export: usize,
        mut io: Io<TestBytes>,
        _now_ns: u64,
    ) -> Result<(), (SubmitErrorKind, Option<TestBytes>)> {
        assert!(self.is_plugged);
        if self.done.len() == self.room {
            return Err((SubmitErrorKind::WouldBlock, io.memory));
        }
        let panics = self.panics_at.filter(|(offset, _)| *offset == io.offset);
        assert!(panics != Some((io.offset, false)), "a planned panic");
        let (from, to) = (io.offset as usize, (io.offset + io.len) as usize);
        match (io.op, &mut io.memory) {
            (Op::Read, Some(memory)) => memory.fill_front(&self.bytes[from..to]),
            (Op::Write, Some(memory)) => memory.take_front(&mut self.bytes[from..to]),
            (Op::Discard | Op::WriteZeroes, None) => self.bytes[from..to].fill(0),
            (Op::Flush, None) => {}
            (op, memory) => panic!("{op:?} with {memory:?}"),
        }
        self.now_ns += self.submit_ns;
        self.submitted.push((io.op, io.offset, io.len, io.flags.contains(BioFlags::FUA)));
        let result = self.failure.map_or(Ok(io.len), Err);
        self.done.push_back((io.user_data, result, io.memory));
        assert!(panics.is_none(), "a planned panic");
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Parts<TestBytes>>, _now_ns: u64) {
        if !self.is_held {
            let nr = self.done.len().min(self.reap_max);
            done.extend(self.done.drain(..nr));
            self.now_ns += self.reap_ns;
        }
    }

    fn parts(completion: Parts<TestBytes>) -> Parts<TestBytes> {
        completion
    }

    fn wants_reap(&self) -> bool {
        !self.is_held && !self.done.is_empty()
    }

    fn is_busy(&self) -> bool {
        !self.done.is_empty()
    }

    fn is_busy_with(&self, _export: usize) -> bool {
        self.is_busy()
    }

    fn has_room(&self, _export: usize, nr: usize) -> bool {
        self.done.len() + nr <= self.room
    }

    fn watch(&mut self, _: &mut TestRing, _: Key, _: Interest) -> io::Result<()> {
        Ok(())
    }

    fn record(&mut self, _export: usize, _stage: Stage, _ns: u64, _nr: u64) {}

    fn panicked(&mut self, panic: Box<dyn Any + Send>) {
        match self.panics_at {
            Some(_) => self.nr_panics += 1,
            None => resume_unwind(panic),
        }
    }

    fn failed(&mut self, _peer: &TestRing, _failed: &Failed<'_>, _now_ns: u64) {
        self.nr_failed += 1;
    }

    fn closed(&mut self, peer: &mut TestRing, _closed: &Closed<'_>, _now_ns: u64) {
        peer.0.borrow_mut().is_closed = true;
    }
}

impl BlkHost for TestHost {
    fn broken(&mut self, ring: &mut TestRing, why: &str, _now_ns: u64) {
        ring.0.borrow_mut().broken.push(why.to_owned());
    }
}

/// A front with one ring.
pub(super) struct Driven {
    pub(super) front: BlkFront<TestHost>,
    pub(super) state: Rc<RefCell<State>>,
    next_head: u16,
}

impl Driven {
    /// Starts a ring with these features.
    pub(super) fn new(features: u64, change: impl FnOnce(&mut BlkDisk)) -> Driven {
        let mut disk = BlkDisk {
            export: 0,
            nr_sectors: NR_SECTORS,
            read_only: false,
            discards_to_zeroes: true,
            max_discard_sectors: 32,
            max_write_zeroes_sectors: 32,
            serial: *b"serial number\0\0\0\0\0\0\0",
        };
        change(&mut disk);
        let host = TestHost {
            now_ns: 1_000_000,
            reap_ns: 0,
            submit_ns: 0,
            bytes: (0..NR_SECTORS * 512).map(|at| (at / 512) as u8).collect(),
            submitted: Vec::new(),
            room: 32,
            is_held: false,
            reap_max: usize::MAX,
            failure: None,
            nr_failed: 0,
            panics_at: None,
            nr_panics: 0,
            done: VecDeque::new(),
            is_plugged: false,
        };
        let state = Rc::new(RefCell::new(State {
            features,
            write_cache: true,
            is_enabled: true,
            available: VecDeque::new(),
            used: Vec::new(),
            unpublished: Vec::new(),
            published_at: Vec::new(),
            notified_at: Vec::new(),
            kicks: true,
            late: VecDeque::new(),
            nr_recycled: 0,
            error: None,
            broken: Vec::new(),
            is_closed: false,
        }));
        let mut front = BlkFront::blk(host, disk);
        let ring = TestRing(Rc::clone(&state));
        front.round(|front| front.accept(ring));
        Driven { front, state, next_head: 0 }
    }

    pub(super) fn host(&mut self) -> &mut TestHost {
        self.front.host_mut()
    }

    /// Makes a request of these bytes, and room for `nr_writable` more and a status. Returns it
    /// with its writable bytes.
    pub(super) fn chain(&mut self, readable: &[u8], nr_writable: usize) -> TestBytes {
        let (chain, writable) = self.make(readable, nr_writable);
        self.state.borrow_mut().available.push_back(chain);
        writable
    }

    /// Makes a request, and does not add it to the ring.
    pub(super) fn make(
        &mut self,
        readable: &[u8],
        nr_writable: usize,
    ) -> (Chain<TestBytes>, TestBytes) {
        let writable = TestBytes::new(vec![0xaa; nr_writable]);
        let head = self.next_head;
        self.next_head += 1;
        let readable = TestBytes::new(readable.to_vec());
        (Chain::new(head, readable, writable.clone(), true), writable)
    }

    /// Runs rounds until the front sleeps.
    pub(super) fn run(&mut self) {
        loop {
            self.front.host_mut().is_plugged = false;
            self.front.round(|front| front.look_at_rings());
            if !self.front.is_unfinished() && !self.front.prepare_sleep() {
                return;
            }
        }
    }

    /// Sends one request, and returns its status, the number of bytes written and the bytes.
    pub(super) fn ask(&mut self, readable: &[u8], nr_writable: usize) -> (u8, u32, Vec<u8>) {
        let head = self.next_head;
        let writable = self.chain(readable, nr_writable);
        self.run();
        let used = self.state.borrow().used.last().copied();
        let (answered, status, written) = used.expect("it is answered");
        assert_eq!(answered, head);
        (status, written, writable.copy())
    }

    /// Returns the I/Os since the last call.
    pub(super) fn submitted(&mut self) -> Vec<Submitted> {
        std::mem::take(&mut self.host().submitted)
    }
}

/// Returns a header.
pub(super) fn header(kind: u32, sector: u64) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat()
}
