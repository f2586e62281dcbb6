//! Tests of I/O with memory of the caller, which ends only when the driver returns the memory.
// The caller of `submit_raw` vouches for its memory.
#![allow(unsafe_code)]

use crate::common::{Scratch, open};
use crate::early_ends::slow;
use crate::event_loop::is_readable;
use crate::hung_disks::{SLOW, limits};
use forebay::{Bio, BioQueue, Buf, Op, Segment};
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
    let is_readable = |queue: &mut BioQueue| is_readable(queue.poll_fd_after_reap().unwrap());
    // It is readable at first.
    for _ in 0..2 {
        assert!(is_readable(&mut queue));
        let plug = forebay::plug();
        // SAFETY: a flush has no memory.
        unsafe { queue.submit_raw(Bio::flush()) }.expect("there is room");
        drop(plug);
        assert_eq!(queue.reap_raw_untold_with(usize::MAX, |_, _| {}), 1);
    }
    assert_eq!(queue.reap_raw_with(0, usize::MAX, |_, _| {}), 0);
    assert!(!is_readable(&mut queue));
}
