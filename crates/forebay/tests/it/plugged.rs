//! Plugs around the polls of futures, and I/O that is started together.

use crate::common::{Scratch, open};
use crate::futures::block_on;
use crate::nbd_server::{NbdServer, export};
use forebay::{Buf, Disk, Io, IoFuture, Op, SubmitErrorKind, plugged};
use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// A task that reads a page, and another page after that.
async fn read_two(disk: &Disk, page: u64) {
    for at in [page * 4096, (1 << 19) + page * 4096] {
        let read = disk.start(Io::read(Buf::new(4096), at)).await.expect("a good I/O");
        assert_eq!(read.result, Ok(4096));
    }
}

fn read(disk: &Disk, page: u64) -> IoFuture {
    disk.start(Io::read(Buf::new(4096), page * 4096))
}

/// Runs tasks in one future. Each poll polls all of them.
struct Join<F>(Vec<Pin<Box<F>>>);

impl<F: Future> Join<F> {
    fn of(tasks: impl IntoIterator<Item = F>) -> Join<F> {
        Join(tasks.into_iter().map(Box::pin).collect())
    }
}

impl<F: Future> Future for Join<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.retain_mut(|task| task.as_mut().poll(context).is_pending());
        if self.0.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Polls a future once.
fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn issued(disk: &Disk) -> u64 {
    disk.stats().queue.issued
}

/// Waits until the disk has issued some requests. The disk's service thread may be the one that
/// issues them, just after the plug has ended.
fn wait_for_issued(disk: &Disk, count: u64, spec: &str) {
    let start = Instant::now();
    while issued(disk) < count {
        assert!(start.elapsed() < Duration::from_secs(60), "{spec}: {} issued", issued(disk));
        thread::yield_now();
    }
    assert_eq!(issued(disk), count, "{spec}");
}

/// Specs of all drivers that need no server.
fn specs(scratch: &Scratch) -> Vec<String> {
    let files = ["file", "aio", "psync"]
        .into_iter()
        .flat_map(|driver| ["", "direct=on"].map(|k| format!("{driver}:{}", scratch.spec(k))));
    let others = ["ram:1M", "ram:1M?req_ns=20000", "null:1M", "model:nvme?size=1M&service=off"];
    files.chain(others.map(String::from)).collect()
}

#[test]
fn sixteen_tasks_under_one_poll_make_one_request() {
    let (scratch, server) = (Scratch::new(1 << 20), NbdServer::new(export(1 << 20), &[]));
    for spec in specs(&scratch).into_iter().chain([server.uri()]) {
        let disk = open(&spec);
        let tasks = (0..16).map(|page| read(&disk, page));
        block_on(plugged(Join::of(tasks)), &spec);
        assert_eq!(issued(&disk), 1, "{spec}");
        assert_eq!(disk.stats().queue.op(Op::Read).merges, 15, "{spec}");
        let disk = open(&spec);
        block_on(Join::of((0..16).map(|page| read(&disk, page))), &spec);
        assert_eq!(issued(&disk), 16, "{spec}: without a plug");
    }
}

/// All sixteen end with one request, so one poll continues all tasks.
#[test]
fn tasks_that_end_together_go_on_together() {
    for spec in ["ram:1M", "ram:1M?req_ns=20000"] {
        let disk = open(spec);
        block_on(plugged(Join::of((0..16).map(|page| read_two(&disk, page)))), spec);
        assert!(issued(&disk) <= 4, "{spec}: {}", issued(&disk));
    }
}

#[test]
fn a_plug_inside_of_another_has_no_effect() {
    let disk = open("ram:1M");
    let halves = [0, 8].map(|first| plugged(Join::of((first..first + 8).map(|n| read(&disk, n)))));
    block_on(plugged(plugged(Join::of(halves))), "nested");
    assert_eq!(issued(&disk), 1);
    let disk = open("ram:1M");
    let outer = forebay::plug();
    let mut inner = pin!(plugged(read(&disk, 0)));
    assert!(poll_once(inner.as_mut()).is_pending());
    assert_eq!(issued(&disk), 0);
    drop(outer);
    wait_for_issued(&disk, 1, "ram");
    assert!(poll_once(inner.as_mut()).is_ready());
}

#[test]
fn io_of_a_poll_has_started_when_the_poll_returns() {
    let disk = open("ram:1M");
    let is_polled = Cell::new(false);
    let mut task = pin!(plugged(async {
        let mut reads = Join::of((0..16).map(|page| read(&disk, page)));
        poll_fn(|context| {
            let is_first = !is_polled.replace(true);
            let polled = Pin::new(&mut reads).poll(context);
            assert!(!is_first || polled.is_pending() && issued(&disk) == 0, "the plug is open");
            polled
        })
        .await;
    }));
    assert!(poll_once(task.as_mut()).is_pending());
    wait_for_issued(&disk, 1, "ram");
    // The future leaves no plug open on this thread.
    let mut queue = disk.queue();
    queue.submit(Io::read(Buf::new(4096), 0)).expect("a good I/O");
    assert_eq!(queue.reap(0, 1, &mut Vec::new()), 1);
    assert!(poll_once(task.as_mut()).is_ready());
}

/// The plug stays on the thread of the poll, not on that of the poll before.
#[test]
fn a_plugged_future_moves_between_threads() {
    let scratch = Scratch::new(1 << 20);
    for spec in specs(&scratch) {
        let disk = open(&spec);
        thread::scope(|scope| {
            let mut task = Box::pin(plugged(Join::of((0..16).map(|page| read_two(&disk, page)))));
            for _ in 0..3 {
                let poll = scope.spawn(move || (poll_once(task.as_mut()).is_ready(), task));
                let (is_ready, polled) = poll.join().expect("no panic");
                if is_ready {
                    return;
                }
                task = polled;
            }
            block_on(task, &spec);
        });
        let reads = *disk.stats().queue.op(Op::Read);
        assert_eq!(reads.requests + reads.merges, 32, "{spec}");
        assert!(reads.merges >= 15, "{spec}: the first reads are one request");
    }
}

#[test]
fn a_future_that_is_dropped_half_way_leaves_no_plug_and_no_io() {
    let (scratch, server) = (Scratch::new(1 << 20), NbdServer::new(export(1 << 20), &[]));
    for spec in specs(&scratch).into_iter().chain([server.uri()]) {
        let disk = open(&spec);
        {
            let mut task = pin!(plugged(Join::of((0..16).map(|page| read_two(&disk, page)))));
            assert!(poll_once(task.as_mut()).is_pending());
        }
        wait_for_issued(&disk, 1, &spec);
        assert_eq!(disk.read_at(&mut Buf::new(4096), 0), Ok(4096), "{spec}");
        assert_eq!(issued(&disk), 2, "{spec}: nothing is plugged");
        // Waits for the dropped reads.
        drop(disk);
    }
}

#[test]
fn a_panic_in_a_poll_ends_the_plug_and_starts_its_io() {
    for spec in ["ram:1M", "ram:1M?req_ns=20000"] {
        let disk = open(spec);
        let mut reads = Join::of((0..16).map(|page| read(&disk, page)));
        {
            let mut panics = pin!(plugged(poll_fn(|context| -> Poll<()> {
                assert!(Pin::new(&mut reads).poll(context).is_pending());
                panic!("the test panics");
            })));
            let poll = AssertUnwindSafe(|| poll_once(panics.as_mut()));
            assert!(catch_unwind(poll).is_err());
        }
        wait_for_issued(&disk, 1, spec);
        // The reads themselves are fine.
        block_on(reads, spec);
        block_on(read(&disk, 0), spec).expect("no plug is open");
        assert_eq!(issued(&disk), 2, "{spec}");
    }
}

#[test]
fn io_that_is_started_together_makes_one_request() {
    let (scratch, server) = (Scratch::new(1 << 20), NbdServer::new(export(1 << 20), &[]));
    for spec in specs(&scratch).into_iter().chain([server.uri()]) {
        let disk = open(&spec);
        let pages = || (0..16).map(|n| Io::read(Buf::new(4096), n * 4096).user_data(n));
        let reads = disk.start_all(pages());
        // They start before a poll.
        wait_for_issued(&disk, 1, &spec);
        let task = async {
            for (n, read) in (0..).zip(reads) {
                let read = read.await.expect("a good I/O");
                assert_eq!((read.user_data, read.result), (n, Ok(4096)), "{spec}");
            }
        };
        block_on(task, &spec);
        // None of these is polled. The close of the disk waits for them.
        drop(disk.start_all(pages()));
        wait_for_issued(&disk, 2, &spec);
    }
}

#[test]
fn io_that_is_started_inside_of_a_plug_waits_for_its_end() {
    let disk = open("ram:1M");
    let plug = forebay::plug();
    let mut reads = disk.start_all((0..8).map(|n| Io::read(Buf::new(4096), n * 4096)));
    reads.extend(disk.start_all((8..16).map(|n| Io::read(Buf::new(4096), n * 4096))));
    assert_eq!(issued(&disk), 0);
    drop(plug);
    wait_for_issued(&disk, 1, "ram");
    block_on(Join::of(reads), "ram");
}

#[test]
fn refused_io_leaves_the_rest_of_a_batch_alone() {
    let disk = open("ram:1M");
    let offsets = [0, 1 << 20, 4096];
    let reads = disk.start_all(offsets.map(|at| Io::read(Buf::new(4096), at)));
    wait_for_issued(&disk, 1, "ram");
    let ended: Vec<_> = reads.into_iter().map(|read| block_on(read, "ram")).collect();
    assert!(ended[0].is_ok() && ended[2].is_ok());
    let error = ended.into_iter().nth(1).unwrap().expect_err("it is behind the end");
    assert!(matches!(error.kind, SubmitErrorKind::OutOfRange { .. }), "{error}");
    assert_eq!(error.io.into_buf().map(|buf| buf.len()), Some(4096));
}

/// The I/O before the panic runs to its end.
#[test]
fn an_iterator_that_panics_leaves_no_plug() {
    let disk = open("ram:1M?req_ns=20000");
    let ios = (0..4).map(|n| match n {
        3 => panic!("the test panics"),
        n => Io::read(Buf::new(4096), n * 4096),
    });
    assert!(catch_unwind(AssertUnwindSafe(|| disk.start_all(ios))).is_err());
    wait_for_issued(&disk, 1, "ram");
    assert_eq!(disk.read_at(&mut Buf::new(4096), 0), Ok(4096));
    wait_for_issued(&disk, 2, "ram");
}
