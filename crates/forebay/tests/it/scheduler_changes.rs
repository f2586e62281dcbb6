//! Changes of the scheduler while threads use the disk: every bio ends once, with its own result.
//!
//! Each device sees [`NR_CHANGES`] changes, and more for as long as `FOREBAY_SOAK_SECONDS` says. A
//! test prints its seed; `FOREBAY_SOAK_SEED` repeats its choices.

use crate::backends::{Memory, OnThread, limits};
use crate::common::{Numbers, open, submit};
use crate::forked::in_child;
use forebay::{
    Backend, Batch, BioQueue, BlockStatus, Buf, Class, Completion, Disk, FreezeError, Io,
    MqDeadlineParams, Op, Policy, PropertyValue, Request, SchedulerError, SchedulerPolicy,
    Scheduling, plug,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NR_CHANGES: u32 = 1000;
const THREADS: u64 = 4;
/// Number of pages that only one thread uses.
const PAGES: u64 = 48;
const PAGE: u64 = 4096;
/// A page that cannot be read, and one that cannot be written. Their neighbours are not used, so
/// that no request merges with theirs.
const UNREADABLE: u64 = 20;
const UNWRITABLE: u64 = 30;
/// The number of bytes of a disk.
const SIZE: u64 = THREADS * PAGES * PAGE;

/// Returns whether a page is used as other pages are.
fn is_usual(page: u64) -> bool {
    [UNREADABLE, UNWRITABLE].into_iter().all(|bad| page.abs_diff(bad) > 1)
}

/// Returns the content of a page: one number, repeated; 0 before the first write.
fn content(value: u64) -> Buf {
    let mut buf = Buf::new(PAGE as usize);
    buf.chunks_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    buf
}

/// An I/O in flight: its operation, its page, and the number that it writes.
#[derive(Clone, Copy, Debug)]
struct Sent {
    op: Op,
    page: u64,
    value: u64,
    is_nowait: bool,
}

/// A thread, and its model of its pages.
struct Worker<'a> {
    disk: &'a Disk,
    numbers: Numbers,
    first: u64,
    pages: [u64; PAGES as usize],
    sent: HashMap<u64, Sent>,
    nr_sent: u64,
}

impl Worker<'_> {
    fn at(&self, page: u64) -> u64 {
        (self.first + page) * PAGE
    }

    /// Returns a page that no I/O in flight uses.
    fn pick(&mut self) -> Option<u64> {
        let page = self.numbers.below(PAGES);
        let is_free = self.sent.values().all(|sent| sent.page != page);
        let is_used = is_usual(page) || page == UNREADABLE || page == UNWRITABLE;
        (is_free && is_used).then_some(page)
    }

    fn send(&mut self, queue: &mut BioQueue) {
        let Some(page) = self.pick() else { return };
        let (at, value) = (self.at(page), self.numbers.next());
        let (op, io) = match self.numbers.below(16) {
            0 => (Op::Flush, Io::flush()),
            1 if is_usual(page) && self.disk.limits().max_discard_sectors > 0 => {
                (Op::Discard, Io::discard(at, PAGE))
            }
            2..8 if page != UNREADABLE => (Op::Write, Io::write(content(value), at)),
            8 if page != UNREADABLE => (Op::Write, Io::write(content(value), at).fua()),
            9 if page != UNREADABLE => (Op::Write, Io::write(content(value), at).preflush()),
            _ if page != UNWRITABLE => (Op::Read, Io::read(Buf::new(PAGE as usize), at)),
            _ => return,
        };
        let is_nowait = op != Op::Flush && self.numbers.below(6) == 0;
        let class = Class::ALL[self.numbers.below(3) as usize];
        let io = if self.numbers.below(4) == 0 { io.priority(class, 4) } else { io };
        let io = if is_nowait { io.nowait() } else { io };
        self.nr_sent += 1;
        submit(queue, io.user_data(self.nr_sent));
        self.sent.insert(self.nr_sent, Sent { op, page, value, is_nowait });
    }

    fn check(&mut self, done: Completion) {
        let sent = self.sent.remove(&done.user_data).expect("it was sent, and ends once");
        let page = sent.page as usize;
        let is_bad = match sent.op {
            Op::Read => sent.page == UNREADABLE,
            Op::Write => sent.page == UNWRITABLE,
            _ => false,
        };
        match done.result {
            Err(BlockStatus::Again) if sent.is_nowait => {}
            Err(BlockStatus::Medium) if is_bad => {}
            Ok(nr) if !is_bad => match sent.op {
                Op::Read => {
                    let buf = done.buf.expect("a read has a buffer");
                    assert!(nr == PAGE && *buf == *content(self.pages[page]), "{sent:?}");
                }
                Op::Write => self.pages[page] = sent.value,
                Op::Discard => self.pages[page] = 0,
                _ => {}
            },
            result => panic!("{sent:?}: {result:?}"),
        }
    }

    fn block(&mut self) {
        let page = self.numbers.below(16);
        let (at, value) = (self.at(page), self.numbers.next());
        self.nr_sent += 1;
        let written = self.disk.write_at(&content(value), at);
        assert_eq!(written, Ok(PAGE as usize));
        self.pages[page as usize] = value;
    }

    fn work(&mut self, is_over: &AtomicBool) {
        let disk = self.disk;
        let mut queue = disk.queue();
        let mut done = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            if self.sent.is_empty() && self.numbers.below(4) == 0 {
                self.block();
            }
            {
                let _plug = (self.numbers.below(2) == 0).then(plug);
                for _ in 0..self.numbers.below(12) {
                    self.send(&mut queue);
                }
            }
            let nr = self.numbers.below(self.sent.len() as u64 + 1) as usize;
            queue.reap(nr, usize::MAX, &mut done);
            done.drain(..).for_each(|done| self.check(done));
        }
        while !queue.is_empty() {
            queue.reap(1, usize::MAX, &mut done);
        }
        done.drain(..).for_each(|done| self.check(done));
        assert!(self.sent.is_empty(), "each bio ends");
        for page in (0..PAGES).filter(|page| is_usual(*page)) {
            let mut buf = Buf::new(PAGE as usize);
            assert_eq!(disk.read_at(&mut buf, self.at(page)), Ok(PAGE as usize));
            assert!(*buf == *content(self.pages[page as usize]), "page {page}");
            self.nr_sent += 1;
        }
    }
}

fn draw(numbers: &mut Numbers) -> Scheduling {
    let params = MqDeadlineParams::default().fifo_batch(1 + numbers.below(3) as u32);
    let device_depth = [None, Some(1), Some(4)][numbers.below(3) as usize];
    let scheduler = [SchedulerPolicy::None, SchedulerPolicy::MqDeadline];
    Scheduling::default()
        .scheduler(scheduler[numbers.below(2) as usize])
        .device_depth(device_depth)
        .mq_deadline(params)
}

/// Changes the scheduler under load. Returns how many changes ran into their time limit.
fn change(disk: &Disk, numbers: &mut Numbers) -> u32 {
    let seconds = std::env::var("FOREBAY_SOAK_SECONDS").ok();
    let seconds = seconds.map_or(0, |text| text.parse().expect("a number"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut nr_done, mut nr_late) = (0, 0);
    while nr_done < NR_CHANGES || Instant::now() < end {
        let (before, scheduling) = (disk.scheduling(), draw(numbers));
        let changed = match numbers.below(16) {
            0 => disk.set_scheduler_timeout(scheduling, Duration::ZERO),
            1 => disk.set_scheduler_timeout(scheduling, Duration::from_secs(60)),
            _ => disk.set_scheduler(scheduling),
        };
        match changed {
            Ok(()) => {
                nr_done += 1;
                if scheduling.scheduler != before.scheduler {
                    assert_eq!(disk.scheduling().scheduler, scheduling.scheduler);
                }
            }
            Err(SchedulerError::Freeze(FreezeError::TimedOut { .. })) => {
                nr_late += 1;
                assert_eq!(disk.scheduling(), before);
            }
            Err(error) => panic!("{error}"),
        }
        if numbers.below(64) == 0 {
            let depth = disk.info().policy.queue_depth;
            disk.set_nr_requests(2 + numbers.below(u64::from(depth) - 1) as u32).expect("in range");
        }
        std::thread::sleep(Duration::from_micros(numbers.below(500)));
    }
    nr_late
}

#[allow(clippy::print_stdout, reason = "libtest prints it if the test fails")]
fn record(line: &str) {
    println!("{line}");
}

/// Changes the scheduler of a disk that [`THREADS`] threads use.
fn change_under_load(disk: &Disk) {
    let seed = std::env::var("FOREBAY_SOAK_SEED").ok();
    let seed = seed.map_or(u64::from(std::process::id()), |text| text.parse().expect("a number"));
    record(&format!("{}: seed {seed}", disk.info().spec));
    let (is_over, nr_sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let nr_late = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (is_over, nr_sent) = (&is_over, &nr_sent);
            scope.spawn(move || {
                let mut worker = Worker {
                    disk,
                    numbers: Numbers(seed ^ (thread + 1) << 32),
                    first: thread * PAGES,
                    pages: [0; PAGES as usize],
                    sent: HashMap::new(),
                    nr_sent: 0,
                };
                worker.work(is_over);
                nr_sent.fetch_add(worker.nr_sent, Ordering::Relaxed);
            });
        }
        let nr_late = change(disk, &mut Numbers(seed));
        is_over.store(true, Ordering::Relaxed);
        nr_late
    });
    drop(disk.freeze().expect("no other hold"));
    let stats = disk.stats().queue;
    let nr_ended: u64 = Op::ALL.iter().map(|&op| stats.op(op).bios).sum();
    let nr_sent = nr_sent.into_inner();
    record(&format!("{nr_sent} I/Os, {nr_late} changes in vain, {} requests", stats.issued));
    assert_eq!(nr_ended, nr_sent);
}

/// Returns the rules of the bad pages of all threads, and those of a busy device.
fn rules() -> String {
    let of_thread = |thread: u64| {
        let at = |page: u64| (thread * PAGES + page) * PAGE;
        let rule = |op, page| format!("&rule={op}:medium:range={}+{PAGE}", at(page));
        rule("read", UNREADABLE) + &rule("write", UNWRITABLE)
    };
    (0..THREADS).map(of_thread).collect::<String>() + "&rule=any:busy:rate=0.05"
}

#[test]
fn bios_end_once_while_the_scheduler_changes_on_a_failing_busy_device() {
    let model = "command_ns=500&flush_ns=2000&position_ns=500&seek_ns=1000";
    let disk = open(&format!("fault:model:sata?size=1M&{model}{}", rules()));
    change_under_load(&disk);
}

#[test]
fn bios_end_once_while_the_scheduler_changes_without_a_thread_of_the_disk() {
    let keys = "nr_hw_queues=1&req_ns=1000&queue_depth=8&iostats=on";
    let disk = open(&format!("fault:ram:{SIZE}?{keys}{}", rules()));
    change_under_load(&disk);
}

#[test]
fn bios_end_once_while_the_scheduler_changes_on_a_back_end_with_native_fua() {
    let memory = Memory::new(SIZE);
    let serve = move |request: Request| {
        let page = request.offset() / PAGE % PAGES;
        let is_bad = match request.op() {
            Op::Read => page == UNREADABLE,
            Op::Write => page == UNWRITABLE,
            _ => false,
        };
        match is_bad {
            true => request.complete(Err(BlockStatus::Medium)),
            false => memory.serve(request),
        }
    };
    let policy = Policy::default().queue_depth(16);
    let disk = Disk::with_backend(OnThread::new(serve), limits(SIZE), policy);
    change_under_load(&disk.expect("a disk"));
}

fn mq_deadline() -> Scheduling {
    Scheduling::default().scheduler(SchedulerPolicy::MqDeadline)
}

/// A back end that keeps its requests.
#[derive(Debug, Default)]
struct Keeps(Arc<Mutex<Vec<Request>>>);

impl Backend for Keeps {
    fn name(&self) -> &str {
        "keeps"
    }

    fn submit(&self, batch: &mut Batch<'_>) {
        self.0.lock().expect("no panic").extend(batch);
    }
}

/// Returns how many of 80 NOWAIT reads get a tag, and how many reach the device at once.
fn tags_and_depth(disk: &Disk, kept: &Mutex<Vec<Request>>) -> (usize, usize) {
    let mut queue = disk.queue();
    (0..80).for_each(|nr| submit(&mut queue, Io::read(Buf::new(512), nr * 1024).nowait()));
    let nr_at_device = kept.lock().expect("no panic").len();
    let mut done = Vec::new();
    while !queue.is_empty() {
        let requests = std::mem::take(&mut *kept.lock().expect("no panic"));
        requests.into_iter().for_each(|request| request.complete(Ok(())));
        queue.reap(0, usize::MAX, &mut done);
    }
    (done.iter().filter(|done| done.result == Ok(512)).count(), nr_at_device)
}

#[test]
fn tags_in_use_follow_the_scheduler_unless_the_user_has_set_their_number() {
    let open = |policy: Policy| {
        let keeps = Keeps::default();
        let kept = Arc::clone(&keeps.0);
        let policy = policy.queue_depth(80).nr_hw_queues(1);
        (Disk::with_backend(keeps, limits(1 << 20), policy).expect("a disk"), kept)
    };
    let (disk, kept) = open(Policy::default());
    let none = Scheduling::default().scheduler(SchedulerPolicy::None);
    let set = |scheduling| disk.set_scheduler(scheduling).expect("no other hold");
    assert_eq!(tags_and_depth(&disk, &kept), (80, 80));
    set(mq_deadline().device_depth(Some(3)));
    assert_eq!(tags_and_depth(&disk, &kept), (64, 3));
    set(none);
    assert_eq!(tags_and_depth(&disk, &kept), (80, 80));
    disk.set_nr_requests(5).expect("within the depth");
    set(mq_deadline().device_depth(Some(2)));
    assert_eq!(tags_and_depth(&disk, &kept), (5, 2));
    set(none);
    assert_eq!(tags_and_depth(&disk, &kept), (5, 5));
    let (disk, kept) = open(Policy::default().nr_requests(Some(7)));
    disk.set_scheduler(mq_deadline().device_depth(Some(2))).expect("no other hold");
    assert_eq!(tags_and_depth(&disk, &kept), (7, 2));
}

#[test]
fn automatic_scheduler_is_that_of_the_device() {
    for (spec, name, depth) in [
        ("model:hdd?size=1M", "mq-deadline", Some(32)),
        ("model:nvme?size=1M&nr_hw_queues=1", "none", None),
        ("ram:1M", "none", None),
    ] {
        let disk = open(spec);
        let opened = disk.scheduling();
        disk.set_scheduler(Scheduling::default()).expect("no other hold");
        assert_eq!(disk.scheduling().scheduler.name(), name, "{spec}");
        assert_eq!(disk.scheduling().device_depth, depth, "{spec}");
        assert_eq!(disk.scheduling(), opened, "{spec}");
        let property = disk.property("current_scheduler");
        assert_eq!(property, Some(PropertyValue::Text(name.to_owned())), "{spec}");
    }
}

#[test]
fn disk_with_several_contexts_has_no_scheduler() {
    let disk = open("ram:1M?nr_hw_queues=3");
    let error = disk.set_scheduler(mq_deadline()).expect_err("it has three");
    let text = "ram:1M?nr_hw_queues=3: cannot use scheduler=mq-deadline: the disk has 3 hardware \
                contexts; open it with nr_hw_queues=1";
    assert_eq!((error.to_string(), error.errno()), (text.to_owned(), libc::EINVAL));
    assert_eq!(disk.set_scheduler(Scheduling::default()), Ok(()));
}

#[test]
fn scheduler_of_a_parent_does_not_change_in_a_child_of_a_fork() {
    let disk = open("ram:1M?nr_hw_queues=1");
    let is_refused = in_child(|| {
        let error = disk.set_scheduler(mq_deadline()).err();
        error.is_some_and(|error| error.to_string().contains("in a child of a fork"))
    });
    assert!(is_refused);
}

/// Without latencies, turns get no time until a scheduler needs it.
#[test]
fn deadlines_work_on_a_disk_without_latencies() {
    let keeps = Keeps::default();
    let kept = Arc::clone(&keeps.0);
    let policy = Policy::default().iostats(false).nr_hw_queues(1);
    let limits = limits(1 << 20).volatile_cache(false).fua(false);
    let disk = Disk::with_backend(keeps, limits, policy).expect("a disk");
    let params = MqDeadlineParams::default().read_expire_ns(1_000_000).fifo_batch(1);
    let scheduling = mq_deadline().device_depth(Some(1)).mq_deadline(params);
    disk.set_scheduler(scheduling).expect("no other hold");
    let mut queue = disk.queue();
    for page in [100, 50] {
        submit(&mut queue, Io::read(Buf::new(512), page * PAGE));
    }
    std::thread::sleep(Duration::from_millis(5));
    submit(&mut queue, Io::read(Buf::new(512), 200 * PAGE));
    let mut order = Vec::new();
    while !queue.is_empty() {
        let request = kept.lock().expect("no panic").pop().expect("one is at the device");
        order.push(request.offset() / PAGE);
        request.complete(Ok(()));
        queue.reap(1, usize::MAX, &mut Vec::new());
    }
    assert_eq!(order, [100, 50, 200], "the deadline of the second has passed");
}

#[test]
fn scheduler_and_settings_out_of_range_change_nothing() {
    let disk = open("ram:1M?nr_hw_queues=1&queue_depth=99&reserved_tags=70");
    let held = disk.stop();
    let mut queue = disk.queue();
    submit(&mut queue, Io::read(Buf::new(512), 0));
    for (scheduling, text) in [
        (mq_deadline().device_depth(Some(100)), "device_depth=100: expected a number from 1 to 99"),
        (mq_deadline().device_depth(Some(0)), "device_depth=0: expected a number from 1 to 99"),
        (
            mq_deadline().device_depth(Some(1)),
            "reserved_tags=70: expected a number below nr_requests, which is 64",
        ),
    ] {
        // A freeze would fail in another way.
        let error = disk.set_scheduler(scheduling).expect_err("out of range");
        let whole = format!("{}: cannot change the scheduler: {text}", disk.info().spec);
        assert_eq!((error.to_string(), error.errno()), (whole, libc::EINVAL));
    }
    let mq_deadline = || mq_deadline().device_depth(Some(40));
    let error = disk.set_scheduler(mq_deadline()).expect_err("it is stopped");
    assert_eq!(error.errno(), libc::EBUSY);
    assert_eq!(disk.scheduling().scheduler, SchedulerPolicy::None);
    drop(held);
    let late = disk.set_scheduler_timeout(mq_deadline(), Duration::from_secs(60));
    assert_eq!(late, Ok(()));
}
