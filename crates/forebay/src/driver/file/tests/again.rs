//! Tests of requests that are submitted again, because the thread that submitted them has ended.

use crate::driver::file::commands::Commands;
use crate::driver::testing::{data, issue};
use crate::{BUF_ALIGN, Buf};
use forebay_core::{
    Bio, BioFlags, BlockStatus, Completions, Driver, Issue, IssuedRequest, Op, QueueLimits, Reap,
    Tag,
};
use std::time::Duration;

/// Records requests and does nothing else.
struct Notes(Commands);

impl Driver for Notes {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _: bool) -> Issue {
        self.0.note(rq, 0);
        Issue::Queued
    }

    fn commit_rqs(&mut self) {}

    fn reap(&mut self, _: &mut Completions, _: Reap) {}

    fn wait(&mut self, _: u32, _: Option<Duration>) {}
}

/// Returns how many times a request is submitted again if each entry completes with `answer`, and
/// its result.
fn ends(bio: Bio, answer: i32) -> (u32, Result<u64, BlockStatus>) {
    let limits = QueueLimits::default().volatile_cache(true);
    let mut notes = Notes(Commands::new(&limits, 4, None));
    assert_eq!(issue(&mut notes, 1, bio), Issue::Queued);
    let mut nr_again = 0;
    loop {
        if let Some(result) = notes.0.ended(Tag::from_index(1), answer) {
            return (nr_again, result);
        }
        nr_again += 1;
    }
}

/// A kernel worker that blocks on behalf of a thread is interrupted when that thread ends (EINTR),
/// or its work is cancelled (ECANCELED), or the thread's memory is gone (EFAULT).
#[test]
fn request_interrupted_by_the_end_of_a_thread_is_sent_again() {
    let mut buf = Buf::new(BUF_ALIGN);
    for errno in [libc::EINTR, libc::ECANCELED, libc::EFAULT] {
        for bio in [data(Op::Read, 0, &mut buf, 4096), data(Op::Write, 0, &mut buf, 4096)] {
            let (nr_again, result) = ends(bio, -errno);
            assert!(nr_again > 0 && result.is_err(), "errno {errno}: {nr_again} times, {result:?}");
        }
        let durable = data(Op::Write, 0, &mut buf, 4096);
        let durable = Bio { flags: durable.flags.union(BioFlags::FUA), ..durable };
        let is_of_file = errno == libc::EFAULT;
        for bio in [Bio::flush(), durable] {
            assert_eq!(ends(bio, -errno).0 == 0, is_of_file, "errno {errno}");
        }
    }
    for errno in [libc::EIO, libc::ENOSPC, libc::EINVAL] {
        assert_eq!(ends(data(Op::Write, 0, &mut buf, 4096), -errno).0, 0, "errno {errno}");
    }
}
