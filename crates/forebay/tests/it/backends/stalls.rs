//! Waits for requests that a back end does not end: each is reported, and goes on.

use super::{limits, policy};
use forebay::{Backend, Batch, Buf, Disk, Io, Request, Stall};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A back end that keeps its requests until the test ends them.
struct Holding {
    kept: Arc<Mutex<Vec<Request>>>,
    reports: Mutex<Sender<Stall>>,
}

impl Backend for Holding {
    fn name(&self) -> &str {
        "holding"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        self.kept.lock().expect("no panic").extend(batch);
    }

    fn report_stall(&self, stall: &Stall) {
        self.reports.lock().expect("no panic").send(stall.clone()).expect("the test waits");
    }

    fn stall_time(&self) -> Duration {
        Duration::from_millis(100)
    }
}

struct Held {
    kept: Arc<Mutex<Vec<Request>>>,
    reports: Receiver<Stall>,
}

impl Held {
    /// Waits for a report of so many requests, and ends them.
    fn end_after_report(&self, nr_requests: usize) {
        let stall = self.reports.recv_timeout(Duration::from_secs(60)).expect("a report");
        assert_eq!((stall.disk.as_str(), stall.nr_requests), ("backend:holding", nr_requests));
        assert!(stall.time >= Duration::from_millis(100));
        let kept = std::mem::take(&mut *self.kept.lock().expect("no panic"));
        assert_eq!(kept.len(), nr_requests);
        kept.into_iter().for_each(|request| request.complete(Ok(())));
    }
}

fn open(nr_hw_queues: u32) -> (Disk, Held) {
    let (sender, reports) = channel();
    let kept = Arc::default();
    let backend = Holding { kept: Arc::clone(&kept), reports: Mutex::new(sender) };
    let policy = policy().nr_hw_queues(nr_hw_queues);
    let disk = Disk::with_backend(backend, limits(1 << 20), policy).expect("a disk");
    (disk, Held { kept, reports })
}

#[test]
fn blocking_call_that_waits_for_a_back_end_is_reported() {
    let (disk, held) = open(1);
    let caller = thread::spawn(move || disk.write_at(&[1; 512], 0));
    held.end_after_report(1);
    assert_eq!(caller.join().expect("no panic"), Ok(512));
}

#[test]
fn dropped_queue_that_waits_for_a_back_end_is_reported() {
    // On the shared context, and on one of the thread's own.
    for nr_hw_queues in [1, 2] {
        let (disk, held) = open(nr_hw_queues);
        let owner = thread::spawn(move || {
            let mut queue = disk.queue();
            for nth in 0..2 {
                queue.submit(Io::write(Buf::new(512), nth * 8192)).expect("a good write");
            }
        });
        held.end_after_report(2);
        owner.join().expect("no panic");
    }
}

#[test]
fn close_that_waits_for_a_back_end_is_reported() {
    let (disk, held) = open(1);
    let closer = thread::spawn(move || {
        let mut write = Box::pin(disk.start(Io::write(Buf::new(512), 0)));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(write.as_mut().poll(&mut context).is_pending());
        drop(write);
        drop(disk);
    });
    held.end_after_report(1);
    closer.join().expect("no panic");
}
