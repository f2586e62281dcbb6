//! Futures with no other driver of progress: either the disk's thread completes them, or an event
//! loop that polls the disk's descriptor.

use crate::common::{Scratch, open};
use crate::event_loop::{EventFd, await_any, await_readable};
use crate::nbd_server::{NbdServer, export};
use crate::seccomp;
use forebay::{Buf, Disk, Io, IoError, SubmitErrorKind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

/// Longest time that a future may take.
const LONG: Duration = Duration::from_secs(60);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future like an executor: polls it each time it is woken, and does nothing in between.
pub(crate) fn block_on<F: Future>(future: F, whose: &str) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, end) = (pin!(future), Instant::now() + LONG);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(end.saturating_duration_since(Instant::now()));
        assert!(Instant::now() < end, "{whose}: a future is not woken");
    }
}

/// Its wait has no limit, unlike that of a thread whose own I/O may be on its way to the inbox.
#[test]
fn service_thread_makes_no_turns_while_there_is_no_work() {
    let scratch = Scratch::new(1 << 20);
    for keys in ["direct=on", "direct=on&service=on"] {
        let disk = open(&scratch.spec(keys));
        let read = block_on(disk.start(Io::read(Buf::new(4096), 0)), keys);
        assert_eq!(read.expect("a good I/O").result, Ok(4096));
        let nr_turns = || disk.stats().queue.turns;
        // Its last turn may still be under way.
        thread::sleep(Duration::from_millis(20));
        let nr_before = nr_turns();
        thread::sleep(Duration::from_millis(60));
        assert!(nr_turns() <= nr_before + 2, "{keys}: {} more", nr_turns() - nr_before);
    }
}

/// Writes, reads, flushes and waits for durability. No other task uses the range.
pub(crate) async fn use_disk(disk: &Disk, first: u64, nr_rounds: u8, keeps_data: bool) {
    for round in 1..=nr_rounds {
        let at = first + u64::from(round % 4) * 4096;
        let write = disk.start(Io::write(Buf::from(&[round; 4096][..]), at)).await;
        let point = write.expect("a good I/O").durable_point;
        let read = disk.start(Io::read(Buf::new(4096), at)).await.expect("a good I/O");
        assert_eq!(read.result, Ok(4096));
        assert!(!keeps_data || *read.buf.expect("its buffer") == [round; 4096]);
        if round % 8 == 0 {
            disk.durable(point).await.expect("a flush");
            assert_eq!(disk.start(Io::flush()).await.expect("a good I/O").result, Ok(0));
        }
    }
}

/// Returns specs of the drivers on which a program may await a future, without special keys.
pub(crate) fn specs(scratch: &Scratch, server: &NbdServer) -> Vec<String> {
    let files = ["file", "aio", "psync"]
        .into_iter()
        .flat_map(|driver| ["", "direct=on"].map(|k| format!("{driver}:{}", scratch.spec(k))));
    let others = ["ram:1M", "ram:1M?req_ns=20000", "null:1M", "model:nvme?size=1M&service=off"];
    files.chain(others.map(String::from)).chain([server.uri()]).collect()
}

/// Runs the lines of the README on every driver.
#[test]
fn the_readmes_await_works_on_every_driver() {
    let (scratch, server) = (Scratch::new(1 << 20), NbdServer::new(export(1 << 20), &[]));
    for spec in specs(&scratch, &server) {
        let task = async {
            let disk = Disk::open(&spec)?;
            disk.write_at(&Buf::from(&[1; 4096][..]), 0)?;
            disk.durable(disk.durable_point()).await?;
            Ok::<(), Box<dyn std::error::Error>>(())
        };
        block_on(task, &spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
    }
}

/// Threads lead the shared context while the disk's thread starts and while it runs.
#[test]
fn futures_end_beside_blocking_calls() {
    let (scratch, server) = (Scratch::new(1 << 20), NbdServer::new(export(1 << 20), &[]));
    for spec in specs(&scratch, &server) {
        let keeps_data = !spec.starts_with("null");
        for _ in 0..2 {
            let disk = open(&spec);
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                for n in 0..2 {
                    let (disk, is_over) = (&disk, &is_over);
                    scope.spawn(move || {
                        while !is_over.load(Ordering::Relaxed) {
                            disk.read_at(&mut Buf::new(4096), (128 + n) * 4096).expect("a read");
                        }
                    });
                }
                let tasks: Vec<_> = (0..3)
                    .map(|n| (&disk, &spec, n << 16))
                    .map(|(disk, spec, first)| {
                        let task = move || use_disk(disk, first, 12, keeps_data);
                        scope.spawn(move || block_on(task(), spec))
                    })
                    .collect();
                let ended: Vec<_> = tasks.into_iter().map(|task| task.join()).collect();
                is_over.store(true, Ordering::Relaxed);
                ended.into_iter().for_each(|task| task.expect("no panic"));
            });
            // Closing the disk waits for the thread.
            drop(disk);
        }
    }
}

/// The loop requests the descriptor while futures are already pending. Other threads read
/// meanwhile.
#[test]
fn an_event_loop_takes_over_from_the_thread_of_the_disk() {
    let (scratch, server) = (Scratch::new(1 << 20), NbdServer::new(export(1 << 20), &[]));
    let specs = specs(&scratch, &server);
    let specs = specs
        .iter()
        .filter(|spec| ["file", "aio", "psync", "nbd"].iter().any(|d| spec.starts_with(d)));
    for (spec, nr_readers) in specs.flat_map(|spec| [(spec, 0), (spec, 2)]) {
        for _ in 0..4 {
            let disk = open(spec);
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                for n in 0..nr_readers {
                    let (disk, is_over) = (&disk, &is_over);
                    scope.spawn(move || {
                        while !is_over.load(Ordering::Relaxed) {
                            disk.read_at(&mut Buf::new(4096), (128 + n) * 4096).expect("a read");
                        }
                    });
                }
                // A reading thread may end the I/O of the task, and then calls the task's waker.
                let woken = Arc::new(EventFd::new());
                let waker = Waker::from(Arc::clone(&woken));
                let mut task = pin!(use_disk(&disk, 0, 6, true));
                while task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                    let fd = disk.poll_fd().expect("a descriptor");
                    await_any(&[fd, woken.as_fd()], spec);
                    woken.clear();
                    disk.poll();
                }
                is_over.store(true, Ordering::Relaxed);
            });
        }
    }
}

/// No completion re-runs these futures, and no thread leads.
#[test]
fn futures_at_a_busy_driver_run_again() {
    let scratch = Scratch::new(1 << 20);
    for driver in ["file", "aio", "psync"] {
        let spec = format!("fault:{driver}:{}", scratch.spec("rule=any:busy:rate=0.8"));
        let disk = open(&spec);
        block_on(use_disk(&disk, 0, 10, true), &spec);
        let disk = open(&spec);
        disk.poll_fd().expect("a descriptor");
        let mut task = pin!(use_disk(&disk, 0, 10, true));
        while task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            await_readable(disk.poll_fd().expect("a descriptor"), &spec);
            disk.poll();
        }
    }
}

/// None of these futures has I/O in flight, so only opening the gate can resume them.
#[test]
fn futures_behind_a_gate_go_on_when_it_opens() {
    let (scratch, server) = (Scratch::new(1 << 20), NbdServer::new(export(1 << 20), &[]));
    for spec in specs(&scratch, &server) {
        let keeps_data = !spec.starts_with("null");
        for hold in [Disk::quiesce, Disk::stop, crate::holds::freeze] {
            let disk = open(&spec);
            let held = hold(&disk);
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(5));
                    drop(held);
                });
                block_on(use_disk(&disk, 0, 3, keeps_data), &spec);
            });
        }
    }
}

/// Runs `body` in a thread that cannot start other threads.
pub(crate) fn without_threads(body: impl FnOnce() + Send) {
    let refused = [(libc::SYS_clone3, libc::ENOSYS), (libc::SYS_clone, libc::EAGAIN)];
    thread::scope(|scope| {
        let work = || {
            seccomp::refuse(refused).expect("a filter");
            body();
        };
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn a_future_without_a_thread_is_refused_and_nothing_is_submitted() {
    let scratch = Scratch::new(1 << 20);
    for spec in
        [scratch.spec(""), "ram:1M?req_ns=1000".into(), format!("fault:{}", scratch.spec(""))]
    {
        let disk = open(&spec);
        without_threads(|| {
            let write = disk.start(Io::write(Buf::from(&[1; 4096][..]), 0));
            let error = block_on(write, &spec).expect_err("there is no thread");
            assert_eq!(error.kind, SubmitErrorKind::NoThread { errno: libc::EAGAIN });
            assert!(error.to_string().contains("Disk::poll_handle"), "{error}");
            assert_eq!(error.io.into_buf().expect("its buffer")[..], [1; 4096]);
            assert_eq!(disk.stats().queue.issued, 0);
            disk.write_at(&Buf::new(4096), 0).expect("a blocking call needs none");
            if disk.limits().volatile_cache {
                let error = block_on(disk.durable(disk.durable_point()).into_future(), &spec);
                let refusal = SubmitErrorKind::NoThread { errno: libc::EAGAIN };
                assert_eq!(error, Err(IoError::Refused(refusal)));
            }
        });
        // Another thread can start the disk's thread.
        block_on(use_disk(&disk, 0, 3, true), &spec);
        without_threads(|| block_on(use_disk(&disk, 0, 9, true), &spec));
    }
}

#[test]
fn futures_start_no_thread_where_none_is_needed() {
    let scratch = Scratch::new(1 << 20);
    without_threads(|| {
        for spec in ["ram:1M", "null:1M"] {
            let disk = open(spec);
            block_on(use_disk(&disk, 0, 9, spec != "null:1M"), spec);
        }
        let disk = open(&scratch.spec("direct=on"));
        disk.poll_fd().expect("a descriptor");
        let mut task = pin!(use_disk(&disk, 0, 9, true));
        while task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            await_readable(disk.poll_fd().expect("a descriptor"), "file");
            disk.poll();
        }
    });
}

/// A waker that takes one of the program's locks, as an executor does, unless it runs on the thread
/// that holds the lock.
struct Locks {
    lock: Mutex<()>,
    holder: ThreadId,
    /// Receives one message when a call of the waker begins, and one when it ends.
    calls: Sender<()>,
}

impl Wake for Locks {
    fn wake(self: Arc<Self>) {
        self.calls.send(()).expect("the test receives");
        if thread::current().id() != self.holder {
            drop(self.lock.lock().expect("no panic"));
        }
        self.calls.send(()).expect("the test receives");
    }
}

/// A waker that waits for a read of another thread, if it runs on the thread of a blocking call.
struct AwaitsRead {
    caller: ThreadId,
    began: Sender<()>,
    has_read: Mutex<Receiver<()>>,
}

impl Wake for AwaitsRead {
    fn wake(self: Arc<Self>) {
        assert_eq!(thread::current().id(), self.caller);
        self.began.send(()).expect("the reader waits");
        let has_read = self.has_read.lock().expect("no panic").recv_timeout(LONG);
        assert_eq!(has_read, Ok(()), "the tag is held by a request that was not begun");
    }
}

#[test]
fn waker_in_a_blocking_call_may_wait_for_the_tag_of_that_call() {
    let scratch = Scratch::new(1 << 20);
    for driver in ["file", "aio", "psync"] {
        let disk = open(&format!(
            "{driver}:{}?direct=on&nr_hw_queues=1&queue_depth=1",
            scratch.path.display()
        ));
        // An event loop drives the disk, and makes no turn: the blocking call reaps the future.
        let fd = disk.poll_fd().expect("a descriptor");
        disk.poll();
        let mut future = pin!(disk.start(Io::read(Buf::new(4096), 0)));
        let (began, has_begun) = channel();
        let (end, has_read) = channel();
        let has_read = Mutex::new(has_read);
        let caller = thread::current().id();
        let waker = Waker::from(Arc::new(AwaitsRead { caller, began, has_read }));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        await_readable(fd, driver);
        thread::scope(|scope| {
            let disk = &disk;
            scope.spawn(move || {
                has_begun.recv_timeout(LONG).expect("the waker runs");
                assert_eq!(disk.read_at(&mut Buf::new(4096), 8192), Ok(4096));
                end.send(()).expect("the waker waits");
            });
            assert_eq!(disk.read_at(&mut Buf::new(4096), 4096), Ok(4096));
        });
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }
}

/// When a blocking call ends, relative to the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// The call begins after the future has ended, while the waker runs.
    Late,
    /// The call is in progress when the future ends.
    Later,
    /// One turn ends both, the future first.
    Together,
}

/// Makes blocking calls while holding the lock that the wakers take.
fn call_with_the_lock(disk: &Disk, spec: &str, ends: Ends) {
    let (calls, called) = channel();
    let locks = Arc::new(Locks { lock: Mutex::new(()), holder: thread::current().id(), calls });
    let waker = Waker::from(Arc::clone(&locks));
    let mut context = Context::from_waker(&waker);
    for _ in 0..3 {
        let held = locks.lock.lock().expect("no panic");
        // With the plug, one turn issues both.
        let plug = (ends == Ends::Together).then(forebay::plug);
        let mut future = pin!(disk.start(Io::read(Buf::new(4096), 0)));
        assert!(future.as_mut().poll(&mut context).is_pending(), "{spec}: its read is delayed");
        if ends == Ends::Late {
            called.recv().expect("the waker runs");
        }
        assert_eq!(disk.read_at(&mut Buf::new(4096), 1 << 19), Ok(4096), "{spec}");
        drop((plug, held));
        if ends != Ends::Late {
            called.recv().expect("the waker runs");
        }
        called.recv().expect("the waker has got the lock");
        assert!(future.as_mut().poll(&mut context).is_ready(), "{spec}: it has ended");
    }
}

/// Covers V1.
#[test]
fn the_thread_that_a_future_starts_follows_a_reader_that_waits_in_the_driver() {
    let scratch = Scratch::new(1 << 20);
    let spec = |driver| format!("{driver}:{}", scratch.spec("direct=on"));
    for inner in [spec("file"), spec("aio"), spec("psync"), "ram:1M?nr_bios=64".into()] {
        let spec = format!("fault:{inner}&rule=read:delay=100ms:range=0+4k");
        let disk = open(&spec);
        thread::scope(|scope| {
            let reader = scope.spawn(|| disk.read_at(&mut Buf::new(4096), 0));
            // By now the reader should wait in the driver. If it does not, the test proves less.
            thread::sleep(Duration::from_millis(30));
            let task = async { disk.start(Io::read(Buf::new(4096), 512 << 10)).await };
            assert_eq!(block_on(task, &spec).expect("a good I/O").result, Ok(4096), "{spec}");
            reader.join().expect("no panic").expect("a read");
        });
    }
}

/// Covers V4.
#[test]
fn a_waker_may_wait_for_a_lock_that_a_thread_holds_during_a_blocking_call() {
    let scratch = Scratch::new(1 << 20);
    let spec = |driver| format!("{driver}:{}", scratch.spec("direct=on"));
    for inner in [spec("file"), spec("aio"), spec("psync"), "ram:1M?nr_bios=64".into()] {
        for ends in [Ends::Together, Ends::Late, Ends::Later] {
            let delays = match ends {
                Ends::Late => ["10ms", "1ms"],
                Ends::Later => ["20ms", "100ms"],
                Ends::Together => ["20ms", "20ms"],
            };
            let [first, second] = delays.map(|delay| format!("rule=read:delay={delay}:range="));
            let spec = format!("fault:{inner}&{first}0+4k&{second}512k+4k");
            for with_service in ["", "&service=on"] {
                let (end, ended) = channel();
                let spec = format!("{spec}{with_service}");
                let case = format!("{spec}, {ends:?}");
                thread::spawn(move || {
                    call_with_the_lock(&open(&spec), &spec, ends);
                    end.send(()).expect("the test waits");
                });
                assert_eq!(ended.recv_timeout(LONG), Ok(()), "{case}: a thread waits forever");
            }
        }
    }
}
