//! Complete I/Os from several threads, small enough for Miri. Over `ram:` and `null:`, Miri can
//! follow memory and requests from the caller to the device and back.

use forebay::{Buf, Completion, Disk, GuestSlice, Io};
use std::io::{IoSlice, IoSliceMut};

const PAGE: usize = 512;
const ROUNDS: u64 = if cfg!(miri) { 2 } else { 100 };

/// Runs `work` on `nr_threads` threads, each on its own part of the disk.
fn in_threads(spec: &str, nr_threads: u64, work: impl Fn(&Disk, u64) + Sync) {
    // A small tag table and no histograms: setting these up is slow under Miri.
    let small =
        if spec.contains("queue_depth") { "iostats=off" } else { "iostats=off&queue_depth=8" };
    let disk = Disk::open(&format!("{spec}&{small}")).expect("a disk");
    std::thread::scope(|scope| {
        for thread in 1..nr_threads {
            let (disk, work) = (&disk, &work);
            scope.spawn(move || work(disk, thread));
        }
        work(&disk, 0);
    });
}

/// Writes and reads back with blocking calls.
fn write_and_read(disk: &Disk, thread: u64) {
    let keeps_data = disk.info().driver != "null";
    for round in 0..ROUNDS {
        let (at, stamp) = (thread * PAGE as u64, (thread * ROUNDS + round) as u8);
        let mut page = [stamp; PAGE];
        assert_eq!(disk.write_at(&page, at).expect("a write"), PAGE);
        page.fill(!stamp);
        assert_eq!(disk.read_at(&mut page, at).expect("a read"), PAGE);
        assert!(!keeps_data || page == [stamp; PAGE]);
        let (one, two) = page.split_at_mut(PAGE / 4);
        let parts = [IoSlice::new(two), IoSlice::new(one)];
        assert_eq!(disk.write_vectored_at(&parts, at).expect("a write"), PAGE);
        let mut parts = [IoSliceMut::new(one), IoSliceMut::new(two)];
        assert_eq!(disk.read_vectored_at(&mut parts, at).expect("a read"), PAGE);
        assert!(!keeps_data || page == [stamp; PAGE]);
    }
    disk.flush().expect("a flush");
}

#[test]
#[allow(unsafe_code)] // it vouches for an address
fn blocking_calls_on_parts_of_guest_memory() {
    in_threads("ram:16k?nr_hw_queues=2", 2, |disk, thread| {
        let mut mapping = vec![1; 2 * PAGE];
        // SAFETY: the vector outlives the calls, and nothing refers to it meanwhile.
        let memory = unsafe { GuestSlice::new(mapping.as_mut_ptr(), 2 * PAGE) };
        let parts = [(100, PAGE - 100), (PAGE, 100)].map(|(at, len)| memory.part(at, len));
        let parts = parts.map(|part| part.expect("within the memory"));
        let at = thread * PAGE as u64;
        assert_eq!(disk.write_guest_at(parts, at).expect("a write"), PAGE);
        assert_eq!(disk.read_guest_at(parts, at).expect("a read"), PAGE);
        assert!(mapping[..] == [1; 2 * PAGE]);
    });
}

#[test]
fn blocking_calls_on_contexts_of_their_own() {
    in_threads("ram:16k?nr_hw_queues=2", 2, write_and_read);
}

#[test]
fn blocking_calls_on_one_context() {
    for spec in ["ram:16k?nr_hw_queues=1&req_ns=1000&queue_depth=1", "null:16k?nr_hw_queues=1"] {
        in_threads(spec, 3, write_and_read);
    }
}

#[test]
fn blocking_calls_on_two_disks() {
    let other = Disk::open("ram:16k?nr_hw_queues=1&req_ns=1000").expect("a disk");
    in_threads("ram:16k?nr_hw_queues=1&req_ns=1000", 3, |disk, thread| {
        write_and_read(disk, thread);
        write_and_read(&other, thread);
    });
}

/// Submits under a plug, and reaps one by one.
fn plug_and_reap(disk: &Disk, thread: u64) {
    let keeps_data = disk.info().driver != "null";
    let mut queue = disk.queue();
    let mut done: Vec<Completion> = Vec::new();
    for round in 0..ROUNDS {
        let stamp = (thread * ROUNDS + round) as u8;
        let at = |n: u64| (thread * 4 + n) * PAGE as u64;
        let plug = forebay::plug();
        for n in 0..4 {
            queue.submit(Io::write(Buf::from(&[stamp; PAGE][..]), at(n))).expect("room");
        }
        drop(plug);
        queue.reap(4, 4, &mut done);
        for n in 0..4 {
            queue.submit(Io::read(Buf::new(PAGE), at(n))).expect("room");
        }
        while !queue.is_empty() {
            queue.reap(1, 3, &mut done);
        }
        assert_eq!(done.len(), 8);
        for read in done.drain(..).skip(4) {
            assert_eq!(read.result, Ok(PAGE as u64));
            assert!(!keeps_data || *read.buf.expect("its buffer") == [stamp; PAGE]);
        }
    }
    // The queue is dropped with this read in flight.
    queue.submit(Io::read(Buf::new(PAGE), 0)).expect("room");
}

#[test]
fn queues_on_contexts_of_their_own() {
    in_threads("null:16k?nr_hw_queues=2", 2, plug_and_reap);
}

#[test]
fn queues_on_one_context() {
    in_threads("ram:16k?nr_hw_queues=1&req_ns=1000&queue_depth=2", 3, plug_and_reap);
}

/// Polls for completions that another thread's turn delivers, and drops the queue immediately.
#[test]
fn queues_are_dropped_when_everything_is_reaped() {
    in_threads("ram:16k?nr_hw_queues=1", 3, |disk, thread| {
        for _ in 0..ROUNDS {
            let (mut queue, mut done) = (disk.queue(), Vec::new());
            queue.submit(Io::read(Buf::new(PAGE), thread * PAGE as u64)).expect("room");
            while !queue.is_empty() {
                queue.reap(0, 1, &mut done);
            }
        }
    });
}

#[test]
fn a_range_that_is_given_back_reads_as_zeroes() {
    in_threads("ram:256k?nr_hw_queues=1", 2, |disk, thread| {
        let at = thread * (128 << 10);
        disk.write_at(&[7; PAGE], at + 512).expect("a write");
        disk.write_zeroes(at, 64 << 10).expect("a range of zeroes");
        let mut page = [1; PAGE];
        disk.read_at(&mut page, at + 512).expect("a read");
        assert_eq!(page, [0; PAGE]);
    });
}
