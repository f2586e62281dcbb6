//! Tests of cancellations, for all drivers: a cancelled request completes exactly once, whether the
//! device gives it up or not.

use super::wait::{LONG, scratch, with_vhost_user};
use crate::buf::Buf;
use crate::driver::testing::{DEPTH, Numbers, data, issue, queue, reap};
use crate::driver::{DriverQueue, Mode};
use crate::sys::clock;
use forebay_core::{Bio, BlockStatus, Driver, Op, Tag};
use std::time::Duration;

const ALL: [&str; 9] =
    ["file", "file?direct=on", "file?sqpoll=on", "aio", "psync", "nbd", "model", "ram", "fault"];

/// Returns a bio on the tag's own 4 KiB, and the number of bytes that it moves.
fn bio_of(tag: usize, round: u64, buf: &mut [u8]) -> (Bio, u64) {
    let at = tag as u64 * 4096;
    match (tag as u64 + round) % 4 {
        0 => (Bio::flush(), 0),
        1 => (data(Op::Write, at, buf, 4096), 4096),
        _ => (data(Op::Read, at, buf, 4096), 4096),
    }
}

#[test]
fn cancelled_requests_complete_once() {
    for driver in with_vhost_user(ALL) {
        for mode in [Mode::Owned, Mode::Shared] {
            let (spec, _place) = scratch(driver);
            let DriverQueue { mut driver, waiter } = queue(&spec, mode);
            let mut numbers = Numbers(5);
            let mut bufs: Vec<Buf> = (0..DEPTH).map(|_| Buf::new(4096)).collect();
            let begin = clock::now_ns();
            for round in 0..60u64 {
                let nr = numbers.below(u64::from(DEPTH)) as usize + 1;
                let mut expected = vec![None; nr];
                for (tag, buf) in bufs.iter_mut().enumerate().take(nr) {
                    let (bio, len) = bio_of(tag, round, buf);
                    expected[tag] = Some(len);
                    issue(&mut *driver, tag, bio);
                }
                if round % 3 > 0 {
                    driver.commit_rqs();
                }
                let mut cancelled = vec![false; nr];
                for _ in 0..numbers.below(8) {
                    let tag = numbers.below(nr as u64) as usize;
                    cancelled[tag] |= driver.cancel(Tag::from_index(tag));
                }
                driver.commit_rqs();
                let mut nr_left = nr;
                while nr_left > 0 {
                    for done in reap(&mut *driver) {
                        let tag = done.tag.index();
                        let len = expected[tag].take().expect("it completes once");
                        let is_good = done.result == Ok(len)
                            || cancelled[tag] && done.result == Err(BlockStatus::Timeout);
                        assert!(is_good, "{spec} {mode:?}: {done:?}");
                        nr_left -= 1;
                    }
                    match mode {
                        _ if nr_left == 0 || driver.has_ready() => {}
                        Mode::Owned => driver.wait(nr_left as u32, Some(LONG)),
                        Mode::Shared => waiter.wait(Some(LONG)),
                    }
                }
            }
            assert!(reap(&mut *driver).is_empty());
            assert!(clock::now_ns() - begin < LONG.as_nanos() as u64, "{spec} {mode:?}");
        }
    }
}

#[test]
fn hung_request_completes_only_when_it_is_cancelled() {
    for inner in with_vhost_user(["file", "aio", "psync", "nbd", "model", "ram", "null"]) {
        let (spec, _place) = scratch(inner);
        let rules = "rule=read:hang:range=0+4k&rule=write:delay=100us";
        let spec = format!("fault:{spec}{}{rules}", if spec.contains('?') { "&" } else { "?" });
        for mode in [Mode::Owned, Mode::Shared] {
            let DriverQueue { mut driver, waiter } = queue(&spec, mode);
            let mut bufs: Vec<Buf> = (0..3).map(|_| Buf::new(4096)).collect();
            for (tag, buf) in bufs.iter_mut().enumerate() {
                let op = if tag == 2 { Op::Write } else { Op::Read };
                issue(&mut *driver, tag, data(op, tag as u64 * 4096, buf, 4096));
            }
            driver.commit_rqs();
            let wait = |driver: &mut dyn Driver, nr, timeout| match mode {
                Mode::Owned => driver.wait(nr, timeout),
                Mode::Shared if driver.has_ready() => {}
                Mode::Shared => waiter.wait(timeout),
            };
            let mut tags = Vec::new();
            let begin = clock::now_ns();
            while tags.len() < 2 {
                wait(&mut *driver, 3, Some(Duration::from_secs(20)));
                tags.extend(reap(&mut *driver).iter().map(|done| done.tag.index()));
            }
            assert!(clock::now_ns() - begin < 20_000_000_000, "{spec} {mode:?}");
            tags.sort_unstable();
            assert_eq!(tags, [1, 2], "{spec} {mode:?}: the others complete");
            let begin = clock::now_ns();
            while clock::now_ns() - begin < 5_000_000 {
                wait(&mut *driver, 1, Some(Duration::from_millis(5)));
                assert!(reap(&mut *driver).is_empty(), "{spec} {mode:?}: it hangs");
            }
            assert!(driver.cancel(Tag::from_index(0)), "{spec}");
            assert!(driver.has_ready());
            let done = reap(&mut *driver);
            assert_eq!(done.len(), 1);
            assert_eq!(done[0].tag.index(), 0);
            assert_eq!(done[0].result, Err(BlockStatus::Timeout));
            assert!(reap(&mut *driver).is_empty(), "it completes once");
        }
    }
}
