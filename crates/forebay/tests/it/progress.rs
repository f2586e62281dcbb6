//! Futures, event-loop descriptors, and the disk's own thread.

use crate::common::{Scratch, open, submit};
use crate::event_loop::{await_readable, is_readable, run};
use forebay::{Buf, Disk, Io, IoFuture, PollMode, SubmitErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

#[test]
fn futures_can_be_sent_and_are_refused_with_their_io() {
    fn assert_send<T: Send>(_: &T) {}
    let disk = open("ram:1M");
    let future = disk.start(Io::read(Buf::new(512), 1 << 20));
    assert_send(&future);
    let error = run(future, || unreachable!("it is refused at once")).expect_err("out of range");
    assert!(matches!(error.kind, SubmitErrorKind::OutOfRange { .. }));
    assert_eq!(error.io.into_buf().expect("its buffer").len(), 512);
}

#[test]
fn the_disks_thread_makes_futures_progress() {
    let scratch = Scratch::new(1 << 20);
    let keys = "service=on&direct=on&queue_depth=4";
    for spec in
        [scratch.spec(keys), "ram:1M?service=on&req_ns=50000".into(), "ram:1M?service=on".into()]
    {
        let disk = open(&spec);
        let threads: Vec<_> = (0..4u8)
            .map(|n| {
                let disk = disk.clone();
                std::thread::spawn(move || {
                    let ios = async {
                        for round in 0..30 {
                            let at = u64::from(n) * 4096;
                            let data = [n ^ round; 4096];
                            let write = disk.start(Io::write(Buf::from(&data[..]), at)).await;
                            assert_eq!(write.expect("taken").result, Ok(4096));
                            let read = disk.start(Io::read(Buf::new(4096), at).user_data(7)).await;
                            let read = read.expect("taken");
                            assert_eq!((read.user_data, read.result), (7, Ok(4096)));
                            assert!(*read.buf.expect("its buffer") == data);
                        }
                    };
                    run(ios, std::thread::park);
                })
            })
            .collect();
        // Blocking calls and queues make progress beside the futures.
        disk.write_at(&Buf::from(&[1; 4096][..]), 1 << 19).expect("a write");
        let mut queue = disk.queue();
        submit(&mut queue, Io::read(Buf::new(4096), 1 << 19));
        let mut done = Vec::new();
        queue.reap(1, 1, &mut done);
        assert_eq!(done[0].result, Ok(4096));
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

#[test]
fn an_event_loop_makes_futures_progress() {
    let scratch = Scratch::new(1 << 20);
    for driver in ["file", "aio", "psync"] {
        let disk = open(&format!("{driver}:{}", scratch.spec("direct=on")));
        let ios = async {
            for n in 0..50 {
                let write = disk.start(Io::write(Buf::from(&[n; 4096][..]), 0)).await;
                assert_eq!(write.expect("taken").result, Ok(4096));
                let discard = disk.start(Io::discard(4096, 4096)).await;
                assert!(discard.expect("taken").result.is_ok());
            }
        };
        run(ios, || {
            await_readable(disk.poll_fd().expect("a file has a descriptor"), driver);
            disk.poll();
        });
    }
    let disk = open("null:1M");
    let read = run(disk.start(Io::read(Buf::new(512), 0)), || {
        await_readable(disk.poll_fd().expect("an alarm"), "null");
        disk.poll();
    });
    assert_eq!(read.expect("taken").result, Ok(512));
}

/// Polls a future once, and checks that it is pending.
fn begin(future: &mut std::pin::Pin<Box<IoFuture>>) {
    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
}

#[test]
fn dropped_futures_end_and_keep_their_memory_until_then() {
    let scratch = Scratch::new(1 << 20);
    for keys in ["direct=on", "direct=on&service=on", "kick=loop-end"] {
        let disk = open(&scratch.spec(keys));
        for n in 0..64 {
            let io = Io::write(Buf::from(&[5; 4096][..]), n * 4096);
            let plug = forebay::plug();
            let mut future = Box::pin(disk.start(io));
            begin(&mut future);
            if n % 2 == 0 {
                drop(plug);
            }
            drop(future);
        }
        // Closing the disk waits for the I/O of the dropped futures.
        drop(disk);
        let content = std::fs::read(&scratch.path).expect("the file");
        assert!(content[..64 * 4096].iter().all(|byte| *byte == 5), "{keys}");
        std::fs::write(&scratch.path, vec![0; 1 << 20]).expect("the file");
    }
}

#[test]
fn futures_in_a_plug_merge() {
    let disk = open("ram:1M?service=on");
    let plug = forebay::plug();
    let mut futures: Vec<_> =
        (0..16).map(|n| Box::pin(disk.start(Io::read(Buf::new(4096), n * 4096)))).collect();
    futures.iter_mut().for_each(begin);
    drop(plug);
    for future in futures {
        assert_eq!(run(future, std::thread::park).expect("taken").result, Ok(4096));
    }
    assert_eq!(disk.stats().queue.issued, 1);
}

#[test]
fn a_queue_with_a_descriptor_is_reaped_when_it_is_readable() {
    let scratch = Scratch::new(1 << 20);
    let specs = ["direct=on&nr_hw_queues=1", "direct=on&nr_hw_queues=2", "nr_hw_queues=2"]
        .map(|keys| scratch.spec(keys))
        .into_iter()
        .chain(["aio", "psync"].map(|driver| format!("{driver}:{}", scratch.spec("direct=on"))))
        .chain(
            [
                "ram:1M",
                "ram:1M?req_ns=20000",
                "null:1M",
                "fault:ram:1M?rule=write:short=512:nth=3&nr_hw_queues=3",
                "fault:ram:1M?rule=any:busy:nth=2&nr_hw_queues=1",
                "fault:ram:1M?rule=any:busy:nth=2&run_queue=always",
                "ram:1M?req_ns=20000&run_queue=always",
                "fault:ram:1M?rule=any:busy:nth=2&nr_hw_queues=3",
            ]
            .map(String::from),
        );
    for spec in specs {
        let disk = open(&spec);
        let mut queue = disk.queue();
        let mut done = Vec::new();
        for round in 0..20 {
            for n in 0..4 {
                submit(&mut queue, Io::write(Buf::new(4096), n * 8192));
            }
            if round % 3 == 0 {
                // The blocking read takes the queue's completions from the device and delivers
                // them.
                disk.read_at(&mut Buf::new(4096), 0).expect("a read");
            }
            while !queue.is_empty() {
                await_readable(queue.poll_fd().expect("a descriptor"), &spec);
                queue.reap(0, 3, &mut done);
            }
        }
        assert_eq!(done.len(), 80, "{spec}");
    }
}

/// The loop of a server: it submits, reaps without waiting for the descriptor, and then waits for
/// the rest.
#[test]
fn loop_that_reaps_before_it_waits_is_signalled_for_all_later_completions() {
    let scratch = Scratch::new(1 << 20);
    let keys = ["direct=on", "direct=on&nr_hw_queues=1", "", "direct=on&sqpoll=on"];
    let specs = keys
        .map(|keys| scratch.spec(keys))
        .into_iter()
        .chain(["aio", "psync"].map(|driver| format!("{driver}:{}", scratch.spec("direct=on"))))
        .chain(
            [
                "ram:1M",
                "ram:1M?req_ns=20000",
                "null:1M",
                "model:nvme?size=1M",
                "fault:ram:1M?rule=any:busy:nth=2&nr_hw_queues=3",
            ]
            .map(String::from),
        );
    for spec in specs {
        let disk = open(&spec);
        let mut queue = disk.queue();
        let handle = queue.poll_handle(PollMode::AfterReap).expect("a descriptor");
        let mut done = Vec::new();
        let mut nr_asked = 0;
        for round in 0..600 {
            let plug = (round % 2 == 0).then(forebay::plug);
            let section = (round % 3 == 0).then(forebay::defer);
            for n in 0..=round % 5 {
                let io = match (round + n) % 3 {
                    0 => Io::write(Buf::new(4096), n * 8192),
                    1 => Io::read(Buf::new(4096), n * 8192),
                    _ if round % 50 == 2 => Io::flush(),
                    _ => Io::read(Buf::new(512), 512 * n),
                };
                submit(&mut queue, io);
                nr_asked += 1;
            }
            drop((plug, section));
            // A reap is due before a wait, even if it takes nothing.
            let max = if round % 4 > 0 { usize::MAX } else { 0 };
            queue.reap(0, max, &mut done);
            // Some I/O is still in flight when the next batch is submitted.
            while queue.len() > (round % 7) as usize {
                if queue.wants_reap() {
                    queue.reap(0, 2, &mut done);
                    continue;
                }
                await_readable(handle.as_fd(), &spec);
                queue.ack_poll();
                queue.reap(0, usize::MAX, &mut done);
            }
        }
        while !queue.is_empty() {
            if !queue.wants_reap() {
                await_readable(handle.as_fd(), &spec);
                queue.ack_poll();
            }
            queue.reap(0, 2, &mut done);
        }
        assert_eq!(done.len(), nr_asked, "{spec}");
        let mut nr_looks = 0;
        while is_readable(handle.as_fd()) {
            queue.ack_poll();
            queue.reap(0, 3, &mut done);
            nr_looks += 1;
            assert!(nr_looks < 100, "{spec}: nothing is there to reap");
        }
    }
}

#[test]
fn service_thread_signals_completions_if_the_driver_cannot() {
    let disk = open("model:nvme?size=1M&latency_ns=20000000");
    let mut queue = disk.queue();
    let (mut done, mut least_looks) = (Vec::new(), usize::MAX);
    for _ in 0..5 {
        submit(&mut queue, Io::read(Buf::new(4096), 0));
        let mut nr_looks = 0;
        while !queue.is_empty() {
            await_readable(queue.poll_fd().expect("a descriptor"), "model");
            queue.reap(0, 8, &mut done);
            nr_looks += 1;
        }
        least_looks = least_looks.min(nr_looks);
    }
    // One wake-up for completions from before the descriptor was requested, and one for the end. A
    // thread that is preempted with the token adds some: the loop wakes until it is released.
    assert!(least_looks <= 3, "{least_looks} looks for one end");
    assert_eq!(done.len(), 5);
}

#[test]
fn event_loop_sleeps_until_a_request_of_a_timed_disk_is_due() {
    let time = Duration::from_millis(5);
    for driver in ["ram:1M?req_ns=5000000", "model:nvme?size=1M&service=off&latency_ns=5000000"] {
        for keys in ["nr_hw_queues=1", "nr_hw_queues=2"] {
            let spec = format!("{driver}&{keys}");
            let disk = open(&spec);
            let mut queue = disk.queue();
            let (mut done, mut nr_wakes, mut least_late) = (Vec::new(), 0, Duration::MAX);
            queue.poll_fd().expect("a descriptor");
            queue.reap(0, 8, &mut done);
            for _ in 0..20 {
                let begin = Instant::now();
                submit(&mut queue, Io::read(Buf::new(4096), 0));
                while !queue.is_empty() {
                    await_readable(queue.poll_fd().expect("a descriptor"), &spec);
                    queue.reap(0, 8, &mut done);
                    nr_wakes += 1;
                }
                assert!(begin.elapsed() + Duration::from_micros(10) >= time, "{spec}");
                least_late = least_late.min(begin.elapsed().saturating_sub(time));
            }
            assert!(least_late <= Duration::from_millis(2), "{spec}: {least_late:?} late");
            // A wake-up in vain is one by a timer that has expired early.
            assert!(nr_wakes <= 20 + 5, "{spec}: {nr_wakes} wake-ups for 20 requests");
        }
    }
}

#[test]
fn event_loop_makes_futures_of_a_timed_disk_progress() {
    for spec in ["ram:1M?req_ns=300000", "fault:null:1M?rule=any:delay=300us"] {
        let disk = open(spec);
        // Called before the first future, which would start the service thread. That thread would
        // step down, and the loop would wake up repeatedly until it has released the token.
        disk.poll_fd().expect("a descriptor");
        let nr_wakes = std::cell::Cell::new(0);
        let ios = async {
            for n in 0..20 {
                let write = disk.start(Io::write(Buf::new(4096), n * 4096)).await;
                assert_eq!(write.expect("taken").result, Ok(4096));
            }
        };
        run(ios, || {
            await_readable(disk.poll_fd().expect("a descriptor"), spec);
            nr_wakes.set(nr_wakes.get() + 1);
            disk.poll();
        });
        assert!(nr_wakes.get() <= 3 * 20, "{spec}: {} wake-ups", nr_wakes.get());
    }
}

/// A deferred commit may complete the I/O that it issues, as with buffered writes in an owned
/// queue.
#[test]
fn descriptor_signals_completions_of_a_commit_at_the_end_of_a_section() {
    let scratch = Scratch::new(1 << 20);
    for driver in ["file", "aio", "psync", "null", "ram"] {
        let spec = match driver {
            "null" | "ram" => format!("{driver}:1M"),
            _ => format!("{driver}:{}", scratch.spec("nr_hw_queues=2")),
        };
        let disk = open(&spec);
        let mut queue = disk.queue();
        let mut done = Vec::new();
        for round in 1..=20 {
            while is_readable(queue.poll_fd().expect("a descriptor")) {
                queue.reap(0, 8, &mut done);
            }
            let section = forebay::defer();
            for n in 0..4 {
                submit(&mut queue, Io::write(Buf::new(4096), n * 8192));
            }
            drop(section);
            while done.len() < 4 * round {
                await_readable(queue.poll_fd().expect("a descriptor"), &spec);
                queue.reap(0, 8, &mut done);
            }
        }
    }
}

#[test]
fn a_descriptor_is_not_readable_for_ever_where_nothing_is_in_the_layer() {
    let scratch = Scratch::new(1 << 20);
    for driver in ["file", "aio", "psync"] {
        for keys in ["direct=on&nr_hw_queues=1", "direct=on&nr_hw_queues=2", "nr_hw_queues=2"] {
            let spec = format!("{driver}:{}", scratch.spec(keys));
            let disk = open(&spec);
            let mut queue = disk.queue();
            let mut done = Vec::new();
            for round in 0..200 {
                // The first poll may report a possible completion; after that the descriptor is
                // silent.
                let mut nr_looks = 0;
                while is_readable(queue.poll_fd().expect("a descriptor")) {
                    queue.reap(0, 3, &mut done);
                    nr_looks += 1;
                    assert!(nr_looks < 100, "{spec}, round {round}: nothing is there to reap");
                }
                for n in 0..4 {
                    submit(&mut queue, Io::write(Buf::new(4096), n * 8192));
                }
                while !queue.is_empty() {
                    await_readable(queue.poll_fd().expect("a descriptor"), &spec);
                    queue.reap(0, 3, &mut done);
                }
            }
        }
        let disk = open(&format!("{driver}:{}", scratch.spec("direct=on")));
        for round in 0..200 {
            let mut nr_looks = 0;
            while is_readable(disk.poll_fd().expect("a descriptor")) {
                disk.poll();
                nr_looks += 1;
                assert!(nr_looks < 100, "{driver}, round {round}: nothing is there");
            }
            let write = disk.start(Io::write(Buf::new(4096), 0));
            let write = run(write, || {
                await_readable(disk.poll_fd().expect("a descriptor"), driver);
                disk.poll();
            });
            assert_eq!(write.expect("taken").result, Ok(4096));
        }
    }
}

#[test]
fn a_disk_with_a_thread_closes_from_anywhere() {
    for nth in 0..100 {
        let disk = open(["null:1M?service=on", "null:1M?run_queue=always"][nth % 2]);
        let mut future = Box::pin(disk.start(Io::read(Buf::new(512), 0).nowait()));
        // If the disk's thread holds the token, that thread completes the I/O a moment later.
        let done = loop {
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(done) => break done.expect("a good I/O"),
                Poll::Pending => std::thread::yield_now(),
            }
        };
        assert_eq!(done.result, Ok(512));
        let other = disk.clone();
        let thread = std::thread::spawn(move || drop(other));
        drop((disk, future));
        thread.join().expect("no panic");
    }
}

/// A waker that submits to the same disk, as an executor that polls immediately would.
struct Submits(std::sync::Mutex<Option<Disk>>, Thread);

impl Wake for Submits {
    fn wake(self: Arc<Self>) {
        let disk = self.0.lock().expect("no panic").take();
        if let Some(disk) = disk {
            let mut future = Box::pin(disk.start(Io::read(Buf::new(512), 0)));
            let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            drop(future);
            drop(disk);
        }
        self.1.unpark();
    }
}

#[test]
fn a_waker_may_use_the_disk_and_close_it() {
    let keys = ["", "&service=on", "&req_ns=100000", "&req_ns=100000&service=on"];
    for keys in
        keys.into_iter().flat_map(|keys| [keys.to_owned(), keys.to_owned() + "&run_queue=always"])
    {
        let disk = open(&format!("ram:1M?nr_bios=64{keys}"));
        let last = std::sync::Mutex::new(Some(disk.clone()));
        let waker = Waker::from(Arc::new(Submits(last, std::thread::current())));
        let plug = forebay::plug();
        let mut future = Box::pin(disk.start(Io::read(Buf::new(512), 0)));
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        drop(plug);
        let polled = loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(done) => break done,
                Poll::Pending => std::thread::park(),
            }
        };
        assert_eq!(polled.expect("taken").result, Ok(512), "{keys}");
        drop((disk, future));
    }
}

/// A waker that waits for another thread's I/O on the same disk.
struct Waits {
    ask: SyncSender<()>,
    answered: Mutex<Receiver<()>>,
    nr_woken: AtomicU64,
}

impl Wake for Waits {
    fn wake(self: Arc<Self>) {
        self.ask.send(()).expect("the other is there");
        self.answered.lock().expect("no panic").recv().expect("it answers");
        self.nr_woken.fetch_add(1, Ordering::Relaxed);
    }
}

/// The thread that runs the waker is inside a blocking call. Work that it has deferred, or planned
/// to do itself, must still be done.
#[test]
fn a_waker_may_wait_for_another_threads_io() {
    let scratch = Scratch::new(1 << 20);
    let drivers = ["file", "aio", "psync"];
    for (driver, keys) in
        drivers.into_iter().flat_map(|d| [(d, "nr_hw_queues=1"), (d, "run_queue=always")])
    {
        let disk = open(&format!("{driver}:{}", scratch.spec(keys)));
        let ((ask, asked), (answer, answered)) = (sync_channel(0), sync_channel(0));
        let answered = Mutex::new(answered);
        let waits = Arc::new(Waits { ask, answered, nr_woken: AtomicU64::new(0) });
        std::thread::scope(|scope| {
            let disk = &disk;
            scope.spawn(move || {
                let mut queue = disk.queue();
                let mut done = Vec::new();
                while asked.recv().is_ok() {
                    // No thread waits for this flush in the driver.
                    submit(&mut queue, Io::flush());
                    while !queue.is_empty() {
                        await_readable(queue.poll_fd().expect("a descriptor"), driver);
                        queue.reap(0, 8, &mut done);
                    }
                    answer.send(()).expect("the waker waits");
                }
            });
            let waker = Waker::from(Arc::clone(&waits));
            for round in 0..50 {
                let mut future = Box::pin(disk.start(Io::read(Buf::new(4096), 0)));
                let mut context = Context::from_waker(&waker);
                if future.as_mut().poll(&mut context).is_pending() {
                    // A turn of these reads reaps the future's I/O and runs the waker.
                    let before = waits.nr_woken.load(Ordering::Relaxed);
                    while waits.nr_woken.load(Ordering::Relaxed) == before {
                        disk.read_at(&mut Buf::new(4096), round * 4096).expect("a read");
                    }
                    assert!(future.as_mut().poll(&mut context).is_ready());
                }
            }
            drop((waker, waits));
        });
    }
}

/// A waker that reads when it is dropped, as the last handle of a task that owns a queue may do.
struct ReadsAtLast(Disk);

impl Wake for ReadsAtLast {
    fn wake(self: Arc<Self>) {}
}

impl Drop for ReadsAtLast {
    fn drop(&mut self) {
        self.0.read_at(&mut Buf::new(512), 0).expect("a read");
    }
}

#[test]
fn a_dropped_futures_waker_may_use_the_disk_when_it_goes() {
    let scratch = Scratch::new(1 << 20);
    let spec = |driver: &str| format!("{driver}:{}", scratch.spec("nr_hw_queues=1&direct=on"));
    for spec in [spec("file"), spec("aio"), spec("psync"), "ram:1M?req_ns=100000".into()] {
        let (end, ended) = sync_channel(0);
        let disk = open(&spec);
        std::thread::spawn(move || {
            for round in 0..20 {
                let waker = Waker::from(Arc::new(ReadsAtLast(disk.clone())));
                let mut future = Box::pin(disk.start(Io::read(Buf::new(4096), 0)));
                let _ = future.as_mut().poll(&mut Context::from_waker(&waker));
                drop(waker);
                drop(future);
                // The turns of this read reap both.
                disk.read_at(&mut Buf::new(4096), round * 4096).expect("a read");
            }
            end.send(()).expect("the test waits");
        });
        let ended = ended.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(ended, Ok(()), "{spec}");
    }
}

#[test]
fn sections_put_off_nothing_of_others() {
    let scratch = Scratch::new(1 << 20);
    let disk = open(&scratch.spec("nr_hw_queues=1&fua=off&kick=deferred"));
    let other = disk.clone();
    let (begin, begun) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut queue = other.queue();
        submit(&mut queue, Io::write(Buf::from(&[3; 4096][..]), 0).fua());
        begin.send(()).expect("the test waits");
        // Any thread that turns the context advances this write; this thread only watches the
        // descriptor.
        let mut done = Vec::new();
        while !queue.is_empty() {
            await_readable(queue.poll_fd().expect("a descriptor"), "the writer");
            queue.reap(0, 8, &mut done);
        }
        end.send(done.pop().expect("one").result).expect("the test waits");
    });
    begun.recv().expect("it begins");
    let section = forebay::defer();
    let mut queue = disk.queue();
    for n in 0..64 {
        submit(&mut queue, Io::read(Buf::new(512), n * 512));
    }
    assert_eq!(ended.recv_timeout(std::time::Duration::from_secs(60)), Ok(Ok(4096)));
    drop(section);
    thread.join().expect("no panic");
}

#[test]
fn queue_wants_a_reap_after_a_submission_and_not_after_a_refused_one() {
    let disk = open("ram:1M?req_ns=100000000");
    let (mut queue, mut done) = (disk.queue(), Vec::new());
    assert!(!queue.wants_reap());
    queue.submit(Io::read(Buf::new(512), 1 << 20)).expect_err("it is behind the end");
    assert!(!queue.wants_reap());
    queue.submit(Io::read(Buf::new(512), 0)).expect("room");
    assert!(queue.wants_reap());
    // It takes nothing, and a wait is allowed after it.
    queue.reap(0, 0, &mut done);
    assert!(done.is_empty() && !queue.wants_reap());
    queue.reap(1, 1, &mut done);
    assert!(!queue.wants_reap());
}
