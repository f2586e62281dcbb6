//! What each tag is doing, and the ring's entry that does it.
// It makes a system call in an entry's place.
#![allow(unsafe_code)]

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

/// The file's place in the ring's table.
const FILE: types::Fixed = types::Fixed(0);

/// The registered memory's place in the ring's table.
const ARENA: u16 = 0;

/// How often a request is sent at most: its thread may have ended each time.
const NR_TRIES_MAX: u8 = 8;

/// How much a flush makes durable: as `fsync` does, or as `fdatasync`, which is enough to read the
/// data back. A block device has no metadata of its own, and does the same for both.
fn sync_flags(metadata: bool) -> types::FsyncFlags {
    if metadata { types::FsyncFlags::empty() } else { types::FsyncFlags::DATASYNC }
}

/// The entry by which a block device discards a range (since Linux 6.12; `BLOCK_URING_CMD_DISCARD`
/// in <linux/blkdev.h>).
pub(super) fn discard(start: u64, len: u64) -> Entry {
    const DISCARD: u32 = 0x1200;
    let mut cmd = [0; 16];
    cmd[..8].copy_from_slice(&len.to_ne_bytes());
    opcode::UringCmd16::new(FILE, DISCARD).addr(Some(start)).cmd(cmd).build()
}

/// The commands of all tags, and their vectors, which stay where they are as long as this lives.
pub(super) struct Commands {
    table: Box<[Command]>,
    /// `max_segments` for each tag.
    vectors: Box<[Vector]>,
    max_segments: usize,
    /// Whether zeroes that were written in part are gone on with ([`zeroing::Ranges`]).
    goes_on: bool,
    /// Where the registered memory is, if there is any: first byte, and length.
    registered: (usize, usize),
    /// Kept as long as a ring knows it.
    arena: Option<Arc<Arena>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) op: Op,
    fua: bool,
    /// Of a flush: all metadata as well.
    metadata: bool,
    nr_vectors: u16,
    nr_tries: u8,
    /// The memory, where it is one stretch, of the command's length; no vector is read for that.
    addr: usize,
    start: u64,
    pub(super) len: u64,
    /// How a range is changed: the mode of `fallocate`, or what `zeroing` has beside those.
    mode: i32,
    /// How many zeroes were written, where that is how a range is zeroed.
    nr_done: u64,
}

impl Command {
    /// Notes how it changes a range in the end: what was tried before is of no use.
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
        };
        Commands {
            table: vec![idle; depth as usize].into(),
            vectors: vec![Vector::EMPTY; (depth * limits.max_segments) as usize].into(),
            max_segments: limits.max_segments as usize,
            goes_on: limits.exact_counts,
            registered: arena.as_ref().map_or((0, 0), |arena| (arena.addr(), arena.len())),
            arena,
        }
    }

    /// How many tags there are.
    pub(super) fn depth(&self) -> u32 {
        self.table.len() as u32
    }

    /// Whether memory is registered with the ring.
    pub(super) fn has_arena(&self) -> bool {
        self.arena.is_some()
    }

    /// Whether all of a stretch is registered memory.
    #[inline]
    fn is_registered(&self, addr: usize, len: u64) -> bool {
        let (first, nr) = self.registered;
        let offset = addr.wrapping_sub(first);
        offset < nr && len <= (nr - offset) as u64
    }

    /// What a tag is doing.
    #[inline]
    pub(super) fn of(&self, tag: Tag) -> Command {
        self.table[tag.index()]
    }

    /// Notes a request. Ranges are changed by `mode`.
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
        };
        if mode == zeroing::WRITE {
            self.fill_zeroes(rq.tag);
        }
    }

    /// Fills the tag's vectors with the zeroes that are to be written next.
    #[cold]
    fn fill_zeroes(&mut self, tag: Tag) {
        let command = &mut self.table[tag.index()];
        let at = tag.index() * self.max_segments;
        let vectors = &mut self.vectors[at..at + self.max_segments];
        let left = command.len - command.nr_done;
        let zeroes = zeroing::segments(left, self.max_segments);
        command.nr_vectors = vectors::fill(vectors, zeroes) as u16;
    }

    /// Fills the tag's vectors; neighbours in memory become one. Returns how many there are.
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

    /// The entry for what a tag is doing.
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

    /// The entry of a read or write.
    #[inline]
    fn data_entry(&self, tag: Tag, command: &Command) -> Entry {
        if command.nr_vectors != 1 {
            return self.vectored_entry(tag, command);
        }
        // A request is at most `max_sectors` long, far below 4 GiB.
        let (start, len) = (command.start, command.len as u32);
        let addr: *mut u8 = std::ptr::with_exposed_provenance_mut(command.addr);
        let flags = if command.fua { libc::RWF_DSYNC } else { 0 };
        match (command.op, self.is_registered(command.addr, command.len)) {
            (Op::Read, false) => opcode::Read::new(FILE, addr, len).offset(start).build(),
            (Op::Read, true) => {
                opcode::ReadFixed::new(FILE, addr, len, ARENA).offset(start).build()
            }
            (_, false) => opcode::Write::new(FILE, addr, len).offset(start).rw_flags(flags).build(),
            (_, true) => opcode::WriteFixed::new(FILE, addr, len, ARENA)
                .offset(start)
                .rw_flags(flags)
                .build(),
        }
    }

    /// The entry of a read or write of several stretches of memory.
    fn vectored_entry(&self, tag: Tag, command: &Command) -> Entry {
        let (at, nr) = (tag.index() * self.max_segments, command.nr_vectors);
        let vectors = vectors::as_ptr(&self.vectors[at..at + usize::from(nr)]);
        let (start, nr) = (command.start + command.nr_done, u32::from(nr));
        let flags = if command.fua { libc::RWF_DSYNC } else { 0 };
        match command.op {
            Op::Read => opcode::Readv::new(FILE, vectors, nr).offset(start).build(),
            _ => opcode::Writev::new(FILE, vectors, nr).offset(start).rw_flags(flags).build(),
        }
    }

    /// Makes the write that a tag is doing, in place of its entry. The answer is as the entry's.
    #[inline]
    pub(super) fn write_now(&self, tag: Tag, file: &File, nr_syscalls: &mut u64) -> i32 {
        let command = &self.table[tag.index()];
        let (at, nr) = (tag.index() * self.max_segments, usize::from(command.nr_vectors));
        let vectors = vectors::as_ptr(&self.vectors[at..at + self.max_segments]);
        let addr: *const libc::c_void = std::ptr::with_exposed_provenance(command.addr);
        let (fd, start) = (file.as_raw_fd(), command.start as libc::off_t);
        loop {
            *nr_syscalls += 1;
            // SAFETY: the file is open. The memory of the segments stays valid, and nobody else's,
            // until the completion was reaped (K2); the vectors are the tag's own.
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

    /// What came of a request whose entry came back with `answer`. None: it is to be sent again.
    #[inline]
    pub(super) fn ended(&mut self, tag: Tag, answer: i32) -> Option<Result<u64, BlockStatus>> {
        let command = &self.table[tag.index()];
        if answer >= 0 && command.op != Op::WriteZeroes {
            // A flush, and a range that is done, count as a whole.
            let moves_data = command.op.moves_data();
            return Some(Ok(if moves_data { answer as u64 } else { command.len }));
        }
        self.ended_oddly(tag, answer)
    }

    #[cold]
    fn ended_oddly(&mut self, tag: Tag, answer: i32) -> Option<Result<u64, BlockStatus>> {
        if self.is_sent_again(tag, answer) {
            return None;
        }
        let command = self.of(tag);
        let is_short = command.mode == zeroing::WRITE && command.nr_done < command.len;
        Some(match answer {
            0.. if is_short => Err(BlockStatus::Io),
            0.. => Ok(command.len),
            failure => Err(errno::to_status(-failure)),
        })
    }

    /// Returns whether a request whose entry came back is to be sent again; if so, it is noted how.
    /// It goes another way where a file system cannot zero a range, or a device cannot discard one
    /// without a wait.
    ///
    /// It goes the same way if the thread that submitted it has ended since. Then the kernel cannot
    /// go on with a read whose page has come in, for want of that thread's memory (EFAULT); it
    /// cancels what that thread's workers have not begun (ECANCELED); and it may interrupt what
    /// they have begun (EINTR, of file systems that wait for others: FUSE, NFS). Nothing of it was
    /// done. An address that is bad in earnest fails each time.
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
        let left_behind = matches!(-result, libc::ECANCELED | libc::EFAULT | libc::EINTR);
        let again = left_behind && command.nr_tries < NR_TRIES_MAX;
        command.nr_tries += u8::from(again);
        again
    }
}
