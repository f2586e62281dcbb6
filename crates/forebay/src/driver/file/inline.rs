//! Buffered writes that the driver makes itself, with one system call each.
//!
//! Some file systems, such as ext4, refuse buffered writes that must not wait (`RWF_NOWAIT`). On
//! these io_uring passes each write to a kernel worker: two context switches for a copy into the
//! page cache. So the driver makes such writes on the committing thread, after the rest of the
//! batch was submitted. The next reap returns them like any completion.
//!
//! The driver does so only where it may hold up that thread:
//! - in a queue that one thread owns: in a shared queue, the thread that holds the token would hold
//!   up all others;
//! - for whole blocks: a part of a block that is not in memory would have to be read first;
//! - for [`MAX_BYTES`] in one batch. A larger batch goes through io_uring as a whole: a kernel
//!   worker and this thread would wait for each other at the file's lock;
//! - not for a while after writes were found to sleep: the kernel slows down a thread that fills
//!   memory with dirty pages, and its workers may sleep instead.
//!
//! A write that must be durable when it ends, and a flush, wait for the device. They always go
//! through io_uring.
// It makes system calls.
#![allow(unsafe_code)]

use super::commands::Commands;
use crate::driver::Mode;
use crate::file_system;
use crate::info::Feature;
use crate::sys::clock;
use forebay_core::{IssuedRequest, Op, Tag};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// The limit of one batch in bytes: 0.15 to 0.3 ms of copying.
const MAX_BYTES: u64 = 1 << 20;

/// A batch that takes longer than this slept, or its thread was preempted, ns.
const SLOW_NS: u64 = 1_000_000;

/// The number of batches after a slow one that are checked for sleeps. A check costs two system
/// calls.
const NR_WATCHED: u32 = 64;

/// The pause of inline writes after some have slept, ns: about ten times the pause of a writer that
/// the kernel slows down.
const REST_NS: u64 = 100_000_000;

/// How the buffered writes of a file are made, and why not inline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// Writes of whole blocks are made inline. The block size in bytes is a power of two.
    Inline(u32),
    Ring(&'static str),
}

impl Writes {
    pub(super) fn feature(self) -> Feature {
        match self {
            Writes::Inline(block) => Feature::present(
                "inline_writes",
                format!(
                    "whole blocks of {block} bytes, {} KiB a batch, by the submitting thread: \
                     io_uring would use a worker thread for buffered writes on this file system",
                    MAX_BYTES / 1024
                ),
            ),
            Writes::Ring(why) => Feature::missing("inline_writes", why),
        }
    }
}

/// The result of a buffered write without waiting, tried on a scratch file beside the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nowait {
    /// The kernel tries it.
    Tried,
    Refused,
    /// The test was not possible.
    Unknown,
}

/// Returns how to make the buffered writes of a regular file. `block` is its file system's block
/// size.
pub(super) fn of_file(file: &File, block: u32, nowait: Nowait) -> Writes {
    match nowait {
        Nowait::Tried => Writes::Ring("not needed: io_uring makes buffered writes at once here"),
        Nowait::Unknown => Writes::Ring("its file system could not be asked (no O_TMPFILE beside)"),
        Nowait::Refused if !file_system::is_local(file) => {
            Writes::Ring("not known to be safe: writes of its file system may wait for others")
        }
        Nowait::Refused if is_synchronous(file) => {
            Writes::Ring("its writes wait for the device (sync, chattr +S)")
        }
        Nowait::Refused => Writes::Inline(block),
    }
}

/// Tries such a write on a scratch file that no other code uses.
pub(super) fn ask_nowait(beside: &File) -> Nowait {
    let mut byte = [0u8; 1];
    let vector = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: an open descriptor, and one vector of a byte that the kernel reads.
    let answer =
        unsafe { libc::pwritev2(beside.as_raw_fd(), &raw const vector, 1, 0, libc::RWF_NOWAIT) };
    match (answer, std::io::Error::last_os_error().raw_os_error()) {
        (0.., _) | (_, Some(libc::EAGAIN)) => Nowait::Tried,
        (_, Some(libc::EOPNOTSUPP)) => Nowait::Refused,
        (..) => Nowait::Unknown,
    }
}

/// Returns whether each write is written back before it ends, by mount option or file flag.
fn is_synchronous(file: &File) -> bool {
    /// `FS_IOC_GETFLAGS` and `FS_SYNC_FL` of <linux/fs.h>.
    const GET_FLAGS: libc::Ioctl = 0x8008_6601_u32 as libc::Ioctl;
    const SYNC: libc::c_int = 8;
    let mut statvfs = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the C library writes one `statvfs` at most.
    let answer = unsafe { libc::fstatvfs(file.as_raw_fd(), statvfs.as_mut_ptr()) };
    // SAFETY: all zeroes is a valid value of this plain structure, and the call fills it in.
    let mount = unsafe { statvfs.assume_init() }.f_flag;
    let by_mount = answer != 0 || mount & libc::ST_SYNCHRONOUS != 0;
    let mut flags: [libc::c_int; 2] = [0; 2];
    // SAFETY: this request writes one number of 32 bits, or of 64 bits on some file systems.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), GET_FLAGS, flags.as_mut_ptr()) };
    by_mount || answer == 0 && flags[0] & SYNC != 0
}

/// The inline writes of one queue.
#[derive(Debug)]
pub(super) struct Inline {
    /// A request covers whole blocks if its start and length have none of these bits.
    part_of_block: u64,
    /// Taken, but not written yet.
    queued: Vec<Tag>,
    /// Bytes of the current batch, including those beyond the limit.
    nr_bytes: u64,
    /// Written, but not reaped; with results in io_uring's form: a count, or a negative errno.
    done: Vec<(Tag, i32)>,
    nr_watched: u32,
    /// The end of the pause of inline writes, if there is one.
    rests_until_ns: Option<u64>,
}

impl Inline {
    /// Creates the inline writes of a queue of `depth` tags.
    pub(super) fn new(writes: Writes, mode: Mode, depth: u32) -> Inline {
        match (writes, mode) {
            (Writes::Inline(block), Mode::Owned) => {
                assert!(block.is_power_of_two());
                Inline::whole(u64::from(block) - 1, depth as usize)
            }
            _ => Inline::off(),
        }
    }

    /// Returns inline writes that are off: every length has one of the bits of the mask.
    pub(super) fn off() -> Inline {
        Inline::whole(!0, 0)
    }

    fn whole(part_of_block: u64, nr: usize) -> Inline {
        let (queued, done) = (Vec::with_capacity(nr), Vec::with_capacity(nr));
        Inline { part_of_block, queued, nr_bytes: 0, done, nr_watched: 0, rests_until_ns: None }
    }

    /// Takes a request if it is to be written inline; otherwise adds it to the ring's requests.
    #[inline]
    pub(super) fn take(&mut self, rq: &IssuedRequest<'_>, ring: &mut Vec<Tag>) {
        let is_whole = rq.op == Op::Write && (rq.start | rq.len) & self.part_of_block == 0;
        if !is_whole || rq.fua {
            return ring.push(rq.tag);
        }
        self.take_write(rq, ring);
    }

    fn take_write(&mut self, rq: &IssuedRequest<'_>, ring: &mut Vec<Tag>) {
        self.nr_bytes += rq.len;
        if self.nr_bytes > MAX_BYTES || self.rests() {
            ring.append(&mut self.queued);
            return ring.push(rq.tag);
        }
        self.queued.push(rq.tag);
    }

    /// Ends a batch. Returns whether any write was taken: then [`Inline::make`] is due.
    #[inline]
    pub(super) fn end_batch(&mut self) -> bool {
        self.nr_bytes = 0;
        !self.queued.is_empty()
    }

    #[inline]
    fn rests(&mut self) -> bool {
        let is_over = |until| clock::now_ns() >= until;
        self.rests_until_ns.take_if(|until| is_over(*until));
        self.rests_until_ns.is_some()
    }

    /// Makes all writes taken. Adds the system calls to `nr_syscalls`.
    pub(super) fn make(&mut self, commands: &Commands, file: &File, nr_syscalls: &mut u64) {
        let switches_before = (self.nr_watched > 0).then(|| nr_switches(nr_syscalls));
        let begin = clock::now_ns();
        for tag in self.queued.drain(..) {
            let answer = commands.write_now(tag, file, nr_syscalls);
            self.done.push((tag, answer));
        }
        self.nr_watched = self.nr_watched.saturating_sub(1);
        let end = clock::now_ns();
        if end - begin > SLOW_NS {
            let has_slept = switches_before.is_some_and(|nr| nr_switches(nr_syscalls) > nr);
            self.was_slow(has_slept, end);
        }
    }

    /// Handles a slow batch. Its thread slept or was preempted. Only a watched batch shows which: a
    /// sleep is a voluntary context switch.
    #[cold]
    fn was_slow(&mut self, has_slept: bool, now_ns: u64) {
        self.nr_watched = NR_WATCHED;
        if has_slept {
            self.rests_until_ns = Some(now_ns + REST_NS);
        }
    }

    /// Returns the number of writes taken and not reaped.
    pub(super) fn nr(&self) -> usize {
        self.queued.len() + self.done.len()
    }

    /// Returns the number of writes made and not reaped.
    #[inline]
    pub(super) fn nr_done(&self) -> usize {
        self.done.len()
    }

    /// Returns the results and removes them, oldest first.
    #[inline]
    pub(super) fn done(&mut self) -> impl Iterator<Item = (Tag, i32)> + '_ {
        self.done.drain(..)
    }
}

/// Returns the number of voluntary context switches of this thread, each of which is a wait.
#[cold]
fn nr_switches(nr_syscalls: &mut u64) -> i64 {
    *nr_syscalls += 1;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage`.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: all zeroes is a valid value of this plain structure, and the kernel fills it in.
    unsafe { usage.assume_init() }.ru_nvcsw
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned() -> Inline {
        Inline::new(Writes::Inline(4096), Mode::Owned, 4)
    }

    #[test]
    fn a_slow_batch_is_followed_by_a_rest_only_if_the_next_is_seen_to_sleep() {
        let mut inline = owned();
        inline.was_slow(false, clock::now_ns());
        assert!(!inline.rests() && inline.nr_watched == NR_WATCHED);
        inline.was_slow(true, clock::now_ns());
        assert!(inline.rests());
        inline.rests_until_ns = Some(clock::now_ns());
        assert!(!inline.rests() && inline.rests_until_ns.is_none());
    }

    #[test]
    fn a_sleep_is_a_switch_that_the_thread_made_itself() {
        let mut nr_syscalls = 0;
        let before = nr_switches(&mut nr_syscalls);
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(nr_switches(&mut nr_syscalls) > before);
        assert_eq!(nr_syscalls, 2);
    }

    #[test]
    fn writes_use_the_ring_unless_inline_writes_are_known_to_work() {
        let file = tempfile::tempfile().expect("a scratch file");
        for nowait in [Nowait::Tried, Nowait::Unknown] {
            assert!(matches!(of_file(&file, 4096, nowait), Writes::Ring(_)));
        }
        // A file of the kernel itself, on a file system that is not in the list.
        let other = File::open("/proc/self/status").expect("a file of the kernel's");
        assert!(matches!(of_file(&other, 4096, Nowait::Refused), Writes::Ring(_)));
    }
}
