//! Tests of calls that threads make themselves, for the drivers that leave them.

use super::wait::{LONG, scratch};
use crate::buf::Buf;
use crate::driver::own_call::{self, end_offer, offer};
use crate::driver::testing::{data, issue, queue, reap};
use crate::driver::{DriverQueue, Mode, Offer, OwnCall};
use forebay_core::{Bio, BioFlags, BlockStatus, Issue, Op, Segment};

const DRIVERS: [&str; 3] = ["file", "aio", "psync"];

/// The offer of a thread that waits for data and for a flush. The tests' bios have owner 0.
const BOTH: Offer = Offer { data_of: Some(0), flush: true };

/// Runs a test with a shared queue of a new disk of 1 MiB, on each driver.
fn each_queue(mut test: impl FnMut(DriverQueue)) {
    for driver in DRIVERS {
        let (spec, _folder) = scratch(driver);
        test(queue(&spec, Mode::Shared));
    }
}

/// Issues a bio whose thread has offered to make it, and returns its call.
fn left(queue: &mut DriverQueue, tag: usize, bio: Bio) -> OwnCall {
    offer(BOTH);
    assert_eq!(issue(&mut *queue.driver, tag, bio), Issue::Begun);
    end_offer().expect("the call was left to this thread")
}

#[test]
fn call_of_each_kind_has_its_result_and_costs_one_system_call() {
    each_queue(|mut queue| {
        assert!(queue.waiter.leaves_own_calls());
        let (mut wrote, mut read) = (Buf::from(&[7; 4096][..]), Buf::new(4096));
        let bios = [
            (data(Op::Write, 8192, &mut wrote, 4096), Ok(4096)),
            (data(Op::Read, 8192, &mut read, 4096), Ok(4096)),
            (Bio::flush(), Ok(0)),
            (Bio::fsync(), Ok(0)),
            (Bio { flags: BioFlags::FUA, ..data(Op::Write, 0, &mut wrote, 4096) }, Ok(4096)),
        ];
        for (tag, (bio, result)) in bios.into_iter().enumerate() {
            let before = queue.driver.nr_syscalls();
            let call = left(&mut queue, tag, bio);
            assert_eq!(reap(&mut *queue.driver), [], "the call was not made yet");
            queue.waiter.make_own_call(call);
            let done = reap(&mut *queue.driver);
            assert_eq!((done.len(), done[0].tag.index(), done[0].result), (1, tag, result));
            assert_eq!(queue.driver.nr_syscalls(), before + 1);
        }
        assert_eq!(*read, [7; 4096]);
    });
}

#[test]
fn only_the_request_that_was_offered_is_left_to_the_thread() {
    each_queue(|mut queue| {
        let mut buf = Buf::new(8192);
        let mut issued = |offered: Offer, bio: Bio, expected: Issue| {
            offer(offered);
            assert_eq!(issue(&mut *queue.driver, 0, bio), expected);
            let call = end_offer();
            assert_eq!(call.is_some(), expected == Issue::Begun);
            match call {
                Some(call) => queue.waiter.make_own_call(call),
                None => queue.driver.commit_rqs(),
            }
            while reap(&mut *queue.driver).is_empty() {
                queue.waiter.wait(Some(LONG));
            }
        };
        let of_another = Offer { data_of: Some(1), flush: false };
        issued(of_another, data(Op::Read, 0, &mut buf, 8192), Issue::Queued);
        issued(of_another, Bio::flush(), Issue::Queued);
        issued(BOTH, data(Op::Read, 0, &mut buf, 4096), Issue::Queued);
        issued(BOTH, Bio::range(Op::WriteZeroes, 0, 4096), Issue::Queued);
        issued(BOTH, data(Op::Read, 0, &mut buf, 8192), Issue::Begun);
        issued(Offer::NONE, data(Op::Read, 0, &mut buf, 8192), Issue::Queued);
    });
}

#[test]
fn one_request_is_left_to_a_thread_at_a_time() {
    each_queue(|mut queue| {
        let (mut one, mut two) = (Buf::new(4096), Buf::new(4096));
        offer(BOTH);
        let first = issue(&mut *queue.driver, 0, data(Op::Read, 0, &mut one, 4096));
        let second = issue(&mut *queue.driver, 1, data(Op::Read, 0, &mut two, 4096));
        assert_eq!((first, second), (Issue::Begun, Issue::Queued));
        queue.driver.commit_rqs();
        queue.waiter.make_own_call(end_offer().expect("the first"));
        let mut tags: Vec<usize> = Vec::new();
        while tags.len() < 2 {
            tags.extend(reap(&mut *queue.driver).iter().map(|done| done.tag.index()));
            if tags.len() < 2 {
                queue.waiter.wait(Some(LONG));
            }
        }
        tags.sort_unstable();
        assert_eq!(tags, [0, 1]);
    });
}

#[test]
fn error_that_the_file_reports_is_final() {
    let forbidden = |op, fua, answer| {
        let tag = forebay_core::Tag::from_index(0);
        let call = OwnCall { tag, op, fua, metadata: false, start: 0, addr: 0, len: 0 };
        own_call::is_forbidden(&call, answer)
    };
    for errno in [libc::EPERM, libc::ENOSYS, libc::EIO] {
        // No filter is active, so these are the errors of a file, and the flush has consumed them.
        assert!(!forbidden(Op::Flush, false, -errno));
        assert!(!forbidden(Op::Write, true, -errno) && !forbidden(Op::Read, false, -errno));
    }
    assert!(!forbidden(Op::Read, false, 0));
}

#[test]
fn own_call_cannot_be_cancelled() {
    each_queue(|mut queue| {
        let mut buf = Buf::new(4096);
        offer(BOTH);
        let answer = issue(&mut *queue.driver, 0, data(Op::Read, 0, &mut buf, 4096));
        assert_eq!(answer, Issue::Begun);
        assert!(!queue.driver.cancel(forebay_core::Tag::from_index(0)));
        queue.waiter.make_own_call(end_offer().expect("a call"));
        assert_eq!(reap(&mut *queue.driver).len(), 1);
    });
}

#[test]
fn call_that_is_withdrawn_is_made_by_the_driver() {
    each_queue(|mut queue| {
        let mut buf = Buf::from(&[9; 4096][..]);
        let bios = [
            data(Op::Write, 4096, &mut buf, 4096),
            data(Op::Read, 4096, &mut buf, 4096),
            Bio::flush(),
        ];
        for bio in bios {
            let expected = bio.len;
            offer(BOTH);
            assert_eq!(issue(&mut *queue.driver, 3, bio), Issue::Begun);
            queue.driver.withdraw();
            assert_eq!(end_offer(), None);
            let mut done = reap(&mut *queue.driver);
            while done.is_empty() {
                queue.waiter.wait(Some(LONG));
                done = reap(&mut *queue.driver);
            }
            assert_eq!((done.len(), done[0].tag.index(), done[0].result), (1, 3, Ok(expected)));
        }
        // It is permitted although no request is left to this thread.
        queue.driver.withdraw();
    });
}

#[test]
fn failure_of_a_call_has_the_status_of_its_errno() {
    each_queue(|mut queue| {
        // A page that is not mapped.
        let segment = Segment { addr: 4096, len: 4096 };
        let bio = Bio::data(Op::Read, 0, segment);
        let call = left(&mut queue, 0, bio);
        queue.waiter.make_own_call(call);
        let mut done = reap(&mut *queue.driver);
        while done.is_empty() {
            queue.waiter.wait(Some(LONG));
            done = reap(&mut *queue.driver);
        }
        assert_eq!(done[0].result, Err(BlockStatus::Invalid));
    });
}
