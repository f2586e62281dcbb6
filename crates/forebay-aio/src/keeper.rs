//! A registered file of an io_uring, for reads that are held, and for syncs that wait.
//!
//! A held read must reach the file that its descriptor referred to when it was submitted. The
//! program may close that descriptor, or use its number again, before the read is passed on. A
//! duplicate would be visible to the program: to close it would drop the program's POSIX locks on
//! the file. A registered file has no descriptor.
//!
//! The reads are submitted by the program's descriptor, if that still refers to the file: the
//! program's threads wait for the kernel's AIO. Only if it does not, the ring submits them, and the
//! calling thread waits for their end. Syncs that have waited for another one do the same.
//!
//! The program may close the descriptor of the ring, and use its number for a file or a ring of its
//! own. So each use, and the end of a keeper, first look at the identity of the descriptor.
//!
//! Nothing here allocates memory on the heap before it reads, so `fsync` can use it in a handler of
//! signals.
//!
//! Source: io_uring_register_files_update(3), io_uring_enter(2).
// Reads into the memory of the program.
#![allow(unsafe_code)]

use crate::abi::opcode::PREADV;
use crate::file::Outgoing;
use crate::program::{self, FileId};
use crate::raw::Errno;
use forebay_core::Tag;
use io_uring::{IoUring, opcode, types};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};

/// The number of entries of the ring, for the parts of a group.
const NR_ENTRIES: u32 = 8;

/// The place of the file.
const PLACE: u32 = 0;

/// A ring with at most one file.
pub(crate) struct Keeper {
    ring: ManuallyDrop<IoUring>,
    /// The identity of its descriptor.
    id: FileId,
    /// The kernel has refused a call, so entries may be left in the ring.
    is_broken: bool,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Keeper").field(&self.ring.as_raw_fd()).finish()
    }
}

impl Keeper {
    /// Creates a keeper without a file. `None` if the system refuses io_uring.
    pub(crate) fn new() -> Option<Keeper> {
        let ring: IoUring = IoUring::new(NR_ENTRIES).ok()?;
        let high = program::duplicate(ring.as_raw_fd())?;
        let params = ring.params().clone();
        drop(ring);
        // SAFETY: the descriptor is a ring with these parameters, and is this value's own.
        let ring = unsafe { IoUring::from_fd(high.into_raw_fd(), params) }.ok()?;
        ring.submitter().register_files_sparse(1).ok()?;
        let id = program::identity_of(ring.as_raw_fd() as u32)?;
        Some(Keeper { ring: ManuallyDrop::new(ring), id, is_broken: false })
    }

    /// Returns whether the program has left the descriptor of the ring alone.
    fn is_there(&self) -> bool {
        program::identity_of(self.id.fd) == Some(self.id)
    }

    /// Returns whether reads and syncs can be made.
    fn is_usable(&self) -> bool {
        !self.is_broken && self.is_there()
    }

    /// Keeps the file of a descriptor instead of the one before. `None` if the system refuses it.
    pub(crate) fn keep(&self, fd: RawFd) -> Option<()> {
        if !self.is_usable() {
            return None;
        }
        self.ring.submitter().register_files_update(PLACE, &[fd]).ok().map(drop)
    }

    /// Unregisters the file.
    pub(crate) fn forget(&self) {
        // If the program has closed the ring's descriptor, the file is forgotten.
        if self.is_there() {
            let _ = self.ring.submitter().register_files_update(PLACE, &[-1]);
        }
    }

    /// Syncs the file that is kept, only its data if `data` is set, and waits for the end. Returns
    /// its errno; `ECANCELED` if the kernel has no thread for the sync, which was not made then.
    /// `None` if the kernel refuses the call, or the program has closed the descriptor of the ring:
    /// the keeper cannot be used again.
    pub(crate) fn sync(&mut self, data: bool) -> Option<Result<(), Errno>> {
        if !self.is_usable() {
            return None;
        }
        let flags = if data { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
        let entry = opcode::Fsync::new(types::Fixed(PLACE)).flags(flags).build();
        // SAFETY: the entry names no memory.
        unsafe { self.ring.submission().push(&entry) }.ok()?;
        loop {
            let waited = self.ring.submit_and_wait(1);
            if let Some(end) = self.ring.completion().next() {
                return Some(if end.result() < 0 { Err(-end.result()) } else { Ok(()) });
            }
            if waited.is_err_and(|error| error.kind() != std::io::ErrorKind::Interrupted) {
                self.is_broken = true;
                return None;
            }
        }
    }

    /// Reads from the file that is kept, and waits for the ends. Returns the result of each
    /// request: a number of bytes, or a negative errno.
    pub(crate) fn read(&mut self, requests: &[Outgoing]) -> Vec<(Tag, i64)> {
        let mut results = Vec::new();
        for group in requests.chunks(NR_ENTRIES as usize) {
            if !self.is_usable() {
                break;
            }
            for rq in group {
                let (fd, iocb) = (types::Fixed(PLACE), &rq.iocb);
                let address = std::ptr::with_exposed_provenance_mut::<u8>(iocb.buf as usize);
                let offset = iocb.offset as u64;
                let entry = match iocb.opcode {
                    PREADV => {
                        let (vectors, nr) = (rq.vectors.as_ptr().cast(), rq.vectors.len() as u32);
                        opcode::Readv::new(fd, vectors, nr).offset(offset).build()
                    }
                    _ => opcode::Read::new(fd, address, iocb.nbytes as u32).offset(offset).build(),
                };
                let entry = entry.user_data(rq.tag.index() as u64);
                // SAFETY: the program keeps the memory of its iocbs, and this call the vectors.
                let is_pushed = unsafe { self.ring.submission().push(&entry) };
                assert!(is_pushed.is_ok(), "the ring is empty before a group");
            }
            let nr = results.len() + group.len();
            while results.len() < nr {
                let waited = self.ring.submit_and_wait(nr - results.len());
                let ends = self.ring.completion().map(|end| (end.user_data(), end.result()));
                results.extend(ends.map(|(tag, res)| (Tag::from_index(tag as usize), res.into())));
                let is_interrupted =
                    |error: &std::io::Error| error.kind() == std::io::ErrorKind::Interrupted;
                if waited.is_err_and(|error| !is_interrupted(&error)) {
                    self.is_broken = true;
                    break;
                }
            }
        }
        let is_left = |rq: &&Outgoing| !results.iter().any(|(tag, _)| *tag == rq.tag);
        let left: Vec<_> = requests.iter().filter(is_left).map(|rq| rq.tag).collect();
        results.extend(left.into_iter().map(|tag| (tag, -i64::from(libc::EIO))));
        results
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Otherwise the number is the program's, and the memory of the ring stays mapped.
        if self.is_there() {
            // SAFETY: the ring is not used again.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{Iocb, opcode::PREAD};
    use crate::skip;
    use forebay_run::area::FileNumber;
    use std::io::Write;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no io_uring")]
    fn reads_reach_the_file_that_its_descriptor_was_when_it_was_kept() {
        let Some(mut keeper) = Keeper::new() else {
            return skip::skip_always("keeper", "the system refuses io_uring");
        };
        let file = |byte: u8| {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(&[byte; 8]).expect("room");
            file
        };
        let (one, other) = (file(1), file(2));
        let mut memory = [0_u8; 12];
        let request = |at: usize, offset, memory: &mut [u8]| Outgoing {
            tag: Tag::from_index(at),
            record: at as u32,
            iocb: Iocb {
                opcode: PREAD,
                buf: memory[4 * at..].as_mut_ptr().expose_provenance() as u64,
                nbytes: 4,
                offset,
                ..Iocb::default()
            },
            vectors: Vec::new(),
            number: FileNumber::OTHER,
        };
        keeper.keep(one.as_raw_fd()).expect("a file");
        // SAFETY: both numbers are open.
        unsafe { libc::dup2(other.as_raw_fd(), one.as_raw_fd()) };
        let requests =
            [request(0, 0, &mut memory), request(1, 6, &mut memory), request(2, 8, &mut memory)];
        let mut results = keeper.read(&requests);
        results.sort_by_key(|(tag, _)| tag.index());
        let results: Vec<_> = results.iter().map(|(_, result)| *result).collect();
        assert_eq!((results, memory), (vec![4, 2, 0], [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]));
        keeper.forget();
        let results = keeper.read(&requests[..1]);
        assert_eq!(results, [(Tag::from_index(0), -i64::from(libc::EBADF))]);
        keeper.keep(one.as_raw_fd()).expect("the other file");
        assert_eq!(keeper.read(&requests[..1])[0].1, 4);
        assert_eq!(memory[0], 2);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no io_uring")]
    fn file_is_synced_after_its_descriptor_was_closed() {
        let Some(mut keeper) = Keeper::new() else {
            return skip::skip_always("keeper", "the system refuses io_uring");
        };
        let file = tempfile::tempfile().expect("a file");
        keeper.keep(file.as_raw_fd()).expect("a file");
        drop(file);
        assert_eq!((keeper.sync(false), keeper.sync(true)), (Some(Ok(())), Some(Ok(()))));
        let (pipe, _end) = std::io::pipe().expect("a pipe");
        keeper.keep(pipe.as_raw_fd()).expect("a pipe");
        assert_eq!(keeper.sync(false), Some(Err(libc::EINVAL)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no io_uring")]
    fn file_with_the_number_of_the_ring_is_left_alone() {
        let Some(mut keeper) = Keeper::new() else {
            return skip::skip_always("keeper", "the system refuses io_uring");
        };
        let (file, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let number = keeper.ring.as_raw_fd();
        keeper.keep(file.as_raw_fd()).expect("a file");
        // SAFETY: the number is that of the ring.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        assert_eq!((keeper.keep(file.as_raw_fd()), keeper.sync(true)), (None, None));
        keeper.forget();
        drop(keeper);
        let id = |fd: RawFd| program::file_of(fd as u32).map(|id| id.ino);
        assert_eq!(id(number), id(other.as_raw_fd()));
        // SAFETY: the number is that of the test.
        unsafe { libc::close(number) };
    }
}
