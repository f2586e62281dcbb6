//! The iocbs of one call, and which of them go through the layer.
//!
//! This is decided once, before the call takes the lock of its context. Held reads are decided
//! under the lock (`context/hold.rs`).

use crate::abi::{FLAG_RESFD, Iocb, opcode};
use crate::eventfds::{EventFd, Held};
use crate::file::LEN_MAX;
use crate::program::{self, FileId};
use crate::raw::Errno;
use forebay_core::{Op, Segment};
use std::sync::Arc;

/// An iocb of a call.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The program's address of the iocb.
    pub(crate) address: usize,
    pub(crate) copy: Iocb,
    /// Its eventfd, or the errno if that is a wrong one.
    pub(crate) resfd: Option<Result<Arc<EventFd>, Errno>>,
    /// Its file and its memory, if it goes through the layer.
    pub(crate) layered: Option<(FileId, Vec<Segment>)>,
}

/// Returns the operation of a read or write.
pub(crate) fn op_of(copy: &Iocb) -> Op {
    match copy.opcode {
        opcode::PREAD | opcode::PREADV => Op::Read,
        _ => Op::Write,
    }
}

/// Returns whether an iocb syncs a file.
pub(crate) fn is_sync(copy: &Iocb) -> bool {
    matches!(copy.opcode, opcode::FSYNC | opcode::FDSYNC)
}

/// Copies the iocb of a call that has no other one. `None` if its address is invalid. It does not
/// go through the layer, unless it is held.
pub(crate) fn plan_one(address: usize) -> Option<Planned> {
    let copy = program::copy_iocb(address)?;
    Some(Planned { address, copy, resfd: Held::default().of(&copy), layered: None })
}

/// Copies the iocbs, up to the first invalid address, and decides about them.
///
/// Those of a descriptor go through the layer if it is open for direct I/O, and if two neighbours
/// in the call are of it. The others go to the kernel unchanged. They cost a check of the
/// descriptor if two are neighbours, and a duplicate of each eventfd.
pub(crate) fn plan(addresses: &[usize]) -> Vec<Planned> {
    let mut held = Held::default();
    let copies = addresses.iter().map_while(|&address| {
        let copy = program::copy_iocb(address)?;
        Some(Planned { address, copy, resfd: held.of(&copy), layered: None })
    });
    let mut planned: Vec<_> = copies.collect();
    let mut files: Vec<(FileId, Op)> = Vec::new();
    for pair in planned.windows(2) {
        let [one, other] = pair else { continue };
        let op = op_of(&one.copy);
        let is_known = files.iter().any(|(file, of)| file.fd == one.copy.fildes && *of == op);
        if !is_known
            && are_neighbours(&one.copy, &other.copy)
            && let Some(file) = program::direct_file(one.copy.fildes, op)
        {
            files.push((file, op));
        }
    }
    if files.is_empty() {
        return planned;
    }
    for it in &mut planned {
        let is_of_it = |(file, op): &&(FileId, Op)| {
            file.fd == it.copy.fildes && *op == op_of(&it.copy) && can_merge(&it.copy)
        };
        if let Some((file, _)) = files.iter().find(is_of_it)
            && !matches!(it.resfd, Some(Err(_)))
            && let Some(segments) = program::segments_of(&it.copy)
            && segments.iter().map(|segment| u64::from(segment.len)).sum::<u64>() <= LEN_MAX
        {
            it.layered = Some((*file, segments));
        }
    }
    planned
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
pub(crate) fn can_merge(copy: &Iocb) -> bool {
    let moves_data =
        matches!(copy.opcode, opcode::PREAD | opcode::PWRITE | opcode::PREADV | opcode::PWRITEV);
    moves_data
        && copy.rw_flags == 0
        && copy.flags & !FLAG_RESFD == 0
        && copy.reserved2 == 0
        && copy.offset >= 0
        && program::can_be_memory(copy.buf as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip;
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;

    fn iocb(code: u16, fd: u32, offset: i64, nbytes: u64) -> Iocb {
        Iocb { opcode: code, fildes: fd, buf: 4096, nbytes, offset, ..Iocb::default() }
    }

    /// Returns which iocbs of a call go through the layer.
    fn layered(call: &[Iocb]) -> Vec<bool> {
        let addresses: Vec<_> =
            call.iter().map(|iocb| std::ptr::from_ref(iocb).expose_provenance()).collect();
        plan(&addresses).iter().map(|it| it.layered.is_some()).collect()
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
    fn iocbs_of_a_file_that_is_open_for_direct_io_go_through_the_layer() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, [0; 8192]).expect("a file");
        let open = |flags| OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let Ok(direct) = open(libc::O_DIRECT) else {
            return skip::skip_always("plan", "the folder for temporary files has no direct I/O");
        };
        let buffered = open(0).expect("a file");
        let pair = |file: &std::fs::File, code| {
            let fd = file.as_raw_fd() as u32;
            [iocb(code, fd, 0, 4096), iocb(code, fd, 4096, 4096)]
        };
        let reads = pair(&direct, opcode::PREAD);
        assert_eq!(layered(&reads), [true, true]);
        assert_eq!(layered(&reads[..1]), [false], "it has no neighbour");
        assert_eq!(layered(&pair(&direct, opcode::PWRITE)), [false; 2], "it is open for reading");
        assert_eq!(layered(&pair(&buffered, opcode::PREAD)), [false; 2]);
        let [one, two] = reads;
        let wrong = Iocb { flags: FLAG_RESFD, resfd: u32::MAX, ..two };
        let long = iocb(opcode::PREAD, one.fildes, 8192, LEN_MAX + 1);
        let many = iocb(opcode::PREADV, one.fildes, 0, 1025);
        assert_eq!(layered(&[one, wrong, two, long, many]), [true, false, true, false, false]);
    }
}
