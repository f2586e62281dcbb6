//! Tests of the fault driver.

use super::*;
use crate::driver::testing::{data, device, issue, queue, reap};
use forebay_core::{Bio, BioFlags, Op};
use std::time::Instant;

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
fn what_fails_is_ready_at_once_whatever_the_inner_driver_does() {
    let spec = "fault:ram:1M?req_ns=1000000000&rule=read:io";
    let DriverQueue { mut driver, waiter } = queue(spec, Mode::Shared);
    issue(&mut *driver, 0, Bio::range(Op::WriteZeroes, 0, 512));
    assert!(!driver.has_ready());
    issue(&mut *driver, 1, data(Op::Read, 0, &mut [0; 512], 512));
    assert!(driver.has_ready());
    assert_eq!(reap(&mut *driver), [failed(1)]);
    assert!(!driver.has_ready());
    // A kick goes through to where the thread waits.
    driver.kick();
    waiter.wait(None);
    assert_eq!(reap(&mut *driver), []);
}

fn failed(tag: usize) -> forebay_core::Completed {
    forebay_core::Completed { tag: Tag::from_index(tag), result: Err(BlockStatus::Io) }
}

/// What the inner driver sees: the operation, and whether it is to be durable.
type Seen = Arc<Mutex<Vec<(Op, bool, bool)>>>;

/// Takes everything, and completes nothing.
struct Recorder(Seen);

impl Driver for Recorder {
    fn queue_rq(&mut self, rq: &IssuedRequest<'_>, _: bool) -> Issue {
        self.0.lock().expect("a list").push((rq.op, rq.fua, rq.metadata));
        Issue::Queued
    }

    fn commit_rqs(&mut self) {}

    fn reap(&mut self, _: &mut Completions, _: Look) {}

    fn wait(&mut self, _: u32) {}
}

/// A device that records, behind one rule.
fn recorded(text: &str) -> (FaultDriver, Seen) {
    let seen = Seen::default();
    let waiter = queue("null:1M", Mode::Owned).waiter;
    let rules = Rules { list: vec![rule(text).expect("a good rule")], random: 1 };
    let driver = FaultDriver {
        inner: Box::new(Recorder(Arc::clone(&seen))),
        waiter,
        block: 512,
        rules: Arc::new(Mutex::new(rules)),
        failed: Vec::new(),
        delays: Delays::new(crate::driver::testing::DEPTH),
    };
    (driver, seen)
}

#[test]
fn what_no_rule_speaks_of_goes_through_as_it_is() {
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
fn a_flush_that_lies_succeeds_and_the_device_does_not_hear_of_it() {
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
        let spec = "fault:ram:1M?rule=flush:delay=20ms:nth=2";
        let DriverQueue { mut driver, waiter } = queue(spec, mode);
        let begin = Instant::now();
        for tag in 0..2 {
            issue(&mut *driver, tag, Bio::flush());
        }
        issue(&mut *driver, 2, Bio::range(Op::Discard, 0, 512));
        driver.commit_rqs();
        let mut ended = Vec::new();
        while ended.len() < 3 {
            let done = reap(&mut *driver);
            ended.extend(done.iter().map(|done| (done.tag.index(), begin.elapsed())));
            match mode {
                _ if ended.len() == 3 => {}
                Mode::Owned => driver.wait(3 - ended.len() as u32),
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
fn what_is_late_is_late_by_its_own_delay() {
    let spec = "fault:ram:1M?rule=flush:delay=30ms&rule=discard:delay=10ms";
    let DriverQueue { mut driver, waiter } = queue(spec, Mode::Shared);
    let begin = Instant::now();
    issue(&mut *driver, 0, Bio::flush());
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
