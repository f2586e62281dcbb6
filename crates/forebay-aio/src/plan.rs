//! Choice of the iocbs of a batch that go through the layer.

use crate::abi::{FLAG_RESFD, Iocb, opcode};
use crate::program::{self, FileId};
use forebay_core::Op;

/// Returns the operation of a read or write.
pub(crate) fn op_of(copy: &Iocb) -> Op {
    match copy.opcode {
        opcode::PREAD | opcode::PREADV => Op::Read,
        _ => Op::Write,
    }
}

/// The iocbs of a batch that go through the layer, by file and operation.
#[derive(Debug)]
pub(crate) struct Plan {
    layered: Vec<(FileId, Op)>,
}

impl Plan {
    /// Chooses the descriptors with two neighbours in the batch that are open for direct I/O. All
    /// others cost no system call more than without the layer.
    pub(crate) fn of(copies: &[Iocb]) -> Plan {
        let mut plan = Plan { layered: Vec::new() };
        let pairs = copies.iter().zip(copies.iter().skip(1));
        for (one, _) in pairs.filter(|(one, other)| are_neighbours(one, other)) {
            let op = op_of(one);
            if plan.file_of(one).is_none()
                && let Some(file) = program::direct_file(one.fildes, op)
            {
                plan.layered.push((file, op));
            }
        }
        plan
    }

    /// Returns the file of an iocb that goes through the layer.
    pub(crate) fn file_of(&self, copy: &Iocb) -> Option<FileId> {
        if self.layered.is_empty() || !can_merge(copy) {
            return None;
        }
        let is_it = |(file, op): &&(FileId, Op)| file.fd == copy.fildes && *op == op_of(copy);
        self.layered.iter().find(is_it).map(|(file, _)| *file)
    }
}

/// Returns whether two iocbs that follow each other are of one file, and one may continue the
/// other. Vectors have no length here, so they may.
fn are_neighbours(one: &Iocb, other: &Iocb) -> bool {
    let is_vector = |copy: &Iocb| matches!(copy.opcode, opcode::PREADV | opcode::PWRITEV);
    let continues = |first: &Iocb, next: &Iocb| {
        is_vector(first) || first.offset.checked_add_unsigned(first.nbytes) == Some(next.offset)
    };
    can_merge(one)
        && can_merge(other)
        && one.fildes == other.fildes
        && op_of(one) == op_of(other)
        && (continues(one, other) || continues(other, one))
}

/// Returns whether an iocb is a read or write that may merge with others.
fn can_merge(copy: &Iocb) -> bool {
    let moves_data =
        matches!(copy.opcode, opcode::PREAD | opcode::PWRITE | opcode::PREADV | opcode::PWRITEV);
    moves_data
        && copy.rw_flags == 0
        && copy.flags & !FLAG_RESFD == 0
        && copy.reserved2 == 0
        && copy.offset >= 0
        && program::can_be_memory(copy.buf as usize)
        && (copy.flags & FLAG_RESFD == 0 || program::check_eventfd(copy.resfd).is_ok())
}

#[cfg(test)]
#[path = "../../forebay/tests/support/skip.rs"]
#[allow(dead_code, reason = "each user needs a part")]
mod skip;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;

    fn iocb(code: u16, fd: u32, offset: i64, nbytes: u64) -> Iocb {
        Iocb {
            data: 0,
            key: 0,
            rw_flags: 0,
            opcode: code,
            reqprio: 0,
            fildes: fd,
            buf: 4096,
            nbytes,
            offset,
            reserved2: 0,
            flags: 0,
            resfd: 0,
        }
    }

    #[test]
    fn neighbours_are_reads_or_writes_of_one_file_that_continue_each_other() {
        let read = |offset| iocb(opcode::PREAD, 3, offset, 4096);
        assert!(are_neighbours(&read(0), &read(4096)) && are_neighbours(&read(4096), &read(0)));
        assert!(!are_neighbours(&read(0), &read(8192)) && !are_neighbours(&read(0), &read(0)));
        assert!(!are_neighbours(&read(0), &iocb(opcode::PREAD, 4, 4096, 4096)));
        assert!(!are_neighbours(&read(0), &iocb(opcode::PWRITE, 3, 4096, 4096)));
        assert!(are_neighbours(&read(0), &iocb(opcode::PREADV, 3, 9, 2)));
        assert!(!are_neighbours(&read(0), &Iocb { rw_flags: 8, ..read(4096) }));
        assert!(!are_neighbours(&read(i64::MAX), &read(i64::MIN)));
    }

    #[test]
    fn plan_has_files_that_are_open_for_direct_io_with_the_operation() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, [0; 8192]).expect("a file");
        let open = |flags| OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let Ok(direct) = open(libc::O_DIRECT) else {
            return skip::skip_always("plan", "the folder for temporary files has no direct I/O");
        };
        let (direct, buffered) = (direct, open(0).expect("a file"));
        let planned = |file: &std::fs::File, code| {
            let fd = file.as_raw_fd() as u32;
            let batch = [iocb(code, fd, 0, 4096), iocb(code, fd, 4096, 4096)];
            Plan::of(&batch).file_of(&batch[0]).is_some()
        };
        assert!(planned(&direct, opcode::PREAD));
        assert!(!planned(&direct, opcode::PWRITE), "it is open for reading");
        assert!(!planned(&buffered, opcode::PREAD));
    }
}
