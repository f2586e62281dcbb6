//! Priorities and owners by every way of submission, also of I/O that is cut or merged.
//!
//! The device takes one request at a time, and keeps the first one. So the scheduler chooses among
//! all others, by the class of their priority.

use crate::common::reap_all;
use crate::futures::block_on;
use forebay::{
    Backend, Batch, BioQueue, Buf, Class, Disk, Io, IoFuture, Owner, QueueLimits, Request, plug,
    plugged,
};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

const CAPACITY: u64 = 1 << 20;

/// The first requests of I/O without a priority, with a low one and with a high one.
const USUAL: u64 = 0;
const LOW: u64 = 64 << 10;
const HIGH: u64 = 128 << 10;

/// A device that keeps its first request, and records all.
#[derive(Default)]
struct Recorder {
    kept: Mutex<Option<Request>>,
    /// The first byte and the length of each request.
    order: Mutex<Vec<(u64, u64)>>,
}

/// The back end of a disk, which shares the recorder with its test.
struct Shared(Arc<Recorder>);

impl Backend for Shared {
    fn name(&self) -> &str {
        "recorder"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        for request in batch {
            let mut order = self.0.order.lock().expect("no panic");
            order.push((request.offset(), request.len()));
            match order.len() {
                1 => *self.0.kept.lock().expect("no panic") = Some(request),
                _ => request.complete(Ok(())),
            }
        }
    }
}

/// A busy disk with two owners.
struct Busy {
    disk: Disk,
    recorder: Arc<Recorder>,
    low: Owner,
    high: Owner,
    /// It has the I/O whose request the device keeps.
    queue: BioQueue,
}

impl Busy {
    /// Opens a disk whose requests have at most this many bytes.
    fn new(max_bytes: u64) -> Busy {
        let recorder = Arc::new(Recorder::default());
        let mut limits = QueueLimits::default().capacity_bytes(Some(CAPACITY));
        limits.max_sectors = (max_bytes / 512) as u32;
        let options = Disk::options().set("scheduler", "mq-deadline").expect("a key");
        let options = options.set("device_depth", "1").expect("a key");
        let disk = options.open_backend(Shared(Arc::clone(&recorder)), limits).expect("a disk");
        let owner = |name| disk.owner(name).expect("a new owner");
        let (low, high) = (owner("low"), owner("high"));
        let mut queue = disk.queue();
        queue.submit(Io::read(Buf::new(512), USUAL)).expect("room");
        assert_eq!(recorder.order.lock().expect("no panic").len(), 1);
        Busy { disk, recorder, low, high, queue }
    }

    /// Lets the device end its first request, and so all others.
    fn let_go(&mut self) {
        let kept = self.recorder.kept.lock().expect("no panic").take();
        kept.expect("it was kept").complete(Ok(()));
        check_moved(&mut self.queue, 1, 512);
    }

    /// Checks the order of the requests after the first, and the I/O of both owners.
    #[track_caller]
    fn check(&self, expected: &[(u64, u64)], ios: u64, bytes: u64) {
        let order = self.recorder.order.lock().expect("no panic");
        assert_eq!(order[1..], *expected);
        for owner in [&self.low, &self.high] {
            let stats = owner.stats();
            assert_eq!((stats.ios, stats.bytes), (ios, bytes), "{owner:?}");
        }
    }
}

/// Returns a read of `len` bytes with the priority of its place.
fn read(at: u64, len: u64) -> Io {
    let class = if at >= HIGH { Class::RealTime } else { Class::Idle };
    Io::read(Buf::new(len as usize), at).priority(class, 4)
}

/// Waits for `nr` I/Os, which move `len` bytes each.
#[track_caller]
fn check_moved(queue: &mut BioQueue, nr: usize, len: u64) {
    let moved: Vec<_> = reap_all(queue).iter().map(|done| done.result).collect();
    assert_eq!(moved, vec![Ok(len); nr]);
}

/// Polls a future once, which submits its I/O.
fn begin(future: &mut Pin<Box<impl Future>>) {
    let poll = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_pending(), "the device is busy");
}

/// Waits for a future whose I/O moves `len` bytes.
fn end(future: Pin<Box<IoFuture>>, len: u64) {
    assert_eq!(block_on(future, "a read").expect("good I/O").result, Ok(len));
}

#[test]
fn queued_io_keeps_its_priority_and_owner() {
    let mut busy = Busy::new(64 << 10);
    let mut queue = busy.disk.queue();
    queue.submit_for(&busy.low, read(LOW, 4096)).expect("room");
    let origin = busy.high.origin();
    let of_high = read(HIGH, 4096).origin(origin).priority(Class::RealTime, 0);
    queue.submit(of_high).expect("room");
    busy.let_go();
    check_moved(&mut queue, 2, 4096);
    busy.check(&[(HIGH, 4096), (LOW, 4096)], 1, 4096);
}

#[test]
fn futures_keep_their_priority_and_owner() {
    let mut busy = Busy::new(64 << 10);
    let mut low = Box::pin(busy.low.start(read(LOW, 4096)));
    let origin = busy.high.origin();
    let of_high = read(HIGH, 4096).origin(origin).priority(Class::RealTime, 0);
    let mut high = Box::pin(busy.disk.start(of_high));
    begin(&mut low);
    begin(&mut high);
    busy.let_go();
    end(high, 4096);
    end(low, 4096);
    busy.check(&[(HIGH, 4096), (LOW, 4096)], 1, 4096);
}

#[test]
fn plugged_futures_merge_with_their_priority_and_owner() {
    let mut busy = Busy::new(64 << 10);
    let reads = |owner: &Owner, at: u64| {
        let (one, other) = (owner.start(read(at, 4096)), owner.start(read(at + 4096, 4096)));
        Box::pin(plugged(async move {
            let both = (Box::pin(one), Box::pin(other));
            let (mut one, mut other) = both;
            // Both are submitted before the first one is awaited.
            begin(&mut one);
            begin(&mut other);
            (one.await, other.await)
        }))
    };
    let (mut low, mut high) = (reads(&busy.low, LOW), reads(&busy.high, HIGH));
    begin(&mut low);
    begin(&mut high);
    busy.let_go();
    for both in [high, low] {
        let (one, other) = block_on(both, "two reads");
        assert_eq!(one.expect("good I/O").result, Ok(4096));
        assert_eq!(other.expect("good I/O").result, Ok(4096));
    }
    busy.check(&[(HIGH, 8192), (LOW, 8192)], 2, 8192);
}

#[test]
fn parts_of_cut_io_keep_its_priority_and_owner() {
    for by_future in [false, true] {
        let mut busy = Busy::new(4096);
        let mut queue = busy.disk.queue();
        let mut futures = Vec::new();
        for (owner, at) in [(&busy.low, LOW), (&busy.high, HIGH)] {
            match by_future {
                false => queue.submit_for(owner, read(at, 16384)).expect("room"),
                true => {
                    let mut future = Box::pin(owner.start(read(at, 16384)));
                    begin(&mut future);
                    futures.push(future);
                }
            }
        }
        busy.let_go();
        futures.into_iter().for_each(|future| end(future, 16384));
        let nr = queue.len();
        check_moved(&mut queue, nr, 16384);
        let parts = |at: u64| (0..4).map(move |nth| (at + 4096 * nth, 4096));
        let expected: Vec<_> = parts(HIGH).chain(parts(LOW)).collect();
        let ios = busy.low.stats().ios;
        busy.check(&expected, ios, 16384);
    }
}

#[test]
fn io_that_merges_in_a_plug_or_in_the_scheduler_keeps_its_priority_and_owner() {
    for in_plug in [true, false] {
        let mut busy = Busy::new(64 << 10);
        let mut queue = busy.disk.queue();
        let held = in_plug.then(plug);
        for nth in 0..4 {
            for (owner, at) in [(&busy.low, LOW), (&busy.high, HIGH)] {
                queue.submit_for(owner, read(at + 4096 * nth, 4096)).expect("room");
            }
        }
        drop(held);
        busy.let_go();
        check_moved(&mut queue, 8, 4096);
        busy.check(&[(HIGH, 16384), (LOW, 16384)], 4, 16384);
    }
}

#[test]
fn neighbours_of_different_owners_do_not_merge() {
    for in_plug in [true, false] {
        let mut busy = Busy::new(64 << 10);
        let mut queue = busy.disk.queue();
        let held = in_plug.then(plug);
        queue.submit_for(&busy.low, read(LOW, 4096)).expect("room");
        queue.submit_for(&busy.high, read(LOW + 4096, 4096)).expect("room");
        drop(held);
        busy.let_go();
        check_moved(&mut queue, 2, 4096);
        busy.check(&[(LOW, 4096), (LOW + 4096, 4096)], 1, 4096);
    }
}

#[test]
fn io_without_an_owner_counts_for_none() {
    let mut busy = Busy::new(64 << 10);
    let mut queue = busy.disk.queue();
    for at in [LOW, HIGH] {
        queue.submit(read(at, 4096)).expect("room");
    }
    busy.let_go();
    check_moved(&mut queue, 2, 4096);
    busy.check(&[(HIGH, 4096), (LOW, 4096)], 0, 0);
}
