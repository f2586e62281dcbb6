//! Tests of the fault driver.

use super::*;
use crate::driver::Waiter;
use crate::driver::testing::{data, device, issue, queue, reap};
use forebay_core::{Bio, BioFlags, Op};
use std::time::{Duration, Instant};

#[test]
fn all_queues_count_together() {
    for (rule, nr_failed) in [("nth=10", 200), ("after=501", 1500), ("after=1001:nth=2", 500)] {
        let device = device(&format!("fault:null:1M?rule=discard:offline:{rule}"));
        let count = || {
            let mut driver = device.open_queue(4, Mode::Shared).expect("a queue").driver;
            let fails = (0..1000).filter(|_| {
                issue(&mut *driver, 0, Bio::range(Op::Discard, 0, 512));
                driver.commit_rqs();
                reap(&mut *driver)[0].result == Err(BlockStatus::Offline)
            });
            fails.count()
        };
        let total: usize = std::thread::scope(|scope| {
            [scope.spawn(count), scope.spawn(count)].map(|it| it.join().expect("counts"))
        })
        .iter()
        .sum();
        assert_eq!(total, nr_failed, "{rule}");
    }
}

#[test]
fn injected_failure_is_ready_at_once() {
    let spec = "fault:ram:1M?req_ns=1000000000&rule=read:io";
    let DriverQueue { mut driver, waiter } = queue(spec, Mode::Shared);
    issue(&mut *driver, 0, Bio::range(Op::WriteZeroes, 0, 512));
    assert!(!driver.has_ready());
    issue(&mut *driver, 1, data(Op::Read, 0, &mut [0; 512], 512));
    assert!(driver.has_ready());
    assert_eq!(reap(&mut *driver), [failed(1)]);
    assert!(!driver.has_ready());
    // A kick reaches the inner waiter.
    driver.kick();
    waiter.wait(None);
    assert_eq!(reap(&mut *driver), []);
}

/// A waiter whose kicks get lost, and that counts a system call.
struct Forbidden;

impl Waiter for Forbidden {
    fn wait(&self, _: Option<Duration>) {}

    fn misses_kicks(&self) -> bool {
        true
    }

    fn nr_uncounted_syscalls(&self) -> u64 {
        1
    }
}

#[test]
fn waiter_beside_delays_reports_what_the_inner_one_reports() {
    let waiter = FaultWaiter::new(Arc::new(Forbidden), &Delays::new(1));
    assert!(waiter.misses_kicks());
    assert_eq!(waiter.nr_uncounted_syscalls(), 1);
}

fn failed(tag: usize) -> forebay_core::Completed {
    forebay_core::Completed { tag: Tag::from_index(tag), result: Err(BlockStatus::Io) }
}

/// The requests of the inner driver: operation, FUA, and whether a flush includes metadata.
type Seen = Arc<Mutex<Vec<(Op, bool, bool)>>>;

/// Accepts everything and completes nothing.
struct Recorder(Seen);

impl Driver for Recorder {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _: bool) -> Issue {
        self.0.lock().expect("a list").push((rq.op, rq.fua, rq.metadata));
        Issue::Queued
    }

    fn commit_rqs(&mut self) {}

    fn reap(&mut self, _: &mut Completions, _: Reap) {}

    fn wait(&mut self, _: u32, _: Option<Duration>) {}
}

/// Returns a recording device behind one rule.
fn recorded(text: &str) -> (FaultDriver, Seen) {
    let seen = Seen::default();
    let rules = FaultRules::new(vec![rule::parse(text).expect("a good rule")], Random::new(0, 0));
    let driver = FaultDriver {
        inner: Box::new(Recorder(Arc::clone(&seen))),
        block: 512,
        rules: Arc::new(Mutex::new(rules)),
        ready: Vec::new(),
        delays: Delays::new(crate::driver::testing::DEPTH),
        description: None,
        has_inner_cache: true,
        hung: Vec::new(),
        nr_inner: 0,
    };
    (driver, seen)
}

#[test]
fn request_without_a_rule_passes_unchanged() {
    let (mut driver, seen) = recorded("read:io");
    let mut buf = [0; 512];
    issue(&mut driver, 0, Bio { flags: BioFlags::FUA, ..data(Op::Write, 0, &mut buf, 512) });
    issue(&mut driver, 1, data(Op::Write, 0, &mut buf, 512));
    issue(&mut driver, 2, Bio::flush());
    issue(&mut driver, 3, Bio::fsync());
    let expected = [
        (Op::Write, true, false),
        (Op::Write, false, false),
        (Op::Flush, false, false),
        (Op::Flush, false, true),
    ];
    assert_eq!(*seen.lock().expect("a list"), expected);
}

#[test]
fn lying_flush_succeeds_without_reaching_the_device() {
    let (mut driver, seen) = recorded("flush:lie:nth=2");
    for tag in 0..4 {
        issue(&mut driver, tag, Bio::flush());
    }
    let done: Vec<_> =
        reap(&mut driver).iter().map(|done| (done.tag.index(), done.result)).collect();
    assert_eq!(done, [(1, Ok(0)), (3, Ok(0))]);
    assert_eq!(seen.lock().expect("a list").len(), 2);
}

#[test]
fn a_write_that_is_lost_succeeds_whole() {
    let DriverQueue { mut driver, .. } = queue("fault:ram:1M?rule=write:lie", Mode::Owned);
    issue(&mut *driver, 0, data(Op::Write, 0, &mut [7; 1024], 512));
    assert_eq!(reap(&mut *driver)[0].result, Ok(1024));
    let mut back = [9; 1024];
    issue(&mut *driver, 0, data(Op::Read, 0, &mut back, 512));
    assert_eq!(reap(&mut *driver)[0].result, Ok(1024));
    assert_eq!(back, [0; 1024]);
}

#[test]
fn a_durable_write_may_become_a_plain_one() {
    let (mut driver, seen) = recorded("write:nofua");
    let mut buf = [0; 512];
    issue(&mut driver, 0, Bio { flags: BioFlags::FUA, ..data(Op::Write, 0, &mut buf, 512) });
    assert_eq!(*seen.lock().expect("a list"), [(Op::Write, false, false)]);
}

#[test]
fn a_completion_that_is_late_keeps_no_other_back() {
    const DELAY: Duration = Duration::from_millis(20);
    for mode in [Mode::Owned, Mode::Shared] {
        let spec = "fault:ram:1M?rule=write_zeroes:delay=20ms:nth=2";
        let DriverQueue { mut driver, waiter } = queue(spec, mode);
        let begin = Instant::now();
        for tag in 0..2 {
            issue(&mut *driver, tag, Bio::range(Op::WriteZeroes, 0, 512));
        }
        issue(&mut *driver, 2, Bio::range(Op::Discard, 0, 512));
        driver.commit_rqs();
        let mut ended = Vec::new();
        while ended.len() < 3 {
            let done = reap(&mut *driver);
            ended.extend(done.iter().map(|done| (done.tag.index(), begin.elapsed())));
            match mode {
                _ if ended.len() == 3 => {}
                Mode::Owned => driver.wait(3 - ended.len() as u32, None),
                Mode::Shared => waiter.wait(None),
            }
        }
        let tags: Vec<_> = ended.iter().map(|(tag, _)| *tag).collect();
        assert_eq!(tags, [0, 2, 1]);
        assert!(ended[2].1 >= DELAY, "it was {:?}", ended[2].1);
        assert!(!driver.has_ready());
    }
}

#[test]
fn each_request_has_its_own_delay() {
    let spec = "fault:ram:1M?rule=write_zeroes:delay=30ms&rule=discard:delay=10ms";
    let DriverQueue { mut driver, waiter } = queue(spec, Mode::Shared);
    let begin = Instant::now();
    issue(&mut *driver, 0, Bio::range(Op::WriteZeroes, 0, 512));
    issue(&mut *driver, 1, Bio::range(Op::Discard, 0, 512));
    for (tag, delay_ms) in [(1, 10), (0, 30)] {
        let mut done = reap(&mut *driver);
        while done.is_empty() {
            waiter.wait(None);
            done = reap(&mut *driver);
        }
        assert_eq!(done[0].tag.index(), tag);
        assert!(begin.elapsed() >= Duration::from_millis(delay_ms));
    }
}

/// The spec of a disk on which every write from 512 KiB on is lost. A read of the first block lets
/// another program sync it.
const LOSING: &str = "rule=write:writeback=io:range=512k+512k&rule=read:foreign_sync:range=0+512";

const BAD: u64 = 512 << 10;

/// Returns the result of a request.
fn end(driver: &mut dyn Driver, bio: Bio) -> Result<u64, BlockStatus> {
    issue(driver, 0, bio);
    driver.commit_rqs();
    loop {
        if let Some(done) = reap(driver).pop() {
            return done.result;
        }
        driver.wait(1, None);
    }
}

fn write(driver: &mut dyn Driver, start: u64, flags: BioFlags) -> Result<u64, BlockStatus> {
    end(driver, Bio { flags, ..data(Op::Write, start, &mut [7; 512], 512) })
}

fn read(driver: &mut dyn Driver, start: u64) -> u8 {
    let mut buf = [9; 512];
    assert_eq!(end(driver, data(Op::Read, start, &mut buf, 512)), Ok(512));
    buf[0]
}

const OK: Result<u64, BlockStatus> = Ok(0);
const LOST: Result<u64, BlockStatus> = Err(BlockStatus::Io);

#[test]
fn struck_write_completes_and_is_lost_and_each_queue_reports_it_once() {
    let device = device(&format!("fault:ram:1M?{LOSING}"));
    let limits = device.limits();
    assert!(limits.volatile_cache && limits.fua && limits.fua_is_sync && !limits.fua_queueable);
    let queue = || device.open_queue(4, Mode::Owned).expect("a queue").driver;
    let (mut one, mut other) = (queue(), queue());
    assert_eq!(end(&mut *one, Bio::flush()), OK);
    assert_eq!(write(&mut *one, 4096, BioFlags::NONE), Ok(512));
    assert_eq!(write(&mut *one, BAD, BioFlags::NONE), Ok(512));
    assert_eq!((read(&mut *one, 4096), read(&mut *one, BAD)), (7, 0), "the cache dropped it");
    // A queue opened before the error is reported reports it, too.
    let mut inheriting = queue();
    assert_eq!(end(&mut *one, Bio::flush()), LOST);
    let mut late = queue();
    for (driver, first) in
        [(&mut one, OK), (&mut other, LOST), (&mut inheriting, LOST), (&mut late, OK)]
    {
        assert_eq!(end(&mut **driver, Bio::flush()), first);
        assert_eq!(end(&mut **driver, Bio::flush()), OK);
    }
}

#[test]
fn only_writes_are_struck() {
    let DriverQueue { mut driver, .. } =
        queue("fault:ram:1M?rule=any:writeback=nospace:nth=2", Mode::Owned);
    assert_eq!(write(&mut *driver, 0, BioFlags::NONE), Ok(512));
    assert_eq!(read(&mut *driver, 0), 7);
    assert_eq!(write(&mut *driver, 512, BioFlags::NONE), Ok(512));
    assert_eq!(read(&mut *driver, 512), 0);
    assert_eq!(end(&mut *driver, Bio::flush()), Err(BlockStatus::NoSpace));
}

#[test]
fn durable_write_reports_the_error_of_another_write() {
    let DriverQueue { mut driver, .. } = queue(&format!("fault:ram:1M?{LOSING}"), Mode::Owned);
    assert_eq!(write(&mut *driver, 4096, BioFlags::FUA), Ok(512));
    assert_eq!(write(&mut *driver, BAD, BioFlags::FUA), LOST, "its own");
    assert_eq!(end(&mut *driver, Bio::flush()), OK);
    assert_eq!(write(&mut *driver, BAD, BioFlags::NONE), Ok(512));
    assert_eq!(write(&mut *driver, 8192, BioFlags::FUA), LOST, "that of another");
    assert_eq!(read(&mut *driver, 8192), 7, "its own data is written");
    assert_eq!(write(&mut *driver, 8192, BioFlags::FUA), Ok(512));
    assert_eq!(end(&mut *driver, Bio::flush()), OK);
}

#[test]
fn foreign_sync_takes_the_error_from_queues_that_are_opened_later() {
    let device = device(&format!("fault:ram:1M?{LOSING}"));
    let queue = || device.open_queue(4, Mode::Owned).expect("a queue").driver;
    let mut one = queue();
    assert_eq!(write(&mut *one, BAD, BioFlags::NONE), Ok(512));
    read(&mut *one, 0);
    let mut late = queue();
    assert_eq!(end(&mut *late, Bio::flush()), OK);
    let durability = Durability::new();
    for _ in 0..2 {
        device.check_for_errors(&durability);
        assert_eq!(durability.nr_failures(), 1, "the check finds it once");
    }
    assert_eq!(end(&mut *one, Bio::flush()), LOST);
}

#[test]
fn sync_that_is_late_has_checked_for_errors_before() {
    let spec = format!("fault:ram:1M?{LOSING}&rule=flush:delay=20ms");
    let DriverQueue { mut driver, .. } = queue(&spec, Mode::Owned);
    issue(&mut *driver, 1, Bio::flush());
    assert_eq!(write(&mut *driver, BAD, BioFlags::NONE), Ok(512));
    let mut done = Vec::new();
    while done.is_empty() {
        driver.wait(1, None);
        done = reap(&mut *driver);
    }
    assert_eq!((done[0].tag.index(), done[0].result), (1, OK), "the error came after its check");
    issue(&mut *driver, 2, Bio::flush());
    assert_eq!(write(&mut *driver, 8192, BioFlags::FUA), Ok(512), "the flush has the error");
    let mut done = Vec::new();
    while done.is_empty() {
        driver.wait(1, None);
        done = reap(&mut *driver);
    }
    assert_eq!((done[0].tag.index(), done[0].result), (2, LOST));
}

#[test]
fn syncs_of_a_wrapped_cache_are_that_disks_own_as_well() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("room");
    for fua in ["on", "off"] {
        let spec = format!("fault:psync:{}?{LOSING}&fua={fua}", file.path().display());
        let device = device(&spec);
        let limits = device.limits();
        assert_eq!(
            (limits.fua, limits.fua_is_sync, limits.fua_queueable),
            (fua == "on", true, false)
        );
        let DriverQueue { mut driver, .. } = device.open_queue(4, Mode::Owned).expect("a queue");
        assert_eq!(write(&mut *driver, BAD, BioFlags::NONE), Ok(512));
        assert_eq!(end(&mut *driver, Bio::flush()), LOST);
        assert_eq!(end(&mut *driver, Bio::fsync()), OK);
        assert!(driver.nr_syscalls() >= 2, "the flushes reach the file");
    }
    let bytes = std::fs::read(file.path()).expect("the file");
    assert!(
        bytes.iter().all(|byte| *byte == 0),
        "a write whose write-back failed never reaches it"
    );
}

#[test]
fn disks_on_one_file_share_its_errors() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("room");
    let spec = format!("fault:psync:{}?{LOSING}", file.path().display());
    let memory = format!("fault:ram:1M?{LOSING}");
    for (spec, is_shared) in [(spec, true), (memory, false)] {
        let open = || crate::Disk::open(&spec).expect("it opens");
        let (one, other) = (open(), open());
        one.write_at(&[1; 512], BAD).expect("a write");
        assert_eq!(other.flush().is_err(), is_shared, "{spec}");
        assert_eq!(other.lost_writes().is_some(), is_shared, "{spec}");
        assert!(one.flush().is_err(), "{spec}");
    }
}

#[test]
fn disk_that_is_opened_after_an_error_was_reported_has_the_loss() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("room");
    let spec = format!("fault:psync:{}?{LOSING}&nr_hw_queues=3", file.path().display());
    let open = || crate::Disk::open(&spec).expect("it opens");
    let flush = |disk: &crate::Disk| {
        let mut queue = disk.queue();
        queue.submit(crate::Io::flush()).expect("a flush");
        let mut done = Vec::new();
        queue.reap(1, 1, &mut done);
        done[0].result
    };
    for by_thread in [true, false] {
        let disk = open();
        disk.write_at(&[1; 512], BAD).expect("a write");
        let point = disk.durable_point();
        disk.read_at(&mut [0; 512], 0).expect("a read");
        let result = match by_thread {
            true => std::thread::scope(|scope| scope.spawn(|| flush(&disk)).join().expect("one")),
            false => flush(&open()),
        };
        assert_eq!(result, LOST);
        assert!(!disk.is_durable(point));
        let lost = disk.lost_writes().expect("a loss");
        assert!(lost.after < point && point <= lost.up_to);
        // A queue opened later does not report an acknowledged loss again.
        assert_eq!(flush(&disk), LOST);
        disk.acknowledge_loss().expect("a loss");
        disk.flush().expect_err("the shared context has not reported it");
        disk.acknowledge_loss().expect("a loss");
        assert_eq!(flush(&open()), Ok(0));
    }
}

#[test]
fn rules_that_can_have_no_effect_are_refused_with_the_reason() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("room");
    let file = file.path().display();
    for (spec, reason) in [
        ("ram:1M?rule=flush:io", "a disk with a volatile cache"),
        ("ram:1M?rule=read+flush:delay=1s", "a disk with a volatile cache"),
        ("ram:1M?rule=write:nofua", "nofua on a disk with native FUA"),
        ("ram:1M?rule=any:nofua", "nofua on a disk with native FUA"),
        (&format!("{file}?fua=off&rule=write:nofua"), "nofua on a disk with native FUA"),
        (&format!("{file}?fua=on&rule=read:nofua"), "writes only: nofua applies"),
        (&format!("{file}?fua=on&rule=write+flush:nofua"), "writes only: nofua applies"),
        (&format!("{file}?rule=flush:io:range=0+512"), "a flush has none; remove range="),
        (&format!("{file}?read_only=on&rule=write:io"), "a disk that may be written to"),
        ("ram:1M?read_only=on&rule=write:io", "a disk that may be written to"),
        ("ram:1M?rule=read:io:range=1M+512", "a range that begins before the end"),
        ("ram:1M?rule=discard:short=512", "reads and writes only: short=N"),
        ("ram:1M?rule=write+flush:writeback=io", "writes only: writeback=STATUS"),
        ("ram:1M?rule=read:writeback=io", "writes only: writeback=STATUS"),
        ("ram:1M?rule=read:foreign_sync", "foreign_sync beside a rule with writeback"),
    ] {
        let error = crate::Disk::open(&format!("fault:{spec}")).expect_err(spec).to_string();
        assert!(error.contains(reason) && error.contains("rule="), "{spec}: {error}");
    }
    for spec in [
        "ram:1M?rule=any:io:nth=3",
        "ram:1M?rule=any:writeback=nospace&rule=flush:io:nth=2",
        "ram:1M?rule=write:writeback=io:nth=2&rule=write:nofua&rule=any:foreign_sync:nth=9",
        &format!("{file}?fua=on&rule=write:nofua"),
        &format!("{file}?rule=flush:lie"),
        "ram:1M?rule=any:short=512",
        "ram:1M?rule=read:io:range=1023k+4k",
    ] {
        crate::Disk::open(&format!("fault:{spec}")).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn each_name_of_an_effect_or_a_condition_is_parsed() {
    for name in super::RULE_NAMES {
        let part = match name {
            "short=" => "short=512",
            "delay=" => "delay=1ms",
            "writeback=" => "writeback=io",
            "range=" => "range=0+512",
            "rate=" => "rate=0.5",
            "nth=" => "nth=2",
            "after=" => "after=2",
            _ => name,
        };
        // A device that is always busy completes nothing.
        let is_effect = super::rule::parse(&format!("write:{part}:nth=2")).is_ok();
        let is_condition = super::rule::parse(&format!("write:io:{part}")).is_ok();
        assert!(is_effect != is_condition, "{name}");
    }
}
