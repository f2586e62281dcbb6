//! Tests of the entries that a ring refuses.
// It puts entries into rings.
#![allow(unsafe_code)]

use super::super::restrictions;
use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Returns a ring made like those of disks, with a file of 4 KiB as its only one.
fn ring() -> (IoUring, File) {
    let file = tempfile::tempfile().expect("a scratch file");
    file.set_len(4096).expect("a size");
    let ring = IoUring::builder().setup_r_disabled().build(4).expect("a ring");
    ring.submitter().register_files(&[file.as_raw_fd()]).expect("a table of files");
    restrictions::enable(&ring).expect("a ring that is enabled");
    (ring, file)
}

/// Returns the result of an entry.
fn result(ring: &mut IoUring, entry: Entry) -> i32 {
    // SAFETY: the memory of the tests' entries lives until they complete, which this function
    // awaits.
    unsafe { ring.submission().push(&entry) }.expect("room");
    ring.submit_and_wait(1).expect("its end");
    ring.completion().next().expect("its end").result()
}

#[test]
fn a_ring_reads_its_file_and_no_other() {
    let (mut ring, file) = ring();
    let mut bytes = [1; 16];
    let fixed = opcode::Read::new(types::Fixed(0), bytes.as_mut_ptr(), 16).build();
    assert_eq!(result(&mut ring, fixed), 16);
    assert_eq!(bytes, [0; 16]);
    let by_number = opcode::Read::new(types::Fd(file.as_raw_fd()), bytes.as_mut_ptr(), 16).build();
    assert_eq!(result(&mut ring, by_number), -libc::EACCES);
    let beyond = opcode::Read::new(types::Fixed(1), bytes.as_mut_ptr(), 16).build();
    assert_eq!(result(&mut ring, beyond), -libc::EBADF);
}

#[test]
fn a_ring_opens_and_connects_nothing() {
    let (mut ring, _file) = ring();
    let open = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), c"/etc/passwd".as_ptr()).build();
    let socket = opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build();
    let send = opcode::Send::new(types::Fixed(0), c"x".as_ptr().cast(), 1).build();
    for entry in [open, socket, send] {
        assert_eq!(result(&mut ring, entry), -libc::EACCES);
    }
}

#[test]
fn a_rings_files_stay_as_they_are() {
    let (ring, file) = ring();
    let again = ring.submitter().register_files_update(0, &[file.as_raw_fd()]);
    assert_eq!(again.expect_err("a refusal").raw_os_error(), Some(libc::EACCES));
    let table = ring.submitter().register_files(&[file.as_raw_fd()]);
    assert_eq!(table.expect_err("a refusal").raw_os_error(), Some(libc::EACCES));
    ring.submitter().unregister_files().expect("the file is let go of");
}

/// Returns the descriptors of this process's rings that were made for this file.
fn rings_of(file: &std::path::Path) -> Vec<i32> {
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    let numbers = std::fs::read_dir("/proc/self/fdinfo").expect("it is there").flatten();
    let is_ring = |number: &i32| {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
        info.is_ok_and(|info| info.contains("UserFiles:\t1\n") && info.contains(&name))
    };
    numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_ring).collect()
}

/// Queries the operations that a ring supports, which is harmless but forbidden to rings of disks.
/// Returns the error; 0 if there is none.
fn probe(ring: i32) -> i32 {
    const IORING_REGISTER_PROBE: i32 = 8;
    let mut answer = [0_u8; 16];
    // SAFETY: the kernel reads and writes one empty `struct io_uring_probe`, which has 16 bytes.
    let result = unsafe {
        let answer = answer.as_mut_ptr();
        libc::syscall(libc::SYS_io_uring_register, ring, IORING_REGISTER_PROBE, answer, 0)
    };
    if result == 0 {
        return 0;
    }
    std::io::Error::last_os_error().raw_os_error().expect("an error of the system")
}

/// The rings above belong to the tests. These are the rings of a working disk: of its shared
/// context, and of this thread's own.
#[test]
fn every_ring_of_a_disk_is_restricted() {
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    file.as_file().set_len(1 << 20).expect("a size");
    for keys in ["", "?fixed_buffers=64k"] {
        let spec = format!("{}{keys}", file.path().display());
        let disk = crate::Disk::open(&spec).expect("a disk");
        disk.read_at(&mut [0; 512], 0).expect("a read by the shared context");
        let mut queue = disk.queue();
        queue.submit(crate::Io::read(disk.buf(512), 0)).expect("it is taken");
        queue.reap(1, 1, &mut Vec::new());
        let rings = rings_of(file.path());
        assert!(rings.len() >= 2, "{spec}: {} rings", rings.len());
        for ring in rings {
            assert_eq!(probe(ring), libc::EACCES, "{spec}: descriptor {ring}");
        }
    }
    let plain = IoUring::new(4).expect("a ring");
    assert_eq!(probe(plain.as_raw_fd()), 0, "without restrictions it is allowed");
}
