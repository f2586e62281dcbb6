//! Table of the commands of all tags, and their ring entries.
// It makes a system call in place of an entry.
#![allow(unsafe_code)]

use super::registered::{Range, RingMemory};
use crate::arena::Arena;
use crate::driver::vectors::{self, Vector};
use crate::driver::zeroing::{self, Ranges, Way};
use crate::errno;
use forebay_core::{BlockStatus, IssuedRequest, Op, QueueLimits, Segment, Tag};
use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The file's index in the ring's file table.
const FILE: types::Fixed = types::Fixed(0);

/// The registered memory's index in the ring's buffer table.
const ARENA: u16 = 0;

/// The maximum of submissions of one request: its thread may have ended each time.
const NR_TRIES_MAX: u8 = 8;

/// Returns the flags of a flush: as for `fsync`, or as for `fdatasync`, which is enough to read the
/// data back. A block device has no metadata of its own and does the same for both.
fn sync_flags(metadata: bool) -> types::FsyncFlags {
    if metadata { types::FsyncFlags::empty() } else { types::FsyncFlags::DATASYNC }
}

/// Returns the entry for a discard of a block device (since Linux 6.12; `BLOCK_URING_CMD_DISCARD`
/// in <linux/blkdev.h>).
pub(super) fn discard(start: u64, len: u64) -> Entry {
    const DISCARD: u32 = 0x1200;
    let mut cmd = [0; 16];
    cmd[..8].copy_from_slice(&len.to_ne_bytes());
    opcode::UringCmd16::new(FILE, DISCARD).addr(Some(start)).cmd(cmd).build()
}

/// The commands of all tags, and their vectors. The vectors do not move as long as this lives.
pub(super) struct Commands {
    table: Box<[Command]>,
    /// `max_segments` for each tag.
    vectors: Box<[Vector]>,
    max_segments: usize,
    /// A partial write of zeroes is continued ([`zeroing::Ranges`]).
    goes_on: bool,
    /// The registered memory, sorted by address.
    ranges: Vec<Range>,
    /// Kept alive while a ring has it registered.
    arena: Option<Arc<Arena>>,
    /// The memory that callers register. `None` if there is an arena, and in tests.
    memory: Option<Arc<RingMemory>>,
    /// The version of that memory's table that `ranges` has.
    version: u64,
    /// The kernel has reads and writes of several segments in registered memory.
    has_vectored_fixed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) op: Op,
    fua: bool,
    /// For a flush: all metadata as well.
    metadata: bool,
    nr_vectors: u16,
    nr_tries: u8,
    /// The address of the memory, if it is one segment of the command's length. No vector is read
    /// then.
    addr: usize,
    start: u64,
    pub(super) len: u64,
    /// How a range is changed: a mode of `fallocate`, or one of the other modes of `zeroing`.
    mode: i32,
    /// The number of zeroes written so far, if zeroes are written.
    nr_done: u64,
    /// The layer has asked to give the request up.
    is_cancelled: bool,
    /// A thread makes the request itself: no ring has it.
    is_own: bool,
}

impl Command {
    /// Records how the range was changed in the end, so that ways that failed are not tried again.
    pub(super) fn teach(&self, ranges: &mut Ranges) {
        match self.op {
            Op::WriteZeroes => ranges.way = ranges.way.max(Way::of(self.mode)),
            Op::Discard if self.mode == zeroing::DISCARD_BY_WORKER => ranges.discard = self.mode,
            _ => {}
        }
    }
}

impl Commands {
    pub(super) fn new(limits: &QueueLimits, depth: u32, arena: Option<Arc<Arena>>) -> Commands {
        assert!(limits.max_segments <= u32::from(u16::MAX), "a command counts its vectors");
        let idle = Command {
            op: Op::Flush,
            fua: false,
            metadata: false,
            nr_vectors: 0,
            nr_tries: 0,
            addr: 0,
            start: 0,
            len: 0,
            mode: 0,
            nr_done: 0,
            is_cancelled: false,
            is_own: false,
        };
        Commands {
            table: vec![idle; depth as usize].into(),
            vectors: vec![Vector::EMPTY; (depth * limits.max_segments) as usize].into(),
            max_segments: limits.max_segments as usize,
            goes_on: limits.exact_counts,
            ranges: arena
                .iter()
                .map(|arena| Range { addr: arena.addr(), len: arena.len(), index: ARENA })
                .collect(),
            arena,
            memory: None,
            version: 0,
            has_vectored_fixed: false,
        }
    }

    /// Uses the memory that callers register with the ring, and sets whether the kernel has reads
    /// and writes of several segments in it.
    pub(super) fn set_memory(&mut self, memory: Arc<RingMemory>, has_vectored_fixed: bool) {
        assert!(self.arena.is_none(), "the ring has one table");
        (self.memory, self.has_vectored_fixed) = (Some(memory), has_vectored_fixed);
    }

    /// Takes over the changes of the memory that callers have registered. Entries that are made
    /// later use it.
    #[inline]
    pub(super) fn follow_memory(&mut self) {
        if let Some(memory) = &self.memory
            && memory.version() != self.version
        {
            (self.version, self.ranges) = memory.ranges();
        }
    }

    /// Returns the number of tags.
    pub(super) fn depth(&self) -> u32 {
        self.table.len() as u32
    }

    /// Returns whether memory is registered with the ring.
    pub(super) fn has_arena(&self) -> bool {
        self.arena.is_some()
    }

    /// Returns the index of registered memory that contains this range.
    #[inline]
    fn registered(&self, addr: usize, len: u64) -> Option<u16> {
        Some(self.range_of(addr)?)
            .filter(|range| range.contains(addr, len))
            .map(|range| range.index)
    }

    /// Returns the range of registered memory that begins at this address, or before it.
    #[inline]
    fn range_of(&self, addr: usize) -> Option<&Range> {
        let nr = self.ranges.partition_point(|range| range.addr <= addr);
        self.ranges[..nr].last()
    }

    /// Counts a request in memory that callers have registered.
    #[inline]
    fn count_registered(&self) {
        if let Some(memory) = &self.memory {
            memory.count();
        }
    }

    /// Returns the command of a tag.
    #[inline]
    pub(super) fn of(&self, tag: Tag) -> Command {
        self.table[tag.index()]
    }

    /// Records whether a thread makes the request of a tag itself.
    pub(super) fn set_own(&mut self, tag: Tag, is_own: bool) {
        self.table[tag.index()].is_own = is_own;
    }

    /// Returns whether a thread makes the request of a tag itself.
    pub(super) fn is_own(&self, tag: Tag) -> bool {
        self.table[tag.index()].is_own
    }

    /// Records that the request of a tag is to be given up: it is not submitted again.
    pub(super) fn cancel(&mut self, tag: Tag) {
        self.table[tag.index()].is_cancelled = true;
    }

    /// Records a request. A range is changed by `mode`.
    #[inline]
    pub(super) fn note(&mut self, rq: &IssuedRequest<'_>, mode: i32) {
        let mut segments = rq.segments();
        let (addr, nr_vectors) = match (segments.next(), segments.next()) {
            (None, _) => (0, 0),
            (Some(one), None) => (one.addr, 1),
            (Some(first), Some(second)) => {
                (first.addr, self.fill_vectors(rq.tag, [first, second], segments))
            }
        };
        self.table[rq.tag.index()] = Command {
            op: rq.op,
            fua: rq.fua,
            metadata: rq.metadata,
            nr_vectors,
            nr_tries: 1,
            addr,
            start: rq.start,
            len: rq.len,
            mode,
            nr_done: 0,
            is_cancelled: false,
            is_own: false,
        };
        if mode == zeroing::WRITE {
            self.fill_zeroes(rq.tag);
        }
    }

    /// Fills the tag's vectors with the zeroes to write next.
    #[cold]
    fn fill_zeroes(&mut self, tag: Tag) {
        let command = &mut self.table[tag.index()];
        let at = tag.index() * self.max_segments;
        let vectors = &mut self.vectors[at..at + self.max_segments];
        let left = command.len - command.nr_done;
        let zeroes = zeroing::segments(left, self.max_segments);
        command.nr_vectors = vectors::fill(vectors, zeroes) as u16;
    }

    /// Fills the tag's vectors and merges adjacent segments. Returns the number of vectors.
    fn fill_vectors(
        &mut self,
        tag: Tag,
        begin: [Segment; 2],
        rest: impl Iterator<Item = Segment>,
    ) -> u16 {
        let at = tag.index() * self.max_segments;
        let vectors = &mut self.vectors[at..at + self.max_segments];
        vectors::fill(vectors, begin.into_iter().chain(rest)) as u16
    }

    /// Returns the entry for the command of a tag.
    #[inline]
    pub(super) fn entry(&self, tag: Tag) -> Entry {
        let command = &self.table[tag.index()];
        match command.op {
            Op::Read | Op::Write => self.data_entry(tag, command),
            Op::Flush => opcode::Fsync::new(FILE).flags(sync_flags(command.metadata)).build(),
            Op::WriteZeroes if command.mode == zeroing::WRITE => self.vectored_entry(tag, command),
            Op::Discard if command.mode == zeroing::DISCARD => discard(command.start, command.len),
            Op::Discard if command.mode == zeroing::DISCARD_BY_WORKER => {
                discard(command.start, command.len).flags(Flags::ASYNC)
            }
            Op::Discard | Op::WriteZeroes => opcode::Fallocate::new(FILE, command.len)
                .offset(command.start)
                .mode(command.mode)
                .build(),
        }
    }

    /// Returns the entry of a read or write.
    #[inline]
    fn data_entry(&self, tag: Tag, command: &Command) -> Entry {
        if command.nr_vectors != 1 {
            return self.vectored_entry(tag, command);
        }
        // A request is at most `max_sectors` long, far below 4 GiB.
        let (start, len) = (command.start, command.len as u32);
        let addr: *mut u8 = std::ptr::with_exposed_provenance_mut(command.addr);
        let flags = if command.fua { libc::RWF_DSYNC } else { 0 };
        let registered = self.registered(command.addr, command.len);
        if registered.is_some() {
            self.count_registered();
        }
        match (command.op, registered) {
            (Op::Read, None) => opcode::Read::new(FILE, addr, len).offset(start).build(),
            (Op::Read, Some(index)) => {
                opcode::ReadFixed::new(FILE, addr, len, index).offset(start).build()
            }
            (_, None) => opcode::Write::new(FILE, addr, len).offset(start).rw_flags(flags).build(),
            (_, Some(index)) => opcode::WriteFixed::new(FILE, addr, len, index)
                .offset(start)
                .rw_flags(flags)
                .build(),
        }
    }

    /// Returns the entry of a read or write of several segments.
    fn vectored_entry(&self, tag: Tag, command: &Command) -> Entry {
        let (at, nr) = (tag.index() * self.max_segments, command.nr_vectors);
        let list = &self.vectors[at..at + usize::from(nr)];
        let registered = self.registered_vectors(list);
        let vectors = vectors::as_ptr(list);
        let (start, nr) = (command.start + command.nr_done, u32::from(nr));
        let flags = if command.fua { libc::RWF_DSYNC } else { 0 };
        if let Some(index) = registered {
            self.count_registered();
            return match command.op {
                Op::Read => opcode::ReadvFixed::new(FILE, vectors, nr, index).offset(start).build(),
                _ => opcode::WritevFixed::new(FILE, vectors, nr, index)
                    .offset(start)
                    .rw_flags(flags)
                    .build(),
            };
        }
        match command.op {
            Op::Read => opcode::Readv::new(FILE, vectors, nr).offset(start).build(),
            _ => opcode::Writev::new(FILE, vectors, nr).offset(start).rw_flags(flags).build(),
        }
    }

    /// Returns the index of registered memory that contains all of these vectors, if the kernel has
    /// operations for that.
    #[inline]
    fn registered_vectors(&self, list: &[Vector]) -> Option<u16> {
        if !self.has_vectored_fixed || self.ranges.is_empty() {
            return None;
        }
        let range = self.range_of(list.first()?.addr().addr())?;
        let all =
            list.iter().all(|vector| range.contains(vector.addr().addr(), vector.len() as u64));
        all.then_some(range.index)
    }

    /// Makes the write of a tag in place of its entry. Returns a result in the form of the entry's.
    #[inline]
    pub(super) fn write_now(&self, tag: Tag, file: &File, nr_syscalls: &mut u64) -> i32 {
        let command = &self.table[tag.index()];
        let (at, nr) = (tag.index() * self.max_segments, usize::from(command.nr_vectors));
        let vectors = vectors::as_ptr(&self.vectors[at..at + self.max_segments]);
        let addr: *const libc::c_void = std::ptr::with_exposed_provenance(command.addr);
        let (fd, start) = (file.as_raw_fd(), command.start as libc::off_t);
        loop {
            *nr_syscalls += 1;
            // SAFETY: the file is open. The memory of the segments stays valid, and nothing else
            // uses it, until the completion is reaped (K2). The vectors belong to the tag.
            let answer = unsafe {
                match nr {
                    1 => libc::pwrite(fd, addr, command.len as usize, start),
                    _ => libc::pwritev(fd, vectors, nr as i32, start),
                }
            };
            if answer >= 0 {
                return answer as i32;
            }
            match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                errno => return -errno.unwrap_or(libc::EIO),
            }
        }
    }

    /// Returns the result of a request whose entry completed with `answer`. Returns `None` if the
    /// request must be submitted again.
    #[inline]
    pub(super) fn ended(&mut self, tag: Tag, answer: i32) -> Option<Result<u64, BlockStatus>> {
        let command = &self.table[tag.index()];
        if answer >= 0 && command.op != Op::WriteZeroes {
            // A flush or a range that succeeds counts as a whole.
            let moves_data = command.op.moves_data();
            return Some(Ok(if moves_data { answer as u64 } else { command.len }));
        }
        self.ended_oddly(tag, answer)
    }

    #[cold]
    fn ended_oddly(&mut self, tag: Tag, answer: i32) -> Option<Result<u64, BlockStatus>> {
        if self.is_sent_again(tag, answer) {
            let is_cancelled = self.of(tag).is_cancelled;
            return is_cancelled.then_some(Err(BlockStatus::Timeout));
        }
        let command = self.of(tag);
        let is_short = command.mode == zeroing::WRITE && command.nr_done < command.len;
        Some(match answer {
            0.. if is_short => Err(BlockStatus::Io),
            0.. => Ok(command.len),
            failure => Err(errno::to_status(-failure)),
        })
    }

    /// Returns whether a request whose entry completed must be submitted again, and updates its
    /// command for that. The next entry works in another way if a file system cannot zero a range,
    /// or a device cannot discard one without blocking.
    ///
    /// The next entry is the same if the thread that submitted the request has ended since. In that
    /// case the kernel cannot continue a read whose page has arrived, because the thread's memory
    /// is gone (EFAULT). It cancels requests that the thread's workers have not begun (ECANCELED).
    /// The layer's own cancellations have the same results, and those requests are not submitted.
    /// It may interrupt those that they have begun (EINTR, from file systems that wait for another
    /// party: FUSE, NFS). No part of such a request was done. A truly invalid address fails each
    /// time.
    fn is_sent_again(&mut self, tag: Tag, result: i32) -> bool {
        let command = &mut self.table[tag.index()];
        let failed = (result < 0).then_some(-result);
        if command.op == Op::WriteZeroes
            && let Some(mode) = zeroing::next(command.mode, failed)
        {
            command.mode = mode;
            if mode == zeroing::WRITE {
                self.fill_zeroes(tag);
            }
            return true;
        }
        if command.op == Op::Discard
            && let Some(mode) = zeroing::next_discard(command.mode, failed)
        {
            command.mode = mode;
            return true;
        }
        if command.op == Op::WriteZeroes && command.mode == zeroing::WRITE && result > 0 {
            let left = command.len - command.nr_done;
            let wanted = zeroing::segments(left, self.max_segments).map(|zeroes| zeroes.len);
            let is_cut = (result as u64) < wanted.map(u64::from).sum();
            command.nr_done += result as u64;
            if is_cut && !self.goes_on {
                return false;
            }
            let is_short = command.nr_done < command.len;
            if is_short {
                self.fill_zeroes(tag);
            }
            return is_short;
        }
        let left_behind = match -result {
            libc::ECANCELED | libc::EINTR => true,
            // A flush has no memory, so this is an error of the file, which no other flush reports.
            // For a FUA write it may be one, because the command includes a sync.
            libc::EFAULT => command.op != Op::Flush && !command.fua,
            _ => false,
        };
        let again = left_behind && command.nr_tries < NR_TRIES_MAX;
        command.nr_tries += u8::from(again);
        again
    }
}
