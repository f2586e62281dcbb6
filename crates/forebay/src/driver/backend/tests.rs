//! Drivers of back ends that do not end their requests: reports, and a drop after a panic.

use super::{Backend, BackendDriver, Batch, Stall};
use crate::buf::Buf;
use crate::driver::contract::DriverDevice;
use crate::driver::testing::{DEPTH, data, issue};
use crate::driver::{Device, DriverQueue, Mode};
use forebay_core::{Op, QueueLimits};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const STALL_TIME: Duration = Duration::from_millis(50);

/// A back end that ends no request.
struct Forgetful {
    reports: Arc<Mutex<Vec<Stall>>>,
    stall_time: Duration,
    /// The number of calls that asked for the time.
    nr_asked: Arc<AtomicU64>,
}

impl Default for Forgetful {
    fn default() -> Forgetful {
        let (reports, nr_asked) = (Arc::default(), Arc::default());
        Forgetful { reports, stall_time: STALL_TIME, nr_asked }
    }
}

impl Backend for Forgetful {
    fn name(&self) -> &str {
        "forgetful"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        batch.for_each(std::mem::forget);
    }

    fn report_stall(&self, stall: &Stall) {
        self.reports.lock().expect("no panic").push(stall.clone());
        panic!("a report may panic");
    }

    fn stall_time(&self) -> Duration {
        self.nr_asked.fetch_add(1, Ordering::Relaxed);
        self.stall_time
    }
}

fn queue_of(backend: impl Backend, mode: Mode) -> DriverQueue {
    let limits = QueueLimits::default().capacity_bytes(Some(1 << 20));
    let driver = BackendDriver::new(backend, limits);
    DriverDevice::new(driver).open_queue(DEPTH, mode).expect("a queue")
}

/// Returns a queue of a back end.
pub(crate) fn queue(mode: Mode) -> DriverQueue {
    queue_of(Forgetful::default(), mode)
}

#[test]
fn wait_without_an_end_is_reported_once() {
    let backend = Forgetful::default();
    let reports = Arc::clone(&backend.reports);
    let queue = queue_of(backend, Mode::Shared);
    let (mut driver, waiter) = (queue.driver, queue.waiter);
    let mut buf = Buf::new(4096);
    let start = Instant::now();
    // Nothing is in flight.
    while start.elapsed() < 3 * STALL_TIME {
        waiter.wait(Some(STALL_TIME));
    }
    assert!(reports.lock().expect("no panic").is_empty());
    issue(&mut *driver, 0, data(Op::Read, 0, &mut buf, 4096));
    issue(&mut *driver, 1, data(Op::Read, 8192, &mut buf, 4096));
    driver.commit_rqs();
    let start = Instant::now();
    while start.elapsed() < 6 * STALL_TIME {
        // Waits of both kinds. Kicks and timeouts end them, but are no progress.
        driver.kick();
        waiter.wait(None);
        driver.wait(2, Some(STALL_TIME / 10));
    }
    let reports = reports.lock().expect("no panic");
    let [Stall { disk, nr_requests: 2, time }] = &reports[..] else { panic!("{reports:?}") };
    assert!(disk == "backend:forgetful" && *time >= STALL_TIME);
    let text = reports[0].to_string();
    assert!(text.starts_with("backend:forgetful: a thread waits for 2 requests"), "{text}");
    // The requests were forgotten, and so are the boxes.
    std::mem::forget(driver);
}

/// A wait with a time limit returns early only for a completion or a kick.
#[test]
fn wait_lasts_longer_than_the_stall_time() {
    let queue = queue_of(Forgetful::default(), Mode::Shared);
    let (mut driver, waiter) = (queue.driver, queue.waiter);
    let mut buf = Buf::new(4096);
    issue(&mut *driver, 0, data(Op::Read, 0, &mut buf, 4096));
    driver.commit_rqs();
    let limit = 4 * STALL_TIME;
    let start = Instant::now();
    driver.wait(1, Some(limit));
    assert!(start.elapsed() >= limit, "{:?}", start.elapsed());
    let start = Instant::now();
    waiter.wait(Some(limit));
    assert!(start.elapsed() >= limit, "{:?}", start.elapsed());
    std::mem::forget(driver);
}

#[test]
fn wait_with_a_stall_time_of_zero_sleeps() {
    let backend = Forgetful { stall_time: Duration::ZERO, ..Forgetful::default() };
    let (nr_asked, reports) = (Arc::clone(&backend.nr_asked), Arc::clone(&backend.reports));
    let queue = queue_of(backend, Mode::Shared);
    let (mut driver, waiter) = (queue.driver, queue.waiter);
    let mut buf = Buf::new(4096);
    issue(&mut *driver, 0, data(Op::Read, 0, &mut buf, 4096));
    driver.commit_rqs();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(200) {
        driver.wait(1, Some(Duration::from_millis(100)));
        waiter.wait(Some(Duration::from_millis(100)));
    }
    let nr_asked = nr_asked.load(Ordering::Relaxed);
    assert!(nr_asked < 100, "the waits have looked {nr_asked} times");
    assert_eq!(reports.lock().expect("no panic").len(), 1);
    std::mem::forget(driver);
}

/// Set in a child that panics with a driver.
const CHILD: &str = "FOREBAY_TEST_PANICS_WITH_A_DRIVER";

#[test]
fn drop_after_a_panic_ends_the_process_if_a_request_never_ends() {
    if std::env::var_os(CHILD).is_some() {
        let mut driver = queue(Mode::Owned).driver;
        let mut buf = Buf::new(4096);
        issue(&mut *driver, 0, data(Op::Read, 0, &mut buf, 4096));
        driver.commit_rqs();
        panic!("a panic with a request in flight");
    }
    let name =
        "driver::backend::tests::drop_after_a_panic_ends_the_process_if_a_request_never_ends";
    let output = Command::new(std::env::current_exe().expect("a program"))
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .expect("a child");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}: {text}", output.status);
    assert!(text.contains("forebay: backend:forgetful: after a panic"), "{text}");
    assert!(text.contains("has not ended 1 requests"), "{text}");
}
