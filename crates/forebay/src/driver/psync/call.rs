//! One request as a blocking system call.
//!
//! A call owns its list of vectors and moves from thread to thread as a value, so only one thread
//! has access to it. The memory itself is valid until the completion is reaped (K2).
// It hands addresses to the kernel.
#![allow(unsafe_code)]

use crate::claim::QueueFile;
use crate::driver::own_call::OwnCall;
use crate::driver::syscall::{lacks_durable_write, made, sync, write_durable};
use crate::driver::vectors::{self, Vector, Vectors};
use crate::driver::zeroing::{self, Ranges, Way};
use crate::driver::{Mode, own_file};
use crate::errno;
use forebay_core::{BlockStatus, IssuedRequest, Op, Segment, Tag};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The file that calls operate on.
#[derive(Debug)]
pub(in crate::driver) struct Target {
    pub(in crate::driver) file: Arc<QueueFile>,
    ranges: Ranges,
    /// The number of the best [`Way`] to zero a range, as far as the file system has shown it.
    way: AtomicU8,
}

impl Target {
    pub(in crate::driver) fn new(file: Arc<QueueFile>, ranges: Ranges) -> Target {
        Target { file, ranges, way: AtomicU8::new(ranges.way as u8) }
    }

    /// Returns the target of a queue.
    ///
    /// # Errors
    /// Fails as [`own_file::for_queue`] does.
    pub(in crate::driver) fn for_queue(this: &Arc<Target>, mode: Mode) -> io::Result<Arc<Target>> {
        if mode == Mode::Shared {
            return Ok(Arc::clone(this));
        }
        Ok(Arc::new(Target::new(own_file::for_queue(&this.file, mode)?, this.ranges)))
    }

    fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// A request before or after its system call.
#[derive(Debug)]
pub(in crate::driver) struct Call {
    pub(in crate::driver) tag: Tag,
    op: Op,
    fua: bool,
    /// For a flush: all metadata as well.
    metadata: bool,
    start: u64,
    len: u64,
    pub(in crate::driver) vectors: Vectors,
}

impl Call {
    /// Returns the call for a request, with its vectors filled in.
    #[inline]
    pub(in crate::driver) fn new(rq: &IssuedRequest<'_>, mut vectors: Vectors) -> Call {
        vectors.fill(rq.segments());
        let &IssuedRequest { tag, op, fua, metadata, start, len, .. } = rq;
        Call { tag, op, fua, metadata, start, len, vectors }
    }

    /// Returns the call for a flush, which has no memory. Keeps `vectors` for the tag.
    pub(in crate::driver) fn flush(tag: Tag, metadata: bool, vectors: Vectors) -> Call {
        Call { tag, op: Op::Flush, fua: false, metadata, start: 0, len: 0, vectors }
    }

    /// Returns the call for a request that was left to a thread and then withdrawn.
    pub(in crate::driver) fn of_own(own: &OwnCall, mut vectors: Vectors) -> Call {
        let &OwnCall { tag, op, fua, metadata, start, addr, len } = own;
        let segment = Segment { addr, len: len as u32 };
        vectors.fill(op.moves_data().then_some(segment).into_iter());
        Call { tag, op, fua, metadata, start, len: len as u64, vectors }
    }

    /// Makes the call and returns its result. Adds the system calls to `nr_syscalls`.
    pub(super) fn run(&self, target: &Target, nr_syscalls: &mut u32) -> Result<u64, BlockStatus> {
        let answer = match self.op {
            Op::Read | Op::Write => self.move_data(target, nr_syscalls),
            Op::Flush => sync(&target.file, self.metadata, nr_syscalls),
            Op::Discard => self.discard(target, nr_syscalls),
            Op::WriteZeroes => self.zero(target, nr_syscalls),
        };
        match answer {
            Ok(moved) if self.op.moves_data() => Ok(moved),
            Ok(_) => Ok(self.len),
            Err(error) => Err(errno::to_status(error)),
        }
    }

    fn move_data(&self, target: &Target, nr_syscalls: &mut u32) -> Result<u64, i32> {
        let (fd, start) = (target.fd(), self.start as libc::off_t);
        let vectors = self.vectors.as_slice();
        let (first, nr) = (vectors::as_ptr(vectors), vectors.len() as i32);
        let (op, fua) = (self.op, self.fua);
        let call = || {
            // SAFETY: the descriptor is open, and the call owns the vectors. The memory that they
            // name stays valid, and nothing else uses it, until the completion is reaped (K2).
            unsafe {
                match (op, vectors) {
                    (Op::Read, [one]) => libc::pread(fd, one.addr(), one.len(), start),
                    (Op::Read, _) => libc::preadv(fd, first, nr, start),
                    (_, _) if fua => write_durable(fd, first, nr, self.start),
                    (_, [one]) => libc::pwrite(fd, one.addr(), one.len(), start),
                    (_, _) => libc::pwritev(fd, first, nr, start),
                }
            }
        };
        match made(nr_syscalls, call) {
            // A flush serves as well. It does not for an error of the file, such as EOPNOTSUPP,
            // which may be the failed write-back of an earlier write. No flush reports that again.
            Err(libc::ENOSYS) if fua && lacks_durable_write() => {
                // SAFETY: as above.
                let call = || unsafe { libc::pwritev(fd, first, nr, start) };
                let moved = made(nr_syscalls, call)?;
                sync(&target.file, false, nr_syscalls)?;
                Ok(moved)
            }
            answer => answer,
        }
    }

    fn allocate(&self, target: &Target, mode: i32, nr_syscalls: &mut u32) -> Result<u64, i32> {
        let (fd, start, len) = (target.fd(), self.start as libc::off_t, self.len as libc::off_t);
        made(nr_syscalls, || {
            // SAFETY: numbers only.
            unsafe { libc::fallocate(fd, mode, start, len) as isize }
        })
    }

    fn zero(&self, target: &Target, nr_syscalls: &mut u32) -> Result<u64, i32> {
        // Relaxed: the value only saves a call that fails.
        let way = Way::ALL[usize::from(target.way.load(Ordering::Relaxed))];
        let mut mode = zeroing::first(target.ranges.grows, way);
        loop {
            let answer = match mode {
                zeroing::WRITE => self.write_zeroes(target, nr_syscalls),
                _ => self.allocate(target, mode, nr_syscalls),
            };
            let Some(next) = zeroing::next(mode, answer.err()) else { return answer };
            target.way.fetch_max(Way::of(next) as u8, Ordering::Relaxed);
            mode = next;
        }
    }

    /// Writes zeroes over the range, if there is no other way.
    fn write_zeroes(&self, target: &Target, nr_syscalls: &mut u32) -> Result<u64, i32> {
        /// One call writes 1 MiB.
        const NR_VECTORS: usize = 16;
        let mut vectors = vec![Vector::EMPTY; NR_VECTORS];
        let mut nr_done = 0;
        while nr_done < self.len {
            let nr = vectors::fill(&mut vectors, zeroing::segments(self.len - nr_done, NR_VECTORS));
            let wanted: u64 = vectors[..nr].iter().map(|vector| vector.len() as u64).sum();
            let start = (self.start + nr_done) as libc::off_t;
            let (fd, first) = (target.fd(), vectors::as_ptr(&vectors));
            // SAFETY: the vectors are local, and name memory that is never freed. The kernel reads
            // that memory, and no thread writes to it.
            let written =
                made(nr_syscalls, || unsafe { libc::pwritev(fd, first, nr as i32, start) });
            match written? {
                0 => return Err(libc::EIO),
                written if written < wanted && !target.ranges.goes_on => return Err(libc::EIO),
                written => nr_done += written,
            }
        }
        Ok(nr_done)
    }

    fn discard(&self, target: &Target, nr_syscalls: &mut u32) -> Result<u64, i32> {
        /// The request number from <linux/fs.h>.
        const BLKDISCARD: libc::Ioctl = 0x1277;
        if target.ranges.discard != zeroing::DISCARD {
            return self.allocate(target, zeroing::PUNCH_HOLE, nr_syscalls);
        }
        let range = [self.start, self.len];
        made(nr_syscalls, || {
            // SAFETY: the descriptor is open; this request reads two numbers.
            unsafe { libc::ioctl(target.fd(), BLKDISCARD, range.as_ptr()) as isize }
        })
    }
}
