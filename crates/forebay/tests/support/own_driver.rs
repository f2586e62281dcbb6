//! A driver with the published API only: a disk in memory that waits in each of the three ways.
//!
//! Also used by `tests/outside/`, which has no other dependency than the library.
// It follows the addresses of segments.
#![allow(unsafe_code)]

use forebay::driver::kit::CompletionList;
use forebay::driver::{
    Answer, Completions, Driver, Facts, IssuedRequest, Mode, Queue, Reap, Tag, Wait, forward,
};
use forebay::{BlockStatus, Extents, Op, QueueLimits, Segment};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// How a thread waits for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Requests complete when they are queued.
    AtOnce,
    /// A thread pushes completions to a list.
    List,
    /// A thread writes to a pipe when there are completions.
    Pipe,
}

/// Requests that a queue has at most, if its thread completes them. The rest waits in the layer.
const NR_AT_ONCE: usize = 6;

/// The bytes of the disk.
#[derive(Debug)]
struct Memory {
    bytes: Mutex<Vec<u8>>,
    /// The offset of 4 KiB that cannot be read.
    bad: Option<u64>,
}

/// A request, for the thread.
struct Command {
    tag: Tag,
    op: Op,
    start: usize,
    segments: Vec<Segment>,
    ranges: Vec<(u64, u64)>,
    len: u64,
}

impl Command {
    fn of(rq: &IssuedRequest<'_>) -> Command {
        let ranges = if rq.op == Op::Flush { Vec::new() } else { rq.ranges().collect() };
        let (start, segments) = (rq.start as usize, rq.segments().collect());
        Command { tag: rq.tag, op: rq.op, start, segments, ranges, len: rq.len }
    }

    /// Returns whether the request uses bytes of the 4 KiB from `offset` on.
    fn overlaps(&self, offset: u64) -> bool {
        let start = self.start as u64;
        start < offset + 4096 && offset < start + self.len
    }
}

impl Memory {
    fn run(&self, command: &Command) -> (Tag, Result<u64, BlockStatus>) {
        if command.op == Op::Read && self.bad.is_some_and(|bad| command.overlaps(bad)) {
            return (command.tag, Err(BlockStatus::Medium));
        }
        let mut bytes = self.bytes.lock().expect("no panic");
        let mut at = command.start;
        for segment in &command.segments {
            let len = segment.len as usize;
            let memory = ptr::with_exposed_provenance_mut::<u8>(segment.addr);
            let bytes = &mut bytes[at..at + len];
            // SAFETY: the segment is valid, and no other code uses it, until the request
            // completes (K2), which it has not.
            unsafe {
                match command.op {
                    Op::Read => ptr::copy_nonoverlapping(bytes.as_ptr(), memory, len),
                    _ => ptr::copy_nonoverlapping(memory, bytes.as_mut_ptr(), len),
                }
            }
            at += len;
        }
        if matches!(command.op, Op::Discard | Op::WriteZeroes) {
            for (start, len) in &command.ranges {
                bytes[*start as usize..(start + len) as usize].fill(0);
            }
        }
        (command.tag, Ok(command.len))
    }
}

type Ended = (Tag, Result<u64, BlockStatus>);

/// Completions, and a pipe that is readable while there are any.
#[derive(Debug)]
struct Pipe {
    ended: Mutex<Vec<Ended>>,
    reader: PipeReader,
    writer: PipeWriter,
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let (reader, writer) = io::pipe()?;
        Ok(Pipe { ended: Mutex::default(), reader, writer })
    }

    fn push(&self, ended: Ended) {
        let mut list = self.ended.lock().expect("no panic");
        list.push(ended);
        if list.len() == 1 {
            (&self.writer).write_all(&[0]).expect("room for a byte");
        }
    }

    fn take(&self) -> Vec<Ended> {
        let mut list = self.ended.lock().expect("no panic");
        if !list.is_empty() {
            (&self.reader).read_exact(&mut [0]).expect("a byte");
        }
        std::mem::take(&mut list)
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// A disk in memory.
#[derive(Debug)]
pub(crate) struct OwnDriver {
    memory: Arc<Memory>,
    limits: QueueLimits,
    way: Way,
}

impl OwnDriver {
    pub(crate) fn new(limits: QueueLimits, way: Way) -> OwnDriver {
        let len = limits.capacity_bytes.expect("a size") as usize;
        let memory = Memory { bytes: Mutex::new(vec![0; len]), bad: None };
        OwnDriver { memory: Arc::new(memory), limits, way }
    }

    /// Makes 4 KiB from `offset` on fail reads with [`BlockStatus::Medium`].
    pub(crate) fn with_bad_block(self, offset: u64) -> OwnDriver {
        let bytes = Mutex::new(vec![0; self.limits.capacity_bytes.expect("a size") as usize]);
        OwnDriver { memory: Arc::new(Memory { bytes, bad: Some(offset) }), ..self }
    }
}

/// The place of completions that were not reaped.
enum Place {
    Here(Completions),
    List(Arc<CompletionList<Ended>>, Vec<Ended>),
    Pipe(Arc<Pipe>),
}

/// A queue of [`OwnDriver`].
pub(crate) struct OwnQueue {
    memory: Arc<Memory>,
    place: Place,
    /// Requests that the next commit sends.
    batch: Vec<Command>,
    nr_in_flight: usize,
    thread: Option<(Sender<Command>, JoinHandle<()>)>,
}

// SAFETY: each command completes once, after its memory was used.
unsafe impl Driver for OwnDriver {
    type Queue = OwnQueue;

    fn facts(&self) -> Facts {
        Facts::new("own", self.limits)
    }

    fn open_queue(&self, depth: u32, _: Mode) -> io::Result<(OwnQueue, Wait)> {
        let (place, wait) = match self.way {
            Way::AtOnce => (Place::Here(Completions::new(depth)), Wait::AtOnce),
            Way::List => {
                let list = Arc::new(CompletionList::new(depth));
                (Place::List(Arc::clone(&list), Vec::new()), Wait::Blocking(list))
            }
            Way::Pipe => {
                let pipe = Arc::new(Pipe::new()?);
                (Place::Pipe(Arc::clone(&pipe)), Wait::Descriptor(pipe))
            }
        };
        let memory = Arc::clone(&self.memory);
        let push: Option<Box<dyn Fn(Ended) + Send>> = match &place {
            Place::Here(_) => None,
            Place::List(list, _) => {
                let list = Arc::clone(list);
                Some(Box::new(move |ended| list.push(ended)))
            }
            Place::Pipe(pipe) => {
                let pipe = Arc::clone(pipe);
                Some(Box::new(move |ended| pipe.push(ended)))
            }
        };
        let thread = push.map(|push| {
            let (sender, commands) = channel::<Command>();
            let memory = Arc::clone(&memory);
            let run = move || commands.into_iter().for_each(|command| push(memory.run(&command)));
            (sender, thread::spawn(run))
        });
        Ok((OwnQueue { memory, place, batch: Vec::new(), nr_in_flight: 0, thread }, wait))
    }

    fn block_status(&self, _: u64, _: &mut Extents<'_>) -> Result<(), BlockStatus> {
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn failure(&self) -> Option<String> {
        None
    }
}

// SAFETY: as above. Its drop waits for the thread.
unsafe impl Queue for OwnQueue {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Answer {
        let command = Command::of(rq);
        if let Place::Here(done) = &mut self.place {
            let (tag, result) = self.memory.run(&command);
            done.push(tag, result);
            return Answer::Queued;
        }
        if self.nr_in_flight == NR_AT_ONCE {
            return Answer::Busy;
        }
        self.nr_in_flight += 1;
        self.batch.push(command);
        Answer::Queued
    }

    fn commit_rqs(&mut self) {
        if let Some((sender, _)) = &self.thread {
            self.batch.drain(..).for_each(|command| sender.send(command).expect("it runs"));
        }
    }

    fn reap(&mut self, done: &mut Completions, _how: Reap) {
        let ended = match &mut self.place {
            Place::Here(here) => return done.append(here),
            Place::List(list, empty) => {
                list.reap(empty);
                std::mem::take(empty)
            }
            Place::Pipe(pipe) => pipe.take(),
        };
        self.nr_in_flight -= ended.len();
        ended.into_iter().for_each(|(tag, result)| done.push(tag, result));
    }

    fn cancel(&mut self, _tag: Tag) -> bool {
        false
    }

    fn has_ready(&self) -> bool {
        matches!(&self.place, Place::Here(done) if !done.is_empty())
    }

    fn nr_syscalls(&self) -> Option<u64> {
        match &self.place {
            Place::List(list, _) => Some(list.nr_syscalls()),
            // Two for each batch of completions, at most. They are not counted.
            Place::Here(_) | Place::Pipe(_) => None,
        }
    }
}

impl Drop for OwnQueue {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// A wrapper that counts requests, and passes everything else on.
#[derive(Debug)]
pub(crate) struct Counted<D> {
    inner: D,
    nr: Arc<Mutex<u64>>,
}

/// A queue of [`Counted`].
pub(crate) struct CountedQueue<Q> {
    inner: Q,
    nr: Arc<Mutex<u64>>,
}

impl<D> Counted<D> {
    pub(crate) fn new(inner: D) -> Counted<D> {
        Counted { inner, nr: Arc::default() }
    }

    /// Returns the number of accepted requests, which the wrapper keeps up to date.
    pub(crate) fn nr(&self) -> Arc<Mutex<u64>> {
        Arc::clone(&self.nr)
    }
}

// SAFETY: it passes on each request and each completion.
unsafe impl<D: Driver> Driver for Counted<D> {
    type Queue = CountedQueue<D::Queue>;

    forward!(inner => facts, block_status, size_bytes, failure);

    fn open_queue(&self, depth: u32, mode: Mode) -> io::Result<(Self::Queue, Wait)> {
        let (inner, wait) = self.inner.open_queue(depth, mode)?;
        Ok((CountedQueue { inner, nr: Arc::clone(&self.nr) }, wait))
    }
}

// SAFETY: as above.
unsafe impl<Q: Queue> Queue for CountedQueue<Q> {
    forward!(inner => commit_rqs, reap, cancel, has_ready, nr_syscalls);

    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, last: bool) -> Answer {
        let answer = self.inner.queue_rq(rq, last);
        *self.nr.lock().expect("no panic") += u64::from(answer == Answer::Queued);
        answer
    }
}
