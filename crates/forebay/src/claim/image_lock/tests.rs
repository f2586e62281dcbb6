//! Unit tests of `image_lock`.

use super::*;
use std::os::fd::AsRawFd;

const READER: Access = Access { writes: false, resizes: false, shares_writes: false };
const WRITER: Access = Access { writes: true, resizes: false, shares_writes: false };
const SHARED: Access = Access { writes: true, resizes: false, shares_writes: true };

/// A program: an open file description and its locks.
struct Program(File, ImageLocks);

impl Program {
    fn add(&mut self, access: Access) -> Result<(), Denied> {
        self.1.add(&self.0, access)
    }

    fn remove(&mut self, access: Access) {
        self.1.remove(&self.0, access);
    }
}

/// Returns two programs that have opened one file.
fn pair() -> (Program, Program) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = || Program(File::open(file.path()).unwrap(), ImageLocks::default());
    (open(), open())
}

fn offsets(access: Access) -> Vec<libc::off_t> {
    access.bytes().map(Byte::offset).collect()
}

#[test]
fn each_access_locks_the_bytes_that_qemu_expects() {
    assert_eq!(offsets(WRITER), [100, 101, 201, 202, 203]);
    assert_eq!(offsets(READER), [100, 201, 203]);
    assert_eq!(offsets(SHARED), [100, 101]);
    assert_eq!(offsets(Access { resizes: true, ..WRITER }), [100, 101, 103, 201, 202, 203]);
}

#[test]
fn a_second_program_is_refused_unless_both_share_or_both_read() {
    for first in [READER, WRITER, SHARED] {
        for second in [READER, WRITER, SHARED] {
            let (mut a, mut b) = pair();
            a.add(first).expect("the file is not locked");
            let both_read = first == READER && second == READER;
            let both_share = first == SHARED && second == SHARED;
            assert_eq!(b.add(second).is_ok(), both_read || both_share, "{first:?} then {second:?}");
        }
    }
}

#[test]
fn the_reason_names_what_the_other_program_does() {
    let (mut a, mut b) = pair();
    a.add(WRITER).unwrap();
    let conflict = |program: &mut Program, access| match program.add(access) {
        Err(Denied::Conflict(conflict)) => conflict,
        other => panic!("{other:?}"),
    };
    assert_eq!(conflict(&mut b, WRITER), Conflict::NotShared(Write));
    assert_eq!(conflict(&mut b, READER), Conflict::InUse(Write));
    assert_eq!(Conflict::InUse(Write).reason(), "writes to it");
    assert_eq!(Conflict::NotShared(Write).reason(), "does not allow others to write to it");
}

#[test]
fn disks_of_one_process_share_a_file_and_the_last_one_gives_it_back() {
    let (mut a, mut b) = pair();
    a.add(WRITER).unwrap();
    a.add(WRITER).expect("the same process");
    a.add(READER).expect("the same process");
    a.remove(WRITER);
    assert!(b.add(READER).is_err(), "one writer is left");
    a.remove(WRITER);
    b.add(READER).expect("only readers are left");
    assert!(a.add(WRITER).is_err(), "the other program reads, and does not share writes");
    b.remove(READER);
    a.add(WRITER).expect("it is alone");
}

#[test]
fn a_refused_disk_leaves_no_lock_behind() {
    let (mut a, mut b) = pair();
    a.add(READER).unwrap();
    assert!(b.add(WRITER).is_err());
    a.remove(READER);
    a.add(WRITER).expect("the refused one left nothing");
}

#[test]
fn a_lock_on_the_whole_file_refuses_every_access() {
    let (mut a, _) = pair();
    let path = format!("/proc/self/fd/{}", a.0.as_raw_fd());
    let other = File::options().read(true).write(true).open(path).unwrap();
    ofd_lock::set(&other, Range::ALL, libc::F_WRLCK).unwrap();
    assert!(matches!(a.add(READER), Err(Denied::LockedWhole)));
}
