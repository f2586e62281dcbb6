//! Registered buffers of a clone with several files: `fixedbufs`.
//!
//! Each disk registers memory of its own, so an I/O uses registered memory only if its buffer
//! belongs to the disk of its file. The slots of a clone have buffers of the first file. An I/O on
//! another file borrows one of that file's, and leaves that of its slot here until it ends.

use forebay::{Buf, Disk};
use forebay_fio::job::Job;

use super::memory::buffers;

/// The buffers of the files after the first.
#[derive(Debug)]
pub(super) struct FileBuffers {
    /// The free buffers of each file.
    free: Vec<Vec<Buf>>,
    /// The buffers of slots whose I/Os use one of another file.
    parked: Vec<Option<Buf>>,
}

impl FileBuffers {
    /// Allocates as many buffers for each of these disks as the job has I/Os in flight; `None` if
    /// the job needs none.
    pub(super) fn new<'a>(job: &Job, disks: impl Iterator<Item = &'a Disk>) -> Option<Box<Self>> {
        if job.fixedbufs != Some(true) || job.buffer_bytes() == 0 {
            return None;
        }
        let free: Vec<_> = disks.map(|disk| buffers(job, disk)).collect();
        let parked = (0..job.iodepth).map(|_| None).collect();
        (!free.is_empty()).then(|| Box::new(Self { free, parked }))
    }

    /// Takes a buffer of this file, which is not the first, for a read or write of a slot. Returns
    /// `None` if I/Os have not returned theirs.
    pub(super) fn borrow(&mut self, slot: u32, file: u16, own: Option<Buf>) -> Option<Buf> {
        self.parked[slot as usize] = own;
        self.free[usize::from(file) - 1].pop()
    }

    /// Takes the buffer back, and returns that of the slot. Trims have borrowed none.
    pub(super) fn give_back(&mut self, slot: u32, file: u16, borrowed: Option<Buf>) -> Option<Buf> {
        self.free[usize::from(file) - 1].extend(borrowed);
        self.parked[slot as usize].take()
    }
}

#[cfg(test)]
mod tests {
    use forebay_fio::cmdline::{Parsed, parse};

    use super::*;

    fn job(args: &str) -> Job {
        let args = format!("--name=a --rw=randwrite --bs=4k --iodepth=2 {args}");
        match parse(args.split_whitespace().map(Into::into)) {
            Ok(Parsed::Run(command)) => command.jobs[0].clone(),
            other => panic!("{args}: {other:?}"),
        }
    }

    #[test]
    fn each_file_has_registered_buffers_of_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        std::fs::write(&path, vec![0; 1 << 16]).expect("a file");
        let disk = Disk::open(&format!("{}?fixed_buffers=8k", path.display())).expect("a disk");
        let is_registered = disk.buf(4096).is_registered();
        let job = job("--fixedbufs=1");
        let mut buffers = FileBuffers::new(&job, [&disk].into_iter()).expect("buffers");
        // On a kernel without io_uring, no memory is registered.
        let own = || Some(Buf::new(512));
        let borrowed = [0, 1].map(|slot| buffers.borrow(slot, 1, own()));
        for borrowed in borrowed.iter().flatten() {
            assert_eq!((borrowed.is_registered(), borrowed.len()), (is_registered, 4096));
        }
        for (slot, borrowed) in (0..).zip(borrowed) {
            let own = buffers.give_back(slot, 1, borrowed).expect("the buffer of the slot");
            assert_eq!(own.len(), 512);
        }
        assert!(buffers.borrow(1, 1, own()).is_some(), "it can be borrowed again");
    }

    #[test]
    fn other_jobs_have_no_such_buffers() {
        let disk = Disk::open("ram:1M").expect("a disk");
        for args in ["", "--fixedbufs=0", "--fixedbufs=1 --rw=randtrim"] {
            assert!(FileBuffers::new(&job(args), [&disk].into_iter()).is_none(), "{args}");
        }
        assert!(FileBuffers::new(&job("--fixedbufs=1"), std::iter::empty()).is_none());
    }
}
