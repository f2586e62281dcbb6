//! Driving a file through io_uring.
//!
//! One ring for one thread. Each request is one submission entry, so a ring of as many entries as
//! there are tags is never full, and its completion queue, twice as long, never overflows. What was
//! queued is submitted with one system call per batch, and waiting submits and waits in one.
//!
//! A pushed entry may be taken by the kernel even if the call that submits it fails, so a request
//! is over only when its completion was seen.
// It hands addresses to the kernel.
#![allow(unsafe_code)]

use crate::errno;
use crate::info::Feature;
use forebay_core::{Completions, Driver, Issue, IssuedRequest, Look, Op, QueueLimits, Tag};
use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The file's place in the ring's table.
const FILE: types::Fixed = types::Fixed(0);

const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO_AND_GROW: i32 = libc::FALLOC_FL_ZERO_RANGE;
/// Allocates, which makes the file longer where it ends before the range, and never shorter.
const GROW: i32 = 0;
const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;

pub(super) struct UringDriver {
    ring: IoUring,
    limits: QueueLimits,
    /// `max_segments` vectors for each tag.
    iovecs: Box<[libc::iovec]>,
    /// What each tag is doing, to tell its completion.
    commands: Box<[Command]>,
    nr_in_flight: u32,
    /// Entries that were pushed since the last commit.
    nr_uncommitted: u32,
    /// The file system cannot zero a range.
    no_zero_range: bool,
    nr_syscalls: u64,
    /// Kept open for the ring.
    _file: File,
}

#[derive(Clone, Copy, Debug)]
struct Command {
    op: Op,
    start: u64,
    len: u64,
    /// How a range is changed: the mode of `fallocate`.
    mode: i32,
}

impl UringDriver {
    pub(super) fn new(
        file: File,
        limits: QueueLimits,
        depth: u32,
        features: &mut Vec<Feature>,
    ) -> io::Result<UringDriver> {
        let entries = depth.next_power_of_two();
        let (ring, deferred) = match single_issuer(entries) {
            Ok(ring) => (ring, true),
            Err(_) => (IoUring::new(entries)?, false),
        };
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        features.push(Feature::present("io_uring", format!("{entries} entries, registered file")));
        features.push(match deferred {
            true => Feature::present("defer_taskrun", "completions run when they are asked for"),
            false => Feature::missing("defer_taskrun", "needs Linux 6.1"),
        });
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let idle = Command { op: Op::Flush, start: 0, len: 0, mode: 0 };
        Ok(UringDriver {
            ring,
            limits,
            iovecs: vec![empty; (depth * limits.max_segments) as usize].into(),
            commands: vec![idle; depth as usize].into(),
            nr_in_flight: 0,
            nr_uncommitted: 0,
            no_zero_range: false,
            nr_syscalls: 0,
            _file: file,
        })
    }

    /// Fills the tag's vectors; neighbours in memory become one. Returns how many there are.
    fn fill_iovecs(&mut self, rq: &IssuedRequest<'_>) -> usize {
        let first = rq.tag.index() * self.limits.max_segments as usize;
        let mut nr: usize = 0;
        for segment in rq.segments() {
            let iov_base = std::ptr::with_exposed_provenance_mut(segment.addr);
            let iov_len = segment.len as usize;
            match nr.checked_sub(1).map(|previous| &mut self.iovecs[first + previous]) {
                Some(previous)
                    if previous.iov_base.wrapping_byte_add(previous.iov_len) == iov_base =>
                {
                    previous.iov_len += iov_len;
                }
                _ => {
                    assert!(nr < self.limits.max_segments as usize, "a request keeps its limits");
                    self.iovecs[first + nr] = libc::iovec { iov_base, iov_len };
                    nr += 1;
                }
            }
        }
        nr
    }

    /// The entry of a read or write.
    fn data_entry(&mut self, rq: &IssuedRequest<'_>) -> Entry {
        let nr = self.fill_iovecs(rq);
        let first = rq.tag.index() * self.limits.max_segments as usize;
        let iovecs = &self.iovecs[first..first + nr];
        let flags = if rq.fua { libc::RWF_DSYNC } else { 0 };
        // A request is at most `max_sectors` long, far below 4 GiB, and has at most 128 vectors.
        match (rq.op, iovecs) {
            (Op::Read, [one]) => opcode::Read::new(FILE, one.iov_base.cast(), one.iov_len as u32)
                .offset(rq.start)
                .build(),
            (Op::Read, many) => {
                opcode::Readv::new(FILE, many.as_ptr(), nr as u32).offset(rq.start).build()
            }
            (_, [one]) => opcode::Write::new(FILE, one.iov_base.cast(), one.iov_len as u32)
                .offset(rq.start)
                .rw_flags(flags)
                .build(),
            (_, many) => opcode::Writev::new(FILE, many.as_ptr(), nr as u32)
                .offset(rq.start)
                .rw_flags(flags)
                .build(),
        }
    }

    /// How to do an operation on a range, at first. Zeroes behind the end of a file that grows make
    /// it grow, as a write would; a punched hole cannot.
    fn range_mode(&self, op: Op) -> i32 {
        match op {
            Op::WriteZeroes => match (self.limits.capacity_bytes, self.no_zero_range) {
                (None, false) => ZERO_AND_GROW,
                (None, true) => GROW,
                (Some(_), false) => ZERO_RANGE,
                (Some(_), true) => PUNCH_HOLE,
            },
            Op::Discard => PUNCH_HOLE,
            Op::Read | Op::Write | Op::Flush => 0,
        }
    }

    fn push(&mut self, tag: Tag, entry: Entry) {
        let entry = entry.user_data(tag.index() as u64);
        // SAFETY: the memory of the segments stays valid until the completion was reaped (K2), and
        // `iovecs` lives as long as the ring, a tag's part of it unchanged while it is in flight.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the ring has an entry for every tag");
    }

    /// Submits what was pushed, all of it, and waits for `nr` completions. May return early: on a
    /// signal, or when there are completions that the kernel wants taken first; what is not
    /// submitted then stays in the ring, for the next call.
    fn enter(&mut self, nr: u32) {
        loop {
            self.nr_syscalls += 1;
            match self.ring.submit_and_wait(nr as usize) {
                // The kernel may stop before the last entry, and then has not waited.
                Ok(_) if self.ring.submission().is_empty() => return,
                Ok(_) => continue,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) if nr > 0 => return,
                    Some(libc::EINTR) => {}
                    // Short of memory, or of room for completions: both pass.
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                        if !self.ring.completion().is_empty() {
                            return;
                        }
                        std::thread::yield_now();
                    }
                    _ => panic!("io_uring_enter on a ring of our own: {error}"),
                },
            }
        }
    }

    /// Whether there is something that only a system call moves on. Entries that were queued but
    /// not committed do not count: their commit comes.
    fn needs_enter(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || self.nr_uncommitted == 0 && !submission.is_empty()
    }

    /// Sends write-zeroes again that take another way.
    #[cold]
    fn send_again(&mut self, commands: &[(Tag, i32)]) {
        self.no_zero_range = true;
        for (tag, mode) in commands {
            let command = &mut self.commands[tag.index()];
            command.mode = *mode;
            let entry = range_entry(*command);
            self.push(*tag, entry);
        }
        self.enter(0);
    }
}

/// The next mode for write-zeroes, where a file system cannot zero a range: a hole is punched; in a
/// file that grows, after its range has been allocated.
fn next_mode(command: Command, result: i32) -> Option<i32> {
    if command.op != Op::WriteZeroes {
        return None;
    }
    let refused = -result == libc::EOPNOTSUPP;
    match command.mode {
        ZERO_RANGE if refused => Some(PUNCH_HOLE),
        ZERO_AND_GROW if refused => Some(GROW),
        GROW if result >= 0 => Some(PUNCH_HOLE),
        _ => None,
    }
}

/// The entry of a discard or write-zeroes.
fn range_entry(command: Command) -> Entry {
    opcode::Fallocate::new(FILE, command.len).offset(command.start).mode(command.mode).build()
}

/// A ring for one thread, whose completions run when that thread asks for them.
fn single_issuer(entries: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(entries)
}

impl Driver for UringDriver {
    fn limits(&self) -> QueueLimits {
        self.limits
    }

    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _last: bool) -> Issue {
        let mode = self.range_mode(rq.op);
        let command = Command { op: rq.op, start: rq.start, len: rq.len, mode };
        let entry = match rq.op {
            Op::Read | Op::Write => self.data_entry(rq),
            Op::Flush => opcode::Fsync::new(FILE).build(),
            Op::Discard | Op::WriteZeroes => range_entry(command),
        };
        self.commands[rq.tag.index()] = command;
        self.push(rq.tag, entry);
        self.nr_in_flight += 1;
        self.nr_uncommitted += 1;
        Issue::Queued
    }

    fn commit_rqs(&mut self) {
        self.nr_uncommitted = 0;
        self.enter(0);
    }

    fn reap(&mut self, done: &mut Completions, look: Look) {
        if self.nr_in_flight == 0 {
            return;
        }
        // Completions that the kernel has deferred, or entries that an early return left behind.
        if look == Look::Hard && self.ring.completion().is_empty() && self.needs_enter() {
            self.enter(0);
        }
        let mut again = Vec::new();
        for entry in self.ring.completion() {
            let tag = Tag::from_index(entry.user_data() as usize);
            let command = self.commands[tag.index()];
            if let Some(mode) = next_mode(command, entry.result()) {
                again.push((tag, mode));
                continue;
            }
            let result = match entry.result() {
                moved if moved >= 0 && command.op.moves_data() => Ok(moved as u64),
                success if success >= 0 => Ok(command.len),
                failure => Err(errno::to_status(-failure)),
            };
            self.nr_in_flight -= 1;
            done.push(tag, result);
        }
        if !again.is_empty() {
            self.send_again(&again);
        }
    }

    fn wait(&mut self, nr_completions: u32) {
        self.nr_uncommitted = 0;
        self.enter(nr_completions);
    }

    fn nr_syscalls(&self) -> u64 {
        self.nr_syscalls
    }
}

impl Drop for UringDriver {
    /// The layer drains before it drops a driver: nothing is in flight whose memory could go away
    /// under the kernel.
    fn drop(&mut self) {
        assert!(self.nr_in_flight == 0 || std::thread::panicking(), "a driver is drained first");
        // The kernel takes a ring apart in its own time; the file is let go of now. If that fails,
        // it is let go of then.
        let _ = self.ring.submitter().unregister_files();
    }
}
