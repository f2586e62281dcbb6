//! The lateness of time limits and deadlines: how long after `io_timeout_ms` an I/O ends whose
//! request hangs, and how long after `flush_pending_ms` a pending flush ends.
//!
//! `cargo run --release -p forebay --example lateness -- [NUMBER [FILE]]` prints a row for each
//! engine and each way to wait, of NUMBER (20) measurements. FILE is created with 1 MiB, or used as
//! it is; without it, a file for temporary data is. A negative number would be an error of the
//! layer: nothing may end before its time.
//!
//! The clock starts before the submission, so the figures contain it. Those of flushes contain the
//! flush of the file as well; on a file in `/dev/shm` that takes no time.

#![allow(clippy::print_stdout, reason = "an example talks through its standard streams")]

use forebay::{BioQueue, Buf, Completion, Disk, Io};
use std::error::Error;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The time limit of a request, and the longest wait of a flush.
const LIMIT: Duration = Duration::from_millis(5);

/// How long a write takes that a flush waits for, and for how long flushes are measured beside it.
const WRITE: Duration = Duration::from_secs(1);
const BESIDE: Duration = Duration::from_millis(500);

/// A way to submit an I/O and to wait for it. The queue is empty before, or has a write that takes
/// longer.
type Way = fn(&Disk, &mut BioQueue, Io);

const WAYS: [(&str, Way); 3] =
    [("queue", by_queue), ("event loop", by_event_loop), ("future", by_future)];

fn by_queue(_: &Disk, queue: &mut BioQueue, io: Io) {
    queue.submit(io).expect("a good I/O");
    queue.reap(1, 1, &mut Vec::new());
}

#[expect(unsafe_code, reason = "poll is a system call")]
fn by_event_loop(_: &Disk, queue: &mut BioQueue, io: Io) {
    queue.submit(io).expect("a good I/O");
    let mut done: Vec<Completion> = Vec::new();
    while done.is_empty() {
        let fd = queue.poll_fd().expect("a descriptor").as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: the descriptor is open, and the kernel writes to `poll` only.
        unsafe { libc::poll(&raw mut poll, 1, -1) };
        queue.reap(0, 1, &mut done);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

fn by_future(disk: &Disk, _: &mut BioQueue, io: Io) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(disk.start(io));
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        thread::park();
    }
}

/// Returns the lateness of `nr` reads that hang, in nanoseconds.
fn timeouts(spec: &str, way: Way, nr: usize) -> Result<Vec<i128>, Box<dyn Error>> {
    let limit = LIMIT.as_millis();
    let disk = Disk::open(&format!("fault:{spec}rule=read:hang&io_timeout_ms={limit}"))?;
    let mut queue = disk.queue();
    let read = || {
        let begin = Instant::now();
        way(&disk, &mut queue, Io::read(Buf::new(4096), 0));
        lateness(begin)
    };
    let late = std::iter::repeat_with(read).take(nr).collect();
    assert_eq!(disk.stats().queue.timeouts, nr as u64, "each read hangs");
    Ok(late)
}

/// Returns the lateness of `nr` flushes that wait for a durable write.
fn flushes(spec: &str, way: Way, nr: usize) -> Result<Vec<i128>, Box<dyn Error>> {
    let (write, pending) = (WRITE.as_secs(), LIMIT.as_millis());
    let keys = format!("rule=write:delay={write}s&fua=off&flush_pending_ms={pending}");
    // Futures use the shared context, and flushes wait for writes of their own context.
    let disk = Disk::open(&format!("fault:{spec}{keys}&nr_hw_queues=1"))?;
    let mut late = Vec::new();
    while late.len() < nr {
        let mut queue = disk.queue();
        let since = Instant::now();
        queue.submit(Io::write(Buf::new(4096), 0).fua())?;
        while since.elapsed() < BESIDE && late.len() < nr {
            let begin = Instant::now();
            way(&disk, &mut queue, Io::flush());
            late.push(lateness(begin));
        }
        queue.reap(1, 1, &mut Vec::new());
    }
    Ok(late)
}

fn lateness(begin: Instant) -> i128 {
    begin.elapsed().as_nanos() as i128 - LIMIT.as_nanos() as i128
}

fn print(name: &str, way: &str, mut late: Vec<i128>) {
    late.sort_unstable();
    let us = |at: usize| format!("{:.0}", late[at] as f64 / 1000.0);
    let (nr, last) = (late.len(), late.len() - 1);
    let [least, p50, p99, max] = [0, nr / 2, (nr * 99).div_ceil(100) - 1, last].map(us);
    println!("| {name} | {way} | {nr} | {least} | {p50} | {p99} | {max} |");
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let nr = arguments.next().map_or(Ok(20), |nr| nr.parse())?;
    if nr == 0 {
        return Err("NUMBER is 0: expected a number above 0".into());
    }
    let folder = tempfile::tempdir()?;
    let path = arguments.next().map_or(folder.path().join("disk.img"), PathBuf::from);
    if !path.exists() {
        File::create(&path)?.set_len(1 << 20)?;
    }
    let path = path.display();
    let engines = ["file", "aio", "psync"].map(|engine| (engine, format!("{engine}:{path}?")));
    let ram = [("ram, req_ns=1000", String::from("ram:1M?req_ns=1000&"))];
    println!("Lateness in us: the least, the median, the 99th percentile and the most\n");
    println!("| time limit of | waits by | number | least | p50 | p99 | max |\n|-|-|-|-|-|-|-|");
    for (name, spec) in engines.iter().chain(&ram) {
        for (way, act) in WAYS {
            print(name, way, timeouts(spec, act, nr)?);
        }
    }
    println!(
        "\n| pending flush of | waits by | number | least | p50 | p99 | max |\n|-|-|-|-|-|-|-|"
    );
    for (name, spec) in &engines {
        for (way, act) in WAYS {
            print(name, way, flushes(spec, act, nr)?);
        }
    }
    Ok(())
}
