//! Tests of memory that callers register with a queue.
// They submit addresses.
#![allow(unsafe_code)]

use crate::{Bio, BioQueue, Disk, Op, RegisterError, RegisteredMemory, Segment, Segments};
use std::os::fd::{AsRawFd, RawFd};
use tempfile::NamedTempFile;

const LEN: usize = 1 << 20;

/// Shared memory, as that of a guest.
struct Memory {
    addr: usize,
    len: usize,
}

impl Memory {
    fn new(len: usize) -> Memory {
        Memory::map(len, 0, -1)
    }

    /// Maps a file, or new memory, at this address if it is not 0.
    fn map(len: usize, at: usize, fd: RawFd) -> Memory {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let fixed = if at > 0 { libc::MAP_FIXED } else { 0 };
        let anonymous = if fd < 0 { libc::MAP_ANONYMOUS } else { 0 };
        let place = std::ptr::with_exposed_provenance_mut(at);
        let flags = libc::MAP_SHARED | fixed | anonymous;
        // SAFETY: it replaces nothing, or a mapping of the test that no I/O uses.
        let addr = unsafe { libc::mmap(place, len, prot, flags, fd, 0) };
        assert_ne!(addr, libc::MAP_FAILED);
        Memory { addr: addr.expose_provenance(), len }
    }

    fn byte(&self, at: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut::<u8>(self.addr).wrapping_add(at)
    }

    fn fill(&self, byte: u8) {
        // SAFETY: it is mapped, and no I/O uses it.
        unsafe { self.byte(0).write_bytes(byte, self.len) };
    }

    /// Returns whether all of these bytes have this value.
    fn is(&self, at: usize, len: usize, value: u8) -> bool {
        // SAFETY: it is mapped, and no I/O uses it.
        (at..at + len).all(|at| unsafe { self.byte(at).read_volatile() } == value)
    }

    fn segment(&self, at: usize, len: usize) -> Segment {
        Segment { addr: self.addr + at, len: len as u32 }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the test's own mapping, which no I/O uses.
        unsafe { libc::munmap(self.byte(0).cast(), self.len) };
    }
}

fn disk(keys: &str) -> (Disk, NamedTempFile) {
    let file = NamedTempFile::new().expect("a scratch file");
    file.as_file().set_len(LEN as u64).expect("a size");
    let spec = format!("{}?engine=io_uring&direct=on&{keys}", file.path().display());
    (Disk::open(&spec).expect("a disk"), file)
}

/// Makes an I/O in these segments, and waits for it.
fn run(queue: &mut BioQueue, op: Op, start: u64, list: &[Segment]) {
    let len = list.iter().map(|one| u64::from(one.len)).sum();
    let segments = match list {
        [one] => Segments::One(*one),
        list => Segments::Many(list.to_vec()),
    };
    // SAFETY: the memory is mapped until the completion is reaped below.
    let submitted = unsafe { queue.submit_raw(Bio { segments, ..Bio::range(op, start, len) }) };
    submitted.map_err(|(why, _)| why).expect("it is taken");
    let mut done = Vec::new();
    queue.reap(1, 1, &mut done);
    assert_eq!(done[0].result, Ok(len));
}

/// Registers memory of a test.
fn register(queue: &BioQueue, addr: usize, len: usize) -> Result<RegisteredMemory, RegisterError> {
    // SAFETY: the test drops the returned value between its I/Os. `Memory` is never unmapped, and
    // is replaced only while it is not registered.
    unsafe { queue.register_memory(addr, len) }
}

/// Writes and reads several segments and one.
fn check_data(queue: &mut BioQueue, memory: &Memory, value: u8) {
    for list in [&[(0, 8192)][..], &[(4096, 4096), (65536, 8192), (0, 512)]] {
        let list: Vec<_> = list.iter().map(|&(at, len)| memory.segment(at, len)).collect();
        memory.fill(value);
        run(queue, Op::Write, 4096, &list);
        memory.fill(0);
        run(queue, Op::Read, 4096, &list);
        for segment in list {
            assert!(memory.is(segment.addr - memory.addr, segment.len as usize, value));
        }
    }
}

fn locked_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let line = status.lines().find(|line| line.starts_with("VmPin:")).expect("pinned memory");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn registered_memory_carries_the_data_of_one_segment_and_of_several() {
    for keys in ["", "nr_hw_queues=1", "sqpoll=on"] {
        let (disk, _file) = disk(keys);
        assert!(disk.can_register_memory(), "{keys}");
        let mut queue = disk.queue();
        let memory = Memory::new(LEN);
        check_data(&mut queue, &memory, 1);
        let registered = register(&queue, memory.addr, LEN).expect("it is registered");
        assert_eq!(registered.nr_hctx_requests(), 0);
        check_data(&mut queue, &memory, 2);
        // Reads and writes of several segments need Linux 6.15.
        let nr = registered.nr_hctx_requests();
        assert!(nr == 4 || nr == 2, "{keys}: {nr}");
        let outside = Memory::new(LEN);
        check_data(&mut queue, &outside, 3);
        assert_eq!(registered.nr_hctx_requests(), nr);
        drop(registered);
        check_data(&mut queue, &memory, 4);
    }
}

#[test]
fn memory_at_the_address_of_former_memory_is_used_itself() {
    for keys in ["", "nr_hw_queues=1"] {
        let (disk, _file) = disk(keys);
        let mut queue = disk.queue();
        let mut memory = Memory::new(LEN);
        let addr = memory.addr;
        for round in 1..20_u8 {
            let registered = register(&queue, addr, LEN).expect("it is registered");
            check_data(&mut queue, &memory, round);
            drop(registered);
            std::mem::forget(std::mem::replace(&mut memory, Memory::map(LEN, addr, -1)));
            // Not registered, and then registered.
            check_data(&mut queue, &memory, 100 + round);
        }
    }
}

#[test]
fn range_that_two_queues_register_is_pinned_once_and_freed_by_the_last() {
    let (disk, _file) = disk("nr_hw_queues=3");
    let before = locked_kib();
    let memory = Memory::new(32 << 20);
    let mut queue = disk.queue();
    let first = register(&queue, memory.addr, memory.len).expect("it is registered");
    let with_one = locked_kib();
    assert!(with_one > before + (8 << 10), "{before} {with_one}");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut queue = disk.queue();
            let second = register(&queue, memory.addr, memory.len).expect("it is registered");
            let with_two = locked_kib();
            let both = [memory.segment(0, 512), memory.segment(8192, 512)];
            run(&mut queue, Op::Write, 0, &both);
            // The kernel has such writes since Linux 6.15, and single clones since 6.13.
            let can_clone = second.nr_hctx_requests() == 1;
            run(&mut queue, Op::Write, 0, &[memory.segment(0, 4096)]);
            assert_eq!(second.nr_hctx_requests(), 1 + u64::from(can_clone));
            // Other tests pin a few MiB.
            let is_pinned_twice = with_two > with_one + (8 << 10);
            assert!(!(can_clone && is_pinned_twice), "{with_one} {with_two}");
        });
        other.join().expect("no panic");
    });
    run(&mut queue, Op::Write, 0, &[memory.segment(0, 4096)]);
    assert_eq!(first.nr_hctx_requests(), 1);
    drop(first);
    assert!(locked_kib() < before + (8 << 10), "it is pinned no more");
}

#[test]
fn memory_that_the_kernel_does_not_pin_is_refused() {
    let (disk, file) = disk("");
    let queue = disk.queue();
    // A file whose pages may be written back while they are pinned.
    let memory = Memory::map(LEN, 0, file.as_file().as_raw_fd());
    let error = register(&queue, memory.addr, LEN).expect_err("no shared memory").to_string();
    assert!(error.starts_with("io_uring does not register 1048576 bytes: "), "{error}");
    assert!(error.contains("only memory of a memfd"), "{error}");
    for spec in ["ram:1M", "null:1M"] {
        let disk = Disk::open(spec).expect("a disk");
        assert!(!disk.can_register_memory(), "{spec}");
        let error = register(&disk.queue(), memory.addr, LEN).expect_err(spec).to_string();
        assert!(error.contains("needs the driver file with engine=io_uring"), "{error}");
    }
    for keys in ["engine=aio", "engine=psync", "fixed_buffers=64k"] {
        let disk = Disk::open(&format!("{}?{keys}", file.path().display())).expect("a disk");
        assert!(!disk.can_register_memory(), "{keys}");
    }
}
