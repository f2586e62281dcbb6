//! The block layer of one file: a software queue, a hardware context, and a driver that passes
//! requests on to the kernel's AIO by the program's own descriptor.
//!
//! The core merges neighbours under a plug, and takes a merged request apart that is short or
//! fails: the iocbs that a count covers end in full, the rest follows, and an error is tried again
//! one iocb at a time. The rest of a single iocb is never tried again: its result is that of the
//! kernel, an error or a short count. The core gets it as a full one, so that it repeats nothing.

use crate::abi::{Iocb, opcode};
use crate::program::{self, FileId};
use crate::raw::Errno;
use crate::stats;
use forebay_core::{
    Bio, BlockStatus, Commit, Completions, DeviceState, Driver, Gates, HardwareContext, Issue,
    IssuedRequest, Op, Policy, QueueLimits, QueuedBio, Reap, RunCounters, SECTOR_SHIFT, Segment,
    SoftwareQueue, Tag, TagSet, UnplugCause,
};
use forebay_run::area::{self, Counter, FileNumber, Stage};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// The end of an iocb: its record, and a number of bytes or a negative errno.
pub(crate) type Ended = (u32, i64);

/// A request for the kernel.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) tag: Tag,
    /// The record of its first iocb.
    pub(crate) record: u32,
    pub(crate) iocb: Iocb,
    /// The vectors, if the request has several segments.
    pub(crate) vectors: Vec<Vector>,
    /// The place of the counters of its file.
    pub(crate) number: FileNumber,
}

/// `struct iovec`, with its address as a number.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Vector {
    addr: usize,
    len: usize,
}

/// The driver: it collects requests for the kernel, and results.
#[derive(Debug)]
struct FileDriver {
    fd: u32,
    number: FileNumber,
    outgoing: Vec<Outgoing>,
    done: Vec<(Tag, Result<u64, BlockStatus>)>,
    /// The requests at the kernel, by tag.
    sent: Box<[Sent]>,
    /// The first byte and the length of the iocbs in the layer, by record.
    ranges: HashMap<u32, (u64, u64)>,
    /// The results of iocbs that are not full: a number of bytes, or a negative errno.
    results: Vec<(u32, i64)>,
    /// The errno of the last merged request that has failed, for iocbs that the core does not
    /// repeat.
    last_failure: Errno,
}

/// A request at the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    op: Option<Op>,
    start: u64,
    len: u64,
    /// The record of its first iocb.
    record: u32,
    /// When it was submitted.
    at: u64,
}

impl Driver for FileDriver {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        let segments = rq.segments();
        let vectors: Vec<_> = segments
            .map(|segment| Vector { addr: segment.addr, len: segment.len as usize })
            .collect();
        let (command, buf, nbytes) = match (rq.op, &vectors[..]) {
            (Op::Read, [one]) => (opcode::PREAD, one.addr as u64, one.len as u64),
            (Op::Write, [one]) => (opcode::PWRITE, one.addr as u64, one.len as u64),
            // The address of the list is set when the request is submitted.
            (Op::Read, many) => (opcode::PREADV, 0, many.len() as u64),
            (Op::Write, many) => (opcode::PWRITEV, 0, many.len() as u64),
            _ => return Issue::Failed(BlockStatus::NotSupported),
        };
        let iocb = Iocb {
            data: 0,
            key: 0,
            rw_flags: 0,
            opcode: command,
            reqprio: 0,
            fildes: self.fd,
            buf,
            nbytes,
            offset: rq.start as i64,
            reserved2: 0,
            flags: 0,
            resfd: 0,
        };
        let record = rq.owner() as u32;
        let (op, at) = (Some(rq.op), stats::now());
        self.sent[rq.tag.index()] = Sent { op, start: rq.start, len: rq.len, record, at };
        self.outgoing.push(Outgoing { tag: rq.tag, record, iocb, vectors, number: self.number });
        Issue::Queued
    }

    fn commit_rqs(&mut self) {}

    fn reap(&mut self, done: &mut Completions, _how: Reap) {
        self.done.drain(..).for_each(|(tag, result)| done.push(tag, result));
    }

    fn wait(&mut self, _nr_completions: u32, _timeout: Option<Duration>) {}
}

/// The block layer of one descriptor of a context.
#[derive(Debug)]
pub(crate) struct File {
    queue: SoftwareQueue,
    hctx: HardwareContext,
    driver: FileDriver,
    start: Instant,
    nr_bios: u32,
    /// How many of them are in the plug.
    nr_plugged: u32,
    depth: u32,
    segments_max: usize,
}

/// Returns the counters of all files, which nothing reads. They have several KiB, and a thread of
/// the program may have a stack of 64 KiB, so another thread creates them.
fn counters() -> Arc<RunCounters> {
    static COUNTERS: OnceLock<Arc<RunCounters>> = OnceLock::new();
    let create = || {
        let thread = thread::Builder::new().stack_size(256 << 10);
        let thread = program::without_signals(|| thread.spawn(Arc::default));
        thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
    };
    Arc::clone(COUNTERS.get_or_init(create))
}

/// The longest request in bytes. Longer iocbs gain nothing from a merge.
pub(crate) const LEN_MAX: u64 = 1 << 20;

impl File {
    /// Creates the layer of a descriptor, with at most `depth` requests at the kernel.
    pub(crate) fn new(id: FileId, depth: u32, policy: Policy) -> File {
        // The kernel splits requests, and checks alignment. Most disks have blocks of 512 bytes.
        let sectors = (LEN_MAX >> SECTOR_SHIFT) as u32;
        let limits = QueueLimits::default().capacity_bytes(None);
        // After a short write, the rest is written again in any case.
        let limits = limits.max_hw_sectors(sectors).max_sectors(sectors).exact_counts(true);
        let policy = policy.queue_depth(depth).nr_hw_queues(1);
        let (device, tags) = (Arc::new(DeviceState::new(1)), Arc::new(TagSet::new(depth)));
        File {
            queue: SoftwareQueue::new(limits, policy, Arc::default()),
            hctx: HardwareContext::new(limits, policy, 0, device, tags, counters()),
            driver: FileDriver {
                fd: id.fd,
                number: stats::number_of(id),
                outgoing: Vec::new(),
                done: Vec::new(),
                sent: vec![Sent::default(); depth as usize].into(),
                ranges: HashMap::new(),
                results: Vec::new(),
                last_failure: libc::EIO,
            },
            start: Instant::now(),
            nr_bios: 0,
            nr_plugged: 0,
            depth,
            segments_max: limits.max_segments as usize,
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Returns the place of its counters.
    pub(crate) fn number(&self) -> FileNumber {
        self.driver.number
    }

    /// Returns how many more iocbs find a tag, even if none merges.
    pub(crate) fn room(&self) -> u32 {
        self.depth - self.nr_bios
    }

    /// Plugs a read or write. Returns false if the layer refuses it or would split it, so that the
    /// kernel gets it as it is.
    pub(crate) fn plug(&mut self, op: Op, offset: u64, segments: &[Segment], record: u32) -> bool {
        let len = segments.iter().map(|segment| u64::from(segment.len)).sum();
        if len > LEN_MAX || segments.len() > self.segments_max {
            return false;
        }
        let mut bio = Bio::range(op, offset, len);
        bio.segments = match *segments {
            [one] => forebay_core::Segments::One(one),
            _ => forebay_core::Segments::Many(segments.to_vec()),
        };
        let mut queued = QueuedBio::new(record.into(), record);
        queued.fill(bio);
        let is_accepted = self.queue.queue_bio(queued, 1, self.now()).is_ok();
        if is_accepted {
            self.driver.ranges.insert(record, (offset, len));
        }
        self.nr_bios += u32::from(is_accepted);
        self.nr_plugged += u32::from(is_accepted);
        is_accepted
    }

    /// Ends the plug, and issues its requests. Appends the iocbs that have ended. Counts those that
    /// have joined the request of another one.
    pub(crate) fn unplug(&mut self, ended: &mut Vec<Ended>) {
        let now = self.now();
        self.queue.unplug(UnplugCause::Outermost, 1, now);
        let nr_requests = self.queue.nr_outgoing() as u32;
        let nr_merges = std::mem::take(&mut self.nr_plugged).saturating_sub(nr_requests);
        for rq in self.queue.outgoing() {
            self.hctx.accept(rq, true);
        }
        self.turn(ended);
        area::count(self.driver.number, Counter::Merges, nr_merges.into());
    }

    /// Does everything that can be done now. Appends the iocbs that have ended.
    pub(crate) fn turn(&mut self, ended: &mut Vec<Ended>) {
        let (mut bios, now) = (Vec::new(), self.now());
        self.hctx.turn(&mut self.driver, now, Gates::OPEN, Commit::Now, &mut bios);
        self.nr_bios -= bios.len() as u32;
        ended.extend(bios.iter().map(|bio| {
            let record = bio.number();
            self.driver.ranges.remove(&record);
            let found = self.driver.results.iter().position(|(of, _)| *of == record);
            let result = match (found, bio.result()) {
                (Some(nth), _) => self.driver.results.swap_remove(nth).1,
                (None, Ok(len)) => len as i64,
                (None, Err(_)) => -i64::from(self.driver.last_failure),
            };
            (record, result)
        }));
    }

    /// Takes the requests that the kernel should get.
    pub(crate) fn take_outgoing(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.driver.outgoing)
    }

    /// Records the time of a request whose event the kernel has returned.
    pub(crate) fn record_time(&mut self, tag: Tag) {
        let sent = &mut self.driver.sent[tag.index()];
        stats::record_since(Stage::Kernel, self.driver.number, std::mem::take(&mut sent.at));
    }

    /// Records the result of a request: a number of bytes, or a negative errno. A turn is due.
    pub(crate) fn complete(&mut self, tag: Tag, res: i64) {
        let Sent { op, start, len, record, .. } = self.driver.sent[tag.index()];
        let (offset, full) = self.driver.ranges.get(&record).copied().unwrap_or((start, len));
        // The bytes of the first iocb that an earlier request has moved.
        let moved = start.saturating_sub(offset);
        let is_one = start + len == offset + full;
        let is_full = u64::try_from(res) == Ok(len);
        area::count(self.driver.number, Counter::Repeats, u64::from(!is_full && !is_one));
        let result = match u64::try_from(res) {
            Ok(_) if is_full => Ok(len),
            _ if is_one => {
                let is_short = res >= 0 || moved > 0;
                let result = if is_short { moved as i64 + res.max(0) } else { res };
                self.driver.results.push((record, result));
                Ok(len)
            }
            // The end of the file, or a part.
            Ok(nr) if nr > 0 || op == Some(Op::Read) => Ok(nr),
            _ => {
                let errno = i32::try_from(res.saturating_neg()).unwrap_or(0);
                self.driver.last_failure = if errno > 0 { errno } else { libc::EIO };
                // One iocb may be the reason, so the core repeats them one by one.
                Err(BlockStatus::Medium)
            }
        };
        self.driver.done.push((tag, result));
    }

    /// Returns whether no iocb is in the layer.
    pub(crate) fn is_idle(&self) -> bool {
        self.nr_bios == 0
    }
}
