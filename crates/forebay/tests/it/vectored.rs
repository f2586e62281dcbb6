//! Blocking calls over several slices, or parts of memory that another program may change.

use crate::common::{Scratch, open};
use forebay::{GuestSlice, IoError, Op, SubmitErrorKind};
use std::io::{IoSlice, IoSliceMut};

const DRIVERS: [&str; 3] = ["file", "aio", "psync"];

fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8).collect()
}

#[test]
fn slices_are_read_and_written_one_after_the_other() {
    // Empty slices, slices that are no whole blocks, and more of them than fit into a request.
    for lens in [vec![], vec![0], vec![4096], vec![0, 100, 0, 412, 3584], vec![32; 4096]] {
        let len: usize = lens.iter().sum();
        let data = numbered(len);
        let scratch = Scratch::new(1 << 20);
        let files = DRIVERS.map(|driver| format!("{driver}:{}", scratch.spec("")));
        for spec in files.iter().map(String::as_str).chain(["ram:1M"]) {
            let disk = open(spec);
            let mut rest = &data[..];
            let parts: Vec<IoSlice<'_>> = lens
                .iter()
                .map(|len| {
                    let (part, behind) = rest.split_at(*len);
                    rest = behind;
                    IoSlice::new(part)
                })
                .collect();
            assert_eq!(disk.write_vectored_at(&parts, 8192), Ok(len), "{spec}");
            let mut whole = vec![0; len];
            assert_eq!(disk.read_at(&mut whole, 8192), Ok(len), "{spec}");
            assert_eq!(whole, data, "{spec}");
            let mut read: Vec<Vec<u8>> = lens.iter().map(|len| vec![0xEE; *len]).collect();
            let mut parts: Vec<_> = read.iter_mut().map(|part| IoSliceMut::new(part)).collect();
            assert_eq!(disk.read_vectored_at(&mut parts, 8192), Ok(len), "{spec}");
            assert_eq!(read.concat(), data, "{spec}");
        }
    }
}

#[test]
fn slices_are_one_request() {
    let disk = open("ram:1M");
    let parts = [IoSlice::new(&[1; 512]), IoSlice::new(&[2; 1536])];
    disk.write_vectored_at(&parts, 0).expect("a write");
    let stats = disk.stats().queue;
    assert_eq!((stats.op(Op::Write).bios, stats.issued), (1, 1));
}

#[test]
fn short_and_refused_calls_over_slices_are_those_of_one_slice() {
    let scratch = Scratch::new(10_000);
    for driver in DRIVERS {
        let disk = open(&format!("{driver}:{}", scratch.spec("capacity=growing")));
        let (mut one, mut two) = ([1; 1000], [1; 3096]);
        let mut parts = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        assert_eq!(disk.read_vectored_at(&mut parts, 8192), Ok(1808), "{driver}");
        assert!(one == [0; 1000] && two[..808] == [0; 808]);
    }
    let disk = open("ram:1M");
    let parts = [IoSlice::new(&[1; 512]), IoSlice::new(&[2; 100])];
    let refused = disk.write_vectored_at(&parts, 0).expect_err("no whole blocks");
    assert!(matches!(refused, IoError::Refused(SubmitErrorKind::Misaligned { .. })), "{refused}");
    let refused = disk.write_vectored_at(&parts[..1], 1 << 20).expect_err("behind the end");
    assert!(matches!(refused, IoError::Refused(SubmitErrorKind::OutOfRange { .. })), "{refused}");
    assert_eq!(disk.write_vectored_at(&parts[..1], 0), Ok(512));
}

#[test]
#[allow(unsafe_code)] // it vouches for an address
fn parts_of_guest_memory_are_read_and_written_one_after_the_other() {
    let scratch = Scratch::new(1 << 20);
    let files = DRIVERS.map(|driver| format!("{driver}:{}", scratch.spec("")));
    for spec in files.iter().map(String::as_str).chain(["ram:1M"]) {
        let disk = open(spec);
        let mut mapping = numbered(8192);
        // SAFETY: the vector lives until the end of this round, and nothing refers to it meanwhile.
        let memory = unsafe { GuestSlice::new(mapping.as_mut_ptr(), 8192) };
        let part = |at, len| memory.part(at, len).expect("within the memory");
        let written = disk.write_guest_at([part(512, 512), part(0, 0), part(4096, 1024)], 4096);
        assert_eq!(written, Ok(1536), "{spec}");
        let read = disk.read_guest_at([part(0, 100), part(7000, 924)], 4096 + 512);
        assert_eq!(read, Ok(1024), "{spec}");
        let data = numbered(8192);
        assert!(mapping[..100] == data[4096..4196], "{spec}");
        assert!(mapping[7000..7924] == data[4196..5120], "{spec}");
        assert!(mapping[100..7000] == data[100..7000], "{spec}: bytes between the parts");
    }
}

#[test]
#[allow(unsafe_code)] // it vouches for an address
fn a_part_of_guest_memory_is_within_it() {
    let mut mapping = [0; 512];
    // SAFETY: the array lives until the end of the test, and no call uses it.
    let memory = unsafe { GuestSlice::new(mapping.as_mut_ptr(), 512) };
    assert!(memory.part(0, 512).is_some() && memory.part(512, 0).is_some());
    assert!(memory.part(1, 512).is_none() && memory.part(usize::MAX, 2).is_none());
    assert!(memory.part(500, 12).expect("within").part(0, 13).is_none());
    let disk = open("ram:1M");
    let parts = [memory.part(0, 100).expect("within")];
    let refused = disk.read_guest_at(parts, 0).expect_err("no whole block");
    assert!(matches!(refused, IoError::Refused(SubmitErrorKind::Misaligned { .. })), "{refused}");
}
