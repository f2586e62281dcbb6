//! Deadlines: a flush that waits for writes at the device goes after `flush_pending_ms`, although
//! nothing completes, whichever way its caller waits (F6, W7).

use crate::common::{Scratch, open, submit};
use crate::event_loop::{await_readable, run};
use crate::hung_disks::await_issues;
use forebay::{Buf, Disk, Io};
use std::thread;
use std::time::{Duration, Instant};

/// How long each write takes. A flush that waits for one is too late.
const WRITE: Duration = Duration::from_secs(2);

/// The longest wait of a flush.
const PENDING: Duration = Duration::from_millis(40);

/// Returns disks of each engine, with a shared and with an owned context.
fn specs() -> Vec<(Scratch, String)> {
    let (write, pending) = (WRITE.as_secs(), PENDING.as_millis());
    let keys = format!("rule=write:delay={write}s&fua=off&flush_pending_ms={pending}");
    let of = |engine: &str| {
        [1, 2].map(|nr| {
            // A file each: disks on one file share the results of flushes.
            let scratch = Scratch::new(1 << 20);
            let (engine, own) = engine.split_once('?').unwrap_or((engine, "iostats=on"));
            let spec = scratch.spec(&format!("{keys}&nr_hw_queues={nr}&{own}"));
            (scratch, format!("fault:{engine}:{spec}"))
        })
    };
    let engines = ["file", "file?sqpoll=on&sqpoll_idle_ms=1", "aio", "psync"];
    engines.into_iter().flat_map(of).collect()
}

/// Runs `act` on each disk at the same time: it begins a durable write, then a flush. Checks the
/// time until the flush has ended, which `act` returns.
fn check(act: fn(&Disk) -> Duration) {
    let disks = specs();
    let took = thread::scope(|scope| {
        let of = |(_, spec): &'_ (Scratch, String)| {
            let spec = spec.clone();
            scope.spawn(move || (act(&open(&spec)), spec))
        };
        let threads: Vec<_> = disks.iter().map(of).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    for (took, spec) in took {
        assert!(took >= PENDING, "{spec}: the flush went after {took:?}");
        assert!(took < WRITE / 2, "{spec}: the flush went after {took:?}");
    }
}

fn durable_write() -> Io {
    Io::write(Buf::new(4096), 0).fua()
}

#[test]
fn flush_of_a_queue_goes_at_its_deadline() {
    check(|disk| {
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        submit(&mut queue, durable_write());
        let begin = Instant::now();
        submit(&mut queue, Io::flush());
        queue.reap(1, 1, &mut done);
        let took = begin.elapsed();
        assert_eq!(done[0].result, Ok(0));
        took
    });
}

#[test]
fn flush_of_a_blocking_call_goes_at_its_deadline() {
    check(|disk| {
        thread::scope(|scope| {
            scope.spawn(|| disk.write_durable_at(&[0; 4096], 0).expect("no fault"));
            await_issues(disk, 1);
            let begin = Instant::now();
            disk.flush().expect("no fault");
            begin.elapsed()
        })
    });
}

#[test]
fn flush_goes_at_its_deadline_when_another_thread_leads() {
    check(|disk| {
        thread::scope(|scope| {
            // It waits in the driver, without a deadline.
            scope.spawn(|| disk.write_at(&[0; 4096], 8192).expect("no fault"));
            await_issues(disk, 1);
            scope.spawn(|| disk.write_durable_at(&[0; 4096], 0).expect("no fault"));
            await_issues(disk, 2);
            let begin = Instant::now();
            disk.flush().expect("no fault");
            begin.elapsed()
        })
    });
}

#[test]
fn flush_of_an_event_loop_goes_at_its_deadline() {
    check(|disk| {
        let (mut queue, mut done) = (disk.queue(), Vec::new());
        queue.poll_fd().expect("a descriptor");
        submit(&mut queue, durable_write());
        let begin = Instant::now();
        submit(&mut queue, Io::flush());
        while done.is_empty() {
            await_readable(queue.poll_fd().expect("a descriptor"), &disk.info().spec);
            queue.reap(0, 1, &mut done);
        }
        begin.elapsed()
    });
}

#[test]
fn flush_of_a_future_goes_at_its_deadline() {
    check(|disk| {
        let mut write = Box::pin(disk.start(durable_write()));
        let waker = std::task::Waker::noop();
        assert!(write.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
        let begin = Instant::now();
        run(disk.start(Io::flush()), thread::park).expect("no refusal").result.expect("no fault");
        let took = begin.elapsed();
        drop(write);
        took
    });
}
