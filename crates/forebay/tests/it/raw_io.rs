//! Tests of I/O with memory of the caller, which ends only when the driver returns the memory.
// The caller of `submit_raw` vouches for its memory.
#![allow(unsafe_code)]

use crate::common::{Scratch, open};
use crate::early_ends::slow;
use crate::event_loop::is_readable;
use crate::hung_disks::{SLOW, limits};
use forebay::{Bio, BioFlags, Buf, Op, PollMode, Segment};
use std::os::fd::AsFd;
use std::time::Instant;

/// A thread that owns a hardware context completes its requests before its flush waits in the
/// shared context. It must not wait for a request that a device that is gone still has.
#[test]
fn flush_of_an_owner_ends_beside_a_read_that_does_not() {
    let scratch = Scratch::new(1 << 20);
    let keys = format!("nr_hw_queues=2&{}&{}", slow("read"), limits());
    let disk = open(&format!("fault:{}", scratch.spec(&keys)));
    let mut block = Buf::new(4096);
    let mut queue = disk.queue();
    let segment = Segment { addr: block.as_mut_ptr().expose_provenance(), len: 4096 };
    let begin = Instant::now();
    // SAFETY: no other code uses the buffer before the queue is dropped, which waits.
    unsafe { queue.submit_raw(Bio::data(Op::Read, 0, segment)) }.expect("there is room");
    disk.flush().expect_err("the device is gone");
    assert!(begin.elapsed() < SLOW, "{:?}", begin.elapsed());
    assert!(disk.is_failed());
    drop(queue);
    assert!(begin.elapsed() >= SLOW, "{:?}", begin.elapsed());
}

#[test]
fn raw_reap_clears_the_descriptor_only_after_it_was_reported() {
    let disk = open("null:1M");
    let mut queue = disk.queue();
    let handle = queue.poll_handle(PollMode::AfterReap).expect("a descriptor");
    // It is readable at first.
    for _ in 0..2 {
        assert!(is_readable(handle.as_fd()));
        let plug = forebay::plug();
        // SAFETY: a flush has no memory.
        unsafe { queue.submit_raw(Bio::flush()) }.expect("there is room");
        drop(plug);
        assert_eq!(queue.reap_raw_with(0, usize::MAX, |_, _| {}), 1);
    }
    queue.ack_poll();
    assert_eq!(queue.reap_raw_with(0, usize::MAX, |_, _| {}), 0);
    assert!(!is_readable(handle.as_fd()));
}

#[test]
fn blocking_raw_call_moves_a_borrowed_list_of_segments() {
    let disk = open("ram:1M");
    let mut memory = Buf::from(&[7; 4096][..]);
    let addr = memory.as_mut_ptr().expose_provenance();
    let parts = [Segment { addr: addr + 1024, len: 512 }, Segment { addr, len: 1024 }];
    let run = |op, start, len| {
        // SAFETY: the memory lives, and no other code uses it meanwhile.
        unsafe { disk.run_raw_vectored(Bio::range(op, start, len), &parts) }
    };
    assert_eq!(run(Op::Read, 4096, 1536), Ok(1536));
    assert!(memory[..1536] == [0; 1536] && memory[1536..] == [7; 2560]);
    memory[1024..1536].fill(1);
    memory[..1024].fill(2);
    assert_eq!(run(Op::Write, 8192, 1536), Ok(1536));
    let mut read = [0; 1536];
    disk.read_exact_at(&mut read, 8192).expect("a read");
    assert!(read[..512] == [1; 512] && read[512..] == [2; 1024]);
    run(Op::Read, 0, 512).expect_err("the list has another length");
}

/// librbd has no vectored write with flags, so the driver copies such a write.
#[test]
fn durable_write_of_several_segments_is_stored_in_order() {
    let Some(cluster) = crate::rbd::cluster() else { return };
    let disk = open(&cluster.spec(&cluster.create(1 << 20, "layering")));
    let (mut data, mut read) = (vec![0; 8192], vec![0; 8192]);
    data.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 512) as u8 + 1);
    let addr = data.as_mut_ptr().expose_provenance();
    let parts = [(4096, 4096), (0, 512), (1024, 512)];
    let parts = parts.map(|(at, len)| Segment { addr: addr + at, len });
    let bio = Bio { flags: BioFlags::FUA, ..Bio::range(Op::Write, 512, 5120) };
    // SAFETY: the memory lives, and no other code uses it meanwhile.
    assert_eq!(unsafe { disk.run_raw_vectored(bio, &parts) }, Ok(5120));
    assert_eq!(disk.stats().queue.flushes_issued, 0, "the write is durable by itself");
    disk.read_at(&mut read, 512).expect("a read");
    assert_eq!(read[..5120], [&data[4096..], &data[..512], &data[1024..1536]].concat());
}
