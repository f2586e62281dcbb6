//! The memory and the descriptors of the program, as iocbs name them.
// Reads memory by the addresses that the program passes.
#![allow(unsafe_code)]

use crate::abi::{IoEvent, Iocb, opcode};
use crate::raw::Errno;
use forebay_core::{Op, Segment};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The most vectors of an iocb, as in the kernel (`UIO_MAXIOV`).
const VECTORS_MAX: u64 = 1024;

/// Copies the addresses of iocbs from the program's list.
///
/// # Safety
/// The list has `nr` addresses.
pub(crate) unsafe fn addresses(list: *const usize, nr: usize) -> Vec<usize> {
    // SAFETY: the caller's promise.
    (0..nr).map(|nth| unsafe { list.add(nth).read_unaligned() }).collect()
}

/// The program's array for events, of which the first ones are filled.
#[derive(Debug)]
pub(crate) struct EventArray {
    first: *mut IoEvent,
    nr: usize,
    max: usize,
}

impl EventArray {
    /// # Safety
    /// The array has room for `max` events.
    pub(crate) unsafe fn new(first: *mut IoEvent, max: usize) -> EventArray {
        EventArray { first, nr: 0, max }
    }

    /// Returns the number of events in the array.
    pub(crate) fn nr(&self) -> usize {
        self.nr
    }

    /// Returns how many more events it has room for.
    pub(crate) fn room(&self) -> usize {
        self.max - self.nr
    }

    /// Returns the address behind the last event.
    pub(crate) fn spare(&self) -> *mut IoEvent {
        // The program's pointer may be of no memory, so this is no addition within an object.
        self.first.wrapping_add(self.nr)
    }

    /// Adds an event.
    pub(crate) fn push(&mut self, event: IoEvent) {
        assert!(self.room() > 0, "the array is not full");
        // SAFETY: the array has room for `max` events.
        unsafe { self.spare().write_unaligned(event) };
        self.nr += 1;
    }

    /// Returns an event that the kernel has written behind the last one.
    pub(crate) fn behind(&self, nth: usize) -> IoEvent {
        assert!(nth < self.room(), "the kernel writes no more events than there is room for");
        // SAFETY: the array has room for `max` events, and the kernel has written this one.
        unsafe { self.spare().add(nth).read_unaligned() }
    }

    /// Adds the next `nr` events, which the kernel has written.
    pub(crate) fn add(&mut self, nr: usize) {
        assert!(nr <= self.room(), "the kernel writes no more events than there is room for");
        self.nr += nr;
    }
}

/// Returns whether an address may be one of a program. The kernel's addresses and 0 are not. Any
/// other one is used as it is: a check would cost a system call.
pub(crate) fn can_be_memory(address: usize) -> bool {
    address.cast_signed() > 0
}

/// Copies the iocb at an address of the program. `None` if it cannot be one.
pub(crate) fn copy_iocb(address: usize) -> Option<Iocb> {
    // SAFETY: the program passes the addresses of its iocbs to `io_submit`.
    can_be_memory(address).then(|| unsafe { iocb_at(address).read_unaligned() })
}

/// Returns the pointer to the iocb at an address of the program.
pub(crate) fn iocb_at(address: usize) -> *mut Iocb {
    std::ptr::with_exposed_provenance_mut(address)
}

/// Returns the memory of a read or write. `None` if the kernel should judge it: it is empty, too
/// long, or has too many vectors.
pub(crate) fn segments_of(copy: &Iocb) -> Option<Vec<Segment>> {
    let segment = |addr: usize, len: u64| {
        let len = u32::try_from(len).ok().filter(|len| *len > 0)?;
        Some(Segment { addr, len })
    };
    if matches!(copy.opcode, opcode::PREAD | opcode::PWRITE) {
        return Some(vec![segment(copy.buf as usize, copy.nbytes)?]);
    }
    if !can_be_memory(copy.buf as usize) || copy.nbytes == 0 || copy.nbytes > VECTORS_MAX {
        return None;
    }
    let vectors = std::ptr::with_exposed_provenance::<libc::iovec>(copy.buf as usize);
    (0..copy.nbytes as usize)
        .map(|nth| {
            // SAFETY: the program passes a list of so many vectors to `io_submit`.
            let vector = unsafe { vectors.add(nth).read_unaligned() };
            segment(vector.iov_base.expose_provenance(), vector.iov_len as u64)
        })
        .collect()
}

/// Returns whether a descriptor may be an eventfd. Its inode has no type, as those of some others.
///
/// # Errors
/// `EBADF` if there is no such descriptor.
pub(crate) fn can_be_eventfd(fd: u32) -> Result<bool, Errno> {
    let stat = stat_of(fd).ok_or(libc::EBADF)?;
    Ok(stat.st_mode & libc::S_IFMT == 0)
}

/// The lowest number of a descriptor of this library, if the limit allows it. A program
/// may expect that its next descriptor has the lowest number that it has not opened.
const LOWEST: i32 = 512;

/// Duplicates a descriptor. The duplicate is closed at an `exec`.
pub(crate) fn duplicate(fd: RawFd) -> Option<OwnedFd> {
    let from = |lowest: i32| {
        // SAFETY: the arguments are numbers.
        let fd = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest) };
        // SAFETY: the descriptor is new.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    };
    from(LOWEST).or_else(|| from(3))
}

/// Returns the time in nanoseconds, which is never 0. Allocates no memory, and takes no lock.
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes a time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).max(1)
}

fn stat_of(fd: u32) -> Option<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes a `stat` if it succeeds.
    let is_there = unsafe { libc::fstat(fd as i32, stat.as_mut_ptr()) } == 0;
    // SAFETY: as above.
    is_there.then(|| unsafe { stat.assume_init() })
}

/// A descriptor, and the file that it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) fd: u32,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

/// Returns the identity of a descriptor's file of any kind.
pub(crate) fn identity_of(fd: u32) -> Option<FileId> {
    stat_of(fd).map(|stat| FileId { fd, dev: stat.st_dev, ino: stat.st_ino })
}

/// Returns the file of a descriptor, if it is a regular file or a block device.
pub(crate) fn file_of(fd: u32) -> Option<FileId> {
    let stat = stat_of(fd)?;
    let is_file = matches!(stat.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK);
    is_file.then_some(FileId { fd, dev: stat.st_dev, ino: stat.st_ino })
}

/// Returns the file of a descriptor, if it is open for direct I/O with this operation, and not for
/// appends or synchronous writes.
pub(crate) fn direct_file(fd: u32, op: Op) -> Option<FileId> {
    // SAFETY: the arguments are numbers.
    let flags = unsafe { libc::fcntl(fd as i32, libc::F_GETFL) };
    let is_direct = flags >= 0
        && flags & libc::O_DIRECT != 0
        && flags & libc::O_ACCMODE != if op == Op::Read { libc::O_WRONLY } else { libc::O_RDONLY }
        && flags & (libc::O_APPEND | libc::O_SYNC | libc::O_DSYNC) == 0;
    if is_direct { file_of(fd) } else { None }
}

/// Signals that a fault of this thread raises. Blocked, they would end the program.
const FAULTS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// Signals of this thread are blocked while this value lives.
pub(crate) struct SignalsBlocked {
    before: libc::sigset_t,
    /// The mask is that of a thread.
    not_send: PhantomData<*const ()>,
}

impl SignalsBlocked {
    /// Blocks all signals but those of faults.
    pub(crate) fn new() -> SignalsBlocked {
        SignalsBlocked::all_but(&FAULTS)
    }

    /// Blocks all signals but SIGSYS, by whose handler a program may make system calls in its own
    /// way. The code that follows must not access the memory of the program, because a fault would
    /// end the process without a handler.
    pub(crate) fn all() -> SignalsBlocked {
        SignalsBlocked::all_but(&[libc::SIGSYS])
    }

    /// Blocks all signals but these. One that the thread has blocked itself stays blocked.
    fn all_but(open: &[i32]) -> SignalsBlocked {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the masks are written before they are read. The calls fail only for a wrong
        // argument.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            open.iter().for_each(|signal| _ = libc::sigdelset(all.as_mut_ptr(), *signal));
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        }
        // SAFETY: as above.
        SignalsBlocked { before: unsafe { before.assume_init() }, not_send: PhantomData }
    }

    /// Returns the mask that the thread had before.
    pub(crate) fn before(&self) -> *const libc::sigset_t {
        &raw const self.before
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the mask is one that the thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, self.before(), std::ptr::null_mut()) };
    }
}

/// Calls `work` with another signal mask, which is valid.
pub(crate) fn with_mask<T>(mask: *const libc::sigset_t, work: impl FnOnce() -> T) -> T {
    let mut before = MaybeUninit::uninit();
    // SAFETY: the mask is the caller's, and the other one is written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, before.as_mut_ptr()) };
    let result = work();
    // SAFETY: it was written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}

/// Calls `work` while the signals of this thread are blocked. A thread that it starts has them
/// blocked too.
pub(crate) fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let _blocked = SignalsBlocked::new();
    work()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn number_that_is_another_file_meanwhile_is_noticed() {
        let (one, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let fd = one.as_raw_fd();
        let before = file_of(fd as u32).expect("a file");
        assert_eq!(file_of(fd as u32), Some(before));
        // SAFETY: the number is that of `one`, which stays open.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), fd) }, fd);
        assert_ne!(file_of(fd as u32), Some(before));
        assert_eq!(file_of(u32::MAX), None);
    }
}
