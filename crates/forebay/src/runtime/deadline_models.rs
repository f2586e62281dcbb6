//! Models of deadlines (W7), and of bios that end before their request (H5).
//!
//! The limits are 1 ns, so each later turn is past them. A wait with a deadline returns at once;
//! without one, only a completion or a kick ends it. So a lost deadline shows as a deadlock.

use crate::driver::Offer;
use crate::runtime::hctx::SHARED;
use crate::runtime::mailbox::Mailbox;
use crate::runtime::shared::Shared;
use crate::runtime::thread::Ctx;
use crate::runtime::toy::{AT_ONCE, By, Caller, How, Page, Toy};
use crate::runtime::wait;
use crate::sys::primitive::{check_within, thread};
use forebay_core::{BioFlags, BlockStatus, QueuedBio};
use std::sync::Arc;

/// Checks a model in a time of its own, in which each reading of the clock is a little later.
fn check_timed(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    check_within(preemptions, move || {
        #[cfg(any(blk_loom, blk_shuttle))]
        let _time = crate::sys::clock::model_time::ModelTime::begin();
        body();
    });
}

/// A device with a thread of its own and a volatile cache. A flush that waits for writes has a
/// deadline.
const PENDING: How = How { by: By::Thread, flush_pending_ns: 1, ..AT_ONCE };

/// A device with a thread of its own, whose requests have a time limit.
const LIMITED: How = How { by: By::Thread, io_timeout_ns: 1, ..AT_ONCE };

/// One thread waits for a FUA write, at first without a deadline. The flush of another thread waits
/// for that write, and has one (F6). The device completes the write only if it has the flush too.
fn flush_behind_a_write() {
    let toy = Toy::new(PENDING);
    let disk = Toy::open(&toy);
    let device = {
        let toy = Arc::clone(&toy);
        thread::spawn(move || {
            toy.await_requests(2);
            toy.serve();
        })
    };
    let flusher = {
        let disk = Arc::clone(&disk);
        thread::spawn(move || Caller::new(&disk).flush(&disk))
    };
    Caller::new(&disk).write_fua(&disk);
    flusher.join().unwrap();
    assert!(!disk.hctx(SHARED).run.has_leader());
    drop(disk);
    toy.close();
    device.join().unwrap();
}

#[test]
fn deadline_of_a_flush_reaches_a_leader_that_is_about_to_wait() {
    check_timed(1, flush_behind_a_write);
}

/// Reads into memory that stays valid for longer than the bio, and waits for its end, which is the
/// completion or the time limit. Returns the memory.
fn read_within_the_limit(disk: &Arc<Shared>) -> Kept {
    let page = Arc::new(Page::default());
    let mailbox = Arc::new(Mailbox::of_thread());
    let mut bio = page.bio();
    bio.flags = BioFlags::OWNED;
    let mut boxed = QueuedBio::new(mailbox.owner(), 0);
    boxed.fill(bio);
    let ctx = Ctx::new(disk, SHARED);
    ctx.queue_bio(boxed, 0).expect("a toy takes every read");
    wait::wait(disk, &ctx, &mailbox, 1, Offer::NONE);
    let mut boxed = mailbox.take().and_then(|mut ended| ended.next()).expect("it has ended");
    let result = boxed.result();
    let hold = boxed.take_hold();
    // One of two reads may be given up before the other is issued. The other ends with `Offline`.
    let nr_completions = match result {
        Ok(512) | Err(BlockStatus::Timeout) => 1,
        Err(BlockStatus::Offline) => 0,
        other => panic!("{other:?}"),
    };
    let is_early = result == Err(BlockStatus::Timeout);
    assert!(hold.is_none() || is_early, "only memory that the driver may use is held");
    Kept { page, mailbox, hold, nr_completions }
}

/// A read that has ended, and its memory.
struct Kept {
    page: Arc<Page>,
    mailbox: Arc<Mailbox>,
    hold: Option<forebay_core::MemoryHold>,
    nr_completions: u64,
}

impl Kept {
    /// Checks that the request has completed since, once, and changed nothing for the bio.
    fn check(self) {
        assert_eq!(self.mailbox.cell.nr_delivered(), 1, "a bio ends once");
        let nr_written = self.page.nr_written();
        assert_eq!(nr_written, self.nr_completions, "the memory was valid at the completion");
        let nr_handles = self.hold.as_ref().map_or(1, Arc::strong_count);
        assert_eq!(nr_handles, 1, "the layer returns the memory after the completion");
    }
}

/// Threads read beside a device that completes each read before, at, or after its time limit.
fn reads_beside_their_limits(nr_threads: usize) {
    let toy = Toy::new(LIMITED);
    let disk = Toy::open(&toy);
    let device = {
        let toy = Arc::clone(&toy);
        thread::spawn(move || toy.serve())
    };
    let read = |_| {
        let disk = Arc::clone(&disk);
        thread::spawn(move || read_within_the_limit(&disk))
    };
    let others: Vec<_> = (1..nr_threads).map(read).collect();
    let mut kept = vec![read_within_the_limit(&disk)];
    kept.extend(others.into_iter().map(|thread| thread.join().unwrap()));
    // No request is committed after this: the device completes its last ones.
    toy.close();
    device.join().unwrap();
    disk.poll_shared();
    assert!(disk.hctx(SHARED).is_drained());
    kept.into_iter().for_each(Kept::check);
}

/// The same, while a third thread reads. It may lead first, and pass the baton with the deadline.
/// The device completes the read as soon as it has it. Too many threads for loom.
#[cfg(not(blk_loom))]
fn flush_behind_a_write_beside_a_read() {
    let toy = Toy::new(PENDING);
    let disk = Toy::open(&toy);
    let device = {
        let toy = Arc::clone(&toy);
        thread::spawn(move || {
            toy.await_read();
            toy.await_requests(2);
            toy.serve();
        })
    };
    let flusher = {
        let disk = Arc::clone(&disk);
        thread::spawn(move || Caller::new(&disk).flush(&disk))
    };
    let writer = {
        let disk = Arc::clone(&disk);
        thread::spawn(move || Caller::new(&disk).write_fua(&disk))
    };
    Caller::new(&disk).read(&disk);
    [flusher, writer].into_iter().for_each(|thread| thread.join().unwrap());
    assert!(!disk.hctx(SHARED).run.has_leader());
    drop(disk);
    toy.close();
    device.join().unwrap();
}

#[cfg(not(blk_loom))]
#[test]
fn deadline_of_a_flush_stays_when_a_leader_resigns() {
    check_timed(1, flush_behind_a_write_beside_a_read);
}

#[test]
fn read_that_completes_beside_its_time_limit_ends_once() {
    check_timed(3, || reads_beside_their_limits(1));
}

#[test]
fn reads_of_two_threads_beside_their_time_limits_end_once() {
    check_timed(1, || reads_beside_their_limits(2));
}
