//! The block layer of one file: a software queue, a hardware context, and a driver that passes
//! requests on to the kernel's AIO by the program's own descriptor.
//!
//! The core merges neighbours under a plug, splits the result of a merged request to its iocbs, and
//! repeats a merged request that fails one iocb at a time, so that each iocb ends with its own
//! result.

use crate::abi::{Iocb, opcode};
use crate::kernel::Errno;
use forebay_core::{
    Bio, BlockStatus, Commit, Completions, DeviceState, Driver, Gates, HardwareContext, Issue,
    IssuedRequest, Op, Policy, QueueLimits, QueuedBio, Reap, SECTOR_SHIFT, Segment, SoftwareQueue,
    Tag, TagSet, UnplugCause,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The end of an iocb: its record, and a number of bytes or an errno.
pub(crate) type Ended = (u32, Result<u64, Errno>);

/// A request for the kernel.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) tag: Tag,
    pub(crate) iocb: Iocb,
    /// The vectors, if the request has several segments.
    pub(crate) vectors: Vec<Vector>,
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
    outgoing: Vec<Outgoing>,
    done: Vec<(Tag, Result<u64, BlockStatus>)>,
    /// The record of each request at the kernel that is one iocb, by tag.
    singles: Box<[Option<u32>]>,
    /// The errno of iocbs that have failed alone. A status of the core has less detail.
    failures: Vec<(u32, Errno)>,
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
        self.singles[rq.tag.index()] = (rq.nr_bios == 1).then_some(rq.owner() as u32);
        self.outgoing.push(Outgoing { tag: rq.tag, iocb, vectors });
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

/// The longest request in bytes. Longer iocbs gain nothing from a merge.
const LEN_MAX: u64 = 1 << 20;

impl File {
    /// Creates the layer of a descriptor, with so many requests at the kernel.
    pub(crate) fn new(fd: u32, depth: u32, policy: Policy) -> File {
        // The kernel splits requests, and checks alignment. Most disks have blocks of 512 bytes.
        let sectors = (LEN_MAX >> SECTOR_SHIFT) as u32;
        let limits = QueueLimits::default().capacity_bytes(None);
        let limits = limits.max_hw_sectors(sectors).max_sectors(sectors);
        let policy = policy.queue_depth(depth).nr_hw_queues(1);
        let (device, tags) = (Arc::new(DeviceState::new(1)), Arc::new(TagSet::new(depth)));
        File {
            queue: SoftwareQueue::new(limits, policy, Arc::default()),
            hctx: HardwareContext::new(limits, policy, 0, device, tags, Arc::default()),
            driver: FileDriver {
                fd,
                outgoing: Vec::new(),
                done: Vec::new(),
                singles: vec![None; depth as usize].into(),
                failures: Vec::new(),
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
        self.nr_bios += u32::from(is_accepted);
        self.nr_plugged += u32::from(is_accepted);
        is_accepted
    }

    /// Ends the plug, and issues its requests. Appends the iocbs that have ended. Returns how many
    /// iocbs have joined the request of another one.
    pub(crate) fn unplug(&mut self, ended: &mut Vec<Ended>) -> u32 {
        let now = self.now();
        self.queue.unplug(UnplugCause::Outermost, 1, now);
        // A long iocb may be several requests.
        let nr_requests = self.queue.nr_outgoing() as u32;
        let nr_merges = std::mem::take(&mut self.nr_plugged).saturating_sub(nr_requests);
        for rq in self.queue.outgoing() {
            self.hctx.accept(rq, true);
        }
        self.turn(ended);
        nr_merges
    }

    /// Does everything that can be done now. Appends the iocbs that have ended.
    pub(crate) fn turn(&mut self, ended: &mut Vec<Ended>) {
        let (mut bios, now) = (Vec::new(), self.now());
        self.hctx.turn(&mut self.driver, now, Gates::OPEN, Commit::Now, &mut bios);
        self.nr_bios -= bios.len() as u32;
        ended.extend(bios.iter().map(|bio| {
            let record = bio.number();
            let found = self.driver.failures.iter().position(|(failed, _)| *failed == record);
            let errno = found.map(|nth| self.driver.failures.swap_remove(nth).1);
            (record, bio.result().map_err(|_| errno.unwrap_or(libc::EIO)))
        }));
    }

    /// Takes the requests that the kernel should get.
    pub(crate) fn take_outgoing(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.driver.outgoing)
    }

    /// Records the result of a request: a number of bytes, or a negative errno. A turn is due.
    pub(crate) fn complete(&mut self, tag: Tag, res: i64) {
        let single = self.driver.singles[tag.index()].take();
        let result = u64::try_from(res).map_err(|_| {
            let errno = i32::try_from(-res).unwrap_or(libc::EIO);
            self.driver.failures.extend(single.map(|record| (record, errno)));
            // The core repeats the iocbs of a merged request one by one, and each gets its errno.
            BlockStatus::Io
        });
        self.driver.done.push((tag, result));
    }

    /// Returns whether no iocb is in the layer.
    pub(crate) fn is_idle(&self) -> bool {
        self.nr_bios == 0
    }
}
