//! Random event loops. Each sleeps at descriptors only, while other threads freeze, quiesce and
//! stop the disk, and drivers are busy. No wake-up is lost, and every byte is right.
//!
//! A loop that sleeps for [`PATIENCE`] with I/O outstanding fails the test and lists that I/O. A
//! watchdog names a call that does not return, and ends the process.

use super::{content, soak_seconds, soak_seed};
use crate::common::{Numbers, Scratch, open};
use crate::event_loop::{EventFd, poll_any};
use crate::nbd_server::{NbdServer, export};
use forebay::{
    BioQueue, BlockStatus, Buf, Completion, Disk, FreezeError, Io, IoFuture, PollMode, QueuePoll,
    SubmitError,
};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// A loop that sleeps this long has lost a wake-up; a call may take at most twice as long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time is counted in these steps, so a process that is stopped and continued has lost nothing.
const STEP: Duration = Duration::from_millis(20);
const NR_STEPS: u32 = (PATIENCE.as_millis() / STEP.as_millis()) as u32;
const LOOPS: u64 = 3;
const HOLDERS: u64 = 2;
/// Number of pages that only one loop uses.
const PAGES: u64 = 48;
const LEN: u64 = LOOPS * PAGES * 4096;
/// The page number of a flush, which has no page.
const FLUSH: u64 = PAGES;

/// The current activity of each thread of a run, for the watchdog.
struct Watch {
    spec: String,
    seed: u64,
    /// By thread: the activity, and the number of steps since it began.
    doing: Vec<Mutex<(&'static str, u32)>>,
    is_over: AtomicBool,
}

impl Watch {
    fn enter(&self, thread: usize, what: &'static str) {
        *self.doing[thread].lock().expect("no panic") = (what, 0);
    }

    /// Runs beside the threads, and ends the process if one of them hangs.
    fn run(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            thread::sleep(STEP);
            let state = |doing: &Mutex<(&'static str, u32)>| {
                let mut doing = doing.lock().expect("no panic");
                doing.1 += 1;
                *doing
            };
            let states: Vec<(&str, u32)> = self.doing.iter().map(state).collect();
            // A sleeping loop fails its own check before this.
            if states.iter().any(|(_, nr)| *nr > 2 * NR_STEPS) {
                let lines = states.iter().enumerate().map(|(thread, (what, nr))| {
                    format!("thread {thread}: {what} for {:?}\n", *nr * STEP)
                });
                let lines: String = lines.collect();
                let Watch { spec, seed, .. } = self;
                #[allow(clippy::print_stderr, reason = "the process ends")]
                {
                    eprintln!("{spec}\nFOREBAY_SOAK_SEED={seed}: a call hangs\n{lines}");
                }
                std::process::abort();
            }
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Page {
    /// The page's content: one number, repeated. `None` if it is unknown.
    value: Option<u64>,
    /// Whether an I/O on the page is in the layer.
    is_busy: bool,
}

/// An I/O on a page, and the value that it writes, if any.
#[derive(Clone, Copy)]
struct Pending {
    page: u64,
    written: Option<u64>,
}

struct Queue {
    queue: BioQueue,
    pending: Vec<Pending>,
    mode: PollMode,
    handle: QueuePoll,
}

struct Future {
    future: Pin<Box<IoFuture>>,
    pending: Pending,
}

/// A thread with an event loop.
struct Loop<'a> {
    disk: &'a Disk,
    watch: &'a Watch,
    thread: usize,
    numbers: Numbers,
    first: u64,
    pages: Vec<Page>,
    queues: Vec<Queue>,
    futures: Vec<Future>,
    /// The disk's descriptor, if the loop watches it for futures.
    disk_fd: Option<BorrowedFd<'a>>,
    woken: Arc<EventFd>,
}

impl Loop<'_> {
    fn chance(&mut self, one_in: u64) -> bool {
        self.numbers.below(one_in) == 0
    }

    fn at(&self, page: u64) -> u64 {
        (self.first + page) * 4096
    }

    /// Returns an I/O on a page that has none in flight.
    fn io(&mut self) -> Option<(Io, Pending)> {
        let first = self.numbers.below(PAGES);
        let page = (first..first + PAGES).map(|page| page % PAGES);
        let page = page.into_iter().find(|page| !self.pages[*page as usize].is_busy)?;
        self.pages[page as usize].is_busy = true;
        let (at, value) = (self.at(page), self.numbers.next());
        let written = (self.numbers.below(3) == 0).then_some(value);
        let io = match written {
            Some(value) => Io::write(content(value), at),
            None => Io::read(Buf::new(4096), at),
        };
        let io = if self.chance(16) { io.nowait() } else { io };
        let io = if self.chance(32) { io.fua() } else { io };
        Some((io.user_data(page), Pending { page, written }))
    }

    fn ended(&mut self, pending: Pending, completion: Completion) {
        let page = &mut self.pages[pending.page as usize];
        page.is_busy = false;
        match (completion.result, pending.written) {
            (Ok(len), Some(value)) => {
                assert_eq!(len, 4096);
                page.value = Some(value);
            }
            (Ok(len), None) => {
                assert_eq!(len, 4096);
                let (value, buf) = (page.value, completion.buf.expect("its buffer"));
                let is_right = value.is_none_or(|value| *buf == *content(value));
                assert!(is_right, "page {} of {}", pending.page, self.watch.spec);
            }
            // The I/O did not want to wait, so it did nothing.
            (Err(BlockStatus::Again), _) => {}
            (Err(status), _) => panic!("{status}"),
        }
    }

    fn new_queue(&mut self) {
        let mode = if self.chance(2) { PollMode::AfterReap } else { PollMode::AnyTime };
        let mut queue = self.disk.queue();
        let handle = queue.poll_handle(mode).expect("a descriptor");
        self.queues.push(Queue { queue, pending: Vec::new(), mode, handle });
    }

    /// Drops a queue, which waits for its I/O.
    fn drop_queue(&mut self) {
        let nth = self.numbers.below(self.queues.len() as u64) as usize;
        let queue = self.queues.swap_remove(nth);
        self.watch.enter(self.thread, "drop a queue");
        drop(queue.queue);
        for pending in queue.pending.into_iter().filter(|pending| pending.page != FLUSH) {
            let page = &mut self.pages[pending.page as usize];
            page.is_busy = false;
            if pending.written.is_some() {
                page.value = None;
            }
        }
        self.new_queue();
    }

    /// Submits to queues and starts futures, with or without a plug.
    fn submit(&mut self) {
        self.watch.enter(self.thread, "submit");
        let plug = self.chance(2).then(forebay::plug);
        let section = self.chance(3).then(forebay::defer);
        for _ in 0..1 + self.numbers.below(10) {
            let nth = self.numbers.below(self.queues.len() as u64) as usize;
            if self.chance(24) {
                let Queue { queue, pending, .. } = &mut self.queues[nth];
                queue.submit(Io::flush().user_data(FLUSH)).expect("room");
                pending.push(Pending { page: FLUSH, written: None });
                continue;
            }
            let Some((io, pending)) = self.io() else { break };
            if self.chance(4) {
                self.futures.push(Future { future: Box::pin(self.disk.start(io)), pending });
                // Some futures are polled inside the plug.
                if self.chance(2) {
                    self.poll_futures();
                }
            } else {
                let queue = &mut self.queues[nth];
                queue.queue.submit(io).expect("room");
                queue.pending.push(pending);
            }
        }
        if self.chance(2) {
            drop((plug, section));
        } else {
            drop((section, plug));
        }
        self.poll_futures();
    }

    fn block(&mut self) {
        let Some((io, pending)) = self.io() else { return };
        self.watch.enter(self.thread, "a blocking call");
        let at = self.at(pending.page);
        // The blocking call uses only the page and the value in `pending`.
        drop(io);
        let mut buf = Buf::new(4096);
        match pending.written {
            Some(value) => assert_eq!(self.disk.write_at(&content(value), at), Ok(4096)),
            None => assert_eq!(self.disk.read_at(&mut buf, at), Ok(4096)),
        }
        let page = &mut self.pages[pending.page as usize];
        page.is_busy = false;
        match pending.written {
            Some(value) => page.value = Some(value),
            None => assert!(page.value.is_none_or(|value| *buf == *content(value))),
        }
    }

    fn poll_futures(&mut self) {
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut context = Context::from_waker(&waker);
        for nth in (0..self.futures.len()).rev() {
            match self.futures[nth].future.as_mut().poll(&mut context) {
                Poll::Pending => {}
                Poll::Ready(Ok(completion)) => {
                    let Future { pending, .. } = self.futures.swap_remove(nth);
                    self.ended(pending, completion);
                }
                Poll::Ready(Err(SubmitError { kind, .. })) => panic!("{kind}"),
            }
        }
    }

    /// Reaps a queue, either without waiting or until `min` bios have ended.
    fn reap(&mut self, nth: usize, min: usize) {
        self.watch.enter(self.thread, "reap");
        let (mut done, max) = (Vec::new(), 1 + self.numbers.below(12) as usize);
        let Queue { queue, .. } = &mut self.queues[nth];
        queue.reap(min.min(max), max, &mut done);
        for completion in done {
            let pending = &mut self.queues[nth].pending;
            let is_its = |pending: &Pending| pending.page == completion.user_data;
            let pending = pending.swap_remove(pending.iter().position(is_its).expect("submitted"));
            match pending.page {
                FLUSH => assert_eq!(completion.result, Ok(0)),
                _ => self.ended(pending, completion),
            }
        }
    }

    /// Describes the I/O for which the loop would wait.
    fn outstanding(&self) -> String {
        let lens = self.queues.iter().map(|queue| (queue.mode, queue.queue.len()));
        let lens: Vec<_> = lens.collect();
        format!("queues (mode, I/Os): {lens:?}, futures: {}", self.futures.len())
    }

    /// Runs one round of an event loop: sleeps until a descriptor is readable, and handles it.
    fn wait(&mut self) {
        for nth in 0..self.queues.len() {
            let reaps_first = self.queues[nth].mode == PollMode::AfterReap;
            while reaps_first && self.queues[nth].queue.wants_reap() {
                self.reap(nth, 0);
            }
        }
        let is_idle = self.queues.iter().all(|queue| queue.queue.is_empty());
        if is_idle && self.futures.is_empty() {
            return;
        }
        self.watch.enter(self.thread, "sleep at the descriptors");
        let mut fds: Vec<_> = self.queues.iter().map(|queue| queue.handle.as_fd()).collect();
        fds.push(self.woken.as_fd());
        fds.extend(self.disk_fd);
        let polled = (0..NR_STEPS).map(|_| poll_any(&fds, STEP));
        let ready = polled.into_iter().find(|ready| ready.contains(&true)).unwrap_or_default();
        let Watch { spec, seed, .. } = self.watch;
        let is_woken = ready.contains(&true);
        assert!(is_woken, "{spec}, seed {seed}: a wake-up was lost; {}", self.outstanding());
        for nth in (0..self.queues.len()).filter(|nth| ready[*nth]) {
            if self.queues[nth].mode == PollMode::AfterReap {
                self.queues[nth].queue.ack_poll();
            }
            self.reap(nth, 0);
        }
        self.woken.clear();
        if ready.get(self.queues.len() + 1) == Some(&true) {
            self.watch.enter(self.thread, "poll the disk");
            self.disk.poll();
        }
        self.poll_futures();
    }

    fn run(&mut self, stop: &AtomicBool) {
        for _ in 0..1 + self.numbers.below(2) {
            self.new_queue();
        }
        while !stop.load(Ordering::Relaxed) {
            match self.numbers.below(16) {
                0..6 => self.submit(),
                6 => self.block(),
                7 => self.reap(0, 1),
                8 => self.reap(0, 0),
                9 if self.chance(4) => self.drop_queue(),
                _ => self.wait(),
            }
        }
        while !self.futures.is_empty() || self.queues.iter().any(|queue| !queue.queue.is_empty()) {
            self.wait();
        }
    }
}

/// Freezes, quiesces or stops a disk at random intervals, beside another thread that does the same.
fn hold(disk: &Disk, watch: &Watch, thread: usize, mut numbers: Numbers, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        watch.enter(thread, "pause");
        thread::sleep(Duration::from_millis(numbers.below(12)));
        let held = match numbers.below(4) {
            0 => {
                watch.enter(thread, "freeze");
                disk.freeze()
            }
            1 => {
                watch.enter(thread, "freeze with a timeout");
                disk.freeze_timeout(Duration::from_millis(numbers.below(8)))
            }
            2 => {
                watch.enter(thread, "quiesce");
                Ok(disk.quiesce())
            }
            _ => Ok(disk.stop()),
        };
        watch.enter(thread, "hold");
        match held {
            Ok(held) => {
                thread::sleep(Duration::from_micros(numbers.below(3000)));
                watch.enter(thread, "let go");
                drop(held);
            }
            Err(
                FreezeError::Quiesced { .. }
                | FreezeError::Stopped { .. }
                | FreezeError::TimedOut { .. },
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Soaks one disk for `len`.
fn soak(spec: &str, seed: u64, len: Duration) {
    let disk = open(spec);
    let doing = || Mutex::new(("begin", 0));
    let watch = Watch {
        spec: spec.to_owned(),
        seed,
        doing: (0..LOOPS + HOLDERS).map(|_| doing()).collect(),
        is_over: AtomicBool::new(false),
    };
    let (stop, let_go) = (AtomicBool::new(false), AtomicBool::new(false));
    // On some disks an event loop drives the futures; on others, the thread that they start.
    let disk_fd = seed.is_multiple_of(2).then(|| disk.poll_fd().expect("a descriptor"));
    thread::scope(|scope| {
        let (disk, watch, stop, let_go) = (&disk, &watch, &stop, &let_go);
        let loops: Vec<_> = (0..LOOPS)
            .map(|nth| {
                scope.spawn(move || {
                    let thread = nth as usize;
                    let pages = vec![Page { value: Some(0), is_busy: false }; PAGES as usize];
                    let mut of_thread = Loop {
                        disk,
                        watch,
                        thread,
                        numbers: Numbers(seed ^ nth << 32),
                        first: nth * PAGES,
                        pages,
                        queues: Vec::new(),
                        futures: Vec::new(),
                        disk_fd,
                        woken: Arc::new(EventFd::new()),
                    };
                    of_thread.run(stop);
                    drop(of_thread.queues);
                    watch.enter(thread, "end");
                    while !watch.is_over.load(Ordering::Relaxed) {
                        watch.enter(thread, "end");
                        thread::sleep(Duration::from_millis(1));
                    }
                })
            })
            .collect();
        let holders: Vec<_> = (0..HOLDERS)
            .map(|nth| {
                let numbers = Numbers(seed ^ nth << 40 ^ 0x5EED);
                scope.spawn(move || hold(disk, watch, (LOOPS + nth) as usize, numbers, let_go))
            })
            .collect();
        scope.spawn(|| watch.run());
        thread::sleep(len);
        stop.store(true, Ordering::Relaxed);
        let is_ended = |thread: &Mutex<(&str, u32)>| thread.lock().expect("no panic").0 == "end";
        while !watch.doing[..LOOPS as usize].iter().all(is_ended)
            && !loops.iter().any(|thread| thread.is_finished())
        {
            thread::sleep(Duration::from_millis(1));
        }
        let_go.store(true, Ordering::Relaxed);
        let holders: Vec<_> = holders.into_iter().map(|thread| thread.join()).collect();
        watch.is_over.store(true, Ordering::Relaxed);
        loops.into_iter().for_each(|thread| thread.join().expect("no panic"));
        holders.into_iter().for_each(|thread| thread.expect("no panic"));
    });
    drop(disk.freeze().expect("nothing else holds it"));
}

#[test]
fn event_loops_that_do_anything_lose_no_wake_up() {
    let (seconds, seed) = (soak_seconds(), soak_seed());
    let (scratch, server) = (Scratch::new(LEN), NbdServer::new(export(LEN), &[]));
    let mut specs = vec![
        format!("ram:{LEN}?nr_hw_queues=2&queue_depth=3"),
        format!("ram:{LEN}?req_ns=5000&nr_hw_queues=2"),
        format!("fault:ram:{LEN}?rule=any:busy:rate=0.9&nr_hw_queues=3"),
        server.uri(),
        format!("{}&nr_hw_queues=1&queue_depth=4", server.uri()),
        format!("fault:{}&rule=read:busy:rate=0.9", server.uri()),
        scratch.spec("direct=on&nr_hw_queues=2&service=on"),
        scratch.spec("direct=on&nr_hw_queues=1&run_queue=always"),
        scratch.spec("direct=on&nr_hw_queues=2&sqpoll=on"),
        scratch.spec("direct=on&nr_hw_queues=1&wake=batch&queue_depth=4"),
        scratch.spec("direct=on&nr_hw_queues=2&kick=per-request&plug=per-level"),
    ];
    for driver in ["file", "aio", "psync"] {
        for (fault, rule) in
            [("", ""), ("fault:", "&rule=read:busy:rate=0.9&rule=write:short=1k:nth=5")]
        {
            for keys in
                ["nr_hw_queues=1&queue_depth=4", "nr_hw_queues=3&direct=on", "nr_hw_queues=3"]
            {
                specs.push(format!("{fault}{driver}:{}{rule}", scratch.spec(keys)));
            }
        }
    }
    let len = Duration::from_millis((seconds * 1000 / specs.len() as u64).min(2000));
    let end = Instant::now() + Duration::from_secs(seconds);
    for round in 0.. {
        for (spec, nth) in specs.iter().zip(1..) {
            std::fs::write(&scratch.path, vec![0; LEN as usize]).expect("room");
            if spec.contains("nbd") {
                let disk =
                    open(spec.trim_start_matches("fault:").split("&rule").next().expect("one"));
                disk.write_zeroes(0, LEN).expect("zeroes");
            }
            soak(spec, seed.wrapping_add(round * 1000).wrapping_mul(nth), len);
        }
        if Instant::now() >= end {
            return;
        }
    }
}
